/* fuzz_safetensors.c: any bytes as a safetensors file: the parse must end and cover the data behind the header exactly. */
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "engine/llm/file/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct safetensors st;
    struct error err = {0};
    arena_init(&a, 4096, 64 << 20);
    int rc = safetensors_parse(data, size, &a, &st, &err);
    ASSERT(rc <= 0 && rc == err.code);
    for (size_t i = 0; rc == 0 && i < st.n; i++) {
        const uint8_t *end = i + 1 < st.n ? st.v[i + 1].data : data + size;
        ASSERT(st.v[i].data >= data + 8 && st.v[i].data + st.v[i].bytes == end);
        ASSERT(st.v[i].n_dims <= SAFETENSORS_DIMS_MAX);
    }
    arena_release(&a);
    return 0;
}
