/* test_route.c: every path of the protocol page, and the ways a path can be wrong. Expected ids are read off the Open
 * Inference Protocol and Triton's extension documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/route.h"
#include "base/size.h"
#include "base/status.h"

struct vector {
    enum http_method method;
    const char *path;
    enum api_surface surface;
    int rc;
    enum route_id id;
    const char *model, *version;
};

static const struct vector vectors[] = {
    {HTTP_GET, "/v2", API_HTTP, 0, ROUTE_SERVER_METADATA, "", ""},
    {HTTP_GET, "/v2/", API_HTTP, 0, ROUTE_SERVER_METADATA, "", ""},
    {HTTP_HEAD, "/v2/health/live", API_HTTP, 0, ROUTE_LIVE, "", ""},
    {HTTP_GET, "/v2/health/ready", API_METRICS, 0, ROUTE_READY, "", ""},
    {HTTP_GET, "/v2/models/resnet-50", API_HTTP, 0, ROUTE_MODEL_METADATA, "resnet-50", ""},
    {HTTP_GET, "/v2/models/m/versions/1.2.0", API_HTTP, 0, ROUTE_MODEL_METADATA, "m", "1.2.0"},
    {HTTP_GET, "/v2/models/m/versions/1.2.0-rc.1+build.7", API_HTTP, 0, ROUTE_MODEL_METADATA, "m", "1.2.0-rc.1+build.7"},
    {HTTP_GET, "/v2/models/m/versions/1.2.0+", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/m/versions/1.2.0+a+b", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/m/versions/1.2.0%2Bb%2f..", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/m/versions/stable/ready", API_HTTP, 0, ROUTE_MODEL_READY, "m", "stable"},
    {HTTP_GET, "/v2/models/m/config", API_HTTP, 0, ROUTE_MODEL_CONFIG, "m", ""},
    {HTTP_GET, "/v2/models/m/stats", API_HTTP, 0, ROUTE_MODEL_STATS, "m", ""},
    {HTTP_GET, "/v2/models/stats", API_HTTP, 0, ROUTE_ALL_STATS, "", ""},
    {HTTP_POST, "/v2/models/m/infer", API_HTTP, 0, ROUTE_INFER, "m", ""},
    {HTTP_POST, "/v2/models/m/versions/3/infer", API_HTTP, 0, ROUTE_INFER, "m", "3"},
    {HTTP_POST, "/v2/repository/index", API_HTTP, 0, ROUTE_INDEX, "", ""},
    {HTTP_POST, "/v2/repository/models/m/load", API_HTTP, 0, ROUTE_LOAD, "m", ""},
    {HTTP_POST, "/v2/repository/models/m/unload", API_HTTP, 0, ROUTE_UNLOAD, "m", ""},
    {HTTP_GET, "/metrics", API_METRICS, 0, ROUTE_METRICS, "", ""},
    {HTTP_POST, "/admin/reload", API_ADMIN, 0, ROUTE_ADMIN_RELOAD, "", ""},
    /* gRPC calls have their own table of paths, and nothing else has those */
    {HTTP_POST, "/inference.GRPCInferenceService/ModelInfer", API_GRPC, 0, ROUTE_GRPC_INFER, "", ""},
    {HTTP_POST, "/inference.GRPCInferenceService/ModelStreamInfer", API_GRPC, 0, ROUTE_GRPC_STREAM_INFER, "", ""},
    {HTTP_POST, "/grpc.health.v1.Health/Watch", API_GRPC, 0, ROUTE_GRPC_HEALTH_WATCH, "", ""},
    {HTTP_POST, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", API_GRPC, 0, ROUTE_GRPC_REFLECTION, "", ""},
    {HTTP_POST, "/inference.GRPCInferenceService/LogSettings", API_GRPC, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_POST, "/v2/models/m/infer", API_GRPC, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_POST, "/inference.GRPCInferenceService/ModelInfer", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_POST, "/inference.GRPCInferenceService/ModelInfer", API_ADMIN, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    /* percent escapes decode within a segment only */
    {HTTP_GET, "/v2/models/re%73net", API_HTTP, 0, ROUTE_MODEL_METADATA, "resnet", ""},
    {HTTP_GET, "/v2/models/a%2Fb", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/a%2", API_HTTP, STATUS_INVALID, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/a%zz", API_HTTP, STATUS_INVALID, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/a%00", API_HTTP, STATUS_INVALID, ROUTE_NONE, "", ""},
    /* a route lives on its listener only */
    {HTTP_GET, "/metrics", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_POST, "/admin/reload", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_POST, "/v2/models/m/infer", API_METRICS, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    /* wrong methods, unknown and hostile paths */
    {HTTP_GET, "/v2/models/m/infer", API_HTTP, STATUS_METHOD, ROUTE_NONE, "", ""},
    {HTTP_POST, "/v2/models/m", API_HTTP, STATUS_METHOD, ROUTE_NONE, "", ""},
    {HTTP_DELETE, "/v2", API_HTTP, STATUS_METHOD, ROUTE_NONE, "", ""},
    {HTTP_GET, "/", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "*", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v3", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2//models/m", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/..", API_HTTP, STATUS_INVALID, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/%2e%2e", API_HTTP, STATUS_INVALID, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/ ", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/m/versions/..%2f..", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
    {HTTP_GET, "/v2/models/m/versions/1/infer/x/y/z/w/q", API_HTTP, STATUS_NOT_FOUND, ROUTE_NONE, "", ""},
};

static void matches_every_vector(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(vectors); i++) {
        const struct vector *v = &vectors[i];
        struct arena arena;
        struct route_match m;
        const char *allow = NULL;
        struct error err = {0};
        arena_init(&arena, 1024, 0);
        struct http_request r = {.method = v->method, .method_text = STR("X"), .path = str_of(v->path), .arena = &arena};
        int rc = route_match(&r, v->surface, &m, &allow, &err);
        if (rc != v->rc || (rc == 0 && m.id != v->id))
            fail_msg("%s: status %d (expected %d), route %s", v->path, rc, v->rc, route_name(m.id));
        if (rc == 0) {
            assert_true(str_eqz(m.model, v->model));
            assert_true(str_eqz(m.version, v->version));
        }
        assert_true(rc == 0 || err.text[0]);
        assert_true((rc == STATUS_METHOD) == (allow != NULL));
        arena_release(&arena);
    }
}

static void long_name_is_refused(void **state)
{
    (void)state;
    char path[256] = "/v2/models/";
    struct route_match m;
    const char *allow;
    struct error err = {0};
    struct arena arena;
    arena_init(&arena, 1024, 0);
    memset(path + 11, 'a', 128);
    struct http_request r = {.method = HTTP_GET, .path = str_of(path), .arena = &arena};
    assert_int_equal(route_match(&r, API_HTTP, &m, &allow, &err), 0);
    path[11 + 128] = 'a';
    r.path = str_of(path);
    assert_int_equal(route_match(&r, API_HTTP, &m, &allow, &err), STATUS_NOT_FOUND);
    arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matches_every_vector), cmocka_unit_test(long_name_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
