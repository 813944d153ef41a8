/* forward_lora.c: what adapters add to a step. Columns of one adapter stand side by side (forward.c), so B is one product over all of them. A is
 * cut by tiles of eight columns instead: its few rows wouldn't give every member work. Each output still has one order of operations: along
 * the input for A, times the scale, along the rank for B, then one addition to the base's result. */
#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"
#include "engine/llm/forward_priv.h"
#include "os/pages.h"

/* ---- memory ---- */

static size_t tile_bytes(uint32_t k)
{
    struct acts a;
    return acts_layout(ACTS_F32, k, KERNEL_TILE_COLS, &a) ? a.tile_bytes : 0;
}

static uint32_t widest_input(const struct llm_hparams *h)
{
    return MAX_OF(MAX_OF(h->n_embd, h->n_ff), h->n_head * h->head_dim_v);
}

static void carve_work(struct carve *c, const struct forward *f, struct lora_work *w)
{
    size_t ff = ((size_t)f->c.max_tok + KERNEL_TILE_COLS) * f->h->n_ff;
    w->x = forward__carve(c, w->max_tiles, tile_bytes(widest_input(f->h)));
    for (int i = 0; i < 3; i++)
        w->u[i] = forward__carve(c, w->max_tiles, tile_bytes(w->max_rank));
    w->gate = forward__carve(c, ff, sizeof(float));
    w->up = forward__carve(c, ff, sizeof(float));
    w->low = forward__carve(c, (size_t)team_size(f->team) * KERNEL_TILE_COLS * w->max_rank, sizeof(float));
}

int forward_lora_prepare(struct forward *f, uint32_t max_rank, uint32_t max_adapters, struct error *err)
{
    struct lora_work *w = calloc(1, sizeof *w);
    struct carve count = {0};
    if (!w)
        return error_set(err, STATUS_NOMEM, "no memory for adapters");
    w->max_rank = max_rank;
    w->max_tiles = f->c.max_tok / KERNEL_TILE_COLS + 1 + max_adapters;
    carve_work(&count, f, w);
    w->bytes = count.used;
    w->base = count.overflow ? NULL : os_pages_map(w->bytes);
    if (!w->base) {
        int rc = error_set(err, STATUS_NOMEM, "no memory for the %zu bytes that steps with adapters need", w->bytes);
        free(w);
        return rc;
    }
    carve_work(&(struct carve){.base = w->base}, f, w);
    f->lora = w;
    return 0;
}

size_t forward_lora_bytes(const struct forward *f)
{
    return f->lora ? f->lora->bytes : 0;
}

void forward__lora_release(struct lora_work *w)
{
    if (!w)
        return;
    os_pages_unmap(w->base, w->bytes);
    free(w);
}

/* ---- one step ---- */

/* Inputs of length k, from column 0 of the buffer on. */
static struct acts inputs(const struct lora_work *w, uint32_t k)
{
    struct acts a;
    ASSERT(acts_layout(ACTS_F32, k, (uint64_t)w->max_tiles * KERNEL_TILE_COLS, &a));
    a.data = w->x;
    return a;
}

/* What A gave for one group, `rank` values a column. Groups of different ranks lie in tiles of the largest, or they would overlap. */
static struct acts lows(const struct lora_work *w, uint32_t index, const struct lora_group *g, uint32_t rank)
{
    struct acts a;
    ASSERT(acts_layout(ACTS_F32, rank, (uint64_t)(w->max_tiles - g->tile0) * KERNEL_TILE_COLS, &a));
    a.data = w->u[index] + g->tile0 * tile_bytes(w->max_rank);
    return a;
}

void forward__lora_put(const struct run *r, uint32_t c, uint32_t n, const float *x)
{
    const struct forward *f = r->f;
    struct acts a = inputs(f->lora, n);
    f->k->acts_put(&a, f->columns[c].lora, x);
}

static const struct lora_matrix *matrix_of(const struct run *r, const struct lora_group *g, enum lora_target t)
{
    return &g->a->layers[r->layer].m[t];
}

/* scale * A x of one tile of columns. */
static void project_tile(const struct run *r, const struct lora_group *g, uint32_t use, const struct lora_matrix *m,
                         uint32_t tile)
{
    struct forward *f = r->f;
    struct lora_work *w = f->lora;
    uint32_t rank = m->a.rows, n = MIN_OF(g->n - tile * KERNEL_TILE_COLS, (uint32_t)KERNEL_TILE_COLS);
    float *low = w->low + (size_t)r->member * KERNEL_TILE_COLS * w->max_rank;
    struct acts x = inputs(w, m->a.cols), u = lows(w, use, g, rank);
    struct matmul_out o = {.y = low, .ld = rank};
    x.data += (g->tile0 + tile) * x.tile_bytes;
    f->k->matmul(&m->a, &x, n, 0, rank, &o, f->scratch[r->member].matmul);
    for (uint32_t c = 0; c < n; c++) {
        f->k->scale(low + (size_t)c * rank, rank, m->scale);
        f->k->acts_put(&u, tile * KERNEL_TILE_COLS + c, low + (size_t)c * rank);
    }
}

/* The tiles of all uses and groups are one list that the members take from. */
static void project(const struct run *r, const struct lora_use *uses, uint32_t n_uses)
{
    const struct forward *f = r->f;
    uint32_t per_use = 0;
    for (uint32_t g = 0; g < f->n_groups; g++)
        per_use += (f->groups[g].n + KERNEL_TILE_COLS - 1) / KERNEL_TILE_COLS;
    for (uint32_t i; (i = team_take(r->t, per_use * n_uses)) != UINT32_MAX;) {
        uint32_t use = i / per_use, tile = i % per_use, g = f->n_groups - 1;
        while (f->groups[g].tile0 > tile)
            g--;
        const struct lora_matrix *m = matrix_of(r, &f->groups[g], uses[use].target);
        if (m->a.rows)
            project_tile(r, &f->groups[g], use, m, tile - f->groups[g].tile0);
    }
}

static void expand(const struct run *r, const struct lora_use *use, uint32_t index)
{
    struct forward *f = r->f;
    for (uint32_t i = 0; i < f->n_groups; i++) {
        const struct lora_group *g = &f->groups[i];
        const struct lora_matrix *m = matrix_of(r, g, use->target);
        uint32_t begin, end;
        forward__my_rows(r, m->b.rows, &begin, &end);
        if (!m->a.rows || begin >= end)
            continue;
        float *y = use->y + (size_t)(g->col0 - use->first) * use->ld;
        struct acts u = lows(f->lora, index, g, m->b.cols);
        struct matmul_out o = {.y = y, .ld = use->ld, .residual = y, .residual_ld = use->ld};
        f->k->matmul(&m->b, &u, g->n, begin, end, &o, f->scratch[r->member].matmul);
    }
}

void forward__lora_adapt(const struct run *r, const struct lora_use *uses, uint32_t n)
{
    if (!r->f->n_groups)
        return;
    project(r, uses, n);
    team_barrier(r->t, r->member);
    for (uint32_t i = 0; i < n; i++)
        expand(r, &uses[i], i);
}
