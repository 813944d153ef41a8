/* model.c: from a model description to packed weights.
 *
 * A list of jobs (one a matrix) is laid out first, so that the size is known before anything is allocated; then the strips of all
 * matrices are packed by the team, taken from one shared counter in chunks. A matrix that is quantised on the way gets its type from the
 * same rules as a file that `inferd quantize` writes, and its rows the same bytes, a chunk at a time. */
#include "engine/llm/model.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/pages.h"

#define STRIPS_A_TAKE 8
#define NO_LAYER      UINT32_MAX

struct job {
    struct matrix *m;
    const struct llm_weight *w;
    const char *name;
    uint32_t first_chunk; /* in the shared list */
};

struct packing {
    const struct kernels *k;
    struct job *jobs;
    size_t n_jobs, cap;
    uint32_t n_chunks;
    size_t bytes;
    bool failed; /* a layout was refused */
    const char *bad;
    const struct model_desc *d;
    _Atomic(const struct job *) not_finite; /* a job whose values can't be quantised */
    _Atomic bool no_memory;
};

/* ---- layout ---- */

/* `name`: as in GGUF, without the layer; NO_LAYER for the output. */
static enum weight_type packed_type(const struct model_desc *d, const struct llm_weight *w, const char *name, uint32_t layer)
{
    char full[64];
    struct quant_model m = {d->h.n_layer, d->h.n_head, d->h.n_head_kv, d->h.tied_output};
    if (!d->quantize || (w->type != WEIGHT_F32 && w->type != WEIGHT_F16 && w->type != WEIGHT_BF16))
        return w->type;
    if (layer == NO_LAYER)
        snprintf(full, sizeof full, "%s.weight", d->h.tied_output ? "token_embd" : name);
    else
        snprintf(full, sizeof full, "blk.%u.%s.weight", layer, name);
    return quant_mix_type(d->mix, &m, str_of(full), 2, w->cols, w->type);
}

static void add_matrix(struct packing *p, struct matrix *m, const struct llm_weight *w, const char *name, uint32_t layer)
{
    size_t bytes;
    if (!w->data || p->failed)
        return;
    if (!matrix_layout(packed_type(p->d, w, name, layer), w->rows, w->cols, m) || p->n_jobs == p->cap ||
        !size_align(matrix_bytes(m), KERNEL_ALIGN, &bytes) || !size_add(p->bytes, bytes, &p->bytes)) {
        p->failed = true;
        p->bad = name;
        return;
    }
    p->jobs[p->n_jobs++] = (struct job){m, w, name, p->n_chunks};
    p->n_chunks += (m->strips + STRIPS_A_TAKE - 1) / STRIPS_A_TAKE;
}

static void add_layer(struct packing *p, struct llm_layer *l, const struct llm_layer_desc *d, uint32_t layer)
{
    add_matrix(p, &l->wq, &d->wq, "attn_q", layer);
    add_matrix(p, &l->wk, &d->wk, "attn_k", layer);
    add_matrix(p, &l->wv, &d->wv, "attn_v", layer);
    add_matrix(p, &l->wo, &d->wo, "attn_output", layer);
    add_matrix(p, &l->gate, &d->gate, "ffn_gate", layer);
    add_matrix(p, &l->up, &d->up, "ffn_up", layer);
    add_matrix(p, &l->down, &d->down, "ffn_down", layer);
}

static void add_all(struct packing *p, const struct model_desc *d, struct llm_layer *layers, struct matrix *output)
{
    p->d = d;
    for (uint32_t i = 0; i < d->h.n_layer; i++)
        add_layer(p, &layers[i], &d->layers[i], i);
    add_matrix(p, output, d->h.tied_output ? &d->token_embd : &d->output, "output", NO_LAYER);
}

#define MATRICES_A_LAYER 7
#define VECTORS_A_LAYER  19

bool llm_model_bytes(const struct model_desc *d, size_t *packed, size_t *other)
{
    struct llm_layer *layers = calloc(d->h.n_layer ? d->h.n_layer : 1, sizeof *layers);
    struct matrix output = {0};
    struct packing p = {.cap = (size_t)d->h.n_layer * MATRICES_A_LAYER + 1};
    p.jobs = calloc(p.cap, sizeof *p.jobs);
    bool ok = layers && p.jobs;
    if (ok) {
        add_all(&p, d, layers, &output);
        ok = !p.failed;
    }
    free(layers);
    free(p.jobs);
    *packed = p.bytes;
    size_t widest = MAX_OF(MAX_OF(d->h.n_embd, d->h.n_ff), d->h.n_head * MAX_OF(d->h.head_dim_k, d->h.head_dim_v));
    *other = (d->h.pooling == LLM_POOL_RANK ? d->pooler.bytes * 2 : 0) +
             (size_t)d->h.n_layer * (sizeof *layers + VECTORS_A_LAYER * (widest * sizeof(float) + 32)) +
             (size_t)d->h.n_vocab * 4;
    return ok;
}

/* ---- vectors ---- */

/* f32 copy of a stored vector; NULL when absent. `failed` is set when memory ran out. */
static float *vector(struct llm_model *m, const struct llm_weight *w, bool plus_one, bool *failed)
{
    if (!w->data)
        return NULL;
    size_t n = (size_t)w->rows * w->cols;
    float *v = arena_array(&m->arena, n, sizeof *v);
    if (!v) {
        *failed = true;
        return NULL;
    }
    m->k->dequant_row(w->type, w->data, n, v);
    for (size_t i = 0; plus_one && i < n; i++)
        v[i] += 1.0f;
    return v;
}

static bool layer_vectors(struct llm_model *m, struct llm_layer *l, const struct llm_layer_desc *d)
{
    bool failed = false, one = m->h->norm_plus_one;
    l->attn_norm = vector(m, &d->attn_norm, one, &failed);
    l->attn_norm_b = vector(m, &d->attn_norm_b, false, &failed);
    l->bq = vector(m, &d->bq, false, &failed);
    l->bk = vector(m, &d->bk, false, &failed);
    l->bv = vector(m, &d->bv, false, &failed);
    l->q_norm = vector(m, &d->q_norm, one, &failed);
    l->k_norm = vector(m, &d->k_norm, one, &failed);
    l->bo = vector(m, &d->bo, false, &failed);
    l->attn_post_norm = vector(m, &d->attn_post_norm, one, &failed);
    l->attn_post_norm_b = vector(m, &d->attn_post_norm_b, false, &failed);
    l->ffn_norm = vector(m, &d->ffn_norm, one, &failed);
    l->ffn_norm_b = vector(m, &d->ffn_norm_b, false, &failed);
    l->up_b = vector(m, &d->up_b, false, &failed);
    l->down_b = vector(m, &d->down_b, false, &failed);
    l->ffn_post_norm = vector(m, &d->ffn_post_norm, one, &failed);
    l->ffn_post_norm_b = vector(m, &d->ffn_post_norm_b, false, &failed);
    return !failed;
}

static bool all_vectors(struct llm_model *m)
{
    const struct model_desc *d = m->desc;
    bool failed = false, one = m->h->norm_plus_one;
    for (uint32_t i = 0; i < m->h->n_layer; i++) {
        m->layers[i].local = m->h->window && (!m->h->layer_is_local || m->h->layer_is_local[i]);
        failed |= !layer_vectors(m, &m->layers[i], &d->layers[i]);
    }
    m->output_norm = vector(m, &d->output_norm, one, &failed);
    m->output_norm_b = vector(m, &d->output_norm_b, false, &failed);
    m->output_b = vector(m, &d->output_b, false, &failed);
    m->embd_norm = vector(m, &d->embd_norm, one, &failed);
    m->embd_norm_b = vector(m, &d->embd_norm_b, false, &failed);
    m->token_types = vector(m, &d->token_types, false, &failed);
    if (m->h->pooling == LLM_POOL_RANK) {
        m->pooler = vector(m, &d->pooler, false, &failed);
        m->pooler_b = vector(m, &d->pooler_b, false, &failed);
        m->classifier = vector(m, &d->classifier, false, &failed);
        m->classifier_b = vector(m, &d->classifier_b, false, &failed);
    }
    return !failed;
}

/* ---- packing ---- */

/* Rows of `j` from row0 on, quantised into rows[n][to_bytes]. False: a value is not finite. */
static bool quantise_rows(const struct packing *p, const struct job *j, uint32_t row0, uint32_t n, float *row, uint8_t *rows)
{
    size_t from = j->w->bytes / j->w->rows, to = matrix_row_bytes(j->m), cols = j->w->cols;
    for (uint32_t i = 0; i < n; i++) {
        p->k->dequant_row(j->w->type, j->w->data + (size_t)(row0 + i) * from, cols, row);
        for (size_t c = 0; c < cols; c++)
            if (!isfinite(row[c]))
                return false;
        quant_row(j->m->type, row, cols, rows + i * to);
    }
    return true;
}

/* Strips [strip, end) of a matrix whose stored type is not the one it is packed in. */
static void pack_quantised(struct packing *p, const struct job *j, uint32_t strip, uint32_t end)
{
    struct matrix part = *j->m;
    uint32_t row0 = strip * KERNEL_STRIP_ROWS;
    part.data += (size_t)strip * part.strip_bytes;
    part.strips = end - strip;
    part.rows = MIN_OF(part.strips * KERNEL_STRIP_ROWS, j->m->rows - row0);
    float *row = malloc((size_t)part.cols * sizeof *row);
    uint8_t *rows = malloc(part.rows * matrix_row_bytes(&part));
    if (!row || !rows)
        atomic_store(&p->no_memory, true);
    else if (!quantise_rows(p, j, row0, part.rows, row, rows))
        atomic_store(&p->not_finite, j);
    else
        p->k->pack(&part, rows, 0, part.strips);
    free(row);
    free(rows);
}

static void pack_member(void *arg, uint32_t member, struct team *t)
{
    struct packing *p = arg;
    (void)member;
    for (uint32_t c; (c = team_take(t, p->n_chunks)) != UINT32_MAX;) {
        size_t lo = 0, hi = p->n_jobs; /* the last job that starts at or before chunk c */
        while (hi - lo > 1) {
            size_t mid = (lo + hi) / 2;
            *(p->jobs[mid].first_chunk <= c ? &lo : &hi) = mid;
        }
        const struct job *j = &p->jobs[lo];
        uint32_t strip = (c - j->first_chunk) * STRIPS_A_TAKE;
        uint32_t end = MIN_OF(strip + STRIPS_A_TAKE, j->m->strips);
        if (j->m->type == j->w->type)
            p->k->pack(j->m, j->w->data, strip, end);
        else
            pack_quantised(p, j, strip, end);
    }
}

static int allocate(struct llm_model *m, struct packing *p, struct error *err)
{
    m->packed_bytes = p->bytes ? p->bytes : 1;
    m->packed = os_pages_map(m->packed_bytes);
    if (!m->packed)
        return error_set(err, STATUS_NOMEM, "no memory for %zu bytes of packed weights", m->packed_bytes);
    size_t used = 0;
    for (size_t i = 0; i < p->n_jobs; i++) {
        size_t bytes;
        ASSERT(size_align(matrix_bytes(p->jobs[i].m), KERNEL_ALIGN, &bytes));
        p->jobs[i].m->data = m->packed + used;
        used += bytes;
    }
    return 0;
}

static int pack_all(struct llm_model *m, struct team *team, struct logger *log, const char *name, struct error *err)
{
    struct packing p = {.k = m->k, .cap = (size_t)m->h->n_layer * MATRICES_A_LAYER + 1};
    p.jobs = calloc(p.cap, sizeof *p.jobs);
    if (!p.jobs)
        return error_set(err, STATUS_NOMEM, "no memory to pack the weights");
    add_all(&p, m->desc, m->layers, &m->output);
    int rc = p.failed ? error_set(err, STATUS_INVALID, "matrix %s has a shape or type that can't be packed", p.bad)
                      : allocate(m, &p, err);
    if (rc == 0) {
        LOG(log, LOG_INFO, "weights_packing", LOG_S("model", name), LOG_U("matrices", p.n_jobs), LOG_U("bytes", p.bytes),
            LOG_U("threads", team_size(team)), LOG_S("kernels", m->k->name));
        team_run(team, pack_member, &p);
        const struct job *bad = atomic_load(&p.not_finite);
        if (bad)
            rc = error_set(err, STATUS_INVALID, "a matrix %s holds a value that is not a finite number", bad->name);
        else if (atomic_load(&p.no_memory))
            rc = error_set(err, STATUS_NOMEM, "no memory to quantise the weights");
    }
    free(p.jobs);
    return rc;
}

int llm_model_create(struct model_desc *d, const struct kernels *k, struct team *team, struct logger *log, const char *name,
                     struct llm_model **out, struct error *err)
{
    struct llm_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, STATUS_NOMEM, "no memory for a model");
    m->k = k;
    m->h = &d->h;
    m->desc = d;
    m->tied = d->h.tied_output;
    arena_init(&m->arena, 65536, 0);
    m->layers = arena_array(&m->arena, d->h.n_layer, sizeof *m->layers);
    int rc = m->layers && all_vectors(m) ? 0 : error_set(err, STATUS_NOMEM, "no memory for the model's vectors");
    if (rc == 0)
        rc = pack_all(m, team, log, name, err);
    if (rc < 0) {
        m->desc = NULL;
        llm_model_destroy(m);
        return rc;
    }
    model_desc_drop_pages(d);
    m->bytes = m->packed_bytes + m->arena.used_bytes;
    *out = m;
    return 0;
}

void llm_model_destroy(struct llm_model *m)
{
    if (!m)
        return;
    os_pages_unmap(m->packed, m->packed_bytes);
    arena_release(&m->arena);
    model_desc_release(m->desc);
    free(m);
}

void llm_model_embed(const struct llm_model *m, int32_t id, uint32_t type, float *x)
{
    const struct llm_weight *w = &m->desc->token_embd;
    size_t n = m->h->n_embd;
    ASSERT(id >= 0 && (uint32_t)id < m->h->n_vocab);
    if (m->tied)
        m->k->matrix_row(&m->output, (uint32_t)id, x);
    else
        m->k->dequant_row(w->type, w->data + (size_t)id * (w->bytes / w->rows), n, x);
    if (m->h->embd_scale != 1.0f)
        m->k->scale(x, n, m->h->embd_scale);
    if (m->token_types)
        m->k->add(x, m->token_types + type * n, n);
}

void llm_model_add_position(const struct llm_model *m, uint32_t pos, float *x, float *tmp)
{
    const struct llm_weight *w = &m->desc->pos_embd;
    if (!w->data)
        return;
    ASSERT(pos < w->rows);
    m->k->dequant_row(w->type, w->data + (size_t)pos * (w->bytes / w->rows), m->h->n_embd, tmp);
    m->k->add(x, tmp, m->h->n_embd);
}
