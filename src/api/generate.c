/* generate.c: one generation's life on its I/O thread, and the worker's part of it. See generate_priv.h. */
#include "api/admission_priv.h"
#include "api/generate_priv.h"
#include "api/guard.h"
#include "api/openai_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "conf/model_config.h"
#include "os/clock.h"
#include "wire/sse.h"

#define NS_PER_MS 1000000u
/* Priorities of one class of importance, in the engine's numbers. */
#define CLASS_STEP 1000000
/* What a reader that is too slow may leave unread here before its stream is given up. */
#define BACKLOG_BYTES_MAX (1u << 20)

/* ---- worker thread ---- */

static int check_prompt(const struct gen_call *c, const struct gen_prompt *p, struct error *err)
{
    size_t most = model_version_contract(c->version)->context_tokens;
    if (p->n_tokens < most + c->embed) /* no room for an answer is needed beside a text that is embedded */
        return 0;
    return error_set(
        err, STATUS_TOO_LARGE,
        "This model's maximum context length is %zu tokens. However, your prompt has %zu tokens. Please reduce its length.",
        most, p->n_tokens);
}

/* The engine's sentences begin with the parameter that they are about; when the body has it, it is the field at fault. */
static const char *field_of(struct gen_call *c, const struct error *err)
{
    size_t n = strspn(err->text, "abcdefghijklmnopqrstuvwxyz_");
    char *word = n && yyjson_is_obj(c->fields) ? arena_strdup(&c->arena, (struct str){err->text, n}) : NULL;
    return word && yyjson_obj_get(c->fields, word) ? word : NULL;
}

/* The engine's order: by class of importance first, where there are such, then by what the request says. */
static int priority_of(const struct gen_call *c)
{
    int own = MIN_OF(c->priority, CLASS_STEP - 1);
    return c->admission ? own + CLASS_STEP * (int)c->admission->class : c->priority;
}

static int submit_one(struct gen_call *c, struct gen_prompt *p, struct error *err)
{
    struct token_request req = {.prompt = p->tokens,
                                .n_prompt = p->n_tokens,
                                .n_first = p->n_first,
                                .params = c->params,
                                .adapter = c->adapter,
                                .cache_salt = c->cache_salt,
                                .tenant = c->call->who ? str_of(c->call->who->tenant) : (struct str){0},
                                .priority = priority_of(c),
                                .deadline_ns = c->deadline_ns,
                                .embed = c->embed,
                                .on_event = generate__on_event,
                                .ctx = p};
    uint64_t id;
    int rc = generate__guard_tokens(c, p->n_tokens, err);
    if (rc < 0)
        return rc;
    rc = check_prompt(c, p, err);
    if (rc < 0)
        return generate__fault(c, STATUS_INVALID, c->protocol->prompt_field, "context_length_exceeded");
    rc = model_version_ops(c->version)->submit(model_version_engine(c->version), &req, &id, err);
    if (rc == STATUS_UNIMPLEMENTED) /* of this request, not of the server */
        rc = err->code = STATUS_INVALID;
    if (rc < 0)
        return generate__fault(c, rc, c->params.grammar_kind.n ? c->grammar_param : field_of(c, err), NULL);
    atomic_store(&p->id, id);
    c->n_submitted++;
    return 0;
}

static int gone_early(struct error *err)
{
    return error_set(err, STATUS_UNAVAILABLE, "the server is stopping; ask another one");
}

/* What it may take at most, against the caller's quotas: its prompts, and for each choice as many tokens as it asked for, or as the context
 * has left. */
static int charge(struct gen_call *c, struct error *err)
{
    uint64_t tokens = 0, context = model_version_contract(c->version)->context_tokens;
    if (!c->call->quota)
        return 0;
    for (size_t i = 0; i < c->n_prompts; i++) {
        uint64_t n = c->prompts[i].n_tokens, left = context > n ? context - n : 0;
        uint64_t most = c->params.max_tok && (!context || c->params.max_tok < left) ? c->params.max_tok : left;
        bool generates = !c->embed && !c->protocol->only_prepare;
        tokens += n + (generates ? most * MAX_OF(MAX_OF(c->params.n, c->params.best_of), 1u) : 0);
    }
    int rc = api__quota_charge_now(c->request, c->call, c->version ? model_version_model(c->version) : (struct str){0}, 1,
                                   tokens, err);
    return generate__fault(c, rc, NULL, c->call->error_code);
}

static int prepare_and_submit(struct gen_call *c)
{
    struct error *err = &c->err;
    if (atomic_load(&c->cancelled))
        return gone_early(err);
    int rc = c->protocol->prepare(c, err);
    if (rc == 0)
        rc = generate__guard_outputs(c, err);
    if (rc == 0)
        rc = charge(c, err);
    c->times.submitted_ns = os_monotonic_ns();
    for (size_t i = 0; rc == 0 && i < c->n_prompts && !c->protocol->only_prepare; i++) {
        rc = submit_one(c, &c->prompts[i], err);
        if (rc == 0 && atomic_load(&c->cancelled))
            rc = gone_early(err);
    }
    if (rc < 0 && c->n_submitted)
        generate__cancel_ids(c);
    return rc;
}

static void on_prepared(struct loop_task *t);

void generate__work(struct gen_call *c)
{
    c->rc = prepare_and_submit(c);
    c->prepared_task.run = on_prepared;
    loop_post(c->request->loop, &c->prepared_task);
}

int generate__fault(struct gen_call *c, int rc, const char *param, const char *code)
{
    if (rc < 0 && !c->param) {
        c->param = param;
        c->code = code;
    }
    return rc;
}

/* ---- for prepare ---- */

/* A number that JSON can't say, by name: 1e309, NaN. */
static int name_bad_number(struct gen_call *c, struct str text, struct error *err)
{
    yyjson_doc *d = yyjson_read(text.p, text.n, YYJSON_READ_ALLOW_INF_AND_NAN);
    yyjson_val *root = yyjson_doc_get_root(d), *key, *v;
    size_t i, n;
    int rc = STATUS_INVALID;
    yyjson_obj_foreach(root, i, n, key, v)
    {
        double x = yyjson_is_real(v) ? yyjson_get_real(v) : 0;
        if (x - x == 0)
            continue;
        error_set(err, rc, "%.*s is not a finite number", STR_ARG(json_str(key)));
        generate__fault(c, rc, arena_strdup(&c->arena, json_str(key)), NULL);
        break;
    }
    yyjson_doc_free(d);
    return rc;
}

int generate__parse_body(struct gen_call *c, struct error *err)
{
    struct str text = {(const char *)c->request->body.p, c->request->body.n};
    if (!text.n)
        return error_set(err, STATUS_INVALID, "the request has no body; send a JSON object");
    int rc = json_parse(&c->doc, text, NULL, err);
    if (rc == STATUS_INVALID && json_scan_depth(text, JSON_DEPTH_DEFAULT + 1) <= JSON_DEPTH_DEFAULT)
        return name_bad_number(c, text, err);
    if (rc == 0 && !yyjson_is_obj(c->doc.root))
        return error_set(err, STATUS_INVALID, "the request's body is %s; send a JSON object", json_type_name(c->doc.root));
    return rc;
}

/* By name, or the model whose adapter has that name. */
static int find_named(struct gen_call *c, struct str model, struct str version, struct model_version **v, struct error *err)
{
    int rc = str_is_model_name(model) ? api__authorise_model(c->api, c->call, model, err)
                                      : error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\"", STR_ARG(model));
    if (rc == 0)
        rc = registry_find(c->api->o.registry, model, version, v, err);
    if (rc == STATUS_NOT_FOUND && str_is_model_name(model) && c->call->verdict != EDGE_HIDDEN_MODEL &&
        (*v = openai__find_adapter(c->api, model)) != NULL) {
        c->adapter = model;
        rc = 0;
    }
    return rc;
}

/* Leave to run on *v, or on the first of those that may stand in for it and has room; *v is then that one. */
static int admit(struct gen_call *c, struct str model, int rc, struct model_version **v, struct error *err)
{
    if (c->protocol->only_prepare || !(c->admission = api__admission_new(c->api, &c->arena, model)))
        return rc;
    if (rc == 0) {
        c->admission->model = model_version_model(*v); /* of an adapter: its base */
        rc = api__admit(c->request, c->call, c->admission, *v, 0, err);
    }
    while (rc < 0 && api__admission_may_degrade(c->request, c->call, c->admission, rc, err, &c->arena)) {
        if (*v)
            model_version_unref(*v);
        *v = api__admission_next(c->api, c->admission, true, c->embed);
        if (!*v) {
            *err = *c->admission->first;
            c->request->retry_after_s = c->admission->retry_after_s;
            return c->admission->status;
        }
        c->adapter = (struct str){0};
        rc = api__admit(c->request, c->call, c->admission, *v, 0, err);
    }
    return rc;
}

int generate__find(struct gen_call *c, struct str model, struct str version, struct error *err)
{
    struct model_version *v = NULL;
    int rc = find_named(c, model, version, &v, err);
    if (rc == 0 || registry_is_unready(rc))
        rc = admit(c, model, rc, &v, err);
    if (rc < 0) {
        model_version_unref(v);
        return generate__fault(c, rc, "model", rc == STATUS_NOT_FOUND ? "model_not_found" : NULL);
    }
    c->version = v;
    c->model = c->admission && c->admission->fallback ? str_of(c->admission->fallback) : model;
    bool token = model_version_contract(v)->face == ENGINE_TOKEN, embeds = model_version_contract(v)->embedding_dims > 0;
    if (token && (c->protocol->only_prepare || embeds == c->embed))
        return generate__guard_body(c, c->model, err);
    if (token)
        rc = error_set(err, STATUS_INVALID,
                       embeds ? "model \"%.*s\" gives embeddings and generates no text: use /v1/embeddings"
                              : "model \"%.*s\" generates text; it gives no embeddings and ranks nothing",
                       STR_ARG(model));
    else
        rc = error_set(err, STATUS_INVALID, "model \"%.*s\" takes tensors and generates no text: use /v2/models/%.*s/infer",
                       STR_ARG(model), STR_ARG(model));
    return generate__fault(c, rc, "model", NULL);
}

int generate__prompts(struct gen_call *c, size_t n, struct error *err)
{
    const char *field = c->protocol->prompt_field ? c->protocol->prompt_field : "prompt";
    size_t waiting = c->version ? model_version_contract(c->version)->max_waiting : 0;
    if (!n || n > GENERATE_PROMPTS_MAX)
        return error_set(err, STATUS_INVALID, "%s has %zu entries; accepted: 1 to %d", field, n, GENERATE_PROMPTS_MAX);
    if (waiting && n > waiting && !c->protocol->only_prepare) /* "try again later" would never come true */
        return error_set(
            err, STATUS_INVALID,
            "%s has %zu entries, more than the model's waiting queue ever holds (max_waiting is %zu): send them in "
            "several requests",
            field, n, waiting);
    c->prompts = arena_array(&c->arena, n, sizeof *c->prompts);
    if (!c->prompts)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    c->n_prompts = n;
    for (size_t i = 0; i < n; i++) {
        c->prompts[i].call = c;
        c->prompts[i].index = (uint32_t)i;
    }
    return 0;
}

int generate__tokenize(struct gen_call *c, struct str text, size_t index, struct error *err)
{
    struct gen_prompt *p = &c->prompts[index];
    int rc = generate__guard_text(c, text, c->protocol->prompt_field, c->n_prompts > 1 ? index : SIZE_MAX, err);
    if (rc < 0)
        return rc;
    return model_version_ops(c->version)
        ->tokenize(model_version_engine(c->version), text, true, true, &p->tokens, &p->n_tokens, err);
}

int generate__deadline(struct gen_call *c, struct error *err)
{
    const struct http_request *r = c->request;
    struct str h = http_header_get(r, "x-inferd-timeout-ms");
    uint64_t ms = model_version_config(c->version)->default_deadline_ms, ns, at;
    c->deadline_ns = UINT64_MAX;
    if (h.p && (!str_to_u64(h, &ms) || ms == 0))
        return error_set(err, STATUS_INVALID,
                         "header x-inferd-timeout-ms \"%.*s\": expected a whole number of milliseconds from 1", STR_ARG(h));
    if (ms && !__builtin_mul_overflow(ms, (uint64_t)NS_PER_MS, &ns) && !__builtin_add_overflow(ns, r->received_ns, &at))
        c->deadline_ns = at;
    return 0;
}

/* ---- the reply ---- */

static void cancel(struct gen_call *c)
{
    atomic_store(&c->cancelled, true);
    if (c->prepared)
        generate__cancel_ids(c);
}

static void on_gone(struct http_request *r)
{
    struct api_call *call = r->user;
    call->gen->cut = true;
    cancel(call->gen);
}

/* Hand over what was rendered, unless the client still has to read what it has got. */
static void flush(struct gen_call *c)
{
    if (!c->out.n || c->cut || c->blocked)
        return;
    struct slice s = slice_take(&c->out);
    c->times.written_ns = loop_now_ns(c->request->loop);
    if (s.p)
        c->blocked = c->carrier ? !c->carrier->write(c->owner, s) : !http_stream_write(c->request, s);
    else
        c->cut = true; /* out of memory: the client must see that something is missing */
}

void generate__resume(struct gen_call *c)
{
    c->blocked = false;
    flush(c);
}

static void on_writable(struct http_request *r)
{
    struct api_call *call = r->user;
    if (call->gen)
        generate__resume(call->gen);
}

static void begin(struct gen_call *c)
{
    struct http_header headers[3] = {{STR("x-request-id"), c->request->request_id},
                                     {STR("Cache-Control"), STR("no-cache")},
                                     {STR("X-Accel-Buffering"), STR("no")}};
    if (c->began)
        return;
    c->began = true;
    if (c->carrier)
        return;
    if (c->call->guard)
        api__guard_headers(c->request, c->call, c->flagged);
    http_stream_begin(c->request, 200, c->protocol->stream_type, headers, COUNT_OF(headers), on_writable);
}

static void give_up_if_slow(struct gen_call *c)
{
    if (c->cut || (!c->out.failed && (!c->stream || c->out.n <= BACKLOG_BYTES_MAX)))
        return;
    c->cut = true;
    cancel(c);
}

static void tick(struct loop_timer *t)
{
    struct gen_call *c = CONTAINER_OF(t, struct gen_call, keepalive);
    uint64_t now = loop_now_ns(c->request->loop), due = c->times.written_ns + GENERATE_KEEPALIVE_NS;
    if (c->cut)
        return;
    begin(c);
    if (now >= due) {
        if (!c->blocked)
            sse_comment(&c->out, "waiting");
        flush(c);
        due = now + GENERATE_KEEPALIVE_NS;
    }
    loop_timer_start(c->request->loop, t, due);
}

/* A language model is judged by the time to its first token: how long the whole takes is for the request to say. */
static void end_admission(struct gen_call *c, int status)
{
    uint64_t tokens = 0, first = c->times.first_ns ? c->times.first_ns : loop_now_ns(c->request->loop);
    for (size_t i = 0; i < c->n_prompts; i++)
        tokens += c->prompts[i].n_tokens;
    bool answered = status == STATUS_OK && first > c->admission->since_ns;
    api__admission_end(c->api, c->admission, status, answered ? first - c->admission->since_ns : 0, 0, tokens);
}

static enum model_protocol label_of(const struct gen_call *c)
{
    return c->carrier                             ? MODEL_PROTOCOL_GRPC
           : route_is_generate(c->call->match.id) ? MODEL_PROTOCOL_HTTP
                                                  : MODEL_PROTOCOL_OPENAI;
}

static void record(struct gen_call *c, int status)
{
    struct infer_times t = {.received_ns = c->received_ns,
                            .decoded_ns = c->times.submitted_ns,
                            .queued_ns = c->times.submitted_ns,
                            .output_ns = loop_now_ns(c->request->loop),
                            .encoded_ns = loop_update_now(c->request->loop)};
    c->call->status = status;
    if (c->admission)
        end_admission(c, status);
    if (c->version)
        model_version_record(c->version, label_of(c), status, &t);
}

/* The reply is complete or dropped; nothing refers to the call any more. */
static void release(struct gen_call *c)
{
    bool own = c->call->gen == c;
    loop_timer_stop(c->request->loop, &c->keepalive);
    generate__pool_remove(&c->api->gen, c);
    if (own) {
        c->call->gen = NULL;
        c->request->on_gone = NULL;
    }
    if (c->at)
        *c->at = NULL;
    if (c->call->quota) {
        struct token_usage u = generate__usage(c);
        c->call->quota->tokens += u.prompt_tok + u.generated_tok;
    }
    c->call->error_param = c->carrier ? NULL : c->param;
    c->call->error_code = c->carrier ? NULL : c->code;
    for (size_t i = 0; i < c->n_prompts; i++) {
        free(c->prompts[i].tokens);
        free(c->prompts[i].embedding);
    }
    generate__guard_release(c);
    if (c->protocol->release)
        c->protocol->release(c);
    if (own)
        c->call->version = c->version; /* its names are in the access record */
    else
        model_version_unref(c->version); /* one of several */
    atomic_fetch_sub_explicit(&c->api->in_flight, 1, memory_order_relaxed);
    buf_release(&c->out);
    json_release(&c->doc);
    arena_release(&c->arena);
    free(c);
}

/* The call is over, as its carrier is to say. */
static void end_carried(struct gen_call *c, int status, const char *text, struct slice body)
{
    const struct gen_carrier *carrier = c->carrier;
    void *owner = c->owner;
    char copy[ERROR_TEXT_BYTES];
    snprintf(copy, sizeof copy, "%s", text);
    record(c, status);
    release(c);
    carrier->end(owner, status, copy, body);
}

/* Names in an error outlive the call. */
static void keep_names(struct gen_call *c)
{
    c->param = c->param ? arena_strdup(c->request->arena, str_of(c->param)) : NULL;
}

static void reply_failure(struct gen_call *c, int status, const char *text)
{
    struct http_request *r = c->request;
    uint32_t retry_s = api__retry_after_s(status, NULL);
    char copy[ERROR_TEXT_BYTES];
    if (c->carrier) {
        c->blocked = false; /* what is left is bounded */
        flush(c);
        end_carried(c, status, text, (struct slice){0});
        return;
    }
    record(c, status);
    snprintf(copy, sizeof copy, "%s", text);
    if (c->began) {
        c->protocol->fail(c, status, text);
        flush(c);
        release(c);
        http_stream_end(r);
        return;
    }
    keep_names(c);
    release(c);
    http_reply_error(r, status, copy, retry_s);
}

static void reply_cut(struct gen_call *c)
{
    struct http_request *r = c->request;
    bool began = c->began, gone = r->gone;
    if (c->carrier) {
        end_carried(c, STATUS_CANCELLED, "the client left, or doesn't read its answer", (struct slice){0});
        return;
    }
    record(c, STATUS_CANCELLED);
    release(c);
    if (!began)
        http_reply_error(r, STATUS_UNAVAILABLE, "the request was given up", 1);
    else if (gone)
        http_stream_end(r);
    else
        http_stream_abort(r);
}

static void reply_whole(struct gen_call *c)
{
    struct http_request *r = c->request;
    struct slice body;
    struct http_header id = {STR("x-request-id"), r->request_id};
    if (!c->protocol->only_prepare)
        c->protocol->end(c);
    body = slice_take(&c->out);
    if (c->call->guard && (!c->carrier || c->call->gen == c))
        api__guard_headers(r, c->call, c->flagged);
    if (c->carrier) {
        end_carried(c, body.p ? STATUS_OK : STATUS_NOMEM, body.p ? "" : "out of memory for this answer; try again later", body);
        return;
    }
    record(c, body.p ? STATUS_OK : STATUS_NOMEM);
    release(c);
    if (body.p)
        http_reply(r, 200, "application/json", &id, 1, &body, 1);
    else
        http_reply_error(r, STATUS_NOMEM, "out of memory for this reply; try again later", 1);
}

/* A stream's end, once its reader has room for it. */
static void reply_stream_end(struct gen_call *c)
{
    struct http_request *r = c->request;
    begin(c);
    c->protocol->end(c);
    c->blocked = false; /* what is left is bounded: net writes it as the client reads */
    flush(c);
    bool whole = !c->cut;
    if (c->carrier) {
        end_carried(c, whole ? STATUS_OK : STATUS_NOMEM, whole ? "" : "out of memory for this answer", (struct slice){0});
        return;
    }
    record(c, whole ? STATUS_OK : STATUS_NOMEM);
    release(c);
    if (whole)
        http_stream_end(r);
    else
        http_stream_abort(r);
}

static const struct gen_prompt *first_failed(const struct gen_call *c)
{
    for (size_t i = 0; i < c->n_prompts; i++)
        if (c->prompts[i].status < 0)
            return &c->prompts[i];
    return NULL;
}

/* Was this the last thing that the call waited for? */
static void finish_if_over(struct gen_call *c)
{
    if (!c->prepared || c->n_final < c->n_submitted)
        return;
    const struct gen_prompt *bad = first_failed(c);
    if (c->rc < 0)
        reply_failure(c, c->rc, c->err.text);
    else if (c->cut)
        reply_cut(c);
    else if (bad)
        reply_failure(c, bad->status, bad->error);
    else if (atomic_load(&c->cancelled))
        reply_failure(c, STATUS_UNAVAILABLE, "the server is stopping; ask another one");
    else if (c->stream)
        reply_stream_end(c);
    else
        reply_whole(c);
}

/* ---- messages ---- */

/* Prompts all of whose choices an output policy has ended. */
static void cancel_refused(struct gen_call *c)
{
    for (size_t i = 0; c->guard && c->prepared && i < c->n_prompts; i++) {
        uint64_t id = atomic_load(&c->prompts[i].id);
        if (id && generate__is_all_refused(c, (uint32_t)i))
            model_version_ops(c->version)->cancel_id(model_version_engine(c->version), id);
    }
}

static void on_prepared(struct loop_task *t)
{
    struct gen_call *c = CONTAINER_OF(t, struct gen_call, prepared_task);
    c->prepared = true;
    if (c->version && c->call->gen == c) {
        c->request->log_model = model_version_model(c->version);
        c->request->log_version = model_version_version(c->version);
    }
    if (c->rc == 0 && c->admission && c->admission->fallback)
        api__admission_tell(c->request, c->api, c->admission, !c->carrier || c->call->gen == c);
    if ((c->failed || atomic_load(&c->cancelled)) && c->n_submitted)
        generate__cancel_ids(c);
    cancel_refused(c);
    if (c->rc == 0 && c->stream && !c->cut && !c->carrier)
        loop_timer_start(c->request->loop, &c->keepalive, loop_now_ns(c->request->loop) + GENERATE_BEGIN_NS);
    if (c->carrier && c->carrier->prepared)
        c->carrier->prepared(c->owner);
    finish_if_over(c);
}

static void take_text(struct gen_call *c, const struct gen_event *ev)
{
    uint64_t now = loop_now_ns(c->request->loop);
    if (c->cut || c->failed || generate__is_refused(c, ev->choice))
        return;
    c->times.first_ns = c->times.first_ns ? c->times.first_ns : now;
    c->times.last_ns = now;
    if (c->stream)
        begin(c);
    c->protocol->event(c, ev);
    if (generate__is_refused(c, ev->choice))
        cancel_refused(c);
    if (c->stream)
        flush(c);
    give_up_if_slow(c);
}

void generate__take(struct gen_call *c, struct gen_event *ev)
{
    if (ev->kind == TOKEN_EVENT_TEXT) {
        take_text(c, ev);
        return;
    }
    c->n_final++;
    if (ev->kind == TOKEN_EVENT_FAILED && !c->failed) { /* the answer is lost: the others needn't go on */
        c->failed = true;
        if (c->prepared)
            generate__cancel_ids(c);
    }
    finish_if_over(c);
}

struct token_usage generate__usage(const struct gen_call *c)
{
    struct token_usage u = {0};
    for (size_t i = 0; i < c->n_prompts; i++) {
        u.prompt_tok += c->prompts[i].usage.prompt_tok;
        u.cached_tok += c->prompts[i].usage.cached_tok;
        u.generated_tok += c->prompts[i].usage.generated_tok;
    }
    return u;
}

/* ---- start ---- */

static struct gen_call *create(struct api *a, struct http_request *r, struct api_call *call,
                               const struct gen_protocol *protocol)
{
    struct gen_call *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->protocol = protocol;
    c->api = a;
    c->call = call;
    c->request = r;
    c->received_ns = r->received_ns;
    list_init(&c->link);
    loop_timer_init(&c->keepalive, tick);
    arena_init(&c->arena, 4096, 0);
    atomic_fetch_add_explicit(&a->in_flight, 1, memory_order_relaxed);
    return c;
}

static void own_request(struct gen_call *c)
{
    c->call->gen = c;
    c->request->on_gone = on_gone;
}

void generate__start(struct api *a, struct http_request *r, struct api_call *call, const struct gen_protocol *protocol)
{
    struct error err = {0};
    struct gen_call *c = create(a, r, call, protocol);
    if (!c) {
        http_reply_error(r, STATUS_NOMEM, "out of memory for this request; try again later", 1);
        return;
    }
    own_request(c);
    int rc = generate__pool_push(&a->gen, c, &err);
    if (rc < 0) {
        c->cut = true;
        release(c);
        http_reply_error(r, rc, err.text, api__retry_after_s(rc, NULL));
    }
}

void generate__start_carried(struct api *a, struct http_request *r, struct api_call *call, const struct gen_protocol *protocol,
                             const struct gen_carrier *carrier, void *owner, struct gen_call **at, bool alone)
{
    struct error err = {0};
    struct gen_call *c = create(a, r, call, protocol);
    *at = c;
    if (!c) {
        carrier->end(owner, STATUS_NOMEM, "out of memory for this request; try again later", (struct slice){0});
        return;
    }
    c->carrier = carrier;
    c->owner = owner;
    c->at = at;
    if (alone)
        own_request(c);
    else
        c->received_ns = loop_now_ns(r->loop);
    int rc = generate__pool_push(&a->gen, c, &err);
    if (rc < 0) {
        release(c);
        carrier->end(owner, rc, err.text, (struct slice){0});
    }
}

void generate__abandon(struct gen_call *c)
{
    c->cut = true;
    cancel(c);
}
