/* guard_score.c: a row's scores. Features are read in blocks of BLOCK floats on the stack, whatever the tensor's type is, and each block is a few
 * loops without branches. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "edge/guard_stats_priv.h"

#define BLOCK 256

bool guard_row_features(const struct tensor *t, size_t *rows, size_t *features)
{
    uint64_t n;
    if (!dtype_bytes(t->dtype) || t->dtype == DTYPE_BOOL || !shape_elements(&t->shape, &n))
        return false;
    *rows = t->shape.rank ? (size_t)t->shape.dim[0] : 1;
    *features = *rows ? (size_t)(n / *rows) : 0;
    return *rows > 0;
}

void guard_load(const struct tensor *t, size_t first, size_t n, float *out)
{
    if (t->dtype == DTYPE_FP32) {
        memcpy(out, t->data.p + first * sizeof *out, n * sizeof *out);
        return;
    }
    double x[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t k = MIN_OF(n - at, (size_t)BLOCK);
        guard_load_f64(t, first + at, k, x);
        for (size_t i = 0; i < k; i++)
            out[at + i] = (float)x[i];
    }
}

/* What is no number is as unlike as can be. */
static double finite_or_far(double v)
{
    return isfinite(v) ? v : HUGE_VAL;
}

static void score_robust(const struct guard_reference *r, const struct tensor *t, size_t first, struct guard_score *out)
{
    float x[BLOCK];
    double most = -1;
    out->feature = 0;
    for (size_t at = 0; at < r->features; at += BLOCK) {
        size_t n = MIN_OF((size_t)BLOCK, r->features - at);
        float top = 0;
        guard_load(t, first + at, n, x);
        for (size_t i = 0; i < n; i++) {
            float z = fabsf(x[i] - r->median[at + i]) * r->inverse_spread[at + i];
            x[i] = z == z ? z : INFINITY;
            top = x[i] > top ? x[i] : top;
        }
        if ((double)top <= most)
            continue;
        most = (double)top;
        for (size_t i = 0; i < n; i++)
            if (x[i] == top) {
                out->feature = at + i;
                break;
            }
    }
    out->v[GUARD_ROBUST_Z] = finite_or_far(most);
}

static double distance_diagonal(const struct guard_reference *r, const struct tensor *t, size_t first)
{
    float x[BLOCK];
    double sum = 0;
    for (size_t at = 0; at < r->features; at += BLOCK) {
        size_t n = MIN_OF((size_t)BLOCK, r->features - at);
        float part = 0;
        guard_load(t, first + at, n, x);
        for (size_t i = 0; i < n; i++) {
            float z = (x[i] - r->mean[at + i]) * r->inverse_sigma[at + i];
            part += z * z;
        }
        sum += (double)part;
    }
    return finite_or_far(sqrt(sum));
}

/* By columns, eight rows at once: each row is summed in order, and none waits for another. Above the diagonal are zeros. */
static double distance_dense(const struct guard_reference *r, const struct tensor *t, size_t first)
{
    float z[GUARD_DENSE];
    size_t d = r->features, stride = guard__stride(d);
    double sum = 0;
    guard_load(t, first, d, z);
    for (size_t i = 0; i < d; i++)
        z[i] = (z[i] - r->mean[i]) * r->inverse_sigma[i];
    for (size_t a = 0; a < d; a += GUARD_ROWS) {
        float y[GUARD_ROWS] = {0};
        for (size_t b = 0, n = MIN_OF(a + GUARD_ROWS, d); b < n; b++)
            for (size_t k = 0; k < GUARD_ROWS; k++)
                y[k] += r->whiten[b * stride + a + k] * z[b];
        for (size_t k = 0; k < GUARD_ROWS; k++)
            sum += (double)y[k] * (double)y[k];
    }
    return finite_or_far(sqrt(sum));
}

/* The sum of |x[first + i + step] - x[first + i]|, i < n. */
static double differences(const struct tensor *t, size_t first, size_t step, size_t n)
{
    float a[BLOCK], b[BLOCK];
    double sum = 0;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t k = MIN_OF((size_t)BLOCK, n - at);
        float part = 0;
        guard_load(t, first + at, k, a);
        guard_load(t, first + at + step, k, b);
        for (size_t i = 0; i < k; i++)
            part += fabsf(b[i] - a[i]);
        sum += (double)part;
    }
    return sum;
}

double guard__variation(const struct guard_grid *g, const struct tensor *t, size_t first)
{
    /* channels side by side are one plane whose pixels are `channels` wide */
    size_t planes = g->planes ? g->channels : 1, pixel = g->planes ? 1 : g->channels;
    size_t line = g->width * pixel, plane = line * g->height, pairs = 0;
    double sum = 0;
    for (size_t k = 0; k < planes; k++) {
        size_t base = first + k * plane;
        sum += differences(t, base, line, plane - line);
        pairs += plane - line;
        for (size_t y = 0; y < g->height; y++)
            sum += differences(t, base + y * line, pixel, line - pixel);
        pairs += g->height * (line - pixel);
    }
    return pairs ? sum / (double)pairs : 0;
}

void guard_reference_score(const struct guard_reference *r, const struct tensor *t, size_t row, struct guard_score *out)
{
    size_t first = row * r->features;
    *out = (struct guard_score){0};
    if (r->methods & 1u << GUARD_ROBUST_Z)
        score_robust(r, t, first, out);
    if (r->methods & 1u << GUARD_MAHALANOBIS)
        out->v[GUARD_MAHALANOBIS] = r->whiten ? distance_dense(r, t, first) : distance_diagonal(r, t, first);
    if (r->grid.width)
        out->v[GUARD_TOTAL_VARIATION] =
            finite_or_far(fabs(guard__variation(&r->grid, t, first) - r->variation) / r->variation_spread);
}
