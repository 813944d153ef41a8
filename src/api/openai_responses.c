/* openai_responses.c: POST /v1/responses: OpenAI's newer form of a chat, text and function calls, whole or as a stream of typed events.
 *
 * The request becomes a chat's (openai_responses_input.c) and runs as one. The answer is a list of items, in the order in which the model
 * says them: reasoning, a message, calls. Nothing is stored: previous_response_id is refused, and `store` is answered with false. */
#include <stdlib.h>
#include <string.h>

#include "api/guard.h"
#include "api/openai_responses_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "os/random.h"
#include "wire/sse.h"

#define ITEMS_MAX 256

enum item_kind { ITEM_REASONING, ITEM_MESSAGE, ITEM_CALL };

struct item {
    enum item_kind kind;
    char id[40], call_id[40];
    struct str name; /* of a call; malloc'ed */
    struct buf text, logprobs;
    bool done;
};

struct responses {
    struct openai_reply reply;
    struct openai_format format;
    struct json original; /* the body as it came; c->doc is the chat's */
    struct calls calls;
    struct item *items;
    size_t n_items;
    enum token_finish finish;
    uint64_t sequence;
    bool begun;
    const struct gen_event *ev; /* while it is taken apart */
};

static struct responses *responses_of(const struct gen_call *c)
{
    return c->state;
}

/* ---- prepare ---- */

/* A field of a chat by the name that it has here. */
static const char *own_name(const char *field)
{
    static const char *const names[][2] = {{"messages", "input"},
                                           {"response_format", "text"},
                                           {"reasoning_effort", "reasoning"},
                                           {"max_completion_tokens", "max_output_tokens"}};
    for (size_t i = 0; field && i < COUNT_OF(names); i++)
        if (!strcmp(field, names[i][0]))
            return names[i][1];
    return field;
}

static int prepare(struct gen_call *c, struct error *err)
{
    struct responses *s = ARENA_NEW(&c->arena, struct responses);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    c->state = s;
    openai__identify(&s->reply, "resp_");
    int rc = generate__parse_body(c, err);
    if (rc == 0)
        rc = openai__responses_to_chat(c, &s->original, err);
    if (rc == 0)
        rc = openai__params(c, &s->reply, true, err);
    if (rc == 0 && c->params.n != 1)
        rc = openai__invalid(c, "n", err, "n is %u; a response is one answer", c->params.n);
    if (rc == 0)
        rc = openai__format(c, &s->format, err);
    if (rc == 0)
        rc = openai__messages(c, NULL, &s->format, err);
    bool open = s->format.choice == TOOL_CHOICE_REQUIRED || s->format.choice == TOOL_CHOICE_NAMED;
    calls_init(&s->calls, s->format.calls, s->format.named, s->format.thinking && !open, s->format.reasoning && !open);
    c->param = own_name(c->param);
    c->grammar_param = own_name(c->grammar_param);
    return rc;
}

static void release(struct gen_call *c)
{
    struct responses *s = responses_of(c);
    if (!s)
        return;
    for (size_t i = 0; i < s->n_items; i++) {
        free((void *)s->items[i].name.p);
        buf_release(&s->items[i].text);
        buf_release(&s->items[i].logprobs);
    }
    free(s->items);
    calls_release(&s->calls);
    json_release(&s->original);
}

/* ---- items ---- */

static struct item *last_item(struct responses *s)
{
    return s->n_items ? &s->items[s->n_items - 1] : NULL;
}

static struct item *add_item(struct responses *s, enum item_kind kind, struct str name)
{
    static const char *const prefixes[] = {"rs_", "msg_", "fc_"};
    struct item *grown = s->n_items < ITEMS_MAX ? reallocarray(s->items, s->n_items + 1, sizeof *grown) : NULL;
    if (!grown)
        return NULL;
    s->items = grown;
    struct item *it = &grown[s->n_items];
    *it = (struct item){.kind = kind};
    snprintf(it->id, sizeof it->id, "%s%016llx", prefixes[kind], (unsigned long long)os_random_u64());
    snprintf(it->call_id, sizeof it->call_id, "call_%016llx", (unsigned long long)os_random_u64());
    if (kind == ITEM_CALL)
        it->name = (struct str){str_dup(name), name.n};
    if (kind == ITEM_CALL && !it->name.p)
        return NULL;
    s->n_items++;
    return it;
}

static void put_part(struct buf *out, const struct item *it, bool whole)
{
    buf_printf(out, "{\"type\":\"%s\",", it->kind == ITEM_REASONING ? "reasoning_text" : "output_text");
    openai__member(out, "text", whole ? buf_str(&it->text) : (struct str){"", 0});
    if (it->kind == ITEM_MESSAGE) {
        buf_append_z(out, ",\"annotations\":[],\"logprobs\":[");
        if (whole)
            buf_append_str(out, buf_str(&it->logprobs));
        buf_append_c(out, ']');
    }
    buf_append_c(out, '}');
}

/* `whole`: with what it holds; else as it is announced. */
static void put_item(struct buf *out, const struct item *it, bool whole, const char *status)
{
    buf_printf(out, "{\"id\":\"%s\",", it->id);
    if (it->kind == ITEM_CALL) {
        buf_printf(out, "\"type\":\"function_call\",\"status\":\"%s\",\"call_id\":\"%s\",", status, it->call_id);
        openai__member(out, "name", it->name);
        buf_append_c(out, ',');
        openai__member(out, "arguments", whole ? buf_str(&it->text) : (struct str){"", 0});
        buf_append_c(out, '}');
        return;
    }
    if (it->kind == ITEM_MESSAGE)
        buf_printf(out, "\"type\":\"message\",\"status\":\"%s\",\"role\":\"assistant\",\"content\":[", status);
    else
        buf_append_z(out, "\"type\":\"reasoning\",\"summary\":[],\"content\":[");
    if (whole)
        put_part(out, it, true);
    buf_append_z(out, "]}");
}

/* ---- the response object ---- */

static void put_usage(struct buf *out, const struct token_usage *u)
{
    buf_printf(
        out,
        "{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u},\"output_tokens\":%u,\"output_tokens_details\":"
        "{\"reasoning_tokens\":0},\"total_tokens\":%llu}",
        u->prompt_tok, u->cached_tok, u->generated_tok, (unsigned long long)u->prompt_tok + u->generated_tok);
}

/* A field as the client sent it, or `absent`. */
static void put_echo(struct buf *out, const struct responses *s, const char *key, const char *absent)
{
    yyjson_val *v = yyjson_obj_get(s->original.root, key);
    char *text = v && !yyjson_is_null(v) ? yyjson_val_write(v, 0, NULL) : NULL;
    buf_append_z(out, ",\"");
    buf_append_z(out, key);
    buf_append_z(out, "\":");
    buf_append_z(out, text ? text : absent);
    free(text);
}

static void put_echoes(struct gen_call *c)
{
    static const char *const fields[][2] = {{"instructions", "null"}, {"max_output_tokens", "null"},
                                            {"metadata", "{}"},       {"parallel_tool_calls", "true"},
                                            {"reasoning", "null"},    {"tool_choice", "\"auto\""},
                                            {"tools", "[]"},          {"text", "{\"format\":{\"type\":\"text\"}}"},
                                            {"user", "null"},         {"truncation", "\"disabled\""}};
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        put_echo(&c->out, responses_of(c), fields[i][0], fields[i][1]);
    buf_printf(&c->out, ",\"previous_response_id\":null,\"store\":false,\"background\":false,\"temperature\":%g,\"top_p\":%g",
               (double)c->params.temperature, (double)c->params.top_p);
}

static const char *status_of(const struct responses *s)
{
    bool cut = s->finish == TOKEN_FINISH_LENGTH || s->finish == TOKEN_FINISH_FILTERED;
    return s->finish == TOKEN_FINISH_NONE ? "in_progress" : cut ? "incomplete" : "completed";
}

/* `u`: NULL while it goes on. `error`: NULL but for a failed one. */
static void put_response(struct gen_call *c, const struct token_usage *u, const char *error)
{
    struct responses *s = responses_of(c);
    struct buf *out = &c->out;
    buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",\"error\":", s->reply.id,
               (long long)s->reply.created_s, error ? "failed" : status_of(s));
    if (error) {
        buf_append_z(out, "{\"code\":\"server_error\",");
        openai__member(out, "message", str_of(error));
        buf_append_c(out, '}');
    } else {
        buf_append_z(out, "null");
    }
    buf_append_z(out, ",\"incomplete_details\":");
    buf_append_z(out, s->finish == TOKEN_FINISH_LENGTH     ? "{\"reason\":\"max_output_tokens\"},"
                      : s->finish == TOKEN_FINISH_FILTERED ? "{\"reason\":\"content_filter\"},"
                                                           : "null,");
    openai__member(out, "model", c->model);
    buf_append_z(out, ",\"output\":[");
    for (size_t i = 0; u && i < s->n_items; i++) {
        if (i)
            buf_append_c(out, ',');
        put_item(out, &s->items[i], true, i + 1 == s->n_items ? status_of(s) : "completed");
    }
    buf_append_c(out, ']');
    put_echoes(c);
    buf_append_z(out, ",\"usage\":");
    if (u)
        put_usage(out, u);
    else
        buf_append_z(out, "null");
    buf_append_c(out, '}');
}

/* ---- events of a stream ---- */

static void begin_event(struct gen_call *c, const char *type)
{
    sse_begin(&c->out, type);
    buf_printf(&c->out, "{\"type\":\"%s\",\"sequence_number\":%llu", type, (unsigned long long)responses_of(c)->sequence++);
}

static void end_event(struct gen_call *c)
{
    buf_append_c(&c->out, '}');
    sse_end(&c->out);
}

static void response_event(struct gen_call *c, const char *type, const struct token_usage *u, const char *error)
{
    begin_event(c, type);
    buf_append_z(&c->out, ",\"response\":");
    put_response(c, u, error);
    end_event(c);
}

/* Head of an event about the last item. */
static void item_event(struct gen_call *c, const char *type, bool part)
{
    const struct responses *s = responses_of(c);
    begin_event(c, type);
    buf_printf(&c->out, ",\"output_index\":%zu", s->n_items - 1);
    if (part)
        buf_printf(&c->out, ",\"item_id\":\"%s\",\"content_index\":0", s->items[s->n_items - 1].id);
}

static void call_event(struct gen_call *c, const char *type)
{
    const struct responses *s = responses_of(c);
    item_event(c, type, false);
    buf_printf(&c->out, ",\"item_id\":\"%s\",", s->items[s->n_items - 1].id);
}

static void announce_item(struct gen_call *c, const struct item *it)
{
    item_event(c, "response.output_item.added", false);
    buf_append_z(&c->out, ",\"item\":");
    put_item(&c->out, it, false, "in_progress");
    end_event(c);
    if (it->kind != ITEM_MESSAGE)
        return;
    item_event(c, "response.content_part.added", true);
    buf_append_z(&c->out, ",\"part\":");
    put_part(&c->out, it, false);
    end_event(c);
}

static void close_text(struct gen_call *c, const struct item *it)
{
    item_event(c, it->kind == ITEM_MESSAGE ? "response.output_text.done" : "response.reasoning_text.done", true);
    buf_append_c(&c->out, ',');
    openai__member(&c->out, "text", buf_str(&it->text));
    if (it->kind == ITEM_MESSAGE) {
        buf_append_z(&c->out, ",\"logprobs\":[");
        buf_append_str(&c->out, buf_str(&it->logprobs));
        buf_append_c(&c->out, ']');
    }
    end_event(c);
    if (it->kind != ITEM_MESSAGE)
        return;
    item_event(c, "response.content_part.done", true);
    buf_append_z(&c->out, ",\"part\":");
    put_part(&c->out, it, true);
    end_event(c);
}

static void close_item(struct gen_call *c)
{
    struct item *it = last_item(responses_of(c));
    if (!it || it->done)
        return;
    it->done = true;
    if (!c->stream)
        return;
    if (it->kind == ITEM_CALL) {
        call_event(c, "response.function_call_arguments.done");
        openai__member(&c->out, "name", it->name);
        buf_append_c(&c->out, ',');
        openai__member(&c->out, "arguments", buf_str(&it->text));
        end_event(c);
    } else {
        close_text(c, it);
    }
    item_event(c, "response.output_item.done", false);
    buf_append_z(&c->out, ",\"item\":");
    put_item(&c->out, it, true,
             status_of(responses_of(c))[0] == 'i' && responses_of(c)->finish != TOKEN_FINISH_NONE ? "incomplete" : "completed");
    end_event(c);
}

static void delta_event(struct gen_call *c, struct item *it, struct str text)
{
    const struct gen_event *ev = responses_of(c)->ev;
    if (it->kind == ITEM_CALL)
        call_event(c, "response.function_call_arguments.delta");
    else
        item_event(c, it->kind == ITEM_MESSAGE ? "response.output_text.delta" : "response.reasoning_text.delta", true);
    if (it->kind != ITEM_CALL)
        buf_append_c(&c->out, ',');
    openai__member(&c->out, "delta", text);
    if (it->kind == ITEM_MESSAGE) {
        buf_append_z(&c->out, ",\"logprobs\":[");
        if (ev->n_logprobs)
            openai__logprobs(&c->out, ev, (uint32_t)c->params.logprobs + 1);
        buf_append_c(&c->out, ']');
    }
    end_event(c);
}

/* ---- the answer as it comes ---- */

static void on_piece(void *ctx, enum calls_piece kind, struct str text)
{
    struct gen_call *c = ctx;
    struct responses *s = responses_of(c);
    enum item_kind want = kind == CALLS_CONTENT ? ITEM_MESSAGE : kind == CALLS_REASONING ? ITEM_REASONING : ITEM_CALL;
    struct item *it = last_item(s);
    if (want == ITEM_CALL && !s->format.parallel && s->calls.n_calls > 1)
        return;
    if (kind == CALLS_BEGIN || !it || it->done || it->kind != want) {
        close_item(c);
        it = add_item(s, want, text);
        if (!it) {
            c->out.failed = true;
            return;
        }
        if (c->stream)
            announce_item(c, it);
    }
    if (kind == CALLS_BEGIN)
        return;
    buf_append_str(&it->text, text);
    if (want == ITEM_MESSAGE && s->ev->n_logprobs) {
        if (it->logprobs.n)
            buf_append_c(&it->logprobs, ',');
        openai__logprobs(&it->logprobs, s->ev, (uint32_t)c->params.logprobs + 1);
    }
    c->out.failed |= it->text.failed || it->logprobs.failed;
    if (c->stream)
        delta_event(c, it, text);
}

static void on_event(struct gen_call *c, const struct gen_event *ev)
{
    struct responses *s = responses_of(c);
    const struct calls_sink sink = {on_piece, c};
    if (c->stream && !s->begun) {
        s->begun = true;
        response_event(c, "response.created", NULL, NULL);
        response_event(c, "response.in_progress", NULL, NULL);
    }
    s->ev = ev;
    int finish = generate__push(c, ev, &s->calls, &sink);
    if (finish != TOKEN_FINISH_NONE) {
        s->finish = (enum token_finish)finish;
        if (!s->n_items) /* an empty answer is an empty message */
            on_piece(c, CALLS_CONTENT, (struct str){"", 0});
        close_item(c);
    }
    c->out.failed |= s->calls.failed;
}

static void on_end(struct gen_call *c)
{
    struct token_usage u = generate__usage(c);
    if (!c->stream)
        put_response(c, &u, NULL);
    else
        response_event(c, status_of(responses_of(c))[0] == 'i' ? "response.incomplete" : "response.completed", &u, NULL);
}

static void on_fail(struct gen_call *c, int status, const char *text)
{
    struct token_usage u = generate__usage(c);
    (void)status;
    response_event(c, "response.failed", &u, text);
}

void api__responses(struct api *a, struct http_request *r, struct api_call *call)
{
    static const struct gen_protocol protocol = {.prepare = prepare,
                                                 .event = on_event,
                                                 .end = on_end,
                                                 .fail = on_fail,
                                                 .release = release,
                                                 .stream_type = "text/event-stream; charset=utf-8",
                                                 .prompt_field = "input"};
    generate__start(a, r, call, &protocol);
}
