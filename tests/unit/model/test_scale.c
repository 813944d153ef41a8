/* test_scale.c: instances that grow and shrink, warm-up before READY, order of versions, metrics, the check's text, threads. */
#include "model/harness.h"

#include "model/version_name_priv.h"

static int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    world_init(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_release(*state);
    free(*state);
    return 0;
}

/* semver.org 2.0.0, section 11: 1.0.0-alpha < 1.0.0-alpha.1 < 1.0.0-alpha.beta < 1.0.0-beta < 1.0.0-beta.2 < 1.0.0-beta.11 <
 * 1.0.0-rc.1 < 1.0.0; integers between. */
static void version_order(void **state)
{
    (void)state;
    static const char *const ascending[] = {"0.9.12",     "1.0.0-alpha",  "1.0.0-alpha.1", "1.0.0-alpha.beta",
                                            "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1",
                                            "1.0.0",      "1.2.0",        "1.10.0",        "2",
                                            "9",          "10",           "10.0.1"};
    for (size_t i = 0; i < COUNT_OF(ascending); i++) {
        assert_true(version_name_valid(str_of(ascending[i])));
        for (size_t k = 0; k < COUNT_OF(ascending); k++) {
            int c = version_name_compare(str_of(ascending[i]), str_of(ascending[k]));
            assert_true(i < k ? c < 0 : i > k ? c > 0 : c == 0);
        }
    }
    static const char *const bad[] = {
        "",         "0",     "01",     "v1",     "1.2",        "1.2.3.4", "1.02.3", "1.2.3-",
        "1.2.3-01", "1.2.x", "latest", "1.2.3+", "1.2.3-a..b", "-1",      "1 ",     "18446744073709551616"};
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(version_name_valid(str_of(bad[i])));
}

struct pressure {
    struct world *w;
    unsigned want;
};

static unsigned instances(struct world *w)
{
    struct buf b;
    buf_init(&b);
    metrics_render(w->metrics, &b);
    const char *at = strstr(buf_z(&b), "inferd_instances{model=\"m\",version=\"1\"} ");
    unsigned n = at ? (unsigned)strtoul(strchr(at, ' '), NULL, 10) : 0;
    buf_release(&b);
    return n;
}

static bool has_instances(void *arg)
{
    struct pressure *p = arg;
    registry_tick(p->w->r, os_monotonic_ns());
    os_sleep_ns(5 * MS);
    return instances(p->w) == p->want;
}

static void grow_and_shrink(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 20000\n");
    put(w, "m/model.yaml", "max_batch_size: 1\nmax_queue_rows: 1000\ninstance_group: [{min: 1, max: 3}]\n");
    world_start(w);
    struct pressure p = {w, 1};
    until(has_instances, &p, "one instance");
    enum { N = 220 };
    struct call *calls = calloc(N, sizeof *calls);
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(call_init(&calls[i], w->r, "m", ""), 0);
        call_column(&calls[i], "X", &i, 1);
        assert_int_equal(call_submit(&calls[i]), 0);
    }
    p.want = 3;
    until(has_instances, &p, "three instances");
    for (int i = 0; i < N; i++) {
        call_wait(&calls[i]);
        assert_int_equal(calls[i].inf.status, 0);
        call_release(&calls[i]);
    }
    free(calls);
    /* shrinking is a matter of tens of seconds; the decision itself is tested in sched under a fake clock: move the clock */
    uint64_t now = os_monotonic_ns();
    for (int i = 0; i < 400 && instances(w) > 1; i++) {
        now += 500 * MS;
        registry_tick(w->r, now);
        os_sleep_ns(2 * MS);
    }
    assert_int_equal(instances(w), 1);
    int32_t y;
    assert_int_equal(ask(w->r, "m", "", 9, &y, NULL), 0);
    assert_int_equal(y, 9);
}

/* C5: a warm-up for each batch size runs before READY; one that fails fails the load. */
static void warmup(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", "input = X INT32 [-1,2]\noutput = Y INT32 [-1,2] copy X\nbase_us = 20000\n");
    put(w, "m/model.yaml",
        "max_batch_size: 8\nmodel_warmup:\n  - name: zeros\n    inputs:\n      X: {zero_data: true, dims: [2]}\n");
    put(w, "m/warmup/x.bin", "abcdefgh"); /* one row of two INT32 */
    put(w, "f/1/model.fake", "input = X INT32 [-1,2]\noutput = Y INT32 [-1,2] copy X\npoison = 1684234849\n"); /* "abcd" */
    put(w, "f/warmup/x.bin", "abcdefgh");
    put(w, "f/model.yaml",
        "max_batch_size: 8\nmodel_warmup:\n  - name: recorded\n    batch_size: 3\n    inputs:\n      X: "
        "{input_data_file: x.bin, dims: [2]}\n");
    uint64_t start = os_monotonic_ns();
    world_start(w);
    /* 1, 2, 4, 8: two runs each of 20 ms */
    assert_in_range((os_monotonic_ns() - start) / MS, 160, 5000);
    struct error err;
    struct model_version *v;
    assert_int_equal(registry_find(w->r, STR("m"), STR(""), &v, &err), 0);
    struct version_stats s;
    model_version_stats(v, &s);
    assert_int_equal(s.execution_count, 0); /* clients' runs only */
    model_version_unref(v);
    assert_int_equal(registry_find(w->r, STR("f"), STR(""), &v, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "warm-up \"recorded\" with batch 3"));
}

/* The metrics of a model are there, and gone with it. */
static void metrics_text(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY);
    w->o.mode = REGISTRY_EXPLICIT;
    w->load[0] = "m";
    w->o.n_load = 1;
    world_start(w);
    for (int32_t i = 0; i < 5; i++)
        assert_int_equal(ask(w->r, "m", "", i, NULL, NULL), 0);
    registry_tick(w->r, os_monotonic_ns());
    struct buf b;
    buf_init(&b);
    metrics_render(w->metrics, &b);
    static const char *const lines[] = {
        "inferd_inference_rows_total{model=\"m\",version=\"1\"} 5\n",
        "inferd_inference_executions_total{model=\"m\",version=\"1\"} 5\n",
        "inferd_batch_rows_bucket{model=\"m\",version=\"1\",le=\"1\"} 5\n",
        "inferd_queue_seconds_count{model=\"m\",version=\"1\"} 5\n",
        "inferd_compute_seconds_count{model=\"m\",version=\"1\"} 5\n",
        "inferd_batch_wait_seconds_count{model=\"m\",version=\"1\"} 5\n",
        "inferd_queue_rows{model=\"m\",version=\"1\"} 0\n",
        "inferd_instances{model=\"m\",version=\"1\"} 1\n",
        "inferd_model_loads_total{result=\"ok\"} 1\n",
        "inferd_cancelled_total{model=\"m\",version=\"1\",where=\"queue\"} 0\n",
        "inferd_deadline_total{model=\"m\",version=\"1\",where=\"admission\"} 0\n",
        "inferd_queue_rejected_total{model=\"m\",version=\"1\",reason=\"model_queue\"} 0\n",
    };
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        if (!strstr(buf_z(&b), lines[i]))
            fail_msg("not in the scrape: %s", lines[i]);
    assert_int_equal(registry_unload(w->r, STR("m"), NULL, NULL, NULL), 0);
    until(is_idle, w->r, "idle");
    for (int i = 0; i < 1000; i++) {
        buf_clear(&b);
        metrics_render(w->metrics, &b);
        if (!strstr(buf_z(&b), "model=\"m\""))
            break;
        os_sleep_ns(5 * MS);
    }
    assert_null(strstr(buf_z(&b), "model=\"m\""));
    buf_release(&b);
}

/* A folder that is no repository is told as such, and what lies below it is not read: only a folder that can be a model's is. */
static void check_what_is_no_repository(void **state)
{
    struct world *w = *state;
    struct buf b;
    struct error err;
    put(w, "home/somebody/notes.txt", "x");
    put(w, "proc/1/status", "x");
    put(w, "var/lib/x/y.db", "x");
    buf_init(&b);
    assert_int_equal(registry_check(&w->o, &b, &err), STATUS_INVALID);
    assert_string_equal(
        err.text, "this is no model repository: 3 folders, and a model file or a config in none of them; a repository has a "
                  "folder a model, with the model file in it or in version folders (NAME/1/model.onnx)");
    put(w, "home/1/model.fake", "input = x FP32 [-1,3]\noutput = y FP32 [-1,3] copy x\n");
    buf_clear(&b);
    assert_int_equal(registry_check(&w->o, &b, &err), STATUS_INVALID);
    assert_string_equal(err.text, "2 of 3 models would not be served: see ERROR above");
    buf_release(&b);
}

/* `inferd check`. */
static void check_text(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", "input = x FP32 [-1,3,len]\noutput = y FP32 [-1,1] row_sum x\n");
    put(w, "m/2/model.fake", "input = x FP32 [-1,3,len]\noutput = y FP32 [-1,1] row_sum x\n");
    put(w, "m/model.yaml",
        "max_batch_size: 8\ninput:\n  - name: x\n    padding:\n      - axis: 2\n        buckets: [64, 128]\n");
    put(w, "bad/1/model.fake", "input = x FP32 [4,3]\noutput = y FP32 [4,3] copy x\n");
    put(w, "bad/model.yaml", "max_batch_size: 8\n");
    struct buf b;
    struct error err;
    buf_init(&b);
    assert_int_equal(registry_check(&w->o, &b, &err), STATUS_INVALID);
    assert_string_equal(err.text, "1 of 2 models would not be served: see ERROR above");
    static const char *const parts[] = {
        "model m\n",
        "  config  model.yaml\n",
        "  version 1: not served (version_policy)\n",
        "  version 2: model.fake",
        "input   x                        FP32   [batch,3,-1]  (config)\n",
        "axis 2 is padded to 64, 128\n",
        "output  y                        FP32   [batch,1]  (model file)\n",
        "batch   1..8 (config)\n",
        "policy  deadline (learned)",
        "ERROR: max_batch_size is 8, but input \"x\" has shape [4,3], whose first dim is no dynamic batch axis: export the "
        "model with "
        "a dynamic batch axis, or set max_batch_size: 0\n",
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (!strstr(buf_z(&b), parts[i]))
            fail_msg("not in the text: %s\n%s", parts[i], buf_z(&b));
    buf_release(&b);
}

static size_t thread_count(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    size_t n = 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "Threads:", 8) == 0)
            n = strtoul(line + 8, NULL, 10);
    fclose(f);
    return n;
}

/* C25: threads are one an instance, the loaders and the expirer. */
static void threads(void **state)
{
    struct world *w = *state;
    size_t before = thread_count();
    put(w, "a/1/model.fake", IDENTITY);
    put(w, "b/1/model.fake", IDENTITY);
    put(w, "b/config.pbtxt", "instance_group [ { count: 3 } ]\n");
    world_start(w);
    assert_int_equal(thread_count(), before + 1 + 3 + 2 + 1);
}

static bool no_models_left(void *w)
{
    return registry_settled(((struct world *)w)->r);
}

/* C18: with light load the batcher adds no wait: a lone request takes what the engine takes, not a batching delay. */
static void no_added_wait(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 2000\n");
    world_start(w);
    until(no_models_left, w, "settled");
    uint64_t best = UINT64_MAX;
    for (int32_t i = 0; i < 60; i++) {
        struct call c;
        assert_int_equal(call_init(&c, w->r, "m", ""), 0);
        call_column(&c, "X", &i, 1);
        assert_int_equal(call_submit(&c), 0);
        call_wait(&c);
        uint64_t queue_ns = c.inf.times.batched_ns - c.inf.times.queued_ns;
        best = queue_ns < best ? queue_ns : best;
        call_release(&c);
    }
    assert_in_range(best, 0, 500000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_order),
        cmocka_unit_test_setup_teardown(grow_and_shrink, setup, teardown),
        cmocka_unit_test_setup_teardown(warmup, setup, teardown),
        cmocka_unit_test_setup_teardown(metrics_text, setup, teardown),
        cmocka_unit_test_setup_teardown(check_what_is_no_repository, setup, teardown),
        cmocka_unit_test_setup_teardown(check_text, setup, teardown),
        cmocka_unit_test_setup_teardown(threads, setup, teardown),
        cmocka_unit_test_setup_teardown(no_added_wait, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
