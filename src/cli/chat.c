/* chat.c: `inferd chat`: a conversation in the terminal with a model of a running server, over OpenAI's API.
 *
 * A line is a message; a line that ends in a backslash goes on. The answer is printed as it comes, reasoning dimmed. /new begins again, /quit
 * or Ctrl-D ends; Ctrl-C during an answer stops that answer and keeps what came. Without a terminal the whole of standard input is one
 * message, and only the answer's text is printed: `inferd chat MODEL < question.txt`. */
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/kserve.h"
#include "os/signals.h"
#include "os/terminal.h"
#include "wire/json.h"
#include "wire/sse.h"

#define INPUT_MAX (16u << 20)

struct chat {
    struct kserve_server server;
    struct http_client *client;
    struct os_signals signals;
    const char *model, *system, *message;
    double temperature;
    uint32_t max_tokens;
    bool thinking_shown, terminal;
    struct buf messages; /* elements of the JSON array */
    struct sse_reader events;
    struct buf answer, error, raw;
    bool in_reasoning, ended_line;
    struct cli_style style;
};

/* ---- a message and its answer ---- */

static void add_message(struct chat *c, const char *role, struct str text)
{
    if (c->messages.n)
        buf_append_c(&c->messages, ',');
    buf_append_z(&c->messages, "{\"role\":\"");
    buf_append_z(&c->messages, role);
    buf_append_z(&c->messages, "\",\"content\":");
    buf_append_json_str(&c->messages, text);
    buf_append_c(&c->messages, '}');
}

/* Text of a model goes to the terminal without what could steer it. */
static void show(struct chat *c, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char b = (unsigned char)text.p[i];
        bool control = (b < 0x20 && b != '\n' && b != '\t') || b == 0x7f;
        if (b == 0xc2 && i + 1 < text.n && (unsigned char)text.p[i + 1] < 0xa0) { /* C1 controls in UTF-8 */
            control = true;
            i++;
        }
        putchar(control && c->terminal ? '?' : (int)b);
    }
    if (text.n)
        c->ended_line = text.p[text.n - 1] == '\n';
    fflush(stdout);
}

static void show_reasoning(struct chat *c, struct str text)
{
    if (!c->terminal || !text.n)
        return;
    if (!c->in_reasoning)
        fputs(c->style.dim, stdout);
    c->in_reasoning = true;
    show(c, text);
}

static void on_event(void *ctx, struct str name, struct str data)
{
    struct chat *c = ctx;
    struct json j;
    (void)name;
    if (json_parse(&j, data, NULL, NULL) < 0)
        return; /* [DONE] */
    yyjson_val *delta = yyjson_obj_get(yyjson_arr_get_first(yyjson_obj_get(j.root, "choices")), "delta");
    yyjson_val *error = yyjson_obj_get(yyjson_obj_get(j.root, "error"), "message");
    struct str text = json_str(yyjson_obj_get(delta, "content"));
    show_reasoning(c, json_str(yyjson_obj_get(delta, "reasoning_content")));
    if (text.n && c->in_reasoning) {
        fputs(c->style.off, stdout);
        fputs("\n\n", stdout);
        c->in_reasoning = false;
    }
    show(c, text);
    buf_append_str(&c->answer, text);
    if (error)
        buf_append_str(&c->error, json_str(error));
    json_release(&j);
}

/* Stops at Ctrl-C: what came stays. */
static int on_body(void *ctx, struct str part)
{
    struct chat *c = ctx;
    if (c->raw.n + part.n < 65536)
        buf_append_str(&c->raw, part);
    sse_reader_push(&c->events, part, on_event, c);
    return c->terminal && os_signals_wait(&c->signals, 0) == OS_SIGNAL_STOP ? STATUS_CANCELLED : 0;
}

static void make_body(const struct chat *c, struct buf *body)
{
    buf_append_z(body, "{\"model\":");
    buf_append_json_str(body, str_of(c->model));
    buf_append_z(body, ",\"stream\":true,\"messages\":[");
    buf_append_str(body, buf_str(&c->messages));
    buf_append_c(body, ']');
    if (c->temperature >= 0)
        buf_printf(body, ",\"temperature\":%s", format_number(c->temperature, (char[FORMAT_NUMBER_BYTES]){0}));
    if (c->max_tokens)
        buf_printf(body, ",\"max_tokens\":%u", c->max_tokens);
    buf_append_c(body, '}');
}

/* The sentence of an answer that is an error. */
static void read_error(struct chat *c, int status)
{
    struct json j;
    struct str text = {0};
    if (json_parse(&j, buf_str(&c->raw), NULL, NULL) == 0) {
        text = json_str(yyjson_obj_get(yyjson_obj_get(j.root, "error"), "message"));
        buf_append_str(&c->error, text);
        json_release(&j);
    }
    if (!text.n)
        buf_printf(&c->error, "the server answers %d (%s)", status, http1_reason(status));
}

/* In a conversation Ctrl-C is an event while an answer comes; otherwise it ends the program, as everywhere. */
static int call(struct chat *c, const struct http_client_request *r, struct http_client_answer *answer, struct error *err)
{
    int rc = c->terminal ? os_signals_open(&c->signals, err) : 0;
    if (rc < 0)
        return rc;
    rc = http_client_call(c->client, r, answer, err);
    if (c->terminal)
        os_signals_close(&c->signals);
    return rc;
}

/* Ask with all messages; the answer becomes one of them. */
static int ask(struct chat *c, struct error *err)
{
    static const struct http_header type = {{"Content-Type", 12}, {"application/json", 16}};
    struct http_client_answer answer = {0};
    struct buf body;
    buf_init(&body);
    make_body(c, &body);
    buf_clear(&c->answer);
    buf_clear(&c->error);
    buf_clear(&c->raw);
    sse_reader_release(&c->events);
    c->events = (struct sse_reader){0};
    c->in_reasoning = false;
    c->ended_line = true;
    const struct http_client_request r = {.method = "POST",
                                          .path = "/v1/chat/completions",
                                          .headers = &type,
                                          .n_headers = 1,
                                          .body = buf_str(&body),
                                          .on_body = on_body,
                                          .ctx = c};
    int rc = body.failed ? error_set(err, STATUS_NOMEM, "not enough memory") : call(c, &r, &answer, err);
    buf_release(&body);
    if (c->in_reasoning)
        fputs(c->style.off, stdout);
    if (!c->ended_line)
        putchar('\n');
    fflush(stdout);
    rc = rc == STATUS_CANCELLED ? 0 : rc;
    if (rc == 0 && answer.status && answer.status / 100 != 2)
        read_error(c, answer.status);
    if (rc == 0 && c->error.n)
        return error_set(err, STATUS_INTERNAL, "%.*s", STR_ARG(buf_str(&c->error)));
    if (rc == 0)
        add_message(c, "assistant", buf_str(&c->answer));
    return rc;
}

/* ---- the loop ---- */

/* A message of one or more lines; false at the end of the input. */
static bool read_message(struct chat *c, struct buf *text)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    bool more = true;
    buf_clear(text);
    printf("%s> %s", c->style.cyan, c->style.off);
    fflush(stdout);
    while (more && (n = getline(&line, &cap, stdin)) >= 0) {
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        more = n > 0 && line[n - 1] == '\\';
        buf_append(text, line, (size_t)(n - more));
        if (more) {
            buf_append_c(text, '\n');
            printf("%s. %s", c->style.cyan, c->style.off);
            fflush(stdout);
        }
    }
    free(line);
    return !more || text->n;
}

static void begin_again(struct chat *c)
{
    buf_clear(&c->messages);
    if (c->system)
        add_message(c, "system", str_of(c->system));
}

static int converse(struct chat *c)
{
    struct buf text;
    struct error err;
    buf_init(&text);
    printf("%s%s%s. /new begins again, /quit ends, Ctrl-C stops an answer.\n", c->style.bold, c->model, c->style.off);
    while (read_message(c, &text)) {
        struct str s = buf_str(&text);
        if (str_eqz(s, "/quit") || str_eqz(s, "/exit"))
            break;
        if (str_eqz(s, "/new")) {
            begin_again(c);
            continue;
        }
        if (!str_trim(s).n)
            continue;
        size_t before = c->messages.n;
        add_message(c, "user", s);
        err = (struct error){0};
        if (ask(c, &err) < 0) {
            cli_fail("%s", err.text);
            c->messages.n = before; /* the question can be asked again */
        }
    }
    buf_release(&text);
    return CLI_OK;
}

static bool is_blank(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!strchr(" \t\r\n", s.p[i]) || !s.p[i])
            return false;
    return true;
}

static int ask_once(struct chat *c)
{
    struct buf text;
    struct error err = {0};
    buf_init(&text);
    int rc = 0;
    if (c->message)
        buf_append_z(&text, c->message);
    else
        rc = cli_read_file("-", INPUT_MAX, &text, &err);
    if (rc == 0 && is_blank(buf_str(&text)))
        rc = error_set(&err, STATUS_INVALID, "there is nothing to ask: %s",
                       c->message ? "--message is empty" : "standard input is empty");
    if (rc == 0) {
        add_message(c, "user", buf_str(&text));
        rc = ask(c, &err);
    }
    buf_release(&text);
    return rc < 0 ? cli_fail("%s", err.text) : CLI_OK;
}

/* The only model there is, when none is named. */
static int pick_model(struct chat *c, struct arena *a, struct error *err)
{
    struct http_client_answer answer;
    struct json j;
    if (c->model)
        return 0;
    int rc = kserve_call(c->client, "GET", "/v1/models", NULL, 0, STR(""), &answer, err);
    if (rc == 0)
        rc = json_parse(&j, answer.body, NULL, err);
    if (rc < 0)
        return rc;
    yyjson_val *list = yyjson_obj_get(j.root, "data");
    struct str id = json_str(yyjson_obj_get(yyjson_arr_get_first(list), "id"));
    if (yyjson_arr_size(list) == 1 && id.n)
        c->model = arena_strdup(a, id);
    else
        rc = error_set(err, STATUS_INVALID, "the server has %zu language models; name one: inferd chat MODEL",
                       yyjson_arr_size(list));
    json_release(&j);
    return rc == 0 && !c->model ? error_set(err, STATUS_NOMEM, "not enough memory") : rc;
}

static int run_chat(struct chat *c, struct arena *a)
{
    struct error err = {0};
    int rc = kserve_connect(&c->server, &c->client, &err);
    if (rc == 0)
        rc = pick_model(c, a, &err);
    if (rc < 0)
        return cli_fail("%s", err.text);
    c->terminal = os_is_terminal(0) && os_is_terminal(1) && !c->message;
    c->style = cli_style(stdout);
    begin_again(c);
    return c->terminal ? converse(c) : ask_once(c);
}

/* clang-format off */
static const struct cli_flag flags[] = {
    CLI_FLAG_STRING(struct chat, system, "system", 's', "TEXT", "What the model is told first."),
    CLI_FLAG_STRING(struct chat, message, "message", 'm', "TEXT", "Ask this, print the answer and end."),
    CLI_FLAG_NUMBER(struct chat, temperature, "temperature", 0, "N", 0, 100, "0: always the likeliest token. Default: the model's own."),
    CLI_FLAG_COUNT(struct chat, max_tokens, "max-tokens", 0, "N", 1, 1e7, "Longest answer. Default: what the context holds."),
    KSERVE_SERVER_FLAGS(struct chat, server),
};
/* clang-format on */

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct chat c = {.temperature = -1};
    struct cli_list arguments;
    struct arena arena;
    kserve_server_init(&c.server);
    c.server.timeout_ns = 3600000000000ull;
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .options = &c, .max_arguments = 1};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    c.model = arguments.n ? arguments.v[0] : NULL;
    arena_init(&arena, 1024, 0);
    code = run_chat(&c, &arena);
    http_client_destroy(c.client);
    sse_reader_release(&c.events);
    buf_release(&c.messages);
    buf_release(&c.answer);
    buf_release(&c.error);
    buf_release(&c.raw);
    arena_release(&arena);
    return code;
}

const struct cli_command command_chat = {
    .name = "chat",
    .arguments = "[MODEL]",
    .summary = "Talk to a language model of a running server.",
    .details = "In a terminal a conversation; else standard input is one message and the answer goes to standard output.\n",
    .run = run,
};
