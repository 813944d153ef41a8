/* grammar_mask.c: which tokens may come next: the vocabulary's trie walked along the automaton, once per config. What is kept is a list of
 * ids, with "and all plain ones of up to k characters", so that a mask of a free string costs some hundred ids and not a bitmap. */
#include <stdlib.h>

#include "base/size.h"
#include "text/grammar_priv.h"

#define MASK_BYTES_MAX     ((size_t)4 << 20) /* of all masks of a grammar */
#define WALK_WORK_MAX      1000000u          /* closure visits of one mask: some 15 ms */
#define WALK_CONFIGS_MAX   (1u << 17)
#define SEARCH_NODES_MAX   1000000u /* trie nodes looked at for the shortest text: some 5 ms */
#define SEARCH_CONFIGS_MAX 8192u    /* likewise configs known by then */

/* ---- plain text ---- */

static const struct sequence {
    unsigned n;
    uint8_t lo[4], hi[4];
} sequences[] = {
    {1, {0x20}, {0x21}},
    {1, {0x23}, {0x5b}},
    {1, {0x5d}, {0x7f}},
    {2, {0xc2, 0x80}, {0xdf, 0xbf}},
    {3, {0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}},
    {3, {0xe1, 0x80, 0x80}, {0xec, 0xbf, 0xbf}},
    {3, {0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}},
    {3, {0xee, 0x80, 0x80}, {0xef, 0xbf, 0xbf}},
    {4, {0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}},
    {4, {0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}},
    {4, {0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}},
};

/* Where every character of the sequence leads from `at`: into *target if that is not known yet. False: not all to the same place. CFG_DEAD is
 * a place, too. One byte of each class is enough. */
static bool all_to(struct gruntime *r, uint32_t at, const struct sequence *s, unsigned i, uint32_t *target)
{
    if (i == s->n || at == CFG_DEAD) {
        *target = *target == CFG_UNKNOWN ? at : *target;
        return *target == at;
    }
    for (unsigned b = s->lo[i]; b <= s->hi[i]; b++) {
        if (b > s->lo[i] && r->a->class_of[b] == r->a->class_of[b - 1])
            continue;
        if (!all_to(r, grun_step(r, at, (uint8_t)b), s, i + 1, target))
            return false;
    }
    return true;
}

/* How many plain characters, whichever they are, are allowed from here: up to PLAIN_CHARS_MAX, which stands for any number that a plain token
 * has. 0: none, or it matters which. */
static uint32_t plain_from(struct gruntime *r, uint32_t config)
{
    uint32_t at = config;
    for (uint32_t n = 0; n < PLAIN_CHARS_MAX; n++) {
        uint32_t next = CFG_UNKNOWN;
        for (size_t i = 0; i < COUNT_OF(sequences); i++)
            if (!all_to(r, at, &sequences[i], 0, &next))
                return 0;
        if (next == CFG_DEAD)
            return n;
        if (grun_canon(r, next) == grun_canon(r, at))
            return PLAIN_CHARS_MAX;
        at = next;
    }
    return PLAIN_CHARS_MAX;
}

/* ---- the walk ---- */

/* Ids of the trie's tokens that `config` allows, into g->ids. False: out of memory or over the budget. */
static bool walk(struct grammar *g, uint32_t config, const struct trie *t, uint32_t *n)
{
    struct gruntime *r = &g->run;
    uint64_t work_end = r->work + WALK_WORK_MAX;
    *n = 0;
    g->path[0] = config;
    for (uint32_t i = 0; i < t->n;) {
        const struct trie_node *node = &t->nodes[i];
        uint32_t next = grun_step(r, g->path[node->depth - 1], node->byte);
        if (next == CFG_DEAD) {
            if (r->nomem)
                return false;
            i = node->end;
            continue;
        }
        if (r->work > work_end || r->n_configs > WALK_CONFIGS_MAX)
            return false;
        g->path[node->depth] = next;
        for (int32_t id = node->token; id != TOKEN_NONE; id = g->vocab->same[id])
            g->ids[(*n)++] = (uint32_t)id;
        i++;
    }
    return true;
}

static void forget_masks(struct gruntime *r)
{
    grun_free_masks(r);
    for (uint32_t i = 0; i < r->n_configs; i++)
        r->configs[i].mask = G_NONE;
}

/* Room for one more of `bytes` bytes; what is kept goes first if it is too much. */
static struct gmask *add_mask(struct gruntime *r, uint32_t config, size_t bytes)
{
    if (r->mask_bytes + bytes > MASK_BYTES_MAX)
        forget_masks(r);
    if (r->n_masks == r->cap_masks) {
        uint32_t cap = r->cap_masks ? r->cap_masks * 2 : 16;
        struct gmask *v = realloc(r->masks, cap * sizeof *v);
        if (!v)
            return NULL;
        r->masks = v;
        r->cap_masks = cap;
    }
    void *p = malloc(bytes);
    if (!p)
        return NULL;
    r->mask_bytes += bytes;
    r->configs[config].mask = r->n_masks;
    r->masks[r->n_masks] = (struct gmask){.ids = p};
    return &r->masks[r->n_masks++];
}

static const struct gmask *keep(struct grammar *g, uint32_t config, uint32_t n, uint32_t plain)
{
    size_t list = ((size_t)n + 1) * sizeof *g->ids, map = (size_t)g->vocab->n_words * sizeof(uint64_t);
    struct gmask *m = add_mask(&g->run, config, MIN_OF(list, map));
    if (!m)
        return NULL;
    m->n = n;
    m->plain = plain;
    if (list <= map) {
        memcpy(m->ids, g->ids, (size_t)n * sizeof *g->ids);
        return m;
    }
    m->bits = (uint64_t *)(void *)m->ids;
    m->ids = NULL;
    if (plain)
        memcpy(m->bits, g->vocab->plain[plain], map);
    else
        memset(m->bits, 0, map);
    for (uint32_t i = 0; i < n; i++)
        m->bits[g->ids[i] / 64] |= UINT64_C(1) << (g->ids[i] % 64);
    return m;
}

const struct gmask *grammar__mask_of(struct grammar *g, uint32_t config)
{
    struct gruntime *r = &g->run;
    r->nomem = false;
    uint32_t canon = grun_canon(r, config), n;
    if (canon == CFG_DEAD)
        return NULL;
    if (r->configs[canon].mask != G_NONE)
        return &r->masks[r->configs[canon].mask];
    uint32_t plain = plain_from(r, canon);
    if (r->nomem || !walk(g, canon, plain ? &g->vocab->rest : &g->vocab->all, &n))
        return NULL;
    return keep(g, canon, n, plain);
}

/* ---- the shortest text ---- */

/* Configs that k tokens lead to, for k = 0, 1, 2 … until one may end. */
struct search {
    uint32_t *level, *next;
    uint32_t n, n_next, cap;
    uint8_t *seen;
    uint32_t n_seen;
    uint64_t looked;
    bool found, gave_up;
};

static bool add_found(struct search *s, const struct gruntime *r, uint32_t config)
{
    if (config >= s->n_seen) {
        uint32_t want = r->n_configs * 2;
        uint8_t *seen = realloc(s->seen, want);
        if (!seen)
            return false;
        memset(seen + s->n_seen, 0, want - s->n_seen);
        s->seen = seen;
        s->n_seen = want;
    }
    if (s->seen[config])
        return true;
    if (s->n_next == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 64;
        uint32_t *next = realloc(s->next, cap * sizeof *next), *level = realloc(s->level, cap * sizeof *level);
        s->next = next ? next : s->next;
        s->level = level ? level : s->level;
        if (!next || !level)
            return false;
        s->cap = cap;
    }
    s->seen[config] = 1;
    s->next[s->n_next++] = config;
    s->found |= r->configs[config].can_end;
    return true;
}

static void expand(struct grammar *g, struct search *s, uint32_t config)
{
    struct gruntime *r = &g->run;
    const struct trie *t = &g->vocab->all;
    uint64_t work_end = r->work + WALK_WORK_MAX / 4;
    g->path[0] = config;
    for (uint32_t i = 0; i < t->n && !s->found && !s->gave_up; s->looked++) {
        const struct trie_node *node = &t->nodes[i];
        uint32_t next = grun_step(r, g->path[node->depth - 1], node->byte);
        if (next == CFG_DEAD) {
            i = node->end;
            s->gave_up = r->nomem;
            continue;
        }
        g->path[node->depth] = next;
        if (node->token != TOKEN_NONE)
            s->gave_up = !add_found(s, r, next);
        s->gave_up |= s->looked > SEARCH_NODES_MAX || r->work > work_end || r->n_configs > SEARCH_CONFIGS_MAX;
        i++;
    }
}

/* Tokens that the nearest of v[0..n) still needs, at least. */
static uint32_t still_needed(const struct grammar *g, const uint32_t *v, uint32_t n)
{
    uint32_t least = G_FAR, longest = MAX_OF(g->vocab->max_bytes, 1u);
    for (uint32_t i = 0; i < n; i++)
        least = MIN_OF(least, grun_dist(&g->run, v[i]));
    return (least + longest - 1) / longest;
}

uint32_t grammar__shortest(struct grammar *g)
{
    struct search s = {0};
    uint32_t start = grun_start(&g->run), k = 0, bound = 0;
    if (!add_found(&s, &g->run, start))
        s.gave_up = true;
    while (!s.found && !s.gave_up && s.n_next) {
        uint32_t *t = s.level;
        s.level = s.next, s.n = s.n_next;
        s.next = t, s.n_next = 0;
        bound = k + MAX_OF(still_needed(g, s.level, s.n), 1u); /* none of them may end */
        for (uint32_t i = 0; i < s.n && !s.found && !s.gave_up; i++)
            expand(g, &s, s.level[i]);
        k++;
    }
    bool nowhere = !s.found && !s.gave_up; /* all that tokens lead to was seen, and none of it is an end */
    free(s.level);
    free(s.next);
    free(s.seen);
    return s.found ? k : nowhere ? G_FAR : bound;
}
