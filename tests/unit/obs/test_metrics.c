/* Metrics: expected texts are written by hand after the Prometheus exposition format 0.0.4. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "obs/metrics.h"
#include "obs/process_metrics.h"
#include "os/thread.h"

#define VALUES(...) ((const char *const[]){__VA_ARGS__})
static const char *const model_labels[] = {"model", "version", NULL};

static void renders(struct metrics *m, const char *want)
{
    struct buf out = {0};
    metrics_render(m, &out);
    assert_string_equal(buf_z(&out), want);
    buf_release(&out);
}

static void empty_families_are_left_out(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    metrics_family(m, METRIC_COUNTER, "a_total", "A.", NULL, NULL, 0);
    renders(m, "");
    metrics_destroy(m);
    metrics_destroy(NULL);
}

static void counters_and_gauges(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct metric_family *c =
        metrics_family(m, METRIC_COUNTER, "inferd_requests_total", "Requests answered.", model_labels, NULL, 0);
    struct metric_family *g = metrics_family(m, METRIC_GAUGE, "inferd_queue_rows", "Rows waiting.", NULL, NULL, 0);
    assert_ptr_equal(c,
                     metrics_family(m, METRIC_COUNTER, "inferd_requests_total", "Requests answered.", model_labels, NULL, 0));
    struct metric *a = metrics_series(c, VALUES("resnet", "1")), *b = metrics_series(c, VALUES("bert", "2"));
    assert_ptr_equal(a, metrics_series(c, VALUES("resnet", "1")));
    assert_ptr_not_equal(a, b);
    metric_inc(a);
    metric_add(a, 41);
    metric_add(b, UINT64_MAX); /* counters are exact integers, also past 2^53 */
    struct metric *q = metrics_series(g, NULL);
    metric_set(q, 2.5);
    metric_adjust(q, -4);
    assert_int_equal(metric_count(a), 42);
    assert_true(metric_value(q) == -1.5);
    renders(m, "# HELP inferd_requests_total Requests answered.\n"
               "# TYPE inferd_requests_total counter\n"
               "inferd_requests_total{model=\"resnet\",version=\"1\"} 42\n"
               "inferd_requests_total{model=\"bert\",version=\"2\"} 18446744073709551615\n"
               "# HELP inferd_queue_rows Rows waiting.\n"
               "# TYPE inferd_queue_rows gauge\n"
               "inferd_queue_rows -1.5\n");
    metrics_destroy(m);
}

static void null_handles_do_nothing(void **state)
{
    (void)state;
    metric_inc(NULL);
    metric_set(NULL, 1);
    metric_adjust(NULL, 1);
    metric_observe(NULL, 1);
    assert_int_equal(metric_count(NULL), 0);
    assert_true(metric_value(NULL) == 0 && metric_sum(NULL) == 0 && metric_observations(NULL) == 0);
    assert_null(metrics_series(NULL, NULL));
    assert_null(metrics_histogram(NULL, NULL));
}

static void histogram_is_cumulative(void **state)
{
    (void)state;
    static const double bounds[] = {0.0001, 0.25, 1, 2.5};
    struct metrics *m = metrics_create();
    struct metric_family *f =
        metrics_family(m, METRIC_HISTOGRAM, "inferd_phase_seconds", "Time.", (const char *const[]){"phase", NULL}, bounds, 4);
    struct metric_family *bare = metrics_family(m, METRIC_HISTOGRAM, "inferd_batch_rows", "Rows.", NULL, bounds + 2, 1);
    struct metric_histogram *h = metrics_histogram(f, VALUES("queue"));
    static const double seen[] = {0.00005, 0.0001 /* le is inclusive */, 0.5, 0.5, 2.5, 3, 1e6};
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        metric_observe(h, seen[i]);
    metric_observe(metrics_histogram(bare, NULL), 1);
    assert_int_equal(metric_observations(h), 7);
    renders(m, "# HELP inferd_phase_seconds Time.\n"
               "# TYPE inferd_phase_seconds histogram\n"
               "inferd_phase_seconds_bucket{phase=\"queue\",le=\"0.0001\"} 2\n"
               "inferd_phase_seconds_bucket{phase=\"queue\",le=\"0.25\"} 2\n"
               "inferd_phase_seconds_bucket{phase=\"queue\",le=\"1\"} 4\n"
               "inferd_phase_seconds_bucket{phase=\"queue\",le=\"2.5\"} 5\n"
               "inferd_phase_seconds_bucket{phase=\"queue\",le=\"+Inf\"} 7\n"
               "inferd_phase_seconds_sum{phase=\"queue\"} 1000006.50015\n"
               "inferd_phase_seconds_count{phase=\"queue\"} 7\n"
               "# HELP inferd_batch_rows Rows.\n"
               "# TYPE inferd_batch_rows histogram\n"
               "inferd_batch_rows_bucket{le=\"1\"} 1\n"
               "inferd_batch_rows_bucket{le=\"+Inf\"} 1\n"
               "inferd_batch_rows_sum 1\n"
               "inferd_batch_rows_count 1\n");
    metrics_destroy(m);
}

static void nan_is_dropped_and_counted(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct metric_histogram *h = metrics_histogram(
        metrics_family(m, METRIC_HISTOGRAM, "t_seconds", "T.", NULL, METRICS_LATENCY_BOUNDS, METRICS_LATENCY_BOUNDS_N), NULL);
    uint64_t before = check_warnings();
    metric_observe(h, NAN);
    assert_int_equal(metric_observations(h), 0);
    assert_int_equal(check_warnings(), before + 1);
    metrics_destroy(m);
}

static void special_values_and_escapes(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct metric_family *f =
        metrics_family(m, METRIC_GAUGE, "g", "Line\none, \\ and \"quotes\".", (const char *const[]){"l", NULL}, NULL, 0);
    metric_set(metrics_series(f, VALUES("a\"b\\c\nd")), NAN);
    metric_set(metrics_series(f, VALUES("caf\xc3\xa9 \xff\xc3")), INFINITY);
    assert_ptr_equal(metrics_series(f, VALUES("\xff")),
                     metrics_series(f, VALUES("\xfe"))); /* they look the same, so they are */
    metrics_drop(m, "l", "\xc0");
    metric_set(metrics_series(f, VALUES("")), -INFINITY);
    metric_set(metrics_series(f, VALUES("third")), 1.0 / 3);
    metric_set(metrics_series(f, VALUES("tenth")), 0.1);
    metric_set(metrics_series(f, VALUES("big")), 17179869184.0);
    renders(m, "# HELP g Line\\none, \\\\ and \"quotes\".\n"
               "# TYPE g gauge\n"
               "g{l=\"a\\\"b\\\\c\\nd\"} NaN\n"
               "g{l=\"caf\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\"} +Inf\n"
               "g{l=\"\"} -Inf\n"
               "g{l=\"third\"} 0.3333333333333333\n"
               "g{l=\"tenth\"} 0.1\n"
               "g{l=\"big\"} 17179869184\n");
    metrics_destroy(m);
}

static void drop_by_label(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct metric_family *f = metrics_family(m, METRIC_COUNTER, "a_total", "A.", model_labels, NULL, 0);
    struct metric_family *g =
        metrics_family(m, METRIC_GAUGE, "b", "B.", (const char *const[]){"other", "model", NULL}, NULL, 0);
    for (int i = 0; i < 2; i++) {
        metrics_series(f, VALUES("x", i ? "2" : "1"));
        metrics_series(f, VALUES("y", i ? "2" : "1"));
    }
    metrics_series(g, VALUES("y", "x"));
    metrics_series(g, VALUES("x", "y"));
    metrics_drop2(m, "model", "x", "version", "1");
    renders(m,
            "# HELP a_total A.\n# TYPE a_total counter\n"
            "a_total{model=\"y\",version=\"1\"} 0\na_total{model=\"x\",version=\"2\"} 0\na_total{model=\"y\",version=\"2\"} 0\n"
            "# HELP b B.\n# TYPE b gauge\nb{other=\"y\",model=\"x\"} 0\nb{other=\"x\",model=\"y\"} 0\n");
    metrics_drop(m, "model", "y");
    renders(m, "# HELP a_total A.\n# TYPE a_total counter\na_total{model=\"x\",version=\"2\"} 0\n"
               "# HELP b B.\n# TYPE b gauge\nb{other=\"y\",model=\"x\"} 0\n");
    metrics_drop(m, "model", "x");
    renders(m, "");
    metrics_series(f, VALUES("x", "2")); /* comes back from zero */
    renders(m, "# HELP a_total A.\n# TYPE a_total counter\na_total{model=\"x\",version=\"2\"} 0\n");
    metrics_destroy(m);
}

static void a_family_is_bounded(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct metric_family *f = metrics_family(m, METRIC_COUNTER, "a_total", "A.", (const char *const[]){"user", NULL}, NULL, 0);
    char name[16];
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_non_null(metrics_series(f, VALUES(name)));
    }
    assert_null(metrics_series(f, VALUES("one more")));
    assert_non_null(metrics_series(f, VALUES("17"))); /* what is there is still found */
    struct buf out = {0};
    metrics_render(m, &out);
    assert_non_null(strstr(buf_z(&out), "\ninferd_metrics_refused_series_total 1\n"));
    buf_release(&out);
    metrics_drop(m, "user", "17");
    assert_non_null(metrics_series(f, VALUES("one more")));
    metrics_destroy(m);
}

static void refresh(void *ctx)
{
    struct metrics *m = ctx; /* a hook may register and find series */
    metric_inc(metrics_series(metrics_family(m, METRIC_COUNTER, "scrapes_total", "S.", NULL, NULL, 0), NULL));
}

static void extra(void *ctx, struct buf *out)
{
    buf_append_z(out, ctx);
}

static void hooks(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    static const char text[] = "# HELP x X.\n# TYPE x gauge\nx 1\n";
    metrics_on_scrape(m, refresh, m);
    metrics_on_render(m, extra, (void *)(uintptr_t)text);
    renders(m, "# HELP scrapes_total S.\n# TYPE scrapes_total counter\nscrapes_total 1\n# HELP x X.\n# TYPE x gauge\nx 1\n");
    metrics_unhook(m, text);
    renders(m, "# HELP scrapes_total S.\n# TYPE scrapes_total counter\nscrapes_total 2\n");
    metrics_unhook(m, m);
    renders(m, "# HELP scrapes_total S.\n# TYPE scrapes_total counter\nscrapes_total 2\n");
    metrics_destroy(m);
}

/* Writers, scrapers, loads and unloads at once: no count is lost, and every scrape is consistent in itself. */
struct race {
    struct metrics *m;
    struct metric *counter, *gauge;
    struct metric_histogram *h;
    _Atomic int stop;
};

static void update(void *arg)
{
    struct race *r = arg;
    for (int i = 0; i < 20000; i++) {
        metric_inc(r->counter);
        metric_adjust(r->gauge, 0.5);
        metric_observe(r->h, 0.001);
    }
}

static void churn(void *arg)
{
    struct race *r = arg;
    struct metric_family *f = metrics_family(r->m, METRIC_COUNTER, "a_total", "A.", model_labels, NULL, 0);
    while (!r->stop) {
        metric_inc(metrics_series(f, VALUES("churned", "1")));
        metrics_drop(r->m, "model", "churned");
        metrics_on_scrape(r->m, refresh, r->m);
        metrics_unhook(r->m, r->m);
    }
}

static void scrape(void *arg)
{
    struct race *r = arg;
    struct buf out = {0};
    while (!r->stop) {
        unsigned long long inf = 0, count = 1;
        buf_clear(&out);
        metrics_render(r->m, &out);
        sscanf(strstr(buf_z(&out), "le=\"+Inf\"} "), "le=\"+Inf\"} %llu", &inf);
        sscanf(strstr(buf_z(&out), "t_seconds_count "), "t_seconds_count %llu", &count);
        assert_int_equal(inf, count);
    }
    buf_release(&out);
}

static void concurrent(void **state)
{
    (void)state;
    struct race r = {.m = metrics_create()};
    struct metric_family *f = metrics_family(r.m, METRIC_COUNTER, "a_total", "A.", model_labels, NULL, 0);
    r.counter = metrics_series(f, VALUES("kept", "1"));
    r.gauge = metrics_series(metrics_family(r.m, METRIC_GAUGE, "g", "G.", NULL, NULL, 0), NULL);
    r.h = metrics_histogram(
        metrics_family(r.m, METRIC_HISTOGRAM, "t_seconds", "T.", NULL, METRICS_LATENCY_BOUNDS, METRICS_LATENCY_BOUNDS_N), NULL);
    struct os_thread t[6];
    void (*const run[])(void *) = {update, update, update, churn, scrape, scrape};
    for (int i = 0; i < 6; i++)
        assert_int_equal(os_thread_start(&t[i], "race", run[i], &r, NULL), 0);
    for (int i = 0; i < 3; i++)
        os_thread_join(&t[i]);
    r.stop = 1;
    for (int i = 3; i < 6; i++)
        os_thread_join(&t[i]);
    assert_int_equal(metric_count(r.counter), 60000);
    assert_true(metric_value(r.gauge) == 30000);
    assert_int_equal(metric_observations(r.h), 60000);
    assert_true(fabs(metric_sum(r.h) - 60) < 1e-6);
    metrics_destroy(r.m);
}

/* The judge of the format is Prometheus' own checker, where it is installed (./dev puts .deps/bin on the path). */
static void promtool_accepts(void **state)
{
    (void)state;
    static const char *const names[] = {"a\"b\\c\nd", "caf\xc3\xa9", "\xff", ""};
    struct metrics *m = metrics_create();
    struct process_metrics *p = process_metrics_create(m, "1.2.3", "abc");
    struct metric_family *c =
        metrics_family(m, METRIC_COUNTER, "inferd_requests_total", "Requests: \\ and\nnewline.", model_labels, NULL, 0);
    struct metric_family *g = metrics_family(m, METRIC_GAUGE, "inferd_ratio", "A ratio.", model_labels, NULL, 0);
    struct metric_family *h = metrics_family(m, METRIC_HISTOGRAM, "inferd_phase_seconds", "Time of a phase.", model_labels,
                                             METRICS_LATENCY_BOUNDS, METRICS_LATENCY_BOUNDS_N);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        metric_add(metrics_series(c, VALUES(names[i], "1")), i);
        metric_set(metrics_series(g, VALUES(names[i], "1")), i ? 1.0 / (double)i : NAN);
        metric_observe(metrics_histogram(h, VALUES(names[i], "1")), 0.003 * (double)i);
    }
    struct buf out = {0};
    metrics_render(m, &out);
    if (system("command -v promtool >/dev/null 2>&1") == 0) {
        FILE *check = popen("promtool check metrics", "w");
        assert_non_null(check);
        assert_int_equal(fwrite(out.p, 1, out.n, check), out.n);
        assert_int_equal(pclose(check), 0);
    } else {
        print_message("promtool is not installed: not checked\n");
    }
    buf_release(&out);
    process_metrics_destroy(p);
    metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_families_are_left_out),
        cmocka_unit_test(counters_and_gauges),
        cmocka_unit_test(null_handles_do_nothing),
        cmocka_unit_test(histogram_is_cumulative),
        cmocka_unit_test(nan_is_dropped_and_counted),
        cmocka_unit_test(special_values_and_escapes),
        cmocka_unit_test(drop_by_label),
        cmocka_unit_test(a_family_is_bounded),
        cmocka_unit_test(hooks),
        cmocka_unit_test(concurrent),
        cmocka_unit_test(promtool_accepts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
