/* grammar_rig.h: a vocabulary made by hand, and walks through a grammar's masks. For tests, fuzz targets and bench/grammar.c.
 *
 * Ids 0 to 255 are the bytes, 256 ends a generation, 257 is another control token; then come pieces that cross the borders a grammar cares
 * about: quotes with commas, braces, escapes, half words, whole characters of two to four bytes, duplicates of other tokens' bytes. */
#ifndef INFERD_TEST_GRAMMAR_RIG_H
#define INFERD_TEST_GRAMMAR_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rand.h"
#include "base/size.h"
#include "text/grammar_priv.h"

#define RIG_EOS     256
#define RIG_CONTROL 257
#define RIG_FIRST   258

static const char *const rig_pieces[] = {
    "{\"",
    "\":",
    "\": ",
    "\",",
    "\", \"",
    "\"}",
    "\"},",
    "}}",
    "]}",
    "[\"",
    "\"]",
    "[{",
    "}]",
    ", ",
    ",\n",
    "\n  ",
    "\n    ",
    "{\n",
    " \"",
    "\" ",
    "true",
    "false",
    "null",
    "tr",
    "ue",
    "ul",
    "-1",
    "0.",
    ".5",
    "e+",
    "10",
    "12",
    "123",
    "2024",
    "00",
    "99",
    "00:",
    "-0",
    "T1",
    "Z\"",
    "\\n",
    "\\\"",
    "\\u",
    "\\u00",
    "\\ud83d",
    "\\ude00",
    "\\\\",
    "the",
    " the",
    "name",
    "\"name",
    "\"name\":",
    "id",
    "age",
    "abc",
    "ab",
    "bc",
    "aaa",
    "aaaa",
    "aaaaaaaa",
    "xyz",
    "foo",
    "bar",
    " foo",
    "city",
    "type",
    "\"type\": \"",
    "value",
    "items",
    "a@",
    "b.c",
    ".com",
    "::",
    "1.1",
    "\xc3\xa9",
    "\xc3\xa9t",
    "\xe2\x82\xac",
    "\xe6\x97\xa5\xe6\x9c\xac",
    "\xf0\x9f\x98\x80",
    "caf\xc3\xa9",
    " \xe6\x97\xa5",
    "    ",
    "        ",
    "\t",
    "\r\n",
    "a",
    "z",
    "9",
    "red",
    "green",
    "blue",
    "r",
    "ed\"",
    "Hello",
    "World",
    "!",
    "?",
    "($",
    "))",
    "||",
    "//",
    "http",
    "https://",
    "www",
    "uuid",
    "-4",
    "a-f",
    "ffff",
};

/* n_more: random words behind the pieces. SPM's way of storing: bytes as <0xNN>, spaces as U+2581. */
static inline struct tokenizer *rig_tokenizer(uint32_t n_more)
{
    size_t n_pieces = COUNT_OF(rig_pieces), n = RIG_FIRST + n_pieces + n_more;
    struct arena a;
    struct rand r;
    arena_init(&a, 1 << 16, 0);
    rand_init(&r, 7);
    struct str *tokens = arena_array(&a, n, sizeof *tokens);
    int32_t *types = arena_array(&a, n, sizeof *types);
    float *scores = arena_array(&a, n, sizeof *scores);
    ASSERT(tokens && types && scores);
    for (size_t i = 0; i < n; i++) {
        char text[160];
        size_t at = 0;
        types[i] = i < 256 ? TOKEN_BYTE : i < RIG_FIRST ? TOKEN_CONTROL : TOKEN_NORMAL;
        scores[i] = -(float)i;
        if (i < 256) {
            at = (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        } else if (i < RIG_FIRST) {
            at = (size_t)snprintf(text, sizeof text, "%s", i == RIG_EOS ? "</s>" : "<|im_start|>");
        } else if (i < RIG_FIRST + n_pieces) {
            for (const char *p = rig_pieces[i - RIG_FIRST]; *p; p++)
                at += (size_t)snprintf(text + at, sizeof text - at, *p == ' ' ? "\xe2\x96\x81" : "%c", *p);
        } else { /* words of two to ten letters, some with a space before, some with a mark behind */
            if (rand_below(&r, 2))
                at = (size_t)snprintf(text, sizeof text, "\xe2\x96\x81");
            for (uint64_t k = 2 + rand_below(&r, 9); k > 0; k--)
                text[at++] = "etaoinshrdlucmfwypvbgkjqxzETAOINS0123456789_"[rand_below(&r, rand_below(&r, 8) ? 24 : 44)];
            if (rand_below(&r, 12) == 0)
                text[at++] = "\",.:;)]}{([\\/-+*="[rand_below(&r, 18)];
        }
        tokens[i].p = arena_strdup(&a, (struct str){text, at});
        tokens[i].n = at;
        ASSERT(tokens[i].p);
    }
    struct tokenizer_spec spec = {.model = TOKENIZER_SPM,
                                  .tokens = tokens,
                                  .scores = scores,
                                  .types = types,
                                  .n_tokens = n,
                                  .bos = TOKEN_NONE,
                                  .eos = RIG_EOS,
                                  .eot = TOKEN_NONE,
                                  .eom = TOKEN_NONE,
                                  .unk = TOKEN_NONE,
                                  .sep = TOKEN_NONE,
                                  .pad = TOKEN_NONE,
                                  .cls = TOKEN_NONE,
                                  .mask = TOKEN_NONE};
    struct tokenizer *t = NULL;
    struct error err = {0};
    if (tokenizer_create(&spec, &t, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    arena_release(&a);
    return t;
}

/* Does the whole text match, byte by byte? Every state on the way has to agree with its mask. */
static inline bool rig_accepts(struct grammar *g, struct str text)
{
    struct grammar_state *s = NULL;
    bool ok = grammar_state_create(g, &s, NULL) == 0;
    ASSERT(ok);
    for (size_t i = 0; i < text.n && ok; i++) {
        int32_t id = (unsigned char)text.p[i];
        ok = grammar_allows(s, id);
        ASSERT(grammar_accept(s, id) == ok);
    }
    ok = ok && grammar_can_end(s);
    ASSERT(grammar_accept(s, RIG_EOS) == ok || !ok);
    grammar_state_destroy(s);
    return ok;
}

/* The mask holds exactly what is allowed. Returns how many tokens that is; the end is not counted. */
static inline uint32_t rig_check_mask(struct grammar_state *s)
{
    const uint64_t *m = grammar_mask(s);
    uint32_t n = 0;
    ASSERT(m);
    for (uint32_t id = 0; id < s->g->vocab->n_tok; id++) {
        bool in = m[id / 64] >> (id % 64) & 1;
        ASSERT(in == grammar_allows(s, (int32_t)id));
        ASSERT(!in || id != RIG_CONTROL);
        n += in && id != RIG_EOS;
    }
    ASSERT((m[RIG_EOS / 64] >> (RIG_EOS % 64) & 1) == grammar_can_end(s));
    return n;
}

static inline int32_t rig_pick(const struct grammar_state *s, const uint64_t *m, uint64_t k)
{
    for (uint32_t id = 0; id < s->g->vocab->n_tok; id++)
        if (id != RIG_EOS && m[id / 64] >> (id % 64) & 1 && k-- == 0)
            return (int32_t)id;
    return TOKEN_NONE;
}

/* The byte that leads to the end by the shortest way. */
static inline int32_t rig_nearest(struct grammar_state *s)
{
    uint32_t least = UINT32_MAX;
    int32_t best = TOKEN_NONE;
    for (int32_t id = 0; id < 256; id++) {
        struct grammar_state *t = NULL;
        if (!grammar_allows(s, id) || grammar_state_copy(s, &t, NULL) < 0)
            continue;
        ASSERT(grammar_accept(t, id));
        uint32_t d = grun_dist(&t->g->run, t->config);
        if (d < least)
            least = d, best = id;
        grammar_state_destroy(t);
    }
    return best;
}

/* A random way through the masks to an end, at random where there is a choice; after `free_tok` tokens the shortest way out. `check`: compare each
 * mask with grammar_allows. False: it did not get to an end within a million tokens. */
static inline bool rig_walk(struct grammar *g, struct rand *r, uint32_t free_tok, bool check, struct buf *out)
{
    struct grammar_state *s = NULL;
    bool done = false;
    ASSERT(grammar_state_create(g, &s, NULL) == 0);
    for (uint32_t i = 0; i < 1000000 && !done; i++) {
        bool hurry = i >= free_tok;
        uint32_t n = 0;
        int32_t id;
        if (hurry && !grammar_can_end(s)) {
            id = rig_nearest(s);
        } else {
            const uint64_t *m = grammar_mask(s);
            ASSERT(m);
            if (check) {
                n = rig_check_mask(s);
            } else {
                for (uint32_t w = 0; w < g->vocab->n_words; w++)
                    n += (uint32_t)__builtin_popcountll(m[w]);
                n -= grammar_can_end(s);
            }
            bool end = grammar_can_end(s) && (n == 0 || hurry || rand_below(r, 4) == 0);
            ASSERT(n > 0 || end);
            ASSERT(grammar_must_end(s) == (n == 0));
            id = end ? RIG_EOS : rig_pick(s, m, rand_below(r, n));
        }
        ASSERT(id != TOKEN_NONE && grammar_accept(s, id));
        done = id == RIG_EOS;
        buf_append_str(out, tokenizer_bytes(g->vocab->tokenizer, id, false));
    }
    grammar_state_destroy(s);
    return done;
}

#endif
