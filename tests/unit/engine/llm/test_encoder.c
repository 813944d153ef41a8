/* Models that give embeddings: against a float64 pass in numpy and llama.cpp (tests/data/llm/embeddings.txt, by make_embeddings.py); the same bits
 * alone, in a batch and with several threads; GGUF and folder alike; what such a model refuses; weights quantised at load. */
#include <math.h>
#include <stdio.h>

#include "base/size.h"
#include "engine_rig.h"

#define DIMS 64

struct vector {
    struct answer *a; /* only its lock and its end are used */
    float v[DIMS];
    size_t n;
    enum token_finish finish;
};

static void on_vector(void *ctx, const struct token_event *ev)
{
    struct vector *x = ctx;
    assert_true(ev->n_embedding <= DIMS);
    x->n = ev->n_embedding;
    x->finish = ev->finish;
    if (x->n)
        memcpy(x->v, ev->embedding, x->n * sizeof *x->v);
    on_event(x->a, ev);
}

static uint64_t start_pair(struct engine_model *m, struct vector *x, const int32_t *ids, size_t n, size_t n_first, int priority)
{
    *x = (struct vector){.a = answer_new()};
    struct token_request r = {.prompt = ids,
                              .n_prompt = n,
                              .n_first = n_first,
                              .embed = true,
                              .priority = priority,
                              .deadline_ns = UINT64_MAX,
                              .on_event = on_vector,
                              .ctx = x};
    return rig_submit(m, &r);
}

static uint64_t start(struct engine_model *m, struct vector *x, const int32_t *ids, size_t n, int priority)
{
    return start_pair(m, x, ids, n, 0, priority);
}

static void end(struct vector *x, size_t n_prompt)
{
    answer_wait(x->a);
    assert_int_equal(TOKEN_EVENT_DONE, x->a->kind);
    assert_int_equal(TOKEN_FINISH_STOP, x->finish);
    assert_int_equal(n_prompt, x->a->usage.prompt_tok);
    assert_int_equal(0, x->a->usage.generated_tok);
    assert_int_equal(1, x->a->n_events);
    answer_free(x->a);
}

static void embed(struct engine_model *m, const int32_t *ids, size_t n, struct vector *x)
{
    start(m, x, ids, n, 0);
    end(x, n);
}

static double cosine(const float *a, const double *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++)
        ab += (double)a[i] * b[i], aa += (double)a[i] * (double)a[i], bb += b[i] * b[i];
    return ab / sqrt(aa * bb);
}

static size_t numbers(char *text, double *to, size_t cap)
{
    size_t n = 0;
    for (char *end; n < cap; text = end) {
        double v = strtod(text, &end);
        if (end == text)
            break;
        to[n++] = v;
    }
    return n;
}

/* End `text` at its first tab; what is behind it. */
static char *cut(char *text)
{
    char *tab = strchr(text, '\t');
    assert_non_null(tab);
    *tab = 0;
    return tab + 1;
}

/* `folder`: also ask the Hugging Face folder of that name. */
static void check_line(char *line, bool folder)
{
    char *how = cut(line), *list = cut(how), *values = cut(list);
    const char *const options[] = {"pooling", how, "threads", "1", NULL};
    char file[64];
    double number[DIMS], want[DIMS];
    int32_t ids[DIMS];
    struct vector x;
    size_t n = numbers(list, number, DIMS), dims = numbers(values, want, DIMS);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)number[i];
    snprintf(file, sizeof file, folder ? "%s/config.json" : "%s.gguf", line);
    struct engine_model *m = rig_load(file, options);
    assert_int_equal(dims, engine_llm.contract(m)->embedding_dims);
    embed(m, ids, n, &x);
    assert_int_equal(dims, x.n);
    double c = cosine(x.v, want, dims), length = 0;
    for (size_t i = 0; i < dims; i++)
        length += (double)x.v[i] * (double)x.v[i];
    if (c < 0.99999 || fabs(length - 1) > 1e-5)
        fail_msg("%s %s %zu tokens: cosine %.8f, length %.8f", file, how, n, c, length);
    engine_llm.unload(m);
}

static void as_the_references(void **state)
{
    (void)state;
    FILE *f = fopen(TEST_DATA "/llm/embeddings.txt", "r");
    char *line = NULL;
    size_t cap = 0, n = 0;
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        if (line[0] == '#')
            continue;
        char *copy = strdup(line);
        check_line(copy, false);
        if (n++ < 2) {
            memcpy(copy, line, strlen(line) + 1);
            check_line(copy, true);
        }
        free(copy);
    }
    assert_int_equal(24, n);
    free(line);
    fclose(f);
}

/* Scores of pairs, all in one step and each alone: float64's, and the same bits. */
static void check_ranks(const char *file)
{
    FILE *f = fopen(TEST_DATA "/llm/rank.txt", "r");
    struct engine_model *m = rig_load(file, NULL);
    char *line = NULL;
    size_t cap = 0, n = 0;
    struct vector x[8], alone;
    double want[8], number[DIMS];
    int32_t ids[8][DIMS];
    size_t n_ids[8], n_first[8];
    assert_non_null(f);
    assert_true(engine_llm.contract(m)->reranks);
    assert_int_equal(1, engine_llm.contract(m)->embedding_dims);
    while (getline(&line, &cap, f) > 0) {
        if (line[0] == '#')
            continue;
        char *list = cut(line), *value = cut(list);
        n_first[n] = strtoul(line, NULL, 10);
        n_ids[n] = numbers(list, number, DIMS);
        want[n] = strtod(value, NULL);
        for (size_t i = 0; i < n_ids[n]; i++)
            ids[n][i] = (int32_t)number[i];
        n++;
    }
    assert_int_equal(5, n);
    for (size_t i = 0; i < n; i++)
        start_pair(m, &x[i], ids[i], n_ids[i], n_first[i], 0);
    for (size_t i = 0; i < n; i++) {
        end(&x[i], n_ids[i]);
        start_pair(m, &alone, ids[i], n_ids[i], n_first[i], 0);
        end(&alone, n_ids[i]);
        assert_int_equal(1, x[i].n);
        assert_memory_equal(alone.v, x[i].v, sizeof *x[i].v);
        assert_float_equal((double)x[i].v[0], want[i], 2e-3);
    }
    free(line);
    fclose(f);
    struct error err = {0};
    uint64_t id;
    struct token_request r = {.prompt = ids[0], .n_prompt = 2, .n_first = 2, .embed = true, .on_event = on_vector};
    assert_int_equal(STATUS_INVALID, engine_llm.submit(m, &r, &id, &err));
    engine_llm.unload(m);
}

static void ranks(void **state)
{
    (void)state;
    check_ranks("bert-rank/config.json");
    check_ranks("bert-rank.gguf");
}

#define TEXTS 40

static void same_bits(void **state)
{
    (void)state;
    const char *const one[] = {"threads", "1", "max_sequences", "1", NULL}, *const many[] = {"threads", "3", NULL};
    int32_t ids[TEXTS][64];
    size_t n[TEXTS];
    struct vector alone[TEXTS], x[TEXTS];
    struct engine_model *m = rig_load("bert.gguf", one);
    for (size_t i = 0; i < TEXTS; i++) {
        n[i] = 1 + (i * 37) % 64;
        rig_prompt(ids[i], n[i], 60, (uint32_t)i + 1);
        embed(m, ids[i], n[i], &alone[i]);
    }
    engine_llm.unload(m);
    m = rig_load("bert.gguf", many);
    for (size_t i = 0; i < TEXTS; i++)
        start(m, &x[i], ids[i], n[i], (int)(i % 3));
    for (size_t i = 0; i < TEXTS; i++) {
        end(&x[i], n[i]);
        assert_memory_equal(alone[i].v, x[i].v, x[i].n * sizeof *x[i].v);
    }
    engine_llm.unload(m);
}

/* A decoder's text that is longer than a step is computed in pieces. */
static void in_pieces(void **state)
{
    (void)state;
    const char *const whole[] = {"pooling", "mean", NULL}, *const pieces[] = {"pooling", "mean", "max_step_tokens", "16", NULL};
    int32_t ids[60];
    struct vector a, b;
    rig_prompt(ids, 60, 60, 3);
    struct engine_model *m = rig_load("qwen2.gguf", whole);
    embed(m, ids, 60, &a);
    engine_llm.unload(m);
    m = rig_load("qwen2.gguf", pieces);
    embed(m, ids, 60, &b);
    engine_llm.unload(m);
    assert_memory_equal(a.v, b.v, a.n * sizeof *a.v);
}

static void refuses(struct engine_model *m, const struct token_request *r, int status, const char *text)
{
    struct error err = {0};
    uint64_t id;
    assert_int_equal(status, engine_llm.submit(m, r, &id, &err));
    if (!strstr(err.text, text))
        fail_msg("\"%s\"; expected \"%s\"", err.text, text);
}

static void refusals(void **state)
{
    (void)state;
    int32_t ids[65] = {2, 3};
    struct vector x = {0};
    struct engine_model *m = rig_load("bert.gguf", NULL);
    struct token_request r = {.prompt = ids, .n_prompt = 65, .embed = true, .on_event = on_vector, .ctx = &x};
    refuses(m, &r, STATUS_INVALID, "context length is 64 tokens, but the text has 65");
    r.n_prompt = 0;
    refuses(m, &r, STATUS_INVALID, "no tokens");
    r.n_prompt = 2, ids[1] = 1 << 20;
    refuses(m, &r, STATUS_INVALID, "prompt token 1");
    r.embed = false;
    refuses(m, &r, STATUS_UNIMPLEMENTED, "generates no text");
    r.embed = true, r.adapter = STR("a"), ids[1] = 3;
    refuses(m, &r, STATUS_NOT_FOUND, "no adapter");
    engine_llm.unload(m);
    m = rig_load("llama.gguf", NULL);
    r.adapter = (struct str){0};
    refuses(m, &r, STATUS_UNIMPLEMENTED, "gives no embeddings");
    assert_int_equal(0, engine_llm.contract(m)->embedding_dims);
    engine_llm.unload(m);
}

/* A tenant's single text does not wait for all of another's many. */
static void tenants_in_turn(void **state)
{
    (void)state;
    const char *const options[] = {"max_sequences", "2", "threads", "1", NULL};
    int32_t ids[64];
    static struct vector many[400], one;
    struct engine_model *m = rig_load("bert.gguf", options);
    size_t left = 0;
    rig_prompt(ids, 64, 60, 3);
    for (size_t i = 0; i < COUNT_OF(many); i++)
        start(m, &many[i], ids, 64, 0);
    one = (struct vector){.a = answer_new()};
    struct token_request r = {.prompt = ids,
                              .n_prompt = 64,
                              .embed = true,
                              .tenant = STR("other"),
                              .deadline_ns = UINT64_MAX,
                              .on_event = on_vector,
                              .ctx = &one};
    rig_submit(m, &r);
    end(&one, 64);
    for (size_t i = 0; i < COUNT_OF(many); i++) {
        os_mutex_lock(&many[i].a->lock);
        left += many[i].a->n_final == 0;
        os_mutex_unlock(&many[i].a->lock);
    }
    for (size_t i = 0; i < COUNT_OF(many); i++)
        end(&many[i], 64);
    assert_true(left > 0);
    engine_llm.unload(m);
}

static void cancelled(void **state)
{
    (void)state;
    int32_t ids[60];
    struct vector x[200];
    uint64_t id[200];
    rig_prompt(ids, 60, 60, 3);
    struct engine_model *m = rig_load("bert.gguf", NULL);
    for (size_t i = 0; i < COUNT_OF(x); i++)
        id[i] = start(m, &x[i], ids, 60, 0);
    for (size_t i = 1; i < COUNT_OF(x); i += 2)
        engine_llm.cancel_id(m, id[i]);
    for (size_t i = 0; i < COUNT_OF(x); i++) {
        answer_wait(x[i].a);
        assert_int_equal(1, x[i].a->n_events);
        assert_true(i % 2 || x[i].finish == TOKEN_FINISH_STOP);
        assert_int_equal(x[i].finish == TOKEN_FINISH_CANCELLED ? 0 : 32, x[i].n);
        answer_free(x[i].a);
    }
    engine_llm.unload(m);
}

/* Quantised at load or by `inferd quantize` before: q8_0 of an F16 file is within its rounding of it; what is not a number is refused. */
static void quantised_at_load(void **state)
{
    (void)state;
    const char *const plain[] = {"pooling", "mean", NULL}, *const q8[] = {"pooling", "mean", "quantize", "q8_0", NULL};
    int32_t ids[30];
    struct vector a, b;
    double want[DIMS];
    struct engine_memory mem_a, mem_b;
    rig_prompt(ids, 30, 60, 9);
    struct engine_model *m = rig_load("llama.gguf", plain);
    embed(m, ids, 30, &a);
    engine_llm.memory(m, &mem_a);
    engine_llm.unload(m);
    m = rig_load("llama/config.json", q8);
    embed(m, ids, 30, &b);
    engine_llm.memory(m, &mem_b);
    engine_llm.unload(m);
    for (size_t i = 0; i < a.n; i++)
        want[i] = (double)a.v[i];
    double c = cosine(b.v, want, a.n);
    assert_true(c > 0.999 && c < 0.99999999);
    assert_true(mem_b.weights_bytes < mem_a.weights_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_references), cmocka_unit_test(ranks),
                                       cmocka_unit_test(same_bits),         cmocka_unit_test(in_pieces),
                                       cmocka_unit_test(refusals),          cmocka_unit_test(tenants_in_turn),
                                       cmocka_unit_test(cancelled),         cmocka_unit_test(quantised_at_load)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
