/* test_serve.c: from a folder on the disk to answers: find, contract, batches, statistics, index. */
#include <sys/wait.h>

#include "base/check.h"
#include "model/harness.h"
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

static void one_request(void **state)
{
    struct world *w = *state;
    put(w, "id/1/model.fake", IDENTITY);
    world_start(w);
    assert_true(registry_ready(w->r));
    int32_t y = 0;
    assert_int_equal(ask(w->r, "id", "", 42, &y, NULL), 0);
    assert_int_equal(y, 42);
    assert_int_equal(ask(w->r, "id", "1", -7, &y, NULL), 0);
    assert_int_equal(y, -7);
    struct error err;
    assert_int_equal(ask(w->r, "nobody", "", 1, NULL, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "there is no model \"nobody\"");
    assert_int_equal(ask(w->r, "id", "2", 1, NULL, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "model \"id\" has no version or label \"2\": it serves 1");
}

/* Notes of submits wake nobody until they are handed in: then one batch takes all, and each waker stands around its answers once. */
struct counting_waker {
    struct infer_waker waker;
    _Atomic int begun, ended;
    struct call *calls; /* [4], of which the first two are this waker's */
    _Atomic int over_at_begin, over_at_end;
};

static int over_of(struct counting_waker *w)
{
    int over = 0;
    for (int i = 0; i < 2; i++) {
        os_mutex_lock(&w->calls[i].lock);
        over += w->calls[i].over;
        os_mutex_unlock(&w->calls[i].lock);
    }
    return over;
}

static void count_begin(struct infer_waker *x)
{
    struct counting_waker *w = CONTAINER_OF(x, struct counting_waker, waker);
    w->over_at_begin = over_of(w);
    w->begun++;
}

static void count_end(struct infer_waker *x)
{
    struct counting_waker *w = CONTAINER_OF(x, struct counting_waker, waker);
    w->over_at_end = over_of(w);
    w->ended++;
}

static bool both_ended(void *arg)
{
    struct counting_waker *w = arg;
    return w[0].ended && w[1].ended;
}

/* Its instance sleeps: only then is there anybody to wake. */
static bool is_asleep(void *version)
{
    struct model_version *v = version;
    os_mutex_lock(&v->lock);
    bool idle = v->idle == 1;
    os_mutex_unlock(&v->lock);
    return idle;
}

static void notes_and_bursts(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY);
    put(w, "m/model.yaml", "max_batch_size: 8\n");
    world_start(w);
    struct call calls[4];
    struct counting_waker wakers[2];
    struct infer_wakes later = {0};
    memset(wakers, 0, sizeof wakers);
    for (int k = 0; k < 2; k++) {
        wakers[k].waker = (struct infer_waker){count_begin, count_end};
        wakers[k].calls = &calls[2 * k];
    }
    for (int i = 0; i < 4; i++) {
        int32_t v = i;
        assert_int_equal(call_init(&calls[i], w->r, "m", ""), 0);
        if (!i)
            until(is_asleep, calls[i].inf.version, "an idle instance");
        calls[i].inf.waker = &wakers[i / 2].waker;
        call_column(&calls[i], "X", &v, 1);
        assert_int_equal(infer_submit(&calls[i].inf, &later, &calls[i].inf.error), 0);
    }
    assert_int_equal(later.n, 1);
    os_sleep_ns(20000000);
    assert_int_equal(over_of(&wakers[0]) + over_of(&wakers[1]), 0);
    infer_wake(&later);
    assert_int_equal(later.n, 0);
    for (int i = 0; i < 4; i++) {
        call_wait(&calls[i]);
        assert_int_equal(calls[i].inf.batch_rows, 4);
    }
    until(both_ended, wakers, "the end of the burst");
    for (int k = 0; k < 2; k++) {
        assert_int_equal(wakers[k].begun, 1);
        assert_int_equal(wakers[k].ended, 1);
        assert_int_equal(wakers[k].over_at_begin, 0);
        assert_int_equal(wakers[k].over_at_end, 2);
    }
    for (int i = 0; i < 4; i++)
        call_release(&calls[i]);
}

static char reported[256]; /* what a crash report would have named while the engine ran */
static _Atomic int runs_seen;

static int run_reported(struct engine_instance *i, struct engine_run *run, struct error *err)
{
    const char *requests = check_get_request();
    snprintf(reported, sizeof reported, "%s", requests ? requests : "none");
    runs_seen++;
    return engine_fake.run(i, run, err);
}

static bool has_run(void *arg)
{
    (void)arg;
    return runs_seen > 0;
}

/* A crash in the engine names the requests of the batch. */
static void requests_of_a_run_are_known(void **state)
{
    struct world *w = *state;
    struct engine_ops ops = engine_fake;
    const struct engine_ops *const engines[] = {&ops, NULL};
    ops.run = run_reported;
    w->o.engines = engines;
    put(w, "m/1/model.fake", IDENTITY "base_us = 100000\n");
    put(w, "m/model.yaml", "max_batch_size: 8\n");
    world_start(w);
    struct call calls[3];
    static const char *const ids[] = {"first", "second", "third"};
    for (int i = 0; i < 3; i++) {
        int32_t v = i;
        assert_int_equal(call_init(&calls[i], w->r, "m", ""), 0);
        calls[i].inf.request_id = ids[i];
        call_column(&calls[i], "X", &v, 1);
        assert_int_equal(call_submit(&calls[i]), 0);
        if (i == 0)
            until(has_run, NULL, "the first run: the others gather while it lasts");
    }
    call_wait(&calls[0]);
    for (int i = 1; i < 3; i++)
        call_wait(&calls[i]);
    assert_string_equal(reported, "second third");
    for (int i = 0; i < 3; i++)
        call_release(&calls[i]);
    world_release(w); /* before `ops` goes */
    world_init(w);
}

/* C16, C17: rows are counted, each client gets its own rows in its order. */
static void batches(void **state)
{
    struct world *w = *state;
    put(w, "slow/1/model.fake",
        "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] copy X\noutput = ROWS INT32 [-1,1] rows\nbase_us = 20000\n");
    put(w, "slow/config.pbtxt", "max_batch_size: 8\n");
    world_start(w);
    enum { N = 40 };
    struct call *calls = calloc(N, sizeof *calls);
    uint32_t seen_rows = 0;
    for (int i = 0; i < N; i++) {
        int32_t v[3] = {i * 10, i * 10 + 1, i * 10 + 2};
        assert_int_equal(call_init(&calls[i], w->r, "slow", ""), 0);
        call_column(&calls[i], "X", v, 1 + i % 3);
        assert_int_equal(call_submit(&calls[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        struct call *c = &calls[i];
        call_wait(c);
        assert_int_equal(c->inf.status, 0);
        assert_int_equal(c->outputs[0].shape.dim[0], 1 + i % 3);
        for (int k = 0; k <= i % 3; k++) {
            int32_t y, rows;
            memcpy(&y, c->outputs[0].data.p + 4 * k, 4);
            memcpy(&rows, c->outputs[1].data.p + 4 * k, 4);
            assert_int_equal(y, i * 10 + k);
            assert_in_range(rows, 1, 8);
            seen_rows = rows > (int)seen_rows ? (uint32_t)rows : seen_rows;
            assert_int_equal(rows, c->inf.batch_rows);
        }
    }
    assert_in_range(seen_rows, 6, 8);
    struct version_stats s;
    model_version_stats(calls[0].inf.version, &s);
    assert_int_equal(s.success.count, N);
    assert_int_equal(s.inference_count, 79); /* 14 x 1 + 13 x 2 + 13 x 3 */
    assert_in_range(s.execution_count, 10, N / 2);
    uint64_t rows = 0, runs = 0;
    for (size_t i = 0; i < s.n_batch; i++) {
        assert_in_range(s.batch[i].rows, 1, 8);
        rows += s.batch[i].rows * s.batch[i].infer.count;
        runs += s.batch[i].infer.count;
    }
    assert_int_equal(rows, 79);
    assert_int_equal(runs, s.execution_count);
    assert_int_equal(s.pending, 0);
    for (int i = 0; i < N; i++)
        call_release(&calls[i]);
    free(calls);
}

static const char *refusal(struct world *w, const char *model, struct call *c)
{
    static char text[ERROR_TEXT_BYTES];
    (void)w;
    (void)model;
    assert_int_equal(call_submit(c), STATUS_INVALID);
    snprintf(text, sizeof text, "%s", c->inf.error.text);
    call_release(c);
    return text;
}

/* C22: golden messages. */
static void messages(void **state)
{
    struct world *w = *state;
    put(w, "vision/1/model.fake", "input = x FP32 [-1,3,224,224]\noutput = y FP32 [-1,1] row_sum x\n");
    put(w, "vision/model.yaml", "max_batch_size: 8\n");
    put(w, "pair/1/model.fake", "input = a INT32 [-1,2]\ninput = b INT32 [-1,2]\noutput = y INT32 [-1,2] add a b\n");
    world_start(w);
    static float zeros[9 * 3 * 224 * 224];
    struct call c;
    assert_int_equal(call_init(&c, w->r, "vision", ""), 0);
    call_input(&c, "x", DTYPE_FP32, zeros, COUNT_OF(zeros), 4, (const int64_t[]){9, 3, 224, 224});
    assert_string_equal(refusal(w, "vision", &c), "input \"x\": expected FP32 [batch,3,224,224] with batch 1..8, got FP32 "
                                                  "[9,3,224,224]: split the request or raise max_batch_size");
    assert_int_equal(call_init(&c, w->r, "vision", ""), 0);
    call_input(&c, "x", DTYPE_FP32, zeros, 3 * 224 * 224, 3, (const int64_t[]){3, 224, 224});
    assert_string_equal(refusal(w, "vision", &c), "input \"x\": expected FP32 [batch,3,224,224] with batch 1..8, got FP32 "
                                                  "[3,224,224]: put a batch axis in front, of length 1 for one row");
    assert_int_equal(call_init(&c, w->r, "vision", ""), 0);
    call_input(&c, "x", DTYPE_INT32, zeros, 3 * 224 * 224, 4, (const int64_t[]){1, 3, 224, 224});
    assert_string_equal(refusal(w, "vision", &c), "input \"x\": expected FP32 [batch,3,224,224] with batch 1..8, got INT32 "
                                                  "[1,3,224,224]: send the tensor as FP32");
    assert_int_equal(call_init(&c, w->r, "vision", ""), 0);
    call_input(&c, "x", DTYPE_FP32, zeros, 3 * 224 * 225, 4, (const int64_t[]){1, 3, 224, 225});
    assert_string_equal(refusal(w, "vision", &c), "input \"x\": expected FP32 [batch,3,224,224] with batch 1..8, got FP32 "
                                                  "[1,3,224,225]: dim 3 must be 224");
    assert_int_equal(call_init(&c, w->r, "vision", ""), 0);
    call_input(&c, "X", DTYPE_FP32, zeros, 3 * 224 * 224, 4, (const int64_t[]){1, 3, 224, 224});
    assert_string_equal(refusal(w, "vision", &c), "input \"X\" is unknown: the model's inputs are \"x\"");
    assert_int_equal(call_init(&c, w->r, "vision", ""), 0);
    assert_string_equal(refusal(w, "vision", &c), "input \"x\" is missing: expected FP32 [batch,3,224,224]");

    assert_int_equal(call_init(&c, w->r, "pair", ""), 0);
    call_input(&c, "b", DTYPE_INT32, zeros, 2, 2, (const int64_t[]){1, 2});
    call_input(&c, "a", DTYPE_INT32, zeros, 4, 2, (const int64_t[]){2, 2});
    assert_string_equal(refusal(w, "pair", &c),
                        "input \"a\" has batch 2 and input \"b\" has batch 1: all inputs of a request must "
                        "have the same batch");
    assert_int_equal(call_init(&c, w->r, "pair", ""), 0);
    call_input(&c, "a", DTYPE_INT32, zeros, 2, 2, (const int64_t[]){1, 2});
    call_input(&c, "a", DTYPE_INT32, zeros, 2, 2, (const int64_t[]){1, 2});
    assert_string_equal(refusal(w, "pair", &c), "input \"a\" is given twice: send each input once");
    assert_int_equal(call_init(&c, w->r, "pair", ""), 0);
    call_input(&c, "a", DTYPE_INT32, zeros, 2, 2, (const int64_t[]){0, 2});
    call_input(&c, "b", DTYPE_INT32, zeros, 2, 2, (const int64_t[]){0, 2});
    assert_string_equal(refusal(w, "pair", &c),
                        "input \"a\": expected INT32 [batch,2] with batch 1..32, got INT32 [0,2]: send at least one row");
}

/* Any order of inputs; a wanted subset of outputs. */
static void order_and_wanted(void **state)
{
    struct world *w = *state;
    put(w, "simple/1/model.fake",
        "input = a INT32 [-1,2]\ninput = b INT32 [-1,2]\noutput = s INT32 [-1,2] add a b\n"
        "output = d INT32 [-1,2] sub a b\n");
    world_start(w);
    struct call c;
    int32_t a[] = {10, 20}, b[] = {1, 2}, d[2];
    assert_int_equal(call_init(&c, w->r, "simple", ""), 0);
    call_input(&c, "b", DTYPE_INT32, b, 2, 2, (const int64_t[]){1, 2});
    call_input(&c, "a", DTYPE_INT32, a, 2, 2, (const int64_t[]){1, 2});
    c.wanted[1] = true;
    c.inf.wanted = c.wanted;
    assert_int_equal(call_submit(&c), 0);
    call_wait(&c);
    assert_int_equal(c.inf.status, 0);
    assert_int_equal(c.outputs[0].dtype, DTYPE_INVALID);
    assert_true(str_eqz(c.outputs[1].name, "d"));
    memcpy(d, c.outputs[1].data.p, sizeof d);
    assert_int_equal(d[0], 9);
    assert_int_equal(d[1], 18);
    call_release(&c);
}

struct rows {
    char text[1024];
};

static void add_row(void *ctx, const struct index_row *row)
{
    struct rows *r = ctx;
    size_t n = strlen(r->text);
    snprintf(r->text + n, sizeof r->text - n, "%.*s/%.*s %s %.*s\n", STR_ARG(row->model), STR_ARG(row->version),
             version_state_name(row->state), STR_ARG(row->reason));
}

/* A broken model is its own trouble; strict readiness sees it; the index has its reason. */
static void index_and_readiness(void **state)
{
    struct world *w = *state;
    put(w, "good/1/model.fake", IDENTITY);
    put(w, "bad/1/model.fake", IDENTITY "load_fail = the weights are damaged\n");
    put(w, "empty/readme", "no model here");
    world_start(w);
    assert_false(registry_ready(w->r));
    int32_t y;
    assert_int_equal(ask(w->r, "good", "", 5, &y, NULL), 0);
    struct error err;
    assert_int_equal(ask(w->r, "bad", "", 5, &y, &err), STATUS_UNAVAILABLE);
    assert_string_equal(err.text, "model \"bad\" version 1 failed to load: the weights are damaged");
    struct rows rows = {""};
    registry_index(w->r, false, add_row, &rows);
    assert_string_equal(
        rows.text,
        "bad/1 UNAVAILABLE the weights are damaged\n"
        "empty/1 UNAVAILABLE model \"empty\" version 1 has no model file: expected model.fake; a model in another format must "
        "be exported to one of them\n"
        "good/1 READY \n");
    rows.text[0] = 0;
    registry_index(w->r, true, add_row, &rows);
    assert_string_equal(rows.text, "good/1 READY \n");
}

/* Without strict readiness, ready means that the first pass is over. */
static void lax_readiness(void **state)
{
    struct world *w = *state;
    put(w, "bad/1/model.fake", IDENTITY "load_fail = the weights are damaged\n");
    w->o.strict_readiness = false;
    world_start(w);
    assert_true(registry_ready(w->r));
}

/* Padding with a mask: answers are those of the request alone; the mask is made when it is left out. */
static void padding(void **state)
{
    struct world *w = *state;
    put(w, "text/1/model.fake",
        "input = ids INT32 [-1,len]\ninput = mask INT32 [-1,len]\noutput = sum INT32 [-1,1] row_sum mask\n"
        "output = echo INT32 [-1,len] copy ids\noutput = rows INT32 [-1,1] rows\nbase_us = 20000\n");
    put(w, "text/model.yaml",
        "max_batch_size: 4\ninput:\n  - name: ids\n    padding:\n      - axis: 1\n        buckets: [4, 8]\n"
        "        value: -1\n        mask_input: mask\n  - name: mask\n");
    world_start(w);
    enum { N = 9 };
    struct call calls[N];
    int32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < N; i++) {
        int64_t len = 1 + i % 4;
        assert_int_equal(call_init(&calls[i], w->r, "text", ""), 0);
        call_input(&calls[i], "ids", DTYPE_INT32, ids, (size_t)len, 2, (const int64_t[]){1, len});
        assert_int_equal(call_submit(&calls[i]), 0);
    }
    int32_t most = 0;
    for (int i = 0; i < N; i++) {
        int64_t len = 1 + i % 4;
        int32_t sum, rows;
        call_wait(&calls[i]);
        if (calls[i].inf.status)
            fail_msg("%s", calls[i].inf.error.text);
        memcpy(&sum, calls[i].outputs[0].data.p, 4);
        memcpy(&rows, calls[i].outputs[2].data.p, 4);
        most = rows > most ? rows : most;
        assert_int_equal(sum, len);
        assert_int_equal(calls[i].outputs[1].shape.dim[1], len);
        assert_memory_equal(calls[i].outputs[1].data.p, ids, (size_t)len * 4);
        call_release(&calls[i]);
    }
    assert_in_range(most, 2, 4); /* different lengths shared a batch */
}

static int64_t warm_shape[2][2]; /* of ids and mask in the last run before READY */
static int32_t warm_mask[8];

static int run_seen(struct engine_instance *i, struct engine_run *run, struct error *err)
{
    for (int k = 0; k < 2; k++)
        memcpy(warm_shape[k], run->inputs[k].shape.dim, sizeof warm_shape[k]);
    memcpy(warm_mask, run->inputs[1].data.p, MIN_OF(run->inputs[1].data.n, sizeof warm_mask));
    return engine_fake.run(i, run, err);
}

/* A warm-up request of length 3 runs as clients' requests of length 3 will: padded to 4, with the mask made. */
static void warm_up_is_padded(void **state)
{
    struct world *w = *state;
    struct engine_ops ops = engine_fake;
    const struct engine_ops *const engines[] = {&ops, NULL};
    ops.run = run_seen;
    w->o.engines = engines;
    put(w, "text/1/model.fake",
        "input = ids INT32 [-1,len]\ninput = mask INT32 [-1,len]\noutput = sum INT32 [-1,1] row_sum mask\n");
    put(w, "text/model.yaml",
        "max_batch_size: 4\ninput:\n  - name: ids\n    padding: {axis: 1, buckets: [4, 8], mask_input: mask}\n  - name: mask\n"
        "model_warmup:\n  - {name: w, batch_size: 2, inputs: {ids: {data_type: TYPE_INT32, dims: [3], zero_data: true}}}\n");
    world_start(w);
    assert_true(registry_ready(w->r));
    static const int64_t shapes[2][2] = {{2, 4}, {2, 4}};
    static const int32_t mask[8] = {1, 1, 1, 0, 1, 1, 1, 0};
    assert_memory_equal(warm_shape, shapes, sizeof shapes);
    assert_memory_equal(warm_mask, mask, sizeof mask);
    world_release(w); /* before `ops` goes */
    world_init(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_request, setup, teardown),
        cmocka_unit_test_setup_teardown(notes_and_bursts, setup, teardown),
        cmocka_unit_test_setup_teardown(requests_of_a_run_are_known, setup, teardown),
        cmocka_unit_test_setup_teardown(batches, setup, teardown),
        cmocka_unit_test_setup_teardown(messages, setup, teardown),
        cmocka_unit_test_setup_teardown(order_and_wanted, setup, teardown),
        cmocka_unit_test_setup_teardown(index_and_readiness, setup, teardown),
        cmocka_unit_test_setup_teardown(lax_readiness, setup, teardown),
        cmocka_unit_test_setup_teardown(padding, setup, teardown),
        cmocka_unit_test_setup_teardown(warm_up_is_padded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
