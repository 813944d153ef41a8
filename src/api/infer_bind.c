/* infer_bind.c: a decoded request against its version's contract, and the outputs that its reply is made of; headers that every
 * protocol reads alike. */
#include <stdio.h>
#include <string.h>

#include "api/infer_priv.h"
#include "base/check.h"
#include "base/status.h"
#include "tensor/classification.h"

#define NS_PER_MS 1000000u
#define NS_PER_US 1000u

/* ---- headers ---- */

/* Two of them are two readings, and a proxy in front may have checked the other one. */
int api__header_once(const struct http_request *r, const char *name, struct str *out, struct error *err)
{
    uint32_t seen = 0;
    *out = (struct str){0};
    for (size_t i = 0; i < r->n_headers; i++) {
        if (!str_ieqz(r->headers[i].name, name))
            continue;
        if (seen++)
            return error_set(err, STATUS_INVALID, "the header %s is there more than once; send it once", name);
        *out = r->headers[i].value;
    }
    return 0;
}

int api__header_deadline(const struct http_request *r, uint64_t from_ns, uint64_t *deadline_ns, struct error *err)
{
    struct str h;
    uint64_t ms, at;
    *deadline_ns = SCHED_NEVER;
    int rc = api__header_once(r, "x-inferd-timeout-ms", &h, err);
    if (rc || !h.p)
        return rc;
    if (!str_to_u64(h, &ms) || ms == 0)
        return error_set(err, STATUS_INVALID,
                         "header x-inferd-timeout-ms \"%.*s\": expected a whole number of milliseconds from 1", STR_ARG(h));
    if (!__builtin_mul_overflow(ms, NS_PER_MS, &at) && !__builtin_add_overflow(at, from_ns, &at))
        *deadline_ns = at;
    return 0;
}

/* ---- the way in ---- */

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

static int unknown_output(const struct infer_call *c, struct str name, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    char known[256];
    size_t n = 0;
    known[0] = 0;
    for (size_t i = 0; i < k->n_outputs && n < sizeof known - 1; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s\"%.*s\"", i ? ", " : "", STR_ARG(k->outputs[i].name));
    return error_set(err, STATUS_INVALID, "unknown output \"%.*s\" for model \"%.*s\"; it has %s", STR_ARG(name),
                     STR_ARG(model_version_model(c->version)), known);
}

/* Requested outputs -> the wanted set, in contract order. */
static int map_outputs(struct infer_call *c, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    if (!c->in.n_outputs)
        return 0;
    bool *wanted = arena_array(c->arena, k->n_outputs, sizeof *wanted);
    size_t *index = arena_array(c->arena, c->in.n_outputs, sizeof *index);
    if (!wanted || !index)
        return no_memory(err);
    for (size_t i = 0; i < c->in.n_outputs; i++) {
        size_t at = 0;
        while (at < k->n_outputs && !str_eq(k->outputs[at].name, c->in.outputs[i].name))
            at++;
        if (at == k->n_outputs)
            return unknown_output(c, c->in.outputs[i].name, err);
        wanted[at] = true;
        index[i] = at;
    }
    c->inf.wanted = wanted;
    c->output_index = index;
    return 0;
}

/* Move the decoded tensors into an array with room for the whole contract, and make one for the outputs. */
static int place_tensors(struct infer_call *c, struct error *err)
{
    const struct engine_contract *k = model_version_contract(c->version);
    struct arena *arena = c->arena;
    c->inf.inputs = arena_array(arena, MAX_OF(k->n_inputs, c->in.n_inputs), sizeof *c->inf.inputs);
    c->inf.outputs = arena_array(arena, k->n_outputs, sizeof *c->inf.outputs);
    if (!c->inf.inputs || !c->inf.outputs)
        return no_memory(err);
    if (c->in.n_inputs)
        memcpy(c->inf.inputs, c->in.inputs, c->in.n_inputs * sizeof *c->inf.inputs);
    c->inf.n_inputs = c->in.n_inputs;
    c->in.n_inputs = 0; /* their references belong to inf now */
    return 0;
}

int api__infer_bind(struct infer_call *c, struct error *err)
{
    c->inf.version = model_version_ref(c->version);
    int rc = map_outputs(c, err);
    if (rc == 0)
        rc = place_tensors(c, err);
    /* What the KServe timeout means is the model's policy to say, which also knows its default: model/infer.c takes the least. */
    uint64_t us = c->in.timeout_us;
    c->inf.timeout_ns = us && us < UINT64_MAX / NS_PER_US ? us * NS_PER_US : 0;
    c->inf.priority = c->in.priority;
    return rc;
}

/* ---- the way out ---- */

size_t api__infer_outputs(const struct infer_call *c)
{
    return c->in.n_outputs ? c->in.n_outputs : model_version_contract(c->version)->n_outputs;
}

int api__infer_output(struct infer_call *c, size_t i, struct tensor *top, const struct tensor **out, struct error *err)
{
    const struct infer_json_output *asked = c->in.n_outputs ? &c->in.outputs[i] : NULL;
    size_t index = asked ? c->output_index[i] : i, n_labels = 0;
    struct tensor *t = &c->inf.outputs[index];
    t->name = model_version_contract(c->version)->outputs[index].name;
    *out = t;
    if (!asked || !asked->classification)
        return 0;
    const struct str *labels = model_version_labels(c->version, index, &n_labels);
    *out = top;
    return classification_top(t, model_version_max_batch(c->version) > 0, asked->classification, labels, n_labels, top, err);
}
