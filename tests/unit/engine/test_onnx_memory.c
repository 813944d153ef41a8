/* test_onnx_memory.c: loading and unloading a model over and over must not grow the process, and a burst's memory comes back when asked
 * for. The same measure over a twin that keeps what it loads must show growth: a leak test that can't fail proves nothing.
 * INFERD_CYCLES sets the number of cycles (the release criterion is 200). Resident memory under a sanitizer says nothing: there only the
 * cycles run, for the sanitizer to look at. */
#include "engine/onnx_rig.h"

#include "os/process.h"

static struct engine *engine;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEASURES false
#else
#define MEASURES true
#endif

static size_t cycles(void)
{
    const char *given = getenv("INFERD_CYCLES");
    return given ? (size_t)atol(given) : 60;
}

static void load_run(struct rig *r)
{
    rig_must_load(r, engine, "mlp");
    static _Alignas(64) float x[8][512];
    for (int rows = 1; rows <= 8; rows++) {
        rig_set(r, 0, DTYPE_FP32, x, sizeof x[0] * (size_t)rows, 2, rows, 512);
        rig_must_run(r);
        rig_drop_outputs(r);
    }
}

static void rss_is_flat(void **state)
{
    (void)state;
    uint64_t after20 = 0, last = 0, most = 0;
    for (size_t k = 1; k <= cycles(); k++) {
        struct rig r;
        load_run(&r);
        rig_end(&r);
        last = os_process_rss_bytes();
        if (k == 20)
            after20 = last;
        most = last > most ? last : most;
    }
    print_message("RSS after 20 cycles %.1f MiB, after %zu %.1f MiB, at most %.1f MiB\n", (double)after20 / 1048576, cycles(),
                  (double)last / 1048576, (double)most / 1048576);
    if (MEASURES)
        assert_true(last < after20 + 2 * 1048576); /* half of one model's weights */
}

static void the_leaking_twin_is_seen(void **state)
{
    (void)state;
    if (!MEASURES)
        skip();
    static struct rig kept[20];
    uint64_t before = os_process_rss_bytes();
    for (int k = 0; k < 20; k++)
        load_run(&kept[k]);
    assert_true(os_process_rss_bytes() > before + 20 * 2 * 1048576);
    for (int k = 0; k < 20; k++)
        rig_end(&kept[k]);
    uint64_t after = os_process_rss_bytes();
    print_message("20 models at once, then none: %.1f MiB more than before\n", ((double)after - (double)before) / 1048576);
    assert_true(after < before + 8 * 1048576);
}

/* A burst of large batches, then small ones: the memory of the burst comes back. */
static void a_burst_is_given_back(void **state)
{
    (void)state;
    struct rig r;
    rig_must_load(&r, engine, "conv");
    float *x = calloc(64, 3 * 56 * 56 * sizeof *x);
    uint64_t rss[3];
    for (int phase = 0; phase < 3; phase++) {
        int rows = phase == 1 ? 64 : 1;
        for (int k = 0; k < (phase == 1 ? 3 : 40); k++) {
            rig_set(&r, 0, DTYPE_FP32, x, (size_t)rows * 3 * 56 * 56 * 4, 4, rows, 3, 56, 56);
            rig_must_run(&r);
            rig_drop_outputs(&r);
        }
        rss[phase] = os_process_rss_bytes();
    }
    print_message("RSS at batch 1 %.1f MiB, at 64 %.1f MiB, at 1 again %.1f MiB\n", (double)rss[0] / 1048576,
                  (double)rss[1] / 1048576, (double)rss[2] / 1048576);
    if (MEASURES) {
        assert_true(rss[1] > rss[0] + 20 * 1048576);
        assert_true(rss[2] < rss[0] + 8 * 1048576);
    }
    free(x);
    rig_end(&r);
}

int main(void)
{
    if (rig_must_skip())
        return 0;
    engine = rig_engine(NULL, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(rss_is_flat), cmocka_unit_test(the_leaking_twin_is_seen),
                                       cmocka_unit_test(a_burst_is_given_back)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    engine_onnx.close(engine);
    return rc;
}
