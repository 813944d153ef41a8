/* json_peek.h: what a router needs to know of a JSON body, read as the bytes come: no tree, no copy of the body, no re-encoding.
 *
 * Looks at the members of the outermost object only: `model`, `stream`, `max_tokens` (or `max_completion_tokens`), `user`, and where the
 * value of `messages`, `prompt` or `input` lies, whose raw bytes tell prompts with a common beginning. Everything else is skipped with a depth
 * count. It is not a validator: the one who serves the request is. What it does refuse is what two readers could read differently: a routing
 * member that is there twice, or of another type than it must be, or a name that is written with escapes.
 *
 * Works on any cut of the input. No allocation. Constant time a byte. */
#ifndef INFERD_WIRE_JSON_PEEK_H
#define INFERD_WIRE_JSON_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define JSON_PEEK_TEXT 256 /* bytes of a model's or a user's name; a longer one is refused */

enum json_peek_member {
    PEEK_OTHER,
    PEEK_MODEL,
    PEEK_STREAM,
    PEEK_MAX_TOKENS,
    PEEK_MAX_COMPLETION,
    PEEK_USER,
    PEEK_PROMPT,
    PEEK_MEMBERS
};

struct json_peek {
    /* results; a string is NUL-terminated and unescaped but for \u, which no model's name needs and which is refused */
    char model[JSON_PEEK_TEXT + 1], user[JSON_PEEK_TEXT + 1];
    size_t model_n, user_n;
    bool has_model, has_stream, stream;
    uint64_t max_tokens;          /* 0: not given */
    size_t model_at, model_raw_n; /* where the model's value lies in the body, quotes included */
    size_t prompt_at, prompt_n;   /* offset of the raw value in the body; prompt_n is 0 until it has ended */
    bool done;                    /* the outermost object is closed */
    /* private */
    uint8_t state;
    uint8_t member; /* enum json_peek_member of the value being read */
    uint32_t seen;  /* bits of members */
    uint32_t depth; /* inside a skipped value */
    bool in_string, escaped;
    size_t at;     /* bytes taken */
    char word[24]; /* key, number or literal */
    size_t word_n;
};

void json_peek_init(struct json_peek *p);
/* Take the next bytes. INVALID: names the member. After an error no more calls. A body that is no object at all yields nothing and no
 * error. */
int json_peek_feed(struct json_peek *p, const char *data, size_t n, struct error *err) MUST_CHECK;

#endif
