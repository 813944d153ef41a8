/* The status table, error sentences, the assert ladder, sizes, the log macro and fault points. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "base/str.h"

/* HTTP codes as RFC 9110 and 6585 name them (499 is nginx's), gRPC codes as grpc/status.h numbers them. */
static void the_table(void **state)
{
    (void)state;
    enum {
        OK,
        CANCELLED,
        UNKNOWN,
        INVALID_ARGUMENT,
        DEADLINE_EXCEEDED,
        NOT_FOUND,
        ALREADY_EXISTS,
        PERMISSION_DENIED,
        RESOURCE_EXHAUSTED,
        FAILED_PRECONDITION,
        ABORTED,
        OUT_OF_RANGE,
        UNIMPLEMENTED,
        INTERNAL,
        UNAVAILABLE,
        DATA_LOSS,
        UNAUTHENTICATED
    };
    static const struct {
        int status, http, grpc;
    } want[] = {
        {STATUS_OK, 200, OK},
        {STATUS_INVALID, 400, INVALID_ARGUMENT},
        {STATUS_UNAUTHENTICATED, 401, UNAUTHENTICATED},
        {STATUS_FORBIDDEN, 403, PERMISSION_DENIED},
        {STATUS_NOT_FOUND, 404, NOT_FOUND},
        {STATUS_METHOD, 405, UNIMPLEMENTED},
        {STATUS_TIMEOUT, 408, CANCELLED},
        {STATUS_CONFLICT, 409, FAILED_PRECONDITION},
        {STATUS_TOO_LARGE, 413, RESOURCE_EXHAUSTED},
        {STATUS_URI_TOO_LONG, 414, INVALID_ARGUMENT},
        {STATUS_MEDIA_TYPE, 415, INVALID_ARGUMENT},
        {STATUS_EXPECTATION, 417, INVALID_ARGUMENT},
        {STATUS_EXHAUSTED, 429, RESOURCE_EXHAUSTED},
        {STATUS_HEADERS_TOO_LARGE, 431, RESOURCE_EXHAUSTED},
        {STATUS_CANCELLED, 499, CANCELLED},
        {STATUS_INTERNAL, 500, INTERNAL},
        {STATUS_UNIMPLEMENTED, 501, UNIMPLEMENTED},
        {STATUS_UNAVAILABLE, 503, UNAVAILABLE},
        {STATUS_DEADLINE, 504, DEADLINE_EXCEEDED},
        {STATUS_NOMEM, 503, RESOURCE_EXHAUSTED},
        {STATUS_IO, 500, INTERNAL},
        {STATUS_UPSTREAM, 502, UNAVAILABLE},
        {STATUS_LOOP, 508, INTERNAL},
        {STATUS_MISDIRECTED, 421, FAILED_PRECONDITION},
    };
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        assert_int_equal(status_http(want[i].status), want[i].http);
        assert_int_equal(status_grpc(want[i].status), want[i].grpc);
        /* and back, to the one that a client would think of */
        int first = want[i].http == 503 ? STATUS_UNAVAILABLE : want[i].http == 500 ? STATUS_INTERNAL : want[i].status;
        assert_int_equal(status_from_http(want[i].http), first);
    }
    assert_int_equal(status_from_http(418), STATUS_INTERNAL);
    for (int a = 0; a > -STATUS_COUNT; a--) { /* every code has a name of its own */
        assert_true(strlen(status_name(a)) > 0);
        for (int b = 0; b > a; b--)
            assert_string_not_equal(status_name(a), status_name(b));
    }
    static const int outside[] = {1, -STATUS_COUNT, -1000, 1 << 30, -2147483647 - 1};
    for (size_t i = 0; i < COUNT_OF(outside); i++) {
        assert_int_equal(status_http(outside[i]), 500);
        assert_string_equal(status_name(outside[i]), "internal");
    }
}

static void errors_are_one_clean_line(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(error_set(&err, STATUS_INVALID, "input '%s' is bad", "a\r\nb\x1b\x7f"), STATUS_INVALID);
    assert_int_equal(err.code, STATUS_INVALID);
    assert_string_equal(err.text, "input 'a\\r\\nb\\x1b\\x7f' is bad");
    assert_int_equal(error_set(NULL, STATUS_IO, "nobody listens %d", 1), STATUS_IO);
    assert_int_equal(error_set(&err, STATUS_IO, "caf\xc3\xa9"), STATUS_IO);
    assert_string_equal(err.text, "caf\xc3\xa9");
}

static void long_errors_are_cut(void **state)
{
    (void)state;
    struct error err;
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    for (size_t n = ERROR_TEXT_BYTES - 3; n <= ERROR_TEXT_BYTES + 2; n++) {
        error_set(&err, STATUS_INVALID, "%s", big + sizeof big - 1 - n);
        size_t shown = strlen(err.text);
        bool cut = n > ERROR_TEXT_BYTES - 1;
        assert_int_equal(shown, cut ? ERROR_TEXT_BYTES - 1 : n);
        assert_int_equal(strcmp(err.text + shown - 3, "...") == 0, cut);
    }
    error_set(&err, STATUS_INVALID, "%s", "short");
    error_prefix(&err, "%s", big);
    assert_int_equal(strlen(err.text), ERROR_TEXT_BYTES - 1);
    assert_string_equal(err.text + ERROR_TEXT_BYTES - 4, "...");
}

/* What is shown is all of a text, a NUL and what follows it included, as ASCII or whole UTF-8 characters. */
static void text_is_escaped(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_NOT_FOUND, "model \"%.*s\" is unknown (%d%%)", STR_ARG(STR("a\0b\t\xc3\xa9\xc2\x85\xff\xc3")), 7);
    assert_string_equal(err.text, "model \"a\\x00b\\t\xc3\xa9\\x85\\xff\\xc3\" is unknown (7%)");
    struct error outer; /* once only */
    error_set(&outer, err.code, "%s", err.text);
    assert_string_equal(outer.text, err.text);
    error_prefix(&outer, "at '%.*s'", 2, "x\ny");
    assert_memory_equal(outer.text, "at 'x\\n': model", 15);
    error_set(&err, STATUS_INVALID, "%5d|%-4s|%.3s|%zu|%lld|%llx|%c|%u|%.2f|%03d", -42, "ab", "abcdef", (size_t)7, -(1ll << 40),
              0xabcull, '\n', 4000000000u, 0.125, 5);
    assert_string_equal(err.text, "  -42|ab|abc|7|-1099511627776|abc|\\n|4000000000|0.12|005");
}

/* A long text doesn't push out what is accepted. */
static void a_long_echo_is_cut_in_the_middle(void **state)
{
    (void)state;
    struct error err;
    char big[3000];
    for (size_t i = 0; i < sizeof big; i += 3)
        memcpy(big + i, "\xe2\x82\xac", 3); /* euro signs */
    error_set(&err, STATUS_INVALID, "kind is \"%.*s\"; accepted: a, b", (int)sizeof big, big);
    char want[200]; /* 21 characters: 64 bytes hold no more */
    snprintf(want, sizeof want, "kind is \"%.63s...\"; accepted: a, b", big);
    assert_string_equal(err.text, want);
    big[sizeof big - 1] = 0; /* a text of ours is cut at the end, between characters */
    error_set(&err, STATUS_INVALID, "ab%s", big);
    size_t n = strlen(err.text);
    assert_true(n < ERROR_TEXT_BYTES && (n - 2 - 3) % 3 == 0 && strcmp(err.text + n - 3, "...") == 0);
}

/* The shortest decimal that reads back: as a person typed it. Values: IEEE 754. */
static void numbers_are_shortest(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *want;
    } rows[] = {{(double)5.1f, "5.1"},
                {5.1, "5.1"},
                {0.1, "0.1"},
                {(double)0.1f, "0.1"},
                {0, "0"},
                {-2, "-2"},
                {1e-9, "1e-09"},
                {1.0 / 3, "0.3333333333333333"},
                {(double)16777216.0f, "16777216"},
                {2.5e10, "25000000000"},
                {1e300, "1e+300"},
                {(double)1e-45f, "1e-45"},
                {100, "100"},
                {-1000, "-1000"},
                {999.5, "999.5"},
                {123456.789, "123456.789"}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct error err;
        error_set(&err, STATUS_INVALID, "%g", rows[i].v);
        assert_string_equal(err.text, rows[i].want);
    }
}

static void prefixes(void **state)
{
    (void)state;
    struct error err;
    error_set(&err, STATUS_NOT_FOUND, "no version %d", 3);
    assert_int_equal(error_prefix(&err, "model %s", "r\n"), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "model r\\n: no version 3");
    struct error none = {0};
    assert_int_equal(error_prefix(&none, "x"), 0);
    assert_string_equal(none.text, "");
    assert_int_equal(error_prefix(NULL, "x"), STATUS_INTERNAL);
}

static void sizes(void **state)
{
    (void)state;
    size_t v = 5;
    assert_true(size_add(SIZE_MAX - 1, 1, &v) && v == SIZE_MAX);
    v = 5;
    assert_false(size_add(SIZE_MAX, 1, &v));
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &v));
    assert_false(size_align(SIZE_MAX - 3, 16, &v));
    assert_int_equal(v, 5); /* left alone */
    assert_true(size_mul(SIZE_MAX, 1, &v) && v == SIZE_MAX);
    assert_true(size_mul(0, SIZE_MAX, &v) && v == 0);
    assert_true(size_align(0, 16, &v) && v == 0);
    assert_true(size_align(1, 16, &v) && v == 16);
    assert_true(size_align(16, 16, &v) && v == 16);
    assert_true(size_align(17, 1, &v) && v == 17);
}

static void warnings_count(void **state)
{
    (void)state;
    uint64_t before = check_warnings();
    for (int i = 0; i < 4; i++)
        assert_int_equal(WARN_ON(i % 2 == 1), i % 2);
    assert_int_equal(check_warnings(), before + 2);
    check_set_request("abc");
    assert_string_equal(check_get_request(), "abc");
    check_set_request(NULL);
    assert_null(check_get_request());
}

/* A failed ASSERT aborts and prints the place, the expression and the request. */
static void assertions_abort(void **state)
{
    (void)state;
    int ends[2], status;
    char text[300] = {0};
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        check_set_request("req-7");
        ASSERT(2 + 2 == 4);
        ASSERT(2 + 2 == 5);
        _exit(0);
    }
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_status_error.c:"));
    assert_non_null(strstr(text, ": 2 + 2 == 5 (request req-7)"));
}

struct recorder {
    struct logger lg;
    int records;
    enum log_level level;
    const char *event;
    struct log_field fields[8];
};

static void record(struct logger *lg, enum log_level level, const char *event, const struct log_field *fields)
{
    struct recorder *r = CONTAINER_OF(lg, struct recorder, lg);
    size_t i = 0;
    r->records++;
    r->level = level;
    r->event = event;
    do
        r->fields[i] = fields[i];
    while (fields[i++].key);
}

static int evaluated;
static int costly(void)
{
    return ++evaluated;
}

static void log_macro(void **state)
{
    (void)state;
    struct recorder r = {.lg = {.level = LOG_INFO, .write = record}};
    struct logger *none = NULL;
    LOG(none, LOG_ERROR, "nobody", LOG_I("n", costly()));
    LOG(&r.lg, LOG_DEBUG, "below", LOG_I("n", costly()));
    assert_int_equal(evaluated, 0); /* fields of records that are not made cost nothing */
    assert_int_equal(r.records, 0);
    LOG(&r.lg, LOG_INFO, "bare");
    assert_int_equal(r.records, 1);
    assert_null(r.fields[0].key);
    LOG(&r.lg, LOG_WARN, "full", LOG_I("n", costly()), LOG_S("s", "text"), LOG_U("u", UINT64_MAX), LOG_F("f", 0.5),
        LOG_B("b", true), LOG_STR("v", STR("view")));
    assert_int_equal(evaluated, 1);
    assert_int_equal(r.level, LOG_WARN);
    assert_string_equal(r.event, "full");
    assert_true(r.fields[0].kind == LOG_KIND_I64 && r.fields[0].i == 1);
    assert_true(r.fields[1].kind == LOG_KIND_STR && str_eqz(r.fields[1].s, "text"));
    assert_true(r.fields[2].kind == LOG_KIND_U64 && r.fields[2].u == UINT64_MAX);
    assert_true(r.fields[3].kind == LOG_KIND_F64 && r.fields[3].f == 0.5);
    assert_true(r.fields[4].kind == LOG_KIND_BOOL && r.fields[4].b);
    assert_true(r.fields[5].kind == LOG_KIND_STR && str_eqz(r.fields[5].s, "view"));
    assert_null(r.fields[6].key);
    if (r.records == 2)
        LOG(&r.lg, LOG_ERROR, "one_statement");
    else
        fail();
    r.lg.level = LOG_OFF;
    LOG(&r.lg, LOG_ERROR, "off");
    assert_int_equal(r.records, 3);
}

static void log_levels(void **state)
{
    (void)state;
    static const char *const names[] = {"debug", "info", "warn", "error", "off"};
    enum log_level level = LOG_OFF;
    for (int i = 0; i < 5; i++) {
        assert_string_equal(log_level_name((enum log_level)i), names[i]);
        assert_true(log_level_parse(str_of(names[i]), &level));
        assert_int_equal(level, i);
    }
    assert_false(log_level_parse(STR("INFO"), &level) || log_level_parse(STR(""), &level) ||
                 log_level_parse(STR("inf"), &level));
}

static void fault_points(void **state)
{
    (void)state;
#ifdef INFERD_FAULTS
    setenv("INFERD_FAULT", "plain:error,late:oom@3x2,twice:errorx2,slow:delay=20ms,both:delay=1msx1,bad", 1);
    assert_int_equal(fault_point("unknown"), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fault_point("plain"), STATUS_INTERNAL);
    static const int late[] = {0, 0, STATUS_NOMEM, STATUS_NOMEM, 0, 0};
    for (size_t i = 0; i < COUNT_OF(late); i++)
        assert_int_equal(fault_point("late"), late[i]);
    static const int twice[] = {STATUS_INTERNAL, STATUS_INTERNAL, 0};
    for (size_t i = 0; i < COUNT_OF(twice); i++)
        assert_int_equal(fault_point("twice"), twice[i]);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(fault_point("slow"), 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true((b.tv_sec - a.tv_sec) * 1000000000 + (b.tv_nsec - a.tv_nsec) >= 20000000);
#else
    setenv("INFERD_FAULT", "plain:error", 1);
    assert_int_equal(fault_point("plain"), 0); /* not in this build */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(errors_are_one_clean_line),
        cmocka_unit_test(long_errors_are_cut),
        cmocka_unit_test(text_is_escaped),
        cmocka_unit_test(a_long_echo_is_cut_in_the_middle),
        cmocka_unit_test(numbers_are_shortest),
        cmocka_unit_test(prefixes),
        cmocka_unit_test(sizes),
        cmocka_unit_test(warnings_count),
        cmocka_unit_test(assertions_abort),
        cmocka_unit_test(log_macro),
        cmocka_unit_test(log_levels),
        cmocka_unit_test(fault_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
