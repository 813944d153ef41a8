/* Addresses: what is accepted, what it is shown as, and what is refused; sockets as the net tests don't reach them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/status.h"
#include "os/file.h"
#include "os/sock.h"

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
        int port;
    } v[] = {
        {"127.0.0.1:8000", "127.0.0.1:8000", 8000},
        {"127.9.9.9:1", "127.9.9.9:1", 1},
        {"*:80", "0.0.0.0:80", 80},
        {"10.0.0.1:65535", "10.0.0.1:65535", 65535},
        {"[::1]:8000", "[::1]:8000", 8000},
        {"[2001:db8:0::1]:9", "[2001:db8::1]:9", 9},
        {"[::]:0", "[::]:0", 0},
        {"unix:/run/a b", "unix:/run/a b", 0},
    };
    struct os_addr a;
    struct error err;
    char text[OS_ADDR_TEXT_BYTES];
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        if (os_addr_parse(v[i].text, &a, &err))
            fail_msg("%s: %s", v[i].text, err.text);
        os_addr_text(&a, text);
        assert_string_equal(text, v[i].shown);
        assert_int_equal(os_addr_port(&a), v[i].port);
    }
    static const char *const bad[] = {
        "", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "::1:80", "unix:"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (os_addr_parse(bad[i], &a, &err) != STATUS_INVALID)
            fail_msg("accepted: %s", bad[i]);
    char longer[200] = "unix:/";
    memset(longer + 6, 'p', 150);
    assert_int_equal(os_addr_parse(longer, &a, &err), STATUS_INVALID);
}

static void test_connect_and_talk(void **state)
{
    (void)state;
    struct os_addr a, peer;
    struct error err;
    int listener, client, server;
    char in[8], shown[OS_ADDR_TEXT_BYTES];
    assert_int_equal(os_addr_parse("127.0.0.1:0", &a, &err), 0);
    assert_int_equal(os_sock_listen(&a, false, 0, &listener, &err), 0);
    assert_int_equal(os_sock_local(listener, &a, &err), 0);
    assert_int_not_equal(os_addr_port(&a), 0);
    assert_int_equal(os_sock_accept(listener, &peer), STATUS_AGAIN);
    assert_int_equal(os_sock_probe_free(&a, &err), STATUS_CONFLICT);
    int rc = os_sock_connect(&a, &client, &err);
    assert_true(rc == 0 || rc == STATUS_AGAIN);
    assert_true(os_sock_wait(client, true, 1000000000));
    assert_int_equal(os_sock_connected(client, &err), 0);
    assert_true(os_sock_wait(listener, false, 1000000000));
    server = os_sock_accept(listener, &peer);
    os_addr_text(&peer, shown);
    assert_true(server >= 0 && strncmp(shown, "127.0.0.1:", 10) == 0);
    assert_int_equal(os_sock_read(server, in, sizeof in), STATUS_AGAIN);
    assert_false(os_sock_wait(server, false, 1000000));
    struct os_iov v[2] = {{"ab", 2}, {"cd", 2}};
    assert_int_equal(os_sock_write(client, v, 2), 4);
    assert_true(os_sock_wait(server, false, 1000000000));
    assert_int_equal(os_sock_read(server, in, sizeof in), 4);
    assert_memory_equal(in, "abcd", 4);
    os_sock_shutdown(client);
    assert_true(os_sock_wait(server, false, 1000000000));
    assert_int_equal(os_sock_read(server, in, sizeof in), 0);
    os_close(client);
    os_close(server);
    os_close(listener);
    /* nobody listens: known at once or when it is decided, never a signal */
    rc = os_sock_connect(&a, &client, &err);
    if (rc == STATUS_AGAIN) {
        assert_true(os_sock_wait(client, true, 1000000000));
        rc = os_sock_connected(client, &err);
        os_close(client);
    }
    assert_int_equal(rc, STATUS_UNAVAILABLE);
    assert_int_equal(os_sock_probe_free(&a, &err), 0);
}

static void test_unix_file_that_is_no_socket(void **state)
{
    (void)state;
    char path[] = "/tmp/inferd-sock-XXXXXX", text[64];
    int fd = mkstemp(path), listener;
    struct os_addr a;
    struct error err;
    snprintf(text, sizeof text, "unix:%s", path);
    assert_int_equal(os_addr_parse(text, &a, &err), 0);
    assert_int_equal(os_sock_listen(&a, false, 0600, &listener, &err), STATUS_CONFLICT);
    assert_int_equal(access(path, F_OK), 0); /* left alone */
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_addresses), cmocka_unit_test(test_connect_and_talk),
                                       cmocka_unit_test(test_unix_file_that_is_no_socket)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
