/* Inference requests: no input may crash; what is accepted is strict JSON for yyjson too and agrees with its own shapes, and its
 * numbers, written as JSON and read again, are the same bytes. Input: two bytes that say where the JSON ends (little-endian,
 * modulo), then the body. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <yyjson.h>

#include "base/status.h"
#include "tensor/infer_json.h"
#include "tensor/infer_json_encode.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void again(const struct tensor *t)
{
    struct buf b;
    struct arena a;
    struct infer_json r;
    struct error err = {0};
    size_t at;
    buf_init(&b);
    buf_append_z(&b, "{\"inputs\":[{\"name\":");
    buf_append_json_str(&b, t->name);
    buf_printf(&b, ",\"datatype\":\"%s\",\"shape\":[", dtype_name(t->dtype));
    for (size_t i = 0; i < t->shape.rank; i++)
        buf_printf(&b, "%s%lld", i ? "," : "", (long long)t->shape.dim[i]);
    buf_append_z(&b, "],\"data\":");
    at = b.n;
    if (json_encode_data(t, &b, &err) == STATUS_OK) { /* refused: NaN in binary data, or bytes that are not UTF-8 */
        buf_append_z(&b, "}]}");
        arena_init(&a, 1024, 0);
        check(infer_json_decode(buf_str(&b), slice_borrow(NULL, 0), &a, NULL, &r, &err) == STATUS_OK);
        check(r.inputs[0].data.n == t->data.n);
        check(t->data.n == 0 || memcmp(r.inputs[0].data.p, t->data.p, t->data.n) == 0);
        infer_json_release(&r);
        arena_release(&a);
    }
    check(b.n >= at);
    buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct infer_json r;
    struct error err = {0};
    struct infer_json_limits limits = {.tensor_bytes = 1 << 20};
    if (size < 2)
        return 0;
    size_t split = ((size_t)data[0] | (size_t)data[1] << 8) % (size - 1);
    /* Exact allocations, so that the sanitizer sees a read past either part. */
    char *json = malloc(split ? split : 1);
    uint8_t *tail = malloc(size - 2 - split ? size - 2 - split : 1);
    memcpy(json, data + 2, split);
    memcpy(tail, data + 2 + split, size - 2 - split);
    arena_init(&a, 1024, 1 << 20);
    int rc = infer_json_decode((struct str){json, split}, slice_borrow(tail, size - 2 - split), &a, &limits, &r, &err);
    check(rc == STATUS_OK || (err.code == rc && err.text[0]));
    check(rc == STATUS_OK || (r.n_inputs == 0 && r.n_outputs == 0));
    if (rc == STATUS_OK) {
        yyjson_doc *doc = yyjson_read(json, split, YYJSON_READ_NUMBER_AS_RAW);
        check(doc);
        yyjson_doc_free(doc);
    }
    for (size_t i = 0; i < r.n_inputs; i++) {
        check(tensor_check(&r.inputs[i], &err) == STATUS_OK);
        /* Name and shape must come through again; a name that JSON can't spell would not have been read. */
        again(&r.inputs[i]);
    }
    infer_json_release(&r);
    arena_release(&a);
    free(json);
    free(tail);
    return 0;
}
