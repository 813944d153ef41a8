/* bench_openai_stats.c: the arithmetic of `inferd bench --openai`. Pure. */
#include <math.h>
#include <stdlib.h>

#include "cli/bench_openai.h"

double bench_tpot_ns(const struct bench_sample *s)
{
    return s->output_tok > 1 ? (double)(s->e2e_ns - s->ttft_ns) / (s->output_tok - 1) : 0;
}

bool bench_is_good(const struct bench_sample *s, const struct bench_limits *l)
{
    return (!l->ttft_ns || s->ttft_ns <= l->ttft_ns) && (!l->e2e_ns || s->e2e_ns <= l->e2e_ns) &&
           (!l->tpot_ns || bench_tpot_ns(s) <= (double)l->tpot_ns);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *v, size_t n, double p)
{
    double at = p / 100 * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? v[i] + (v[i + 1] - v[i]) * (at - (double)i) : v[n - 1];
}

void bench_summarise(double *v, size_t n, struct bench_summary *out)
{
    double sum = 0, squares = 0;
    *out = (struct bench_summary){0};
    if (!n)
        return;
    qsort(v, n, sizeof *v, ascending);
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    out->mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (v[i] - out->mean) * (v[i] - out->mean);
    out->std = sqrt(squares / (double)n);
    out->median = percentile(v, n, 50);
    out->p90 = percentile(v, n, 90);
    out->p95 = percentile(v, n, 95);
    out->p99 = percentile(v, n, 99);
}
