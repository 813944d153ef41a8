/* usage_peek.h: how many tokens an answer says that it took, read as its bytes pass: the object `usage` at the top of a JSON document or one level
 * below (OpenAI's chat, completions, embeddings; responses' last event), in a document or in server-sent events, whose lines are documents of their
 * own. total_tokens, or the sum of prompt_tokens and completion_tokens, input_tokens and output_tokens. The last one counts; `"usage":null` is
 * none. Knows strings from structure, so that a text that talks of usage is none. It is not a validator. Works on any cut of the input. Pure. */
#ifndef INFERD_WIRE_USAGE_PEEK_H
#define INFERD_WIRE_USAGE_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USAGE_TOKENS_MAX 1000000000u /* a larger number is none */

struct usage_peek {
    uint64_t tokens; /* once `known` */
    bool known;
    /* private */
    bool events, in_string, escaped, in_number, bad;
    uint32_t depth, inside; /* inside: the depth of the usage object's members, 0: not in one */
    uint64_t number, total, parts;
    bool has_total, has_parts;
    char word[24]; /* the latest string, as far as it fits; then the key */
    uint8_t word_n, key_n;
    char key[24];
};

/* `events`: server-sent events; else one document. */
void usage_peek_init(struct usage_peek *p, bool events);
void usage_peek_feed(struct usage_peek *p, const char *data, size_t n);

#endif
