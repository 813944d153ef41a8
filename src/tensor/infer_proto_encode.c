/* infer_proto_encode.c: ModelInferResponse. See infer_proto.h.
 *
 * All text parts go into one buffer, small outputs too, since a piece of its own costs more than the copy. Where a large output's
 * bytes belong, the buffer is cut: the message leaves as views of the one buffer with the engine's slices between them. Outputs are
 * always raw, as Triton's are, also for a request that came typed. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/infer_proto_priv.h"

enum { REPLY_MODEL = 1, REPLY_VERSION, REPLY_ID, REPLY_PARAMETERS, REPLY_OUTPUTS, REPLY_RAW };
enum { OUTPUT_NAME = 1, OUTPUT_DATATYPE, OUTPUT_SHAPE };
enum { ENTRY_KEY = 1, ENTRY_VALUE };
enum { PARAM_BOOL = 1, PARAM_INT64, PARAM_STRING, PARAM_DOUBLE };

#define TEXT_BYTES    256 /* what an output's text is expected to take, to allocate once */
#define MESSAGE_LIMIT INT32_MAX

static void append_param(struct buf *b, const struct infer_param *p)
{
    size_t entry = pb_open_message(b, REPLY_PARAMETERS);
    pb_append_bytes(b, ENTRY_KEY, p->key);
    size_t value = pb_open_message(b, ENTRY_VALUE);
    switch (p->kind) { /* a member of a oneof is written also when it is the default */
    case INFER_PARAM_BOOL:
        pb_append_u64(b, PARAM_BOOL, p->b);
        break;
    case INFER_PARAM_INT:
        pb_append_u64(b, PARAM_INT64, (uint64_t)p->i);
        break;
    case INFER_PARAM_STRING:
        pb_append_bytes(b, PARAM_STRING, p->s);
        break;
    case INFER_PARAM_DOUBLE:
        pb_append_f64(b, PARAM_DOUBLE, p->d);
        break;
    }
    pb_close_message(b, value);
    pb_close_message(b, entry);
}

static void append_text(struct buf *b, const struct infer_proto_reply *r)
{
    pb_put_str(b, REPLY_MODEL, r->model_name);
    pb_put_str(b, REPLY_VERSION, r->model_version);
    pb_put_str(b, REPLY_ID, r->id);
    for (size_t i = 0; i < r->n_params; i++)
        append_param(b, &r->params[i]);
    for (size_t i = 0; i < r->n_outputs; i++) {
        const struct tensor *t = r->outputs[i];
        size_t output = pb_open_message(b, REPLY_OUTPUTS);
        pb_put_str(b, OUTPUT_NAME, t->name);
        pb_put_str(b, OUTPUT_DATATYPE, str_of(dtype_name(t->dtype)));
        pb_put_packed_i64(b, OUTPUT_SHAPE, t->shape.dim, t->shape.rank);
        pb_close_message(b, output);
    }
}

/* The raw contents: small ones into `b`; the others are left out and their places, counted in b's bytes, remembered in `cut`. */
static size_t append_raw(struct buf *b, const struct infer_proto_reply *r, size_t *cut)
{
    size_t apart = 0;
    for (size_t i = 0; i < r->n_outputs; i++) {
        const struct slice *data = &r->outputs[i]->data;
        pb_append_tag(b, REPLY_RAW, PB_LEN);
        pb_append_varint(b, data->n);
        cut[i] = b->n;
        if (data->n > r->copy_bytes)
            apart += data->n;
        else
            buf_append(b, data->p, data->n);
    }
    return apart;
}

/* Views of `all` between the cuts, and the outputs that belong there. */
static size_t interleave(const struct infer_proto_reply *r, const struct slice *all, const size_t *cut, struct slice *slices)
{
    size_t n = 0, at = 0;
    for (size_t i = 0; i < r->n_outputs; i++) {
        struct slice data = r->outputs[i]->data;
        if (data.n <= r->copy_bytes)
            continue;
        slices[n++] = (struct slice){all->p + at, cut[i] - at, slab_ref(all->owner)};
        if (data.owner)
            slab_ref(data.owner);
        slices[n++] = data;
        at = cut[i];
    }
    if (at < all->n)
        slices[n++] = (struct slice){all->p + at, all->n - at, slab_ref(all->owner)};
    return n;
}

int infer_proto_encode(const struct infer_proto_reply *r, size_t front, struct slice *slices, size_t *n_slices, uint8_t **head,
                       size_t *message_bytes, struct error *err)
{
    size_t cut[INFER_JSON_IO_MAX], total = 0;
    struct buf b;
    ASSERT(r->n_outputs <= COUNT_OF(cut));
    *n_slices = 0;
    for (size_t i = 0; i < r->n_outputs; i++)
        if (!size_add(total, r->outputs[i]->data.n, &total) || total > MESSAGE_LIMIT)
            return error_set(err, STATUS_TOO_LARGE,
                             "the answer has more than 2 GiB, which a gRPC message can't carry; ask for fewer outputs or rows");
    buf_init(&b);
    if (buf_reserve(&b, front + TEXT_BYTES * (1 + r->n_outputs)))
        b.n = front;
    append_text(&b, r);
    size_t apart = append_raw(&b, r, cut);
    *message_bytes = b.n - front + apart;
    struct slice all = slice_take(&b);
    if (!all.p)
        return error_set(err, STATUS_NOMEM, "out of memory for this reply; try again later");
    *head = all.owner->data;
    *n_slices = interleave(r, &all, cut, slices);
    slice_release(&all);
    return 0;
}
