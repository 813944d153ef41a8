/* The promise: the same request gives the same tokens, text and log-probabilities (bit by bit) alone, in a batch of 32, with any
 * chunking of its prompt, cold or from the prefix cache, after preemption, with one thread or several. */
#include "engine_rig.h"

#define PROMPTS 32
#define VOCAB   64 /* ids that every tiny vocabulary has */

static const char *const files[] = {"llama.gguf", "qwen2.gguf", "qwen3.gguf", "gemma2.gguf", "gemma3.gguf", "phi3.gguf"};

struct set {
    int32_t prompt[PROMPTS][40];
    size_t n[PROMPTS];
    struct answer *alone[PROMPTS];
};

/* Every third prompt is greedy; lengths 1 to 39. */
static struct token_request request_of(const struct set *s, size_t i, struct answer *a)
{
    struct token_request r = rig_request(s->prompt[i], s->n[i], a);
    r.params.temperature = i % 3 ? 1.0f : 0.0f;
    r.params.seed = 1000 + i;
    r.params.max_tok = (uint32_t)(16 + i % 9);
    return r;
}

static struct answer *run_one(struct engine_model *m, const struct set *s, size_t i)
{
    struct answer *a = answer_new();
    struct token_request r = request_of(s, i, a);
    rig_submit(m, &r);
    answer_wait(a);
    assert_int_equal(TOKEN_EVENT_DONE, a->kind);
    assert_int_equal(TOKEN_FINISH_LENGTH, a->finish);
    assert_int_equal(s->n[i], a->usage.prompt_tok);
    assert_int_equal(r.params.max_tok, a->usage.generated_tok);
    assert_int_equal(r.params.max_tok, a->choice[0].n);
    return a;
}

static void set_make(struct set *s, const char *file)
{
    const char *const options[] = {"threads", "1", "max_sequences", "1", NULL};
    for (size_t i = 0; i < PROMPTS; i++) {
        s->n[i] = 1 + (i * 37) % 39;
        rig_prompt(s->prompt[i], s->n[i], VOCAB, (uint32_t)i + 1);
    }
    struct engine_model *m = rig_load(file, options);
    for (size_t i = 0; i < PROMPTS; i++)
        s->alone[i] = run_one(m, s, i);
    engine_llm.unload(m);
}

static void set_free(struct set *s)
{
    for (size_t i = 0; i < PROMPTS; i++)
        answer_free(s->alone[i]);
    free(s);
}

/* All at once. */
static void compare_batch(const struct set *s, struct engine_model *m)
{
    struct answer *a[PROMPTS];
    for (size_t i = 0; i < PROMPTS; i++) {
        a[i] = answer_new();
        struct token_request r = request_of(s, i, a[i]);
        rig_submit(m, &r);
    }
    for (size_t i = 0; i < PROMPTS; i++) {
        answer_wait(a[i]);
        assert_same_answer(s->alone[i], a[i]);
        answer_free(a[i]);
    }
}

static void test_same(void **state)
{
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        struct set *s = calloc(1, sizeof *s);
        set_make(s, files[f]);
        static const char *const ways[][9] = {
            {"threads", "1", NULL},                                                 /* one batch */
            {"threads", "2", "max_step_tokens", "16", NULL},                        /* small chunks */
            {"threads", "3", "max_step_tokens", "51", "target_step_ms", "1", NULL}, /* ragged ones */
        };
        for (size_t w = 0; w < 3; w++) {
            struct engine_model *m = rig_load(files[f], ways[w]);
            compare_batch(s, m);
            compare_batch(s, m); /* now from the prefix cache */
            assert_true(rig_metric(m, "prefix_hits_tokens_total") > 0);
            assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
            engine_llm.unload(m);
        }
        set_free(s);
    }
    (void)state;
}

/* The pool holds a few sequences only, so that they push each other out. */
static void test_preempted(void **state)
{
    struct set *s = calloc(1, sizeof *s);
    set_make(s, "llama.gguf");
    char bytes[32];
    const char *const probe[] = {"kv_cache_bytes", "1MiB", NULL};
    struct engine_model *m = rig_load("llama.gguf", probe);
    struct engine_memory memory;
    engine_llm.memory(m, &memory);
    uint64_t n_blocks = rig_metric(m, "kv_blocks"), block = ((uint64_t)1 << 20) / n_blocks;
    engine_llm.unload(m);
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)block * 3);
    const char *const options[] = {"threads", "1", "kv_cache_bytes", bytes, NULL};
    m = rig_load("llama.gguf", options);
    assert_int_equal(3, rig_metric(m, "kv_blocks"));
    compare_batch(s, m);
    compare_batch(s, m);
    assert_true(rig_metric(m, "preemptions_total") > 0);
    assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
    engine_llm.unload(m);
    set_free(s);
    (void)state;
}

/* More choices than may run: some are forked, some have to be admitted by themselves; each is as it is when there is room. */
static void test_crowded_choices(void **state)
{
    const char *const roomy[] = {"threads", "1", NULL}, *const tight[] = {"threads", "1", "max_sequences", "4", NULL};
    struct answer *want[8], *got[8];
    int32_t prompt[8][40];
    struct engine_model *m = rig_load("llama.gguf", roomy);
    for (size_t i = 0; i < 8; i++) {
        want[i] = answer_new();
        rig_prompt(prompt[i], 20 + i, VOCAB, (uint32_t)i);
        struct token_request r = rig_request(prompt[i], 20 + i, want[i]);
        r.params.n = r.params.best_of = 3;
        rig_submit(m, &r);
        answer_wait(want[i]);
    }
    engine_llm.unload(m);
    m = rig_load("llama.gguf", tight);
    for (size_t i = 0; i < 8; i++) {
        got[i] = answer_new();
        struct token_request r = rig_request(prompt[i], 20 + i, got[i]);
        r.params.n = r.params.best_of = 3;
        rig_submit(m, &r);
    }
    for (size_t i = 0; i < 8; i++) {
        answer_wait(got[i]);
        assert_int_equal(3 * 24, got[i]->usage.generated_tok);
        assert_same_answer(want[i], got[i]);
        answer_free(want[i]);
        answer_free(got[i]);
    }
    assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
    engine_llm.unload(m);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_preempted),
                                       cmocka_unit_test(test_crowded_choices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
