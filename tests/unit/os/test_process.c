/* Own figures, compared with what the test itself did, with getrusage and with hand-made texts. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/clock.h"
#include "os/process.h"
#include "os/process_priv.h"
#include "os/random.h"

static void parses_stat(void **state)
{
    (void)state;
    struct process__stat st;
    /* fields after man proc(5); the name holds a space and parentheses */
    struct str text =
        STR("4711 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 33 0 987654 1000000 250 18446744073709551615 1\n");
    assert_true(process__parse_stat(text, &st));
    assert_int_equal(st.threads, 33);
    assert_int_equal(st.start_ticks, 987654);
    assert_int_equal(st.virtual_bytes, 1000000);
    assert_int_equal(st.rss_pages, 250);
    for (size_t n = 0; n < 60; n++) /* cut short anywhere before the last field: refused, not misread */
        assert_false(process__parse_stat((struct str){text.p, n}, &st));
    assert_false(process__parse_stat(STR("no parenthesis 1 2 3"), &st));
}

static void figures_are_plausible(void **state)
{
    (void)state;
    struct os_process_usage u;
    struct rusage ru;
    os_process_read(&u);
    getrusage(RUSAGE_SELF, &ru);
    assert_true(u.rss_bytes > 100000 && u.rss_bytes <= (uint64_t)ru.ru_maxrss * 1024 + (8u << 20));
    assert_true(u.virtual_bytes >= u.rss_bytes);
    assert_true(u.cpu_ns > 0);
    assert_true(u.threads >= 1 && u.threads < 10);
    uint64_t now = os_wall_ns();
    assert_true(u.start_wall_ns < now + 2000000000u && now - u.start_wall_ns < 300ull * 1000000000u);
}

static void counts_descriptors(void **state)
{
    (void)state;
    struct os_process_usage before, after;
    int fds[10];
    os_process_read(&before);
    for (int i = 0; i < 10; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    os_process_read(&after);
    assert_int_equal(after.open_fds, before.open_fds + 10);
    for (int i = 0; i < 10; i++)
        close(fds[i]);
    os_process_read(&after);
    assert_int_equal(after.open_fds, before.open_fds);
    assert_true(before.open_fds >= 3);
}

static void raises_the_descriptor_limit(void **state)
{
    (void)state;
    struct rlimit l, now;
    struct error err;
    uint64_t got;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &l), 0);
    if (l.rlim_max < 64 || l.rlim_max == RLIM_INFINITY)
        skip();
    struct rlimit low = {32, l.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(os_fd_limit_raise(64, &got, &err), 0);
    assert_int_equal(got, 64);
    assert_int_equal(os_fd_limit_raise(16, &got, &err), 0); /* never lowers */
    assert_int_equal(got, 64);
    assert_int_equal(os_fd_limit_raise(UINT64_MAX, &got, &err), 0); /* at most the hard limit */
    assert_int_equal(got, l.rlim_max);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, l.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &l), 0);
}

static void rss_follows_memory(void **state)
{
    (void)state;
    size_t n = 64u << 20;
    uint64_t before = os_process_rss_bytes();
    char *p = malloc(n);
    memset(p, 1, n);
    uint64_t with = os_process_rss_bytes();
    assert_true(with >= before + n - (1u << 20));
    assert_int_equal(p[n / 2], 1);
    free(p);
    os_memory_trim();
}

static void random_bits_differ(void **state)
{
    (void)state;
    uint64_t ones = 0, last = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t v = os_random_u64();
        assert_true(v != last);
        last = v;
        ones += (uint64_t)__builtin_popcountll(v);
    }
    assert_in_range(ones, 31000, 33000); /* 32000 expected, standard deviation 126 */
    unsigned char big[1000] = {0};
    os_random_bytes(big, sizeof big);
    int zeros = 0;
    for (size_t i = 0; i < sizeof big; i++)
        zeros += !big[i];
    assert_true(zeros < 40); /* 3.9 expected */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_stat),        cmocka_unit_test(figures_are_plausible),
        cmocka_unit_test(counts_descriptors), cmocka_unit_test(raises_the_descriptor_limit),
        cmocka_unit_test(rss_follows_memory), cmocka_unit_test(random_bits_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
