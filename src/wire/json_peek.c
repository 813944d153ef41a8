/* json_peek.c: a scanner with six states over the outermost object.
 *
 *   START -{-> KEY_OR_END -"-> KEY -"-> COLON -:-> VALUE -...-> AFTER -,-> KEY_OR_END ... -}-> DONE
 *
 * A value is skipped by depth and string state; those of interest are copied into `word` or their buffer on the way. */
#include "wire/json_peek.h"

#include <string.h>

#include "base/size.h"
#include "base/status.h"

enum state { START, KEY_OR_END, KEY, COLON, VALUE, IN_TEXT, IN_WORD, IN_SKIP, AFTER, DONE };

#define DEPTH_MAX 1000000u /* only counted, never recursed into */

static const char *const member_names[PEEK_MEMBERS] = {
    [PEEK_MODEL] = "model",
    [PEEK_STREAM] = "stream",
    [PEEK_MAX_TOKENS] = "max_tokens",
    [PEEK_MAX_COMPLETION] = "max_completion_tokens",
    [PEEK_USER] = "user",
};

void json_peek_init(struct json_peek *p)
{
    memset(p, 0, sizeof *p);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static enum json_peek_member member_of(const char *word, size_t n)
{
    static const struct {
        const char *name;
        enum json_peek_member member;
    } keys[] = {{"model", PEEK_MODEL},
                {"stream", PEEK_STREAM},
                {"max_tokens", PEEK_MAX_TOKENS},
                {"max_completion_tokens", PEEK_MAX_COMPLETION},
                {"user", PEEK_USER},
                {"messages", PEEK_PROMPT},
                {"prompt", PEEK_PROMPT},
                {"input", PEEK_PROMPT}};
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if (strlen(keys[i].name) == n && memcmp(keys[i].name, word, n) == 0)
            return keys[i].member;
    return PEEK_OTHER;
}

static int wrong_type(const struct json_peek *p, const char *expected, struct error *err)
{
    return error_set(err, STATUS_INVALID, "\"%s\" must be %s", member_names[p->member], expected);
}

/* A key has ended. Keys with escapes were refused: one that means "model" must not look like another. */
static int end_key(struct json_peek *p, struct error *err)
{
    p->member = (uint8_t)(p->word_n <= sizeof p->word ? member_of(p->word, p->word_n) : PEEK_OTHER);
    p->state = COLON;
    if (p->member == PEEK_OTHER)
        return 0;
    if (p->seen & 1u << p->member && p->member != PEEK_PROMPT)
        return error_set(err, STATUS_INVALID, "\"%s\" is there twice; send it once", member_names[p->member]);
    p->seen |= 1u << p->member;
    return 0;
}

static int begin_value(struct json_peek *p, char c, struct error *err)
{
    p->word_n = 0;
    switch ((enum json_peek_member)p->member) {
    case PEEK_MODEL:
    case PEEK_USER:
        if (c == '"') {
            p->state = IN_TEXT;
            if (p->member == PEEK_MODEL)
                p->model_at = p->at;
            return 0;
        }
        if (p->member == PEEK_MODEL)
            return wrong_type(p, "a string", err);
        break;
    case PEEK_STREAM:
    case PEEK_MAX_TOKENS:
    case PEEK_MAX_COMPLETION:
        if (c != '"' && c != '{' && c != '[') {
            p->word[p->word_n++] = c;
            p->state = IN_WORD;
            return 0;
        }
        return wrong_type(p, p->member == PEEK_STREAM ? "true or false" : "a whole number", err);
    case PEEK_PROMPT:
        p->prompt_at = p->at;
        p->prompt_n = 0;
        break;
    case PEEK_OTHER:
    case PEEK_MEMBERS:
        break;
    }
    p->state = IN_SKIP;
    p->in_string = c == '"';
    p->escaped = false;
    p->depth = c == '{' || c == '[';
    return 0;
}

/* A value that ends with this byte (closing quote or bracket): `inclusive`; or before it. */
static void end_value(struct json_peek *p, bool inclusive)
{
    if (p->member == PEEK_PROMPT)
        p->prompt_n = p->at + inclusive - p->prompt_at;
    p->state = AFTER;
}

static int end_word(struct json_peek *p, struct error *err)
{
    struct str w = {p->word, MIN_OF(p->word_n, sizeof p->word)};
    uint64_t n;
    if (str_eqz(w, "null")) {
    } else if (p->member == PEEK_STREAM) {
        p->has_stream = true;
        p->stream = str_eqz(w, "true");
        if (!p->stream && !str_eqz(w, "false"))
            return wrong_type(p, "true or false", err);
    } else if (p->word_n > sizeof p->word || !str_to_u64(w, &n)) {
        return wrong_type(p, "a whole number", err);
    } else {
        p->max_tokens = MAX_OF(p->max_tokens, n);
    }
    p->state = AFTER;
    return 0;
}

static int take_text(struct json_peek *p, char c, struct error *err)
{
    char *to = p->member == PEEK_MODEL ? p->model : p->user;
    size_t *n = p->member == PEEK_MODEL ? &p->model_n : &p->user_n;
    if (!p->escaped && c == '"') {
        to[*n] = 0;
        if (p->member == PEEK_MODEL) {
            p->has_model = true;
            p->model_raw_n = p->at + 1 - p->model_at;
        }
        end_value(p, true);
        return 0;
    }
    if (!p->escaped && c == '\\') {
        p->escaped = true;
        return 0;
    }
    if (p->escaped) {
        static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
        const char *at = strchr(from, c);
        p->escaped = false;
        if (!c || !at) {
            if (p->member == PEEK_MODEL)
                return error_set(err, STATUS_INVALID, "\"model\" holds the escape \\%c; write the name in plain characters", c);
            return 0;
        }
        c = into[at - from];
    }
    if (*n == JSON_PEEK_TEXT)
        return error_set(err, STATUS_INVALID, "\"%s\" is longer than %d bytes", member_names[p->member], JSON_PEEK_TEXT);
    to[(*n)++] = c;
    return 0;
}

static void take_skip(struct json_peek *p, char c)
{
    if (p->in_string) {
        if (p->escaped)
            p->escaped = false;
        else if (c == '\\')
            p->escaped = true;
        else if (c == '"') {
            p->in_string = false;
            if (!p->depth)
                end_value(p, true);
        }
        return;
    }
    if (c == '"') {
        p->in_string = true;
    } else if (c == '{' || c == '[') {
        p->depth += p->depth < DEPTH_MAX;
    } else if (c == '}' || c == ']') {
        if (p->depth && --p->depth == 0) {
            end_value(p, true);
        } else if (!p->depth) { /* a bare number or literal, and the end of the object */
            end_value(p, false);
            p->state = DONE;
            p->done = true;
        }
    } else if (c == ',' && !p->depth) {
        end_value(p, false);
        p->state = KEY_OR_END;
    }
}

/* One byte outside of values. */
static int take_frame(struct json_peek *p, char c, struct error *err)
{
    if (is_space(c))
        return 0;
    switch ((enum state)p->state) {
    case START:
        p->state = c == '{' ? KEY_OR_END : DONE;
        return 0;
    case KEY_OR_END:
        p->word_n = 0;
        p->state = c == '"' ? KEY : DONE;
        p->done = c == '}';
        return 0;
    case COLON:
        p->state = c == ':' ? VALUE : DONE;
        return 0;
    case VALUE:
        return begin_value(p, c, err);
    case AFTER:
        p->state = c == ',' ? KEY_OR_END : DONE;
        p->done = c == '}';
        return 0;
    default:
        return 0;
    }
}

static int take_key(struct json_peek *p, char c, struct error *err)
{
    if (c == '"')
        return end_key(p, err);
    if (c == '\\')
        return error_set(err, STATUS_INVALID, "a member's name holds an escape; write names in plain characters");
    if (p->word_n < sizeof p->word)
        p->word[p->word_n] = c;
    p->word_n += p->word_n <= sizeof p->word;
    return 0;
}

static int take_word(struct json_peek *p, char c, struct error *err)
{
    if (c != ',' && c != '}' && !is_space(c)) {
        if (p->word_n < sizeof p->word)
            p->word[p->word_n] = c;
        p->word_n += p->word_n <= sizeof p->word;
        return 0;
    }
    int rc = end_word(p, err);
    return rc ? rc : take_frame(p, c, err);
}

#define EACH(byte)   (0x0101010101010101u * (uint64_t)(byte))
#define HAS_ZERO(x)  (((x)-EACH(1)) & ~(x)&EACH(0x80))
#define HAS(x, byte) HAS_ZERO((x) ^ EACH(byte))

/* Bytes in front of the first quote or backslash, eight at a time (Bit Twiddling Hacks, "determine if a word has a zero byte"): prompts are
 * long strings. */
static size_t plain_bytes(const char *data, size_t n)
{
    size_t i = 0;
    for (uint64_t w; i + sizeof w <= n; i += sizeof w) {
        memcpy(&w, data + i, sizeof w);
        if (HAS(w, '"') | HAS(w, '\\'))
            break;
    }
    while (i < n && data[i] != '"' && data[i] != '\\')
        i++;
    return i;
}

int json_peek_feed(struct json_peek *p, const char *data, size_t n, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0 && p->state != DONE; i++, p->at++) {
        switch ((enum state)p->state) {
        case KEY:
            rc = take_key(p, data[i], err);
            break;
        case IN_TEXT:
            rc = take_text(p, data[i], err);
            break;
        case IN_WORD:
            rc = take_word(p, data[i], err);
            break;
        case IN_SKIP:
            if (p->in_string && !p->escaped) {
                size_t plain = plain_bytes(data + i, n - i);
                i += plain;
                p->at += plain;
                if (i == n)
                    return 0;
            }
            take_skip(p, data[i]);
            break;
        default:
            rc = take_frame(p, data[i], err);
        }
    }
    return rc;
}
