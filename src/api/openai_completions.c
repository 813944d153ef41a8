/* openai_completions.c: POST /v1/completions: plain continuation of one or several prompts, text or token ids. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/guard.h"
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/sse.h"

struct completion_choice {
    enum token_finish finish;
    size_t text_bytes; /* of the answer so far: text_offset */
    bool echoed;
    struct buf text, tokens, token_logprobs, top_logprobs, offsets; /* the last four: elements of JSON arrays */
};

struct completions {
    struct openai_reply reply;
    bool echo;
    struct completion_choice *choices; /* [n_prompts * n] */
};

static struct completions *completions_of(const struct gen_call *c)
{
    return c->state;
}

/* ---- prepare ---- */

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

static int take_ids(struct gen_call *c, yyjson_val *list, size_t index, struct error *err)
{
    size_t i, n = yyjson_arr_size(list);
    yyjson_val *e;
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (!ids)
        return no_memory(err);
    c->prompts[index].tokens = ids;
    c->prompts[index].n_tokens = n;
    yyjson_arr_foreach(list, i, n, e)
    {
        if (!yyjson_is_uint(e) || yyjson_get_uint(e) > INT32_MAX)
            return openai__invalid(c, "prompt", err, "prompt: element %zu of a list of tokens must be a token id", i);
        ids[i] = (int32_t)yyjson_get_uint(e);
    }
    return 0;
}

static int take_prompt(struct gen_call *c, yyjson_val *v, size_t index, struct error *err)
{
    if (yyjson_is_str(v))
        return generate__fault(c, generate__tokenize(c, json_str(v), index, err), "prompt", NULL);
    if (yyjson_is_arr(v))
        return take_ids(c, v, index, err);
    return openai__invalid(c, "prompt", err, "prompt must be a string, a list of strings, or lists of token ids, not %s",
                           json_type_name(v));
}

static int check_options(struct gen_call *c, struct completions *s, struct error *err)
{
    yyjson_val *suffix = yyjson_obj_get(c->doc.root, "suffix");
    int rc = openai__bool(c, c->doc.root, "echo", &s->echo, err);
    if (rc == 0 && suffix && !yyjson_is_null(suffix))
        rc = openai__invalid(c, "suffix", err, "suffix is not supported");
    if (rc == 0 && s->echo && s->reply.logprobs)
        rc = openai__invalid(c, "echo", err, "echo together with logprobs is not supported");
    return rc;
}

static int prepare(struct gen_call *c, struct error *err)
{
    struct completions *s = ARENA_NEW(&c->arena, struct completions);
    if (!s)
        return no_memory(err);
    c->state = s;
    openai__identify(&s->reply, "cmpl-");
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = openai__params(c, &s->reply, false, err);
    if (rc == 0)
        rc = openai__constraints(c, err);
    if (rc == 0)
        rc = check_options(c, s, err);
    if (rc == 0)
        rc = openai__each_prompt(c, "prompt", take_prompt, err);
    if (rc == 0) {
        s->choices = arena_array(&c->arena, c->n_prompts * c->params.n, sizeof *s->choices);
        rc = s->choices ? 0 : no_memory(err);
    }
    return rc;
}

static void release(struct gen_call *c)
{
    struct completions *s = completions_of(c);
    for (size_t i = 0; s && s->choices && i < c->n_prompts * c->params.n; i++) {
        struct completion_choice *k = &s->choices[i];
        buf_release(&k->text);
        buf_release(&k->tokens);
        buf_release(&k->token_logprobs);
        buf_release(&k->top_logprobs);
        buf_release(&k->offsets);
    }
}

/* ---- log-probabilities: OpenAI's older form, parallel arrays ---- */

static double sayable(float logprob)
{
    return isfinite(logprob) && logprob > -9999 ? (double)logprob : -9999.0;
}

static void add_top(struct buf *out, const struct token_logprob *lp, uint32_t row)
{
    buf_append_c(out, '{');
    for (uint32_t k = 1; k < row && lp[k].id >= 0; k++) {
        if (k > 1)
            buf_append_c(out, ',');
        buf_append_json_str(out, lp[k].bytes);
        buf_printf(out, ":%.9g", sayable(lp[k].logprob));
    }
    buf_append_c(out, '}');
}

static void add_logprobs(struct gen_call *c, struct completion_choice *k, const struct gen_event *ev)
{
    uint32_t row = (uint32_t)c->params.logprobs + 1;
    for (size_t i = 0; i < ev->n_tokens && ev->logprobs; i++) {
        const struct token_logprob *lp = ev->logprobs + i * row;
        const char *comma = k->tokens.n ? "," : "";
        buf_append_z(&k->tokens, comma);
        buf_append_json_str(&k->tokens, lp->bytes);
        buf_printf(&k->token_logprobs, "%s%.9g", comma, sayable(lp->logprob));
        buf_append_z(&k->top_logprobs, comma);
        add_top(&k->top_logprobs, lp, row);
        buf_printf(&k->offsets, "%s%zu", comma, k->text_bytes);
        k->text_bytes += lp->bytes.n;
    }
}

static void put_logprobs(struct gen_call *c, uint32_t i, struct buf *out)
{
    const struct completion_choice *k = &completions_of(c)->choices[i];
    buf_append_z(out, ",\"logprobs\":");
    if (c->params.logprobs < 0 || generate__is_changed(c, i)) {
        buf_append_z(out, "null");
        return;
    }
    buf_append_z(out, "{\"tokens\":[");
    buf_append_str(out, buf_str(&k->tokens));
    buf_append_z(out, "],\"token_logprobs\":[");
    buf_append_str(out, buf_str(&k->token_logprobs));
    buf_append_z(out, "],\"top_logprobs\":[");
    buf_append_str(out, buf_str(&k->top_logprobs));
    buf_append_z(out, "],\"text_offset\":[");
    buf_append_str(out, buf_str(&k->offsets));
    buf_append_z(out, "]}");
    out->failed |= k->tokens.failed || k->token_logprobs.failed || k->top_logprobs.failed || k->offsets.failed;
}

/* ---- events ---- */

static void echo_prompt(struct gen_call *c, uint32_t choice, struct buf *out)
{
    const struct gen_prompt *p = &c->prompts[choice / c->params.n];
    int rc = model_version_ops(c->version)->detokenize(model_version_engine(c->version), p->tokens, p->n_tokens, out, NULL);
    out->failed |= rc < 0;
}

static void on_piece(void *ctx, enum calls_piece kind, struct str text)
{
    (void)kind;
    buf_append_str(ctx, text);
}

static void add_event(struct gen_call *c, const struct gen_event *ev)
{
    struct completion_choice *k = &completions_of(c)->choices[ev->choice];
    const struct calls_sink sink = {on_piece, &k->text};
    if (completions_of(c)->echo && !k->echoed)
        echo_prompt(c, ev->choice, &k->text);
    k->echoed = true;
    int finish = generate__push(c, ev, NULL, &sink);
    add_logprobs(c, k, ev);
    if (finish != TOKEN_FINISH_NONE)
        k->finish = (enum token_finish)finish;
    c->out.failed |= k->text.failed;
}

static void head(struct gen_call *c)
{
    const struct completions *s = completions_of(c);
    buf_printf(&c->out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%lld,", s->reply.id,
               (long long)s->reply.created_s);
    openai__member(&c->out, "model", c->model);
    buf_append_z(&c->out, ",\"choices\":[");
}

static void put_choice(struct gen_call *c, uint32_t i)
{
    struct completion_choice *k = &completions_of(c)->choices[i];
    buf_printf(&c->out, "{\"index\":%u,", i);
    openai__member(&c->out, "text", buf_str(&k->text));
    put_logprobs(c, i, &c->out);
    if (k->finish == TOKEN_FINISH_NONE)
        buf_append_z(&c->out, ",\"finish_reason\":null}");
    else
        buf_printf(&c->out, ",\"finish_reason\":\"%s\"}", openai__finish_name(k->finish));
}

static void clear_choice(struct completion_choice *k)
{
    buf_clear(&k->text);
    buf_clear(&k->tokens);
    buf_clear(&k->token_logprobs);
    buf_clear(&k->top_logprobs);
    buf_clear(&k->offsets);
}

static void on_event(struct gen_call *c, const struct gen_event *ev)
{
    struct completions *s = completions_of(c);
    add_event(c, ev);
    if (!c->stream)
        return;
    sse_begin(&c->out, NULL);
    head(c);
    put_choice(c, ev->choice);
    buf_append_c(&c->out, ']');
    if (s->reply.continuous_usage) {
        buf_append_z(&c->out, ",\"usage\":");
        openai__usage(&c->out, &ev->usage);
    } else if (s->reply.include_usage) {
        buf_append_z(&c->out, ",\"usage\":null");
    }
    buf_append_c(&c->out, '}');
    sse_end(&c->out);
    clear_choice(&s->choices[ev->choice]);
}

static void put_usage(struct gen_call *c)
{
    struct token_usage u = generate__usage(c);
    buf_append_z(&c->out, "],\"usage\":");
    openai__usage(&c->out, &u);
    buf_append_c(&c->out, '}');
}

static void on_end(struct gen_call *c)
{
    if (!c->stream) {
        head(c);
        for (uint32_t i = 0; i < c->n_prompts * c->params.n; i++) {
            if (i)
                buf_append_c(&c->out, ',');
            put_choice(c, i);
        }
        put_usage(c);
        return;
    }
    if (completions_of(c)->reply.include_usage) {
        sse_begin(&c->out, NULL);
        head(c);
        put_usage(c);
        sse_end(&c->out);
    }
    sse_write(&c->out, NULL, STR("[DONE]"));
}

static void on_fail(struct gen_call *c, int status, const char *text)
{
    sse_begin(&c->out, NULL);
    api__openai_error(&c->out, status_http(status), text, NULL, NULL);
    sse_end(&c->out);
    sse_write(&c->out, NULL, STR("[DONE]"));
}

void api__completions(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol completions_protocol = {.prepare = prepare,
                                                             .event = on_event,
                                                             .end = on_end,
                                                             .fail = on_fail,
                                                             .release = release,
                                                             .stream_type = "text/event-stream; charset=utf-8",
                                                             .prompt_field = "prompt"};
    generate__start(a, r, call, &completions_protocol);
}
