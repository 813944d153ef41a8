/* matmul.c: the oracle: products written down as kernels.h defines them, one element after the other. */
#include "base/check.h"
#include "engine/llm/kernels/ref/ref.h"

void ref_acts_put(const struct acts *a, uint32_t col, const float *x)
{
    ASSERT(col < a->capacity);
    uint32_t tile = col / KERNEL_TILE_COLS, c = col % KERNEL_TILE_COLS;
    if (a->kind == ACTS_F32) {
        for (uint32_t k = 0; k < a->cols; k++)
            acts_f32_at(a, tile, k)[c] = x[k];
        return;
    }
    for (uint32_t g = 0; g < a->groups; g++)
        ref_quant_group(x + (size_t)g * GROUP, acts_group_at(a, tile, g), c);
}

void ref_quant_group(const float *x, struct acts_group *out, uint32_t c)
{
    float amax = 0, inv;
    for (int i = 0; i < GROUP; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    acts_scale(amax, &out->scale[c], &inv);
    int32_t sum = 0, second = 0;
    for (int i = 0; i < GROUP; i++) {
        float v = x[i] * inv;
        v = v < 127.0f ? v : 127.0f; /* also NaN, which has no int8 */
        int q = (int)rintf(v > -127.0f ? v : -127.0f);
        out->q[c][i] = (int8_t)q;
        sum += q;
        second += i >= 16 ? q : 0;
    }
    out->scale_sum[c] = out->scale[c] * (float)sum;
    out->neg_sum[c] = -sum;
    out->neg_sum_second[c] = -second;
}

static int32_t idot(const uint8_t *w, const int8_t *a, int zero, int n)
{
    int32_t s = 0;
    for (int i = 0; i < n; i++)
        s += (w[i] - zero) * a[i];
    return s;
}

/* One group of one element: acc in, acc out. */
static float step(const struct pack_spec *s, const struct group *w, const struct acts_group *a, uint32_t c, float acc)
{
    float d = f16_to_f32(w->d), m = f16_to_f32(w->m), as = a->scale[c];
    const int8_t *q = a->q[c];
    if (s->scale == PACK_D || s->scale == PACK_DM || s->scale == PACK_K_MIN) {
        float ws = s->scale == PACK_K_MIN ? d * (float)w->sc[0] : d;
        acc = fmaf((float)idot(w->q, q, s->zero, GROUP), ws * as, acc);
        if (s->scale == PACK_DM)
            acc = fmaf(m, a->scale_sum[c], acc);
        if (s->scale == PACK_K_MIN)
            acc = fmaf(-(m * (float)w->mn[0]), a->scale_sum[c], acc);
        return acc;
    }
    int32_t neg[2] = {a->neg_sum[c] - a->neg_sum_second[c], a->neg_sum_second[c]};
    for (int h = 0; h < 2; h++) {
        acc = fmaf((float)idot(w->q + 16 * h, q + 16 * h, s->zero, 16), d * (float)w->sc[h] * as, acc);
        if (s->scale == PACK_K_MIN16)
            acc = fmaf(m * (float)w->mn[h], as * (float)neg[h], acc);
    }
    return acc;
}

/* sum[c] of row `row` for the `n` columns of tile `tile`. */
static void row_sums(const struct matrix *m, const struct acts *x, uint32_t row, uint32_t tile, uint32_t n, float *sum)
{
    const struct pack_spec *s = pack_spec(m->type);
    const uint8_t *strip = m->data + (size_t)(row / KERNEL_STRIP_ROWS) * m->strip_bytes;
    uint32_t r = row % KERNEL_STRIP_ROWS;
    memset(sum, 0, n * sizeof *sum);
    if (s->scale == PACK_FLOAT) {
        size_t elem = s->quant_bytes / KERNEL_STRIP_ROWS;
        for (uint32_t k = 0; k < m->cols; k++) {
            float w;
            ref_dequant_row(m->type, strip + ((size_t)k * KERNEL_STRIP_ROWS + r) * elem, 1, &w);
            for (uint32_t c = 0; c < n; c++)
                sum[c] = fmaf(w, acts_f32_at(x, tile, k)[c], sum[c]);
        }
        return;
    }
    for (uint32_t g = 0; g < m->groups; g++) {
        struct group w;
        group_from_strip(m, strip, r, g, &w);
        for (uint32_t c = 0; c < n; c++)
            sum[c] = step(s, &w, acts_group_at(x, tile, g), c, sum[c]);
    }
}

void ref_matmul(const struct matrix *m, const struct acts *x, uint32_t n_cols, uint32_t row0, uint32_t row1,
                const struct matmul_out *o, void *scratch)
{
    (void)scratch;
    matmul_check(m, x, n_cols, row0, row1);
    for (uint32_t c0 = 0; c0 < n_cols; c0 += KERNEL_TILE_COLS) {
        uint32_t n = n_cols - c0 < KERNEL_TILE_COLS ? n_cols - c0 : KERNEL_TILE_COLS;
        for (uint32_t row = row0; row < row1; row++) {
            float sum[KERNEL_TILE_COLS];
            row_sums(m, x, row, c0 / KERNEL_TILE_COLS, n, sum);
            for (uint32_t c = 0; c < n; c++) {
                float v = kact(o->bias ? sum[c] + o->bias[row] : sum[c], o->act);
                if (o->residual)
                    v = o->residual[(c0 + c) * o->residual_ld + row] + v;
                o->y[(c0 + c) * o->ld + row] = v;
            }
        }
    }
}

/* The gated value of one row for a tile of columns. */
static void gated_row(const struct matrix *gate, const struct matrix *up, const struct acts *x, uint32_t row, uint32_t tile,
                      uint32_t n, const struct matmul_out *o, const float *up_bias, float *v)
{
    float g[KERNEL_TILE_COLS], u[KERNEL_TILE_COLS];
    row_sums(up, x, row, tile, n, u);
    if (gate)
        row_sums(gate, x, row, tile, n, g);
    for (uint32_t c = 0; c < n; c++) {
        float b = up_bias ? u[c] + up_bias[row] : u[c];
        v[c] = gate ? kact(o->bias ? g[c] + o->bias[row] : g[c], o->act) * b : kact(b, o->act);
    }
}

void ref_matmul_gated(const struct matrix *gate, const struct matrix *up, const struct acts *x, uint32_t n_cols, uint32_t row0,
                      uint32_t row1, const struct matmul_out *o, const float *up_bias, const struct acts *h, void *scratch)
{
    (void)scratch;
    matmul_check(up, x, n_cols, row0, row1);
    ASSERT(!gate || (gate->rows == up->rows && gate->cols == up->cols));
    ASSERT(h->cols == up->rows && n_cols <= h->capacity);
    for (uint32_t c0 = 0; c0 < n_cols; c0 += KERNEL_TILE_COLS) {
        uint32_t tile = c0 / KERNEL_TILE_COLS, n = n_cols - c0 < KERNEL_TILE_COLS ? n_cols - c0 : KERNEL_TILE_COLS;
        for (uint32_t r0 = row0; r0 < row1; r0 += GROUP) {
            float v[KERNEL_TILE_COLS][GROUP] = {0}, one[KERNEL_TILE_COLS];
            uint32_t rows = row1 - r0 < GROUP ? row1 - r0 : GROUP;
            for (uint32_t r = 0; r < rows; r++) {
                gated_row(gate, up, x, r0 + r, tile, n, o, up_bias, one);
                for (uint32_t c = 0; c < n; c++)
                    v[c][r] = one[c];
            }
            for (uint32_t c = 0; c < n; c++)
                ref_gated_put(o, h, c0 + c, r0, rows, v[c]);
        }
    }
}

void ref_gated_put(const struct matmul_out *o, const struct acts *h, uint32_t col, uint32_t row, uint32_t rows, const float *v)
{
    uint32_t tile = col / KERNEL_TILE_COLS, c = col % KERNEL_TILE_COLS;
    if (o->y)
        memcpy(o->y + col * o->ld + row, v, rows * sizeof *v);
    if (h->kind == ACTS_Q8)
        ref_quant_group(v, acts_group_at(h, tile, row / GROUP), c);
    else
        for (uint32_t r = 0; r < rows; r++)
            acts_f32_at(h, tile, row + r)[c] = v[r];
}

void matmul_check(const struct matrix *m, const struct acts *x, uint32_t n_cols, uint32_t row0, uint32_t row1)
{
    ASSERT(m->data && x->data);
    ASSERT(x->kind == acts_kind_for(m->type) && x->cols == m->cols);
    ASSERT(n_cols <= x->capacity);
    ASSERT(row0 % KERNEL_ROW_UNIT == 0 && (row1 % KERNEL_ROW_UNIT == 0 || row1 == m->rows) && row1 <= m->rows);
}
