/* openai_models.c: GET /v1/models, and the token counters /tokenize and /detokenize (vLLM's names and fields).
 *
 * The counters are generations that submit nothing: prepared by a worker, answered when that is done. */
#include <stdlib.h>

#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "os/clock.h"

#define NS_PER_S 1000000000ull

/* ---- /v1/models ---- */

static void append_model(struct buf *out, const struct model_version *v, struct str id, uint64_t since_ns, struct str parent)
{
    uint64_t age_ns = os_monotonic_ns() - since_ns;
    buf_append_z(out, "{");
    openai__member(out, "id", id);
    buf_printf(out, ",\"object\":\"model\",\"created\":%llu,\"owned_by\":\"inferd\",\"max_model_len\":%zu",
               (unsigned long long)((os_wall_ns() - age_ns) / NS_PER_S), model_version_contract(v)->context_tokens);
    if (parent.n) {
        buf_append_c(out, ',');
        openai__member(out, "parent", parent);
    }
    buf_append_c(out, '}');
}

struct listing {
    struct api *api;
    const struct api_call *call;
    struct buf *out;
    struct str only; /* empty: all */
    size_t n;
    const struct model_version *base; /* of the adapters that are listed */
    uint64_t since_ns;
    char last[132]; /* rows of a model are together */
};

static void list_adapter(void *ctx, struct str name)
{
    struct listing *l = ctx;
    if (!api__shows(l->call, name) || (l->only.n && !str_eq(l->only, name)))
        return;
    if (l->n++)
        buf_append_c(l->out, ',');
    append_model(l->out, l->base, name, l->since_ns, model_version_model(l->base));
}

static void list_one(void *ctx, const struct index_row *row)
{
    struct listing *l = ctx;
    struct model_version *v;
    if (str_eqz(row->model, l->last) || registry_find(l->api->o.registry, row->model, (struct str){0}, &v, NULL) < 0)
        return;
    snprintf(l->last, sizeof l->last, "%.*s", STR_ARG(row->model));
    if (model_version_contract(v)->face == ENGINE_TOKEN && api__shows(l->call, row->model) &&
        (!l->only.n || str_eq(l->only, row->model))) {
        if (l->n++)
            buf_append_c(l->out, ',');
        append_model(l->out, v, row->model, row->since_ns, (struct str){0});
    }
    l->base = v;
    l->since_ns = row->since_ns;
    if (model_version_contract(v)->face == ENGINE_TOKEN && model_version_ops(v)->adapter_each)
        model_version_ops(v)->adapter_each(model_version_engine(v), list_adapter, l);
    model_version_unref(v);
}

void api__openai_models(struct api *a, struct http_request *r, struct api_call *call)
{
    struct buf out;
    struct listing l = {.api = a, .call = call, .out = &out};
    buf_init(&out);
    buf_append_z(&out, "{\"object\":\"list\",\"data\":[");
    registry_index(a->o.registry, true, list_one, &l);
    buf_append_z(&out, "]}");
    api__reply_json(r, 200, &out);
}

void api__openai_model(struct api *a, struct http_request *r, struct api_call *call)
{
    struct buf out;
    struct listing l = {.api = a, .call = call, .out = &out, .only = call->match.model};
    struct error err = {0};
    buf_init(&out);
    registry_index(a->o.registry, true, list_one, &l);
    if (l.n) {
        api__reply_json(r, 200, &out);
        return;
    }
    buf_release(&out);
    call->error_param = "model";
    call->error_code = "model_not_found";
    error_set(&err, STATUS_NOT_FOUND, "The model \"%.*s\" does not exist", STR_ARG(call->match.model));
    api__reply_error(r, STATUS_NOT_FOUND, &err);
}

/* ---- /tokenize, /detokenize ---- */

static int prepare_model(struct gen_call *c, struct error *err)
{
    struct str model;
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = openai__str(c, c->doc.root, "model", JSON_REQUIRED, &model, err);
    return rc ? rc : generate__find(c, model, (struct str){0}, err);
}

static void append_ids(struct buf *out, const int32_t *ids, size_t n)
{
    buf_append_c(out, '[');
    for (size_t i = 0; i < n; i++)
        buf_printf(out, i ? ",%d" : "%d", ids[i]);
    buf_append_c(out, ']');
}

static void append_pieces(struct gen_call *c, const int32_t *ids, size_t n)
{
    buf_append_z(&c->out, ",\"token_strs\":[");
    for (size_t i = 0; i < n; i++) {
        struct buf one;
        buf_init(&one);
        if (model_version_ops(c->version)->detokenize(model_version_engine(c->version), &ids[i], 1, &one, NULL) < 0)
            one.failed = true;
        if (i)
            buf_append_c(&c->out, ',');
        buf_append_json_str(&c->out, buf_str(&one));
        c->out.failed |= one.failed;
        buf_release(&one);
    }
    buf_append_c(&c->out, ']');
}

static int prepare_tokenize(struct gen_call *c, struct error *err)
{
    bool pieces = false, special = true;
    struct str text = {0};
    int rc = prepare_model(c, err);
    if (rc == 0)
        rc = openai__bool(c, c->doc.root, "return_token_strs", &pieces, err);
    if (rc == 0)
        rc = openai__bool(c, c->doc.root, "add_special_tokens", &special, err);
    if (rc < 0)
        return rc;
    if (yyjson_obj_get(c->doc.root, "messages")) {
        rc = openai__messages(c, NULL, NULL, err);
    } else {
        rc = openai__str(c, c->doc.root, "prompt", JSON_REQUIRED, &text, err);
        if (rc == 0)
            rc = generate__prompts(c, 1, err);
        if (rc == 0)
            rc = model_version_ops(c->version)
                     ->tokenize(model_version_engine(c->version), text, special, true, &c->prompts[0].tokens,
                                &c->prompts[0].n_tokens, err);
    }
    if (rc < 0)
        return rc;
    const struct gen_prompt *p = &c->prompts[0];
    buf_printf(&c->out, "{\"count\":%zu,\"max_model_len\":%zu,\"tokens\":", p->n_tokens,
               model_version_contract(c->version)->context_tokens);
    append_ids(&c->out, p->tokens, p->n_tokens);
    if (pieces)
        append_pieces(c, p->tokens, p->n_tokens);
    else
        buf_append_z(&c->out, ",\"token_strs\":null");
    buf_append_c(&c->out, '}');
    return 0;
}

static int prepare_detokenize(struct gen_call *c, struct error *err)
{
    yyjson_val *list = NULL, *e;
    struct buf text;
    int rc = prepare_model(c, err);
    if (rc == 0)
        rc = generate__fault(c, json_get_arr(c->doc.root, "tokens", JSON_REQUIRED, &list, NULL, err), "tokens", NULL);
    size_t i, n = yyjson_arr_size(list);
    int32_t *ids = rc == 0 ? arena_array(&c->arena, n + 1, sizeof *ids) : NULL;
    if (rc == 0 && !ids)
        rc = error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    yyjson_arr_foreach(list, i, n, e)
    {
        if (rc == 0 && (!yyjson_is_uint(e) || yyjson_get_uint(e) > INT32_MAX))
            rc = openai__invalid(c, "tokens", err, "tokens[%zu] must be a token id", i);
        if (rc == 0)
            ids[i] = (int32_t)yyjson_get_uint(e);
    }
    if (rc < 0)
        return rc;
    buf_init(&text);
    rc = model_version_ops(c->version)->detokenize(model_version_engine(c->version), ids, n, &text, err);
    if (rc == 0) {
        buf_append_c(&c->out, '{');
        openai__member(&c->out, "prompt", buf_str(&text));
        buf_append_c(&c->out, '}');
    }
    buf_release(&text);
    return generate__fault(c, rc, "tokens", NULL);
}

void api__tokenize(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol p = {.prepare = prepare_tokenize, .only_prepare = true};
    generate__start(a, r, call, &p);
}

void api__detokenize(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol p = {.prepare = prepare_detokenize, .only_prepare = true};
    generate__start(a, r, call, &p);
}
