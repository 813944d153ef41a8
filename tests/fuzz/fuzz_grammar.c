/* fuzz_grammar.c: any bytes as GBNF text: grammar_fuzz.h says what has to hold. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_source(GRAMMAR_GBNF, data, size);
}
