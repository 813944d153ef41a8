/* vec.c: norms, rope, activations and the helpers of logits, scalar; and the table of the reference. */
#include "base/check.h"
#include "engine/llm/kernels/ref/ref.h"

static float sum16(const float *x, size_t n)
{
    float lanes[16] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % 16] += x[i];
    return lanes_sum(lanes);
}

static float dot(const float *a, const float *b, size_t n)
{
    float lanes[16] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % 16] = fmaf(a[i], b[i], lanes[i % 16]);
    return lanes_sum(lanes);
}

static float square_sum(const float *x, size_t n, float mean)
{
    float lanes[16] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % 16] = fmaf(x[i] - mean, x[i] - mean, lanes[i % 16]);
    return lanes_sum(lanes);
}

static void norm(const float *x, size_t n, const struct norm_args *a, const float *residual, float *y)
{
    float mean = a->layer ? sum16(x, n) / (float)n : 0.0f;
    float r = 1.0f / sqrtf(square_sum(x, n, mean) / (float)n + a->eps);
    for (size_t i = 0; i < n; i++) {
        float v = (x[i] - mean) * r;
        v = a->weight ? v * a->weight[i] : v;
        v = a->bias ? v + a->bias[i] : v;
        y[i] = residual ? residual[i] + v : v;
    }
}

static void norm_acts(const struct acts *a, uint32_t col, const float *x, const struct norm_args *n, float *y)
{
    float mean = n->layer ? sum16(x, a->cols) / (float)a->cols : 0.0f;
    float r = 1.0f / sqrtf(square_sum(x, a->cols, mean) / (float)a->cols + n->eps);
    uint32_t tile = col / KERNEL_TILE_COLS, c = col % KERNEL_TILE_COLS;
    ASSERT(col < a->capacity);
    for (uint32_t k0 = 0; k0 < a->cols; k0 += GROUP) {
        float v[GROUP] = {0};
        for (uint32_t i = 0; i < GROUP && k0 + i < a->cols; i++) {
            uint32_t k = k0 + i;
            v[i] = (x[k] - mean) * r;
            v[i] = n->weight ? v[i] * n->weight[k] : v[i];
            v[i] = n->bias ? v[i] + n->bias[k] : v[i];
            if (a->kind == ACTS_F32)
                acts_f32_at(a, tile, k)[c] = v[i];
        }
        for (uint32_t i = 0; y && i < GROUP && k0 + i < a->cols; i++)
            y[k0 + i] = v[i];
        if (a->kind == ACTS_Q8)
            ref_quant_group(v, acts_group_at(a, tile, k0 / GROUP), c);
    }
}

void ref_rope(float *x, uint32_t n_heads, uint32_t head_dim, uint32_t n_rot, const float *cos_sin, enum kernel_rope kind)
{
    uint32_t half = n_rot / 2, step = kind == KERNEL_ROPE_HALF ? 1 : 2, apart = kind == KERNEL_ROPE_HALF ? half : 1;
    for (uint32_t h = 0; h < n_heads; h++) {
        float *v = x + (size_t)h * head_dim;
        for (uint32_t i = 0; i < half; i++) {
            float a = v[i * step], b = v[i * step + apart], c = cos_sin[i], s = cos_sin[half + i];
            v[i * step] = a * c - b * s;
            v[i * step + apart] = a * s + b * c;
        }
    }
}

static void act(float *x, size_t n, enum kernel_act kind)
{
    for (size_t i = 0; i < n; i++)
        x[i] = kact(x[i], kind);
}

static void softcap(float *x, size_t n, float cap)
{
    for (size_t i = 0; i < n; i++)
        x[i] = cap * ktanh(x[i] / cap);
}

static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void scale(float *x, size_t n, float s)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= s;
}

static void axpy(float *y, const float *x, float s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(s, x[i], y[i]);
}

uint32_t ref_argmax(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])))
            best = i;
    return isnan(x[best]) ? 0 : (uint32_t)best;
}

static float exp_sum(const float *x, size_t n, float sub, float *y)
{
    float lanes[16] = {0};
    for (size_t i = 0; i < n; i++) {
        y[i] = kexp(x[i] - sub);
        lanes[i % 16] += y[i];
    }
    return lanes_sum(lanes);
}

static float logsumexp(const float *x, size_t n)
{
    float lanes[16] = {0}, max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (max == -INFINITY)
        return max;
    for (size_t i = 0; i < n; i++)
        lanes[i % 16] += kexp(x[i] - max);
    return max + logf(lanes_sum(lanes));
}

/* Does candidate a come behind candidate b? Smaller value, or equal and higher index; NaN is smallest. */
static bool behind(const float *x, uint32_t a, uint32_t b)
{
    float va = isnan(x[a]) ? -INFINITY : x[a], vb = isnan(x[b]) ? -INFINITY : x[b];
    if (va != vb)
        return va < vb;
    if (isnan(x[a]) != isnan(x[b]))
        return isnan(x[a]);
    return a > b;
}

/* Heap with the last of the chosen at its root. */
static void sift(const float *x, uint32_t *h, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= n)
            return;
        if (c + 1 < n && behind(x, h[c + 1], h[c]))
            c++;
        if (!behind(x, h[c], h[i]))
            return;
        uint32_t tmp = h[i];
        h[i] = h[c];
        h[c] = tmp;
        i = c;
    }
}

void ref_top_k(const float *x, size_t n, uint32_t k, uint32_t *idx, float *val)
{
    ASSERT(k <= n);
    for (uint32_t i = 0; i < k; i++)
        idx[i] = i;
    for (uint32_t i = k / 2; i-- > 0;)
        sift(x, idx, k, i);
    for (size_t i = k; k && i < n; i++) {
        if (x[i] < x[idx[0]] || !behind(x, idx[0], (uint32_t)i))
            continue;
        idx[0] = (uint32_t)i;
        sift(x, idx, k, 0);
    }
    for (uint32_t m = k; m > 1; m--) {
        uint32_t tmp = idx[0];
        idx[0] = idx[m - 1];
        idx[m - 1] = tmp;
        sift(x, idx, m - 1, 0);
    }
    for (uint32_t i = 0; val && i < k; i++)
        val[i] = x[idx[i]];
}

const struct kernels kernels_ref = {
    .name = "ref",
    .dequant_row = ref_dequant_row,
    .pack = pack_strips,
    .matrix_row = pack_matrix_row,
    .acts_put = ref_acts_put,
    .norm_acts = norm_acts,
    .norm = norm,
    .matmul = ref_matmul,
    .matmul_gated = ref_matmul_gated,
    .rope = ref_rope,
    .act = act,
    .softcap = softcap,
    .add = add,
    .scale = scale,
    .axpy = axpy,
    .dot = dot,
    .kv_store = ref_kv_store,
    .attn_query = ref_attn_query,
    .attn_span = ref_attn_span,
    .attn_merge = ref_attn_merge,
    .attn_finish = ref_attn_finish,
    .argmax = ref_argmax,
    .logsumexp = logsumexp,
    .exp_sum = exp_sum,
    .top_k = ref_top_k,
};
