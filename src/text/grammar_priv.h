/* grammar_priv.h: for text/grammar*.c only: the automaton that all kinds compile to, its builder, and what runs it.
 *
 * The automaton is a recursive transition network over bytes: nodes with edges. A BYTE edge consumes one byte of a range, EPS none, CALL
 * walks through another rule and comes back to `to`, REPEAT does so between min and max times. A rule is a start node and an end node; only
 * the end node is `accept`. A stack is a node and a frame: where to go on when the node's rule ends.
 *
 *     frame = { parent frame, edge that was called, how often (REPEAT) }      hash-consed: equal stacks are one number
 *     config = sorted set of (node, frame) that stand before a byte, and whether the text may end here; hash-consed too
 *
 * So the non-deterministic automaton is made deterministic as far as texts go there, one transition at a time. */
#ifndef INFERD_TEXT_GRAMMAR_PRIV_H
#define INFERD_TEXT_GRAMMAR_PRIV_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/list.h"
#include "os/thread.h"
#include "text/grammar.h"

#define G_NONE      UINT32_MAX
#define G_UNBOUNDED UINT32_MAX
#define G_FAR       (1u << 30) /* distances saturate here: cannot end */
#define G_CODE_MAX  0x10FFFFu

enum gedge_kind { G_BYTE, G_EPS, G_CALL, G_REPEAT };

struct gedge {
    uint8_t kind, lo, hi; /* BYTE: the range */
    bool tail;            /* CALL: nothing follows in the caller, so no frame is needed */
    uint32_t to;
    uint32_t rule;     /* CALL, REPEAT */
    uint32_t min, max; /* REPEAT; max is finite */
};

struct gnode {
    uint32_t first, n; /* its edges, BYTE ones first */
    uint32_t n_byte;
    bool accept;
};

struct grule {
    uint32_t start, end;
    struct str name; /* for messages; may be empty */
};

/* ---- building: grammar_build.c ---- */

struct gb_edge {
    struct gedge e;
    uint32_t next; /* of the same node, or G_NONE */
};

struct gb_node {
    uint32_t first, last;
};

/* Everything sticks: after a failure (rc < 0, err filled) all functions do nothing and give node or rule 0. */
struct gbuild {
    struct gb_node *nodes;
    struct gb_edge *edges;
    struct grule *rules;
    uint32_t n_nodes, n_edges, n_rules, cap_nodes, cap_edges, cap_rules;
    uint32_t max_nodes, max_rules, max_depth;
    uint64_t steps_left;
    bool json; /* code points are written as they stand inside a JSON string */
    int rc;
    struct error *err;
    struct arena arena; /* names, scratch of the compilers */
};

void gb_init(struct gbuild *b, const struct grammar_limits *l, struct error *err);
void gb_release(struct gbuild *b);
int gb_fail(struct gbuild *b, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);
bool gb_spend(struct gbuild *b, uint64_t steps); /* false: failed, now or before */
uint32_t gb_node(struct gbuild *b);
void gb_byte(struct gbuild *b, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to);
void gb_eps(struct gbuild *b, uint32_t from, uint32_t to);
void gb_call(struct gbuild *b, uint32_t from, uint32_t rule, uint32_t to);
/* rule between min and max (or G_UNBOUNDED) times. */
void gb_repeat(struct gbuild *b, uint32_t from, uint32_t rule, uint32_t min, uint32_t max, uint32_t to);
uint32_t gb_rule(struct gbuild *b, struct str name); /* fresh start and end */
uint32_t gb_rule_of(struct gbuild *b, struct str name, uint32_t start, uint32_t end);
/* Bytes one after another from `from`; returns the node behind them. */
uint32_t gb_bytes(struct gbuild *b, uint32_t from, struct str s);
uint32_t gb_z(struct gbuild *b, uint32_t from, const char *z);
/* Any of the n strings from `from` to `to`, as a trie; equal strings are allowed. Sorts `s`. */
void gb_any_of(struct gbuild *b, uint32_t from, struct str *s, size_t n, uint32_t to);

/* A set of code points: ranges in any order, made canonical by gset_normalise. */
struct grange {
    uint32_t lo, hi;
};
struct gset {
    struct grange *v;
    size_t n, cap;
};
void gset_add(struct gbuild *b, struct gset *s, uint32_t lo, uint32_t hi);
void gset_normalise(struct gset *s);                /* sorted, disjoint, no surrogates */
void gset_negate(struct gbuild *b, struct gset *s); /* normalises, too */
void gset_release(struct gset *s);
/* One code point of the (normalised) set, as UTF-8, or as in a JSON string when b->json. */
void gb_set(struct gbuild *b, uint32_t from, const struct gset *s, uint32_t to);
/* One given code point; returns the node behind. */
uint32_t gb_code(struct gbuild *b, uint32_t from, uint32_t code);

/* ---- expressions: grammar_expr.c ----
 * Alternatives, sequences, groups and quantifiers, drawn as they are read, with the open groups on a stack of its own. */

/* Least and most characters of a text; G_UNBOUNDED: no bound, or beyond it. */
struct gspan {
    uint32_t min, max;
};

struct gx_group {
    uint32_t start, end, at; /* at: behind what has been read of this alternative */
    uint32_t from, to;       /* the last item, not yet joined to `at` */
    bool pending;
    struct gspan item, joined, all; /* of the last item, of this alternative up to `at`, of all alternatives before */
};

struct gexpr {
    struct gbuild *b;
    struct gx_group *v; /* [max_depth + 1] */
    uint32_t depth;
};

bool gx_begin(struct gexpr *x, struct gbuild *b); /* opens the outermost group; false: failed */
/* An item of the sequence: draw it from *from to *to. It counts as one character. */
void gx_item(struct gexpr *x, uint32_t *from, uint32_t *to);
bool gx_has_item(const struct gexpr *x); /* a quantifier may follow */
void gx_quantify(struct gexpr *x, uint32_t min, uint32_t max);
void gx_alternative(struct gexpr *x);
bool gx_open(struct gexpr *x); /* false: nested too deeply, failed */
void gx_close(struct gexpr *x);
struct gspan gx_end(struct gexpr *x, uint32_t *from, uint32_t *to); /* closes the outermost group; its length */

/* Reading: bytes of a text with a position. */
struct gread {
    struct str s;
    size_t at;
};
static inline int gr_peek(const struct gread *r)
{
    return r->at < r->s.n ? (unsigned char)r->s.p[r->at] : -1;
}
static inline bool gr_take(struct gread *r, char c)
{
    bool is = gr_peek(r) == (unsigned char)c;
    r->at += is;
    return is;
}
/* One UTF-8 character; false at the end or where there is none. */
bool gr_code(struct gread *r, uint32_t *code);
/* Exactly n hexadecimal digits, 1 to 8. */
bool gr_hex(struct gread *r, unsigned n, uint32_t *code);
/* A decimal number, cut to at most 2^31; false: no digit. */
bool gr_number(struct gread *r, uint32_t *n);

/* ---- compilers: each returns the root rule, or fails in `b` ---- */

uint32_t grammar__gbnf(struct gbuild *b, struct str source);
/* `search`: as JSON Schema's pattern, found anywhere unless anchored; else the whole text must match. *span (may be NULL): its length. */
uint32_t grammar__regex(struct gbuild *b, struct str source, bool search, struct gspan *span);
uint32_t grammar__choice(struct gbuild *b, struct str source);
uint32_t grammar__schema(struct gbuild *b, struct str source);
uint32_t grammar__json(struct gbuild *b, struct str source);

/* ---- JSON's own parts: grammar_json.c ----
 * Rules made when first asked for, shared afterwards. White space is allowed behind { [ , : and before } ]: nothing, one space, or a line end
 * with at most 20 spaces or 8 tabs. */

enum gjson_part {
    GJSON_WS,
    GJSON_CHAR,    /* one character of a string, in any of its forms */
    GJSON_STRING,  /* with its quotes */
    GJSON_INTEGER, /* at most 18 digits */
    GJSON_NUMBER,
    GJSON_LITERAL_BOOL,
    GJSON_VALUE,
    GJSON_OBJECT,
    GJSON_ARRAY,
    GJSON_PARTS
};

struct gjson {
    struct gbuild *b;
    uint32_t rule[GJSON_PARTS];
    bool made[GJSON_PARTS];
};

uint32_t gjson_rule(struct gjson *j, enum gjson_part part);
/* The part from `from`; returns the node behind it. */
uint32_t gjson_put(struct gjson *j, uint32_t from, enum gjson_part part);
/* `s` as a JSON string with its quotes, in the shortest way of writing it. */
uint32_t gjson_put_str(struct gjson *j, uint32_t from, struct str s);
/* [ item, item … ] with min to max items, all of rule `item`. */
void gjson_list(struct gjson *j, uint32_t from, uint32_t item, uint32_t min, uint32_t max, uint32_t to);

/* ---- numbers between bounds: grammar_number.c ---- */

struct gdecimal {
    bool negative;
    unsigned n_whole, n_fraction; /* without leading and trailing zeros */
    char whole[40], fraction[40];
};

struct gbound {
    bool set, exclusive;
    struct gdecimal at;
};

/* JSON's number text; false: more than 18 digits before or behind the point. */
bool gdecimal_read(struct str text, struct gdecimal *d);
int gdecimal_compare(const struct gdecimal *a, const struct gdecimal *b); /* <0, 0, >0 */
bool gnumber_multiple_ok(uint32_t multiple);
/* Numbers without an exponent, with at most n_fraction digits behind the point; with n_fraction 0 also multiples. */
void gnumber_range(struct gbuild *b, uint32_t from, const struct gbound *lo, const struct gbound *hi, uint32_t n_fraction,
                   uint32_t multiple, uint32_t to);

/* grammar_format.c: NULL: unknown. */
const char *grammar__format_regex(struct str name);
const char *grammar__format_names(void);

/* ---- the finished automaton ---- */

struct automaton {
    struct gnode *nodes;
    struct gedge *edges;
    struct grule *rules;
    uint32_t *dist; /* [n_nodes] bytes from here to the end of the rule, at least */
    uint32_t n_nodes, n_edges, n_rules, root;
    uint16_t n_classes;
    uint8_t class_of[256]; /* bytes that no edge tells apart */
    uint8_t byte_of[256];  /* one byte of each class */
    bool counts;           /* has REPEAT edges */
};

/* grammar_finish.c: take the graph out of `b`: cut what can't end, refuse left recursion and an empty language. */
int automaton_finish(struct gbuild *b, uint32_t root, struct automaton *out) MUST_CHECK;
void automaton_release(struct automaton *a);

/* ---- running: grammar_run.c ---- */

#define CFG_DEAD        0u
#define CFG_UNKNOWN     UINT32_MAX
#define GRUN_OPENED_MAX 64

struct gframe {
    uint32_t parent, edge, count;
    uint32_t dist;  /* bytes to the end of the text once the frame's rule has ended */
    uint32_t canon; /* the frame that looks the same to every token: counts that no token can use up are made equal */
};

struct gtop {
    uint32_t node, frame;
};

struct gconfig {
    uint32_t first, n; /* of tops */
    uint32_t row;      /* of transitions, or G_NONE */
    uint32_t canon;    /* the config whose mask is this one's, or CFG_UNKNOWN */
    uint32_t mask;     /* or G_NONE */
    bool can_end;
};

/* Allowed tokens of a config: the vocabulary's plain tokens of up to `plain` characters, and the listed ones; or, where the list would be
 * longer than it, a bitmap. */
struct gmask {
    uint32_t *ids;
    uint64_t *bits; /* [n_words] or NULL */
    uint32_t n;
    uint32_t plain;
};

struct ghash {
    uint32_t *slots; /* index + 1, 0 empty */
    uint32_t mask, n;
};

struct gruntime {
    const struct automaton *a;
    uint32_t max_tops;
    uint32_t clamp; /* longest token in bytes */
    struct gframe *frames;
    struct gtop *tops;
    struct gconfig *configs;
    uint32_t *rows; /* [n_rows * n_classes] */
    struct gmask *masks;
    uint32_t n_frames, n_tops, n_configs, n_rows, n_masks;
    uint32_t kept_frames, kept_tops; /* were left by the last grun_collect */
    uint32_t cap_frames, cap_tops, cap_configs, cap_rows, cap_masks;
    size_t mask_bytes;
    struct ghash frame_hash, config_hash;
    bool nomem;
    uint64_t work; /* closure visits, ever */
    /* scratch of a closure */
    struct gtop *list;       /* [max_list] */
    uint32_t *seen, *stamps; /* [max_list * SEEN_PER_LIST] list index by hash, valid where the stamp is the current one */
    uint32_t n_list, max_list, stamp, n_opened;
    struct gopened {
        uint32_t edge, frame, count;
    } opened[GRUN_OPENED_MAX];
    bool overflow, can_end;
    bool overflowed; /* some text was given up as too ambiguous */
};

int grun_init(struct gruntime *r, const struct automaton *a, uint32_t max_tops, uint32_t clamp) MUST_CHECK;
void grun_release(struct gruntime *r);
void grun_free_masks(struct gruntime *r); /* configs still point to them */
uint32_t grun_start(struct gruntime *r);  /* the config before the first byte; CFG_DEAD and nomem */
/* The config behind a byte; CFG_DEAD: not allowed here, too many stacks, or nomem (then set, and not remembered). */
uint32_t grun_step(struct gruntime *r, uint32_t config, uint8_t byte);
uint32_t grun_canon(struct gruntime *r, uint32_t config);
uint32_t grun_dist(const struct gruntime *r, uint32_t config); /* bytes to the end, at least */
bool grun_full(const struct gruntime *r);
size_t grun_bytes(const struct gruntime *r);
/* Forget all but the configs in v[0..n), which are renumbered in place. False: out of memory, nothing changed. */
bool grun_collect(struct gruntime *r, uint32_t *const *v, size_t n);

/* ---- vocabulary: grammar_vocab.c ---- */

/* Tries in preorder: a node's subtree is the nodes up to `end`. */
struct trie_node {
    uint32_t end;
    int32_t token;  /* or TOKEN_NONE */
    uint16_t depth; /* of the root's children: 1 */
    uint8_t byte;
};

struct trie {
    struct trie_node *nodes;
    uint32_t n;
};

#define PLAIN_CHARS_MAX 32u

struct grammar_vocab {
    const struct tokenizer *tokenizer;
    uint32_t n_tok, n_words;
    uint32_t max_bytes;    /* of a token */
    struct trie all, rest; /* rest: without the plain ones */
    int32_t *same;         /* [n_tok] the next token of the same bytes, or TOKEN_NONE */
    uint64_t *plain[PLAIN_CHARS_MAX +
                    1]; /* [k]: tokens of 1 to k characters that stand for themselves in a JSON string; [0] unused */
    uint64_t *ends;     /* end-of-generation tokens */
};

/* ---- a grammar: grammar.c, grammar_mask.c ---- */

struct grammar {
    _Atomic uint32_t refs;
    struct grammar_vocab *vocab;
    struct automaton a;
    uint32_t shortest_tok, n_states;
    uint32_t start;       /* config before the first byte */
    struct os_mutex lock; /* RANK_LEAF: run, states */
    struct gruntime run;
    struct list states;
    uint32_t *path; /* [vocab->max_bytes + 1] configs along a trie walk */
    uint32_t *ids;  /* [n_tok] tokens found by a walk */
};

struct grammar_state {
    struct list link;
    struct grammar *g;
    uint32_t config;
    bool ended;     /* an end-of-generation token was accepted */
    uint32_t shown; /* the config that `mask` shows, or CFG_UNKNOWN */
    uint64_t *mask; /* [n_words] */
};

/* The mask of `config`, made if need be; NULL: out of memory or over the budget of work. Lock held. */
const struct gmask *grammar__mask_of(struct grammar *g, uint32_t config);
/* Lower bound of tokens to the end, exact when the search ends within its budget; G_FAR: the vocabulary has no tokens that get there. Lock held. */
uint32_t grammar__shortest(struct grammar *g);

#endif
