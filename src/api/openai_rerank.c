/* openai_rerank.c: POST /v1/rerank (also /rerank): how well each document answers a query, by a cross-encoder that reads both at once
 * (engine_contract.reranks). The names are those of Cohere's and Jina's APIs, which vLLM and llama.cpp have, too.
 *
 * A pair is the query with the vocabulary's markers around it, then the document without the opening one: [CLS] query [SEP] document
 * [SEP]. relevance_score is the sigmoid of the model's value, as sentence-transformers gives it. A pair over the context is an error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/guard.h"
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"

struct rerank {
    struct openai_reply reply;
    struct str *documents; /* [n_prompts]; in the body */
    uint32_t top_n;
    bool return_documents;
};

static struct rerank *rerank_of(const struct gen_call *c)
{
    return c->state;
}

/* ---- prepare ---- */

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

static int encode(struct gen_call *c, struct str text, int32_t **ids, size_t *n, struct error *err)
{
    int rc = generate__guard_text(c, text, "text", SIZE_MAX, err);
    if (rc < 0)
        return rc;
    return model_version_ops(c->version)->tokenize(model_version_engine(c->version), text, true, false, ids, n, err);
}

/* The tokens of (query, document i). */
static int take_pair(struct gen_call *c, const int32_t *query, size_t n_query, size_t i, struct error *err)
{
    struct gen_prompt *p = &c->prompts[i];
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = encode(c, rerank_of(c)->documents[i], &ids, &n, err);
    if (rc < 0)
        return generate__fault(c, rc, "documents", NULL);
    size_t behind = n ? n - 1 : 0;
    p->tokens = calloc(n_query + behind + 1, sizeof *p->tokens);
    if (p->tokens) {
        memcpy(p->tokens, query, n_query * sizeof *query);
        if (behind)
            memcpy(p->tokens + n_query, ids + 1, behind * sizeof *ids);
        p->n_tokens = n_query + behind;
        p->n_first = n_query;
    }
    free(ids);
    return p->tokens ? 0 : no_memory(err);
}

/* A string, or {"text": string}. */
static int take_document(struct gen_call *c, yyjson_val *v, size_t i, struct error *err)
{
    yyjson_val *text = yyjson_is_obj(v) ? yyjson_obj_get(v, "text") : v;
    if (!yyjson_is_str(text) || !yyjson_get_len(text))
        return openai__invalid(c, "documents", err, "documents[%zu] must be a string that is not empty, or {\"text\": string}",
                               i);
    rerank_of(c)->documents[i] = json_str(text);
    return 0;
}

static int take_documents(struct gen_call *c, struct error *err)
{
    struct rerank *s = rerank_of(c);
    yyjson_val *list = NULL, *e;
    size_t i, max;
    int rc = generate__fault(c, json_get_arr(c->doc.root, "documents", JSON_REQUIRED, &list, NULL, err), "documents", NULL);
    if (rc == 0)
        rc = generate__fault(c, generate__prompts(c, yyjson_arr_size(list), err), "documents", NULL);
    if (rc < 0)
        return rc;
    s->documents = arena_array(&c->arena, c->n_prompts, sizeof *s->documents);
    if (!s->documents)
        return no_memory(err);
    yyjson_arr_foreach(list, i, max, e)
    {
        if (rc == 0)
            rc = take_document(c, e, i, err);
    }
    return rc;
}

static int take_pairs(struct gen_call *c, struct error *err)
{
    struct str query;
    int32_t *ids = NULL;
    size_t n = 0;
    int rc = openai__str(c, c->doc.root, "query", JSON_REQUIRED, &query, err);
    if (rc == 0 && !query.n)
        rc = openai__invalid(c, "query", err, "query is empty");
    if (rc == 0)
        rc = take_documents(c, err);
    if (rc == 0)
        rc = generate__fault(c, encode(c, query, &ids, &n, err), "query", NULL);
    for (size_t i = 0; rc == 0 && i < c->n_prompts; i++)
        rc = take_pair(c, ids, n, i, err);
    free(ids);
    return rc;
}

static int find_model(struct gen_call *c, struct error *err)
{
    struct str model;
    int rc = openai__str(c, c->doc.root, "model", JSON_REQUIRED, &model, err);
    if (rc == 0)
        rc = generate__find(c, model, (struct str){0}, err);
    if (rc == 0 && !model_version_contract(c->version)->reranks)
        rc = openai__invalid(c, "model", err, "model \"%.*s\" ranks no documents: a cross-encoder is needed", STR_ARG(model));
    return rc ? rc : generate__deadline(c, err);
}

static int prepare(struct gen_call *c, struct error *err)
{
    struct rerank *s = ARENA_NEW(&c->arena, struct rerank);
    if (!s)
        return no_memory(err);
    c->state = s;
    c->embed = true;
    s->top_n = GENERATE_PROMPTS_MAX;
    openai__identify(&s->reply, "rerank-");
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = find_model(c, err);
    if (rc == 0)
        rc = openai__priority(c, err);
    if (rc == 0)
        rc = openai__u32(c, c->doc.root, "top_n", 1, INT32_MAX, &s->top_n, err);
    if (rc == 0)
        rc = openai__bool(c, c->doc.root, "return_documents", &s->return_documents, err);
    return rc ? rc : take_pairs(c, err);
}

/* ---- the reply ---- */

struct scored {
    float value;
    size_t index;
};

static int better_first(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void put_result(struct gen_call *c, const struct scored *r)
{
    const struct rerank *s = rerank_of(c);
    double score = 1 / (1 + exp(-(double)r->value));
    buf_printf(&c->out, "{\"index\":%zu,\"relevance_score\":%.9g", r->index, isfinite(score) ? score : 0.0);
    if (s->return_documents) {
        buf_append_z(&c->out, ",\"document\":{");
        openai__member(&c->out, "text", s->documents[r->index]);
        buf_append_c(&c->out, '}');
    }
    buf_append_c(&c->out, '}');
}

static void on_end(struct gen_call *c)
{
    const struct rerank *s = rerank_of(c);
    struct token_usage u = generate__usage(c);
    struct scored *order = arena_array(&c->arena, c->n_prompts, sizeof *order);
    if (!order) {
        c->out.failed = true;
        return;
    }
    for (size_t i = 0; i < c->n_prompts; i++)
        order[i] = (struct scored){c->prompts[i].n_embedding ? c->prompts[i].embedding[0] : 0, i};
    qsort(order, c->n_prompts, sizeof *order, better_first);
    buf_printf(&c->out, "{\"id\":\"%s\",\"object\":\"list\",", s->reply.id);
    openai__member(&c->out, "model", c->model);
    buf_append_z(&c->out, ",\"results\":[");
    for (size_t i = 0; i < c->n_prompts && i < s->top_n; i++) {
        if (i)
            buf_append_c(&c->out, ',');
        put_result(c, &order[i]);
    }
    buf_printf(&c->out, "],\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u}}", u.prompt_tok, u.prompt_tok);
}

static void on_event(struct gen_call *c, const struct gen_event *ev)
{
    (void)c, (void)ev; /* a score comes with the final event */
}

static void on_fail(struct gen_call *c, int status, const char *text)
{
    (void)c, (void)status, (void)text; /* there is no stream */
}

void api__rerank(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol protocol = {
        .prepare = prepare, .event = on_event, .end = on_end, .fail = on_fail, .prompt_field = "documents"};
    generate__start(a, r, call, &protocol);
}
