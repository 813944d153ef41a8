/* quant.c: rows to the file formats, with the algorithm of ggml's reference quantisers, so that a file quantised here has the same bytes as
 * one quantised there without an importance matrix. The order of the float operations is part of that; nothing here is contracted or
 * reordered. Where a scale rounds to 0 the levels of the search stay, as there. Slow by nature: the K formats search scales by trial. */
#include "base/check.h"
#include "engine/llm/kernels/kernels_priv.h"

#define TINY 1e-15f /* a group whose largest magnitude is below is all zeros */

static int nearest(float x)
{
    return (int)lrintf(x);
}

static int clampi(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static void put16(uint8_t *p, float f)
{
    uint16_t h = f32_to_f16(f);
    memcpy(p, &h, 2);
}

static float get16(const uint8_t *p)
{
    return f16_to_f32(load_u16(p));
}

/* The element of largest magnitude, with its sign; the first on a tie. */
static float signed_max(const float *x, int n)
{
    float max = 0, amax = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            max = x[i];
        }
    return max;
}

/* ---- the formats in groups of 32 ---- */

/* Q4_0 and Q5_0: half = 8 or 16; the largest element becomes -half exactly. */
static void symmetric(const float *x, int half, uint8_t *d, uint8_t *q)
{
    float scale = signed_max(x, GROUP) / (float)-half, inv = scale != 0 ? 1.0f / scale : 0.0f;
    put16(d, scale);
    for (int i = 0; i < GROUP; i++) {
        int v = (int8_t)(x[i] * inv + ((float)half + 0.5f));
        q[i] = (uint8_t)(v < 2 * half - 1 ? v : 2 * half - 1);
    }
}

/* Q4_1 and Q5_1: from the minimum up in `levels` steps. */
static void shifted(const float *x, int levels, uint8_t *d, uint8_t *m, uint8_t *q)
{
    float min = x[0], max = x[0];
    for (int i = 1; i < GROUP; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    float scale = (max - min) / (float)levels, inv = scale != 0 ? 1.0f / scale : 0.0f;
    put16(d, scale);
    put16(m, min);
    for (int i = 0; i < GROUP; i++) {
        int v = (int)((x[i] - min) * inv + 0.5f);
        q[i] = (uint8_t)(v < levels ? v : levels);
    }
}

static void put_nibbles(const uint8_t *q, uint8_t *out)
{
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
}

static void put_fifth(const uint8_t *q, uint8_t *out)
{
    uint32_t bits = 0;
    for (int i = 0; i < GROUP; i++)
        bits |= (uint32_t)(q[i] >> 4 & 1) << i;
    memcpy(out, &bits, 4);
}

static void quant_q8_0(const float *x, uint8_t *b)
{
    float d = fabsf(signed_max(x, GROUP)) / 127.0f, inv = d != 0 ? 1.0f / d : 0.0f;
    put16(b, d);
    for (int i = 0; i < GROUP; i++)
        b[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inv);
}

/* ---- searching the scales of the K formats ---- */

/* Symmetric levels -nmax..nmax-1 for n values, weighted by x^2: the scale among 19 near nmax / max that fits best. Levels + nmax to L. */
static float fit_symmetric(int n, int nmax, const float *x, uint8_t *L)
{
    float max = signed_max(x, n), scale = 0, best = 0;
    memset(L, 0, (size_t)n);
    if (fabsf(max) < TINY)
        return 0;
    for (int trial = 0; trial < 19; trial++) { /* 0 first, then -9..9 without 0 */
        int is = trial == 0 ? 0 : trial <= 9 ? trial - 10 : trial - 9;
        float iscale = trial == 0 ? (float)-nmax / max : -((float)nmax + 0.1f * (float)is) / max, sumlx = 0, suml2 = 0;
        for (int i = 0; i < n; i++) {
            int l = clampi(nearest(iscale * x[i]), -nmax, nmax - 1);
            float w = x[i] * x[i];
            sumlx += w * x[i] * (float)l;
            suml2 += w * (float)l * (float)l;
        }
        if (trial && !(suml2 > 0 && sumlx * sumlx > best * suml2))
            continue;
        for (int i = 0; i < n; i++)
            L[i] = (uint8_t)(nmax + clampi(nearest(iscale * x[i]), -nmax, nmax - 1));
        scale = suml2 != 0 ? sumlx / suml2 : 0.0f;
        best = scale * sumlx;
    }
    return scale;
}

/* Q3_K's way: one scale, then levels moved one at a time while the fit improves. */
static float fit_by_moves(int n, int nmax, const float *x, uint8_t *out)
{
    float max = signed_max(x, n), sumlx = 0, suml2 = 0;
    int L[16];
    memset(out, 0, (size_t)n);
    if (fabsf(max) < TINY)
        return 0;
    float iscale = (float)-nmax / max;
    for (int i = 0; i < n; i++) {
        L[i] = clampi(nearest(iscale * x[i]), -nmax, nmax - 1);
        float w = x[i] * x[i];
        sumlx += w * x[i] * (float)L[i];
        suml2 += w * (float)L[i] * (float)L[i];
    }
    for (int round = 0; round < 5; round++) {
        int moved = 0;
        for (int i = 0; i < n; i++) {
            float w = x[i] * x[i], slx = sumlx - w * x[i] * (float)L[i];
            if (!(slx > 0))
                continue;
            float sl2 = suml2 - w * (float)L[i] * (float)L[i];
            int l = clampi(nearest(x[i] * sl2 / slx), -nmax, nmax - 1);
            if (l == L[i])
                continue;
            slx += w * x[i] * (float)l;
            sl2 += w * (float)l * (float)l;
            if (sl2 > 0 && slx * slx * suml2 > sumlx * sumlx * sl2) {
                L[i] = l;
                sumlx = slx;
                suml2 = sl2;
                moved++;
            }
        }
        if (!moved)
            break;
    }
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)(L[i] + nmax);
    return suml2 > 0 ? sumlx / suml2 : 0.0f;
}

struct fit {
    int n, nmax, steps;
    float first, step; /* trial i uses nmax + first + step * i levels over the range */
    bool absolute;     /* error |d|, else d^2 */
};

static float fit_error(const struct fit *f, const float *x, const float *w, const uint8_t *L, float scale, float min)
{
    float err = 0;
    for (int i = 0; i < f->n; i++) {
        float d = scale * (float)L[i] + min - x[i];
        d = f->absolute ? fabsf(d) : d * d;
        err += w[i] * d;
    }
    return err;
}

/* One trial: levels for `iscale`, then the weighted least squares scale and min (min <= 0). False where there is no solution. */
static bool fit_trial(const struct fit *f, const float *x, const float *w, float iscale, float low, float sum_w, float sum_x,
                      uint8_t *L, float *scale, float *min)
{
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < f->n; i++) {
        int l = clampi(nearest(iscale * (x[i] - low)), 0, f->nmax);
        L[i] = (uint8_t)l;
        sum_l += w[i] * (float)l;
        sum_l2 += w[i] * (float)l * (float)l;
        sum_xl += w[i] * (float)l * x[i];
    }
    float D = sum_w * sum_l2 - sum_l * sum_l;
    if (!(D > 0))
        return false;
    *scale = (sum_w * sum_xl - sum_x * sum_l) / D;
    *min = (sum_l2 * sum_x - sum_l * sum_xl) / D;
    if (*min > 0) {
        *min = 0;
        *scale = sum_xl / sum_l2;
    }
    return true;
}

/* Levels 0..nmax (to L) with a scale and a min (returned as a positive number to subtract). */
static float fit_shifted(const struct fit *f, const float *x, const float *w, uint8_t *L, float *the_min)
{
    float min = x[0], max = x[0], sum_w = w[0], sum_x = sum_w * x[0];
    uint8_t trial[GROUP];
    for (int i = 1; i < f->n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        sum_w += w[i];
        sum_x += w[i] * x[i];
    }
    min = min > 0 ? 0 : min;
    if (max == min) {
        memset(L, 0, (size_t)f->n);
        *the_min = -min;
        return 0;
    }
    float low = min, iscale = (float)f->nmax / (max - low), scale = 1.0f / iscale;
    for (int i = 0; i < f->n; i++)
        L[i] = (uint8_t)clampi(nearest(iscale * (x[i] - low)), 0, f->nmax);
    float best = fit_error(f, x, w, L, scale, min);
    for (int is = 0; is <= f->steps; is++) {
        float s, m;
        iscale = (f->first + f->step * (float)is + (float)f->nmax) / (max - min);
        if (!fit_trial(f, x, w, iscale, min, sum_w, sum_x, trial, &s, &m))
            continue;
        float err = fit_error(f, x, w, trial, s, m);
        if (err < best) {
            memcpy(L, trial, (size_t)f->n);
            best = err;
            scale = s;
            min = m;
        }
    }
    *the_min = -min;
    return scale;
}

/* ---- the K formats ---- */

static void put_two_bits(const uint8_t *L, uint8_t *qs)
{
    for (int j = 0; j < SUPER; j += 128)
        for (int l = 0; l < 32; l++)
            qs[j / 4 + l] = (uint8_t)(L[j + l] | L[j + l + 32] << 2 | L[j + l + 64] << 4 | L[j + l + 96] << 6);
}

static void quant_q2_k(const float *x, uint8_t *b)
{
    static const struct fit f = {16, 3, 15, -0.5f, 0.1f, true};
    float scales[16], mins[16], max_scale = 0, max_min = 0;
    uint8_t L[SUPER];
    for (int j = 0; j < 16; j++) {
        float w[16];
        for (int l = 0; l < 16; l++)
            w[l] = fabsf(x[16 * j + l]);
        scales[j] = fit_shifted(&f, x + 16 * j, w, L + 16 * j, &mins[j]);
        max_scale = scales[j] > max_scale ? scales[j] : max_scale;
        max_min = mins[j] > max_min ? mins[j] : max_min;
    }
    for (int j = 0; j < 16; j++) {
        int s = max_scale > 0 ? nearest(15.0f / max_scale * scales[j]) : 0,
            m = max_min > 0 ? nearest(15.0f / max_min * mins[j]) : 0;
        b[j] = (uint8_t)(s | m << 4);
    }
    put16(b + 80, max_scale > 0 ? max_scale / 15.0f : 0.0f);
    put16(b + 82, max_min > 0 ? max_min / 15.0f : 0.0f);
    for (int i = 0; i < SUPER; i++) {
        float d = get16(b + 80) * (float)(b[i / 16] & 15), dm = get16(b + 82) * (float)(b[i / 16] >> 4);
        L[i] = d != 0 ? (uint8_t)clampi(nearest((x[i] + dm) / d), 0, 3) : L[i];
    }
    put_two_bits(L, b + 16);
}

static void quant_q3_k(const float *x, uint8_t *b)
{
    float scales[16], max = 0;
    uint8_t L[SUPER], *hm = b, *sc = b + 96;
    for (int j = 0; j < 16; j++)
        scales[j] = fit_by_moves(16, 4, x + 16 * j, L + 16 * j);
    max = signed_max(scales, 16);
    memset(b, 0, 110);
    float iscale = max != 0 ? -32.0f / max : 0.0f;
    put16(b + 108, max != 0 ? 1.0f / iscale : 0.0f);
    for (int j = 0; j < 16; j++) {
        int l = max != 0 ? clampi(nearest(iscale * scales[j]), -32, 31) + 32 : 0;
        sc[j % 8] |= (uint8_t)((l & 15) << (j < 8 ? 0 : 4));
        sc[8 + j % 4] |= (uint8_t)((l >> 4) << (2 * (j / 4)));
        float d = get16(b + 108) * (float)(l - 32);
        for (int i = 16 * j; i < 16 * j + 16; i++)
            L[i] = d != 0 ? (uint8_t)(clampi(nearest(x[i] / d), -4, 3) + 4) : L[i];
    }
    for (int i = 0; i < SUPER; i++) {
        hm[i % 32] |= (uint8_t)((L[i] > 3) << (i / 32));
        L[i] &= 3;
    }
    put_two_bits(L, b + 32);
}

/* d, dmin and the packed 6-bit scales and mins of Q4_K and Q5_K; levels of all 256 values. */
static void shifted_super(const struct fit *f, const float *x, uint8_t *b, uint8_t *L)
{
    float scales[8], mins[8], max_scale = 0, max_min = 0;
    uint8_t *sc = b + 4, s6[8], m6[8];
    for (int j = 0; j < 8; j++) {
        float w[GROUP], sum = 0;
        for (int l = 0; l < GROUP; l++)
            sum += x[GROUP * j + l] * x[GROUP * j + l];
        for (int l = 0; l < GROUP; l++)
            w[l] = sqrtf(sum / (float)GROUP) + fabsf(x[GROUP * j + l]);
        scales[j] = fit_shifted(f, x + GROUP * j, w, L + GROUP * j, &mins[j]);
        max_scale = scales[j] > max_scale ? scales[j] : max_scale;
        max_min = mins[j] > max_min ? mins[j] : max_min;
    }
    float inv_scale = max_scale > 0 ? 63.0f / max_scale : 0.0f, inv_min = max_min > 0 ? 63.0f / max_min : 0.0f;
    memset(sc, 0, 12);
    for (int j = 0; j < 8; j++) {
        s6[j] = (uint8_t)clampi((uint8_t)nearest(inv_scale * scales[j]), 0, 63);
        m6[j] = (uint8_t)clampi((uint8_t)nearest(inv_min * mins[j]), 0, 63);
        if (j < 4) {
            sc[j] = s6[j];
            sc[j + 4] = m6[j];
        } else {
            sc[j + 4] = (uint8_t)((s6[j] & 15) | (m6[j] & 15) << 4);
            sc[j - 4] |= (uint8_t)(s6[j] >> 4 << 6);
            sc[j] |= (uint8_t)(m6[j] >> 4 << 6);
        }
    }
    put16(b, max_scale / 63.0f);
    put16(b + 2, max_min / 63.0f);
    for (int i = 0; i < SUPER; i++) {
        float d = get16(b) * (float)s6[i / GROUP], dm = get16(b + 2) * (float)m6[i / GROUP];
        L[i] = d != 0 ? (uint8_t)clampi(nearest((x[i] + dm) / d), 0, f->nmax) : L[i];
    }
}

static void quant_q4_k(const float *x, uint8_t *b)
{
    static const struct fit f = {GROUP, 15, 20, -1.0f, 0.1f, false};
    uint8_t L[SUPER];
    shifted_super(&f, x, b, L);
    for (int j = 0; j < SUPER; j += 64)
        for (int l = 0; l < 32; l++)
            b[16 + j / 2 + l] = (uint8_t)(L[j + l] | L[j + l + 32] << 4);
}

static void quant_q5_k(const float *x, uint8_t *b)
{
    static const struct fit f = {GROUP, 31, 15, -0.5f, 0.1f, false};
    uint8_t L[SUPER], *qh = b + 16, *ql = b + 48;
    shifted_super(&f, x, b, L);
    memset(qh, 0, 32);
    for (int j = 0; j < SUPER; j += 64)
        for (int l = 0; l < 32; l++) {
            ql[j / 2 + l] = (uint8_t)((L[j + l] & 15) | (L[j + l + 32] & 15) << 4);
            qh[l] |= (uint8_t)((L[j + l] >> 4) << (j / 32) | (L[j + l + 32] >> 4) << (j / 32 + 1));
        }
}

static void quant_q6_k(const float *x, uint8_t *b)
{
    float scales[16];
    uint8_t L[SUPER], *ql = b, *qh = b + 128;
    for (int j = 0; j < 16; j++)
        scales[j] = fit_symmetric(16, 32, x + 16 * j, L + 16 * j);
    float max = signed_max(scales, 16);
    memset(b, 0, 210);
    if (fabsf(max) < TINY)
        return;
    float iscale = -128.0f / max;
    put16(b + 208, 1.0f / iscale);
    for (int j = 0; j < 16; j++) {
        int s = nearest(iscale * scales[j]);
        b[192 + j] = (uint8_t)(int8_t)(s < 127 ? s : 127);
        float d = get16(b + 208) * (float)(int8_t)b[192 + j];
        for (int i = 16 * j; d != 0 && i < 16 * j + 16; i++)
            L[i] = (uint8_t)(clampi(nearest(x[i] / d), -32, 31) + 32);
    }
    for (int j = 0; j < SUPER; j += 128, ql += 64, qh += 32)
        for (int l = 0; l < 32; l++) {
            const uint8_t *v = L + j + l;
            ql[l] = (uint8_t)((v[0] & 15) | (v[64] & 15) << 4);
            ql[l + 32] = (uint8_t)((v[32] & 15) | (v[96] & 15) << 4);
            qh[l] = (uint8_t)(v[0] >> 4 | v[32] >> 4 << 2 | v[64] >> 4 << 4 | v[96] >> 4 << 6);
        }
}

static void quant_block(enum weight_type t, const float *x, uint8_t *b)
{
    uint8_t q[GROUP];
    switch (t) {
    case WEIGHT_F32:
        memcpy(b, x, 4);
        break;
    case WEIGHT_F16:
        put16(b, *x);
        break;
    case WEIGHT_BF16:
        memcpy(b, &(uint16_t){f32_to_bf16(*x)}, 2);
        break;
    case WEIGHT_Q4_0:
        symmetric(x, 8, b, q), put_nibbles(q, b + 2);
        break;
    case WEIGHT_Q4_1:
        shifted(x, 15, b, b + 2, q), put_nibbles(q, b + 4);
        break;
    case WEIGHT_Q5_0:
        symmetric(x, 16, b, q), put_fifth(q, b + 2), put_nibbles(q, b + 6);
        break;
    case WEIGHT_Q5_1:
        shifted(x, 31, b, b + 2, q), put_fifth(q, b + 4), put_nibbles(q, b + 8);
        break;
    case WEIGHT_Q8_0:
        quant_q8_0(x, b);
        break;
    case WEIGHT_Q2_K:
        quant_q2_k(x, b);
        break;
    case WEIGHT_Q3_K:
        quant_q3_k(x, b);
        break;
    case WEIGHT_Q4_K:
        quant_q4_k(x, b);
        break;
    case WEIGHT_Q5_K:
        quant_q5_k(x, b);
        break;
    case WEIGHT_Q6_K:
        quant_q6_k(x, b);
        break;
    default:
        break;
    }
}

bool quant_row(enum weight_type t, const float *src, size_t n, void *dst)
{
    const struct weight_type_info *info = weight_type_info(t);
    uint8_t *b = dst;
    if (!weight_type_supported(t) || n % info->block_elems)
        return false;
    for (size_t i = 0; i < n; i += info->block_elems, b += info->block_bytes)
        quant_block(t, src + i, b);
    return true;
}
