/* test_gateway_config.c: the sections `upstreams` and `routes`, through the whole configuration file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/status.h"
#include "conf/config.h"

static int read_text(struct config *c, const char *text, struct error *err)
{
    assert_int_equal(config_init(c, err), 0);
    return config_apply_yaml(c, str_of(text), "f.yaml", NULL, err);
}

static void a_whole_one(void **state)
{
    static const char text[] = "zone: a\n"
                               "upstreams:\n"
                               "  - name: llm\n"
                               "    balance: llm\n"
                               "    servers:\n"
                               "      - 10.0.0.7:8000\n"
                               "      - {address: \"10.0.0.8:8000\", weight: 2, zone: b, backup: true, max_conns: 64}\n"
                               "    check: {path: /v2/health/ready, interval: 500ms}\n"
                               "    retry: {attempts: 2, on: [connect, \"503\"]}\n"
                               "routes:\n"
                               "  - {model: \"llama-*\", upstream: llm, timeout: 5m, set_headers: [\"x-a: b\"]}\n"
                               "  - {path_prefix: /v2/, upstream: local, max_body: 64MiB, percent: 12.5}\n";
    (void)state;
    struct config c;
    struct error err;
    assert_int_equal(read_text(&c, text, &err), 0);
    assert_string_equal(c.zone, "a");
    assert_int_equal(c.gateway.n_pools, 1);
    struct arena other;
    struct gateway_config copy;
    arena_init(&other, 1024, 0);
    assert_int_equal(gateway_config_copy(&c.gateway, &other, &copy), 0);
    config_release(&c); /* the copy stands on its own */
    const struct gateway_pool *p = copy.pools;
    assert_string_equal(p->name, "llm");
    struct gateway_pool other_pool = *p;
    other_pool.n_servers = 0;
    assert_true(gateway_pool_same(p, &other_pool));
    other_pool.check.rise++;
    assert_false(gateway_pool_same(p, &other_pool));
    other_pool.check.rise--;
    other_pool.retry.on.n--;
    assert_false(gateway_pool_same(p, &other_pool));
    assert_int_equal(p->balance, 4);
    assert_int_equal(p->n_servers, 2);
    assert_string_equal(p->servers[0].address, "10.0.0.7:8000");
    assert_int_equal(p->servers[0].weight, 1);
    assert_string_equal(p->servers[1].zone, "b");
    assert_int_equal(p->servers[1].weight, 2);
    assert_true(p->servers[1].backup);
    assert_int_equal(p->servers[1].max_conns, 64);
    assert_string_equal(p->check.path, "/v2/health/ready");
    assert_int_equal(p->check.interval, 500000000);
    assert_int_equal(p->check.fall, 3);
    assert_int_equal(p->retry.attempts, 2);
    assert_int_equal(p->retry.on.n, 2);
    assert_string_equal(p->retry.on.v[1], "503");
    assert_int_equal(copy.n_routes, 2);
    assert_string_equal(copy.routes[0].model, "llama-*");
    assert_int_equal(copy.routes[0].timeout, 300000000000);
    assert_string_equal(copy.routes[0].set_headers.v[0], "x-a: b");
    assert_int_equal(copy.routes[1].max_body, 64 << 20);
    assert_true(copy.routes[1].percent == 12.5);
    assert_true(copy.routes[1].idempotent);
    arena_release(&other);
}

static void refused(void **state)
{
    static const char *const cases[][2] = {
        {"upstreams:\n  - {name: a, servers: [\"h:1\"], protocol: http2}\nroutes:\n  - {upstream: a, websocket: true}\n",
         "f.yaml: routes[0].websocket: pool 'a' has protocol http2; WebSockets need http1: give them a pool of their own"},
        {"upstreams:\n  - {name: a, servers: [\"h:1\"]}\nroutes:\n  - {upstream: local, websocket: true}\n",
         "f.yaml: routes[0].websocket: nothing in this process speaks WebSocket; name a pool as upstream, not local"},
        {"upstreams:\n  - {name: a, servers: [\"h:1\"], balance: fast}\n",
         "f.yaml:2: upstreams[].balance: 'fast' is not accepted; give one of round_robin least_conn p2c hash llm"},
        {"upstreams:\n  - {name: a}\n", "f.yaml: upstreams[].servers: pool 'a' needs servers, or a servers_file"},
        {"upstreams:\n  - {name: a, servers: [\"h:1\"], balnce: llm}\n",
         "f.yaml:2: upstreams[] has no key 'balnce'; did you mean 'balance'?"},
        {"upstreams:\n  - name: a\n    servers: [{address: \"h:1\", weight: 1001}]\n",
         "f.yaml:3: upstreams[].servers[].weight: '1001' is not accepted; give a whole number in 1..1000"},
        {"upstreams:\n  - {name: a, servers: [\"h:1\"], check: {interval: 2}}\n",
         "f.yaml:2: upstreams[].check.interval: '2' is not accepted; give a time in 50ms..1h"},
        {"upstreams:\n  - {name: a, servers: [\"h:1\"], check: {path: nope}}\n",
         "f.yaml: upstreams[].check.path: 'nope' is not accepted; give a path that begins with /"},
        {"routes:\n  - {upstream: b}\n", "f.yaml: routes[0] sends to 'b', which `upstreams` does not name"},
        {"upstreams:\n  - {name: local, servers: [\"h:1\"]}\n",
         "f.yaml: upstreams[].name: 'local' is this process; take another name"},
        {"routes: 5\n", "f.yaml:1: inferd.yaml.routes: '5' is not accepted; give a list of 1 to 4096 entries"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        struct error err;
        assert_int_equal(read_text(&c, cases[i][0], &err), STATUS_INVALID);
        assert_string_equal(err.text, cases[i][1]);
        config_release(&c);
    }
}

static int read_with(const char *server, const char *more)
{
    char text[512];
    struct config c;
    struct error err;
    snprintf(text, sizeof text, "upstreams:\n  - {name: p, servers: [\"%s\"]}\nroutes:\n  - {path: /x, upstream: p%s}\n",
             server, more);
    int rc = read_text(&c, text, &err);
    config_release(&c);
    return rc;
}

/* What is no address, and headers that would be another message or none, are found when the file is read, not by the first request. */
static void addresses_and_headers(void **state)
{
    static const char *const good[] = {
        "h:1", "10.0.0.1:65535", "[::1]:80", "unix:/run/m.sock", "_infer._tcp.models.internal", "a-b_c.d:80"};
    static const char *const bad[] = {"h",           "h:0",   "h:99999", "h:",      "h:80x",  ":80",
                                      "[::1",        "[]:80", "::1:80",  "h:1:2",   "h/x:80", "h h:80",
                                      "http://h:80", "unix:", "unix:x",  "_x._tcp", "_x.y",   "h:80\\n"};
    static const char *const kept[] = {"host: other", "X-A:b", "x-empty:", "x: a\\tb"};
    static const char *const refused_headers[] = {"x",
                                                  ": v",
                                                  "x y: z",
                                                  "x: a\\r\\nb: c",
                                                  "x: a\\nb",
                                                  ":path: /y",
                                                  "Content-Length: 5",
                                                  "transfer-encoding: chunked",
                                                  "connection: close",
                                                  "te: trailers",
                                                  "upgrade: h2c",
                                                  "keep-alive: x",
                                                  "trailer: x",
                                                  "proxy-connection: x"};
    char more[128];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(read_with(good[i], ""), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_with(bad[i], ""), STATUS_INVALID);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        snprintf(more, sizeof more, ", set_headers: [\"%s\"]", kept[i]);
        assert_int_equal(read_with("h:1", more), 0);
    }
    for (size_t i = 0; i < sizeof refused_headers / sizeof *refused_headers; i++) {
        snprintf(more, sizeof more, ", set_headers: [\"%s\"]", refused_headers[i]);
        assert_int_equal(read_with("h:1", more), STATUS_INVALID);
    }
    assert_int_equal(read_with("h:1", ", remove_headers: [\"x: y\"]"), STATUS_INVALID);
    assert_int_equal(read_with("h:1", ", remove_headers: [x-y]"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_one), cmocka_unit_test(refused),
                                       cmocka_unit_test(addresses_and_headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
