/* fuzz_json_schema.c: any bytes as a JSON Schema: grammar_fuzz.h says what has to hold. */
#include "grammar_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_source(GRAMMAR_JSON_SCHEMA, data, size);
}
