/* test_engine_spec.c: speculation changes the speed only: the same requests, greedy and sampled, with penalties, stop strings, several choices,
 * grammars, adapters, in a pool that is too small, give the same tokens, text and log-probabilities with guesses from lookup, from a draft model that
 * is the target itself (nearly always right), from one that is right now and then, and without any. */
#include <unistd.h>

#include "base/size.h"
#include "lora_rig.h"

#define REQUESTS 16
#define CONTEXT  512

static char temp[] = "/tmp/inferd_spec_XXXXXX";
static const struct str stops[] = {{"ab", 2}, {"  ", 2}};

/* A prompt that repeats itself now and then, so that lookup finds something. */
static struct token_request request_of(uint32_t i, int32_t prompt[80], struct answer *a, bool adapter)
{
    uint32_t n = 20 + i * 3;
    rig_prompt(prompt, n, 64, i + 1);
    for (uint32_t k = n / 2; k < n; k++)
        prompt[k] = prompt[k - n / 2];
    struct token_request r = rig_request(prompt, n, a);
    r.params.temperature = i % 3 == 0 ? 0 : i % 3 == 1 ? 0.3f : 1;
    r.params.top_p = i % 4 == 1 ? 0.9f : 1;
    r.params.top_k = i % 4 == 2 ? 20 : 0;
    r.params.frequency_penalty = i % 5 == 3 ? 0.5f : 0;
    r.params.seed = i;
    r.params.max_tok = 60 + i * 5;
    r.params.ignore_eos = i % 2;
    r.params.logprobs = i % 3;
    if (i % 7 == 4)
        r.params.n = r.params.best_of = 3;
    if (i % 5 == 4) {
        r.params.stop = stops;
        r.params.n_stop = 2;
    }
    r.params.min_tok = i % 6 == 5 ? 20 : 0;
    if (i % 8 >= 6) { /* constrained: a guess that the grammar forbids is wrong */
        r.params.ignore_eos = false;
        r.params.min_tok = 0;
        r.params.grammar_kind = i % 8 == 6 ? STR("regex") : STR("json");
        r.params.grammar = i % 8 == 6 ? STR("(the cat |a dog |[0-9]{3} ){4,30}") : (struct str){0};
    }
    if (adapter && i % 3)
        r.adapter = i % 3 == 1 ? STR("a") : STR("b");
    return r;
}

static void ask_all(struct engine_model *m, struct answer *a[REQUESTS], bool adapters, bool together)
{
    int32_t prompts[REQUESTS][80];
    for (uint32_t i = 0; i < REQUESTS; i++) {
        a[i] = answer_new();
        struct token_request r = request_of(i, prompts[i], a[i], adapters);
        rig_submit(m, &r);
        if (!together)
            answer_wait(a[i]);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        answer_wait(a[i]);
        assert_int_equal(TOKEN_EVENT_DONE, a[i]->kind);
    }
    assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
}

static struct engine_model *load(const char *const *options, bool adapters)
{
    struct engine_model *m = rig_load_from(temp, "model.gguf", options);
    struct error err = {0};
    int fd = -1;
    if (!adapters)
        return m;
    assert_int_equal(0, os_dir_open(temp, &fd, &err));
    assert_int_equal(0, engine_llm.adapter_load(m, STR("a"), fd, "a.gguf", &err));
    assert_int_equal(0, engine_llm.adapter_load(m, STR("b"), fd, "b.gguf", &err));
    os_close(fd);
    return m;
}

/* Every way of guessing against none. */
static void compare(const char *arch, bool adapters)
{
    static const char *const off[] = {"threads", "1", "speculation", "off", NULL};
    static const char *const ways[][13] = {
        {"threads", "1", "speculation", "lookup", "speculation_always", "1", NULL},
        {"threads", "2", "speculation", "lookup", NULL},
        {"threads", "1", "speculation", "draft", "draft_model", "model.gguf", "speculation_always", "1", "draft_sequences",
         "16", NULL},
        {"threads", "2", "speculation", "draft", "draft_model", "draft.gguf", "speculation_always", "1", "draft_sequences", "3",
         NULL},
        {"threads", "1", "speculation", "draft", "draft_model", "draft.gguf", "max_step_tokens", "24", NULL},
        {"threads", "1", "speculation", "lookup", "speculation_always", "1", "kv_cache_bytes", "400KiB", NULL},
    };
    struct answer *want[REQUESTS], *got[REQUESTS];
    rig_copy_with_context(arch, temp, "model.gguf", CONTEXT);
    rig_copy_with_context(arch, temp, "draft.gguf", 128); /* a slot ends before the sequence does */
    struct engine_model *m = load(off, adapters);
    ask_all(m, want, adapters, false);
    assert_int_equal(0, rig_metric(m, "speculation_drafts_total"));
    engine_llm.unload(m);
    for (size_t w = 0; w < COUNT_OF(ways); w++) {
        m = load(ways[w], adapters);
        for (int together = 0; together < 2; together++) {
            ask_all(m, got, adapters, together);
            for (uint32_t i = 0; i < REQUESTS; i++) {
                assert_same_answer(want[i], got[i]);
                assert_int_equal(want[i]->usage.generated_tok, got[i]->usage.generated_tok);
                answer_free(got[i]);
            }
        }
        uint64_t made = rig_metric(m, "speculation_draft_tokens_total"),
                 right = rig_metric(m, "speculation_accepted_tokens_total");
        print_message("%s%s, way %zu: %llu of %llu guesses right, %llu preemptions\n", arch, adapters ? " with adapters" : "",
                      w, (unsigned long long)right, (unsigned long long)made,
                      (unsigned long long)rig_metric(m, "preemptions_total"));
        assert_true(right <= made && made > 0);
        if (w == 0 || w == 2 || w == 3 || w == 5)
            assert_true(right > 0);
        if (w == 5)
            assert_true(rig_metric(m, "preemptions_total") > 0);
        engine_llm.unload(m);
    }
    for (uint32_t i = 0; i < REQUESTS; i++)
        answer_free(want[i]);
}

static void same_with_and_without(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama", "qwen2", "gemma3"};
    for (size_t i = 0; i < COUNT_OF(archs); i++)
        compare(archs[i], false);
}

static void same_with_adapters(void **state)
{
    (void)state;
    compare("llama", true);
}

/* The target as its own draft guesses every token right, sampled ones too: same logits, same random numbers. */
static void itself_is_always_right(void **state)
{
    (void)state;
    static const char *const options[] = {
        "threads", "1", "speculation", "draft", "draft_model", "model.gguf", "speculation_always", "1", NULL};
    rig_copy_with_context("llama", temp, "model.gguf", CONTEXT);
    struct engine_model *m = load(options, false);
    int32_t prompt[80];
    for (uint32_t i = 0; i < 4; i++) {
        struct answer *a = answer_new();
        rig_prompt(prompt, 70, 64, i);
        struct token_request r = rig_request(prompt, 70, a);
        r.params.temperature = (float)i * 0.5f;
        r.params.max_tok = 200;
        rig_submit(m, &r);
        answer_wait(a);
        assert_int_equal(200, a->usage.generated_tok);
        answer_free(a);
    }
    uint64_t made = rig_metric(m, "speculation_draft_tokens_total");
    assert_int_equal(made, rig_metric(m, "speculation_accepted_tokens_total"));
    assert_true(made >= 4 * 170);
    assert_true(rig_metric(m, "steps_total") <= 4 * 30);
    engine_llm.unload(m);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const bad[][6] = {
        {"speculation", "draft", NULL, NULL, "speculation 'draft' needs a draft_model"},
        {"draft_model", "draft.gguf", NULL, NULL, "speculation must be 'draft'"},
        {"speculation", "draft", "draft_model", "other.gguf", "same vocabulary"},
        {"speculation", "draft", "draft_model", "none.gguf", "none.gguf"},
        {"speculation", "maybe", NULL, NULL, "accepted: off, lookup or draft"},
        {"speculation_tokens", "17", NULL, NULL, "accepted: 1 to 16"},
    };
    rig_copy_with_context("llama", temp, "model.gguf", CONTEXT);
    rig_copy_with_context("gemma3", temp, "other.gguf", CONTEXT);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct engine_option o[2] = {{str_of(bad[i][0]), str_of(bad[i][1])}, {str_of(bad[i][2] ? bad[i][2] : ""), {0}}};
        if (bad[i][3])
            o[1].value = str_of(bad[i][3]);
        struct engine_load spec = {.name = "tiny", .file = "model.gguf", .options = o, .n_options = bad[i][2] ? 2 : 1};
        struct engine_model *m = NULL;
        struct error err = {0};
        assert_int_equal(0, os_dir_open(temp, &spec.dir_fd, &err));
        assert_int_not_equal(0, engine_llm.load(NULL, &spec, &m, &err));
        if (!strstr(err.text, bad[i][4]))
            fail_msg("%s", err.text);
        os_close(spec.dir_fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_with_and_without), cmocka_unit_test(same_with_adapters),
                                       cmocka_unit_test(itself_is_always_right), cmocka_unit_test(refusals)};
    if (!mkdtemp(temp))
        return 1;
    struct model_desc *d = lora_rig_desc("llama.gguf");
    lora_rig_write(temp, "a.gguf", &d->h, 8, 12, WEIGHT_F32, 11);
    lora_rig_write(temp, "b.gguf", &d->h, 3, 4, WEIGHT_F16, 12);
    model_desc_release(d);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const files[] = {"model.gguf", "draft.gguf", "other.gguf", "a.gguf", "b.gguf"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", temp, files[i]);
        unlink(path);
    }
    rmdir(temp);
    return failed;
}
