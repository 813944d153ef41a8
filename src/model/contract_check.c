/* contract_check.c: one request's inputs against the contract, before it may enter a queue (so that nothing malformed reaches a
 * batch and its neighbours). Every message names the input, what is expected with the batch rule, what came, and what to do.
 *
 * The shape class ("bucket") of a request is a keyed hash over the presence, dtype and padded shape behind the batch axis of
 * each input. Two classes with the same hash would meet in one batch: instance.c compares the shapes while gathering and runs
 * such a batch one by one, so a collision costs time, never a wrong answer. */
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "model/contract_priv.h"

int64_t pad_rule_length(const struct pad_rule *r, int64_t length)
{
    for (int i = 0; i < r->n_buckets; i++)
        if (r->buckets[i] >= length)
            return r->buckets[i];
    if (r->n_buckets || length > (INT64_MAX >> 1))
        return length;
    int64_t p = 1;
    while (p < length)
        p <<= 1;
    return p;
}

void contract_padded(const struct contract *c, size_t i, const struct shape *given, struct shape *out)
{
    *out = *given;
    for (int k = 0; k < c->in[i].n_pad; k++) {
        const struct pad_rule *r = &c->in[i].pad[k];
        out->dim[r->axis] = pad_rule_length(r, given->dim[r->axis]);
    }
}

/* input "x": expected FP32 [batch,3,224,224] with batch 1..8, got FP32 [9,3,224,224]: <advice> */
static int mismatch(const struct contract *c, const struct engine_io *io, const struct tensor *got, const char *advice,
                    struct error *err)
{
    char want[200], have[200], rule[48] = "";
    contract_shape(c, io, want, sizeof want);
    shape_format(&got->shape, have, sizeof have);
    if (c->max_batch)
        snprintf(rule, sizeof rule, " with batch 1..%u", c->max_batch);
    return error_set(err, STATUS_INVALID, "input \"%.*s\": expected %s [%s]%s, got %s %s: %s", STR_ARG(io->name),
                     dtype_name(io->dtype), want, rule, dtype_name(got->dtype), have, advice);
}

static int check_shape(const struct contract *c, const struct engine_io *io, const struct tensor *t, struct error *err)
{
    char advice[96];
    if (t->dtype != io->dtype) {
        snprintf(advice, sizeof advice, "send the tensor as %s", dtype_name(io->dtype));
        return mismatch(c, io, t, advice, err);
    }
    if (t->shape.rank != io->shape.rank) {
        if (c->max_batch && t->shape.rank + 1 == io->shape.rank)
            return mismatch(c, io, t, "put a batch axis in front, of length 1 for one row", err);
        snprintf(advice, sizeof advice, "send %d dims", io->shape.rank);
        return mismatch(c, io, t, advice, err);
    }
    for (int d = c->max_batch ? 1 : 0; d < io->shape.rank; d++)
        if (t->shape.dim[d] < 0 || (io->shape.dim[d] >= 0 && t->shape.dim[d] != io->shape.dim[d])) {
            if (io->shape.dim[d] >= 0)
                snprintf(advice, sizeof advice, "dim %d must be %lld", d, (long long)io->shape.dim[d]);
            else
                snprintf(advice, sizeof advice, "dim %d must not be negative", d);
            return mismatch(c, io, t, advice, err);
        }
    if (!c->max_batch)
        return 0;
    if (t->shape.dim[0] < 1)
        return mismatch(c, io, t, "send at least one row", err);
    if (t->shape.dim[0] > (int64_t)c->max_batch)
        return mismatch(c, io, t, "split the request or raise max_batch_size", err);
    return 0;
}

/* Put the tensor that belongs at contract position `at` there; those behind it are in any order. */
static int place(const struct contract *c, struct infer *inf, size_t at, struct error *err)
{
    const struct engine_io *io = &c->c.inputs[at];
    for (size_t i = at; i < inf->n_inputs; i++) {
        if (!str_eq(inf->inputs[i].name, io->name))
            continue;
        struct tensor t = inf->inputs[i];
        inf->inputs[i] = inf->inputs[at];
        inf->inputs[at] = t;
        inf->inputs[at].name = io->name;
        return 0;
    }
    if (!io->optional) {
        char want[200];
        return error_set(err, STATUS_INVALID, "input \"%.*s\" is missing: expected %s [%s]", STR_ARG(io->name),
                         dtype_name(io->dtype), contract_shape(c, io, want, sizeof want));
    }
    /* an optional one left out: make a hole; the one that stood here moves to the end */
    if (at < inf->n_inputs)
        inf->inputs[inf->n_inputs] = inf->inputs[at];
    inf->n_inputs++;
    inf->inputs[at] = (struct tensor){.name = io->name, .dtype = DTYPE_INVALID};
    return 0;
}

/* Names first: with unknown and duplicate ones refused, the holes that place() makes fit the array (contract n_inputs). */
static int check_names(const struct contract *c, const struct infer *inf, struct error *err)
{
    bool seen[INFER_IO_MAX] = {false};
    for (size_t i = 0; i < inf->n_inputs; i++) {
        struct str name = inf->inputs[i].name;
        int at = contract_find(c->c.inputs, c->c.n_inputs, name);
        if (at < 0) {
            char list[256];
            size_t n = 0;
            list[0] = 0;
            for (size_t k = 0; k < c->c.n_inputs && n + 1 < sizeof list; k++)
                n += (size_t)snprintf(list + n, sizeof list - n, "%s\"%.*s\"", k ? ", " : "", STR_ARG(c->c.inputs[k].name));
            return error_set(err, STATUS_INVALID, "input \"%.*s\" is unknown: the model's inputs are %s", STR_ARG(name), list);
        }
        if (seen[at])
            return error_set(err, STATUS_INVALID, "input \"%.*s\" is given twice: send each input once", STR_ARG(name));
        seen[at] = true;
    }
    return 0;
}

static int check_rows(const struct contract *c, struct infer *inf, struct error *err)
{
    int64_t rows = -1;
    size_t first = 0;
    for (size_t i = 0; i < c->c.n_inputs && c->max_batch; i++) {
        const struct tensor *t = &inf->inputs[i];
        if (t->dtype == DTYPE_INVALID)
            continue;
        if (rows >= 0 && t->shape.dim[0] != rows)
            return error_set(
                err, STATUS_INVALID,
                "input \"%.*s\" has batch %lld and input \"%.*s\" has batch %lld: all inputs of a request must have "
                "the same batch",
                STR_ARG(inf->inputs[first].name), (long long)rows, STR_ARG(t->name), (long long)t->shape.dim[0]);
        if (rows < 0)
            first = i;
        rows = t->shape.dim[0];
    }
    inf->rows = rows < 0 ? 1 : (uint32_t)rows;
    return 0;
}

int64_t contract_mask_length(const struct contract *c, size_t i, const struct tensor *inputs)
{
    int of = c->in[i].mask_of;
    return inputs[of].shape.dim[c->in[of].pad[0].axis];
}

static int check_masks(const struct contract *c, const struct infer *inf, struct error *err)
{
    for (size_t i = 0; i < c->c.n_inputs && c->pads; i++) {
        const struct tensor *t = &inf->inputs[i];
        int of = c->in[i].mask_of;
        if (of < 0 || t->dtype == DTYPE_INVALID || inf->inputs[of].dtype == DTYPE_INVALID)
            continue;
        int64_t length = contract_mask_length(c, i, inf->inputs);
        if (t->shape.dim[1] != length)
            return error_set(
                err, STATUS_INVALID,
                "input \"%.*s\" is the mask of \"%.*s\" and must have its length %lld, got %lld: send a mask of that "
                "length, or none",
                STR_ARG(t->name), STR_ARG(inf->inputs[of].name), (long long)length, (long long)t->shape.dim[1]);
    }
    return 0;
}

uint64_t contract_bucket(const struct contract *c, const struct tensor *inputs)
{
    uint64_t h = 0x696e66657264ull;
    for (size_t i = 0; i < c->c.n_inputs && !c->uniform; i++) {
        const struct tensor *t = &inputs[i];
        struct {
            uint64_t index, present;
            int64_t dim[TENSOR_RANK_MAX];
        } key = {.index = i, .present = t->dtype != DTYPE_INVALID};
        if (c->in[i].mask_of >= 0)
            continue; /* made when left out, so its presence makes no class; its shape follows its input's */
        struct shape s = {0};
        if (key.present)
            contract_padded(c, i, &t->shape, &s);
        for (int d = c->max_batch ? 1 : 0; d < s.rank; d++)
            key.dim[d] = s.dim[d];
        h = hash_bytes(&key, sizeof key, h);
    }
    return h & c->bucket_mask;
}

int contract_check(const struct contract *c, struct infer *inf, struct error *err)
{
    int rc = check_names(c, inf, err);
    for (size_t i = 0; i < c->c.n_inputs && !rc; i++)
        rc = place(c, inf, i, err);
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->c.n_inputs && !rc; i++) {
        const struct tensor *t = &inf->inputs[i];
        if (t->dtype == DTYPE_INVALID)
            continue;
        rc = check_shape(c, &c->c.inputs[i], t, err);
        if (!rc)
            rc = tensor_check(t, err);
        bytes += t->data.n;
    }
    if (!rc)
        rc = check_rows(c, inf, err);
    if (!rc)
        rc = check_masks(c, inf, err);
    if (rc)
        return rc;
    inf->item.rows = inf->rows;
    inf->item.bytes = bytes;
    inf->item.bucket = contract_bucket(c, inf->inputs);
    return 0;
}
