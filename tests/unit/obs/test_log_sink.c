/* Log lines: expected lines are written by hand; 1770091445 s after 1970 is 2026-02-03T04:04:05Z (date -u -d @1770091445). */
#include <fcntl.h>
#include <math.h>
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

#include <yyjson.h>

#include "base/rand.h"
#include "base/status.h"
#include "obs/log_sink.h"
#include "obs/log_sink_priv.h"
#include "obs/text_priv.h"
#include "os/clock.h"
#include "os/file.h"

#define WHEN        1770091445678901234u
#define FIELDS(...) ((const struct log_field[]){__VA_ARGS__, {.key = NULL}})

static void text_line(const struct log_field *fields, const char *want)
{
    struct buf b = {0};
    log__render_text(&b, WHEN, false, LOG_INFO, "model_ready", fields);
    assert_string_equal(buf_z(&b), want);
    buf_release(&b);
}

static void json_line(const struct log_field *fields, const char *want)
{
    struct buf b = {0};
    log__render_json(&b, WHEN, LOG_WARN, "model_ready", fields);
    assert_string_equal(buf_z(&b), want);
    buf_release(&b);
}

#define T "2026-02-03T04:04:05.678901Z INFO  model_ready"
#define J "{\"time\":\"2026-02-03T04:04:05.678901Z\",\"level\":\"warn\",\"event\":\"model_ready\""

static void renders_every_kind(void **state)
{
    (void)state;
    const struct log_field all[] = {
        LOG_S("model", "resnet"), LOG_I("delta", INT64_MIN), LOG_U("rows", UINT64_MAX), LOG_F("ms", 0.1),
        LOG_F("nan", NAN),        LOG_B("ok", true),         LOG_S("null", NULL),       {.key = NULL}};
    text_line(all, T " model=resnet delta=-9223372036854775808 rows=18446744073709551615 ms=0.1 nan=null ok=true null=\"\"\n");
    json_line(all,
              J ",\"model\":\"resnet\",\"delta\":-9223372036854775808,\"rows\":18446744073709551615,\"ms\":0.1,\"nan\":null,"
                "\"ok\":true,\"null\":\"\"}\n");
    text_line((const struct log_field[]){{.key = NULL}}, T "\n");
    json_line((const struct log_field[]){{.key = NULL}}, J "}\n");
}

static void nothing_forges_a_line(void **state)
{
    (void)state;
    text_line(FIELDS(LOG_S("id", "a\nINFO faked=1")), T " id=\"a\\nINFO faked=1\"\n");
    text_line(FIELDS(LOG_S("id", "x=1")), T " id=\"x=1\"\n");
    text_line(FIELDS(LOG_S("id", "\033[31m\x7f\xc2\x9b")), T " id=\"\\u001b[31m\\u007f\\u009b\"\n");
    text_line(FIELDS(LOG_S("id", "caf\xc3\xa9")), T " id=\"caf\xc3\xa9\"\n");
    text_line(FIELDS(LOG_STR("id", ((struct str){"a\0b", 3}))), T " id=\"a\\u0000b\"\n");
    text_line(FIELDS(LOG_S("id", "\xff")), T " id=\"\xef\xbf\xbd\"\n");
    json_line(FIELDS(LOG_S("id", "\"\\\n\033\xff")), J ",\"id\":\"\\\"\\\\\\n\\u001b\xef\xbf\xbd\"}\n");
}

static void colours(void **state)
{
    (void)state;
    struct buf b = {0};
    log__render_text(&b, WHEN, true, LOG_ERROR, "boom", (const struct log_field[]){{.key = NULL}});
    assert_string_equal(buf_z(&b), "2026-02-03T04:04:05.678901Z \033[31mERROR\033[0m boom\n");
    buf_release(&b);
}

/* Whatever the values are, a line has at most 4096 bytes, one newline at its end, and JSON parses. */
static void lines_are_bounded_and_valid(void **state)
{
    (void)state;
    struct rand r;
    char *big = malloc(6000);
    rand_init(&r, 3);
    for (int round = 0; round < 300; round++) {
        for (size_t i = 0; i < 6000; i++)
            big[i] = (char)(round % 3 == 0 ? 1 : round % 3 == 1 ? 'a' : (int)rand_below(&r, 256));
        struct log_field f[7] = {{.key = NULL}};
        size_t n = rand_below(&r, 7);
        for (size_t i = 0; i < n; i++)
            f[i] = (struct log_field)LOG_STR("key", ((struct str){big, rand_below(&r, 6000)}));
        f[n].key = NULL;
        for (int json = 0; json < 2; json++) {
            struct buf b = {0};
            if (json)
                log__render_json(&b, WHEN, LOG_INFO, "e", f);
            else
                log__render_text(&b, WHEN, true, LOG_INFO, "e", f);
            assert_true(b.n <= 4096);
            assert_ptr_equal(memchr(b.p, '\n', b.n), b.p + b.n - 1);
            yyjson_doc *doc = json ? yyjson_read(b.p, b.n, 0) : NULL;
            assert_true(!json || doc);
            yyjson_doc_free(doc);
            buf_release(&b);
        }
    }
    free(big);
}

static void long_values_are_cut(void **state)
{
    (void)state;
    char value[1100];
    struct buf b = {0};
    memset(value, 'v', sizeof value);
    memcpy(value + 1023, "\xc3\xa9", 2); /* the cut would fall into a character */
    log__render_text(&b, WHEN, false, LOG_INFO, "e", FIELDS(LOG_STR("k", ((struct str){value, sizeof value}))));
    assert_non_null(strstr(buf_z(&b), "vvv...\n"));
    assert_int_equal(b.n, strlen("2026-02-03T04:04:05.678901Z INFO  e k=") + 1023 + 4);
    buf_release(&b);
}

/* Every day for 400 years, and odd moments, against the C library's calendar. */
static void times_are_the_calendars(void **state)
{
    (void)state;
    for (uint64_t day = 0; day < 146097; day++) {
        uint64_t seconds = day * 86400 + day * 7919 % 86400;
        struct tm tm;
        char want[40];
        struct buf b = {0};
        if (seconds > UINT64_MAX / 1000000000u)
            break;
        gmtime_r(&(time_t){(time_t)seconds}, &tm);
        strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S.000009Z", &tm);
        text__append_time(&b, seconds * 1000000000u + 9999);
        assert_string_equal(buf_z(&b), want);
        buf_release(&b);
    }
}

static char path[64];

static void read_log(struct buf *b)
{
    buf_clear(b);
    assert_int_equal(os_file_read(path, 1 << 20, b, NULL), 0);
    buf_z(b);
}

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

static void writes_levels_and_reopens(void **state)
{
    (void)state;
    struct log_sink *s;
    struct error err;
    struct buf b = {0};
    char moved[80];
    assert_int_equal(log_sink_create(&(struct log_sink_options){.path = path, .level = LOG_INFO}, &s, &err), 0);
    struct logger *lg = log_sink_logger(s);
    LOG(lg, LOG_DEBUG, "unseen");
    LOG(lg, LOG_INFO, "first", LOG_U("n", 1));
    lg->level = LOG_DEBUG;
    LOG(lg, LOG_DEBUG, "second");
    read_log(&b);
    assert_null(strstr(b.p, "unseen"));
    assert_non_null(strstr(b.p, " INFO  first n=1\n"));
    assert_non_null(strstr(b.p, " DEBUG second\n"));
    snprintf(moved, sizeof moved, "%s.1", path);
    assert_int_equal(rename(path, moved), 0);
    LOG(lg, LOG_INFO, "into_the_old_file");
    assert_int_equal(log_sink_reopen(s, &err), 0);
    LOG(lg, LOG_INFO, "into_the_new_file");
    read_log(&b);
    assert_null(strstr(b.p, "into_the_old_file"));
    assert_non_null(strstr(b.p, "into_the_new_file"));
    log_sink_destroy(s);
    log_sink_destroy(NULL);
    assert_int_equal(log_sink_create(&(struct log_sink_options){.path = "/nonexistent/x"}, &s, &err), STATUS_NOT_FOUND);
    buf_release(&b);
}

static uint64_t second_now(void)
{
    return os_wall_ns() / 1000000000u;
}

static void floods_are_counted(void **state)
{
    (void)state;
    struct log_sink *s;
    struct buf b = {0};
    uint64_t first;
    do { /* until a burst lies within one second of the clock */
        assert_int_equal(truncate(path, 0), 0);
        assert_int_equal(log_sink_create(&(struct log_sink_options){.path = path, .max_per_second = 10}, &s, NULL), 0);
        first = second_now();
        for (int i = 0; i < 1000; i++)
            LOG(log_sink_logger(s), LOG_WARN, "bad_request");
        if (second_now() == first)
            break;
        log_sink_destroy(s);
    } while (true);
    LOG(log_sink_logger(s), LOG_WARN, "another_event");
    while (second_now() == first)
        os_sleep_ns(1000000);
    LOG(log_sink_logger(s), LOG_WARN, "bad_request");
    read_log(&b);
    size_t lines = 0;
    for (const char *at = b.p; (at = strstr(at, " bad_request\n")); at++)
        lines++;
    assert_int_equal(lines, 11);
    assert_non_null(strstr(b.p, " log_suppressed of=bad_request records=990\n"));
    assert_non_null(strstr(b.p, " another_event\n"));
    log_sink_destroy(s);
    buf_release(&b);
}

/* stderr is a pipe that nobody reads: logging must go on, drop and count, and say so when the reader is back. */
static void a_stalled_reader_costs_records_only(void **state)
{
    (void)state;
    struct log_sink *s;
    int ends[2], old = dup(STDERR_FILENO);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    dup2(ends[1], STDERR_FILENO);
    assert_int_equal(log_sink_create(&(struct log_sink_options){.format = LOG_FORMAT_JSON}, &s, NULL), 0);
    dup2(old, STDERR_FILENO);
    close(old);
    close(ends[1]);
    uint64_t before = os_monotonic_ns();
    for (int i = 0; i < 5000; i++)
        LOG(log_sink_logger(s), LOG_INFO, "tick", LOG_S("filler", "0123456789012345678901234567890123456789"));
    assert_true(os_monotonic_ns() - before < 5000000000u);
    uint64_t dropped = log_sink_dropped(s);
    assert_true(dropped > 1000);
    struct buf b = {0};
    char piece[65536];
    ssize_t got = read(ends[0], piece, sizeof piece); /* make room */
    assert_true(got > 0 && piece[0] == '{');
    LOG(log_sink_logger(s), LOG_INFO, "after");
    assert_int_equal(log_sink_dropped(s), dropped);
    log_sink_destroy(s);
    assert_int_equal(os_file_read_fd(ends[0], "pipe", 1 << 20, &b, NULL), 0);
    char want[100];
    snprintf(want, sizeof want, "\"event\":\"log_dropped\",\"records\":%llu}\n", (unsigned long long)dropped);
    assert_non_null(strstr(buf_z(&b), want));
    assert_non_null(strstr(b.p, "\"event\":\"after\"}\n"));
    buf_release(&b);
    close(ends[0]);
}

int main(void)
{
#define F(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_every_kind),
        cmocka_unit_test(nothing_forges_a_line),
        cmocka_unit_test(colours),
        cmocka_unit_test(times_are_the_calendars),
        cmocka_unit_test(lines_are_bounded_and_valid),
        cmocka_unit_test(long_values_are_cut),
        F(writes_levels_and_reopens),
        F(floods_are_counted),
        cmocka_unit_test(a_stalled_reader_costs_records_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
