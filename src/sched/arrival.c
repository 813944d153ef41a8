/* arrival.c: see arrival.h. */
#include "sched/arrival.h"

#include <math.h>

#include "base/size.h"

#define FIRST_NS    1000.0 /* upper end of bin 0 */
#define MEMORY      64.0   /* events that a histogram remembers */
#define PRIOR_NEVER 4.0f   /* pretended events that never came: no waiting on thin evidence */

void arrival_rate_add(struct arrival_rate *r, double now_ns, double rows, double span_ns)
{
    r->rows_per_ns = arrival_rate_at(r, now_ns, span_ns) + rows / span_ns;
    r->last_ns = now_ns;
}

double arrival_rate_at(const struct arrival_rate *r, double now_ns, double span_ns)
{
    double dt = now_ns - r->last_ns;
    return dt > 0 ? r->rows_per_ns * exp(-dt / span_ns) : r->rows_per_ns;
}

static void hist_init(struct arrival_hist *h)
{
    *h = (struct arrival_hist){.never = PRIOR_NEVER, .total = PRIOR_NEVER, .unit = 1};
}

/* Upper end of bin i: 1 us x 2^(i/2). */
static double bin_end(int i)
{
    return i % 2 ? ldexp(FIRST_NS * 1.4142135623730951, i / 2) : ldexp(FIRST_NS, i / 2);
}

static int bin_of(double ns)
{
    if (ns <= FIRST_NS)
        return 0;
    int e;
    double f = frexp(ns / FIRST_NS, &e); /* ns = FIRST * f * 2^e, f in [0.5, 1) */
    int i = 2 * (e - 1) + (f > 0.7071067811865476 ? 2 : 1);
    return f == 0.5 ? i - 1 : i;
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

/* Weight of delays of at most `ns`, linear within a bin. */
static double hist_below(const struct arrival_hist *h, double ns)
{
    int last = bin_of(ns);
    double sum = 0;
    for (int i = 0; i < last && i < ARRIVAL_BINS; i++)
        sum += h->bin[i];
    if (last < ARRIVAL_BINS) {
        double lo = last ? bin_end(last - 1) : 0;
        sum += h->bin[last] * (ns - lo) / (bin_end(last) - lo);
    }
    return sum;
}

/* Chance that a delay that has lasted `gone_ns` ends within another `t_ns`. */
static double hist_chance(const struct arrival_hist *h, double gone_ns, double t_ns)
{
    double gone = hist_below(h, gone_ns), left = h->total - gone;
    return left > 1e-6 * h->total ? (hist_below(h, gone_ns + t_ns) - gone) / left : 0;
}

void arrival_init(struct arrival_model *a)
{
    *a = (struct arrival_model){.rows_per_arrival = 1};
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

void arrival_note(struct arrival_model *a, double now_ns, double rows, double span_ns, double horizon_ns)
{
    arrival_rate_add(&a->rate, now_ns, rows, span_ns);
    if (a->last_arrival_ns > 0)
        hist_add(&a->gaps, now_ns - a->last_arrival_ns, horizon_ns, 1);
    a->last_arrival_ns = now_ns;
    a->rows_per_arrival += (rows - a->rows_per_arrival) / 32;
    forget_ends(a, now_ns, horizon_ns);
    for (uint32_t i = 0; i < a->n_ends && rows > 0; i++) {
        double back = MIN_OF(rows, a->ends[i].away_rows);
        if (back <= 0)
            continue;
        hist_add(&a->returns, now_ns - a->ends[i].at_ns, horizon_ns, back);
        a->ends[i].away_rows -= back;
        rows -= back;
    }
}

void arrival_ended(struct arrival_model *a, double now_ns, double rows, double horizon_ns)
{
    forget_ends(a, now_ns, horizon_ns);
    if (a->n_ends == ARRIVAL_RING) {
        hist_add(&a->returns, INFINITY, horizon_ns, a->ends[0].away_rows);
        drop_end(a);
    }
    a->ends[a->n_ends++] = (struct arrival_end){now_ns, rows};
}

double arrival_returns(const struct arrival_model *a, double now_ns, double t_ns)
{
    double rows = 0;
    for (uint32_t i = 0; i < a->n_ends; i++)
        if (a->ends[i].away_rows > 0)
            rows += a->ends[i].away_rows * hist_chance(&a->returns, now_ns - a->ends[i].at_ns, t_ns);
    return rows;
}

double arrival_next(const struct arrival_model *a, double now_ns, double t_ns)
{
    if (a->last_arrival_ns <= 0)
        return 0;
    return a->rows_per_arrival * hist_chance(&a->gaps, now_ns - a->last_arrival_ns, t_ns);
}
