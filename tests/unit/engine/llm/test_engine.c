/* The token face: ends, limits, choices, refusals, cancelling, deadlines, unloading. Weights are random, so what is checked is not what is said
 * but that it is cut, counted and ended as asked. */
#include <math.h>
#include <stdio.h>

#include "engine_rig.h"

static struct engine_model *load_llama(void)
{
    const char *const options[] = {"threads", "1", NULL};
    return rig_load("llama.gguf", options);
}

static void run(struct engine_model *m, const struct token_request *r, struct answer *a)
{
    rig_submit(m, r);
    answer_wait(a);
}

static void test_length_and_usage(void **state)
{
    struct engine_model *m = load_llama();
    struct answer *a = answer_new();
    int32_t prompt[40];
    rig_prompt(prompt, 40, 64, 1);
    struct token_request r = rig_request(prompt, 40, a);
    run(m, &r, a);
    assert_int_equal(TOKEN_EVENT_DONE, a->kind);
    assert_int_equal(TOKEN_FINISH_LENGTH, a->finish);
    assert_int_equal(40, a->usage.prompt_tok);
    assert_int_equal(0, a->usage.cached_tok);
    assert_int_equal(24, a->usage.generated_tok);
    struct answer *b = answer_new(); /* to the end of the context of 64; one full block of the prompt is cached */
    r.ctx = b;
    r.params.max_tok = 0;
    run(m, &r, b);
    assert_int_equal(TOKEN_FINISH_LENGTH, b->finish);
    assert_int_equal(64 - 40, b->usage.generated_tok);
    assert_int_equal(32, b->usage.cached_tok);
    struct answer *c = answer_new(); /* another tenant's cache is not looked into */
    r.ctx = c;
    r.cache_salt = STR("other");
    run(m, &r, c);
    assert_int_equal(0, c->usage.cached_tok);
    assert_same_answer(b, c);
    answer_free(a);
    answer_free(b);
    answer_free(c);
    engine_llm.unload(m);
    (void)state;
}

/* The text of a free run, then the same with a piece of that text as the stop string. */
static void test_stops(void **state)
{
    struct engine_model *m = load_llama();
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 5);
    struct answer *a = answer_new(), *b = answer_new(), *c = answer_new();
    struct token_request r = rig_request(prompt, 8, a);
    run(m, &r, a);
    struct str whole = buf_str(&a->choice[0].text);
    size_t from = 4; /* two characters that are not of a replaced byte */
    while (from + 2 < whole.n && (whole.p[from] < 0 || whole.p[from + 1] < 0))
        from++;
    assert_true(from + 2 < whole.n);
    struct str stop = {whole.p + from, 2};
    const char *first = memmem(whole.p, whole.n, stop.p, stop.n);
    r.ctx = b;
    r.params.stop = &stop;
    r.params.n_stop = 1;
    run(m, &r, b);
    assert_int_equal(TOKEN_FINISH_STOP, b->finish);
    assert_int_equal(first - whole.p, b->choice[0].text.n);
    assert_memory_equal(whole.p, b->choice[0].text.p, b->choice[0].text.n);
    assert_memory_equal(stop.p, b->choice[0].stop, stop.n);
    /* the third token as a stop id: it is counted, but neither shown nor listed */
    int32_t third = a->choice[0].tokens[2];
    size_t at = 0;
    while (a->choice[0].tokens[at] != third)
        at++;
    r.ctx = c;
    r.params.n_stop = 0;
    r.params.stop_ids = &third;
    r.params.n_stop_ids = 1;
    run(m, &r, c);
    assert_int_equal(TOKEN_FINISH_STOP, c->finish);
    assert_int_equal(at, c->choice[0].n);
    assert_int_equal(at + 1, c->usage.generated_tok);
    answer_free(a);
    answer_free(b);
    answer_free(c);
    engine_llm.unload(m);
    (void)state;
}

/* min_tokens keeps stop ids from being chosen at all. */
static void test_min_tokens(void **state)
{
    struct engine_model *m = load_llama();
    int32_t prompt[8], ids[64];
    rig_prompt(prompt, 8, 64, 5);
    for (int32_t i = 0; i < 64; i++)
        ids[i] = i;
    struct answer *a = answer_new();
    struct token_request r = rig_request(prompt, 8, a);
    r.params.stop_ids = ids;
    r.params.n_stop_ids = 64;
    r.params.min_tok = 10;
    run(m, &r, a);
    assert_true(a->choice[0].n >= 10);
    for (size_t i = 0; i < 10; i++)
        assert_true(a->choice[0].tokens[i] >= 64);
    answer_free(a);
    engine_llm.unload(m);
    (void)state;
}

/* Choices differ from each other, are the same however they came to run, and the first is the one of n = 1. */
static void test_choices(void **state)
{
    int32_t prompt[39];
    rig_prompt(prompt, 39, 64, 9);
    struct answer *one = answer_new(), *many = answer_new(), *tight = answer_new();
    struct engine_model *m = load_llama();
    struct token_request r = rig_request(prompt, 39, one);
    run(m, &r, one);
    r.ctx = many;
    r.params.n = r.params.best_of = 6;
    run(m, &r, many);
    engine_llm.unload(m);
    assert_int_equal(6 * 24, many->usage.generated_tok);
    assert_int_equal(39, many->usage.prompt_tok);
    assert_memory_equal(one->choice[0].tokens, many->choice[0].tokens, 24 * sizeof(int32_t));
    assert_memory_not_equal(many->choice[1].tokens, many->choice[2].tokens, 24 * sizeof(int32_t));
    const char *const options[] = {"threads", "1", "max_sequences", "6", "kv_cache_bytes", "40KiB", NULL};
    m = rig_load("llama.gguf", options); /* a small pool: choices are preempted */
    r.ctx = tight;
    run(m, &r, tight);
    assert_same_answer(many, tight);
    engine_llm.unload(m);
    answer_free(one);
    answer_free(many);
    answer_free(tight);
    (void)state;
}

static void refused(struct engine_model *m, const struct token_request *r, int status, const char *word)
{
    struct error err = {0};
    uint64_t id = 0;
    assert_int_equal(status, engine_llm.submit(m, r, &id, &err));
    if (!strstr(err.text, word))
        fail_msg("'%s' does not name %s", err.text, word);
}

static void test_refusals(void **state)
{
    struct engine_model *m = load_llama();
    int32_t prompt[64] = {0}, bad = 1 << 20;
    struct token_request good = rig_request(prompt, 4, NULL), r;
#define REFUSED(change, status, word)                                                                                          \
    do {                                                                                                                       \
        r = good;                                                                                                              \
        change;                                                                                                                \
        refused(m, &r, status, word);                                                                                          \
    } while (0)
    REFUSED(r.n_prompt = 0, STATUS_INVALID, "no tokens");
    REFUSED(r.n_prompt = 64, STATUS_INVALID, "context length is 64");
    REFUSED(r.prompt = &bad; r.n_prompt = 1, STATUS_INVALID, "vocabulary");
    REFUSED(r.params.temperature = -1, STATUS_INVALID, "temperature");
    REFUSED(r.params.temperature = NAN, STATUS_INVALID, "temperature");
    REFUSED(r.params.temperature = INFINITY, STATUS_INVALID, "temperature");
    REFUSED(r.params.top_p = 1.5f, STATUS_INVALID, "top_p");
    REFUSED(r.params.min_p = -1, STATUS_INVALID, "min_p");
    REFUSED(r.params.typical_p = 0, STATUS_INVALID, "typical_p");
    REFUSED(r.params.top_k = -2, STATUS_INVALID, "top_k");
    REFUSED(r.params.repetition_penalty = 0, STATUS_INVALID, "repetition_penalty");
    REFUSED(r.params.frequency_penalty = 3, STATUS_INVALID, "frequency_penalty");
    REFUSED(r.params.presence_penalty = -3, STATUS_INVALID, "presence_penalty");
    REFUSED(r.params.logprobs = 21, STATUS_INVALID, "top_logprobs");
    REFUSED(r.params.n = 0, STATUS_INVALID, "n is 0");
    REFUSED(r.params.best_of = 2, STATUS_UNIMPLEMENTED, "best_of");
    REFUSED(r.params.min_tok = 99, STATUS_INVALID, "min_tokens");
    REFUSED(r.params.grammar_kind = STR("json"), STATUS_INVALID, "ignore_eos");
    REFUSED(r.adapter = STR("x"), STATUS_NOT_FOUND, "adapter");
    REFUSED(r.embed = true, STATUS_UNIMPLEMENTED, "embeddings");
    REFUSED(r.priority = -1, STATUS_INVALID, "priority");
    struct str stops[65] = {{0}};
    REFUSED(r.params.stop = stops; r.params.n_stop = 1, STATUS_INVALID, "stop[0]");
    REFUSED(r.params.stop = stops; r.params.n_stop = 65, STATUS_INVALID, "stop has 65");
    struct token_bias bias = {1, 101};
    REFUSED(r.params.bias = &bias; r.params.n_bias = 1, STATUS_INVALID, "logit_bias");
    engine_llm.unload(m);
    (void)state;
}

/* A bias of 100 decides alone. */
static void test_bias(void **state)
{
    struct engine_model *m = load_llama();
    int32_t prompt[4] = {1, 2, 3, 4};
    struct answer *a = answer_new();
    struct token_request r = rig_request(prompt, 4, a);
    struct token_bias bias = {33, 100};
    r.params.bias = &bias;
    r.params.n_bias = 1;
    run(m, &r, a);
    for (size_t i = 0; i < 24; i++)
        assert_int_equal(33, a->choice[0].tokens[i]);
    answer_free(a);
    engine_llm.unload(m);
    (void)state;
}

/* One of two is cancelled at once; the other is as it is alone. Late ones end with DEADLINE, whatever state they are in. */
static void test_cancel_and_deadline(void **state)
{
    const char *const options[] = {"threads", "1", "max_sequences", "1", NULL};
    struct engine_model *m = rig_load("llama.gguf", options);
    int32_t prompt[30];
    rig_prompt(prompt, 30, 64, 3);
    struct answer *alone = answer_new(), *kept = answer_new(), *gone = answer_new(), *late = answer_new();
    struct token_request r = rig_request(prompt, 30, alone);
    run(m, &r, alone);
    r.ctx = kept;
    rig_submit(m, &r);
    r.ctx = gone;
    engine_llm.cancel_id(m, rig_submit(m, &r));
    engine_llm.cancel_id(m, 123456); /* nobody's */
    r.ctx = late;
    r.deadline_ns = 1;
    rig_submit(m, &r);
    answer_wait(kept);
    answer_wait(gone);
    answer_wait(late);
    assert_same_answer(alone, kept);
    assert_int_equal(TOKEN_EVENT_DONE, gone->kind);
    if (gone->finish != TOKEN_FINISH_CANCELLED) /* it may have been quicker */
        assert_same_answer(alone, gone);
    assert_int_equal(TOKEN_EVENT_FAILED, late->kind);
    assert_int_equal(STATUS_DEADLINE, late->status);
    answer_free(alone);
    answer_free(kept);
    answer_free(gone);
    answer_free(late);
    engine_llm.unload(m);
    (void)state;
}

/* Every request gets its final event even when the model goes away; what doesn't fit the queue is refused. */
static void test_unload_and_queue(void **state)
{
    const char *const options[] = {"threads", "1", "max_sequences", "1", "max_waiting", "8", NULL};
    struct engine_model *m = rig_load("llama.gguf", options);
    int32_t prompt[30];
    struct answer *a[64];
    size_t n = 0, refusals = 0;
    for (size_t i = 0; i < 64; i++) {
        uint64_t id;
        struct error err = {0};
        rig_prompt(prompt, 30, 64, (uint32_t)i);
        a[n] = answer_new();
        struct token_request r = rig_request(prompt, 30, a[n]);
        int rc = engine_llm.submit(m, &r, &id, &err);
        if (rc == 0) {
            n++;
            continue;
        }
        assert_int_equal(STATUS_EXHAUSTED, rc);
        refusals++;
        answer_free(a[n]);
    }
    engine_llm.unload(m);
    assert_true(refusals > 0 && n >= 8);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(1, a[i]->n_final);
        if (a[i]->kind == TOKEN_EVENT_FAILED)
            assert_int_equal(STATUS_UNAVAILABLE, a[i]->status);
        answer_free(a[i]);
    }
    (void)state;
}

static void test_bad_options(void **state)
{
    static const char *const bad[][2] = {{"threads", "257"},       {"kv_cache_share", "0"},  {"kv_cache_share", "nan"},
                                         {"kv_cache_type", "f32"}, {"max_step_tokens", "1"}, {"kernels", "mmx"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct engine_option o = {str_of(bad[i][0]), str_of(bad[i][1])};
        struct engine_load spec = {.name = "tiny", .file = "llama.gguf", .options = &o, .n_options = 1};
        struct engine_model *m = NULL;
        struct error err = {0};
        assert_int_equal(0, os_dir_open(TEST_DATA "/llm", &spec.dir_fd, &err));
        assert_int_equal(STATUS_INVALID, engine_llm.load(NULL, &spec, &m, &err));
        assert_non_null(strstr(err.text, bad[i][0]));
        os_close(spec.dir_fd);
    }
    (void)state;
}

/* Text to ids and back. */
static void test_text(void **state)
{
    struct engine_model *m = load_llama();
    struct error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    struct buf out;
    buf_init(&out);
    assert_int_equal(0, engine_llm.tokenize(m, STR("abc"), false, false, &ids, &n, &err));
    assert_true(n > 0);
    assert_int_equal(0, engine_llm.detokenize(m, ids, n, &out, &err));
    assert_string_equal("abc", buf_z(&out));
    int32_t bad = -1;
    assert_int_equal(STATUS_INVALID, engine_llm.detokenize(m, &bad, 1, &out, &err));
    free(ids);
    buf_release(&out);
    engine_llm.unload(m);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length_and_usage),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_min_tokens),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_cancel_and_deadline),
        cmocka_unit_test(test_unload_and_queue),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
