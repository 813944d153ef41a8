/* test_fault.c: what timing cannot reach: injected failures of a run and of memory, and an engine that never returns. */
#include "model/harness.h"

#include "model/registry_priv.h"

static bool in_engine(void *inf)
{
    return atomic_load(&((struct infer *)inf)->state) == INFER_RUNNING;
}

/* INFERD_FAULT (see main): the second run fails, the fifth submit finds no memory. Only those requests fail. */
static void injected(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    put(&w, "m/1/model.fake", IDENTITY);
    world_start(&w);
    struct error err;
    int32_t y;
    for (int32_t i = 1; i <= 8; i++) {
        int rc = ask(w.r, "m", "", i, &y, &err);
#ifdef INFERD_FAULTS
        if (i == 2) {
            assert_int_equal(rc, STATUS_INTERNAL);
            assert_string_equal(err.text, "model \"m\": a fault was injected");
            continue;
        }
        if (i == 5) {
            assert_int_equal(rc, STATUS_NOMEM);
            continue;
        }
#endif
        assert_int_equal(rc, 0);
        assert_int_equal(y, i);
    }
    until(is_idle, w.r, "idle");
    world_release(&w);
}

/* Static: what a hung run uses is left behind and stays in use to the end of the process. */
static struct world hung_world;

static bool tick_not_ready(void *r)
{
    registry_tick(r, os_monotonic_ns());
    return !registry_ready(r);
}

struct left {
    _Atomic int status;
    char text[ERROR_TEXT_BYTES];
};

static void left_done(void *ctx, int status, const char *text)
{
    struct left *l = ctx;
    snprintf(l->text, sizeof l->text, "%s", text);
    atomic_store(&l->status, status);
}

static bool left_over(void *l)
{
    return atomic_load(&((struct left *)l)->status) != 1;
}

static bool tick_left(void *l)
{
    registry_tick(hung_world.r, os_monotonic_ns());
    return left_over(l);
}

/* An engine that never returns: its clients are answered, an unload says why it can't finish, and shutdown takes no longer than it
 * promises. */
static void never_returns(void **state)
{
    (void)state;
    static struct call c;
    struct world *w = &hung_world;
    world_init(w);
    put(w, "m/1/model.fake", IDENTITY "hang = 666\ncancellable = false\n");
    w->o.hang_timeout_ns = 100 * MS;
    w->o.mode = REGISTRY_EXPLICIT;
    w->load[0] = "m";
    w->o.n_load = 1;
    world_start(w);
    int32_t v = 666;
    assert_int_equal(call_init(&c, w->r, "m", ""), 0);
    call_column(&c, "X", &v, 1);
    assert_int_equal(call_submit(&c), 0);
    until(in_engine, &c.inf, "the engine");
    until(tick_not_ready, w->r, "not ready");
    call_wait(&c);
    assert_int_equal(c.inf.status, STATUS_UNAVAILABLE);
    call_release(&c);
    static struct left l = {.status = 1};
    assert_int_equal(registry_unload(w->r, STR("m"), left_done, &l, NULL), 0);
    until(tick_left, &l, "the unload's outcome");
    assert_int_equal(l.status, STATUS_UNAVAILABLE);
    assert_non_null(strstr(l.text, "stopped answering"));
    uint64_t start = os_monotonic_ns();
    registry_destroy(w->r);
    assert_in_range((os_monotonic_ns() - start) / MS, 0, 2100 + 900);
    remove_tree(w->dir);
}

#define WARM "max_batch_size: 1\nmodel_warmup:\n  - name: w\n    batch_size: 1\n"

static bool nothing_left(void *arg)
{
    struct registry *r = arg;
    os_mutex_lock(&r->lock);
    bool none = r->alive == 0;
    os_mutex_unlock(&r->lock);
    return none;
}

/* A warm-up that doesn't return: the load fails when its time is over, the only loader goes on to other models, and what the engine
 * held is freed when it comes back. One that can be stopped leaves nothing behind. */
static void warm_up_has_a_limit(void **state)
{
    struct world w;
    (void)state;
    world_init(&w);
    put(&w, "stuck/1/model.fake", IDENTITY "hang_every = 1\nhang_ms = 2500\ncancellable = false\n");
    put(&w, "stuck/model.yaml", WARM);
    put(&w, "slow/1/model.fake", IDENTITY "hang_every = 1\n");
    put(&w, "slow/model.yaml", WARM);
    put(&w, "good/1/model.fake", IDENTITY);
    put(&w, "good/model.yaml", WARM);
    w.o.mode = REGISTRY_EXPLICIT;
    w.o.loader_threads = 1;
    w.o.warmup_timeout_ns = 200 * MS;
    world_start(&w);
    for (int i = 0; i < 2; i++) {
        static struct left l;
        l = (struct left){.status = 1};
        uint64_t start = os_monotonic_ns();
        assert_int_equal(registry_load(w.r, str_of(i ? "slow" : "stuck"), (struct str){0}, left_done, &l, NULL), 0);
        until(left_over, &l, "the load's outcome");
        assert_in_range((os_monotonic_ns() - start) / MS, 200, 2400);
        assert_int_equal(l.status, STATUS_DEADLINE);
        assert_non_null(strstr(l.text, "did not end within 0.2 s"));
        assert_true((strstr(l.text, "until its engine returns") == NULL) == (i == 1));
    }
    struct left good = {.status = 1}, gone = {.status = 1};
    assert_int_equal(registry_load(w.r, STR("good"), (struct str){0}, left_done, &good, NULL), 0);
    until(left_over, &good, "the load's outcome");
    assert_int_equal(good.status, 0);
    assert_int_equal(registry_unload(w.r, STR("good"), left_done, &gone, NULL), 0);
    until(left_over, &gone, "the unload's outcome");
    until(nothing_left, w.r, "the stuck version freed");
    assert_int_equal(w.r->reserved_bytes, 0);
    world_release(&w);
}

int main(void)
{
    setenv("INFERD_FAULT", "model_run:error@2x1,queue_push:oom@5x1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(injected),
        cmocka_unit_test(warm_up_has_a_limit),
        cmocka_unit_test(never_returns),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    fflush(NULL);
    _exit(rc); /* with a thread inside the fake engine for ever */
}
