/* layout.c: sizes and shapes of everything that kernels read and write, checked once, and the choice of a table.
 *
 * A packed strip of 16 rows is a few planes, one behind the other, each a multiple of 64 bytes, so that every vector load is aligned:
 *
 *   quants   per group of 32:  4 bits: 4 x 64 bytes, 2 bits: 2 x 64, 8 bits: 8 x 64
 *   high     per group: Q5 one bit more: 64 bytes, Q6_K two: 128, Q3_K one: 64
 *   scales   per group: see enum pack_scale
 *   super    per 8 groups (K-quants): f16 d[16] (and dmin[16])
 *
 * pack.c draws the inside of a plane. */
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/check.h"
#include "base/size.h"
#include "engine/llm/kernels/kernels_priv.h"

static const struct pack_spec specs[WEIGHT_TYPE_COUNT] = {
    [WEIGHT_F32] = {PACK_FLOAT, 64, 0, 0, 0, 32, 0},      [WEIGHT_F16] = {PACK_FLOAT, 32, 0, 0, 0, 16, 0},
    [WEIGHT_BF16] = {PACK_FLOAT, 32, 0, 0, 0, 16, 0},     [WEIGHT_Q4_0] = {PACK_D, 256, 0, 32, 0, 4, 8},
    [WEIGHT_Q4_1] = {PACK_DM, 256, 0, 64, 0, 4, 0},       [WEIGHT_Q5_0] = {PACK_D, 256, 64, 32, 0, 4, 16},
    [WEIGHT_Q5_1] = {PACK_DM, 256, 64, 64, 0, 4, 0},      [WEIGHT_Q8_0] = {PACK_D, 512, 0, 32, 0, 8, 128},
    [WEIGHT_Q4_K] = {PACK_K_MIN, 256, 0, 32, 64, 4, 0},   [WEIGHT_Q5_K] = {PACK_K_MIN, 256, 64, 32, 64, 4, 0},
    [WEIGHT_Q6_K] = {PACK_K_16, 256, 128, 32, 32, 4, 32}, [WEIGHT_Q3_K] = {PACK_K_16, 128, 64, 32, 32, 2, 4},
    [WEIGHT_Q2_K] = {PACK_K_MIN16, 128, 0, 32, 64, 2, 0},
};

const struct pack_spec *pack_spec(enum weight_type t)
{
    ASSERT(weight_type_supported(t) && specs[t].quant_bytes);
    return &specs[t];
}

static size_t round64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

bool matrix_layout(enum weight_type type, uint64_t rows, uint64_t cols, struct matrix *m)
{
    size_t bytes;
    if (!weight_type_supported(type) || !rows || !cols || rows > UINT32_MAX - 64 || cols > (1u << 28) ||
        !weight_bytes(type, rows, cols, &bytes))
        return false;
    const struct pack_spec *s = pack_spec(type);
    *m = (struct matrix){.type = type, .rows = (uint32_t)rows, .cols = (uint32_t)cols};
    m->strips = (uint32_t)((rows + KERNEL_STRIP_ROWS - 1) / KERNEL_STRIP_ROWS);
    m->groups = (uint32_t)((cols + GROUP - 1) / GROUP);
    if (s->scale == PACK_FLOAT) {
        m->strip_bytes = round64((size_t)cols * s->quant_bytes);
    } else {
        m->off_high = (size_t)m->groups * s->quant_bytes;
        m->off_scale = m->off_high + (size_t)m->groups * s->high_bytes;
        m->off_super = m->off_scale + round64((size_t)m->groups * s->scale_bytes);
        m->strip_bytes = m->off_super + round64((size_t)(m->groups / SUPER_GROUPS) * s->super_bytes);
    }
    return size_mul(m->strip_bytes, m->strips, &bytes);
}

size_t matrix_bytes(const struct matrix *m)
{
    return m->strip_bytes * m->strips;
}

size_t matrix_row_bytes(const struct matrix *m)
{
    size_t n = 0;
    bool ok = weight_bytes(m->type, 1, m->cols, &n);
    ASSERT(ok);
    return n;
}

enum acts_kind acts_kind_for(enum weight_type t)
{
    return pack_spec(t)->scale == PACK_FLOAT ? ACTS_F32 : ACTS_Q8;
}

bool acts_layout(enum acts_kind kind, uint64_t cols, uint64_t capacity, struct acts *a)
{
    if (!cols || !capacity || cols > (1u << 28) || capacity > (1u << 24) || (kind == ACTS_Q8 && cols % GROUP))
        return false;
    *a = (struct acts){.kind = kind, .cols = (uint32_t)cols, .capacity = (uint32_t)capacity};
    a->groups = (uint32_t)((cols + GROUP - 1) / GROUP);
    a->tile_bytes =
        kind == ACTS_Q8 ? a->groups * sizeof(struct acts_group) : round64((size_t)cols * KERNEL_TILE_COLS * sizeof(float));
    size_t bytes;
    return size_mul(a->tile_bytes, (size_t)((capacity + KERNEL_TILE_COLS - 1) / KERNEL_TILE_COLS), &bytes);
}

size_t acts_bytes(const struct acts *a)
{
    return a->tile_bytes * (((size_t)a->capacity + KERNEL_TILE_COLS - 1) / KERNEL_TILE_COLS);
}

void acts_get(const struct acts *a, uint32_t col, float *x)
{
    uint32_t tile = col / KERNEL_TILE_COLS, c = col % KERNEL_TILE_COLS;
    ASSERT(col < a->capacity);
    for (uint32_t k = 0; k < a->cols; k++) {
        if (a->kind == ACTS_F32) {
            x[k] = acts_f32_at(a, tile, k)[c];
            continue;
        }
        const struct acts_group *g = acts_group_at(a, tile, k / GROUP);
        x[k] = g->scale[c] * (float)g->q[c][k % GROUP];
    }
}

bool kv_layout(enum kv_type type, uint32_t n_head_kv, uint32_t head_dim_k, uint32_t head_dim_v, struct kv_layout *l)
{
    if (!n_head_kv || !head_dim_k || !head_dim_v || head_dim_k > 1024 || head_dim_v > 1024 || n_head_kv > 4096)
        return false;
    *l = (struct kv_layout){.type = type, .n_head_kv = n_head_kv, .head_dim_k = head_dim_k, .head_dim_v = head_dim_v};
    l->pad_k = (head_dim_k + 31) & ~31u;
    l->pad_v = (head_dim_v + 31) & ~31u;
    size_t elem = type == KV_Q8 ? 1 : 2;
    l->off_v = (size_t)l->pad_k * KV_TILE_TOK * elem;
    l->off_k_scale = l->off_v + (size_t)l->pad_v * KV_TILE_TOK * elem;
    l->off_v_scale = l->off_k_scale + (type == KV_Q8 ? (size_t)l->pad_k / 32 * KV_TILE_TOK * sizeof(float) : 0);
    l->head_bytes = l->off_v_scale + (type == KV_Q8 ? (size_t)l->pad_v / 32 * KV_TILE_TOK * sizeof(float) : 0);
    l->block_bytes = l->head_bytes * n_head_kv;
    return true;
}

size_t attn_query_bytes(const struct kv_layout *l)
{
    return l->type == KV_Q8 ? l->pad_k / 32 * sizeof(struct acts_group) : (size_t)l->pad_k * ATTN_TILE * sizeof(float);
}

size_t attn_scratch_bytes(const struct kv_layout *l)
{
    /* Scores of a span, and for Q8 the same times V's scales of 32 dims. */
    return (l->type == KV_Q8 ? 2u : 1u) * ATTN_TILE * ATTN_SPAN_TOK * sizeof(float);
}

size_t attn_part_bytes(const struct kv_layout *l)
{
    return round64(sizeof(struct attn_part) + (size_t)ATTN_TILE * l->pad_v * sizeof(float));
}

size_t kernels_scratch_bytes(uint32_t max_cols_k)
{
    /* A strip pair unpacked to bytes, with f32 scales and mins per 16 elements. */
    size_t groups = ((size_t)max_cols_k + GROUP - 1) / GROUP;
    return 4 * groups * (KERNEL_STRIP_ROWS * GROUP + 4 * KERNEL_STRIP_ROWS * sizeof(float));
}

void attn_run(const struct kernels *k, const struct kv_view *kv, const struct attn_tile *t, uint32_t head, uint32_t span0,
              uint32_t span1, struct attn_part *part, struct attn_part *tmp, void *scratch)
{
    for (uint32_t i = 0; i < ATTN_TILE; i++) {
        part->max[i] = -INFINITY;
        part->sum[i] = 0;
    }
    for (uint32_t s = span0; s < span1; s++) {
        if (s == span0) {
            k->attn_span(kv, t, head, s, part, scratch);
        } else {
            k->attn_span(kv, t, head, s, tmp, scratch);
            k->attn_merge(kv->layout, t->n, part, tmp);
        }
    }
}

/* ---- the table of tables, best first ---- */

const struct kernels *const KERNELS_ALL[] = {
#if defined(__x86_64__)
    &kernels_avx512, &kernels_avxvnni,
    &kernels_avx2,
#elif defined(__aarch64__)
    &kernels_neon,
#endif
    &kernels_ref,    NULL,
};

bool kernels_runnable(const struct kernels *k)
{
#if defined(__x86_64__)
    /* F16C has come with every AVX2 so far, and clang 14 can't ask for it */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    if (k == &kernels_avx512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
    if (k == &kernels_avxvnni) {
        unsigned a = 0, b, c, d; /* leaf 7.1, which not every compiler's list of features knows */
        return avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
    }
    if (k == &kernels_avx2)
        return avx2;
#elif defined(__aarch64__)
    if (k == &kernels_neon)
        return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#endif
    return k != NULL;
}

const struct kernels *kernels_best(void)
{
    for (size_t i = 0; KERNELS_ALL[i]; i++)
        if (kernels_runnable(KERNELS_ALL[i]))
            return KERNELS_ALL[i];
    return &kernels_ref;
}

const struct kernels *kernels_by_name(const char *name)
{
    for (size_t i = 0; KERNELS_ALL[i]; i++)
        if (!strcmp(KERNELS_ALL[i]->name, name))
            return kernels_runnable(KERNELS_ALL[i]) ? KERNELS_ALL[i] : NULL;
    return NULL;
}
