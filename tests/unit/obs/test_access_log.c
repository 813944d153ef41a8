/* The access log: lines written by hand, completeness under many producers, and a sink that nobody reads. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <yyjson.h>

#include "obs/access_log.h"
#include "obs/access_log_priv.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/thread.h"

static struct access_record sample(void)
{
    struct access_record r = {.wall_ns = 1770091445678901234u, /* date -u -d @1770091445: 2026-02-03 04:04:05 */
                              .bytes_in = 204,
                              .bytes_out = 96,
                              .queue_ns = 12999,
                              .compute_ns = 850000,
                              .total_ns = 910500,
                              .status = 200};
    ACCESS_SET(r.request_id, STR("5f0c"));
    ACCESS_SET(r.peer, STR("127.0.0.1:4711"));
    ACCESS_SET(r.method, STR("POST"));
    ACCESS_SET(r.path, STR("/v2/models/r/infer"));
    ACCESS_SET(r.protocol, STR("kserve_http"));
    ACCESS_SET(r.model, STR("r"));
    ACCESS_SET(r.version, STR("1"));
    ACCESS_SET(r.traceparent, STR("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    return r;
}

static void renders(enum log_format format, const struct access_record *r, const char *want)
{
    struct buf b = {0};
    access__render(&b, format, r);
    assert_string_equal(buf_z(&b), want);
    buf_release(&b);
}

static void lines(void **state)
{
    (void)state;
    struct access_record r = sample(), bare = {.wall_ns = 1770091445000000000u, .status = 400};
    renders(
        LOG_FORMAT_TEXT, &r,
        "2026-02-03T04:04:05.678901Z 200 POST /v2/models/r/infer peer=127.0.0.1:4711 protocol=kserve_http model=r version=1 "
        "in=204 out=96 queue_us=12 compute_us=850 total_us=910 id=5f0c "
        "traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n");
    ACCESS_SET(r.error, STR("deadline"));
    ACCESS_SET(r.path, STR("/a\"\n\x1b[2J"));
    renders(LOG_FORMAT_JSON, &r,
            "{\"time\":\"2026-02-03T04:04:05.678901Z\",\"status\":200,\"method\":\"POST\",\"path\":\"/a\\\"\\n\\u001b[2J\","
            "\"peer\":\"127.0.0.1:4711\",\"protocol\":\"kserve_http\",\"model\":\"r\",\"version\":\"1\",\"bytes_in\":204,"
            "\"bytes_out\":96,\"queue_us\":12,\"compute_us\":850,\"total_us\":910,\"error\":\"deadline\",\"id\":\"5f0c\","
            "\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"}\n");
    renders(LOG_FORMAT_TEXT, &bare, "2026-02-03T04:04:05.000000Z 400 - - in=0 out=0 queue_us=0 compute_us=0 total_us=0\n");
}

static void fields_are_cut(void **state)
{
    (void)state;
    char field[6];
    access_field_set(field, sizeof field, STR("abcdefgh"));
    assert_string_equal(field, "abcde");
    access_field_set(field, sizeof field, STR("abcd\xc3\xa9")); /* not in the middle of a character */
    assert_string_equal(field, "abcd");
    access_field_set(field, sizeof field, (struct str){0});
    assert_string_equal(field, "");
}

static void the_worst_record_fits_a_line(void **state)
{
    (void)state;
    struct access_record r;
    memset(&r, 1, sizeof r); /* every byte a control character */
    char *const ends[] = {r.request_id + 63, r.peer + 63,  r.method + 15,      r.path + 255,   r.protocol + 23, r.model + 128,
                          r.version + 63,    r.error + 31, r.traceparent + 55, r.subject + 63, r.tenant + 64};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        *ends[i] = 0;
    for (int format = 0; format < 2; format++) {
        struct buf b = {0};
        access__render(&b, (enum log_format)format, &r);
        assert_in_range(b.n, 100, 4096);
        assert_non_null(strstr(buf_z(&b), "(unprintable)"));
        if (format == LOG_FORMAT_JSON) {
            yyjson_doc *doc = yyjson_read(b.p, b.n, 0);
            assert_non_null(doc);
            yyjson_doc_free(doc);
        }
        buf_release(&b);
    }
}

static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/inferd-test-XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    return fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    char moved[80];
    snprintf(moved, sizeof moved, "%s.1", path);
    unlink(path);
    unlink(moved);
    return 0;
}

static size_t count_lines(const char *file)
{
    struct buf b = {0};
    size_t n = 0;
    if (os_file_read(file, 64 << 20, &b, NULL) < 0)
        return 0;
    for (size_t i = 0; i < b.n; i++)
        n += b.p[i] == '\n';
    buf_release(&b);
    return n;
}

struct producer {
    struct access_log *log;
    struct os_thread thread;
    uint64_t n, worst_ns;
};

static void produce(void *arg)
{
    struct producer *p = arg;
    struct access_record r = sample();
    for (uint64_t i = 0; i < p->n; i++) {
        uint64_t before = os_thread_cpu_ns();
        access_log_write(p->log, &r);
        uint64_t took = os_thread_cpu_ns() - before;
        p->worst_ns = took > p->worst_ns ? took : p->worst_ns;
        if (i % 64 == 0)
            os_sleep_ns(100000); /* a server's pace, so that the writer sleeps and is woken many times */
    }
}

static void run_producers(struct access_log *l, struct producer *p, size_t n, uint64_t each)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (struct producer){.log = l, .n = each};
        assert_int_equal(os_thread_start(&p[i].thread, "io", produce, &p[i], NULL), 0);
    }
    for (size_t i = 0; i < n; i++)
        os_thread_join(&p[i].thread);
}

static void every_record_is_written_or_counted(void **state)
{
    (void)state;
    struct metrics *m = metrics_create();
    struct access_log *l;
    struct producer p[4];
    assert_int_equal(access_log_create(&(struct access_log_options){.path = path, .slots = 256, .metrics = m}, &l, NULL), 0);
    run_producers(l, p, 4, 5000);
    struct metric *lines_total = metrics_series(
        metrics_family(m, METRIC_COUNTER, "inferd_access_log_lines_total", "Access log lines written.", NULL, NULL, 0), NULL);
    struct metric *dropped_total =
        metrics_series(metrics_family(m, METRIC_COUNTER, "inferd_access_log_dropped_total", "", NULL, NULL, 0), NULL);
    access_log_destroy(l); /* flushes */
    size_t written = count_lines(path);
    assert_int_equal(metric_count(lines_total), written);
    assert_int_equal(written + metric_count(dropped_total), 20000);
    assert_true(written > 100);
    metrics_destroy(m);
    access_log_destroy(NULL);
    access_log_write(NULL, &(struct access_record){0});
    access_log_reopen(NULL);
}

static void wait_for_lines(const char *file, size_t n)
{
    for (int i = 0; i < 2000 && count_lines(file) < n; i++)
        os_sleep_ns(5000000);
    assert_int_equal(count_lines(file), n);
}

static void wakes_from_sleep_and_reopens(void **state)
{
    (void)state;
    struct access_log *l;
    struct access_record r = sample();
    char moved[80];
    assert_int_equal(access_log_create(&(struct access_log_options){.path = path}, &l, NULL), 0);
    for (size_t i = 1; i <= 20; i++) { /* each finds the writer asleep or about to be */
        access_log_write(l, &r);
        wait_for_lines(path, i);
        os_sleep_ns((i % 5) * 3000000);
    }
    snprintf(moved, sizeof moved, "%s.1", path);
    assert_int_equal(rename(path, moved), 0);
    access_log_reopen(l);
    for (int i = 0; i < 2000 && access(path, F_OK) < 0; i++)
        os_sleep_ns(5000000);
    access_log_write(l, &r);
    wait_for_lines(path, 1);
    assert_int_equal(count_lines(moved), 20);
    access_log_destroy(l);
}

/* A pipe that nobody reads: producers must not notice, drops are counted, destroy comes back. */
static void a_stalled_sink_never_blocks(void **state)
{
    (void)state;
    struct access_log *l;
    struct producer p[2];
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(reader >= 0);
    assert_int_equal(access_log_create(&(struct access_log_options){.path = path, .slots = 64}, &l, NULL), 0);
    uint64_t before = os_monotonic_ns();
    run_producers(l, p, 2, 3000);
    uint64_t took = os_monotonic_ns() - before;
    assert_true(took < 20000000000u);
    for (int i = 0; i < 2; i++) /* CPU time of one call: other processes on this machine don't count */
        assert_true(p[i].worst_ns < 50000000u);
    uint64_t dropped = access_log_dropped(l);
    assert_true(dropped > 6000 - 64 - 2 * 65536 / 200 - 200);
    before = os_monotonic_ns();
    access_log_destroy(l);
    assert_true(os_monotonic_ns() - before < 10000000000u); /* lingers one second */
    struct buf b = {0};
    assert_int_equal(os_file_read_fd(reader, "fifo", 1 << 20, &b, NULL), 0);
    assert_int_equal(b.p[b.n - 1], '\n'); /* whole lines only */
    buf_release(&b);
    close(reader);
}

/* Read whole lines until `n` were seen in all. */
static size_t read_lines(int fd, size_t seen, size_t n)
{
    char text[4096];
    uint64_t until = os_monotonic_ns() + 20000000000u;
    while (seen < n && os_monotonic_ns() < until) {
        ssize_t got = read(fd, text, sizeof text);
        for (ssize_t i = 0; i < got; i++)
            seen += text[i] == '\n';
        if (got <= 0)
            os_sleep_ns(1000000);
    }
    return seen;
}

/* The reader comes back: what pipe and ring held arrives, and nothing is lost any more. */
static void a_reader_that_returns(void **state)
{
    (void)state;
    struct access_log *l;
    struct access_record r = sample();
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(access_log_create(&(struct access_log_options){.path = path, .slots = 64}, &l, NULL), 0);
    size_t sent = 0;
    for (; access_log_dropped(l) < 10; sent++)
        access_log_write(l, &r);
    size_t dropped = access_log_dropped(l), seen = read_lines(reader, 0, sent - dropped);
    assert_int_equal(seen, sent - dropped);
    assert_true(seen >= 64);
    access_log_write(l, &r);
    assert_int_equal(read_lines(reader, seen, seen + 1), seen + 1);
    assert_int_equal(access_log_dropped(l), dropped);
    access_log_destroy(l);
    close(reader);
}

int main(void)
{
#define F(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(fields_are_cut),
        cmocka_unit_test(the_worst_record_fits_a_line),
        F(every_record_is_written_or_counted),
        F(wakes_from_sleep_and_reopens),
        F(a_stalled_sink_never_blocks),
        F(a_reader_that_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
