/* constraint.c: grammars of requests (text/grammar.h): compiled on the caller's thread, kept by content, up to a number and a size, least recently
 * used first out.
 *
 * The lock is held for looking up and putting in, not while compiling: two callers that bring the same new grammar at once both compile it, and
 * the second one's is dropped. Requests hold their own reference, so what leaves the cache lives as long as somebody generates with it. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/engine_priv.h"

int llm_constraints_open(struct engine_model *m, struct error *err)
{
    os_mutex_init(&m->constraints.lock, RANK_ENGINE);
    m->constraints.ready = true;
    return grammar_vocab_create(m->tokenizer, m->weights->h->n_vocab, &m->constraints.vocab, err);
}

static void forget(struct llm_constraint *c)
{
    grammar_unref(c->grammar);
    free(c->source);
    *c = (struct llm_constraint){0};
}

void llm_constraints_close(struct engine_model *m)
{
    struct llm_constraints *s = &m->constraints;
    for (size_t i = 0; i < COUNT_OF(s->v); i++)
        forget(&s->v[i]);
    grammar_vocab_destroy(s->vocab);
    if (s->ready)
        os_mutex_release(&s->lock);
}

static bool is_it(const struct llm_constraint *c, enum grammar_kind kind, struct str source, uint64_t hash)
{
    return c->grammar && c->kind == kind && c->hash == hash && str_eq((struct str){c->source, c->n}, source);
}

/* The place that was not used for longest; free ones count as never used, unless `taken` ones are asked for (then NULL: all are free). */
static struct llm_constraint *oldest(struct llm_constraints *s, bool taken)
{
    struct llm_constraint *at = NULL;
    for (size_t i = 0; i < COUNT_OF(s->v); i++)
        if ((s->v[i].grammar || !taken) && (!at || s->v[i].used < at->used))
            at = &s->v[i];
    return at;
}

static size_t all_bytes(const struct llm_constraints *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < COUNT_OF(s->v); i++)
        bytes += s->v[i].grammar ? s->v[i].n + grammar_bytes(s->v[i].grammar) : 0;
    return bytes;
}

/* Take out what is too much, but not `stay`, into `old`; returns how many. Grammars grow while they are used. Lock held. */
static size_t trim(struct llm_constraints *s, const struct llm_constraint *stay,
                   struct llm_constraint old[LLM_CONSTRAINTS_KEPT])
{
    size_t n = 0;
    for (struct llm_constraint *o; all_bytes(s) > LLM_CONSTRAINT_BYTES && (o = oldest(s, true)) != stay; n++) {
        old[n] = *o;
        *o = (struct llm_constraint){0};
    }
    return n;
}

static void forget_all(struct llm_constraint *old, size_t n)
{
    while (n > 0)
        forget(&old[--n]);
}

/* A reference to the kept one, or NULL. */
static struct grammar *look_up(struct llm_constraints *s, enum grammar_kind kind, struct str source, uint64_t hash)
{
    struct llm_constraint old[LLM_CONSTRAINTS_KEPT];
    struct grammar *g = NULL;
    size_t n = 0;
    os_mutex_lock(&s->lock);
    for (size_t i = 0; i < COUNT_OF(s->v) && !g; i++)
        if (is_it(&s->v[i], kind, source, hash)) {
            s->v[i].used = ++s->clock;
            g = grammar_ref(s->v[i].grammar);
            n = trim(s, &s->v[i], old);
        }
    os_mutex_unlock(&s->lock);
    forget_all(old, n);
    return g;
}

/* Keep `g`, in the place of the one that was not used for longest. Without memory for its text it is not kept. */
static void keep(struct llm_constraints *s, enum grammar_kind kind, struct str source, uint64_t hash, struct grammar *g)
{
    struct llm_constraint fresh = {.kind = kind, .hash = hash, .n = source.n, .source = malloc(source.n + 1)};
    struct llm_constraint old[LLM_CONSTRAINTS_KEPT], replaced;
    if (!fresh.source)
        return;
    if (source.n)
        memcpy(fresh.source, source.p, source.n);
    fresh.grammar = grammar_ref(g);
    os_mutex_lock(&s->lock);
    struct llm_constraint *at = oldest(s, false);
    for (size_t i = 0; i < COUNT_OF(s->v); i++)
        if (is_it(&s->v[i], kind, source, hash)) /* another caller was faster */
            at = &s->v[i];
    replaced = *at;
    *at = fresh;
    at->used = ++s->clock;
    size_t n = trim(s, at, old);
    os_mutex_unlock(&s->lock);
    forget(&replaced);
    forget_all(old, n);
}

static int compile(struct engine_model *m, enum grammar_kind kind, struct str source, struct grammar **out, struct error *err)
{
    struct llm_constraints *s = &m->constraints;
    uint64_t hash = hash_bytes(source.p, source.n, m->hash_seed);
    *out = look_up(s, kind, source, hash);
    if (*out)
        return 0;
    int rc = grammar_compile(s->vocab, kind, source, NULL, out, err);
    if (rc == STATUS_EXHAUSTED && err)
        err->code = STATUS_INVALID; /* a limit on the grammar: trying again later would not help */
    if (rc < 0)
        return rc == STATUS_EXHAUSTED ? STATUS_INVALID : rc;
    keep(s, kind, source, hash, *out);
    return 0;
}

int llm_constraint_get(struct engine_model *m, const struct token_params *p, struct grammar **out, struct error *err)
{
    enum grammar_kind kind;
    *out = NULL;
    if (!p->grammar_kind.n)
        return 0;
    if (!grammar_kind_of(p->grammar_kind, &kind))
        return error_set(err, STATUS_INVALID,
                         "the kind of the grammar is '%.*s'; accepted: json_schema, json, regex, gbnf, choice",
                         (int)MIN_OF(p->grammar_kind.n, (size_t)40), p->grammar_kind.p);
    if (p->ignore_eos)
        return error_set(err, STATUS_INVALID,
                         "ignore_eos can't be combined with constrained output, which says itself where the text ends");
    return compile(m, kind, p->grammar, out, err);
}

int llm_constraint_fits(const struct grammar *g, uint32_t max_tok, struct error *err)
{
    uint32_t least = g ? grammar_shortest_tok(g) : 0;
    if (least <= max_tok)
        return 0;
    return error_set(
        err, STATUS_INVALID,
        "max_tokens: at most %u tokens can be generated, but the shortest output that is valid for the constraint takes %u",
        max_tok, least);
}

bool llm_constraint_allows(void *ctx, int32_t id)
{
    return grammar_allows(ctx, id);
}

const uint64_t *llm_constraint_mask(void *ctx)
{
    return grammar_mask(ctx);
}
