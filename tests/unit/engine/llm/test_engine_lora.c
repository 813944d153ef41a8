/* test_engine_lora.c: adapters of a running model: chosen by name, several in one batch, each answer as alone; the base's answers and the prefix
 * cache untouched by them; limits, names, and unloading while requests run. */
#include "base/size.h"
#include "lora_rig.h"

#define REQUESTS 24

static char temp[] = "/tmp/inferd_adapters_XXXXXX";
static const char *const files[] = {"a.gguf", "b.gguf", "wide.gguf"};

static int load_from(struct engine_model *m, const char *dir, const char *name, const char *path, struct error *err)
{
    int fd = -1;
    *err = (struct error){0};
    assert_int_equal(0, os_dir_open(dir, &fd, err));
    int rc = engine_llm.adapter_load(m, str_of(name), fd, path, err);
    assert_int_equal(rc, err->code);
    os_close(fd);
    return rc;
}

static void load_adapter(struct engine_model *m, const char *name, const char *file)
{
    struct error err;
    if (load_from(m, temp, name, file, &err))
        fail_msg("%s", err.text);
}

static struct token_request request_of(uint32_t i, const char *adapter, int32_t prompt[40], struct answer *a)
{
    rig_prompt(prompt, 40, 64, i + 1);
    struct token_request r = rig_request(prompt, 33 + i % 7, a);
    r.params.temperature = i % 2 ? 1.0f : 0.0f;
    r.params.seed = i;
    r.params.max_tok = 8 + i % 5;
    r.adapter = adapter ? str_of(adapter) : (struct str){0};
    return r;
}

static struct answer *ask(struct engine_model *m, uint32_t i, const char *adapter)
{
    int32_t prompt[40];
    struct answer *a = answer_new();
    struct token_request r = request_of(i, adapter, prompt, a);
    rig_submit(m, &r);
    answer_wait(a);
    assert_int_equal(TOKEN_EVENT_DONE, a->kind);
    return a;
}

static const char *adapter_for(uint32_t i)
{
    static const char *const names[] = {NULL, "a", "b"};
    return names[i % 3];
}

/* Base, a and b interleaved in one batch, on both formats' models and with quantised KV: each as alone; the base as without adapters. */
static void mixed_batches(void **state)
{
    (void)state;
    static const char *const ways[][7] = {{"threads", "1", NULL},
                                          {"threads", "2", "max_step_tokens", "48", NULL},
                                          {"threads", "1", "kv_cache_type", "q8_0", "max_step_tokens", "37", NULL}};
    for (size_t w = 0; w < COUNT_OF(ways); w++) {
        const char *const *kv = w == 2 ? ways[2] : ways[0];
        struct engine_model *bare = rig_load("llama.gguf", kv), *m = rig_load("llama.gguf", ways[w]),
                            *one = rig_load("llama.gguf", kv);
        struct answer *alone[REQUESTS], *got[REQUESTS];
        load_adapter(one, "a", "a.gguf");
        load_adapter(one, "b", "b.gguf");
        load_adapter(m, "b", "b.gguf"); /* another order, other slots */
        load_adapter(m, "a", "a.gguf");
        uint32_t differ = 0;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            alone[i] = ask(one, i, adapter_for(i));
            struct answer *base = ask(bare, i, NULL);
            if (i % 3 == 0)
                assert_same_answer(base, alone[i]);
            else
                differ += base->choice[0].logprobs[0] != alone[i]->choice[0].logprobs[0];
            answer_free(base);
        }
        assert_int_equal(REQUESTS / 3 * 2, differ);
        for (int again = 0; again < 2; again++) { /* cold, then from the prefix cache */
            int32_t prompts[REQUESTS][40];
            for (uint32_t i = 0; i < REQUESTS; i++) {
                got[i] = answer_new();
                struct token_request r = request_of(i, adapter_for(i), prompts[i], got[i]);
                rig_submit(m, &r);
            }
            for (uint32_t i = 0; i < REQUESTS; i++) {
                answer_wait(got[i]);
                assert_same_answer(alone[i], got[i]);
                assert_int_equal(again ? 32 : 0, got[i]->usage.cached_tok);
                answer_free(got[i]);
            }
        }
        for (uint32_t i = 0; i < REQUESTS; i++)
            answer_free(alone[i]);
        assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
        engine_llm.unload(bare);
        engine_llm.unload(m);
        engine_llm.unload(one);
    }
}

/* The same prompt with another adapter, with none, and with an adapter of the same name but other weights finds nothing in the cache. */
static void cache_is_salted(void **state)
{
    (void)state;
    const char *const options[] = {"threads", "1", NULL};
    struct engine_model *m = rig_load("llama.gguf", options);
    struct error err;
    load_adapter(m, "a", "a.gguf");
    load_adapter(m, "b", "b.gguf");
    struct answer *a = ask(m, 1, "a"), *a2 = ask(m, 1, "a"), *b = ask(m, 1, "b"), *base = ask(m, 1, NULL);
    assert_int_equal(0, a->usage.cached_tok);
    assert_int_equal(32, a2->usage.cached_tok);
    assert_int_equal(0, b->usage.cached_tok);
    assert_int_equal(0, base->usage.cached_tok);
    assert_same_answer(a, a2);
    assert_true(a->choice[0].logprobs[0] != b->choice[0].logprobs[0]);
    assert_int_equal(0, engine_llm.adapter_unload(m, STR("a"), &err));
    load_adapter(m, "a", "b.gguf");
    struct answer *other = ask(m, 1, "a");
    assert_int_equal(0, other->usage.cached_tok);
    assert_same_answer(b, other);
    answer_free(a), answer_free(a2), answer_free(b), answer_free(base), answer_free(other);
    engine_llm.unload(m);
}

static void both_formats_are_one(void **state)
{
    (void)state;
    const char *const options[] = {"threads", "1", NULL};
    struct engine_model *m = rig_load("llama.gguf", options);
    struct error err;
    assert_int_equal(0, load_from(m, TEST_DATA "/llm", "gguf", "llama-lora.gguf", &err));
    assert_int_equal(0, load_from(m, TEST_DATA "/llm", "peft", "llama-lora", &err));
    assert_int_equal(0, load_from(m, TEST_DATA "/llm/llama-lora", "folder itself", ".", &err));
    struct answer *x = ask(m, 3, "gguf"), *y = ask(m, 3, "peft"), *z = ask(m, 3, "folder itself");
    assert_same_answer(x, y);
    assert_same_answer(x, z);
    answer_free(x), answer_free(y), answer_free(z);
    engine_llm.unload(m);
}

static void refusals(void **state)
{
    (void)state;
    const char *const options[] = {"threads", "1", "max_adapters", "2", "max_adapter_rank", "16", NULL};
    struct engine_model *m = rig_load("llama.gguf", options);
    struct error err;
    load_adapter(m, "a", "a.gguf");
    assert_int_equal(STATUS_CONFLICT, load_from(m, temp, "a", "a.gguf", &err));
    assert_non_null(strstr(err.text, "\"a\" is loaded already"));
    assert_int_equal(STATUS_INVALID, load_from(m, temp, "wide", "wide.gguf", &err));
    assert_non_null(strstr(err.text, "rank is 20; max_adapter_rank is 16"));
    assert_int_equal(STATUS_NOT_FOUND, load_from(m, temp, "x", "none.gguf", &err));
    assert_int_equal(STATUS_INVALID, load_from(m, TEST_DATA "/llm", "x", "llama.gguf", &err));
    assert_int_not_equal(0, load_from(m, temp, "x", "../etc/passwd", &err));
    assert_int_equal(STATUS_INVALID, load_from(m, temp, "", "a.gguf", &err));
    assert_int_equal(STATUS_INVALID, load_from(m, temp, "a\nb", "a.gguf", &err));
    load_adapter(m, "b", "b.gguf"); /* failed loads left no slot taken */
    assert_int_equal(STATUS_EXHAUSTED, load_from(m, temp, "c", "b.gguf", &err));
    assert_non_null(strstr(err.text, "max_adapters is 2"));
    assert_int_equal(STATUS_NOT_FOUND, engine_llm.adapter_unload(m, STR("c"), &err));
    int32_t prompt[40];
    struct answer *a = answer_new();
    struct token_request r = request_of(1, "c", prompt, a);
    uint64_t id, bytes = rig_metric(m, "adapter_bytes");
    assert_int_equal(STATUS_NOT_FOUND, engine_llm.submit(m, &r, &id, &err));
    assert_non_null(strstr(err.text, "\"c\""));
    assert_int_equal(2, rig_metric(m, "adapters"));
    assert_int_equal(0, engine_llm.adapter_unload(m, STR("b"), &err));
    assert_int_equal(1, rig_metric(m, "adapters"));
    assert_true(rig_metric(m, "adapter_bytes") > 0 && rig_metric(m, "adapter_bytes") < bytes);
    answer_free(a);
    engine_llm.unload(m);
    const char *const tight[] = {"threads", "1", "adapter_memory", "1KiB", NULL}, *const none[] = {"max_adapters", "0", NULL};
    m = rig_load("llama.gguf", tight);
    assert_int_equal(STATUS_EXHAUSTED, load_from(m, temp, "a", "a.gguf", &err));
    assert_non_null(strstr(err.text, "adapter_memory is 1024"));
    assert_int_equal(0, rig_metric(m, "adapter_bytes"));
    engine_llm.unload(m);
    m = rig_load("llama.gguf", none);
    assert_int_equal(STATUS_UNIMPLEMENTED, load_from(m, temp, "a", "a.gguf", &err));
    engine_llm.unload(m);
}

/* An answer whose first event holds the step thread until the test lets it go. */
struct held {
    struct answer *a;
    bool reached, go;
};

static void on_held_event(void *ctx, const struct token_event *ev)
{
    struct held *h = ctx;
    os_mutex_lock(&h->a->lock);
    h->reached = true;
    os_cond_broadcast(&h->a->ended);
    while (!h->go)
        os_cond_wait(&h->a->ended, &h->a->lock);
    os_mutex_unlock(&h->a->lock);
    on_event(h->a, ev);
}

static void unload_drains(void **state)
{
    (void)state;
    const char *const options[] = {"threads", "1", "max_adapters", "1", NULL};
    struct engine_model *m = rig_load("llama.gguf", options);
    struct error err;
    load_adapter(m, "a", "a.gguf");
    struct answer *alone = ask(m, 1, "a");
    int32_t prompt[40], prompt2[40];
    struct held h = {.a = answer_new()};
    struct token_request r = request_of(1, "a", prompt, h.a);
    r.on_event = on_held_event;
    r.ctx = &h;
    rig_submit(m, &r);
    os_mutex_lock(&h.a->lock);
    while (!h.reached)
        os_cond_wait(&h.a->ended, &h.a->lock);
    os_mutex_unlock(&h.a->lock);
    assert_int_equal(0, engine_llm.adapter_unload(m, STR("a"), &err));
    assert_int_equal(0, rig_metric(m, "adapters"));
    assert_int_equal(1, rig_metric(m, "adapters_draining"));
    assert_true(rig_metric(m, "adapter_bytes") > 0);
    struct answer *refused = answer_new();
    struct token_request late = request_of(1, "a", prompt2, refused);
    uint64_t id;
    assert_int_equal(STATUS_NOT_FOUND, engine_llm.submit(m, &late, &id, &err));
    assert_int_equal(STATUS_EXHAUSTED, load_from(m, temp, "b", "b.gguf", &err)); /* its memory isn't free yet */
    os_mutex_lock(&h.a->lock);
    h.go = true;
    os_cond_broadcast(&h.a->ended);
    os_mutex_unlock(&h.a->lock);
    answer_wait(h.a);
    assert_same_answer(alone, h.a);
    for (int i = 0; rig_metric(m, "adapters_draining") && i < 10000; i++) /* the request goes right behind its last event */
        usleep(1000);
    assert_int_equal(0, rig_metric(m, "adapters_draining"));
    assert_int_equal(0, rig_metric(m, "adapter_bytes"));
    load_adapter(m, "b", "b.gguf");
    answer_free(alone), answer_free(h.a), answer_free(refused);
    engine_llm.unload(m);
}

struct churn {
    struct engine_model *m;
    _Atomic bool stop;
    _Atomic uint32_t loads;
};

static void churn(void *arg)
{
    struct churn *c = arg;
    struct error err;
    while (!atomic_load(&c->stop)) {
        load_adapter(c->m, "churn", atomic_load(&c->loads) % 2 ? "a.gguf" : "b.gguf");
        assert_int_equal(0, engine_llm.adapter_unload(c->m, STR("churn"), &err));
        atomic_fetch_add(&c->loads, 1);
    }
}

/* Adapters come and go while requests of the base and of another adapter run: their answers stay the same. A machine that is busy starts the other
 * thread late: what counts is that both went on beside each other. */
static void churn_disturbs_nobody(void **state)
{
    (void)state;
    const char *const options[] = {"threads", "1", "max_adapters", "3", NULL};
    struct engine_model *m = rig_load("llama.gguf", options);
    struct churn c = {.m = m};
    struct os_thread t;
    struct error err;
    load_adapter(m, "a", "a.gguf");
    struct answer *base = ask(m, 4, NULL), *with = ask(m, 4, "a");
    assert_int_equal(0, os_thread_start(&t, "churn", churn, &c, &err));
    for (int i = 0; i < 30 || atomic_load(&c.loads) < 3; i++) {
        struct answer *x = ask(m, 4, NULL), *y = ask(m, 4, "a");
        assert_same_answer(base, x);
        assert_same_answer(with, y);
        answer_free(x), answer_free(y);
    }
    atomic_store(&c.stop, true);
    os_thread_join(&t);
    assert_int_equal(1, rig_metric(m, "adapters"));
    answer_free(base), answer_free(with);
    engine_llm.unload(m);
}

/* The first adapter of a model, which makes the buffers that steps with adapters need, is loaded while the step thread is in a request of the base;
 * the base's answer and the adapter's are as ever. */
static void first_load_beside_steps(void **state)
{
    (void)state;
    const char *const options[] = {"threads", "2", NULL};
    for (int round = 0; round < 4; round++) {
        struct engine_model *m = rig_load("llama.gguf", options);
        struct answer *base[4];
        int32_t prompts[4][40];
        for (uint32_t i = 0; i < 4; i++) {
            struct token_request r = request_of(i, NULL, prompts[i], base[i] = answer_new());
            rig_submit(m, &r);
        }
        load_adapter(m, "a", "a.gguf");
        struct answer *with = ask(m, 1, "a"), *again = ask(m, 1, "a"), *plain;
        assert_same_answer(with, again);
        for (uint32_t i = 0; i < 4; i++) {
            answer_wait(base[i]);
            assert_int_equal(TOKEN_EVENT_DONE, base[i]->kind);
            plain = ask(m, i, NULL);
            assert_same_answer(plain, base[i]);
            answer_free(plain), answer_free(base[i]);
        }
        answer_free(with), answer_free(again);
        engine_llm.unload(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mixed_batches),          cmocka_unit_test(cache_is_salted),
                                       cmocka_unit_test(both_formats_are_one),   cmocka_unit_test(refusals),
                                       cmocka_unit_test(unload_drains),          cmocka_unit_test(churn_disturbs_nobody),
                                       cmocka_unit_test(first_load_beside_steps)};
    if (!mkdtemp(temp))
        return 1;
    struct model_desc *d = lora_rig_desc("llama.gguf");
    lora_rig_write(temp, files[0], &d->h, 8, 12, WEIGHT_F32, 11);
    lora_rig_write(temp, files[1], &d->h, 3, 4, WEIGHT_F16, 12);
    lora_rig_write(temp, files[2], &d->h, 20, 4, WEIGHT_F16, 13);
    model_desc_release(d);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", temp, files[i]);
        unlink(path);
    }
    rmdir(temp);
    return failed;
}
