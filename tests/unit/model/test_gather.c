/* test_gather.c: what an instance keeps of its batch memory: enough for the batches it sees, not for the largest it ever saw. */
#include "harness.h"

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

/* One request of [1, n] whose bytes are not aligned, so that the instance copies them. */
static void ask_unaligned(struct world *w, int64_t n)
{
    struct call c;
    size_t bytes = (size_t)n * 4;
    assert_int_equal(call_init(&c, w->r, "m", ""), 0);
    struct slab *s = slab_create(bytes + 4);
    assert_non_null(s);
    memset(s->data, 0, bytes + 4);
    c.inputs[0] = (struct tensor){
        .name = STR("X"), .dtype = DTYPE_INT32, .shape = {.rank = 2, .dim = {1, n}}, .data = slice_of(s, 4, bytes)};
    c.inf.n_inputs = 1;
    slab_unref(s);
    if (call_submit(&c))
        fail_msg("%s", c.inf.error.text);
    call_wait(&c);
    assert_int_equal(c.inf.status, 0);
    call_release(&c);
}

/* Bytes that the model's only instance keeps, once it is idle. */
static size_t kept(struct world *w)
{
    struct model_version *v;
    until(is_idle, w->r, "idle");
    assert_int_equal(registry_find(w->r, STR("m"), STR(""), &v, NULL), 0);
    os_mutex_lock(&v->lock);
    while (!v->idle)
        os_cond_wait_until(&v->work, &v->lock, os_monotonic_ns() + MS);
    struct slab *s = LIST_ENTRY(list_first(&v->instances), struct instance, link)->buffer[0].slab;
    size_t n = s ? s->cap : 0;
    os_mutex_unlock(&v->lock);
    model_version_unref(v);
    return n;
}

static void start(struct world *w)
{
    put(w, "m/1/model.fake", "input = X INT32 [-1,-1]\noutput = Y INT32 [-1] row_sum X\n");
    put(w, "m/model.yaml", "max_batch_size: 4\n");
    world_start(w);
}

/* A giant is forgotten after two windows of small ones; sizes that alternate within a window keep their memory. */
static void giants_are_forgotten(void **state)
{
    struct world *w = *state;
    const int64_t giant = 4 << 20, small = 1000;
    start(w);
    ask_unaligned(w, giant);
    assert_true(kept(w) >= (size_t)giant * 4);
    for (int i = 0; i < 10; i++)
        ask_unaligned(w, small);
    assert_true(kept(w) >= (size_t)giant * 4);
    for (int i = 0; i < 130; i++)
        ask_unaligned(w, small);
    assert_in_range(kept(w), small * 4, 1 << 20);
}

/* An idle instance gives all of it back, and serves as before afterwards. */
static void idle_memory_is_given_back(void **state)
{
    struct world *w = *state;
    struct model_version *v;
    start(w);
    ask_unaligned(w, 1000);
    assert_true(kept(w) > 0);
    assert_int_equal(registry_find(w->r, STR("m"), STR(""), &v, NULL), 0);
    struct instance *i = LIST_ENTRY(list_first(&v->instances), struct instance, link);
    uint64_t now = os_monotonic_ns();
    assert_in_range(gather_trim_at(i), now + 1, now + 10000 * MS); /* ten seconds after its last batch */
    gather_trim(i);
    assert_int_equal(kept(w), 0);
    assert_true(gather_trim_at(i) == SCHED_NEVER);
    model_version_unref(v);
    ask_unaligned(w, 1000);
    assert_true(kept(w) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(giants_are_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(idle_memory_is_given_back, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
