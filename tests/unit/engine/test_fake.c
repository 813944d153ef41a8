/* test_fake.c: the scripted engine: grammar, arithmetic, time, failure, hang and cancel. */
#include <fcntl.h>
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
#include "cli/engines.h"
#include "engine/fake/fake.h"
#include "os/clock.h"
#include "os/thread.h"

struct rig {
    char dir[64];
    int dir_fd;
    struct engine_model *m;
    struct engine_instance *i;
    struct error err;
};

/* Loads `script`; returns the status. */
static int rig_load(struct rig *r, const char *script, const struct engine_option *o, size_t n)
{
    *r = (struct rig){.dir = "/tmp/inferd-fake-XXXXXX"};
    assert_non_null(mkdtemp(r->dir));
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(r->dir_fd, "model.fake", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, script, strlen(script)), strlen(script));
    close(fd);
    struct engine_load spec = {
        .name = "m", .dir_fd = r->dir_fd, .dir_path = r->dir, .file = "model.fake", .options = o, .n_options = n};
    int rc = engine_fake.load(NULL, &spec, &r->m, &r->err);
    if (!rc)
        assert_int_equal(engine_fake.instance_create(r->m, 0, &r->i, &r->err), 0);
    return rc;
}

static void rig_end(struct rig *r)
{
    engine_fake.instance_destroy(r->i);
    if (r->m)
        engine_fake.unload(r->m);
    unlinkat(r->dir_fd, "model.fake", 0);
    close(r->dir_fd);
    rmdir(r->dir);
}

static struct tensor i32(const char *name, const int32_t *v, int64_t rows, int64_t cols)
{
    return (struct tensor){str_of(name), DTYPE_INT32, {2, {rows, cols}}, slice_borrow(v, (size_t)(rows * cols) * 4)};
}

static const char simple[] = "# as Triton's `simple`\n"
                             "input  = INPUT0 INT32 [-1,4]\r\n"
                             "input  = INPUT1 INT32 [batch,4]\n"
                             "output = OUTPUT0 INT32 [-1,4] add INPUT0 INPUT1\n"
                             "output = OUTPUT1 INT32 [-1,4] sub INPUT0 INPUT1\n";

static void add_and_sub(void **state)
{
    (void)state;
    struct rig r;
    assert_int_equal(rig_load(&r, simple, NULL, 0), 0);
    const struct engine_contract *c = engine_fake.contract(r.m);
    assert_true(c->batchable);
    assert_int_equal(c->n_inputs, 2);
    assert_true(str_eqz(c->inputs[1].dim_names[0], "batch"));
    int32_t a[8] = {1, 2, 3, INT32_MAX, 5, 6, 7, 8}, b[8] = {10, 20, 30, 1, 50, 60, 70, -80};
    struct tensor in[2] = {i32("INPUT0", a, 2, 4), i32("INPUT1", b, 2, 4)}, out[2];
    struct engine_run run = {in, 2, NULL, out};
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), 0);
    int32_t sum[8] = {11, 22, 33, INT32_MIN, 55, 66, 77, -72}, diff[8] = {-9, -18, -27, INT32_MAX - 1, -45, -54, -63, 88};
    assert_memory_equal(out[0].data.p, sum, sizeof sum);
    assert_memory_equal(out[1].data.p, diff, sizeof diff);
    assert_int_equal(out[0].shape.dim[0], 2);
    tensor_release(&out[0]);
    tensor_release(&out[1]);
    bool wanted[2] = {false, true};
    run.wanted = wanted;
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), 0);
    assert_int_equal(out[0].dtype, DTYPE_INVALID);
    assert_null(out[0].data.owner);
    tensor_release(&out[1]);
    rig_end(&r);
}

static void strings_add_like_tritons(void **state)
{
    (void)state;
    struct rig r;
    assert_int_equal(rig_load(&r,
                              "input = A BYTES [-1,2]\ninput = B BYTES [-1,2]\noutput = S BYTES [-1,2] add A B\n"
                              "output = C BYTES [-1,2] copy A\noutput = F BYTES [-1,1] fill hello you\n",
                              NULL, 0),
                     0);
    static const char a[] = "\2\0\0\0"
                            "12"
                            "\1\0\0\0"
                            "7",
                      b[] = "\1\0\0\0"
                            "1"
                            "\2\0\0\0"
                            "-9",
                      want[] = "\2\0\0\0"
                               "13"
                               "\2\0\0\0"
                               "-2";
    struct tensor in[2] = {{STR("A"), DTYPE_BYTES, {2, {1, 2}}, slice_borrow(a, sizeof a - 1)},
                           {STR("B"), DTYPE_BYTES, {2, {1, 2}}, slice_borrow(b, sizeof b - 1)}},
                  out[3];
    struct engine_run run = {in, 2, NULL, out};
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), 0);
    assert_int_equal(out[0].data.n, sizeof want - 1);
    assert_memory_equal(out[0].data.p, want, sizeof want - 1);
    assert_memory_equal(out[1].data.p, a, sizeof a - 1);
    assert_memory_equal(out[2].data.p, "\11\0\0\0hello you", 13);
    for (int k = 0; k < 3; k++)
        tensor_release(&out[k]);
    in[1].data = slice_borrow("\1\0\0\0x\1\0\0\0y", 10);
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), STATUS_INVALID);
    rig_end(&r);
}

static void rows_sums_and_halves(void **state)
{
    (void)state;
    struct rig r;
    assert_int_equal(rig_load(&r,
                              "input = X FP16 [-1,-1]\noutput = SUM FP32 [-1,1] row_sum X\noutput = N INT64 [-1] rows\n"
                              "output = D FP16 [-1,-1] add X X\n",
                              NULL, 0),
                     0);
    uint16_t x[4] = {0x3c00, 0x4000, 0x4200, 0x4400}; /* 1 2 | 3 4 in IEEE half */
    struct tensor in = {STR("X"), DTYPE_FP16, {2, {2, 2}}, slice_borrow(x, sizeof x)}, out[3];
    struct engine_run run = {&in, 1, NULL, out};
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), 0);
    float sum[2] = {3, 7};
    int64_t n[2] = {2, 2};
    uint16_t twice[4] = {0x4000, 0x4400, 0x4600, 0x4800}; /* 2 4 6 8 */
    assert_memory_equal(out[0].data.p, sum, sizeof sum);
    assert_memory_equal(out[1].data.p, n, sizeof n);
    assert_memory_equal(out[2].data.p, twice, sizeof twice);
    for (int k = 0; k < 3; k++)
        tensor_release(&out[k]);
    rig_end(&r);
}

static void fails_as_told(void **state)
{
    (void)state;
    struct rig r;
    struct engine_option o[] = {{STR("fail_every"), STR("3")},
                                {STR("fail_text"), STR("out of luck")},
                                {STR("poison"), STR("666")},
                                {STR("fail_rows_over"), STR("2")},
                                {STR("somebody.elses"), STR("x")}};
    assert_int_equal(rig_load(&r, simple, o, 5), 0);
    int32_t a[12] = {0}, bad[4] = {0, 0, 666, 0};
    struct tensor in[2] = {i32("INPUT0", a, 1, 4), i32("INPUT1", a, 1, 4)}, out[2];
    struct engine_run run = {in, 2, NULL, out};
    for (int n = 1; n <= 6; n++) {
        int rc = engine_fake.run(r.i, &run, &r.err);
        assert_int_equal(rc, n % 3 ? 0 : STATUS_INTERNAL);
        if (rc) {
            assert_string_equal(r.err.text, "out of luck");
        } else {
            tensor_release(&out[0]);
            tensor_release(&out[1]);
        }
    }
    in[1] = i32("INPUT1", bad, 1, 4);
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), STATUS_INVALID);
    in[0] = i32("INPUT0", a, 3, 4), in[1] = i32("INPUT1", a, 3, 4);
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), STATUS_INTERNAL);
    rig_end(&r);
}

static void takes_its_time(void **state)
{
    (void)state;
    struct engine_option o[] = {{STR("base_us"), STR("2000")}, {STR("per_row_us"), STR("3000")}, {STR("mode"), STR("sleep")}};
    for (int spin = 0; spin < 2; spin++) {
        struct rig r;
        o[2].value = spin ? STR("spin") : STR("sleep");
        assert_int_equal(rig_load(&r, simple, o, 3), 0);
        int32_t a[8] = {0};
        struct tensor in[2] = {i32("INPUT0", a, 2, 4), i32("INPUT1", a, 2, 4)}, out[2];
        struct engine_run run = {in, 2, NULL, out};
        uint64_t t0 = os_monotonic_ns(), c0 = os_thread_cpu_ns();
        assert_int_equal(engine_fake.run(r.i, &run, &r.err), 0);
        assert_true(os_monotonic_ns() - t0 >= 8000000);
        if (!spin)
            assert_true(os_thread_cpu_ns() - c0 < 4000000);
        tensor_release(&out[0]);
        tensor_release(&out[1]);
        rig_end(&r);
    }
}

struct hung {
    struct rig *r;
    int rc;
    _Atomic bool done;
};

static void run_hanging(void *arg)
{
    struct hung *h = arg;
    int32_t a[4] = {13, 0, 0, 0};
    struct tensor in[2] = {i32("INPUT0", a, 1, 4), i32("INPUT1", a, 1, 4)}, out[2];
    struct engine_run run = {in, 2, NULL, out};
    h->rc = engine_fake.run(h->r->i, &run, &h->r->err);
    if (h->rc == 0) {
        tensor_release(&out[0]);
        tensor_release(&out[1]);
    }
    h->done = true;
}

static void hang_ends_by_cancel_and_cancel_does_not_linger(void **state)
{
    (void)state;
    struct rig r;
    struct engine_option o[] = {{STR("hang"), STR("13")}};
    assert_int_equal(rig_load(&r, simple, o, 1), 0);
    engine_fake.cancel(r.i); /* nothing runs: no effect */
    struct hung h = {.r = &r};
    struct os_thread t;
    assert_int_equal(os_thread_start(&t, "hang", run_hanging, &h, &r.err), 0);
    while (!h.done) {
        engine_fake.cancel(r.i);
        os_sleep_ns(200000);
    }
    os_thread_join(&t);
    assert_int_equal(h.rc, STATUS_CANCELLED);
    int32_t a[4] = {0};
    struct tensor in[2] = {i32("INPUT0", a, 1, 4), i32("INPUT1", a, 1, 4)}, out[2];
    struct engine_run run = {in, 2, NULL, out};
    engine_fake.cancel(r.i);
    assert_int_equal(engine_fake.run(r.i, &run, &r.err), 0);
    tensor_release(&out[0]);
    tensor_release(&out[1]);
    rig_end(&r);
}

static void uncancellable_hang_lasts(void **state)
{
    (void)state;
    struct rig r;
    struct engine_option o[] = {{STR("hang"), STR("13")}, {STR("hang_ms"), STR("30")}, {STR("cancellable"), STR("false")}};
    assert_int_equal(rig_load(&r, simple, o, 3), 0);
    struct hung h = {.r = &r};
    struct os_thread t;
    uint64_t t0 = os_monotonic_ns();
    assert_int_equal(os_thread_start(&t, "hang", run_hanging, &h, &r.err), 0);
    while (!h.done) {
        engine_fake.cancel(r.i);
        os_sleep_ns(1000000);
    }
    os_thread_join(&t);
    assert_int_equal(h.rc, 0);
    assert_true(os_monotonic_ns() - t0 >= 30000000);
    rig_end(&r);
}

static void loads_fail_as_told(void **state)
{
    (void)state;
    static const struct {
        const char *script, *text;
        int rc;
    } cases[] = {
        {"input = A FP32 [1]\noutput = B FP32 [1] copy A\nload_fail = weights are rotten\n", "weights are rotten",
         STATUS_INTERNAL},
        {"input = A FP33 [1]\n", "model.fake line 1: 'FP33' is not a datatype", STATUS_INVALID},
        {"\n\ninput = A FP32 [1,-2]\n", "model.fake line 3: '[1,-2]' is not a shape like [-1,16]", STATUS_INVALID},
        {"input = A FP32 [1]\noutput = B FP32 [1] copy C\n", "model.fake line 2: there is no input 'C' above this line",
         STATUS_INVALID},
        {"input = A FP32 [1]\noutput = B INT8 [1] copy A\n",
         "model.fake line 2: the output's datatype must be that of its inputs", STATUS_INVALID},
        {"sped = 7\n", "model.fake line 1: 'sped' is not a key of model.fake", STATUS_INVALID},
        {"base_us = fast\n", "model.fake line 1: 'fast' of 'base_us' is not a whole number", STATUS_INVALID},
        {"what\n", "model.fake line 1: expected 'key = value'", STATUS_INVALID},
        {"", "model.fake names no input", STATUS_INVALID},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct rig r;
        assert_int_equal(rig_load(&r, cases[k].script, NULL, 0), cases[k].rc);
        assert_string_equal(r.err.text, cases[k].text);
        rig_end(&r);
    }
}

static void every_datatype_copies(void **state)
{
    (void)state;
    for (int t = DTYPE_INVALID + 1; t < DTYPE_COUNT; t++) {
        char script[256];
        const char *n = dtype_name((enum dtype)t);
        snprintf(script, sizeof script, "input = A %s [-1,3]\ninput = B %s [-1,3] optional\noutput = C %s [-1,3] add A B\n", n,
                 n, n);
        struct rig r;
        assert_int_equal(rig_load(&r, script, NULL, 0), 0);
        uint8_t data[24] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
        size_t bytes = t == DTYPE_BYTES ? 12 : 3 * dtype_bytes((enum dtype)t);
        struct tensor in[2] = {{STR("A"), (enum dtype)t, {2, {1, 3}}, slice_borrow(data, bytes)}, {.dtype = DTYPE_INVALID}},
                      out;
        struct engine_run run = {in, 2, NULL, &out};
        assert_int_equal(engine_fake.run(r.i, &run, &r.err), 0);
        assert_int_equal(out.data.n, bytes);
        assert_memory_equal(out.data.p, data, bytes);
        tensor_release(&out);
        rig_end(&r);
    }
}

static void memory_and_estimate(void **state)
{
    (void)state;
    struct rig r;
    struct engine_option o[] = {{STR("memory_bytes"), STR("1MiB")}};
    assert_int_equal(rig_load(&r, simple, o, 1), 0);
    struct engine_memory mem;
    engine_fake.memory(r.m, &mem);
    assert_int_equal(mem.weights_bytes, 1048576);
    uint64_t bytes = 0;
    struct engine_load spec = {.dir_fd = r.dir_fd, .file = "model.fake", .options = o, .n_options = 1};
    assert_int_equal(engine_fake.estimate(NULL, &spec, &bytes, &r.err), 0);
    assert_int_equal(bytes, 1048576);
    spec.file = "../model.fake";
    assert_int_equal(engine_fake.estimate(NULL, &spec, &bytes, &r.err), STATUS_FORBIDDEN);
    spec.file = "other.fake";
    assert_int_equal(engine_fake.estimate(NULL, &spec, &bytes, &r.err), STATUS_NOT_FOUND);
    rig_end(&r);
}

static void table_is_whole(void **state)
{
    (void)state;
    struct engine *engines[CLI_ENGINES_MAX];
    struct error err;
    assert_int_equal(cli_engines_open(NULL, 0, NULL, engines, &err), 0);
    for (size_t i = 0; cli_engines[i]; i++) {
        assert_non_null(cli_engines[i]->name);
        assert_non_null(cli_engines[i]->files[0]);
        assert_true(!!cli_engines[i]->open == !!cli_engines[i]->close);
    }
    cli_engines_close(engines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_and_sub),
        cmocka_unit_test(strings_add_like_tritons),
        cmocka_unit_test(rows_sums_and_halves),
        cmocka_unit_test(fails_as_told),
        cmocka_unit_test(takes_its_time),
        cmocka_unit_test(hang_ends_by_cancel_and_cancel_does_not_linger),
        cmocka_unit_test(uncancellable_hang_lasts),
        cmocka_unit_test(loads_fail_as_told),
        cmocka_unit_test(every_datatype_copies),
        cmocka_unit_test(memory_and_estimate),
        cmocka_unit_test(table_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
