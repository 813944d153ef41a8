/* test_engine_long.c: the promise of test_engine_same.c where it is harder: prompts over several spans of attention (256 keys) and past the sliding
 * windows, quantised weights of every family (rows are multiples of 256), 8-bit keys and values, guesses ahead. */
#include "model_rig.h"

#define PROMPTS 10
#define CONTEXT 800
#define LONGEST 700

static char temp[] = "/tmp/inferd_long_XXXXXX";

static struct token_request request_of(uint32_t i, int32_t prompt[LONGEST], struct answer *a)
{
    static const uint32_t lengths[PROMPTS] = {700, 1, 257, 256, 255, 33, 513, 290, 64, 600};
    rig_prompt(prompt, lengths[i], 64, i + 1);
    struct token_request r = rig_request(prompt, lengths[i], a);
    r.params.temperature = i % 3 ? 1.0f : 0.0f;
    r.params.seed = 500 + i;
    r.params.max_tok = 20 + i;
    return r;
}

static void ask_all(struct engine_model *m, struct answer *a[PROMPTS], bool together)
{
    static int32_t prompts[PROMPTS][LONGEST];
    for (uint32_t i = 0; i < PROMPTS; i++) {
        a[i] = answer_new();
        struct token_request r = request_of(i, prompts[i], a[i]);
        rig_submit(m, &r);
        if (!together)
            answer_wait(a[i]);
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        answer_wait(a[i]);
        assert_int_equal(TOKEN_EVENT_DONE, a[i]->kind);
        assert_int_equal(20 + i, a[i]->usage.generated_tok);
    }
}

/* `kv`: the cache's type, which is part of the result. */
static void compare(const char *file, const char *kv)
{
    const char *const alone[] = {"threads",       "1", "max_sequences",   "1",    "speculation", "off",
                                 "kv_cache_type", kv,  "max_step_tokens", "2048", NULL};
    const char *const ways[][11] = {
        {"threads", "1", "kv_cache_type", kv, NULL},
        {"threads", "2", "kv_cache_type", kv, "max_step_tokens", "37", NULL},
        {"threads", "3", "kv_cache_type", kv, "max_step_tokens", "300", "target_step_ms", "1", "speculation_always", "1", NULL},
    };
    struct answer *want[PROMPTS], *got[PROMPTS];
    struct engine_model *m = rig_load_from(temp, file, alone);
    ask_all(m, want, false);
    engine_llm.unload(m);
    for (size_t w = 0; w < COUNT_OF(ways); w++) {
        m = rig_load_from(temp, file, ways[w]);
        for (int again = 0; again < 2; again++) { /* the second time from the prefix cache */
            ask_all(m, got, true);
            for (uint32_t i = 0; i < PROMPTS; i++) {
                assert_same_answer(want[i], got[i]);
                answer_free(got[i]);
            }
        }
        assert_true(rig_metric(m, "prefix_hits_tokens_total") > 2000);
        assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
        engine_llm.unload(m);
    }
    for (uint32_t i = 0; i < PROMPTS; i++)
        answer_free(want[i]);
}

static void architectures(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"};
    for (size_t i = 0; i < COUNT_OF(archs); i++) {
        rig_copy_with_context(archs[i], temp, "m.gguf", CONTEXT);
        compare("m.gguf", "f16");
    }
}

static void weights_and_caches(void **state)
{
    (void)state;
    static const struct {
        enum quant_mix mix;
        const char *kv;
    } rows[] = {{MIX_Q4_0, "f16"},   {MIX_Q4_1, "bf16"}, {MIX_Q5_0, "q8_0"},  {MIX_Q8_0, "q8_0"}, {MIX_Q4_K_M, "f16"},
                {MIX_Q5_K_M, "f16"}, {MIX_Q6_K, "q8_0"}, {MIX_Q3_K_M, "f16"}, {MIX_Q2_K, "f16"},  {MIX_F16, "q8_0"}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        model_rig_write(temp, "m.gguf", rows[i].mix, CONTEXT);
        compare("m.gguf", rows[i].kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(architectures), cmocka_unit_test(weights_and_caches)};
    if (!mkdtemp(temp))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char path[128];
    snprintf(path, sizeof path, "%s/m.gguf", temp);
    unlink(path);
    rmdir(temp);
    return failed;
}
