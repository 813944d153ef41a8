/* guard_fit.c: from a sample of good inputs to what scores are made of, and their thresholds. See guard_stats.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/guard_stats_priv.h"

#define MAD_TO_SIGMA 1.4826022185056018 /* 1 / the third quartile of the normal distribution */
#define SELECT_TRIES 60
#define FLAT         1e-6 /* the spread of a feature that never moved, of its size */

const char *guard_method_name(enum guard_method m)
{
    static const char *const names[GUARD_METHODS] = {"robust_z", "mahalanobis", "total_variation"};
    return names[m];
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The k-th smallest of `v`, which is reordered: what is before it is no greater, what is behind no smaller. Hoare's selection in three parts (less,
 * equal, greater), so that many equal values cost nothing; the middle of three is the pivot, and after some bad luck the rest is sorted. */
static double select_kth(double *v, size_t n, size_t k)
{
    size_t from = 0, to = n;
    for (int tries = 0; to - from > 1; tries++) {
        if (tries == SELECT_TRIES) {
            qsort(v + from, to - from, sizeof *v, compare);
            break;
        }
        double a = v[from], b = v[from + (to - from) / 2], c = v[to - 1];
        double pivot = fmax(fmin(a, b), fmin(fmax(a, b), c));
        size_t less = from, at = from, more = to;
        while (at < more) {
            double x = v[at];
            size_t other = x < pivot ? less++ : x > pivot ? --more : at;
            v[at] = v[other];
            v[other] = x;
            at += x <= pivot;
        }
        if (k >= less && k < more)
            break;
        from = k < less ? from : more;
        to = k < less ? less : to;
    }
    return v[k];
}

/* Reorders `v`. */
static double median(double *v, size_t n)
{
    double high = select_kth(v, n, n / 2), low = v[0];
    if (n % 2)
        return high;
    for (size_t i = 1; i < n / 2; i++)
        low = fmax(low, v[i]);
    return (low + high) / 2;
}

/* Median and robust spread of v[0..n), which is overwritten. */
static void centre(double *v, size_t n, double *middle, double *spread)
{
    double mean = 0, var = 0;
    for (size_t i = 0; i < n; i++)
        mean += v[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        var += (v[i] - mean) * (v[i] - mean);
    *middle = median(v, n);
    for (size_t i = 0; i < n; i++)
        v[i] = fabs(v[i] - *middle);
    *spread = MAD_TO_SIGMA * median(v, n);
    if (*spread <= 0)
        *spread = sqrt(var / (double)n);
    if (*spread <= 0)
        *spread = FLAT * fmax(1, fabs(*middle));
}

/* A sample under way. */
struct fit {
    struct guard_reference *r;
    const struct tensor *rows;
    size_t n, n_fit; /* rows; those of the fitted half */
    double *column;  /* [n] */
    struct error *err;
};

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for the reference");
}

static double value(const struct fit *f, size_t row, size_t feature)
{
    float v;
    guard_load(f->rows, row * f->r->features + feature, 1, &v);
    return (double)v;
}

/* Medians, spreads, means and standard deviations, a feature at a time. */
static int fit_features(struct fit *f)
{
    struct guard_reference *r = f->r;
    for (size_t d = 0; d < r->features; d++) {
        double mean = 0, var = 0, middle, spread;
        for (size_t i = 0; i < f->n_fit; i++) {
            f->column[i] = value(f, 2 * i, d);
            mean += f->column[i];
        }
        if (!isfinite(mean))
            return error_set(f->err, STATUS_INVALID, "the reference has a value that is not finite in feature %zu", d);
        mean /= (double)f->n_fit;
        for (size_t i = 0; i < f->n_fit; i++)
            var += (f->column[i] - mean) * (f->column[i] - mean);
        var /= (double)f->n_fit;
        centre(f->column, f->n_fit, &middle, &spread);
        double sigma = var > 0 ? sqrt(var) : FLAT * fmax(1, fabs(mean));
        r->median[d] = (float)middle;
        r->inverse_spread[d] = (float)(1 / spread);
        r->mean[d] = (float)mean;
        r->inverse_sigma[d] = (float)(1 / sigma);
    }
    return 0;
}

/* The covariance of standardised features, as the sample has it: [d][d]. */
static void covariance(const struct fit *f, double *c, double *squares)
{
    const struct guard_reference *r = f->r;
    size_t d = r->features;
    double z[GUARD_DENSE];
    for (size_t i = 0; i < f->n_fit; i++) {
        for (size_t k = 0; k < d; k++)
            z[k] = (value(f, 2 * i, k) - (double)r->mean[k]) * (double)r->inverse_sigma[k];
        for (size_t a = 0; a < d; a++)
            for (size_t b = 0; b < d; b++) {
                c[a * d + b] += z[a] * z[b] / (double)f->n_fit;
                squares[a * d + b] += z[a] * z[a] * z[b] * z[b] / (double)f->n_fit;
            }
    }
}

/* Ledoit and Wolf (2004), "A well-conditioned estimator for large-dimensional covariance matrices": towards its mean variance. */
static void shrink(double *c, const double *squares, size_t d, size_t n)
{
    double mu = 0, delta = 0, beta = 0;
    for (size_t a = 0; a < d; a++)
        mu += c[a * d + a] / (double)d;
    for (size_t i = 0; i < d * d; i++) {
        double off = c[i] - (i % (d + 1) == 0 ? mu : 0);
        delta += off * off / (double)d;
        beta += (squares[i] - c[i] * c[i]) / (double)n / (double)d;
    }
    double share = delta > 0 ? fmin(beta, delta) / delta : 1;
    for (size_t i = 0; i < d * d; i++)
        c[i] = (1 - share) * c[i] + (i % (d + 1) == 0 ? share * mu : 0);
}

/* c = L L'; the inverse of L replaces it, row by row. False: not positive definite. */
static bool invert_root(double *c, size_t d)
{
    for (size_t a = 0; a < d; a++)
        for (size_t b = 0; b <= a; b++) {
            double s = c[a * d + b];
            for (size_t k = 0; k < b; k++)
                s -= c[a * d + k] * c[b * d + k];
            if (a == b && s <= 0)
                return false;
            c[a * d + b] = a == b ? sqrt(s) : s / c[b * d + b];
        }
    for (size_t a = 0; a < d; a++) {
        for (size_t b = 0; b < a; b++) {
            double s = 0;
            for (size_t k = b; k < a; k++)
                s -= c[a * d + k] * c[k * d + b];
            c[a * d + b] = s / c[a * d + a];
        }
        c[a * d + a] = 1 / c[a * d + a];
    }
    return true;
}

static int fit_dense(struct fit *f)
{
    size_t d = f->r->features;
    if (d > GUARD_DENSE)
        return 0;
    double *c = calloc(2 * d * d, sizeof *c);
    f->r->whiten = calloc(d * guard__stride(d), sizeof *f->r->whiten);
    if (!c || !f->r->whiten) {
        free(c);
        return no_memory(f->err);
    }
    covariance(f, c, c + d * d);
    shrink(c, c + d * d, d, f->n_fit);
    bool ok = invert_root(c, d);
    for (size_t a = 0; ok && a < d; a++)
        for (size_t b = 0; b <= a; b++)
            f->r->whiten[b * guard__stride(d) + a] = (float)c[a * d + b];
    free(c);
    return ok ? 0 : error_set(f->err, STATUS_INVALID, "the reference's covariance can't be inverted: no feature varies");
}

static void fit_variation(struct fit *f)
{
    if (!f->r->grid.width)
        return;
    for (size_t i = 0; i < f->n_fit; i++)
        f->column[i] = guard__variation(&f->r->grid, f->rows, 2 * i * f->r->features);
    double middle, spread;
    centre(f->column, f->n_fit, &middle, &spread);
    f->r->variation = middle;
    f->r->variation_spread = spread;
}

/* The k-th smallest score of the other half. */
static int fit_thresholds(struct fit *f, double rate)
{
    size_t m = f->n - f->n_fit, k = (size_t)ceil((double)(m + 1) * (1 - rate));
    if (k > m)
        return error_set(
            f->err, STATUS_INVALID,
            "the reference has %zu rows; for a false positive rate of %g it needs at least %zu, half of them for the "
            "threshold",
            f->n, rate, 2 * (size_t)ceil(1 / rate - 1));
    struct guard_score *scores = calloc(m, sizeof *scores);
    if (!scores)
        return no_memory(f->err);
    for (size_t i = 0; i < m; i++)
        guard_reference_score(f->r, f->rows, 2 * i + 1, &scores[i]);
    for (int method = 0; method < GUARD_METHODS; method++) {
        for (size_t i = 0; i < m; i++)
            f->column[i] = scores[i].v[method];
        qsort(f->column, m, sizeof *f->column, compare);
        f->r->threshold[method] = f->column[k - 1];
    }
    free(scores);
    return 0;
}

static bool take_memory(struct fit *f)
{
    struct guard_reference *r = f->r;
    size_t d = r->features;
    f->column = calloc(f->n, sizeof *f->column);
    r->median = calloc(d, sizeof *r->median);
    r->inverse_spread = calloc(d, sizeof *r->inverse_spread);
    r->mean = calloc(d, sizeof *r->mean);
    r->inverse_sigma = calloc(d, sizeof *r->inverse_sigma);
    return f->column && r->median && r->inverse_spread && r->mean && r->inverse_sigma;
}

static int check_sample(const struct fit *f, unsigned methods, const struct guard_grid *grid, struct error *err)
{
    if (f->n < GUARD_ROWS_MIN)
        return error_set(err, STATUS_INVALID, "the reference has %zu rows; at least %d are needed", f->n, GUARD_ROWS_MIN);
    if (!f->r->features || f->r->features > GUARD_FEATURES_MAX)
        return error_set(err, STATUS_INVALID, "a row of the reference has %zu features; 1 to %u are accepted", f->r->features,
                         GUARD_FEATURES_MAX);
    if (methods & 1u << GUARD_TOTAL_VARIATION && (!grid || !grid->width))
        return error_set(err, STATUS_INVALID, "total_variation needs rows that are images");
    return 0;
}

int guard_reference_fit(const struct tensor *rows, unsigned methods, double rate, const struct guard_grid *grid,
                        struct guard_reference **out, struct error *err)
{
    struct fit f = {.rows = rows, .err = err};
    size_t d;
    if (!guard_row_features(rows, &f.n, &d))
        return error_set(err, STATUS_INVALID, "the reference has data type %s; it must have rows of numbers",
                         dtype_name(rows->dtype));
    f.r = calloc(1, sizeof *f.r);
    if (!f.r)
        return no_memory(err);
    atomic_init(&f.r->refs, 1);
    f.r->features = d;
    f.r->rows = f.n;
    f.r->methods = methods;
    f.n_fit = (f.n + 1) / 2;
    if (methods & 1u << GUARD_TOTAL_VARIATION && grid)
        f.r->grid = *grid;
    int rc = check_sample(&f, methods, grid, err);
    if (rc == 0)
        rc = take_memory(&f) ? fit_features(&f) : no_memory(err);
    if (rc == 0 && methods & 1u << GUARD_MAHALANOBIS)
        rc = fit_dense(&f);
    if (rc == 0) {
        fit_variation(&f);
        rc = fit_thresholds(&f, rate);
    }
    free(f.column);
    if (rc < 0) {
        guard_reference_unref(f.r);
        return rc;
    }
    *out = f.r;
    return 0;
}

struct guard_reference *guard_reference_ref(struct guard_reference *r)
{
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    return r;
}

/* The releasing decrement pairs with the acquire of the last one. */
void guard_reference_unref(struct guard_reference *r)
{
    if (!r || atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(r->median);
    free(r->inverse_spread);
    free(r->mean);
    free(r->inverse_sigma);
    free(r->whiten);
    free(r);
}

size_t guard_reference_features(const struct guard_reference *r)
{
    return r->features;
}

size_t guard_reference_rows(const struct guard_reference *r)
{
    return r->rows;
}

double guard_reference_threshold(const struct guard_reference *r, enum guard_method m)
{
    return r->threshold[m];
}
