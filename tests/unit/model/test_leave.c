/* test_leave.c: requests that end early or badly: poison in a batch, deadlines while the engine is busy, clients that go away, full
 * queues, hung instances, shutdown. Every admitted request gets exactly one answer. */
#include "model/harness.h"

#include "base/rand.h"
#include "model/version_priv.h"

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

static void submit_value(struct call *c, struct world *w, const char *model, int32_t v)
{
    assert_int_equal(call_init(c, w->r, model, ""), 0);
    call_column(c, "X", &v, 1);
    if (call_submit(c))
        fail_msg("%s", c->inf.error.text);
}

static bool in_engine(void *inf)
{
    return atomic_load(&((struct infer *)inf)->state) == INFER_RUNNING;
}

/* How late a thread may wake on a machine whose processors are taken several times over (this is a test of order, bench/ measures the
 * lateness). Runs in these tests last so much longer that an answer at the run's end is told apart from one at the deadline. */
#define LATE_MS 700

static uint64_t elapsed_ms(uint64_t from, uint64_t to)
{
    return (to - from) / MS;
}

/* C17: one bad request fails alone, whoever shared its batch. */
static void poison(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 10000\npoison = 13\n");
    world_start(w);
    enum { N = 30 };
    struct call *calls = calloc(N, sizeof *calls);
    for (int i = 0; i < N; i++)
        submit_value(&calls[i], w, "m", i);
    for (int i = 0; i < N; i++) {
        struct call *c = &calls[i];
        call_wait(c);
        assert_int_equal(c->times, 1);
        if (i == 13) {
            assert_int_equal(c->inf.status, STATUS_INVALID);
            assert_non_null(strstr(c->inf.error.text, "model \"m\": "));
            continue;
        }
        int32_t y;
        assert_int_equal(c->inf.status, 0);
        memcpy(&y, c->outputs[0].data.p, 4);
        assert_int_equal(y, i);
    }
    struct version_stats s;
    model_version_stats(calls[0].inf.version, &s);
    assert_int_equal(s.success.count, N - 1);
    assert_int_equal(s.fail.count, 1);
    for (int i = 0; i < N; i++)
        call_release(&calls[i]);
    free(calls);
}

/* C6: 504 at the deadline although the only instance is busy for far longer; also for the one that is in the engine. */
static void expiry_on_time(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 1500000\n");
    put(w, "m/model.yaml", "max_batch_size: 1\n");
    world_start(w);
    struct call busy, queued, running;
    uint64_t start = os_monotonic_ns();
    assert_int_equal(call_init(&running, w->r, "m", ""), 0);
    int32_t v = 1;
    call_column(&running, "X", &v, 1);
    running.inf.deadline_ns = start + 300 * MS;
    assert_int_equal(call_submit(&running), 0);
    until(in_engine, &running.inf, "the engine");
    assert_int_equal(call_init(&queued, w->r, "m", ""), 0);
    call_column(&queued, "X", &v, 1);
    queued.inf.timeout_ns = 100 * MS; /* KServe's parameter */
    assert_int_equal(call_submit(&queued), 0);
    submit_value(&busy, w, "m", 7);
    call_wait(&queued);
    assert_int_equal(queued.inf.status, STATUS_DEADLINE);
    assert_in_range(elapsed_ms(start, queued.over_ns), 100, 100 + LATE_MS);
    assert_non_null(strstr(queued.inf.error.text, "in the queue of model \"m\""));
    call_wait(&running);
    assert_int_equal(running.inf.status, STATUS_DEADLINE);
    assert_in_range(elapsed_ms(start, running.over_ns), 300, 300 + LATE_MS);
    assert_non_null(strstr(running.inf.error.text, "was computing"));
    call_wait(&busy); /* the engine was cancelled: the next one need not wait for the rest of the dead run */
    assert_int_equal(busy.inf.status, 0);
    assert_in_range(elapsed_ms(start, busy.over_ns), 1500, 1800 + LATE_MS); /* 3000 behind the dead run */
    call_release(&busy);
    call_release(&queued);
    call_release(&running);
}

/* A model's default deadline counts for who gives none, and a longer one of the client's own is cut to it. */
static void default_deadline(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 3000000\n");
    put(w, "m/model.yaml", "max_batch_size: 1\ndefault_deadline_ms: 100\n");
    world_start(w);
    struct call c;
    uint64_t start = os_monotonic_ns();
    assert_int_equal(call_init(&c, w->r, "m", ""), 0);
    int32_t v = 1;
    call_column(&c, "X", &v, 1);
    c.inf.deadline_ns = start + 60000 * MS;
    assert_int_equal(call_submit(&c), 0);
    call_wait(&c);
    assert_int_equal(c.inf.status, STATUS_DEADLINE);
    assert_in_range(elapsed_ms(start, c.over_ns), 100, 100 + LATE_MS);
    call_release(&c);
}

/* C8: queued: gone at once. Running alone: the engine stops. */
static void cancel(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 3000000\n");
    put(w, "m/model.yaml", "max_batch_size: 1\n");
    world_start(w);
    struct call a, b;
    uint64_t start = os_monotonic_ns();
    submit_value(&a, w, "m", 1);
    until(in_engine, &a.inf, "the engine");
    submit_value(&b, w, "m", 2);
    infer_cancel(&b.inf);
    call_wait(&b);
    assert_int_equal(b.inf.status, STATUS_CANCELLED);
    infer_cancel(&b.inf); /* no effect */
    infer_cancel(&a.inf);
    call_wait(&a);
    assert_int_equal(a.inf.status, STATUS_CANCELLED);
    assert_in_range(elapsed_ms(start, os_monotonic_ns()), 0, 1000);
    call_release(&a);
    call_release(&b);
    struct call next;
    submit_value(&next, w, "m", 3); /* the instance is free again well before 3 s */
    infer_cancel(&next.inf);
    call_wait(&next);
    assert_int_equal(next.times, 1);
    call_release(&next);
    until(is_idle, w->r, "idle");
    assert_in_range(elapsed_ms(start, os_monotonic_ns()), 0, 1500);
}

/* C19: a burst of clients that give up leaves no ghost work: what comes after is as fast as before. */
static void no_ghosts(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 40000\n");
    put(w, "m/model.yaml", "max_batch_size: 2\n");
    world_start(w);
    enum { N = 100 };
    struct call *calls = calloc(N, sizeof *calls);
    for (int i = 0; i < N; i++)
        submit_value(&calls[i], w, "m", i);
    for (int i = 0; i < N; i++)
        infer_cancel(&calls[i].inf);
    for (int i = 0; i < N; i++) {
        call_wait(&calls[i]);
        assert_int_equal(calls[i].times, 1);
        call_release(&calls[i]);
    }
    uint64_t start = os_monotonic_ns();
    int32_t y;
    assert_int_equal(ask(w->r, "m", "", 5, &y, NULL), 0);
    assert_in_range(elapsed_ms(start, os_monotonic_ns()), 0, 900); /* 50 ghost batches would be two seconds */
    free(calls);
}

struct racer {
    struct world *w;
    struct os_thread t;
    uint64_t seed;
    unsigned ok, cancelled, other;
};

/* Submits, and cancels at a random moment, from this thread while instances answer. */
static void race_main(void *arg)
{
    struct racer *me = arg;
    struct rand rnd;
    rand_init(&rnd, me->seed);
    for (int i = 0; i < 150; i++) {
        struct call calls[4];
        for (int k = 0; k < 4; k++) {
            int32_t v = i * 4 + k;
            assert_int_equal(call_init(&calls[k], me->w->r, "m", ""), 0);
            call_column(&calls[k], "X", &v, 1);
            if (rand_below(&rnd, 4) == 0)
                calls[k].inf.deadline_ns = os_monotonic_ns() + rand_below(&rnd, 2 * MS);
            if (call_submit(&calls[k]))
                calls[k].over = true, calls[k].inf.status = STATUS_EXHAUSTED;
        }
        uint64_t end = os_monotonic_ns() + rand_below(&rnd, 1500000);
        while (os_monotonic_ns() < end)
            ;
        for (int k = 0; k < 4; k++)
            if (rand_below(&rnd, 2))
                infer_cancel(&calls[k].inf);
        for (int k = 0; k < 4; k++) {
            call_wait(&calls[k]);
            int32_t y = -1, want = i * 4 + k;
            if (calls[k].inf.status == 0)
                memcpy(&y, calls[k].outputs[0].data.p, 4);
            me->ok += y == want;
            me->cancelled += calls[k].inf.status == STATUS_CANCELLED;
            me->other += calls[k].inf.status ? calls[k].inf.status != STATUS_CANCELLED : y != want ? 1000000 : 0;
            call_release(&calls[k]);
        }
    }
}

static void cancel_races(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 700\njitter_us = 700\nfail_every = 7\n");
    put(w, "m/config.pbtxt", "max_batch_size: 4 instance_group [ { count: 2 } ]\n");
    world_start(w);
    struct racer racers[3];
    for (int i = 0; i < 3; i++) {
        racers[i] = (struct racer){.w = w, .seed = (uint64_t)i + 1};
        assert_int_equal(os_thread_start(&racers[i].t, "racer", race_main, &racers[i], NULL), 0);
    }
    unsigned ok = 0, cancelled = 0;
    for (int i = 0; i < 3; i++) {
        os_thread_join(&racers[i].t);
        ok += racers[i].ok;
        cancelled += racers[i].cancelled;
        assert_in_range(racers[i].other, 0, 600);
    }
    assert_true(ok > 0 && cancelled > 0);
    until(is_idle, w->r, "idle");
}

/* C13: bounded by rows a model, and by bytes over all models: refused with EXHAUSTED, and the bound is named. */
static void queue_bounds(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 300000\n");
    put(w, "m/model.yaml", "max_batch_size: 1\nmax_queue_rows: 3\n");
    put(w, "n/1/model.fake", IDENTITY "base_us = 300000\n");
    put(w, "n/model.yaml", "max_batch_size: 1\nmax_queue_rows: 1000\n");
    w->o.queue_bytes_total = 40; /* ten values of 4 bytes */
    world_start(w);
    struct call c[8], d[20];
    int accepted = 0, n_accepted = 0;
    for (int i = 0; i < 8; i++) {
        int32_t v = i;
        assert_int_equal(call_init(&c[i], w->r, "m", ""), 0);
        call_column(&c[i], "X", &v, 1);
        int rc = call_submit(&c[i]);
        if (i == 0)
            until(in_engine, &c[0].inf, "the engine");
        accepted += rc == 0;
        c[i].over |= rc != 0;
        if (rc) {
            assert_int_equal(rc, STATUS_EXHAUSTED);
            assert_non_null(strstr(c[i].inf.error.text, "3"));
        }
    }
    assert_int_equal(accepted, 4); /* one running, three queued */
    for (int i = 0; i < 20; i++) {
        int32_t v = i;
        assert_int_equal(call_init(&d[i], w->r, "n", ""), 0);
        call_column(&d[i], "X", &v, 1);
        int rc = call_submit(&d[i]);
        if (i == 0)
            until(in_engine, &d[0].inf, "the engine");
        n_accepted += rc == 0;
        d[i].over |= rc != 0;
        if (rc) {
            assert_int_equal(rc, STATUS_EXHAUSTED);
            assert_non_null(strstr(d[i].inf.error.text, "of 40 bytes"));
        }
    }
    assert_int_equal(n_accepted, 1 + 10 - 3);
    for (int i = 0; i < 8; i++)
        infer_cancel(&c[i].inf);
    for (int i = 0; i < 20; i++)
        infer_cancel(&d[i].inf);
    for (int i = 0; i < 8; i++) {
        call_wait(&c[i]);
        call_release(&c[i]);
    }
    for (int i = 0; i < 20; i++) {
        call_wait(&d[i]);
        call_release(&d[i]);
    }
    assert_int_equal(ask(w->r, "n", "", 5, NULL, NULL), 0); /* the bytes came back */
}

struct ticking {
    struct world *w;
    bool ready;
};

static bool tick_until(void *arg)
{
    struct ticking *t = arg;
    registry_tick(t->w->r, os_monotonic_ns());
    return registry_ready(t->w->r) == t->ready;
}

/* C10: a hung run turns the server NOT READY, answers the queue and the run's own clients, refuses new work, and all of that ends
 * when the run returns. */
static void hang(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "hang = 666\nhang_ms = 700\ncancellable = false\n");
    put(w, "m/model.yaml", "max_batch_size: 1\n");
    put(w, "other/1/model.fake", IDENTITY);
    w->o.hang_timeout_ns = 150 * MS;
    world_start(w);
    assert_true(registry_ready(w->r));
    struct call bad, queued;
    submit_value(&bad, w, "m", 666);
    until(in_engine, &bad.inf, "the engine");
    submit_value(&queued, w, "m", 1);
    struct ticking t = {w, false};
    until(tick_until, &t, "not ready");
    call_wait(&bad);
    call_wait(&queued);
    assert_int_equal(bad.inf.status, STATUS_UNAVAILABLE);
    assert_int_equal(queued.inf.status, STATUS_UNAVAILABLE);
    struct error err;
    assert_int_equal(ask(w->r, "m", "", 2, NULL, &err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(err.text, "stopped answering"));
    assert_int_equal(infer_submit(&queued.inf, NULL, &err), STATUS_UNAVAILABLE); /* also with a version found before */
    int32_t y;
    assert_int_equal(ask(w->r, "other", "", 3, &y, NULL), 0);
    call_release(&bad);
    call_release(&queued);
    t.ready = true;
    until(tick_until, &t, "ready again");
    assert_int_equal(ask(w->r, "m", "", 4, &y, NULL), 0);
    assert_int_equal(y, 4);
}

static bool one_hung(void *arg)
{
    struct ticking *t = arg;
    registry_tick(t->w->r, os_monotonic_ns());
    struct model_version *v;
    assert_int_equal(registry_find(t->w->r, STR("m"), STR(""), &v, NULL), 0);
    bool hung = v->n_hung == 1; /* registry_tick wrote it, on this thread */
    model_version_unref(v);
    return hung;
}

/* Two instances: while one is hung the version serves and is READY; its own client is told; with both hung it is NOT READY. */
static void one_of_two_hangs(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "hang = 666\nhang_ms = 1500\ncancellable = false\n");
    put(w, "m/model.yaml", "max_batch_size: 1\ninstance_group:\n  - count: 2\n");
    w->o.hang_timeout_ns = 150 * MS;
    world_start(w);
    struct call first, second;
    submit_value(&first, w, "m", 666);
    until(in_engine, &first.inf, "the engine");
    struct ticking t = {w, false};
    until(one_hung, &t, "one hung instance");
    call_wait(&first);
    assert_int_equal(first.inf.status, STATUS_UNAVAILABLE);
    assert_true(registry_ready(w->r));
    for (int i = 0; i < 20; i++) {
        int32_t y;
        assert_int_equal(ask(w->r, "m", "", i, &y, NULL), 0);
        assert_int_equal(y, i);
    }
    submit_value(&second, w, "m", 666);
    until(tick_until, &t, "not ready");
    call_wait(&second);
    assert_int_equal(second.inf.status, STATUS_UNAVAILABLE);
    t.ready = true;
    until(tick_until, &t, "ready again");
    call_release(&first);
    call_release(&second);
}

/* Shutdown answers what is queued, lets what runs finish, refuses the rest. */
static void drain(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 200000\n");
    put(w, "m/model.yaml", "max_batch_size: 1\n");
    world_start(w);
    struct call a, b;
    submit_value(&a, w, "m", 1);
    until(in_engine, &a.inf, "the engine");
    submit_value(&b, w, "m", 2);
    registry_drain(w->r);
    assert_false(registry_ready(w->r));
    call_wait(&b);
    assert_int_equal(b.inf.status, STATUS_UNAVAILABLE);
    assert_int_equal(ask(w->r, "m", "", 3, NULL, NULL), STATUS_UNAVAILABLE);
    call_wait(&a);
    assert_int_equal(a.inf.status, 0);
    until(is_idle, w->r, "idle");
    call_release(&a);
    call_release(&b);
}

/* A model whose output rows do not follow the batch: members are run one by one, and every answer is right. */
static void unscatterable(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake",
        "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] copy X\noutput = Z INT32 [-1,1] fill 9\n"
        "batchable = false\nbase_us = 10000\n");
    put(w, "m/model.yaml", "max_batch_size: 4\n");
    world_start(w);
    struct error err = {0};
    struct call c[6];
    for (int i = 0; i < 6; i++) {
        int32_t v = i;
        if (call_init(&c[i], w->r, "m", ""))
            fail_msg("%s", c[i].inf.error.text);
        call_column(&c[i], "X", &v, 1);
        if (infer_submit(&c[i].inf, NULL, &err))
            fail_msg("%s", err.text);
    }
    for (int i = 0; i < 6; i++) {
        int32_t y;
        call_wait(&c[i]);
        assert_int_equal(c[i].inf.status, 0);
        memcpy(&y, c[i].outputs[0].data.p, 4);
        assert_int_equal(y, i);
        assert_int_equal(c[i].outputs[1].shape.dim[0], 1);
        call_release(&c[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(poison, setup, teardown),
        cmocka_unit_test_setup_teardown(expiry_on_time, setup, teardown),
        cmocka_unit_test_setup_teardown(default_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(no_ghosts, setup, teardown),
        cmocka_unit_test_setup_teardown(cancel_races, setup, teardown),
        cmocka_unit_test_setup_teardown(queue_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(hang, setup, teardown),
        cmocka_unit_test_setup_teardown(one_of_two_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(drain, setup, teardown),
        cmocka_unit_test_setup_teardown(unscatterable, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
