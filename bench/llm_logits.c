/* llm_logits: the forward pass alone, without the engine: for comparison with other implementations and for raw speed.
 *
 *   bench_llm_logits MODEL.gguf logits OUT THREADS CHUNK ID...  f32[n][n_vocab] logits of every position, teacher-forced
 *       (an argument --lora FILE.gguf before the ids: with that adapter; --quantize TYPE: float weights are packed so)
 *   bench_llm_logits MODEL.gguf greedy N THREADS TEXT           N greedy tokens behind TEXT (control tokens are recognised), tokens/s
 *   bench_llm_logits MODEL.gguf tokens FILE SPECIAL             the ids of each text of FILE (texts end in a NUL byte), a line each */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/llm/forward.h"
#include "engine/llm/lora.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/file.h"
#include "text/tokenizer.h"

#define CTX 2048

struct rig {
    struct llm_model *model;
    struct tokenizer *tokenizer;
    struct team *team;
    struct forward *forward;
    struct lora_adapter *adapter; /* or NULL */
    uint32_t table[CTX / KV_TILE_TOK];
};

static void die(const struct error *err)
{
    fprintf(stderr, "llm_logits: %s\n", err->text);
    exit(1);
}

/* `path`: a GGUF file, or the config.json of a Hugging Face folder. `quantize`: NULL, or a name of quant_mix.h. */
static void rig_open(struct rig *r, const char *path, unsigned threads, const char *quantize)
{
    struct error err = {0};
    struct model_desc *d;
    char dir[4096];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    int fd = -1;
    const char *file = slash ? slash + 1 : path;
    if (os_dir_open(dir, &fd, &err) < 0 || model_desc_open(fd, strcmp(file, "config.json") == 0 ? "." : file, &d, &err) < 0)
        die(&err);
    d->quantize = quantize && quant_mix_parse(str_of(quantize), &d->mix);
    if (tokenizer_create(&d->tokenizer, &r->tokenizer, &err) < 0 || team_create(threads, "logits", &r->team, &err) < 0 ||
        llm_model_create(d, kernels_best(), r->team, NULL, "model", &r->model, &err) < 0)
        die(&err);
    os_close(fd);
    struct forward_config c = {
        .max_tok = 512, .max_logits = 512, .n_blocks = CTX / KV_TILE_TOK, .n_ctx = CTX, .kv_type = KV_F16};
    if (forward_create(r->model, r->team, &c, &r->forward, &err) < 0)
        die(&err);
    for (uint32_t i = 0; i < CTX / KV_TILE_TOK; i++)
        r->table[i] = i;
}

static void rig_adapt(struct rig *r, const char *path)
{
    struct error err = {0};
    struct lora_desc *d;
    int fd = -1;
    char dir[4096];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    r->adapter = calloc(1, sizeof *r->adapter);
    if (os_dir_open(dir, &fd, &err) < 0 || lora_desc_open(fd, slash ? slash + 1 : path, r->model->desc, &d, &err) < 0 ||
        lora_adapter_fill(r->adapter, d, r->model->k, &err) < 0 || forward_lora_prepare(r->forward, d->max_rank, 1, &err) < 0)
        die(&err);
    lora_desc_release(d);
    os_close(fd);
}

static void rig_close(struct rig *r)
{
    lora_adapter_destroy(r->adapter);
    forward_destroy(r->forward);
    llm_model_destroy(r->model);
    team_destroy(r->team);
    tokenizer_destroy(r->tokenizer);
}

static void write_logits(struct rig *r, const char *out, uint32_t chunk, const int32_t *ids, uint32_t n)
{
    FILE *f = fopen(out, "wb");
    for (uint32_t at = 0; f && at < n; at += chunk) {
        uint32_t m = n - at < chunk ? n - at : chunk;
        struct forward_item item = {
            .tokens = ids + at, .first = at, .n = m, .table = r->table, .n_logits = m, .lora = r->adapter};
        forward_run(r->forward, &item, 1);
        for (uint32_t i = 0; i < m; i++)
            fwrite(forward_logits(r->forward, i), sizeof(float), r->model->h->n_vocab, f);
    }
    if (!f || fclose(f) != 0)
        perror(out);
}

static struct token_list encode(const struct rig *r, const char *text)
{
    struct token_list l = {0};
    struct error err = {0};
    struct text_span span = {str_of(text), true};
    if (tokenizer_encode(r->tokenizer, &span, 1, true, CTX / 2, &l, &err) < 0)
        die(&err);
    return l;
}

static void greedy(struct rig *r, uint32_t n, const char *text)
{
    struct token_list l = encode(r, text);
    uint32_t done = 0;
    uint64_t begin = os_monotonic_ns(), first = begin;
    size_t n_prompt = l.n;
    for (uint32_t made = 0; made < n; made++) {
        uint32_t m = (uint32_t)l.n - done;
        struct forward_item item = {.tokens = l.v + done, .first = done, .n = m, .table = r->table, .n_logits = 1};
        forward_run(r->forward, &item, 1);
        done += m;
        int32_t id = (int32_t)r->model->k->argmax(forward_logits(r->forward, 0), r->model->h->n_vocab);
        if (made == 0)
            first = os_monotonic_ns();
        if (tokenizer_is_eog(r->tokenizer, id) || token_list_push(&l, id) < 0)
            break;
        struct str bytes = tokenizer_bytes(r->tokenizer, id, false);
        fwrite(bytes.p, 1, bytes.n, stdout);
    }
    double prompt_s = (double)(first - begin) * 1e-9, rest_s = (double)(os_monotonic_ns() - first) * 1e-9;
    printf("\n-- first token after %.3f s; %.1f tokens/s then\n", prompt_s, (double)(done - n_prompt) / rest_s);
    token_list_release(&l);
}

static void print_tokens(const struct rig *r, const char *file, bool special)
{
    FILE *f = fopen(file, "rb");
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; f && (n = getdelim(&line, &cap, 0, f)) > 0;) {
        struct token_list l = {0};
        struct error err = {0};
        struct text_span span = {{line, (size_t)n - (line[n - 1] == 0)}, special};
        if (tokenizer_encode(r->tokenizer, &span, 1, false, 0, &l, &err) < 0)
            die(&err);
        for (size_t i = 0; i < l.n; i++)
            printf("%s%d", i ? " " : "", l.v[i]);
        printf("\n");
        token_list_release(&l);
    }
    free(line);
    if (f)
        fclose(f);
}

int main(int argc, char **argv)
{
    struct rig r = {0};
    if (argc >= 7 && strcmp(argv[2], "logits") == 0) {
        bool lora = argc > 8 && strcmp(argv[6], "--lora") == 0, quantize = argc > 8 && strcmp(argv[6], "--quantize") == 0;
        int from = lora || quantize ? 8 : 6;
        uint32_t n = (uint32_t)(argc - from);
        int32_t *ids = calloc(n, sizeof *ids);
        for (uint32_t i = 0; ids && i < n; i++)
            ids[i] = atoi(argv[from + (int)i]);
        rig_open(&r, argv[1], (unsigned)atoi(argv[4]), quantize ? argv[7] : NULL);
        if (lora)
            rig_adapt(&r, argv[7]);
        write_logits(&r, argv[3], (uint32_t)atoi(argv[5]), ids, n);
        free(ids);
    } else if (argc == 6 && strcmp(argv[2], "greedy") == 0) {
        rig_open(&r, argv[1], (unsigned)atoi(argv[4]), NULL);
        greedy(&r, (uint32_t)atoi(argv[3]), argv[5]);
    } else if (argc == 5 && strcmp(argv[2], "tokens") == 0) {
        rig_open(&r, argv[1], 1, NULL);
        print_tokens(&r, argv[3], atoi(argv[4]) != 0);
    } else {
        fprintf(stderr, "usage: see the top of bench/llm_logits.c\n");
        return 2;
    }
    rig_close(&r);
    return 0;
}
