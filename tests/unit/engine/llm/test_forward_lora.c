/* test_forward_lora.c: adapted logits against those of a model whose weights were merged in float64: W + scale * B A, for every kind of
 * adapted matrix, in both rope layouts, with fused matrices; the base's and other adapters' columns in the same step don't move by a bit,
 * whatever the number of threads and the cutting of the prompt. */
#include "engine/llm/forward.h"
#include "engine/llm/lora.h"
#include "base/size.h"
#include "lora_rig.h"

#define N_TOK 40
#define CTX   64

static struct error err;

/* W + scale * B A of one pair, as f32 behind `w`. The arrays live as long as the process needs them (the arena's). */
static void merge_pair(struct model_desc *d, struct llm_weight *w, const struct lora_pair *p)
{
    const struct kernels *k = kernels_by_name("ref");
    if (!p->a.data)
        return;
    uint32_t rank = p->a.rows, rows = w->rows, cols = w->cols;
    float *y = arena_array(&d->arena, (size_t)rows * cols, sizeof *y), *a = calloc((size_t)rank * cols, sizeof *a),
          *b = calloc(rank, sizeof *b);
    for (uint32_t r = 0; r < rank; r++)
        k->dequant_row(p->a.type, p->a.data + (size_t)r * (p->a.bytes / rank), cols, a + (size_t)r * cols);
    for (uint32_t i = 0; i < rows; i++) {
        k->dequant_row(w->type, w->data + (size_t)i * (w->bytes / rows), cols, y + (size_t)i * cols);
        k->dequant_row(p->b.type, p->b.data + (size_t)i * (p->b.bytes / rows), rank, b);
        for (uint32_t c = 0; c < cols; c++) {
            double sum = 0;
            for (uint32_t r = 0; r < rank; r++)
                sum += (double)b[r] * (double)a[(size_t)r * cols + c];
            y[(size_t)i * cols + c] = (float)((double)y[(size_t)i * cols + c] + (double)p->scale * sum);
        }
    }
    *w = (struct llm_weight){WEIGHT_F32, rows, cols, (const uint8_t *)y, (size_t)rows * cols * sizeof *y};
    free(a);
    free(b);
}

static void merge(struct model_desc *d, const struct lora_desc *l)
{
    for (uint32_t i = 0; i < l->n_layer; i++) {
        struct llm_layer_desc *w = &d->layers[i];
        const struct lora_layer_desc *p = &l->layers[i];
        merge_pair(d, &w->wq, &p->q), merge_pair(d, &w->wk, &p->k), merge_pair(d, &w->wv, &p->v), merge_pair(d, &w->wo, &p->o);
        merge_pair(d, &w->gate, &p->gate), merge_pair(d, &w->up, &p->up), merge_pair(d, &w->down, &p->down);
    }
}

struct rig {
    struct llm_model *model;
    struct team *team;
    struct forward *forward;
    uint32_t tables[8][CTX / KV_TILE_TOK];
};

static void rig_open(struct rig *r, struct model_desc *d, uint32_t threads)
{
    struct forward_config c = {.max_tok = 256, .max_logits = 256, .n_blocks = 16, .n_ctx = CTX, .kv_type = KV_F16};
    assert_int_equal(0, team_create(threads, "t", &r->team, &err));
    assert_int_equal(0, llm_model_create(d, kernels_best(), r->team, NULL, "m", &r->model, &err));
    assert_int_equal(0, forward_create(r->model, r->team, &c, &r->forward, &err));
    assert_int_equal(0, forward_lora_prepare(r->forward, 32, 8, &err));
    for (uint32_t i = 0; i < 16; i++)
        r->tables[i / 2][i % 2] = i;
}

static void rig_close(struct rig *r)
{
    forward_destroy(r->forward);
    llm_model_destroy(r->model);
    team_destroy(r->team);
}

static void tokens(int32_t *ids, uint32_t seed)
{
    rig_prompt(ids, N_TOK, 64, seed);
}

/* Logits of all positions of `n` sequences, sequence i with adapter a[i], in chunks of `chunk`, all in the same steps. */
static void run(struct rig *r, uint32_t n, const struct lora_adapter *const *a, uint32_t chunk, float *const *out)
{
    int32_t ids[8][N_TOK];
    size_t v = r->model->h->n_vocab;
    for (uint32_t i = 0; i < n; i++)
        tokens(ids[i], i + 1);
    for (uint32_t at = 0; at < N_TOK; at += chunk) {
        struct forward_item items[8];
        uint32_t m = N_TOK - at < chunk ? N_TOK - at : chunk, row = 0;
        for (uint32_t i = 0; i < n; i++)
            items[i] = (struct forward_item){
                .tokens = ids[i] + at, .first = at, .n = m, .table = r->tables[i], .n_logits = m, .lora = a ? a[i] : NULL};
        assert_true(forward_run(r->forward, items, n));
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < m; k++)
                memcpy(out[i] + (at + k) * v, forward_logits(r->forward, row++), v * sizeof(float));
    }
}

static struct lora_adapter *adapter_of(const struct lora_desc *d)
{
    struct lora_adapter *a = calloc(1, sizeof *a);
    size_t bytes;
    assert_true(lora_adapter_bytes(d, &bytes));
    assert_int_equal(0, lora_adapter_fill(a, d, kernels_best(), &err));
    assert_true(a->packed_bytes < bytes);
    return a;
}

static double nmse(const float *x, const float *want, size_t n)
{
    double e = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        e += ((double)x[i] - (double)want[i]) * ((double)x[i] - (double)want[i]);
        s += (double)want[i] * (double)want[i];
    }
    return e / s;
}

static struct lora_desc *open_adapter(const char *dir, const char *file, const struct model_desc *base)
{
    struct lora_desc *d = NULL;
    int fd = -1;
    assert_int_equal(0, os_dir_open(dir, &fd, &err));
    if (lora_desc_open(fd, file, base, &d, &err))
        fail_msg("%s", err.text);
    os_close(fd);
    return d;
}

/* `limit`: of the normalised squared error. The base without the adapter must be far outside of it. */
static void compare_merged(const char *model, const char *dir, const char *file, double limit)
{
    struct rig base, merged;
    struct model_desc *d = lora_rig_desc(model), *m = lora_rig_desc(model);
    struct lora_desc *l = open_adapter(dir, file, d);
    size_t n = (size_t)N_TOK * d->h.n_vocab;
    float *got = calloc(n, sizeof *got), *want = calloc(n, sizeof *want), *plain = calloc(n, sizeof *plain);
    merge(m, l);
    rig_open(&base, d, 1);
    rig_open(&merged, m, 1);
    struct lora_adapter *a = adapter_of(l);
    run(&merged, 1, NULL, N_TOK, &want);
    run(&base, 1, NULL, N_TOK, &plain);
    run(&base, 1, (const struct lora_adapter *[]){a}, N_TOK, &got);
    double adapted = nmse(got, want, n), unadapted = nmse(plain, want, n);
    print_message("%s + %s: NMSE %.2g, without the adapter %.2g\n", model, file, adapted, unadapted);
    assert_true(adapted <= limit);
    assert_true(unadapted > 1e-3);
    free(got), free(want), free(plain);
    lora_adapter_destroy(a);
    lora_desc_release(l);
    rig_close(&base);
    rig_close(&merged);
}

static char temp[] = "/tmp/inferd_lora_XXXXXX";

static void write_adapter(const char *file, const char *model, uint32_t rank, enum weight_type type, uint32_t seed)
{
    struct model_desc *d = lora_rig_desc(model);
    lora_rig_write(temp, file, &d->h, rank, (float)rank * 1.5f, type, seed);
    model_desc_release(d);
}

static void merged_weights_agree(void **state)
{
    (void)state;
    compare_merged("llama.gguf", TEST_DATA "/llm", "llama-lora.gguf", 1e-8);
    compare_merged("llama.gguf", TEST_DATA "/llm/llama-lora", ".", 1e-8);
    compare_merged("llama/.", TEST_DATA "/llm/llama-lora", ".", 1e-8);
    compare_merged("phi3.gguf", TEST_DATA "/llm", "phi3-lora.gguf", 1e-8);
    static const char *const models[] = {"llama.gguf", "qwen2.gguf", "qwen3.gguf", "gemma2.gguf", "gemma3.gguf"};
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        write_adapter("all.gguf", models[i], 8, i % 2 ? WEIGHT_F16 : WEIGHT_F32, 5);
        compare_merged(models[i], temp, "all.gguf", 1e-8);
        write_adapter("one.gguf", models[i], 1, WEIGHT_BF16, 6);
        compare_merged(models[i], temp, "one.gguf", 1e-8);
    }
    write_adapter("q8.gguf", "llama.gguf", 32, WEIGHT_Q8_0, 7);
    compare_merged("llama.gguf", temp, "q8.gguf", 1e-8);
}

/* base, A, B, base, A, A, B, base in the same steps: each as alone; with 1, 2 and 3 threads; in chunks. */
static void everybody_as_alone(void **state)
{
    (void)state;
    struct rig one;
    struct model_desc *d = lora_rig_desc("llama.gguf");
    write_adapter("a.gguf", "llama.gguf", 8, WEIGHT_F32, 11);
    write_adapter("b.gguf", "llama.gguf", 3, WEIGHT_F16, 12);
    struct lora_desc *la = open_adapter(temp, "a.gguf", d), *lb = open_adapter(temp, "b.gguf", d);
    struct lora_adapter *a = adapter_of(la), *b = adapter_of(lb);
    const struct lora_adapter *const with[8] = {NULL, a, b, NULL, a, a, b, NULL};
    size_t n = (size_t)N_TOK * d->h.n_vocab;
    float *alone[8], *got[8];
    rig_open(&one, d, 1);
    for (uint32_t i = 0; i < 8; i++) {
        alone[i] = calloc(n, sizeof(float));
        got[i] = calloc(n, sizeof(float));
        int32_t ids[N_TOK];
        tokens(ids, i + 1);
        struct forward_item item = {.tokens = ids, .n = N_TOK, .table = one.tables[0], .n_logits = N_TOK, .lora = with[i]};
        assert_true(forward_run(one.forward, &item, 1));
        for (uint32_t t = 0; t < N_TOK; t++)
            memcpy(alone[i] + t * d->h.n_vocab, forward_logits(one.forward, t), d->h.n_vocab * sizeof(float));
    }
    assert_memory_not_equal(alone[1], alone[0], n * sizeof(float));
    for (uint32_t threads = 1; threads <= 3; threads++) {
        static const uint32_t chunks[] = {32, 17, 1, 5};
        struct rig r;
        rig_open(&r, lora_rig_desc("llama.gguf"), threads);
        for (size_t c = 0; c < COUNT_OF(chunks); c++) {
            run(&r, 8, with, chunks[c], got);
            for (uint32_t i = 0; i < 8; i++)
                if (memcmp(got[i], alone[i], n * sizeof(float)))
                    fail_msg("sequence %u, chunks of %u, %u threads", i, chunks[c], threads);
        }
        rig_close(&r);
    }
    for (uint32_t i = 0; i < 8; i++)
        free(alone[i]), free(got[i]);
    lora_adapter_destroy(a);
    lora_adapter_destroy(b);
    lora_desc_release(la);
    lora_desc_release(lb);
    rig_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merged_weights_agree), cmocka_unit_test(everybody_as_alone)};
    if (!mkdtemp(temp))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const files[] = {"all.gguf", "one.gguf", "q8.gguf", "a.gguf", "b.gguf"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", temp, files[i]);
        unlink(path);
    }
    rmdir(temp);
    return failed;
}
