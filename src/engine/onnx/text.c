/* text.c: BYTES tensors. The wire form is [u32 length][bytes] per element; the runtime holds std::string objects. Embedded NULs
 * survive both ways: elements are filled through their own buffers, never as C strings.
 *
 * Out: the runtime writes all content in one run, offsets beside it. It is read to the end of the slab, 4 bytes per element
 * behind its final place, and moved forward element by element; content i ends at most where content i + 1 starts:
 *
 *     |<- 4n free ->|c0|c1|c2|      ->      |len c0|len c1|len c2|
 */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"

static uint32_t load_u32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8), p[2] = (uint8_t)(v >> 16), p[3] = (uint8_t)(v >> 24);
}

static int fill(const OrtApi *api, const struct tensor *t, OrtValue *v, uint64_t n, struct error *err)
{
    const uint8_t *p = t->data.p, *end = p + t->data.n;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t len = end - p >= 4 ? load_u32(p) : UINT32_MAX;
        if (end - p < 4 || len > (size_t)(end - p) - 4)
            return error_set(err, STATUS_INVALID, "element %llu of input '%.*s' is longer than the data", (unsigned long long)i,
                             STR_ARG(t->name));
        char *to = NULL;
        int rc = onnx__take(api, api->GetResizedStringTensorElementBuffer(v, i, len, &to), ONNX_CALLING, err, "a string input");
        if (rc)
            return rc;
        if (len)
            memcpy(to, p + 4, len);
        p += 4 + (size_t)len;
    }
    if (p != end)
        return error_set(err, STATUS_INVALID, "input '%.*s' has %zu bytes behind its last element", STR_ARG(t->name),
                         (size_t)(end - p));
    return STATUS_OK;
}

int onnx__text_in(const struct engine *e, const struct tensor *t, OrtValue **out, struct error *err)
{
    uint64_t n;
    if (!shape_elements(&t->shape, &n) || n > t->data.n / 4)
        return error_set(err, STATUS_INVALID, "input '%.*s' has fewer bytes than its shape asks for", STR_ARG(t->name));
    int rc = onnx__take(
        e->api,
        e->api->CreateTensorAsOrtValue(e->allocator, t->shape.dim, t->shape.rank, ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING, out),
        ONNX_CALLING, err, "a string input");
    if (rc)
        return rc;
    rc = fill(e->api, t, *out, n, err);
    if (rc) {
        e->api->ReleaseValue(*out);
        *out = NULL;
    }
    return rc;
}

static int gather(const struct engine *e, OrtValue *v, size_t n, size_t total, size_t *offsets, struct slab *s,
                  struct error *err)
{
    int rc = onnx__take(e->api, e->api->GetStringTensorContent(v, s->data + 4 * n, total, offsets, n), ONNX_CALLING, err,
                        "a string output");
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++) {
        size_t len = (i + 1 < n ? offsets[i + 1] : total) - offsets[i];
        if (len > UINT32_MAX)
            return error_set(err, STATUS_INTERNAL, "an element of a string output is longer than 4 GiB");
        uint8_t *to = s->data + 4 * i + offsets[i];
        memmove(to + 4, s->data + 4 * n + offsets[i], len);
        store_u32(to, (uint32_t)len);
    }
    return STATUS_OK;
}

int onnx__text_out(const struct engine *e, OrtValue *v, uint64_t elements, struct slice *out, struct error *err)
{
    size_t total = 0, bytes = 0, n = (size_t)elements;
    int rc = onnx__take(e->api, e->api->GetStringTensorDataLength(v, &total), ONNX_CALLING, err, "a string output");
    if (rc)
        return rc;
    struct slab *s = size_mul(n, 4, &bytes) && size_add(bytes, total, &bytes) ? slab_create(bytes) : NULL;
    size_t *offsets = calloc(n + 1, sizeof offsets[0]);
    if (!s || !offsets) {
        free(offsets);
        slab_unref(s);
        error_set(err, STATUS_NOMEM, "no memory for a string output of %zu bytes", total);
        return STATUS_NOMEM;
    }
    rc = n ? gather(e, v, n, total, offsets, s, err) : STATUS_OK;
    free(offsets);
    if (rc) {
        slab_unref(s);
        return rc;
    }
    s->n = bytes;
    *out = (struct slice){s->data, bytes, s};
    return STATUS_OK;
}
