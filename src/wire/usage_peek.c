/* usage_peek.c: strings, depth, and the members of one object; everything else passes. */
#include "wire/usage_peek.h"

#include <string.h>

#include "base/size.h"

#define DEPTH_MAX 2 /* of the object that `usage` is a member of */

void usage_peek_init(struct usage_peek *p, bool events)
{
    *p = (struct usage_peek){.events = events};
}

static bool key_is(const struct usage_peek *p, const char *name)
{
    return p->key_n == strlen(name) && memcmp(p->key, name, p->key_n) == 0;
}

static void end_number(struct usage_peek *p)
{
    static const char *const parts[] = {"prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"};
    bool fits = p->in_number && !p->bad && p->number <= USAGE_TOKENS_MAX;
    p->in_number = false;
    if (!fits || p->inside == 0 || p->depth != p->inside)
        return;
    if (key_is(p, "total_tokens")) {
        p->total = p->number;
        p->has_total = true;
    }
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (key_is(p, parts[i])) {
            p->parts += p->number;
            p->has_parts = true;
        }
}

static void open(struct usage_peek *p, bool object)
{
    bool usage = object && p->inside == 0 && p->depth >= 1 && p->depth <= DEPTH_MAX && key_is(p, "usage");
    p->depth++;
    p->key_n = 0;
    if (!usage)
        return;
    p->inside = p->depth;
    p->total = p->parts = 0;
    p->has_total = p->has_parts = false;
}

static void close(struct usage_peek *p)
{
    if (p->inside && p->depth == p->inside) {
        uint64_t tokens = p->has_total ? p->total : p->parts;
        p->inside = 0;
        if ((p->has_total || p->has_parts) && tokens <= USAGE_TOKENS_MAX) {
            p->tokens = tokens;
            p->known = true;
        }
    }
    p->depth -= p->depth > 0;
    p->key_n = 0;
}

static void take_string(struct usage_peek *p, char c)
{
    if (p->escaped) {
        p->escaped = false;
        p->word_n = sizeof p->word; /* no name that is looked for has an escape */
    } else if (c == '\\') {
        p->escaped = true;
    } else if (c == '"') {
        p->in_string = false;
    } else if (p->word_n < sizeof p->word) {
        p->word[p->word_n++] = c;
    }
}

static void take_digit(struct usage_peek *p, char c)
{
    if (!p->in_number) {
        p->in_number = true;
        p->bad = false;
        p->number = 0;
    }
    if (p->number <= USAGE_TOKENS_MAX)
        p->number = p->number * 10 + (uint64_t)(c - '0');
}

static void take(struct usage_peek *p, char c)
{
    if (c >= '0' && c <= '9') {
        take_digit(p, c);
        return;
    }
    if (p->in_number && (c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+'))
        p->bad = true; /* no count */
    else
        end_number(p);
    switch (c) {
    case '"':
        p->in_string = true;
        p->word_n = 0;
        break;
    case ':':
        p->key_n = p->word_n < sizeof p->word ? p->word_n : 0;
        memcpy(p->key, p->word, p->key_n);
        break;
    case ',':
        p->key_n = 0;
        break;
    case '{':
    case '[':
        open(p, c == '{');
        break;
    case '}':
    case ']':
        close(p);
        break;
    case '-':
        p->bad = p->in_number = true; /* below 0: none */
        break;
    default:
        break;
    }
}

void usage_peek_feed(struct usage_peek *p, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = data[i];
        if (p->events && c == '\n') { /* a line is a document of its own: what was open in it is not */
            end_number(p);
            p->in_string = p->escaped = false;
            p->depth = p->inside = 0;
            p->key_n = p->word_n = 0;
        } else if (p->in_string) {
            take_string(p, c);
        } else {
            take(p, c);
        }
    }
}
