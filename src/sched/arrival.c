/* arrival.c: see arrival.h. */
#include "sched/arrival.h"

#include <math.h>
#include <string.h>

#include "base/size.h"

#define FIRST_NS     1000.0 /* upper end of bin 0 */
#define MEMORY       1024.0 /* rows that a histogram remembers */
#define CERTAINTY    2.0    /* standard errors */
#define BURST_MEMORY 32.0f
#define CHECK_MEMORY 64.0 /* windows */
#define PRIOR_NEVER  4.0f /* pretended events that never came: no waiting on thin evidence */

void arrival_rate_add(struct arrival_rate *r, double now_ns, double rows, double span_ns)
{
    r->rows_per_ns = arrival_rate_at(r, now_ns, span_ns) + rows / span_ns;
    r->last_ns = now_ns;
}

double arrival_rate_at(const struct arrival_rate *r, double now_ns, double span_ns)
{
    double dt = now_ns - r->last_ns;
    return dt > 0 ? r->rows_per_ns * arrival_fade(dt / span_ns) : r->rows_per_ns;
}

static void hist_init(struct arrival_hist *h)
{
    *h = (struct arrival_hist){.never = PRIOR_NEVER, .total = PRIOR_NEVER, .unit = 1};
}

/* Upper end of bin i, in ns: 1, 1.5, 2, 3, 4, 6, 8, 12, ... us. Bin i begins where bin i - 1 ends, bin 0 at zero. */
static double bin_end(int i)
{
    double octave = FIRST_NS * (double)(1ull << (i / 2));
    return i % 2 ? 1.5 * octave : octave;
}

/* The exponent and the first bit of the mantissa say it. */
static int bin_of(double ns)
{
    double x = ns / FIRST_NS;
    if (!(x > 1))
        return 0;
    if (x >= (double)(1ull << (ARRIVAL_BINS / 2)))
        return ARRIVAL_BINS;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int octave = (int)(bits >> 52) - 1023, half = (int)(bits >> 51) & 1;
    return 1 + 2 * octave + half;
}

static void hist_add(struct arrival_hist *h, double delay_ns, double horizon_ns, double rows)
{
    h->unit *= (float)(1.0 + rows / MEMORY);
    float w = (float)rows * h->unit;
    int i = bin_of(delay_ns);
    if (delay_ns > horizon_ns || i >= ARRIVAL_BINS)
        h->never += w;
    else
        h->bin[i] += w;
    h->total += w;
    if (h->unit > 1e12f) {
        float s = 1.0f / h->unit;
        for (int k = 0; k < ARRIVAL_BINS; k++)
            h->bin[k] *= s;
        h->never *= s;
        h->total *= s;
        h->unit = 1;
    }
}

void arrival_init(struct arrival_model *a)
{
    *a = (struct arrival_model){.rows_per_arrival = 1, .fresh_share = 1};
    hist_init(&a->returns);
    hist_init(&a->gaps);
}

static void drop_end(struct arrival_model *a)
{
    for (uint32_t i = 1; i < a->n_ends; i++)
        a->ends[i - 1] = a->ends[i];
    a->n_ends--;
}

/* Clients of ends older than the horizon have not come back. */
static void forget_ends(struct arrival_model *a, double now_ns, double horizon_ns)
{
    while (a->n_ends && (a->ends[0].away_rows <= 0 || now_ns - a->ends[0].at_ns > horizon_ns)) {
        if (a->ends[0].away_rows > 0)
            hist_add(&a->returns, INFINITY, horizon_ns, a->ends[0].away_rows);
        drop_end(a);
    }
}

/* An arrival that nobody was away for: it begins a burst or follows in one. */
static void note_burst(struct arrival_model *a, double now_ns, double horizon_ns)
{
    double gap = now_ns - a->last_fresh_ns;
    struct arrival_burst *at = &a->burst[MIN_OF(a->place, (uint32_t)ARRIVAL_BURST - 1)];
    bool follows = a->last_fresh_ns > 0 && gap <= horizon_ns / 4;
    if (a->last_fresh_ns > 0) {
        at->followed += (follows ? 1.0f : 0.0f) - at->followed / BURST_MEMORY;
        at->seen += 1.0f - at->seen / BURST_MEMORY;
    }
    if (follows)
        hist_add(&a->gaps, gap, horizon_ns, 1);
    a->place = follows ? a->place + 1 : 0;
    a->last_fresh_ns = now_ns;
}

void arrival_note(struct arrival_model *a, double now_ns, double rows, double span_ns, double horizon_ns)
{
    arrival_rate_add(&a->rate, now_ns, rows, span_ns);
    a->rows_per_arrival += (rows - a->rows_per_arrival) / 32;
    forget_ends(a, now_ns, horizon_ns);
    if (now_ns <= a->check_until_ns)
        a->check_came += rows;
    double fresh = rows;
    for (uint32_t i = 0; i < a->n_ends && fresh > 0; i++) {
        double back = MIN_OF(fresh, a->ends[i].away_rows);
        if (back <= 0)
            continue;
        hist_add(&a->returns, now_ns - a->ends[i].at_ns, horizon_ns, back);
        a->ends[i].away_rows -= back;
        fresh -= back;
    }
    a->fresh_share += (fresh / rows - a->fresh_share) / 64;
    note_burst(a, now_ns, horizon_ns);
}

static void accumulate(const struct arrival_hist *h, float *below)
{
    below[0] = 0;
    for (int i = 0; i < ARRIVAL_BINS; i++)
        below[i + 1] = below[i] + h->bin[i];
}

/* Weight of delays of at most `ns`, linear within a bin. */
static double weight_below(const float *below, double ns)
{
    int i = bin_of(ns);
    if (i >= ARRIVAL_BINS)
        return below[ARRIVAL_BINS];
    double lo = i ? bin_end(i - 1) : 0;
    return below[i] + (below[i + 1] - below[i]) * (ns - lo) / (bin_end(i) - lo);
}

/* A share `p` seen in `n` events, from below. */
static double from_below(double p, double n)
{
    p -= CERTAINTY * sqrt((p * (1 - p) + 1 / n) / n);
    return p > 0 ? p : 0;
}

/* Chance that a delay that has lasted `gone_ns` ends within another `t_ns`, from below. */
static double chance(const struct arrival_hist *h, const float *below, double gone_ns, double t_ns)
{
    double gone = weight_below(below, gone_ns), left = h->total - gone, n = left / h->unit;
    return n > 1 ? from_below((weight_below(below, gone_ns + t_ns) - gone) / left, n) : 0;
}

/* 0 when the returns predict no better than the mean rate, 1 when they leave half of its squared error or less. */
static double trust(const struct arrival_model *a)
{
    if (a->error_rate <= 0)
        return 1;
    double better = 2 * (1 - a->error_returns / a->error_rate);
    return MIN_OF(MAX_OF(better, 0.0), 1.0);
}

void arrival_look(struct arrival_view *v, const struct arrival_model *a, double now_ns, double span_ns)
{
    v->model = a;
    v->now_ns = now_ns;
    v->rate = arrival_rate_at(&a->rate, now_ns, span_ns);
    v->trust = trust(a);
    accumulate(&a->returns, v->returns);
    accumulate(&a->gaps, v->gaps);
}

double arrival_away(const struct arrival_model *a)
{
    double rows = 0;
    for (uint32_t i = 0; i < a->n_ends; i++)
        rows += a->ends[i].away_rows;
    return rows;
}

bool arrival_any(const struct arrival_model *a)
{
    const struct arrival_burst *at = &a->burst[MIN_OF(a->place, (uint32_t)ARRIVAL_BURST - 1)];
    return at->followed > 0.02f * at->seen || arrival_away(a) > 0;
}

static double away_within(const struct arrival_view *v, double t_ns)
{
    const struct arrival_model *a = v->model;
    double rows = 0;
    for (uint32_t i = 0; i < a->n_ends; i++)
        if (a->ends[i].away_rows > 0)
            rows += a->ends[i].away_rows * chance(&a->returns, v->returns, v->now_ns - a->ends[i].at_ns, t_ns);
    return rows;
}

double arrival_returns(const struct arrival_view *v, double t_ns)
{
    return v->trust * away_within(v, t_ns) + (1 - v->trust) * v->rate * t_ns;
}

double arrival_fresh(const struct arrival_view *v, double t_ns)
{
    return v->trust * v->model->fresh_share * v->rate * t_ns;
}

double arrival_next(const struct arrival_view *v, double t_ns)
{
    const struct arrival_model *a = v->model;
    const struct arrival_burst *at = &a->burst[MIN_OF(a->place, (uint32_t)ARRIVAL_BURST - 1)];
    if (a->last_fresh_ns <= 0 || at->seen < 2)
        return 0;
    double follows = from_below(at->followed / at->seen, at->seen);
    /* The longer nothing has come, the likelier it is that the burst is over: Bayes on the gap so far. */
    double gone = v->now_ns - a->last_fresh_ns, all = v->gaps[ARRIVAL_BINS];
    double not_yet = all > 0 ? 1 - weight_below(v->gaps, gone) / all : 0;
    double more = follows * not_yet / (follows * not_yet + 1 - follows + 1e-9);
    if (not_yet <= 0)
        return 0;
    double soon = (weight_below(v->gaps, gone + t_ns) - weight_below(v->gaps, gone)) / (all * not_yet);
    return a->rows_per_arrival * more * from_below(soon, all * not_yet / a->gaps.unit);
}

/* Close the window that has ended and open the next; `rows` that went out in the middle of one raise its prediction. */
static void check_prediction(struct arrival_model *a, double now_ns, double rows, double window_ns, double span_ns)
{
    struct arrival_view v;
    arrival_look(&v, a, now_ns, span_ns);
    if (now_ns <= a->check_until_ns) {
        a->check_returns += rows * chance(&a->returns, v.returns, 0, a->check_until_ns - now_ns);
        return;
    }
    if (a->check_until_ns > 0) {
        double by_returns = a->check_came - a->check_returns, by_rate = a->check_came - a->check_rate;
        a->error_returns += by_returns * by_returns - a->error_returns / CHECK_MEMORY;
        a->error_rate += by_rate * by_rate - a->error_rate / CHECK_MEMORY;
    }
    a->check_returns = away_within(&v, window_ns);
    a->check_rate = v.rate * window_ns;
    a->check_came = 0;
    a->check_until_ns = now_ns + window_ns;
}

void arrival_ended(struct arrival_model *a, double now_ns, double rows, double horizon_ns, double window_ns, double span_ns)
{
    forget_ends(a, now_ns, horizon_ns);
    if (a->n_ends == ARRIVAL_RING) {
        hist_add(&a->returns, INFINITY, horizon_ns, a->ends[0].away_rows);
        drop_end(a);
    }
    a->ends[a->n_ends++] = (struct arrival_end){now_ns, rows};
    check_prediction(a, now_ns, rows, window_ns, span_ns);
}
