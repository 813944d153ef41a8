/* Constrained output through the engine: random weights say anything, so whatever comes out in the right form comes from the constraint. Checked by
 * hand-written matchers, not by the grammar itself. */
#include "engine_rig.h"

static struct engine_model *model;

static void run(struct token_request *r, struct answer **a, const char *kind, const char *grammar)
{
    *a = answer_new();
    r->ctx = *a;
    r->params.ignore_eos = false;
    r->params.grammar_kind = str_of(kind);
    r->params.grammar = str_of(grammar);
    rig_submit(model, r);
    answer_wait(*a);
    assert_int_equal(TOKEN_EVENT_DONE, (*a)->kind);
}

static struct token_request request(const int32_t *prompt, size_t n)
{
    return rig_request(prompt, n, NULL);
}

/* llama.cpp#12597: the output is exactly the grammar's, and ends with stop. */
static void test_literal(void **state)
{
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 3);
    for (int greedy = 0; greedy < 2; greedy++) {
        struct token_request r = request(prompt, 8);
        struct answer *a;
        r.params.max_tok = 10;
        r.params.temperature = greedy ? 0 : 1;
        run(&r, &a, "gbnf", "root ::= \"a\"");
        assert_string_equal("a", buf_z(&a->choice[0].text));
        assert_int_equal(TOKEN_FINISH_STOP, a->finish);
        assert_int_equal(1, a->usage.generated_tok);
        answer_free(a);
    }
    struct token_request r = request(prompt, 8);
    struct answer *a;
    r.params.max_tok = 1; /* complete with its last token: that is stop, not length */
    run(&r, &a, "choice", "[\"a\"]");
    assert_int_equal(TOKEN_FINISH_STOP, a->finish);
    answer_free(a);
    r.params.max_tok = 9;
    r.params.min_tok = 5; /* what is complete ends before min_tokens */
    run(&r, &a, "regex", "ab|ba");
    assert_int_equal(TOKEN_FINISH_STOP, a->finish);
    assert_int_equal(2, a->choice[0].text.n);
    answer_free(a);
    (void)state;
}

/* (\d\d-){2}x{1,3} */
static bool matches(struct str s)
{
    if (s.n < 7 || s.n > 9)
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (i >= 6 ? s.p[i] != 'x' : i % 3 == 2 ? s.p[i] != '-' : s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

static void test_choices(void **state)
{
    int32_t prompt[20];
    rig_prompt(prompt, 20, 64, 4);
    struct token_request r = request(prompt, 20);
    struct answer *a, *b;
    r.params.n = r.params.best_of = 4;
    run(&r, &a, "regex", "^(\\d\\d-){2}x{1,3}$");
    for (int i = 0; i < 4; i++) {
        if (!matches(buf_str(&a->choice[i].text)))
            fail_msg("choice %d: '%s'", i, buf_z(&a->choice[i].text));
        assert_int_equal(TOKEN_FINISH_STOP, a->choice[i].finish);
    }
    r.params.n = r.params.best_of = 1; /* the first of four is the only one of one */
    run(&r, &b, "regex", "^(\\d\\d-){2}x{1,3}$");
    assert_true(str_eq(buf_str(&a->choice[0].text), buf_str(&b->choice[0].text)));
    answer_free(a);
    answer_free(b);
    (void)state;
}

/* Out of tokens: length; what is there is a beginning. */
static void test_length(void **state)
{
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 5);
    struct token_request r = request(prompt, 8);
    struct answer *a;
    r.params.max_tok = r.params.min_tok = 6;
    run(&r, &a, "regex", "[ab]*");
    assert_int_equal(TOKEN_FINISH_LENGTH, a->finish);
    assert_int_equal(6, a->usage.generated_tok);
    for (size_t i = 0; i < a->choice[0].text.n; i++)
        assert_true(a->choice[0].text.p[i] == 'a' || a->choice[0].text.p[i] == 'b');
    answer_free(a);
    (void)state;
}

static void test_schema(void **state)
{
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 6);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct token_request r = request(prompt, 8);
        struct answer *a;
        char kind[8];
        int n = -1, end = 0;
        r.params.seed = seed;
        r.params.max_tok = 0;
        r.params.top_p = 0.9f;
        run(&r, &a, "json_schema",
            "{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"ab\",\"ba\"]},\"n\":{\"type\":\"integer\",\"minimum\":10,"
            "\"maximum\":19}},"
            "\"required\":[\"k\",\"n\"]}");
        const char *text = buf_z(&a->choice[0].text);
        if (a->finish == TOKEN_FINISH_STOP && (sscanf(text, " { \"k\" : \"%2[ab]\" , \"n\" : %d } %n", kind, &n, &end) != 2 ||
                                               text[end] || n < 10 || n > 19 || kind[0] == kind[1]))
            fail_msg("%s", text);
        assert_true(a->finish == TOKEN_FINISH_STOP ||
                    a->usage.generated_tok == 64 - 8); /* white space can use the context up */
        answer_free(a);
    }
    (void)state;
}

/* Logprobs stay those of the raw logits, and stop strings and ids still end a constrained text. */
static void test_beside(void **state)
{
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 7);
    struct token_request r = request(prompt, 8);
    struct answer *a;
    struct str stop = STR("bb");
    r.params.stop = &stop;
    r.params.n_stop = 1;
    run(&r, &a, "regex", "a{3}b{20}");
    assert_string_equal("aaa", buf_z(&a->choice[0].text));
    assert_string_equal("bb", a->choice[0].stop);
    for (size_t i = 0; i < a->choice[0].n; i++)
        assert_true(a->choice[0].logprobs[i] < 0);
    answer_free(a);
    (void)state;
}

static void refused(struct token_request *r, const char *kind, const char *grammar, const char *words)
{
    struct error err = {0};
    uint64_t id = 0;
    r->params.grammar_kind = str_of(kind);
    r->params.grammar = str_of(grammar);
    int rc = engine_llm.submit(model, r, &id, &err);
    if (rc != STATUS_INVALID || err.code != rc || !strstr(err.text, words))
        fail_msg("%s %s: %d %s", kind, grammar, rc, err.text);
}

static void test_refusals(void **state)
{
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 3);
    struct token_request r = request(prompt, 8);
    r.params.ignore_eos = false;
    refused(&r, "json_schema", "{\"type\":\"object\",\"patternProperties\":{}}", "'patternProperties'");
    refused(&r, "json_schema", "{\"type\":\"string\",\"pattern\":\"[\"}", "'pattern'");
    refused(&r, "regex", "foo**", "quantifier");
    refused(&r, "gbnf", "root ::= nothing", "defined");
    refused(&r, "choice", "[]", "at least one");
    refused(&r, "json", "list", "object");
    refused(&r, "xml", "", "accepted: json_schema, json, regex, gbnf, choice");
    refused(&r, "regex", "((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((a", "nested more than 64");
    r.params.max_tok = 5;
    refused(&r, "regex", "q{30}", "max_tokens: at most 5 tokens can be generated");
    r.params.max_tok = 0; /* the context ends it, too */
    refused(&r, "regex", "q{3000}", "max_tokens: at most 56 tokens");
    r.params.ignore_eos = true;
    refused(&r, "json", "", "ignore_eos");
    (void)state;
}

/* More grammars than are kept, used while others leave the cache. */
static void test_cache(void **state)
{
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 3);
    for (int i = 0; i < 80; i++) {
        struct token_request r = request(prompt, 8);
        struct answer *a;
        char source[32], want[8];
        snprintf(want, sizeof want, "%d", i % 50);
        snprintf(source, sizeof source, "root ::= \"%s\"", want);
        run(&r, &a, "gbnf", source);
        assert_string_equal(want, buf_z(&a->choice[0].text));
        answer_free(a);
    }
    (void)state;
}

/* Guessed tokens are checked like any other: the same text with guessing forced as without. */
static void test_guessing(void **state)
{
    const char *const off[] = {"threads", "1", "speculation", "off", NULL}, *const on[] = {"threads", "1", "speculation_always",
                                                                                           "1", NULL};
    struct engine_model *kept = model;
    struct buf text[2];
    int32_t prompt[8];
    rig_prompt(prompt, 8, 64, 11);
    for (int i = 0; i < 2; i++) {
        buf_init(&text[i]);
        model = rig_load("llama.gguf", i ? on : off);
        for (uint64_t seed = 0; seed < 6; seed++) {
            struct token_request r = request(prompt, 8);
            struct answer *a;
            r.params.seed = seed;
            r.params.max_tok = 50;
            run(&r, &a, "regex", seed % 2 ? "(ab|cd){20}" : "(\\d\\d, ){10}\\d");
            buf_append_str(&text[i], buf_str(&a->choice[0].text));
            buf_printf(&text[i], "/%u/%d\n", a->usage.generated_tok, (int)a->finish);
            answer_free(a);
        }
        engine_llm.unload(model);
    }
    model = kept;
    assert_string_equal(buf_z(&text[0]), buf_z(&text[1]));
    buf_release(&text[0]);
    buf_release(&text[1]);
    (void)state;
}

static int setup(void **state)
{
    const char *const options[] = {"threads", "1", NULL};
    model = rig_load("llama.gguf", options);
    (void)state;
    return 0;
}

static int teardown(void **state)
{
    engine_llm.unload(model);
    (void)state;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_literal), cmocka_unit_test(test_choices),  cmocka_unit_test(test_length),
        cmocka_unit_test(test_schema),  cmocka_unit_test(test_beside),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cache),   cmocka_unit_test(test_guessing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
