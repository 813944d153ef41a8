/* The process's figures as a scrape shows them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "obs/metrics.h"
#include "obs/process_metrics.h"

static double value_of(const char *text, const char *name)
{
    char line[100];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    assert_non_null(at);
    return strtod(at + strlen(line), NULL);
}

static void a_scrape_is_fresh(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct process_metrics *p = process_metrics_create(m, "1.2.3", "abc");
    struct buf a = {0}, b = {0};
    metrics_render(m, &a);
    const char *text = buf_z(&a);
    assert_non_null(strstr(text, "\n# TYPE process_cpu_seconds_total counter\n"));
    assert_non_null(strstr(text, "\n# TYPE process_resident_memory_bytes gauge\n"));
    assert_non_null(strstr(text, "\ninferd_build_info{version=\"1.2.3\",build_id=\"abc\"} 1\n"));
    assert_true(value_of(text, "process_resident_memory_bytes") > 100000);
    assert_true(value_of(text, "process_open_fds") >= 3);
    assert_true(value_of(text, "process_max_fds") >= value_of(text, "process_open_fds"));
    assert_true(value_of(text, "process_threads") >= 1);
    double age = (double)time(NULL) - value_of(text, "process_start_time_seconds");
    assert_true(age > -3 && age < 300);
    double warnings = value_of(text, "inferd_warnings_total");
    volatile int one = 1;
    clock_t start = clock();
    while (clock() - start < CLOCKS_PER_SEC / 20) /* 50 ms of CPU */
        one = 1;
    (void)WARN_ON(one == 1);
    metrics_render(m, &b);
    assert_true(value_of(buf_z(&b), "process_cpu_seconds_total") >= value_of(text, "process_cpu_seconds_total") + 0.049);
    assert_true(value_of(b.p, "inferd_warnings_total") == warnings + 1);
    process_metrics_destroy(p);
    process_metrics_destroy(NULL);
    metrics_destroy(m);
    buf_release(&a);
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_scrape_is_fresh)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
