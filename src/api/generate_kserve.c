/* generate_kserve.c: Triton's generate extension: POST /v2/models/{m}[/versions/{v}]/generate and generate_stream.
 *
 *   {"id": "..", "text_input": "..", "parameters": {"max_tokens": 20, "temperature": 0, ...}}
 *   -> {"id": "..", "model_name": "..", "model_version": "..", "text_output": "..", "details": {"finish_reason": "..", ...}}
 *
 * Parameters are OpenAI's names, in `parameters` or beside it. A stream gives the text in parts, one event each; details come with the
 * last. Errors have KServe's shape, in a stream as an event. */
#include "api/guard.h"
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/sse.h"

struct kserve_generate {
    struct openai_reply reply; /* only what openai__sampling sets */
    struct str id;
    struct buf text, logprobs;
    enum token_finish finish;
};

static struct kserve_generate *generate_of(const struct gen_call *c)
{
    return c->state;
}

/* ---- prepare ---- */

/* A string, or a list with one, as a tensor of shape [1] is written. */
static int take_text(struct gen_call *c, struct error *err)
{
    yyjson_val *v = NULL;
    int rc = generate__fault(c, json_get_any(c->doc.root, "text_input", JSON_REQUIRED, &v, NULL, err), "text_input", NULL);
    if (rc < 0)
        return rc;
    if (yyjson_is_arr(v) && yyjson_arr_size(v) == 1)
        v = yyjson_arr_get_first(v);
    if (!yyjson_is_str(v))
        return openai__invalid(c, "text_input", err, "text_input must be one string, not %s", json_type_name(v));
    rc = generate__prompts(c, 1, err);
    return rc ? rc : generate__tokenize(c, json_str(v), 0, err);
}

static int take_parameters(struct gen_call *c, struct kserve_generate *g, struct error *err)
{
    c->fields = c->doc.root;
    int rc = json_get_obj(c->doc.root, "parameters", JSON_OPTIONAL, &c->fields, NULL, err);
    if (rc == 0)
        rc = openai__str(c, c->doc.root, "id", JSON_OPTIONAL, &g->id, err);
    if (rc == 0)
        rc = openai__sampling(c, &g->reply, false, err);
    if (rc == 0)
        rc = openai__constraints(c, err);
    if (rc == 0 && c->params.n != 1)
        rc = openai__invalid(c, "n", err, "n is %u; generate gives one answer", c->params.n);
    return rc;
}

static int prepare(struct gen_call *c, struct error *err)
{
    struct kserve_generate *g = ARENA_NEW(&c->arena, struct kserve_generate);
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    c->state = g;
    c->stream = c->call->match.id == ROUTE_GENERATE_STREAM;
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = generate__find(c, c->call->match.model, c->call->match.version, err);
    if (rc == 0)
        rc = generate__deadline(c, err);
    if (rc == 0)
        rc = take_parameters(c, g, err);
    return rc ? rc : take_text(c, err);
}

static void release(struct gen_call *c)
{
    struct kserve_generate *g = generate_of(c);
    if (g) {
        buf_release(&g->text);
        buf_release(&g->logprobs);
    }
}

/* ---- reply ---- */

static void put_details(struct gen_call *c, const struct token_usage *u)
{
    struct kserve_generate *g = generate_of(c);
    buf_printf(&c->out,
               ",\"details\":{\"finish_reason\":\"%s\",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"generated_tokens\":%u",
               openai__finish_name(g->finish), u->prompt_tok, u->cached_tok, u->generated_tok);
    if (g->reply.logprobs && !generate__is_changed(c, 0)) {
        buf_append_z(&c->out, ",\"logprobs\":[");
        buf_append_str(&c->out, buf_str(&g->logprobs));
        buf_append_c(&c->out, ']');
    }
    buf_append_c(&c->out, '}');
}

/* `u`: NULL while it goes on. */
static void put_reply(struct gen_call *c, const struct token_usage *u)
{
    struct kserve_generate *g = generate_of(c);
    buf_append_c(&c->out, '{');
    if (g->id.p) {
        openai__member(&c->out, "id", g->id);
        buf_append_c(&c->out, ',');
    }
    openai__member(&c->out, "model_name", model_version_model(c->version));
    buf_append_c(&c->out, ',');
    openai__member(&c->out, "model_version", model_version_version(c->version));
    buf_append_c(&c->out, ',');
    openai__member(&c->out, "text_output", buf_str(&g->text));
    if (u)
        put_details(c, u);
    buf_append_c(&c->out, '}');
    c->out.failed |= g->text.failed || g->logprobs.failed;
    buf_clear(&g->text);
    buf_clear(&g->logprobs);
}

static void put_event(struct gen_call *c, const struct token_usage *u)
{
    sse_begin(&c->out, NULL);
    put_reply(c, u);
    sse_end(&c->out);
}

static void on_piece(void *ctx, enum calls_piece kind, struct str text)
{
    (void)kind;
    buf_append_str(ctx, text);
}

static void on_event(struct gen_call *c, const struct gen_event *ev)
{
    struct kserve_generate *g = generate_of(c);
    const struct calls_sink sink = {on_piece, &g->text};
    int finish = generate__push(c, ev, NULL, &sink);
    if (ev->n_logprobs) {
        if (g->logprobs.n)
            buf_append_c(&g->logprobs, ',');
        openai__logprobs(&g->logprobs, ev, (uint32_t)c->params.logprobs + 1);
    }
    if (finish != TOKEN_FINISH_NONE)
        g->finish = (enum token_finish)finish;
    else if (c->stream)
        put_event(c, NULL);
    c->out.failed |= g->text.failed;
}

static void on_end(struct gen_call *c)
{
    struct token_usage u = generate__usage(c);
    if (c->stream)
        put_event(c, &u);
    else
        put_reply(c, &u);
}

static void on_fail(struct gen_call *c, int status, const char *text)
{
    (void)status;
    sse_begin(&c->out, NULL);
    buf_append_c(&c->out, '{');
    openai__member(&c->out, "error", str_of(text));
    buf_append_c(&c->out, '}');
    sse_end(&c->out);
}

static void start(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol protocol = {.prepare = prepare,
                                                 .event = on_event,
                                                 .end = on_end,
                                                 .fail = on_fail,
                                                 .release = release,
                                                 .stream_type = "text/event-stream; charset=utf-8",
                                                 .prompt_field = "text_input"};
    generate__start(a, r, call, &protocol);
}

void api__generate(struct api *a, struct http_request *r, struct api_call *call)
{
    start(a, r, call);
}

void api__generate_stream(struct api *a, struct http_request *r, struct api_call *call)
{
    start(a, r, call);
}
