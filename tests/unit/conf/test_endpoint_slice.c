/* test_endpoint_slice.c: servers from a file: Kubernetes' EndpointSlices as kubectl prints them, and plain lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/endpoint_slice.h"

static struct arena arena;
static struct gateway_server *list;
static size_t n;

static int read_it(const char *text, const char *port, struct error *err)
{
    arena_release(&arena);
    arena_init(&arena, 4096, 0);
    *err = (struct error){0};
    return endpoint_file_read(str_of(text), "eps.yaml", port, &arena, &list, &n, err);
}

static void slices(void **state)
{
    (void)state;
    struct error err;
    static const char yaml[] =
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: llm-abc}\n"
        "ports:\n- {name: metrics, port: 8002, protocol: TCP}\n- {name: http, port: 8000}\n"
        "endpoints:\n"
        "- addresses: [10.1.2.3, 10.1.2.4]\n  conditions: {ready: true, serving: true, terminating: false}\n  zone: eu-1a\n"
        "- addresses: [10.1.2.5]\n  conditions: {ready: false, serving: true, terminating: true}\n"
        "- addresses: [10.1.2.6]\n  conditions: {}\n  zone: null\n"
        "- addresses: [\"fd00::7\"]\n";
    assert_int_equal(read_it(yaml, "http", &err), 0);
    assert_int_equal(n, 3);
    assert_string_equal(list[0].address, "10.1.2.3:8000");
    assert_string_equal(list[0].zone, "eu-1a");
    assert_int_equal(list[0].weight, 1);
    assert_string_equal(list[1].address, "10.1.2.6:8000");
    assert_string_equal(list[1].zone, "");
    assert_string_equal(list[2].address, "[fd00::7]:8000");
    assert_int_equal(read_it(yaml, "", &err), 0);
    assert_string_equal(list[0].address, "10.1.2.3:8002");
    assert_int_equal(read_it(yaml, "grpc", &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "'grpc'"));
    static const char json[] =
        "{\"kind\":\"List\",\"items\":[{\"kind\":\"EndpointSlice\",\"ports\":[{\"port\":1}],\"endpoints\":"
        "[{\"addresses\":[\"a.example\"]}]},{\"kind\":\"EndpointSlice\",\"endpoints\":null}]}";
    assert_int_equal(read_it(json, "", &err), 0);
    assert_int_equal(n, 1);
    assert_string_equal(list[0].address, "a.example:1");
}

static void plain_lists(void **state)
{
    (void)state;
    struct error err;
    assert_int_equal(read_it("- 10.0.0.1:80\n- {address: \"10.0.0.2:80\", weight: 3, backup: true}\n", "", &err), 0);
    assert_int_equal(n, 2);
    assert_true(list[1].backup && list[1].weight == 3 && list[0].weight == 1);
    assert_int_equal(read_it("[]", "", &err), 0);
    assert_int_equal(n, 0);
}

static void faults(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"- {address: \"a:1\", wieght: 3}\n", "wieght"},
        {"- a:1\n- {}\n", "eps.yaml:2"},
        {"kind: Pod\n", "EndpointSlice"},
        {"just text", "EndpointSlice"},
        {"kind: EndpointSlice\nports: [{port: 99999}]\nendpoints: [{addresses: [a]}]\n", "1..65535"},
        {"kind: EndpointSlice\nendpoints: [{addresses: [a]}]\n", "no ports"},
        {"kind: EndpointSlice\nports: [{port: 1}]\nendpoints: [{addresses: []}]\n", "addresses"},
        {"kind: EndpointSlice\nports: [{port: 1}]\nendpoints: {a: b}\n", "list"},
        {"kind: List\nitems: [{kind: Service}]\n", "EndpointSlice"},
        {"kind: [\n", "eps.yaml"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct error err;
        assert_int_equal(read_it(bad[i].text, "", &err), STATUS_INVALID);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: %s", bad[i].text, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slices), cmocka_unit_test(plain_lists), cmocka_unit_test(faults)};
    arena_init(&arena, 4096, 0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_release(&arena);
    return rc;
}
