/* Inference messages over gRPC: no input may crash or leak; what is accepted has tensors that agree with their own shapes, and an answer made
 * of them reads as protobuf again, field by field, with the same bytes. Input: a message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tensor/infer_proto.h"
#include "wire/protobuf.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* The raw contents of an answer are the tensors' bytes, in order. */
static void again(const struct infer_json *r)
{
    const struct tensor *outputs[INFER_JSON_IO_MAX];
    struct slice slices[1 + 2 * INFER_JSON_IO_MAX];
    struct error err = {0};
    struct buf whole;
    struct pb_field f;
    size_t n, bytes, at = 0;
    uint8_t *head;
    int rc;
    for (size_t i = 0; i < r->n_inputs; i++)
        outputs[i] = &r->inputs[i];
    struct infer_proto_reply reply = {STR("m"), STR("1"), r->id, r->params, r->n_params, outputs, r->n_inputs, 16};
    check(infer_proto_encode(&reply, 5, slices, &n, &head, &bytes, &err) == 0);
    buf_init(&whole);
    for (size_t i = 0; i < n; i++) {
        buf_append(&whole, slices[i].p, slices[i].n);
        slice_release(&slices[i]);
    }
    check(whole.n == bytes + 5);
    struct pb_reader p = pb_reader_of((struct str){whole.p + 5, bytes});
    while ((rc = pb_next(&p, &f, &err)) == 1)
        if (f.number == 6) {
            check(at < r->n_inputs && f.bytes.n == r->inputs[at].data.n);
            check(f.bytes.n == 0 || memcmp(f.bytes.p, r->inputs[at].data.p, f.bytes.n) == 0);
            at++;
        }
    check(rc == 0 && at == r->n_inputs);
    buf_release(&whole);
}

static void free_exact(struct slab *s)
{
    free(s->data);
    free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct infer_json_limits limits = {.tensor_bytes = 1 << 20};
    struct infer_proto m;
    struct error err = {0};
    struct arena a;
    /* An exact allocation, so that the sanitizer sees a read past it, and a reference count that shows a leak. */
    struct slab *slab = calloc(1, sizeof *slab);
    slab->free_fn = free_exact;
    slab->data = malloc(size ? size : 1);
    slab->n = slab->cap = size;
    atomic_init(&slab->refs, 1);
    if (size)
        memcpy(slab->data, data, size);
    arena_init(&a, 1024, 1 << 20);
    int rc = infer_proto_decode((struct slice){slab->data, size, slab}, &a, &limits, &m, &err);
    check(rc == STATUS_OK || (err.code == rc && err.text[0]));
    check(rc == STATUS_OK || (m.request.n_inputs == 0 && m.request.n_outputs == 0));
    for (size_t i = 0; i < m.request.n_inputs; i++)
        check(tensor_check(&m.request.inputs[i], &err) == STATUS_OK);
    if (rc == STATUS_OK)
        again(&m.request);
    infer_proto_release(&m);
    check(atomic_load(&slab->refs) == 1);
    arena_release(&a);
    slab_unref(slab);
    return 0;
}
