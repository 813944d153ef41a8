/* openai_embeddings.c: POST /v1/embeddings: vectors of texts or token ids, as numbers or as base64 of little-endian floats, which is what
 * OpenAI's client asks for by itself.
 *
 * Nothing is truncated. `dimensions` below the model's is served where the model says that its vectors may be cut (Kusupati et al. 2022,
 * "Matryoshka representation learning"): the first ones, normalised again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/guard.h"
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "tensor/base64.h"
#include "tensor/json_number.h"

struct embeddings {
    uint64_t dims; /* of the reply */
    bool base64;
};

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

/* ---- prepare ---- */

static int take_ids(struct gen_call *c, yyjson_val *list, size_t index, struct error *err)
{
    size_t i, n = yyjson_arr_size(list);
    yyjson_val *e;
    int32_t *ids = n ? calloc(n, sizeof *ids) : NULL;
    if (!n)
        return openai__invalid(c, "input", err, "input[%zu] is an empty list", index);
    if (!ids)
        return no_memory(err);
    c->prompts[index].tokens = ids;
    c->prompts[index].n_tokens = n;
    yyjson_arr_foreach(list, i, n, e)
    {
        if (!yyjson_is_uint(e) || yyjson_get_uint(e) > INT32_MAX)
            return openai__invalid(c, "input", err, "input: element %zu of a list of tokens must be a token id", i);
        ids[i] = (int32_t)yyjson_get_uint(e);
    }
    return 0;
}

/* A text gets the vocabulary's own markers (CLS, SEP); what stands in it never becomes one. */
static int take_input(struct gen_call *c, yyjson_val *v, size_t index, struct error *err)
{
    struct gen_prompt *p = &c->prompts[index];
    if (yyjson_is_arr(v))
        return take_ids(c, v, index, err);
    if (!yyjson_is_str(v))
        return openai__invalid(c, "input", err, "input must be a string, a list of strings, or lists of token ids, not %s",
                               json_type_name(v));
    if (!yyjson_get_len(v))
        return openai__invalid(c, "input", err, "input[%zu] is an empty string", index);
    int rc = generate__guard_text(c, json_str(v), "input", index, err);
    if (rc < 0)
        return rc;
    return model_version_ops(c->version)
        ->tokenize(model_version_engine(c->version), json_str(v), true, false, &p->tokens, &p->n_tokens, err);
}

static int take_options(struct gen_call *c, struct embeddings *s, struct error *err)
{
    struct str format = STR("float");
    const struct engine_contract *k = model_version_contract(c->version);
    yyjson_val *truncate = yyjson_obj_get(c->doc.root, "truncate_prompt_tokens"); /* vLLM's */
    s->dims = k->embedding_dims;
    int rc = openai__str(c, c->doc.root, "encoding_format", JSON_OPTIONAL, &format, err);
    if (rc == 0 && !str_eqz(format, "float") && !str_eqz(format, "base64"))
        rc =
            openai__invalid(c, "encoding_format", err, "encoding_format is \"%.*s\"; accepted: float, base64", STR_ARG(format));
    if (rc == 0)
        rc = generate__fault(c,
                             json_get_u64(c->doc.root, "dimensions", JSON_OPTIONAL, 1, k->embedding_dims, &s->dims, NULL, err),
                             "dimensions", NULL);
    if (rc == 0 && s->dims != k->embedding_dims && !k->embedding_cut)
        rc = openai__invalid(c, "dimensions", err,
                             "dimensions is %llu; this model's embeddings have %zu values and may not be shortened",
                             (unsigned long long)s->dims, k->embedding_dims);
    if (rc == 0 && truncate && !yyjson_is_null(truncate))
        rc = openai__invalid(c, "truncate_prompt_tokens", err,
                             "truncate_prompt_tokens is not supported: shorten the text yourself");
    s->base64 = str_eqz(format, "base64");
    return rc;
}

static int prepare(struct gen_call *c, struct error *err)
{
    struct embeddings *s = ARENA_NEW(&c->arena, struct embeddings);
    struct str model;
    if (!s)
        return no_memory(err);
    c->state = s;
    c->embed = true;
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = openai__str(c, c->doc.root, "model", JSON_REQUIRED, &model, err);
    if (rc == 0)
        rc = generate__find(c, model, (struct str){0}, err);
    if (rc == 0 && model_version_contract(c->version)->reranks)
        rc = openai__invalid(c, "model", err, "model \"%.*s\" ranks documents; use /v1/rerank", STR_ARG(model));
    if (rc == 0)
        rc = generate__deadline(c, err);
    if (rc == 0)
        rc = openai__priority(c, err);
    if (rc == 0)
        rc = take_options(c, s, err);
    return rc ? rc : openai__each_prompt(c, "input", take_input, err);
}

/* ---- reply ---- */

static void put_base64(struct buf *out, const float *v, size_t n)
{
    size_t bytes = n * sizeof *v;
    char *at = buf_reserve(out, base64_encoded_size(bytes) + 2);
    if (!at)
        return;
    *at = '"';
    base64_encode((const uint8_t *)v, bytes, at + 1); /* hosts of this server are little-endian */
    at[1 + base64_encoded_size(bytes)] = '"';
    out->n += base64_encoded_size(bytes) + 2;
}

static void put_vector(struct buf *out, const float *v, size_t n)
{
    char *begin = buf_reserve(out, n * (JSON_FLOAT_TEXT + 1) + 2), *at = begin;
    if (!at)
        return;
    *at++ = '[';
    for (size_t i = 0; i < n; i++) {
        if (i)
            *at++ = ',';
        at += json_write_f32(isfinite(v[i]) ? v[i] : 0, at);
    }
    *at++ = ']';
    out->n += (size_t)(at - begin);
}

/* The first `dims` values, of length 1 again. */
static void shorten(const struct gen_prompt *p, uint64_t dims)
{
    double sum = 0;
    if (dims == p->n_embedding)
        return;
    for (uint64_t i = 0; i < dims; i++)
        sum += (double)p->embedding[i] * (double)p->embedding[i];
    for (uint64_t i = 0; sum > 0 && i < dims; i++)
        p->embedding[i] = (float)((double)p->embedding[i] / sqrt(sum));
}

static void on_end(struct gen_call *c)
{
    const struct embeddings *s = c->state;
    struct token_usage u = generate__usage(c);
    buf_append_z(&c->out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < c->n_prompts; i++) {
        const struct gen_prompt *p = &c->prompts[i];
        shorten(p, s->dims);
        buf_printf(&c->out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        if (s->base64)
            put_base64(&c->out, p->embedding, s->dims);
        else
            put_vector(&c->out, p->embedding, s->dims);
        buf_append_c(&c->out, '}');
    }
    buf_append_z(&c->out, "],");
    openai__member(&c->out, "model", c->model);
    buf_printf(&c->out, ",\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u}}", u.prompt_tok, u.prompt_tok);
}

static void on_event(struct gen_call *c, const struct gen_event *ev)
{
    (void)c, (void)ev; /* an embedding comes with the final event */
}

static void on_fail(struct gen_call *c, int status, const char *text)
{
    (void)c, (void)status, (void)text; /* there is no stream */
}

void api__embeddings(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol protocol = {
        .prepare = prepare, .event = on_event, .end = on_end, .fail = on_fail, .prompt_field = "input"};
    generate__start(a, r, call, &protocol);
}
