/* openai_chat.c: POST /v1/chat/completions: the reply, whole or as a stream of chunks.
 *
 * Every choice begins with a chunk that says its role, and ends with one that has its finish_reason; the chunk with usage has no choices
 * and is the last before [DONE]. */
#include <stdlib.h>

#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/sse.h"

struct chat_choice {
    bool begun;
    enum token_finish finish;
    struct buf content, logprobs; /* whole replies only */
};

struct chat {
    struct openai_reply reply;
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
    if (rc == 0) {
        chat->choices = arena_array(&c->arena, c->params.n, sizeof *chat->choices);
        rc = chat->choices ? openai__messages(c, err) : error_set(err, STATUS_NOMEM, "out of memory for this request");
    }
    return rc;
}

static void release(struct gen_call *c)
{
    struct chat *chat = chat_of(c);
    for (uint32_t i = 0; chat && chat->choices && i < c->params.n; i++) {
        buf_release(&chat->choices[i].content);
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

/* Behind the delta. `lp`: an event whose log-probabilities belong here, or NULL. */
static void choice_tail(struct gen_call *c, const struct gen_event *lp, enum token_finish finish,
                        const struct token_usage *usage)
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
    if (finish == TOKEN_FINISH_NONE)
        buf_append_z(out, ",\"finish_reason\":null}]");
    else
        buf_printf(out, ",\"finish_reason\":\"%s\"}]", openai__finish_name(finish));
    if (chat->reply.continuous_usage) {
        buf_append_z(out, ",\"usage\":");
        openai__usage(out, usage);
    } else if (chat->reply.include_usage) {
        buf_append_z(out, ",\"usage\":null");
    }
    buf_append_c(out, '}');
    sse_end(out);
}

static void stream_event(struct gen_call *c, const struct gen_event *ev)
{
    struct chat_choice *choice = &chat_of(c)->choices[ev->choice];
    if (!choice->begun) {
        choice->begun = true;
        choice_head(c, ev->choice);
        buf_append_z(&c->out, "\"role\":\"assistant\",\"content\":\"\"");
        choice_tail(c, NULL, TOKEN_FINISH_NONE, &ev->usage);
    }
    if (ev->text.n || ev->n_logprobs) {
        choice_head(c, ev->choice);
        openai__member(&c->out, "content", ev->text);
        choice_tail(c, ev, TOKEN_FINISH_NONE, &ev->usage);
    }
    if (ev->finish != TOKEN_FINISH_NONE) {
        choice_head(c, ev->choice);
        choice_tail(c, NULL, ev->finish, &ev->usage);
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

static void collect_event(struct gen_call *c, const struct gen_event *ev)
{
    struct chat_choice *choice = &chat_of(c)->choices[ev->choice];
    buf_append_str(&choice->content, ev->text);
    if (ev->n_logprobs) {
        if (choice->logprobs.n)
            buf_append_c(&choice->logprobs, ',');
        openai__logprobs(&choice->logprobs, ev, (uint32_t)c->params.logprobs + 1);
    }
    if (ev->finish != TOKEN_FINISH_NONE)
        choice->finish = ev->finish;
    c->out.failed |= choice->content.failed || choice->logprobs.failed;
}

static void append_choice(struct gen_call *c, uint32_t i)
{
    struct chat_choice *choice = &chat_of(c)->choices[i];
    struct buf *out = &c->out;
    buf_printf(out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",", i ? "," : "", i);
    openai__member(out, "content", buf_str(&choice->content));
    buf_append_z(out, ",\"refusal\":null},\"logprobs\":");
    if (chat_of(c)->reply.logprobs) {
        buf_append_z(out, "{\"content\":[");
        buf_append_str(out, buf_str(&choice->logprobs));
        buf_append_z(out, "],\"refusal\":null}");
    } else {
        buf_append_z(out, "null");
    }
    buf_printf(out, ",\"finish_reason\":\"%s\"}", openai__finish_name(choice->finish));
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
                                                      .stream_type = "text/event-stream; charset=utf-8"};
    generate__start(a, r, call, &chat_protocol);
}
