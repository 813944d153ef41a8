/* openai_chat.c: POST /v1/chat/completions: the reply, whole or as a stream of chunks.
 *
 * Every choice begins with a chunk that says its role, and ends with one that has its finish_reason; the chunk with usage has no choices
 * and is the last before [DONE]. */
#include <stdlib.h>

#include "api/guard.h"
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/sse.h"

struct chat_choice {
    bool begun;
    struct openai_answer answer;
    struct buf logprobs; /* whole replies only */
};

struct chat {
    struct openai_reply reply;
    struct openai_format format;
    struct chat_choice *choices; /* [n] */
};

static struct chat *chat_of(const struct gen_call *c)
{
    return c->state;
}

/* ---- prepare ---- */

static int refuse_unsupported(struct gen_call *c, struct error *err)
{
    static const char *const fields[] = {"audio", "prediction", "web_search_options"};
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        yyjson_val *v = yyjson_obj_get(c->doc.root, fields[i]);
        if (v && !yyjson_is_null(v))
            return openai__invalid(c, fields[i], err, "%s is not supported", fields[i]);
    }
    return 0;
}

static int prepare(struct gen_call *c, struct error *err)
{
    struct chat *chat = ARENA_NEW(&c->arena, struct chat);
    if (!chat)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    c->state = chat;
    openai__identify(&chat->reply, "chatcmpl-");
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = openai__params(c, &chat->reply, true, err);
    if (rc == 0)
        rc = refuse_unsupported(c, err);
    if (rc == 0)
        rc = openai__format(c, &chat->format, err);
    if (rc == 0)
        rc = openai__messages(c, NULL, &chat->format, err);
    if (rc == 0) {
        chat->choices = arena_array(&c->arena, c->params.n, sizeof *chat->choices);
        rc = chat->choices ? 0 : error_set(err, STATUS_NOMEM, "out of memory for this request");
    }
    for (uint32_t i = 0; rc == 0 && i < c->params.n; i++)
        openai__answer_init(&chat->choices[i].answer, &chat->format);
    return rc;
}

static void release(struct gen_call *c)
{
    struct chat *chat = chat_of(c);
    for (uint32_t i = 0; chat && chat->choices && i < c->params.n; i++) {
        openai__answer_release(&chat->choices[i].answer);
        buf_release(&chat->choices[i].logprobs);
    }
}

/* ---- chunks ---- */

static void chunk_head(struct gen_call *c)
{
    const struct chat *chat = chat_of(c);
    sse_begin(&c->out, NULL);
    buf_printf(&c->out, "{\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":%lld,", chat->reply.id,
               (long long)chat->reply.created_s);
    openai__member(&c->out, "model", c->model);
    buf_append_z(&c->out, ",\"choices\":[");
}

static void choice_head(struct gen_call *c, uint32_t index)
{
    chunk_head(c);
    buf_printf(&c->out, "{\"index\":%u,\"delta\":{", index);
}

/* Behind the delta. `lp`: an event whose log-probabilities belong here, or NULL. `finish`: NULL while it goes on. */
static void choice_tail(struct gen_call *c, const struct gen_event *lp, const char *finish, const struct token_usage *usage)
{
    const struct chat *chat = chat_of(c);
    struct buf *out = &c->out;
    buf_append_z(out, "},\"logprobs\":");
    if (lp && lp->logprobs) {
        buf_append_z(out, "{\"content\":[");
        openai__logprobs(out, lp, (uint32_t)c->params.logprobs + 1);
        buf_append_z(out, "],\"refusal\":null}");
    } else {
        buf_append_z(out, "null");
    }
    if (finish)
        buf_printf(out, ",\"finish_reason\":\"%s\"}]", finish);
    else
        buf_append_z(out, ",\"finish_reason\":null}]");
    if (chat->reply.continuous_usage) {
        buf_append_z(out, ",\"usage\":");
        openai__usage(out, usage);
    } else if (chat->reply.include_usage) {
        buf_append_z(out, ",\"usage\":null");
    }
    buf_append_c(out, '}');
    sse_end(out);
}

/* One event's text on its way into chunks. */
struct chunking {
    struct gen_call *c;
    const struct gen_event *ev;
    struct chat_choice *choice;
    bool said_logprobs;
};

static void put_call_delta(struct buf *out, const struct openai_answer *a, enum calls_piece kind, struct str text)
{
    size_t i = a->n_calls - 1;
    buf_printf(out, "\"tool_calls\":[{\"index\":%zu,", i);
    if (kind == CALLS_BEGIN) {
        buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{", a->call[i].id);
        openai__member(out, "name", a->call[i].name);
        buf_append_z(out, ",\"arguments\":\"\"}}]");
        return;
    }
    buf_append_z(out, "\"function\":{");
    openai__member(out, "arguments", text);
    buf_append_z(out, "}}]");
}

static void on_chunk_piece(void *ctx, enum calls_piece kind, struct str text)
{
    struct chunking *k = ctx;
    struct chat *chat = chat_of(k->c);
    struct openai_answer *a = &k->choice->answer;
    if (kind == CALLS_BEGIN || kind == CALLS_ARGUMENTS) {
        if (!openai__answer_add(a, &chat->format, kind, text))
            return;
        buf_clear(&a->call[a->n_calls - 1].arguments); /* on its way already */
    }
    choice_head(k->c, k->ev->choice);
    if (kind == CALLS_CONTENT)
        openai__member(&k->c->out, "content", text);
    else if (kind == CALLS_REASONING)
        openai__member(&k->c->out, "reasoning_content", text);
    else
        put_call_delta(&k->c->out, a, kind, text);
    choice_tail(k->c, k->said_logprobs ? NULL : k->ev, NULL, &k->ev->usage);
    k->said_logprobs = true;
}

static int stream_text(struct gen_call *c, struct chat_choice *choice, const struct gen_event *ev)
{
    struct chunking k = {.c = c, .ev = ev, .choice = choice};
    const struct calls_sink sink = {on_chunk_piece, &k};
    int finish = generate__push(c, ev, &choice->answer.calls, &sink);
    c->out.failed |= choice->answer.calls.failed;
    if (ev->n_logprobs && !k.said_logprobs) {
        choice_head(c, ev->choice);
        buf_append_z(&c->out, "\"content\":\"\"");
        choice_tail(c, ev, NULL, &ev->usage);
    }
    return finish;
}

static void stream_event(struct gen_call *c, const struct gen_event *ev)
{
    struct chat *chat = chat_of(c);
    struct chat_choice *choice = &chat->choices[ev->choice];
    if (!choice->begun) {
        choice->begun = true;
        choice_head(c, ev->choice);
        buf_append_z(&c->out, "\"role\":\"assistant\",\"content\":\"\"");
        choice_tail(c, NULL, NULL, &ev->usage);
    }
    int finish = stream_text(c, choice, ev);
    if (finish != TOKEN_FINISH_NONE) {
        choice->answer.finish = (enum token_finish)finish;
        choice_head(c, ev->choice);
        choice_tail(c, NULL, openai__answer_finish(&choice->answer, &chat->format), &ev->usage);
    }
}

static void stream_end(struct gen_call *c)
{
    if (chat_of(c)->reply.include_usage) {
        struct token_usage u = generate__usage(c);
        chunk_head(c);
        buf_append_z(&c->out, "],\"usage\":");
        openai__usage(&c->out, &u);
        buf_append_c(&c->out, '}');
        sse_end(&c->out);
    }
    sse_write(&c->out, NULL, STR("[DONE]"));
}

static void stream_fail(struct gen_call *c, int status, const char *text)
{
    sse_begin(&c->out, NULL);
    api__openai_error(&c->out, status_http(status), text, NULL, NULL);
    sse_end(&c->out);
    sse_write(&c->out, NULL, STR("[DONE]"));
}

/* ---- whole ---- */

struct collecting {
    struct openai_answer *answer;
    const struct openai_format *format;
};

static void on_whole_piece(void *ctx, enum calls_piece kind, struct str text)
{
    struct collecting *k = ctx;
    openai__answer_add(k->answer, k->format, kind, text);
}

static void collect_event(struct gen_call *c, const struct gen_event *ev)
{
    struct chat_choice *choice = &chat_of(c)->choices[ev->choice];
    struct openai_answer *a = &choice->answer;
    struct collecting k = {a, &chat_of(c)->format};
    const struct calls_sink sink = {on_whole_piece, &k};
    int finish = generate__push(c, ev, &a->calls, &sink);
    if (finish != TOKEN_FINISH_NONE)
        a->finish = (enum token_finish)finish;
    if (ev->n_logprobs) {
        if (choice->logprobs.n)
            buf_append_c(&choice->logprobs, ',');
        openai__logprobs(&choice->logprobs, ev, (uint32_t)c->params.logprobs + 1);
    }
    c->out.failed |= a->calls.failed || a->content.failed || a->reasoning.failed || choice->logprobs.failed;
}

static void append_calls(struct buf *out, const struct openai_answer *a)
{
    buf_append_z(out, ",\"tool_calls\":[");
    for (size_t i = 0; i < a->n_calls; i++) {
        buf_printf(out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{", i ? "," : "", a->call[i].id);
        openai__member(out, "name", a->call[i].name);
        buf_append_c(out, ',');
        openai__member(out, "arguments", buf_str(&a->call[i].arguments));
        buf_append_z(out, "}}");
    }
    buf_append_c(out, ']');
}

static void append_message(struct buf *out, const struct openai_answer *a)
{
    buf_append_z(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (a->n_calls && !a->content.n)
        buf_append_z(out, "null");
    else
        buf_append_json_str(out, buf_str(&a->content));
    if (a->reasoning.n) {
        buf_append_c(out, ',');
        openai__member(out, "reasoning_content", buf_str(&a->reasoning));
    }
    if (a->n_calls)
        append_calls(out, a);
    buf_append_z(out, ",\"refusal\":null}");
}

static void append_choice(struct gen_call *c, uint32_t i)
{
    const struct chat *chat = chat_of(c);
    struct chat_choice *choice = &chat->choices[i];
    struct buf *out = &c->out;
    buf_printf(out, "%s{\"index\":%u,", i ? "," : "", i);
    append_message(out, &choice->answer);
    buf_append_z(out, ",\"logprobs\":");
    if (chat->reply.logprobs && !generate__is_changed(c, i)) {
        buf_append_z(out, "{\"content\":[");
        buf_append_str(out, buf_str(&choice->logprobs));
        buf_append_z(out, "],\"refusal\":null}");
    } else {
        buf_append_z(out, "null");
    }
    buf_printf(out, ",\"finish_reason\":\"%s\"}", openai__answer_finish(&choice->answer, &chat->format));
}

static void whole_end(struct gen_call *c)
{
    const struct chat *chat = chat_of(c);
    struct token_usage u = generate__usage(c);
    struct buf *out = &c->out;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"chat.completion\",\"created\":%lld,", chat->reply.id,
               (long long)chat->reply.created_s);
    openai__member(out, "model", c->model);
    buf_append_z(out, ",\"choices\":[");
    for (uint32_t i = 0; i < c->params.n; i++)
        append_choice(c, i);
    buf_append_z(out, "],\"usage\":");
    openai__usage(out, &u);
    buf_append_z(out, ",\"system_fingerprint\":null}");
}

static void on_event(struct gen_call *c, const struct gen_event *ev)
{
    if (c->stream)
        stream_event(c, ev);
    else
        collect_event(c, ev);
}

static void on_end(struct gen_call *c)
{
    if (c->stream)
        stream_end(c);
    else
        whole_end(c);
}

void api__chat_completions(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol chat_protocol = {.prepare = prepare,
                                                      .event = on_event,
                                                      .end = on_end,
                                                      .fail = stream_fail,
                                                      .release = release,
                                                      .stream_type = "text/event-stream; charset=utf-8",
                                                      .prompt_field = "messages"};
    generate__start(a, r, call, &chat_protocol);
}
