/* test_chaos.c: everything at once for a few seconds: clients that cancel, give deadlines, send poison, vanish; models that load,
 * reload, unload, fail, hang for a moment, grow and shrink. Checked: every admitted request gets exactly one answer, right answers are
 * right, nothing is left at the end. The sanitizer presets look for the rest. */
#include "model/harness.h"

#include "base/rand.h"

#define SECONDS 3

struct chaos {
    struct world *w;
    struct os_thread t;
    uint64_t seed, until_ns;
    uint64_t asked, ok, refused, odd;
};

static const char *const models[] = {"echo", "pad", "two", "sick"};

/* One call to a random model; what it will be asked is remembered in *value. */
static int chaos_submit(struct chaos *me, struct call *c, struct rand *rnd, size_t *model, int32_t *value, int64_t *length)
{
    *model = rand_below(rnd, COUNT_OF(models));
    *value = (int32_t)rand_below(rnd, 1000);
    *length = *model == 1 ? 1 + (int64_t)rand_below(rnd, 9) : 1;
    int32_t x[9];
    for (int i = 0; i < 9; i++)
        x[i] = *value;
    int rc = call_init(c, me->w->r, models[*model], "");
    if (rc)
        return rc;
    call_input(c, "X", DTYPE_INT32, x, (size_t)*length, 2, (const int64_t[]){1, *length});
    if (rand_below(rnd, 3) == 0)
        c->inf.deadline_ns = os_monotonic_ns() + rand_below(rnd, 4 * MS);
    return call_submit(c);
}

static bool right_answer(const struct call *c, int32_t value, int64_t length)
{
    if (c->outputs[0].shape.dim[1] != length || c->outputs[0].data.n != (size_t)length * 4)
        return false;
    for (int64_t i = 0; i < length; i++) {
        int32_t y;
        memcpy(&y, c->outputs[0].data.p + 4 * i, 4);
        if (y != value)
            return false;
    }
    return true;
}

static void client_main(void *arg)
{
    struct chaos *me = arg;
    struct rand rnd;
    rand_init(&rnd, me->seed);
    while (os_monotonic_ns() < me->until_ns) {
        struct call c[6];
        size_t model[6];
        int32_t value[6];
        int64_t length[6];
        bool in[6];
        for (int i = 0; i < 6; i++) {
            int rc = chaos_submit(me, &c[i], &rnd, &model[i], &value[i], &length[i]);
            in[i] = rc == 0;
            me->asked++;
            me->refused += rc != 0;
        }
        if (rand_below(&rnd, 2))
            os_sleep_ns(rand_below(&rnd, 2 * MS));
        for (int i = 0; i < 6; i++)
            if (in[i] && rand_below(&rnd, 3) == 0)
                infer_cancel(&c[i].inf);
        for (int i = 0; i < 6; i++) {
            if (in[i]) {
                call_wait(&c[i]);
                me->ok += c[i].inf.status == 0;
                me->odd += c[i].times != 1 || (c[i].inf.status == 0 && !right_answer(&c[i], value[i], length[i]));
            }
            call_release(&c[i]);
        }
    }
}

static void control_main(void *arg)
{
    struct chaos *me = arg;
    struct rand rnd;
    rand_init(&rnd, me->seed);
    while (os_monotonic_ns() < me->until_ns) {
        struct str model = str_of(models[rand_below(&rnd, COUNT_OF(models))]);
        struct error err;
        int rc = rand_below(&rnd, 4) ? registry_load(me->w->r, model, STR(""), NULL, NULL, &err)
                                     : registry_unload(me->w->r, model, NULL, NULL, &err);
        me->asked++;
        me->refused += rc != 0;
        me->odd += rc && rc != STATUS_CONFLICT && rc != STATUS_NOT_FOUND;
        os_sleep_ns(rand_below(&rnd, 5 * MS));
    }
}

static void count_row(void *ctx, const struct index_row *row)
{
    *(size_t *)ctx += row->model.n > 0;
}

static void tick_main(void *arg)
{
    struct chaos *me = arg;
    while (os_monotonic_ns() < me->until_ns) {
        struct buf b;
        size_t rows = 0;
        registry_tick(me->w->r, os_monotonic_ns());
        registry_index(me->w->r, false, count_row, &rows);
        me->odd += rows < COUNT_OF(models);
        buf_init(&b);
        metrics_render(me->w->metrics, &b);
        buf_release(&b);
        os_sleep_ns(3 * MS);
    }
}

static void everything_at_once(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    put(&w, "echo/1/model.fake", IDENTITY "base_us = 100\njitter_us = 200\nfail_every = 11\n");
    put(&w, "echo/model.yaml", "max_batch_size: 8\nresponse_cache: {enable: true, size: 65536}\nmax_queue_rows: 20\n");
    put(&w, "pad/1/model.fake", "input = X INT32 [-1,len]\noutput = Y INT32 [-1,len] copy X\nbase_us = 100\n");
    put(&w, "pad/model.yaml", "max_batch_size: 8\ninput: [{name: X, padding: [{axis: 1}]}]\n");
    put(&w, "two/1/model.fake", IDENTITY "per_row_us = 300\npoison = 7\n");
    put(&w, "two/model.yaml", "max_batch_size: 4\ninstance_group: [{min: 1, max: 3}]\ndefault_deadline_ms: 20\n");
    put(&w, "sick/1/model.fake", IDENTITY "hang_every = 40\nhang_ms = 60\ncancellable = false\n");
    w.o.mode = REGISTRY_EXPLICIT;
    w.load[0] = "*";
    w.o.n_load = 1;
    w.o.hang_timeout_ns = 30 * MS;
    w.o.queue_bytes_total = 400;
    world_start(&w);
    struct chaos c[6];
    static void (*const mains[6])(void *) = {client_main, client_main, client_main, client_main, control_main, tick_main};
    for (int i = 0; i < 6; i++) {
        c[i] = (struct chaos){.w = &w, .seed = (uint64_t)i + 100, .until_ns = os_monotonic_ns() + SECONDS * 1000 * MS};
        assert_int_equal(os_thread_start(&c[i].t, "chaos", mains[i], &c[i], NULL), 0);
    }
    uint64_t asked = 0, ok = 0;
    for (int i = 0; i < 6; i++) {
        os_thread_join(&c[i].t);
        assert_int_equal(c[i].odd, 0);
        asked += i < 4 ? c[i].asked : 0;
        ok += c[i].ok;
    }
    assert_true(ok > 0 && ok < asked);
    until(is_idle, w.r, "idle");
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
