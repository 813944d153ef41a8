/* openai_calls.c: see openai_calls.h. One byte at a time through a state machine, so that any cutting of the text gives the same pieces
 * (but for where content and arguments are cut). `raw` always holds the bytes that were taken and not given in any form. */
#include "api/openai_calls.h"

#include <string.h>
#include <yyjson.h>

#include "base/size.h"

#define NAME_BYTES_MAX 256
#define HELD_BYTES_MAX (1u << 20)

enum { MEMBER_NONE, MEMBER_NAME, MEMBER_ARGS, MEMBER_OTHER };

/* ---- formats ---- */

static bool holds(struct str text, const char *needle)
{
    return text.n && memmem(text.p, text.n, needle, strlen(needle)) != NULL;
}

enum calls_format calls_format_of(struct str t)
{
    if (holds(t, "[TOOL_CALLS]"))
        return CALLS_MISTRAL;
    if (holds(t, "<tool_call>"))
        return CALLS_HERMES;
    if (holds(t, "<|python_tag|>") || (holds(t, "\"parameters\"") && holds(t, "ipython")))
        return CALLS_LLAMA;
    return CALLS_NONE;
}

static const char *opener(enum calls_format f)
{
    switch (f) {
    case CALLS_HERMES:
        return "<tool_call>";
    case CALLS_MISTRAL:
        return "[TOOL_CALLS]";
    case CALLS_LLAMA:
        return "<|python_tag|>";
    case CALLS_NONE:
    case CALLS_ARRAY:
    case CALLS_NAMED:
        break;
    }
    return NULL;
}

void calls_init(struct calls *c, enum calls_format format, const char *named, bool thinking, bool reasoning)
{
    *c = (struct calls){.format = format, .named = named, .thinking = thinking || reasoning};
    c->state = reasoning ? CALLS_S_REASONING : format == CALLS_NONE && !thinking ? CALLS_S_TEXT : CALLS_S_START;
}

void calls_release(struct calls *c)
{
    buf_release(&c->raw);
    buf_release(&c->token);
    buf_release(&c->name);
    buf_release(&c->args);
}

/* ---- giving ---- */

static void give(const struct calls_sink *sink, enum calls_piece kind, struct str text)
{
    if (text.n)
        sink->piece(sink->ctx, kind, text);
}

/* The held text in front of `keep` bytes. */
static void give_raw(struct calls *c, const struct calls_sink *sink, enum calls_piece kind, size_t keep)
{
    size_t n = c->raw.n - keep;
    give(sink, kind, (struct str){c->raw.p, n});
    if (n && keep)
        memmove(c->raw.p, c->raw.p + n, keep);
    c->raw.n = keep;
}

/* It was no call: content after all. */
static void give_up(struct calls *c, const struct calls_sink *sink)
{
    if (!c->has_name)
        give_raw(c, sink, CALLS_CONTENT, 0);
    buf_clear(&c->raw);
    buf_clear(&c->args);
    c->has_name = c->array = false;
    c->state = CALLS_S_TEXT;
}

/* ---- text: content and reasoning ---- */

/* Length of the longest proper beginning of `marker` at the end of `s`; the whole of it counts, too. */
static size_t tail_match(struct str s, const char *marker)
{
    size_t m = strlen(marker);
    for (size_t n = MIN_OF(m, s.n); n > 0; n--)
        if (memcmp(s.p + s.n - n, marker, n) == 0)
            return n;
    return 0;
}

static bool is_space(char b)
{
    return b == ' ' || b == '\n' || b == '\r' || b == '\t';
}

static size_t spaces_before(struct str s, size_t end)
{
    size_t n = 0;
    while (n < end && is_space(s.p[end - n - 1]))
        n++;
    return n;
}

static void begin_calls(struct calls *c, const struct calls_sink *sink, size_t marker)
{
    struct str s = buf_str(&c->raw);
    size_t keep = marker + spaces_before(s, s.n - marker);
    give_raw(c, sink, CALLS_CONTENT, keep);
    c->state = CALLS_S_BETWEEN;
    c->array = c->has_name = false;
}

/* One more byte is in raw; give what can't belong to a marker. White space waits for what follows it where calls may follow. */
static void text_byte(struct calls *c, const struct calls_sink *sink)
{
    const char *open = opener(c->format);
    struct str s = buf_str(&c->raw);
    size_t hold = open ? tail_match(s, open) : 0;
    if (open && hold == strlen(open)) {
        begin_calls(c, sink, hold);
        return;
    }
    if (open)
        hold += spaces_before(s, s.n - hold);
    else if (c->n_calls)
        hold = spaces_before(s, s.n);
    give_raw(c, sink, CALLS_CONTENT, hold);
}

static void reasoning_byte(struct calls *c, const struct calls_sink *sink)
{
    static const char close[] = "</think>";
    struct str s = buf_str(&c->raw);
    size_t hold = tail_match(s, close);
    size_t spaces = spaces_before(s, s.n - hold);
    give_raw(c, sink, CALLS_REASONING, hold + spaces);
    if (hold == strlen(close)) {
        buf_clear(&c->raw);
        c->thinking = false;
        c->skip_space = true;
        c->state = CALLS_S_START;
    }
}

static void start_array_or_named(struct calls *c)
{
    c->state = c->format == CALLS_NAMED ? CALLS_S_ARGS : CALLS_S_BETWEEN;
}

/* Nothing but white space has come so far, and a byte of something. */
static void start_byte(struct calls *c)
{
    static const char think[] = "<think>";
    struct str s = buf_str(&c->raw);
    size_t from = 0;
    while (from < s.n && is_space(s.p[from]))
        from++;
    if (from == s.n)
        return; /* white space only */
    struct str word = {s.p + from, s.n - from};
    if (c->thinking && word.n <= strlen(think) && memcmp(word.p, think, word.n) == 0) {
        if (word.n == strlen(think)) {
            buf_clear(&c->raw);
            c->state = CALLS_S_REASONING;
        }
        return;
    }
    if (c->skip_space)
        memmove(c->raw.p, c->raw.p + from, c->raw.n -= from);
    c->state = CALLS_S_TEXT;
    if (c->format == CALLS_LLAMA && word.p[0] == '{')
        c->state = CALLS_S_BETWEEN;
    else if (c->format == CALLS_ARRAY || c->format == CALLS_NAMED)
        start_array_or_named(c);
}

/* ---- calls ---- */

static void call_begins(struct calls *c, const struct calls_sink *sink)
{
    c->has_name = true;
    c->n_calls++;
    sink->piece(sink->ctx, CALLS_BEGIN, buf_str(&c->name));
    give(sink, CALLS_ARGUMENTS, buf_str(&c->args));
    buf_clear(&c->args);
    buf_clear(&c->raw);
}

/* Arguments go out once the name is known. */
static void take_args(struct calls *c, const struct calls_sink *sink, char b)
{
    c->has_args = true;
    if (c->has_name)
        give(sink, CALLS_ARGUMENTS, (struct str){&b, 1});
    else
        buf_append_c(&c->args, b);
}

/* A byte of JSON; true: the value that began is complete with it. Containers only. */
static bool json_byte(struct calls_json *j, char b)
{
    if (j->string) {
        if (j->escape)
            j->escape = false;
        else if (b == '\\')
            j->escape = true;
        else if (b == '"')
            j->string = false;
        return false;
    }
    if (b == '"')
        j->string = true;
    else if (b == '{' || b == '[')
        j->depth++;
    else if (b == '}' || b == ']')
        j->depth--;
    j->begun |= b == '{' || b == '[';
    return j->begun && j->depth <= 0;
}

static void object_begins(struct calls *c)
{
    c->json = (struct calls_json){.depth = 1, .begun = true, .key = true};
    c->member = MEMBER_NONE;
    c->has_name = c->has_args = false;
    buf_clear(&c->token);
    buf_clear(&c->name);
    buf_clear(&c->args);
    c->state = CALLS_S_OBJECT;
}

static void object_over(struct calls *c, const struct calls_sink *sink)
{
    if (!c->has_name) {
        give_up(c, sink);
        return;
    }
    if (!c->has_args)
        give(sink, CALLS_ARGUMENTS, STR("{}"));
    buf_clear(&c->raw);
    c->state = c->array ? CALLS_S_BETWEEN : CALLS_S_CLOSE;
}

/* Arguments that were written as a string that holds JSON. */
static void string_args(struct calls *c, const struct calls_sink *sink)
{
    struct buf quoted;
    buf_init(&quoted);
    buf_append_c(&quoted, '"');
    buf_append_str(&quoted, buf_str(&c->token));
    buf_append_c(&quoted, '"');
    yyjson_doc *d = quoted.failed ? NULL : yyjson_read(quoted.p, quoted.n, 0);
    struct str s = {yyjson_get_str(yyjson_doc_get_root(d)), yyjson_get_len(yyjson_doc_get_root(d))};
    for (size_t i = 0; i < s.n; i++)
        take_args(c, sink, s.p[i]);
    yyjson_doc_free(d);
    buf_release(&quoted);
}

/* A string at depth 1 is complete in c->token (without quotes, escapes as they stand). */
static void string_over(struct calls *c, const struct calls_sink *sink)
{
    struct str s = buf_str(&c->token);
    if (c->json.key) {
        c->member = str_eqz(s, "name")                                    ? MEMBER_NAME
                    : str_eqz(s, "arguments") || str_eqz(s, "parameters") ? MEMBER_ARGS
                                                                          : MEMBER_OTHER;
    } else if (c->member == MEMBER_NAME && !c->has_name && s.n && s.n <= NAME_BYTES_MAX) {
        buf_append_str(&c->name, s);
        call_begins(c, sink);
    } else if (c->member == MEMBER_ARGS) {
        string_args(c, sink);
    }
    buf_clear(&c->token);
}

/* A byte at depth 1 of a call's object, outside arguments. */
static void member_byte(struct calls *c, const struct calls_sink *sink, char b)
{
    struct calls_json *j = &c->json;
    bool was_string = j->string;
    bool over = json_byte(j, b);
    if (was_string && !j->string)
        string_over(c, sink);
    else if (was_string)
        buf_append_c(&c->token, b);
    else if (over)
        object_over(c, sink);
    else if (b == ':' && j->depth == 1)
        j->key = false;
    else if (b == ',' && j->depth == 1)
        j->key = true;
    else if (j->depth == 2 && (b == '{' || b == '[') && c->member == MEMBER_ARGS)
        take_args(c, sink, b);
}

static void object_byte(struct calls *c, const struct calls_sink *sink, char b)
{
    struct calls_json *j = &c->json;
    if (j->depth <= 1) {
        member_byte(c, sink, b);
        return;
    }
    json_byte(j, b);
    if (c->member == MEMBER_ARGS)
        take_args(c, sink, b);
}

/* Mistral's "name[ARGS]{...}" or "name{...}"; raw holds marker and all. */
static void name_byte(struct calls *c, const struct calls_sink *sink, char b)
{
    static const char args[] = "[ARGS]";
    buf_append_c(&c->token, b);
    struct str s = buf_str(&c->token);
    bool brace = b == '{';
    size_t cut = brace ? 1 : tail_match(s, args) == strlen(args) ? strlen(args) : 0;
    if (s.n > NAME_BYTES_MAX || (!cut && b == '\n')) {
        give_up(c, sink);
        return;
    }
    if (!cut)
        return;
    buf_clear(&c->name);
    buf_append_str(&c->name, str_trim((struct str){s.p, s.n - cut}));
    buf_clear(&c->token);
    c->json = (struct calls_json){.depth = brace, .begun = brace};
    c->state = CALLS_S_ARGS;
    call_begins(c, sink);
    if (brace)
        take_args(c, sink, b);
}

/* Arguments without an object around them. */
static void args_byte(struct calls *c, const struct calls_sink *sink, char b)
{
    if (c->format == CALLS_NAMED && !c->has_name) {
        buf_clear(&c->name);
        buf_append_z(&c->name, c->named);
        call_begins(c, sink);
    }
    if (c->json.begun || !is_space(b))
        take_args(c, sink, b);
    if (json_byte(&c->json, b))
        c->state = CALLS_S_CLOSE;
    buf_clear(&c->raw);
}

static void between_byte(struct calls *c, const struct calls_sink *sink, char b)
{
    if (b == '{')
        object_begins(c);
    else if (b == '[' && !c->array && (c->format == CALLS_MISTRAL || c->format == CALLS_ARRAY))
        c->array = true;
    else if (b == ']' && c->array)
        c->state = CALLS_S_CLOSE;
    else if (is_space(b) || (b == ',' && c->array))
        return;
    else if (c->format == CALLS_MISTRAL && !c->array) {
        buf_clear(&c->token);
        c->state = CALLS_S_NAME;
        name_byte(c, sink, b);
    } else {
        c->has_name = false;
        give_up(c, sink);
    }
}

/* Behind a call that stood alone: its closing marker, another call, or text. raw holds what came since. */
static void close_byte(struct calls *c, const struct calls_sink *sink, char b)
{
    static const char close[] = "</tool_call>";
    if (c->format == CALLS_HERMES) {
        struct buf *raw = &c->raw;
        size_t skip = 0;
        while (skip < raw->n && is_space(raw->p[skip]))
            skip++;
        struct str s = {raw->p + skip, raw->n - skip};
        if (s.n <= strlen(close) && (!s.n || memcmp(s.p, close, s.n) == 0)) {
            if (s.n == strlen(close)) {
                buf_clear(raw);
                c->state = CALLS_S_TEXT;
                c->has_name = false;
            }
            return;
        }
    } else if (c->format == CALLS_LLAMA && (b == ';' || b == '{' || is_space(b))) {
        if (b == '{')
            object_begins(c);
        return;
    } else if (c->format == CALLS_ARRAY || c->format == CALLS_NAMED || is_space(b)) {
        buf_clear(&c->raw); /* nothing of worth follows */
        return;
    }
    c->has_name = false;
    c->state = CALLS_S_TEXT;
    text_byte(c, sink);
}

static void take(struct calls *c, const struct calls_sink *sink, char b)
{
    enum calls_state s = c->state;
    if (s != CALLS_S_OBJECT || !c->has_name)
        buf_append_c(&c->raw, b);
    if (s == CALLS_S_START) {
        start_byte(c);
        s = c->state;
        if (s == CALLS_S_START || s == CALLS_S_REASONING)
            return;
        if (c->format == CALLS_NONE || c->format == CALLS_HERMES || c->format == CALLS_MISTRAL) {
            text_byte(c, sink); /* white space in front goes out with it, unless reasoning came before */
            return;
        }
    }
    switch (s) {
    case CALLS_S_REASONING:
        reasoning_byte(c, sink);
        break;
    case CALLS_S_START:
    case CALLS_S_TEXT:
        text_byte(c, sink);
        break;
    case CALLS_S_BETWEEN:
        between_byte(c, sink, b);
        break;
    case CALLS_S_NAME:
        name_byte(c, sink, b);
        break;
    case CALLS_S_OBJECT:
        object_byte(c, sink, b);
        break;
    case CALLS_S_ARGS:
        args_byte(c, sink, b);
        break;
    case CALLS_S_CLOSE:
        close_byte(c, sink, b);
        break;
    }
}

/* Pieces are joined again: a sink is called once for a run of bytes of the same kind. */
struct joiner {
    const struct calls_sink *to;
    struct buf *run;
    enum calls_piece kind;
};

static void join_out(struct joiner *j)
{
    give(j->to, j->kind, buf_str(j->run));
    buf_clear(j->run);
}

static void join(void *ctx, enum calls_piece kind, struct str text)
{
    struct joiner *j = ctx;
    if (kind != j->kind || kind == CALLS_BEGIN)
        join_out(j);
    j->kind = kind;
    buf_append_str(j->run, text);
}

static void run(struct calls *c, struct str text, bool finish, const struct calls_sink *sink)
{
    struct buf out;
    buf_init(&out);
    struct joiner j = {.to = sink, .run = &out, .kind = CALLS_CONTENT};
    const struct calls_sink joined = {join, &j};
    for (size_t i = 0; i < text.n && !c->failed; i++) {
        take(c, &joined, text.p[i]);
        c->failed |= c->raw.failed || c->token.failed || c->name.failed || c->args.failed || out.failed;
        c->failed |= c->raw.n > HELD_BYTES_MAX || c->args.n > HELD_BYTES_MAX;
    }
    if (finish && c->state == CALLS_S_REASONING)
        give_raw(c, &joined, CALLS_REASONING, 0);
    else if (finish && !c->has_name && !(c->n_calls && spaces_before(buf_str(&c->raw), c->raw.n) == c->raw.n))
        give_raw(c, &joined, CALLS_CONTENT, 0);
    join_out(&j);
    buf_release(&out);
}

void calls_push(struct calls *c, struct str text, const struct calls_sink *sink)
{
    if (c->format == CALLS_NONE && c->state == CALLS_S_TEXT && !c->raw.n) { /* most requests */
        give(sink, CALLS_CONTENT, text);
        return;
    }
    run(c, text, false, sink);
}

void calls_finish(struct calls *c, const struct calls_sink *sink)
{
    run(c, (struct str){0}, true, sink);
}
