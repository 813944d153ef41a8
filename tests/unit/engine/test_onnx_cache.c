/* test_onnx_cache.c: optimised models on disk: made once, found again, keyed by what they depend on, replaced when damaged, bounded. */
#include <dirent.h>

#include "engine/onnx_rig.h"

static char dir[64];

/* The names of the entries in the cache, and how many files of any kind. */
static size_t entries(char name[80])
{
    DIR *d = opendir(dir);
    size_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        assert_non_null(strstr(e->d_name, ".onnx"));
        assert_null(strstr(e->d_name, ".tmp"));
        snprintf(name, 80, "%.79s", e->d_name);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static struct engine *engine_with(const char *bytes)
{
    struct engine_option o[] = {{STR("onnxruntime.cache_dir"), str_of(dir)}, {STR("onnxruntime.cache_bytes"), str_of(bytes)}};
    return rig_engine(o, 2);
}

static void check_runs(struct rig *r)
{
    static _Alignas(64) int32_t a[16], b[16];
    a[3] = 40, b[3] = 2;
    rig_set(r, 0, DTYPE_INT32, a, sizeof a, 2, 1, 16);
    rig_set(r, 1, DTYPE_INT32, b, sizeof b, 2, 1, 16);
    rig_must_run(r);
    assert_int_equal(((const int32_t *)r->out[0].data.p)[3], 42);
    assert_true(str_eqz(engine_onnx.contract(r->m)->description, "sum and difference"));
    rig_end(r);
}

static void wipe(void)
{
    char name[80], path[160];
    while (entries(name)) {
        snprintf(path, sizeof path, "%s/%s", dir, name);
        unlink(path);
    }
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/inferd-cache-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    wipe();
    return rmdir(dir);
}

static void an_entry_is_made_once_and_used(void **state)
{
    (void)state;
    char name[80];
    struct engine *e = engine_with("1GiB");
    struct rig r;
    for (int round = 0; round < 3; round++) {
        rig_must_load(&r, e, "simple");
        check_runs(&r);
        assert_int_equal(entries(name), 1);
        assert_int_equal(strlen(name), 64 + 5);
    }
    struct engine_option basic = {STR("graph_optimization"), STR("basic")};
    assert_int_equal(rig_load(&r, e, "simple", &basic, 1), 0);
    check_runs(&r);
    assert_int_equal(entries(name), 2); /* another level is another entry */
    struct engine_option off = {STR("optimized_model_cache"), STR("false")};
    assert_int_equal(rig_load(&r, e, "mlp", &off, 1), 0);
    rig_end(&r);
    rig_must_load(&r, e, "external"); /* never with external data */
    rig_end(&r);
    assert_int_equal(entries(name), 2);
    wipe();
    engine_onnx.close(e);
}

static void a_damaged_entry_is_replaced(void **state)
{
    (void)state;
    char name[80], path[160];
    struct engine *e = engine_with("1GiB");
    struct rig r;
    rig_must_load(&r, e, "simple");
    check_runs(&r);
    assert_int_equal(entries(name), 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite("rubbish", 1, 7, f), 7);
    fclose(f);
    rig_must_load(&r, e, "simple");
    check_runs(&r);
    assert_int_equal(entries(name), 1);
    f = fopen(path, "rb");
    char head[7];
    assert_int_equal(fread(head, 1, 7, f), 7);
    fclose(f);
    assert_memory_not_equal(head, "rubbish", 7);
    wipe();
    engine_onnx.close(e);
}

static void the_bound_holds(void **state)
{
    (void)state;
    char name[80];
    struct engine *e = engine_with("5MiB"); /* the folded weights of mlp alone are 4 MiB */
    struct rig r;
    rig_must_load(&r, e, "mlp");
    rig_end(&r);
    assert_int_equal(entries(name), 1);
    rig_must_load(&r, e, "simple");
    rig_end(&r);
    assert_int_equal(entries(name), 2);
    struct engine_option basic = {STR("graph_optimization"), STR("basic")};
    assert_int_equal(rig_load(&r, e, "mlp", &basic, 1), 0); /* too much: the oldest goes */
    rig_end(&r);
    assert_int_equal(entries(name), 2);
    wipe();
    engine_onnx.close(e);
    e = engine_with("1KiB");
    rig_must_load(&r, e, "mlp"); /* larger than the whole cache */
    rig_end(&r);
    assert_int_equal(entries(name), 0);
    engine_onnx.close(e);
}

static void an_unusable_folder_does_not_matter(void **state)
{
    (void)state;
    struct engine_option o = {STR("onnxruntime.cache_dir"), STR("/proc/nowhere")};
    struct engine *e = rig_engine(&o, 1);
    struct rig r;
    rig_must_load(&r, e, "simple");
    check_runs(&r);
    engine_onnx.close(e);
}

int main(void)
{
    if (rig_must_skip())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_is_made_once_and_used),
        cmocka_unit_test(a_damaged_entry_is_replaced),
        cmocka_unit_test(the_bound_holds),
        cmocka_unit_test(an_unusable_folder_does_not_matter),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
