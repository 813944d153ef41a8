/* fuzz_regex.c: any bytes as a regular expression: grammar_fuzz.h says what has to hold. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_source(GRAMMAR_REGEX, data, size);
}
