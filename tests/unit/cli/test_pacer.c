/* Arrival schedules: the constant one exactly, the Poisson one against the exponential distribution's own figures. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cli/pacer.h"

static void constant(void **state)
{
    (void)state;
    struct pacer p;
    pacer_init(&p, 3, false, 1, 1000); /* 1/3 s: no rate may drift by rounding */
    for (int i = 1; i <= 300000; i++) {
        assert_true(fabs((double)pacer_at_ns(&p) - (1000 + (double)i * 1e9 / 3)) < 50);
        pacer_advance(&p);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void poisson(void **state)
{
    (void)state;
    enum { N = 200000 };
    double *gap = malloc(N * sizeof *gap), sum = 0, squares = 0, worst = 0;
    struct pacer p;
    pacer_init(&p, 1000, true, 7, 0);
    double last = 0;
    for (int i = 0; i < N; i++) {
        gap[i] = (p.at_ns - last) / 1e6; /* of the mean, 1 ms */
        last = p.at_ns;
        sum += gap[i];
        squares += gap[i] * gap[i];
        pacer_advance(&p);
    }
    /* mean 1, variance 1: standard errors 1/sqrt(N) = 0.0022 and sqrt(8/N) = 0.0063 */
    assert_true(fabs(sum / N - 1) < 0.01);
    assert_true(fabs(squares / N - (sum / N) * (sum / N) - 1) < 0.03);
    qsort(gap, N, sizeof *gap, compare);
    for (int i = 0; i < N; i++) /* Kolmogorov-Smirnov: 1.95 / sqrt(N) = 0.0044 at one in a thousand */
        worst = fmax(worst, fabs((1 - exp(-gap[i])) - (i + 0.5) / N));
    assert_true(worst < 0.0044);
    free(gap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(constant), cmocka_unit_test(poisson)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
