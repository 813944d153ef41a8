/* pack.c: a file's rows into strips, and back.
 *
 * Inside the quants plane of a strip, one group of 32 columns (k) of 16 rows (r), in quads: quad t holds k = 4t..4t+3. A 64-byte vector is
 * 16 rows x 4 bytes, which is what a 4-way integer dot product wants: lane r, byte i.
 *
 *   8 bits   vector t (0..7), byte [r][i]                     = q[r][4t + i]
 *   4 bits   vector j (0..3), byte [r][i], low / high nibble  = q[r][8j + i] / q[r][8j + 4 + i]
 *   2 bits   vector j (0..1), byte [r][i], bits 2f..2f+1      = q[r][4(4j + f) + i]
 *   1 bit    one vector,      byte [r][i], bit t              = q[r][4t + i]
 *
 * The high plane of Q5_x and Q3_K is "1 bit", that of Q6_K "2 bits". Quants are unsigned; zero points are the matmul's business. Float
 * types are [k][16 rows]. Nothing of a file's numbers is changed: scales stay f16 or integers. */
#include "base/check.h"
#include "engine/llm/kernels/kernels_priv.h"

static void nibbles(const uint8_t *p, uint8_t *q)
{
    for (int i = 0; i < 16; i++) {
        q[i] = p[i] & 15;
        q[i + 16] = p[i] >> 4;
    }
}

/* The 6-bit scale and min of group j in the 12 bytes of a Q4_K or Q5_K superblock. */
static void scale_min(const uint8_t *s, uint32_t j, struct group *out)
{
    uint8_t sc, mn;
    if (j < 4) {
        sc = s[j] & 63;
        mn = s[j + 4] & 63;
    } else {
        sc = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        mn = (uint8_t)((s[j + 4] >> 4) | (s[j] >> 6) << 4);
    }
    out->sc[0] = out->sc[1] = sc;
    out->mn[0] = out->mn[1] = mn;
}

static void q4_k(const uint8_t *b, uint32_t j, struct group *out)
{
    out->d = load_u16(b);
    out->m = load_u16(b + 2);
    scale_min(b + 4, j, out);
    const uint8_t *qs = b + 16 + 32 * (j / 2);
    for (int i = 0; i < GROUP; i++)
        out->q[i] = j % 2 ? qs[i] >> 4 : qs[i] & 15;
}

static void q5_k(const uint8_t *b, uint32_t j, struct group *out)
{
    out->d = load_u16(b);
    out->m = load_u16(b + 2);
    scale_min(b + 4, j, out);
    const uint8_t *qh = b + 16, *qs = b + 48 + 32 * (j / 2);
    for (int i = 0; i < GROUP; i++)
        out->q[i] = (uint8_t)((j % 2 ? qs[i] >> 4 : qs[i] & 15) | ((qh[i] >> j) & 1) << 4);
}

static void q6_k(const uint8_t *b, uint32_t j, struct group *out)
{
    const uint8_t *ql = b + 64 * (j / 4) + 32 * (j % 2), *qh = b + 128 + 32 * (j / 4);
    const int8_t *sc = (const int8_t *)b + 192 + 2 * j;
    out->d = load_u16(b + 208);
    out->sc[0] = sc[0];
    out->sc[1] = sc[1];
    for (int i = 0; i < GROUP; i++) {
        uint8_t low = j % 4 < 2 ? ql[i] & 15 : ql[i] >> 4;
        out->q[i] = (uint8_t)(low | ((qh[i] >> (2 * (j % 4))) & 3) << 4);
    }
}

static int16_t q3_k_scale(const uint8_t *s, uint32_t j)
{
    uint8_t low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
    return (int16_t)((low | ((s[8 + j % 4] >> (2 * (j / 4))) & 3) << 4) - 32);
}

static void q3_k(const uint8_t *b, uint32_t j, struct group *out)
{
    const uint8_t *hm = b, *qs = b + 32 + 32 * (j / 4), *s = b + 96;
    out->d = load_u16(b + 108);
    out->sc[0] = q3_k_scale(s, 2 * j);
    out->sc[1] = q3_k_scale(s, 2 * j + 1);
    for (int i = 0; i < GROUP; i++)
        out->q[i] = (uint8_t)(((qs[i] >> (2 * (j % 4))) & 3) | ((hm[i] >> j) & 1) << 2);
}

static void q2_k(const uint8_t *b, uint32_t j, struct group *out)
{
    const uint8_t *qs = b + 16 + 32 * (j / 4);
    out->d = load_u16(b + 80);
    out->m = load_u16(b + 82);
    for (int h = 0; h < 2; h++) {
        out->sc[h] = b[2 * j + (uint32_t)h] & 15;
        out->mn[h] = b[2 * j + (uint32_t)h] >> 4;
    }
    for (int i = 0; i < GROUP; i++)
        out->q[i] = (qs[i] >> (2 * (j % 4))) & 3;
}

static void fifth_bits(const uint8_t *qh, uint8_t *q)
{
    for (int i = 0; i < GROUP; i++)
        q[i] |= (uint8_t)(((qh[i / 8] >> (i % 8)) & 1) << 4);
}

void group_from_file(enum weight_type t, const uint8_t *row, uint32_t g, struct group *out)
{
    const struct weight_type_info *info = weight_type_info(t);
    uint32_t per = info->block_elems / GROUP, j = g % per;
    const uint8_t *b = row + (size_t)(g / per) * info->block_bytes;
    memset(out, 0, sizeof *out);
    switch (t) {
    case WEIGHT_Q4_0:
        out->d = load_u16(b), nibbles(b + 2, out->q);
        break;
    case WEIGHT_Q4_1:
        out->d = load_u16(b), out->m = load_u16(b + 2), nibbles(b + 4, out->q);
        break;
    case WEIGHT_Q5_0:
        out->d = load_u16(b), nibbles(b + 6, out->q), fifth_bits(b + 2, out->q);
        break;
    case WEIGHT_Q5_1:
        out->d = load_u16(b), out->m = load_u16(b + 2), nibbles(b + 8, out->q), fifth_bits(b + 4, out->q);
        break;
    case WEIGHT_Q8_0:
        out->d = load_u16(b);
        for (int i = 0; i < GROUP; i++)
            out->q[i] = b[2 + i] ^ 0x80;
        break;
    case WEIGHT_Q2_K:
        q2_k(b, j, out);
        break;
    case WEIGHT_Q3_K:
        q3_k(b, j, out);
        break;
    case WEIGHT_Q4_K:
        q4_k(b, j, out);
        break;
    case WEIGHT_Q5_K:
        q5_k(b, j, out);
        break;
    case WEIGHT_Q6_K:
        q6_k(b, j, out);
        break;
    default:
        ASSERT(!"a float type has no groups");
    }
}

void group_values(enum weight_type t, const struct group *in, float *out)
{
    const struct pack_spec *s = pack_spec(t);
    float d = f16_to_f32(in->d), m = f16_to_f32(in->m);
    for (int i = 0; i < GROUP; i++) {
        int h = i / 16;
        float q = (float)(in->q[i] - s->zero);
        switch (s->scale) {
        case PACK_D:
            out[i] = q * d;
            break;
        case PACK_DM:
            out[i] = q * d + m;
            break;
        case PACK_K_16:
            out[i] = d * (float)in->sc[h] * q;
            break;
        case PACK_K_MIN:
        case PACK_K_MIN16:
            out[i] = d * (float)in->sc[h] * q - m * (float)in->mn[h];
            break;
        case PACK_FLOAT:
            ASSERT(!"a float type has no groups");
        }
    }
}

static uint8_t *quant_at(const struct pack_spec *s, uint8_t *strip, uint32_t g)
{
    return strip + (size_t)g * s->quant_bytes;
}

static void put_quants(const struct matrix *m, const struct pack_spec *s, uint8_t *strip, uint32_t r, uint32_t g,
                       const uint8_t *q)
{
    uint8_t *low = quant_at(s, strip, g) + 4 * r, *high = strip + m->off_high + (size_t)g * s->high_bytes + 4 * r;
    for (uint32_t k = 0; k < GROUP; k++) {
        uint32_t t = k / 4, i = k % 4;
        if (s->low_bits == 8)
            low[64 * t + i] = q[k];
        else if (s->low_bits == 4)
            low[64 * (t / 2) + i] |= (uint8_t)((q[k] & 15) << 4 * (t % 2));
        else
            low[64 * (t / 4) + i] |= (uint8_t)((q[k] & 3) << 2 * (t % 4));
        if (s->high_bytes == 64)
            high[i] |= (uint8_t)((q[k] >> s->low_bits) << t);
        else if (s->high_bytes == 128)
            high[64 * (t / 4) + i] |= (uint8_t)((q[k] >> s->low_bits) << 2 * (t % 4));
    }
}

static void get_quants(const struct matrix *m, const struct pack_spec *s, const uint8_t *strip, uint32_t r, uint32_t g,
                       uint8_t *q)
{
    const uint8_t *low = strip + (size_t)g * s->quant_bytes + 4 * r;
    const uint8_t *high = strip + m->off_high + (size_t)g * s->high_bytes + 4 * r;
    for (uint32_t k = 0; k < GROUP; k++) {
        uint32_t t = k / 4, i = k % 4, v;
        if (s->low_bits == 8)
            v = low[64 * t + i];
        else if (s->low_bits == 4)
            v = (low[64 * (t / 2) + i] >> 4 * (t % 2)) & 15u;
        else
            v = (low[64 * (t / 4) + i] >> 2 * (t % 4)) & 3u;
        if (s->high_bytes == 64)
            v |= ((high[i] >> t) & 1u) << s->low_bits;
        else if (s->high_bytes == 128)
            v |= ((high[64 * (t / 4) + i] >> 2 * (t % 4)) & 3u) << s->low_bits;
        q[k] = (uint8_t)v;
    }
}

static void put_scales(const struct matrix *m, const struct pack_spec *s, uint8_t *strip, uint32_t r, uint32_t g,
                       const struct group *in)
{
    uint8_t *sc = strip + m->off_scale + (size_t)g * s->scale_bytes;
    uint8_t *super = strip + m->off_super + (size_t)(g / SUPER_GROUPS) * s->super_bytes;
    if (s->scale == PACK_D || s->scale == PACK_DM) {
        memcpy(sc + 2 * r, &in->d, 2);
        if (s->scale == PACK_DM)
            memcpy(sc + 32 + 2 * r, &in->m, 2);
        return;
    }
    memcpy(super + 2 * r, &in->d, 2);
    if (s->super_bytes == 64)
        memcpy(super + 32 + 2 * r, &in->m, 2);
    if (s->scale == PACK_K_MIN) {
        sc[r] = (uint8_t)in->sc[0];
        sc[16 + r] = in->mn[0];
    } else {
        for (uint32_t h = 0; h < 2; h++)
            sc[16 * h + r] = (uint8_t)(s->scale == PACK_K_16 ? in->sc[h] : in->sc[h] | in->mn[h] << 4);
    }
}

static void get_scales(const struct matrix *m, const struct pack_spec *s, const uint8_t *strip, uint32_t r, uint32_t g,
                       struct group *out)
{
    const uint8_t *sc = strip + m->off_scale + (size_t)g * s->scale_bytes;
    const uint8_t *super = strip + m->off_super + (size_t)(g / SUPER_GROUPS) * s->super_bytes;
    if (s->scale == PACK_D || s->scale == PACK_DM) {
        out->d = load_u16(sc + 2 * r);
        if (s->scale == PACK_DM)
            out->m = load_u16(sc + 32 + 2 * r);
        return;
    }
    out->d = load_u16(super + 2 * r);
    if (s->super_bytes == 64)
        out->m = load_u16(super + 32 + 2 * r);
    for (uint32_t h = 0; h < 2; h++) {
        if (s->scale == PACK_K_MIN) {
            out->sc[h] = sc[r];
            out->mn[h] = sc[16 + r];
        } else if (s->scale == PACK_K_16) {
            out->sc[h] = (int8_t)sc[16 * h + r];
        } else {
            out->sc[h] = sc[16 * h + r] & 15;
            out->mn[h] = sc[16 * h + r] >> 4;
        }
    }
}

void group_from_strip(const struct matrix *m, const uint8_t *strip, uint32_t r, uint32_t g, struct group *out)
{
    const struct pack_spec *s = pack_spec(m->type);
    memset(out, 0, sizeof *out);
    get_quants(m, s, strip, r, g, out->q);
    get_scales(m, s, strip, r, g, out);
}

static void pack_float(const struct matrix *m, const uint8_t *row, uint8_t *strip, uint32_t r)
{
    size_t elem = weight_type_info(m->type)->block_bytes;
    for (uint32_t k = 0; k < m->cols; k++)
        memcpy(strip + ((size_t)k * KERNEL_STRIP_ROWS + r) * elem, row + k * elem, elem);
}

void pack_strips(const struct matrix *m, const uint8_t *src, uint32_t strip0, uint32_t strip1)
{
    const struct pack_spec *s = pack_spec(m->type);
    size_t row_bytes = matrix_row_bytes(m);
    ASSERT(strip0 <= strip1 && strip1 <= m->strips);
    for (uint32_t st = strip0; st < strip1; st++) {
        uint8_t *strip = m->data + (size_t)st * m->strip_bytes;
        memset(strip, 0, m->strip_bytes);
        for (uint32_t r = 0; r < KERNEL_STRIP_ROWS && st * KERNEL_STRIP_ROWS + r < m->rows; r++) {
            const uint8_t *row = src + (size_t)(st * KERNEL_STRIP_ROWS + r) * row_bytes;
            if (s->scale == PACK_FLOAT) {
                pack_float(m, row, strip, r);
                continue;
            }
            for (uint32_t g = 0; g < m->groups; g++) {
                struct group in;
                group_from_file(m->type, row, g, &in);
                put_quants(m, s, strip, r, g, in.q);
                put_scales(m, s, strip, r, g, &in);
            }
        }
    }
}

void pack_matrix_row(const struct matrix *m, uint32_t row, float *dst)
{
    ASSERT(row < m->rows);
    const uint8_t *strip = m->data + (size_t)(row / KERNEL_STRIP_ROWS) * m->strip_bytes;
    uint32_t r = row % KERNEL_STRIP_ROWS;
    if (pack_spec(m->type)->scale == PACK_FLOAT) {
        size_t elem = weight_type_info(m->type)->block_bytes;
        for (uint32_t k = 0; k < m->cols; k++)
            ref_dequant_row(m->type, strip + ((size_t)k * KERNEL_STRIP_ROWS + r) * elem, 1, dst + k);
        return;
    }
    for (uint32_t g = 0; g < m->groups; g++) {
        struct group in;
        group_from_strip(m, strip, r, g, &in);
        group_values(m->type, &in, dst + (size_t)g * GROUP);
    }
}
