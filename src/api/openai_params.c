/* openai_params.c: the sampling parameters and limits of a request, as OpenAI names them, with vLLM's further ones.
 *
 * Defaults are the model's own where its file gives some, else OpenAI's. A field of the wrong type or out of range is refused by name; a
 * field that isn't known is ignored, as OpenAI and vLLM do; one that is known and not supported is refused when it would change the
 * answer. */
#include <stdarg.h>

#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/random.h"
#include "text/stop.h"

#define COMPLETION_TOKENS_DEFAULT 16 /* OpenAI's, for /v1/completions */
#define BIAS_MAX                  1024
#define NS_PER_S                  1000000000ull

void openai__identify(struct openai_reply *reply, const char *prefix)
{
    snprintf(reply->id, sizeof reply->id, "%s%016llx%08llx", prefix, (unsigned long long)os_random_u64(),
             (unsigned long long)(os_random_u64() & 0xffffffff));
    reply->created_s = (int64_t)(os_wall_ns() / NS_PER_S);
}

int openai__invalid(struct gen_call *c, const char *param, struct error *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = error_vset(err, STATUS_INVALID, fmt, ap);
    va_end(ap);
    return generate__fault(c, rc, param, NULL);
}

int openai__bool(struct gen_call *c, yyjson_val *obj, const char *key, bool *out, struct error *err)
{
    return generate__fault(c, json_get_bool(obj, key, JSON_OPTIONAL, out, NULL, err), key, NULL);
}

int openai__u32(struct gen_call *c, yyjson_val *obj, const char *key, uint64_t min, uint64_t max, uint32_t *out,
                struct error *err)
{
    uint64_t v = *out;
    int rc = json_get_u64(obj, key, JSON_OPTIONAL, min, max, &v, NULL, err);
    *out = (uint32_t)v;
    return generate__fault(c, rc, key, NULL);
}

int openai__str(struct gen_call *c, yyjson_val *obj, const char *key, enum json_need need, struct str *out, struct error *err)
{
    return generate__fault(c, json_get_str(obj, key, need, out, NULL, err), key, NULL);
}

/* ---- numbers ---- */

static int read_float(struct gen_call *c, const char *key, double min, double max, float *out, struct error *err)
{
    double v = (double)*out;
    int rc = json_get_f64(c->fields, key, JSON_OPTIONAL, min, max, &v, NULL, err);
    *out = (float)v;
    return generate__fault(c, rc, key, NULL);
}

static int read_floats(struct gen_call *c, struct error *err)
{
    struct token_params *p = &c->params;
    const struct {
        const char *key;
        double min, max;
        float *out;
    } rows[] = {{"temperature", 0, 100, &p->temperature},
                {"top_p", 1e-9, 1, &p->top_p},
                {"min_p", 0, 1, &p->min_p},
                {"typical_p", 1e-9, 1, &p->typical_p},
                {"repetition_penalty", 1e-9, 100, &p->repetition_penalty},
                {"repeat_penalty", 1e-9, 100, &p->repetition_penalty},
                {"frequency_penalty", -2, 2, &p->frequency_penalty},
                {"presence_penalty", -2, 2, &p->presence_penalty}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < COUNT_OF(rows); i++)
        rc = read_float(c, rows[i].key, rows[i].min, rows[i].max, rows[i].out, err);
    return rc;
}

static int read_seed(struct gen_call *c, struct error *err)
{
    int64_t v = 0;
    int rc = json_get_i64(c->fields, "seed", JSON_OPTIONAL, INT64_MIN, INT64_MAX, &v, &c->params.has_seed, err);
    c->params.seed = (uint64_t)v;
    return generate__fault(c, rc, "seed", NULL);
}

int openai__priority(struct gen_call *c, struct error *err)
{
    int64_t priority = 0;
    int rc = json_get_i64(c->doc.root, "priority", JSON_OPTIONAL, 0, 1000, &priority, NULL, err);
    c->priority = (int)priority;
    return generate__fault(c, rc, "priority", NULL);
}

static int read_counts(struct gen_call *c, bool chat, struct error *err)
{
    struct token_params *p = &c->params;
    yyjson_val *root = c->fields;
    int64_t top_k = p->top_k;
    bool has_best = yyjson_is_num(yyjson_obj_get(root, "best_of"));
    p->max_tok = chat ? 0 : COMPLETION_TOKENS_DEFAULT;
    int rc = openai__u32(c, root, "max_tokens", 1, INT32_MAX, &p->max_tok, err);
    if (rc == 0)
        rc = openai__u32(c, root, "max_completion_tokens", 1, INT32_MAX, &p->max_tok, err);
    if (rc == 0)
        rc = openai__u32(c, root, "min_tokens", 0, INT32_MAX, &p->min_tok, err);
    if (rc == 0)
        rc = openai__u32(c, root, "n", 1, 128, &p->n, err);
    p->best_of = p->n;
    if (rc == 0 && has_best)
        rc = openai__u32(c, root, "best_of", 1, 128, &p->best_of, err);
    if (rc == 0)
        rc = generate__fault(c, json_get_i64(root, "top_k", JSON_OPTIONAL, -1, INT32_MAX, &top_k, NULL, err), "top_k", NULL);
    if (rc == 0)
        rc = openai__priority(c, err);
    p->top_k = (int32_t)top_k;
    if (rc == 0)
        rc = openai__bool(c, root, "ignore_eos", &p->ignore_eos, err);
    return rc ? rc : read_seed(c, err);
}

/* ---- lists ---- */

static int too_many_stops(struct gen_call *c, size_t n, struct error *err)
{
    return openai__invalid(c, "stop", err, "stop has %zu strings; at most %d are accepted", n, STOP_STRINGS_MAX);
}

static int read_stop(struct gen_call *c, struct error *err)
{
    yyjson_val *v = yyjson_obj_get(c->fields, "stop"), *e;
    size_t i, max, n = yyjson_is_arr(v) ? yyjson_arr_size(v) : yyjson_is_str(v);
    struct str *stop = arena_array(&c->arena, MIN_OF(n, (size_t)STOP_STRINGS_MAX) + 1, sizeof *stop);
    if (!stop)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    if (n > STOP_STRINGS_MAX)
        return too_many_stops(c, n, err);
    if (v && !yyjson_is_null(v) && !yyjson_is_str(v) && !yyjson_is_arr(v))
        return openai__invalid(c, "stop", err, "stop must be a string or an array of strings, not %s", json_type_name(v));
    if (yyjson_is_str(v))
        stop[0] = json_str(v);
    yyjson_arr_foreach(v, i, max, e)
    {
        if (!yyjson_is_str(e))
            return openai__invalid(c, "stop", err, "stop[%zu] must be a string, not %s", i, json_type_name(e));
        stop[i] = json_str(e);
    }
    for (i = 0; i < n; i++)
        if (!stop[i].n || stop[i].n > STOP_BYTES_MAX)
            return openai__invalid(c, "stop", err, "stop[%zu] has %zu bytes; accepted: 1 to %d", i, stop[i].n, STOP_BYTES_MAX);
    c->params.stop = stop;
    c->params.n_stop = n;
    return 0;
}

static int read_stop_ids(struct gen_call *c, struct error *err)
{
    yyjson_val *v = NULL, *e;
    int rc =
        generate__fault(c, json_get_arr(c->fields, "stop_token_ids", JSON_OPTIONAL, &v, NULL, err), "stop_token_ids", NULL);
    size_t i, n = yyjson_arr_size(v);
    if (rc < 0)
        return rc;
    int32_t *ids = n <= STOP_STRINGS_MAX ? arena_array(&c->arena, n + 1, sizeof *ids) : NULL;
    if (!ids)
        return openai__invalid(c, "stop_token_ids", err, "stop_token_ids has %zu ids; at most %d are accepted", n,
                               STOP_STRINGS_MAX);
    yyjson_arr_foreach(v, i, n, e)
    {
        if (!yyjson_is_uint(e) || yyjson_get_uint(e) > INT32_MAX)
            return openai__invalid(c, "stop_token_ids", err, "stop_token_ids[%zu] must be a token id", i);
        ids[i] = (int32_t)yyjson_get_uint(e);
    }
    c->params.stop_ids = ids;
    c->params.n_stop_ids = n;
    return 0;
}

static int read_bias(struct gen_call *c, struct error *err)
{
    yyjson_val *v = NULL, *key, *e;
    int rc = generate__fault(c, json_get_obj(c->fields, "logit_bias", JSON_OPTIONAL, &v, NULL, err), "logit_bias", NULL);
    size_t i, n = yyjson_obj_size(v);
    if (rc < 0)
        return rc;
    if (n > BIAS_MAX)
        return openai__invalid(c, "logit_bias", err, "logit_bias names %zu tokens; at most %d are accepted", n, BIAS_MAX);
    struct token_bias *bias = arena_array(&c->arena, n + 1, sizeof *bias);
    if (!bias)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    yyjson_obj_foreach(v, i, n, key, e)
    {
        uint64_t id;
        double b = yyjson_get_num(e);
        if (!str_to_u64(json_str(key), &id) || id > INT32_MAX)
            return openai__invalid(c, "logit_bias", err, "logit_bias: \"%.*s\" is no token id", STR_ARG(json_str(key)));
        if (!yyjson_is_num(e) || !(b >= -100 && b <= 100))
            return openai__invalid(c, "logit_bias", err, "logit_bias of token %llu must be a number from -100 to 100",
                                   (unsigned long long)id);
        bias[i] = (struct token_bias){(int32_t)id, (float)b};
    }
    c->params.bias = bias;
    c->params.n_bias = n;
    return 0;
}

/* ---- the rest ---- */

/* Chat: "logprobs": true, "top_logprobs": 0..20. Completions: "logprobs": 0..20. */
static int read_logprobs(struct gen_call *c, struct openai_reply *reply, bool chat, struct error *err)
{
    uint32_t top = 0;
    bool on = false;
    int rc;
    if (chat) {
        rc = openai__bool(c, c->fields, "logprobs", &on, err);
        if (rc == 0)
            rc = openai__u32(c, c->fields, "top_logprobs", 0, 20, &top, err);
        if (rc == 0 && top && !on)
            rc = openai__invalid(c, "top_logprobs", err, "top_logprobs needs logprobs to be true");
    } else {
        on = yyjson_is_num(yyjson_obj_get(c->fields, "logprobs"));
        rc = openai__u32(c, c->fields, "logprobs", 0, 20, &top, err);
    }
    reply->logprobs = on;
    c->params.logprobs = on ? (int32_t)top : -1;
    return rc;
}

static int read_stream(struct gen_call *c, struct openai_reply *reply, struct error *err)
{
    yyjson_val *options = NULL;
    int rc = openai__bool(c, c->fields, "stream", &c->stream, err);
    if (rc == 0)
        rc = generate__fault(c, json_get_obj(c->fields, "stream_options", JSON_OPTIONAL, &options, NULL, err), "stream_options",
                             NULL);
    if (rc || !options)
        return rc;
    if (!c->stream)
        return openai__invalid(c, "stream_options", err, "stream_options needs stream to be true");
    rc = openai__bool(c, options, "include_usage", &reply->include_usage, err);
    return rc ? rc : openai__bool(c, options, "continuous_usage_stats", &reply->continuous_usage, err);
}

static int read_model(struct gen_call *c, struct error *err)
{
    struct str model;
    int rc = openai__str(c, c->doc.root, "model", JSON_REQUIRED, &model, err);
    if (rc == 0)
        rc = generate__find(c, model, (struct str){0}, err);
    if (rc == 0)
        rc = generate__deadline(c, err);
    return rc;
}

static void model_defaults(struct gen_call *c)
{
    const struct engine_ops *ops = model_version_ops(c->version);
    if (ops->text)
        c->params = ops->text(model_version_engine(c->version))->defaults;
    else
        c->params = (struct token_params){.temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1};
    c->params.n = 1;
    c->params.logprobs = -1;
}

/* vLLM's fields that would change the answer and have no counterpart here. */
static int refuse_unsupported(struct gen_call *c, struct error *err)
{
    static const char *const fields[] = {"bad_words", "allowed_token_ids", "prompt_logprobs", "include_stop_str_in_output",
                                         "use_beam_search"};
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        yyjson_val *v = yyjson_obj_get(c->fields, fields[i]);
        if (v && !yyjson_is_null(v) && !yyjson_is_false(v))
            return openai__invalid(c, fields[i], err, "%s is not supported", fields[i]);
    }
    return 0;
}

int openai__sampling(struct gen_call *c, struct openai_reply *reply, bool chat, struct error *err)
{
    model_defaults(c);
    int rc = read_floats(c, err);
    if (rc == 0)
        rc = read_counts(c, chat, err);
    if (rc == 0)
        rc = read_stop(c, err);
    if (rc == 0)
        rc = read_stop_ids(c, err);
    if (rc == 0)
        rc = read_bias(c, err);
    if (rc == 0)
        rc = read_logprobs(c, reply, chat, err);
    if (rc == 0)
        rc = openai__str(c, c->fields, "cache_salt", JSON_OPTIONAL, &c->cache_salt, err);
    bool skip = true;
    if (rc == 0)
        rc = openai__bool(c, c->fields, "skip_special_tokens", &skip, err);
    c->params.control_text = !skip;
    if (rc == 0)
        rc = refuse_unsupported(c, err);
    return rc;
}

int openai__params(struct gen_call *c, struct openai_reply *reply, bool chat, struct error *err)
{
    c->fields = c->doc.root;
    int rc = read_model(c, err);
    if (rc == 0)
        rc = openai__sampling(c, reply, chat, err);
    return rc ? rc : read_stream(c, reply, err);
}

int openai__each_prompt(struct gen_call *c, const char *field,
                        int (*take)(struct gen_call *c, yyjson_val *v, size_t index, struct error *err), struct error *err)
{
    yyjson_val *v = NULL, *e;
    int rc = generate__fault(c, json_get_any(c->doc.root, field, JSON_REQUIRED, &v, NULL, err), field, NULL);
    bool list = yyjson_is_arr(v) && !yyjson_is_num(yyjson_arr_get_first(v));
    size_t i, n = list ? yyjson_arr_size(v) : 1;
    if (rc == 0)
        rc = generate__fault(c, generate__prompts(c, n, err), field, NULL);
    if (rc == 0 && !list)
        return take(c, v, 0, err);
    yyjson_arr_foreach(v, i, n, e)
    {
        if (rc == 0)
            rc = take(c, e, i, err);
    }
    return rc;
}
