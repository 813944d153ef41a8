/* fuzz_onnx_scan.c: any bytes as an ONNX file. The scan must end, stay inside the bytes and inside its arena, and hand out only
 * views of the bytes; its checks must not crash on what it found. */
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "engine/onnx/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(struct str s, const uint8_t *data, size_t size)
{
    ASSERT(s.n == 0 || ((const uint8_t *)s.p >= data && (const uint8_t *)s.p + s.n <= data + size));
}

static size_t count_values(const struct onnx_value *v, const uint8_t *data, size_t size)
{
    size_t n = 0;
    for (; v; v = v->next, n++) {
        inside(v->name, data, size);
        for (size_t d = 0; d < TENSOR_RANK_MAX; d++)
            inside(v->dim_names[d], data, size);
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct onnx_scan s;
    struct error err = {0};
    arena_init(&a, 4096, 8 << 20);
    int rc = onnx_scan((struct str){(const char *)data, size}, &a, &s, &err);
    ASSERT(rc <= 0 && (rc == 0) == (err.code == 0));
    if (rc == 0) {
        ASSERT(count_values(s.inputs, data, size) == s.n_inputs);
        ASSERT(count_values(s.outputs, data, size) == s.n_outputs);
        ASSERT(s.initializer_bytes <= 8 * (uint64_t)size);
        for (const struct onnx_pair *p = s.external; p; p = p->next)
            inside(p->value, data, size);
        for (const struct onnx_pair *p = s.metadata; p; p = p->next)
            inside(p->key, data, size);
        inside(s.doc, data, size);
        ASSERT(onnx_scan_check(&s, &err) <= 0);
    }
    arena_release(&a);
    return 0;
}
