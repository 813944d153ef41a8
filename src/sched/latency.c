/* latency.c: see latency.h for what is learned and why it has this form. */
#include "sched/latency.h"

#include <math.h>

#include "base/check.h"
#include "base/size.h"

#define CLASS_WEIGHT_MAX 32u    /* a class's mean is an average over about this many runs */
#define STALE_RUNS       4096.0 /* a class unseen for this many runs weighs half as much in the fit */
#define PRIOR_BASE_SHARE 0.5    /* with one size seen, half of its time is taken for the fixed part */
#define PRIOR_WEIGHT     0.005  /* of that assumption against real sizes, relative to rows squared */
#define BORROWED_WEIGHT  2u     /* runs that a borrowed curve is worth */
#define OUTLIER_SPREADS  6.0    /* clip distance, in mean absolute deviations ... */
#define OUTLIER_SHARE    0.25   /* ... but never closer than this share of the mean */
#define CURVE_SETTLED    64     /* runs after which the curve is made anew only when ... */
#define CURVE_DRIFT      0.01   /* ... the means have moved by this much in sum */
#define FIRST_SPREAD     0.05   /* assumed of a class with one run */
#define SLOW_STREAK      4      /* as many in a row on one side are the new truth */
#define FAST_STREAK      2
#define LONG_AGO         64u /* runs */

void latency_init(struct latency_model *m)
{
    *m = (struct latency_model){0};
}

static uint32_t class_of(uint32_t rows)
{
    ASSERT(rows > 0);
    uint32_t k = 31u - (uint32_t)__builtin_clz(rows);
    uint32_t c = 2 * k + (k > 0 && rows >= (3u << (k - 1)));
    return MIN_OF(c, (uint32_t)LATENCY_CLASSES - 1);
}

/* First size of class `c`: 1, (1.5), 2, 3, 4, 6, 8, 12, ... The class of 1.5 is never hit. */
static double class_rows(uint32_t c)
{
    double r = (double)(1u << (c / 2));
    return c % 2 ? r * 1.5 : r;
}

static double fit_ns(const struct latency_model *m, double rows)
{
    return m->base_ns + m->row_ns * rows;
}

static double class_weight(const struct latency_model *m, const struct latency_class *c)
{
    double age = (double)(m->runs - c->stamp);
    return c->n * STALE_RUNS / (STALE_RUNS + age);
}

/* Weighted least squares over the class means with weights 1/t^2 (errors count relatively), the slope drawn towards the
 * prior when all sizes are alike, and both parts kept non-negative. */
static void fit(struct latency_model *m)
{
    double sw = 0, sr = 0, st = 0;
    for (uint32_t i = 0; i < LATENCY_CLASSES; i++) {
        const struct latency_class *c = &m->at[i];
        if (!c->n)
            continue;
        double w = class_weight(m, c) / (c->mean_ns * c->mean_ns);
        sw += w;
        sr += w * c->mean_rows;
        st += w * c->mean_ns;
    }
    double r0 = sr / sw, t0 = st / sw, sxx = 0, sxy = 0;
    for (uint32_t i = 0; i < LATENCY_CLASSES; i++) {
        const struct latency_class *c = &m->at[i];
        if (!c->n)
            continue;
        double w = class_weight(m, c) / (c->mean_ns * c->mean_ns);
        sxx += w * (c->mean_rows - r0) * (c->mean_rows - r0);
        sxy += w * (c->mean_rows - r0) * (c->mean_ns - t0);
    }
    double prior = (1 - PRIOR_BASE_SHARE) * t0 / r0, kappa = PRIOR_WEIGHT * sw * r0 * r0;
    double slope = (sxy + kappa * prior) / (sxx + kappa);
    m->row_ns = MIN_OF(MAX_OF(slope, 0.0), t0 / r0);
    m->base_ns = t0 - m->row_ns * r0;
}

/* The curve at each class: its own mean moved along the fit to the class's first size, blended with the fit by weight;
 * classes without runs take the fit times the deviation of their neighbours, interpolated. */
static void rebuild(struct latency_model *m)
{
    double ratio[LATENCY_CLASSES];
    int last = -1;
    fit(m);
    for (int i = 0; i < LATENCY_CLASSES; i++) {
        const struct latency_class *c = &m->at[i];
        if (!c->n)
            continue;
        double line = fit_ns(m, class_rows((uint32_t)i));
        double own = c->mean_ns + m->row_ns * (class_rows((uint32_t)i) - c->mean_rows);
        double w = class_weight(m, c);
        ratio[i] = (w * own + line) / ((w + 1) * line);
        for (int j = last + 1; j < i; j++)
            ratio[j] = last < 0 ? ratio[i] : ratio[last] + (ratio[i] - ratio[last]) * (j - last) / (i - last);
        last = i;
    }
    for (int j = last + 1; j < LATENCY_CLASSES; j++)
        ratio[j] = last < 0 ? 1 : ratio[last];
    double floor_ns = 0;
    for (uint32_t i = 0; i < LATENCY_CLASSES; i++) {
        floor_ns = MAX_OF(floor_ns, ratio[i] * fit_ns(m, class_rows(i)));
        m->curve_ns[i] = floor_ns;
    }
}

void latency_borrow(struct latency_model *m, const struct latency_model *from, double row_scale)
{
    *m = *from;
    m->runs = 0;
    m->borrowed = true;
    for (uint32_t i = 0; i < LATENCY_CLASSES; i++) {
        struct latency_class *c = &m->at[i];
        if (!c->n)
            continue;
        double rows_part = from->row_ns * c->mean_rows / fit_ns(from, c->mean_rows);
        double scale = 1 + rows_part * (row_scale - 1);
        c->mean_ns *= scale;
        c->spread_ns *= scale;
        c->n = MIN_OF(c->n, BORROWED_WEIGHT);
        c->stamp = 0;
        c->streak = 0;
    }
    rebuild(m);
}

enum verdict { RUN_USUAL, RUN_CLIPPED, RUN_BELIEVED };

/* Is `t` an honest run of a class that expects `expected_ns`? A far one is clipped to *reach_ns away, and believed when it is
 * one of several in a row on its side. Fewer are asked for below than above: much delays a run by accident, nothing speeds it up;
 * and of a class's first runs the slow ones are start-up costs. */
static enum verdict judge(struct latency_class *c, double t, double expected_ns, double *reach_ns)
{
    *reach_ns = MAX_OF(OUTLIER_SPREADS * c->spread_ns, OUTLIER_SHARE * expected_ns);
    if (c->n <= 4 && t < 0.5 * expected_ns)
        return RUN_BELIEVED;
    if (c->n < 3 || fabs(t - expected_ns) <= *reach_ns) {
        c->streak = 0;
        return RUN_USUAL;
    }
    int side = t > expected_ns ? 1 : -1;
    c->streak = (int8_t)(c->streak * side > 0 ? c->streak + side : side);
    return c->streak * side >= (side > 0 ? SLOW_STREAK : FAST_STREAK) ? RUN_BELIEVED : RUN_CLIPPED;
}

/* The machine has changed by `factor`, as one class found out: those that haven't run since long are taken along, and will
 * listen to their next runs. */
static void take_along(struct latency_model *m, double factor)
{
    if (m->moved && m->runs - m->moved < LONG_AGO)
        return; /* another class has just found the same out */
    m->moved = m->runs;
    for (uint32_t i = 0; i < LATENCY_CLASSES; i++) {
        struct latency_class *c = &m->at[i];
        if (!c->n || m->runs - c->stamp < LONG_AGO)
            continue;
        c->mean_ns *= factor;
        c->spread_ns *= factor;
        c->n = MIN_OF(c->n, BORROWED_WEIGHT);
    }
}

/* Fold a run into the class it belongs to. */
static void class_learn(struct latency_model *m, struct latency_class *c, uint32_t rows, double run_ns)
{
    double expected = c->mean_ns + m->row_ns * (rows - c->mean_rows); /* the class's mean, moved along the fit to this size */
    double reach, t = run_ns;
    switch (judge(c, t, expected, &reach)) {
    case RUN_BELIEVED:
        take_along(m, t / expected);
        *c = (struct latency_class){.mean_rows = rows, .mean_ns = t, .spread_ns = FIRST_SPREAD * t};
        return;
    case RUN_CLIPPED:
        t = t > expected ? expected + reach : expected - reach;
        break;
    case RUN_USUAL:
        break;
    }
    double share = 1.0 / (MIN_OF(c->n, CLASS_WEIGHT_MAX - 1) + 1);
    c->spread_ns += share * (fabs(t - expected) - c->spread_ns);
    c->mean_ns += share * (t - c->mean_ns);
    c->mean_rows += share * (rows - c->mean_rows);
}

void latency_learn(struct latency_model *m, uint32_t rows, double run_ns)
{
    if (!(run_ns > 0) || rows == 0)
        return;
    struct latency_class *c = &m->at[class_of(rows)];
    double was = c->mean_ns;
    bool made = c->n > 0 && !(m->borrowed && c->stamp == 0); /* the first own run outdoes what was borrowed */
    m->runs++;
    if (made)
        class_learn(m, c, rows, run_ns);
    else
        *c = (struct latency_class){.mean_rows = rows, .mean_ns = run_ns, .spread_ns = FIRST_SPREAD * run_ns};
    c->n = MIN_OF(c->n + 1, CLASS_WEIGHT_MAX);
    c->stamp = m->runs;
    m->drift += made ? fabs(c->mean_ns / was - 1) : 1;
    if (m->runs < CURVE_SETTLED || m->drift > CURVE_DRIFT) {
        rebuild(m);
        m->drift = 0;
    }
}

uint32_t latency_size_runs(const struct latency_model *m, uint32_t rows)
{
    return m->at[class_of(rows)].n;
}

uint64_t latency_size_age(const struct latency_model *m, uint32_t rows)
{
    return m->runs - m->at[class_of(rows)].stamp;
}

double latency_ns(const struct latency_model *m, uint32_t rows)
{
    if (!latency_known(m) || rows == 0)
        return 0;
    uint32_t c = MIN_OF(class_of(rows), (uint32_t)LATENCY_CLASSES - 2);
    double lo = class_rows(c), hi = class_rows(c + 1);
    return m->curve_ns[c] + (m->curve_ns[c + 1] - m->curve_ns[c]) * (rows - lo) / (hi - lo);
}

uint32_t latency_rows_within(const struct latency_model *m, double ns, uint32_t max_rows)
{
    if (!latency_known(m) || latency_ns(m, max_rows) <= ns)
        return max_rows;
    uint32_t lo = 0, hi = max_rows; /* L(lo) <= ns < L(hi), with L(0) = 0 */
    while (hi - lo > 1) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (latency_ns(m, mid) <= ns)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Bin 0 is everything below TAIL_LOW; each next bin is TAIL_STEP wider; the last holds the rest. */
#define TAIL_LOW      0.7
#define TAIL_STEP     1.05
#define TAIL_GROWTH   1.002f
#define TAIL_QUANTILE 0.97
#define TAIL_REFRESH  8

void latency_tail_init(struct latency_tail *t)
{
    /* Before anything is seen a promise keeps a tenth in hand; ten pretended runs, soon outvoted. */
    *t = (struct latency_tail){.margin = 1.1, .unit = 1, .total = 10};
    t->bin[9] = 10;
}

static double tail_quantile(const struct latency_tail *t, double q)
{
    double need = q * (double)t->total, low = TAIL_LOW, sum = 0;
    for (int i = 0; i < LATENCY_TAIL_BINS; i++, low *= TAIL_STEP) {
        sum += (double)t->bin[i];
        if (sum >= need)
            return low; /* the bin's upper end */
    }
    return low;
}

static void tail_rescale(struct latency_tail *t)
{
    t->total = 0;
    for (int i = 0; i < LATENCY_TAIL_BINS; i++) {
        t->bin[i] /= t->unit;
        t->total += t->bin[i];
    }
    t->unit = 1;
}

void latency_tail_learn(struct latency_tail *t, double run_ns, double estimate_ns)
{
    if (!(run_ns > 0) || !(estimate_ns > 0))
        return;
    double x = log(run_ns / estimate_ns / TAIL_LOW) * (1 / log(TAIL_STEP));
    int i = x < 0 ? 0 : x >= LATENCY_TAIL_BINS - 2 ? LATENCY_TAIL_BINS - 1 : (int)x + 1;
    t->unit *= TAIL_GROWTH;
    t->bin[i] += t->unit;
    t->total += t->unit;
    if (t->unit > 1e6f)
        tail_rescale(t);
    if (++t->fresh < TAIL_REFRESH)
        return;
    t->fresh = 0;
    t->margin = tail_quantile(t, TAIL_QUANTILE);
}
