/* grammar.c: grammars and their states: what text/grammar.h promises, over the automaton (grammar_finish.c), what remembers its configs
 * (grammar_run.c) and masks (grammar_mask.c).
 *
 * A compiled grammar never changes; what it remembers does, under its lock, which is held for one question at a time. A state is the number
 * of a config and the bitmap it showed last, so that a question asked twice costs nothing and copies are cheap. When too much is remembered,
 * everything but the configs of living states is dropped; that happens only at the beginning of a question. */
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

#define SOURCE_BYTES_MAX ((size_t)1 << 20)
#define STACKS_MAX       1024u

bool grammar_kind_of(struct str name, enum grammar_kind *out)
{
    static const char *const names[] = {
        [GRAMMAR_JSON_SCHEMA] = "json_schema", [GRAMMAR_JSON] = "json", [GRAMMAR_REGEX] = "regex", [GRAMMAR_GBNF] = "gbnf",
        [GRAMMAR_CHOICE] = "choice",
    };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (str_eqz(name, names[i])) {
            *out = (enum grammar_kind)i;
            return true;
        }
    return false;
}

/* ---- compiling ---- */

static uint32_t draw(struct gbuild *b, enum grammar_kind kind, struct str source)
{
    switch (kind) {
    case GRAMMAR_JSON_SCHEMA:
        return grammar__schema(b, source);
    case GRAMMAR_JSON:
        return grammar__json(b, source);
    case GRAMMAR_REGEX:
        return grammar__regex(b, source, false, NULL);
    case GRAMMAR_GBNF:
        return grammar__gbnf(b, source);
    case GRAMMAR_CHOICE:
        return grammar__choice(b, source);
    }
    gb_fail(b, STATUS_INVALID, "unknown kind of grammar: %d", (int)kind);
    return 0;
}

static int start(struct grammar *g, const struct grammar_limits *l, struct error *err)
{
    uint32_t stacks = l && l->max_stacks ? MIN_OF(l->max_stacks, 1u << 16) : STACKS_MAX;
    g->path = calloc((size_t)g->vocab->max_bytes + 1, sizeof *g->path);
    g->ids = calloc((size_t)g->vocab->n_tok + 1, sizeof *g->ids);
    if (!g->path || !g->ids || grun_init(&g->run, &g->a, stacks, MAX_OF(g->vocab->max_bytes, 1u)) < 0)
        return error_set(err, STATUS_NOMEM, "no memory for the grammar");
    g->start = grun_start(&g->run);
    if (g->run.nomem)
        return error_set(err, STATUS_NOMEM, "no memory for the grammar");
    if (g->start == CFG_DEAD)
        return error_set(err, STATUS_EXHAUSTED, "the grammar is too ambiguous: it begins in more than %u ways at once", stacks);
    if (!grammar__mask_of(g, g->start)) /* here rather than in the first step */
        return g->run.nomem ? error_set(err, STATUS_NOMEM, "no memory for the grammar")
                            : error_set(err, STATUS_EXHAUSTED,
                                        "the grammar is too ambiguous: it takes too long to see what may come first");
    g->shortest_tok = grammar__shortest(g);
    if (g->shortest_tok >= G_FAR && g->run.overflowed)
        return error_set(err, STATUS_EXHAUSTED, "the grammar is too ambiguous: it goes on in more than %u ways at once",
                         stacks);
    if (g->shortest_tok >= G_FAR)
        return error_set(err, STATUS_INVALID, "this model's vocabulary has no tokens for any text that matches");
    g->run.nomem = false;
    return 0;
}

static int compile(struct grammar *g, enum grammar_kind kind, struct str source, const struct grammar_limits *l,
                   struct error *err)
{
    struct gbuild b;
    gb_init(&b, l, err);
    uint32_t root = draw(&b, kind, source);
    int rc = automaton_finish(&b, root, &g->a);
    gb_release(&b);
    return rc < 0 ? rc : start(g, l, err);
}

int grammar_compile(struct grammar_vocab *v, enum grammar_kind kind, struct str source, const struct grammar_limits *limits,
                    struct grammar **out, struct error *err)
{
    size_t most = limits && limits->max_source_bytes ? limits->max_source_bytes : SOURCE_BYTES_MAX;
    struct grammar *g;
    if (source.n > most)
        return error_set(err, STATUS_EXHAUSTED, "the grammar has %zu bytes; at most %zu are accepted", source.n, most);
    g = calloc(1, sizeof *g);
    if (!g)
        return error_set(err, STATUS_NOMEM, "no memory for the grammar");
    g->vocab = v;
    atomic_store_explicit(&g->refs, 1, memory_order_relaxed);
    os_mutex_init(&g->lock, RANK_LEAF);
    list_init(&g->states);
    int rc = compile(g, kind, source, limits, err);
    if (rc < 0) {
        grammar_unref(g);
        return rc;
    }
    *out = g;
    return 0;
}

struct grammar *grammar_ref(struct grammar *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
    return g;
}

void grammar_unref(struct grammar *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1)
        return;
    ASSERT(list_empty(&g->states));
    grun_release(&g->run);
    automaton_release(&g->a);
    os_mutex_release(&g->lock);
    free(g->path);
    free(g->ids);
    free(g);
}

size_t grammar_bytes(struct grammar *g)
{
    const struct automaton *a = &g->a;
    size_t fixed = sizeof *g + a->n_nodes * (sizeof *a->nodes + sizeof *a->dist) + a->n_edges * sizeof *a->edges +
                   a->n_rules * sizeof *a->rules + ((size_t)g->vocab->n_tok + g->vocab->max_bytes) * sizeof(uint32_t);
    os_mutex_lock(&g->lock);
    size_t more = grun_bytes(&g->run);
    os_mutex_unlock(&g->lock);
    return fixed + more;
}

uint32_t grammar_shortest_tok(const struct grammar *g)
{
    return g->shortest_tok;
}

/* ---- states ---- */

static int new_state(struct grammar *g, struct grammar_state **out, struct error *err)
{
    struct grammar_state *s = calloc(1, sizeof *s);
    if (s)
        s->mask = calloc((size_t)g->vocab->n_words + 1, sizeof *s->mask);
    if (!s || !s->mask) {
        free(s);
        return error_set(err, STATUS_NOMEM, "no memory for a grammar's state");
    }
    s->g = grammar_ref(g);
    s->shown = CFG_UNKNOWN;
    *out = s;
    return 0;
}

int grammar_state_create(struct grammar *g, struct grammar_state **out, struct error *err)
{
    int rc = new_state(g, out, err);
    if (rc < 0)
        return rc;
    os_mutex_lock(&g->lock);
    (*out)->config = g->start;
    list_push_back(&g->states, &(*out)->link);
    g->n_states++;
    os_mutex_unlock(&g->lock);
    return 0;
}

int grammar_state_copy(const struct grammar_state *s, struct grammar_state **out, struct error *err)
{
    int rc = new_state(s->g, out, err);
    if (rc < 0)
        return rc;
    os_mutex_lock(&s->g->lock);
    (*out)->config = s->config;
    (*out)->ended = s->ended;
    list_push_back(&s->g->states, &(*out)->link);
    s->g->n_states++;
    os_mutex_unlock(&s->g->lock);
    return 0;
}

void grammar_state_destroy(struct grammar_state *s)
{
    if (!s)
        return;
    os_mutex_lock(&s->g->lock);
    list_remove(&s->link);
    s->g->n_states--;
    os_mutex_unlock(&s->g->lock);
    grammar_unref(s->g);
    free(s->mask);
    free(s);
}

/* Drop what is remembered when it is too much. Failing that, it stays: the next question tries again. */
static void collect(struct grammar *g)
{
    uint32_t **v = malloc((g->n_states + 1) * sizeof *v);
    size_t n = 0;
    if (!v)
        return;
    v[n++] = &g->start;
    LIST_EACH(l, &g->states)
    {
        struct grammar_state *s = LIST_ENTRY(l, struct grammar_state, link);
        s->shown = CFG_UNKNOWN;
        v[n++] = &s->config;
    }
    if (!grun_collect(&g->run, v, n))
        g->run.nomem = false;
    free(v);
}

static void begin(struct grammar_state *s)
{
    os_mutex_lock(&s->g->lock);
    s->g->run.nomem = false;
    if (grun_full(&s->g->run))
        collect(s->g);
}

static bool is_end(const struct grammar_vocab *v, int32_t id)
{
    return v->ends[id / 64] >> (id % 64) & 1;
}

static bool may_end(const struct grammar_state *s)
{
    return s->ended || s->g->run.configs[s->config].can_end;
}

/* The config behind the token, CFG_DEAD when it is not allowed. Lock held. */
static uint32_t follow(struct grammar_state *s, int32_t id)
{
    struct str bytes = tokenizer_bytes(s->g->vocab->tokenizer, id, false);
    uint32_t at = bytes.n && bytes.n <= s->g->vocab->max_bytes && !s->ended ? s->config : CFG_DEAD;
    for (size_t i = 0; i < bytes.n && at != CFG_DEAD; i++)
        at = grun_step(&s->g->run, at, (uint8_t)bytes.p[i]);
    return at;
}

bool grammar_allows(struct grammar_state *s, int32_t id)
{
    const struct grammar_vocab *v = s->g->vocab;
    if (id < 0 || (uint32_t)id >= v->n_tok)
        return false;
    begin(s);
    bool ok = is_end(v, id) ? may_end(s) : follow(s, id) != CFG_DEAD;
    os_mutex_unlock(&s->g->lock);
    return ok;
}

bool grammar_accept(struct grammar_state *s, int32_t id)
{
    const struct grammar_vocab *v = s->g->vocab;
    bool ok;
    if (id < 0 || (uint32_t)id >= v->n_tok)
        return false;
    begin(s);
    if (is_end(v, id)) {
        ok = may_end(s);
        s->ended |= ok;
    } else {
        uint32_t next = follow(s, id);
        ok = next != CFG_DEAD;
        s->config = ok ? next : s->config;
    }
    os_mutex_unlock(&s->g->lock);
    return ok;
}

static void show(struct grammar_state *s, const struct gmask *m)
{
    const struct grammar_vocab *v = s->g->vocab;
    size_t bytes = v->n_words * sizeof *s->mask;
    const uint64_t *base = m && m->bits ? m->bits : m && m->plain ? v->plain[m->plain] : NULL;
    if (base)
        memcpy(s->mask, base, bytes);
    else
        memset(s->mask, 0, bytes);
    for (uint32_t i = 0; m && m->ids && i < m->n; i++)
        s->mask[m->ids[i] / 64] |= UINT64_C(1) << (m->ids[i] % 64);
    for (size_t i = 0; i < v->n_words && may_end(s); i++)
        s->mask[i] |= v->ends[i];
}

const uint64_t *grammar_mask(struct grammar_state *s)
{
    const struct gmask *m = NULL;
    begin(s);
    uint32_t want = s->ended ? CFG_DEAD : s->config;
    bool ok = s->shown == want;
    if (!ok) {
        m = s->ended ? NULL : grammar__mask_of(s->g, s->config);
        ok = s->ended || (m && (m->n || m->plain || may_end(s)));
        if (ok)
            show(s, m);
        s->shown = ok ? want : CFG_UNKNOWN;
    }
    os_mutex_unlock(&s->g->lock);
    return ok ? s->mask : NULL;
}

/* ---- ends ---- */

bool grammar_can_end(const struct grammar_state *s)
{
    os_mutex_lock(&s->g->lock);
    bool can = may_end(s);
    os_mutex_unlock(&s->g->lock);
    return can;
}

bool grammar_must_end(const struct grammar_state *s)
{
    os_mutex_lock(&s->g->lock);
    bool must = may_end(s) && (s->ended || s->g->run.configs[s->config].n == 0);
    os_mutex_unlock(&s->g->lock);
    return must;
}
