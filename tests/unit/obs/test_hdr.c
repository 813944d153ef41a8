/* The latency recorder against a sorted array (nearest rank, computed here) and figures worked out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "obs/hdr.h"

#define HOUR_NS 3600000000000u

static void small_values_are_exact(void **state)
{
    (void)state;
    struct hdr *h = hdr_create(HOUR_NS);
    for (uint64_t v = 1; v <= 1000; v++)
        hdr_record(h, v);
    assert_int_equal(hdr_percentile(h, 0), 1);
    assert_int_equal(hdr_percentile(h, 50), 500);
    assert_int_equal(hdr_percentile(h, 99), 990);
    assert_int_equal(hdr_percentile(h, 99.9), 999);
    assert_int_equal(hdr_percentile(h, 99.99), 1000);
    assert_int_equal(hdr_percentile(h, 100), 1000);
    assert_int_equal(h->min, 1);
    assert_int_equal(h->max, 1000);
    assert_true(hdr_mean(h) == 500.5);
    assert_true(fabs(hdr_stddev(h) - 288.6749902572095) < 1e-9); /* sqrt((1000^2 - 1) / 12) */
    assert_int_equal(hdr_count_at_or_below(h, 250), 250);
    hdr_destroy(h);
    hdr_destroy(NULL);
}

static void empty_and_clear(void **state)
{
    (void)state;
    struct hdr *h = hdr_create(0);
    assert_int_equal(hdr_percentile(h, 99), 0);
    assert_true(hdr_mean(h) == 0 && hdr_stddev(h) == 0);
    hdr_record(h, 7);
    hdr_clear(h);
    assert_int_equal(h->n, 0);
    assert_int_equal(hdr_percentile(h, 50), 0);
    hdr_destroy(h);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Three significant digits: within 1/1024 above the true value, never below it. */
static void percentiles_of_random_values(void **state)
{
    (void)state;
    static const double percents[] = {0, 1, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100};
    enum { N = 20000 };
    uint64_t *sorted = malloc(N * sizeof *sorted);
    struct rand r;
    rand_init(&r, 1);
    for (int round = 0; round < 5; round++) {
        struct hdr *h = hdr_create(HOUR_NS);
        for (size_t i = 0; i < N; i++) {
            sorted[i] = (uint64_t)exp(rand_f64(&r) * 28.9); /* 1 ns to about an hour, log-uniform */
            hdr_record(h, sorted[i]);
        }
        qsort(sorted, N, sizeof *sorted, by_value);
        for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
            size_t rank = (size_t)ceil(percents[i] * N / 100 - 1e-7);
            uint64_t want = sorted[rank ? rank - 1 : 0], got = hdr_percentile(h, percents[i]);
            assert_true(got >= want && (double)got <= (double)want * (1 + 1.0 / 1024));
        }
        hdr_destroy(h);
    }
    free(sorted);
}

/* Every power of two and its neighbours: the bucket's top is at or above, within the error, and buckets are in order. */
static void bucket_edges(void **state)
{
    (void)state;
    for (int bit = 0; bit < 63; bit++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t v = (1ull << bit) + (uint64_t)(int64_t)d;
            struct hdr *h = hdr_create(UINT64_MAX);
            hdr_record(h, v);
            hdr_record(h, UINT64_MAX);
            uint64_t top = hdr_percentile(h, 50);
            assert_true(top >= v && top - v <= v / 1024);
            assert_int_equal(hdr_count_at_or_below(h, v), 1);
            assert_true(hdr_percentile(h, 100) == UINT64_MAX);
            hdr_destroy(h);
        }
    }
}

static void values_over_the_top_are_clamped(void **state)
{
    (void)state;
    struct hdr *h = hdr_create(1000000);
    hdr_record(h, 5000000);
    hdr_record(h, 10);
    assert_int_equal(h->clamped, 1);
    assert_int_equal(h->max, 1000000);
    assert_int_equal(hdr_percentile(h, 100), 1000000);
    hdr_destroy(h);
}

/* A client that sends every 10 ms and is blocked once for 100 ms has hidden 100, 90, 80 ... 10. */
static void coordinated_omission(void **state)
{
    (void)state;
    struct hdr *h = hdr_create(HOUR_NS), *want = hdr_create(HOUR_NS);
    hdr_record_corrected(h, 100, 10);
    for (uint64_t v = 10; v <= 100; v += 10)
        hdr_record(want, v);
    assert_int_equal(h->n, 10);
    assert_memory_equal(h->counts, want->counts, h->n_counts * sizeof *h->counts);
    hdr_clear(h);
    hdr_record_corrected(h, 105, 10); /* 105, 95, ... 15 */
    assert_int_equal(h->n, 10);
    assert_int_equal(h->min, 15);
    hdr_clear(h);
    hdr_record_corrected(h, 9, 10);
    hdr_record_corrected(h, 10, 10);
    hdr_record_corrected(h, 1000, 0);
    assert_int_equal(h->n, 3);
    hdr_destroy(h);
    hdr_destroy(want);
}

static void merged_is_recorded_together(void **state)
{
    (void)state;
    struct hdr *a = hdr_create(HOUR_NS), *b = hdr_create(HOUR_NS), *both = hdr_create(HOUR_NS);
    struct rand r;
    rand_init(&r, 2);
    for (int i = 0; i < 5000; i++) {
        uint64_t v = rand_below(&r, 1u << (1 + rand_below(&r, 30)));
        hdr_record_n(i % 3 ? a : b, v, 1 + (uint64_t)i % 2);
        hdr_record_n(both, v, 1 + (uint64_t)i % 2);
    }
    hdr_merge(a, b);
    assert_int_equal(a->n, both->n);
    assert_int_equal(a->min, both->min);
    assert_int_equal(a->max, both->max);
    assert_memory_equal(a->counts, both->counts, a->n_counts * sizeof *a->counts);
    assert_true(fabs(hdr_mean(a) - hdr_mean(both)) < 1e-6 * hdr_mean(both));
    hdr_destroy(a);
    hdr_destroy(b);
    hdr_destroy(both);
}

static void memory_is_fixed(void **state)
{
    (void)state;
    struct hdr *h = hdr_create(HOUR_NS);
    assert_in_range(h->n_counts * sizeof *h->counts, 200000, 280000); /* the header promises 270 KiB */
    hdr_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_values_are_exact),          cmocka_unit_test(empty_and_clear),
        cmocka_unit_test(percentiles_of_random_values),    cmocka_unit_test(bucket_edges),
        cmocka_unit_test(values_over_the_top_are_clamped), cmocka_unit_test(coordinated_omission),
        cmocka_unit_test(merged_is_recorded_together),     cmocka_unit_test(memory_is_fixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
