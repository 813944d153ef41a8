/* grammar_run.c: what may stand at a place, as configs (grammar_priv.h), made as texts get there.
 *
 * A step takes every stack of a config over the byte and closes the result: calls push frames, ended rules pop them, until every stack stands
 * before a byte. Frames and configs are interned, so a config is a number, its transitions are a row of a table, and two texts that lead to
 * the same set of stacks share everything from there on. What is remembered only saves time: grun_collect throws all of it away but the
 * configs in use.
 *
 * x{m,n} keeps its count in the frame. Where the body can be empty, m is 0 (grammar_finish.c) and coming back to the same repetition within one
 * closure with a higher count adds nothing: `opened` remembers the lowest. Left recursion was refused, so closures end; what is too ambiguous
 * to hold (max_tops) is a dead end, for masks and for accepting alike. */
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "text/grammar_priv.h"

#define SEEN_PER_LIST 4u
#define LIST_PER_TOP  4u
#define FRAMES_MAX    (1u << 18) /* all tables together: about 20 MiB when full */
#define TOPS_MAX      (1u << 19)
#define CONFIGS_MAX   (1u << 16)
#define ROW_CELLS_MAX (1u << 21)

static uint32_t mix(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x9e3779b1u;
    return h ^ h >> 15;
}

/* ---- tables ---- */

/* Room for `more` of `size` bytes each behind v[n]. */
static bool grow(struct gruntime *r, void *vp, uint32_t n, uint32_t more, uint32_t *cap, size_t size)
{
    void **v = vp;
    if (n + more <= *cap)
        return true;
    uint32_t want = *cap ? *cap : 64;
    while (want < n + more)
        want *= 2;
    void *to = realloc(*v, (size_t)want * size);
    if (!to) {
        r->nomem = true;
        return false;
    }
    *v = to;
    *cap = want;
    return true;
}

/* The table's slot for hash `h`: the first free one, or where same(ctx, index) holds. */
static uint32_t *find(const struct gruntime *r, const struct ghash *t, uint32_t h,
                      bool (*same)(const struct gruntime *r, uint32_t index, const void *key), const void *key)
{
    for (uint32_t i = h;; i++) {
        uint32_t *slot = &t->slots[i & t->mask];
        if (!*slot || same(r, *slot - 1, key))
            return slot;
    }
}

static bool make_room(struct gruntime *r, struct ghash *t, uint32_t (*hash)(const struct gruntime *r, uint32_t index))
{
    if (t->slots && t->n * 2 <= t->mask)
        return true;
    uint32_t size = t->slots ? (t->mask + 1) * 2 : 64;
    uint32_t *slots = calloc(size, sizeof *slots);
    if (!slots) {
        r->nomem = true;
        return false;
    }
    for (uint32_t k = 0; t->slots && k <= t->mask; k++) {
        if (!t->slots[k])
            continue;
        uint32_t i = hash(r, t->slots[k] - 1);
        while (slots[i & (size - 1)])
            i++;
        slots[i & (size - 1)] = t->slots[k];
    }
    free(t->slots);
    t->slots = slots;
    t->mask = size - 1;
    return true;
}

/* ---- frames ---- */

static uint32_t frame_hash_of(const struct gframe *f)
{
    return mix(mix(mix(0, f->parent), f->edge), f->count);
}
static uint32_t frame_hash(const struct gruntime *r, uint32_t i)
{
    return frame_hash_of(&r->frames[i]);
}
static bool frame_same(const struct gruntime *r, uint32_t i, const void *key)
{
    const struct gframe *a = &r->frames[i], *b = key;
    return a->parent == b->parent && a->edge == b->edge && a->count == b->count;
}

static uint32_t sum_dist(uint64_t a, uint64_t b)
{
    return (uint32_t)MIN_OF(a + b, (uint64_t)G_FAR);
}

static uint32_t frame_dist(const struct gruntime *r, const struct gframe *f)
{
    const struct automaton *a = r->a;
    const struct gedge *e = &a->edges[f->edge];
    uint64_t more = e->kind == G_REPEAT && f->count < e->min ? e->min - f->count : 0;
    uint32_t here = sum_dist(more * a->dist[a->rules[e->rule].start], a->dist[e->to]);
    return f->parent == G_NONE ? here : sum_dist(here, r->frames[f->parent].dist);
}

/* A token has at most `clamp` bytes, so it ends at most that many rounds: counts further than that from both bounds look alike. */
static uint32_t canon_count(const struct gruntime *r, const struct gframe *f)
{
    const struct gedge *e = &r->a->edges[f->edge];
    if (e->kind != G_REPEAT)
        return 0;
    if (f->count < e->min)
        return e->min - f->count > r->clamp ? 1 : f->count;
    return e->max - f->count > r->clamp ? MAX_OF(e->min, 1u) : f->count;
}

static uint32_t intern_frame(struct gruntime *r, uint32_t parent, uint32_t edge, uint32_t count)
{
    struct gframe f = {.parent = parent, .edge = edge, .count = count, .canon = G_NONE};
    if (!make_room(r, &r->frame_hash, frame_hash))
        return G_NONE;
    uint32_t *slot = find(r, &r->frame_hash, frame_hash_of(&f), frame_same, &f);
    if (*slot)
        return *slot - 1;
    if (!grow(r, &r->frames, r->n_frames, 1, &r->cap_frames, sizeof *r->frames))
        return G_NONE;
    uint32_t at = r->n_frames++;
    f.dist = frame_dist(r, &f);
    r->frames[at] = f;
    r->frame_hash.n++;
    *slot = at + 1;
    uint32_t up = parent == G_NONE || !r->a->counts ? parent : r->frames[parent].canon, n = canon_count(r, &f);
    uint32_t canon = up == parent && n == count ? at : intern_frame(r, up, edge, n); /* once: that one is its own */
    r->frames[at].canon = canon;
    return canon == G_NONE ? G_NONE : at;
}

/* ---- closure ---- */

static void push(struct gruntime *r, uint32_t node, uint32_t frame)
{
    uint32_t mask = r->max_list * SEEN_PER_LIST - 1;
    uint32_t i = mix(mix(0, node), frame);
    r->work++;
    for (;; i++) {
        uint32_t k = i & mask;
        if (r->stamps[k] != r->stamp) {
            if (r->n_list == r->max_list) {
                r->overflow = true;
                return;
            }
            r->stamps[k] = r->stamp;
            r->seen[k] = r->n_list;
            r->list[r->n_list++] = (struct gtop){node, frame};
            return;
        }
        if (r->list[r->seen[k]].node == node && r->list[r->seen[k]].frame == frame)
            return;
    }
}

static bool opened_before(struct gruntime *r, uint32_t edge, uint32_t frame, uint32_t count)
{
    for (uint32_t i = 0; i < r->n_opened; i++) {
        struct gopened *o = &r->opened[i];
        if (o->edge == edge && o->frame == frame) {
            if (o->count <= count)
                return true;
            o->count = count;
            return false;
        }
    }
    if (r->n_opened == GRUN_OPENED_MAX) {
        r->overflow = true;
        return true;
    }
    r->opened[r->n_opened++] = (struct gopened){edge, frame, count};
    return false;
}

static void call(struct gruntime *r, uint32_t edge, uint32_t frame, uint32_t count)
{
    const struct gedge *e = &r->a->edges[edge];
    uint32_t start = r->a->rules[e->rule].start;
    if (e->tail) {
        push(r, start, frame);
        return;
    }
    uint32_t f = intern_frame(r, frame, edge, count);
    if (f == G_NONE)
        r->overflow = true;
    else
        push(r, start, f);
}

/* At a repetition, `count` rounds done. */
static void repeat(struct gruntime *r, uint32_t edge, uint32_t frame, uint32_t count)
{
    const struct gedge *e = &r->a->edges[edge];
    if (r->a->dist[r->a->rules[e->rule].start] == 0 && opened_before(r, edge, frame, count))
        return;
    if (count >= e->min)
        push(r, e->to, frame);
    if (count < e->max)
        call(r, edge, frame, count + 1);
}

static void pop(struct gruntime *r, uint32_t frame)
{
    if (frame == G_NONE) {
        r->can_end = true;
        return;
    }
    const struct gframe *f = &r->frames[frame];
    const struct gedge *e = &r->a->edges[f->edge];
    if (e->kind == G_CALL)
        push(r, e->to, f->parent);
    else
        repeat(r, f->edge, f->parent, f->count);
}

static void open_closure(struct gruntime *r)
{
    if (++r->stamp == 0) {
        memset(r->stamps, 0, (size_t)r->max_list * SEEN_PER_LIST * sizeof *r->stamps);
        r->stamp = 1;
    }
    r->n_list = r->n_opened = 0;
    r->overflow = r->can_end = false;
}

/* Follow everything that consumes nothing; what is left in the list stands before a byte. */
static void close_closure(struct gruntime *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_list && !r->overflow; i++) {
        struct gtop t = r->list[i];
        const struct gnode *node = &r->a->nodes[t.node];
        if (node->accept)
            pop(r, t.frame);
        for (uint32_t k = node->first + node->n_byte; k < node->first + node->n; k++) {
            const struct gedge *e = &r->a->edges[k];
            if (e->kind == G_EPS)
                push(r, e->to, t.frame);
            else if (e->kind == G_CALL)
                call(r, k, t.frame, 0);
            else
                repeat(r, k, t.frame, 0);
        }
    }
    for (uint32_t i = 0; i < r->n_list; i++) /* `seen` points into the list, which is compacted only now */
        if (r->a->nodes[r->list[i].node].n_byte)
            r->list[n++] = r->list[i];
    r->n_list = n;
}

/* ---- configs ---- */

struct config_key {
    const struct gtop *tops;
    uint32_t n;
    bool can_end;
};

static uint32_t hash_tops(const struct gtop *t, uint32_t n, bool can_end)
{
    uint32_t h = can_end;
    for (uint32_t i = 0; i < n; i++)
        h = mix(mix(h, t[i].node), t[i].frame);
    return h;
}
static uint32_t config_hash(const struct gruntime *r, uint32_t i)
{
    const struct gconfig *c = &r->configs[i];
    return hash_tops(c->n ? r->tops + c->first : NULL, c->n, c->can_end);
}
static bool config_same(const struct gruntime *r, uint32_t i, const void *key)
{
    const struct gconfig *c = &r->configs[i];
    const struct config_key *k = key;
    return c->n == k->n && c->can_end == k->can_end &&
           (!c->n || memcmp(r->tops + c->first, k->tops, k->n * sizeof *k->tops) == 0);
}

static int by_top(const void *x, const void *y)
{
    const struct gtop *a = x, *b = y;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->frame < b->frame ? -1 : a->frame > b->frame;
}

/* The list, deduplicated, as a config. */
static uint32_t intern_config(struct gruntime *r)
{
    uint32_t n = 0;
    r->overflowed |= r->overflow;
    if (r->overflow || (r->n_list == 0 && !r->can_end))
        return CFG_DEAD;
    if (r->n_list > 1)
        qsort(r->list, r->n_list, sizeof *r->list, by_top);
    for (uint32_t i = 0; i < r->n_list; i++)
        if (!n || by_top(&r->list[n - 1], &r->list[i]) != 0)
            r->list[n++] = r->list[i];
    struct config_key key = {r->list, n, r->can_end};
    r->overflowed |= n > r->max_tops;
    if (n > r->max_tops || !make_room(r, &r->config_hash, config_hash))
        return CFG_DEAD;
    uint32_t *slot = find(r, &r->config_hash, hash_tops(r->list, n, r->can_end), config_same, &key);
    if (*slot)
        return *slot - 1;
    if (!grow(r, &r->configs, r->n_configs, 1, &r->cap_configs, sizeof *r->configs) ||
        !grow(r, &r->tops, r->n_tops, n, &r->cap_tops, sizeof *r->tops))
        return CFG_DEAD;
    if (n)
        memcpy(r->tops + r->n_tops, r->list, n * sizeof *r->list);
    r->configs[r->n_configs] = (struct gconfig){
        .first = r->n_tops, .n = n, .row = G_NONE, .canon = CFG_UNKNOWN, .mask = G_NONE, .can_end = r->can_end};
    r->n_tops += n;
    r->config_hash.n++;
    *slot = r->n_configs + 1;
    return r->n_configs++;
}

uint32_t grun_start(struct gruntime *r)
{
    open_closure(r);
    push(r, r->a->rules[r->a->root].start, G_NONE);
    close_closure(r);
    return intern_config(r);
}

static uint32_t compute(struct gruntime *r, uint32_t config, uint8_t byte)
{
    struct gconfig c = r->configs[config];
    open_closure(r);
    for (uint32_t i = 0; i < c.n; i++) {
        struct gtop t = r->tops[c.first + i];
        const struct gnode *node = &r->a->nodes[t.node];
        const struct gedge *e = r->a->edges + node->first;
        for (uint32_t k = 0; k < node->n_byte; k++)
            if (byte >= e[k].lo && byte <= e[k].hi)
                push(r, e[k].to, t.frame);
    }
    close_closure(r);
    return intern_config(r);
}

static bool make_row(struct gruntime *r, uint32_t config)
{
    uint32_t n = r->a->n_classes;
    if (!grow(r, &r->rows, r->n_rows * n, n, &r->cap_rows, sizeof *r->rows))
        return false;
    for (uint32_t i = 0; i < n; i++)
        r->rows[r->n_rows * n + i] = CFG_UNKNOWN;
    r->configs[config].row = r->n_rows++;
    return true;
}

uint32_t grun_step(struct gruntime *r, uint32_t config, uint8_t byte)
{
    uint32_t class = r->a->class_of[byte];
    if (r->configs[config].row == G_NONE && !make_row(r, config))
        return CFG_DEAD;
    size_t cell = (size_t)r->configs[config].row * r->a->n_classes + class;
    if (r->rows[cell] != CFG_UNKNOWN)
        return r->rows[cell];
    uint32_t next = compute(r, config, byte);
    if (r->nomem)
        return CFG_DEAD;
    r->rows[cell] = next;
    return next;
}

uint32_t grun_canon(struct gruntime *r, uint32_t config)
{
    struct gconfig c = r->configs[config];
    if (!r->a->counts || c.canon != CFG_UNKNOWN)
        return r->a->counts ? c.canon : config;
    open_closure(r);
    r->can_end = c.can_end;
    for (uint32_t i = 0; i < c.n; i++) {
        struct gtop t = r->tops[c.first + i];
        r->list[r->n_list++] = (struct gtop){t.node, t.frame == G_NONE ? G_NONE : r->frames[t.frame].canon};
    }
    uint32_t canon = config == CFG_DEAD ? CFG_DEAD : intern_config(r);
    if (!r->nomem)
        r->configs[config].canon = canon;
    return canon;
}

uint32_t grun_dist(const struct gruntime *r, uint32_t config)
{
    const struct gconfig *c = &r->configs[config];
    uint32_t least = c->can_end ? 0 : G_FAR;
    for (uint32_t i = 0; i < c->n; i++) {
        struct gtop t = r->tops[c->first + i];
        uint32_t d = sum_dist(r->a->dist[t.node], t.frame == G_NONE ? 0 : r->frames[t.frame].dist);
        least = MIN_OF(least, d);
    }
    return least;
}

/* ---- life ---- */

int grun_init(struct gruntime *r, const struct automaton *a, uint32_t max_tops, uint32_t clamp)
{
    uint32_t list = 64;
    while (list < max_tops * LIST_PER_TOP)
        list *= 2;
    *r = (struct gruntime){.a = a, .max_tops = max_tops, .clamp = clamp, .max_list = list};
    r->list = calloc(list, sizeof *r->list);
    r->seen = calloc((size_t)list * SEEN_PER_LIST, sizeof *r->seen);
    r->stamps = calloc((size_t)list * SEEN_PER_LIST, sizeof *r->stamps);
    if (r->list && r->seen && r->stamps && grow(r, &r->configs, 0, 1, &r->cap_configs, sizeof *r->configs)) {
        r->configs[r->n_configs++] = (struct gconfig){.row = G_NONE, .canon = CFG_DEAD, .mask = G_NONE}; /* CFG_DEAD */
        return 0;
    }
    grun_release(r);
    return -1;
}

void grun_free_masks(struct gruntime *r)
{
    for (uint32_t i = 0; i < r->n_masks; i++) {
        free(r->masks[i].ids);
        free(r->masks[i].bits);
    }
    r->n_masks = 0;
    r->mask_bytes = 0;
}

void grun_release(struct gruntime *r)
{
    grun_free_masks(r);
    free(r->frames);
    free(r->tops);
    free(r->configs);
    free(r->rows);
    free(r->masks);
    free(r->frame_hash.slots);
    free(r->config_hash.slots);
    free(r->list);
    free(r->seen);
    free(r->stamps);
    *r = (struct gruntime){0};
}

bool grun_full(const struct gruntime *r)
{
    return r->n_configs > CONFIGS_MAX || r->n_frames > FRAMES_MAX + 2 * r->kept_frames ||
           r->n_tops > TOPS_MAX + 2 * r->kept_tops || (uint64_t)r->n_rows * r->a->n_classes > ROW_CELLS_MAX;
}

size_t grun_bytes(const struct gruntime *r)
{
    size_t scratch = (size_t)r->max_list * (sizeof *r->list + SEEN_PER_LIST * 2 * sizeof *r->seen);
    size_t hashes = ((size_t)r->frame_hash.mask + r->config_hash.mask + 2) * sizeof(uint32_t);
    return scratch + hashes + r->mask_bytes + r->cap_frames * sizeof *r->frames + r->cap_tops * sizeof *r->tops +
           r->cap_configs * sizeof *r->configs + r->cap_rows * sizeof *r->rows + r->cap_masks * sizeof *r->masks;
}

/* Copy the frames that `config` of `from` needs; map[i] is the new number of frame i. Parents have lower numbers. */
static void mark_frames(const struct gruntime *from, uint32_t config, uint8_t *live)
{
    const struct gconfig *c = &from->configs[config];
    for (uint32_t i = 0; i < c->n; i++)
        for (uint32_t f = from->tops[c->first + i].frame; f != G_NONE && !live[f]; f = from->frames[f].parent)
            live[f] = 1;
}

static uint32_t copy_config(const struct gruntime *from, struct gruntime *to, uint32_t config, const uint32_t *map)
{
    const struct gconfig *c = &from->configs[config];
    open_closure(to);
    to->can_end = c->can_end;
    for (uint32_t i = 0; i < c->n; i++) {
        struct gtop t = from->tops[c->first + i];
        to->list[to->n_list++] = (struct gtop){t.node, t.frame == G_NONE ? G_NONE : map[t.frame]};
    }
    return config == CFG_DEAD ? CFG_DEAD : intern_config(to);
}

bool grun_collect(struct gruntime *r, uint32_t *const *v, size_t n)
{
    struct gruntime to;
    uint8_t *live = calloc(r->n_frames + 1, 1);
    uint32_t *map = calloc(r->n_frames + 1, sizeof *map), *fresh = calloc(n + 1, sizeof *fresh);
    bool ok = grun_init(&to, r->a, r->max_tops, r->clamp) == 0 && live && map && fresh;
    for (size_t i = 0; i < n && ok; i++)
        mark_frames(r, *v[i], live);
    for (uint32_t f = 0; f < r->n_frames && ok; f++) {
        const struct gframe *g = &r->frames[f];
        if (live[f])
            map[f] = intern_frame(&to, g->parent == G_NONE ? G_NONE : map[g->parent], g->edge, g->count);
        ok = !to.nomem;
    }
    for (size_t i = 0; i < n && ok; i++) {
        fresh[i] = copy_config(r, &to, *v[i], map);
        ok = !to.nomem;
    }
    for (size_t i = 0; i < n && ok; i++)
        *v[i] = fresh[i];
    if (ok) {
        struct gruntime old = *r;
        *r = to;
        to = old;
        r->work = to.work;
        r->kept_frames = r->n_frames;
        r->kept_tops = r->n_tops;
    }
    grun_release(&to);
    free(live);
    free(map);
    free(fresh);
    return ok;
}
