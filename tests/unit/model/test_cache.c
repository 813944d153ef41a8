/* test_cache.c: the response cache alone (collisions, bound, order of use) and in front of a model. */
#include "model/harness.h"

#include "model/cache_priv.h"

/* A request of one input of `n` bytes that all are `fill`, with an answer of one output of `m` bytes of `reply`. */
struct request {
    struct infer inf;
    struct tensor in[2], out[2];
    bool wanted[2];
};

static void request_init(struct request *q, uint8_t fill, size_t n, uint8_t reply, size_t m)
{
    memset(q, 0, sizeof *q);
    infer_init(&q->inf);
    q->inf.inputs = q->in;
    q->inf.outputs = q->out;
    q->inf.n_inputs = 1;
    struct slab *a = slab_create(n + 1), *b = slab_create(m + 1);
    memset(a->data, fill, n);
    memset(b->data, reply, m);
    q->in[0] = (struct tensor){.name = STR("x"), .dtype = DTYPE_UINT8, .shape = {1, {(int64_t)n}}, .data = slice_of(a, 0, n)};
    q->out[0] = (struct tensor){.name = STR("y"), .dtype = DTYPE_UINT8, .shape = {1, {(int64_t)m}}, .data = slice_of(b, 0, m)};
    slab_unref(a);
    slab_unref(b);
}

static void request_release(struct request *q)
{
    for (int i = 0; i < 2; i++) {
        tensor_release(&q->in[i]);
        tensor_release(&q->out[i]);
    }
}

static void keep(struct cache *c, uint8_t fill, size_t n, uint8_t reply, size_t m)
{
    struct request q;
    request_init(&q, fill, n, reply, m);
    cache_put(c, &q.inf, 1);
    request_release(&q);
}

/* The first byte of the cached answer; -1: none. */
static int cached(struct cache *c, uint8_t fill, size_t n)
{
    struct request q;
    request_init(&q, fill, n, 0, 0);
    tensor_release(&q.out[0]);
    int got = cache_get(c, &q.inf, 1) ? q.out[0].data.p[0] : -1;
    request_release(&q);
    return got;
}

/* C27: with every hash equal, each request gets its own answer. */
static void collisions(void **state)
{
    (void)state;
    struct cache *c = cache_create(1 << 20, 7, 0);
    for (int i = 0; i < 100; i++)
        keep(c, (uint8_t)i, 16, (uint8_t)(i + 100), 8);
    for (int i = 0; i < 100; i++)
        assert_int_equal(cached(c, (uint8_t)i, 16), i + 100);
    assert_int_equal(cached(c, 100, 16), -1);
    assert_int_equal(cached(c, 5, 15), -1);
    struct cache_stats s;
    cache_get_stats(c, &s);
    assert_int_equal(s.entries, 100);
    cache_destroy(c);
}

/* The wanted outputs, the dtype and the shape are part of the key. */
static void whole_key(void **state)
{
    (void)state;
    struct cache *c = cache_create(1 << 20, 7, 0);
    keep(c, 1, 16, 50, 8);
    struct request q;
    request_init(&q, 1, 16, 0, 0);
    tensor_release(&q.out[0]);
    q.inf.wanted = q.wanted; /* nothing wanted is not everything wanted */
    assert_false(cache_get(c, &q.inf, 1));
    q.inf.wanted = NULL;
    q.in[0].dtype = DTYPE_INT8;
    assert_false(cache_get(c, &q.inf, 1));
    q.in[0].dtype = DTYPE_UINT8;
    q.in[0].shape = (struct shape){2, {4, 4}};
    assert_false(cache_get(c, &q.inf, 1));
    q.in[0].shape = (struct shape){1, {16}};
    assert_true(cache_get(c, &q.inf, 1));
    assert_int_equal(q.out[0].data.p[7], 50);
    request_release(&q);
    cache_destroy(c);
}

/* Bounded in bytes, least recently used out first, answers in use survive their eviction, too large ones are not kept. */
static void bound_and_order(void **state)
{
    (void)state;
    struct cache *c = cache_create(64 << 10, 7, UINT64_MAX);
    for (int i = 0; i < 8; i++)
        keep(c, (uint8_t)i, 1000, (uint8_t)i, 4000);
    struct request held;
    request_init(&held, 0, 1000, 0, 0);
    tensor_release(&held.out[0]);
    assert_true(cache_get(c, &held.inf, 1)); /* 0 is now the most recent */
    for (int i = 8; i < 18; i++)
        keep(c, (uint8_t)i, 1000, (uint8_t)i, 4000);
    struct cache_stats s;
    cache_get_stats(c, &s);
    assert_in_range(s.bytes, 40 << 10, 64 << 10);
    assert_int_equal(cached(c, 0, 1000), 0);
    assert_int_equal(cached(c, 1, 1000), -1);
    assert_int_equal(cached(c, 17, 1000), 17);
    keep(c, 99, 1000, 1, 17 << 10); /* more than a quarter */
    assert_int_equal(cached(c, 99, 1000), -1);
    for (int i = 0; i < 64; i++)
        keep(c, (uint8_t)(100 + i), 1000, 3, 4000);
    assert_int_equal(cached(c, 0, 1000), -1);
    assert_int_equal(held.out[0].data.p[3999], 0);
    cache_get_stats(c, &s);
    assert_in_range(s.bytes, 40 << 10, 64 << 10);
    request_release(&held);
    cache_destroy(c);
}

/* In front of a model: the second request is answered without a run, another input is not. */
static void in_front(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    put(&w, "m/1/model.fake", IDENTITY);
    put(&w, "m/model.yaml", "response_cache:\n  enable: true\n");
    world_start(&w);
    int32_t y;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(ask(w.r, "m", "", i % 2, &y, NULL), 0);
        assert_int_equal(y, i % 2);
    }
    struct model_version *v;
    struct version_stats s;
    assert_int_equal(registry_find(w.r, STR("m"), STR(""), &v, NULL), 0);
    model_version_stats(v, &s);
    assert_int_equal(s.success.count, 10);
    assert_int_equal(s.execution_count, 2);
    assert_int_equal(s.cache_hit.count, 8);
    assert_int_equal(s.cache_miss.count, 2);
    model_version_unref(v);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collisions),
        cmocka_unit_test(whole_key),
        cmocka_unit_test(bound_and_order),
        cmocka_unit_test(in_front),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
