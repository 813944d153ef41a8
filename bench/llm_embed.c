/* llm_embed.c: embeddings of texts by the engine, for tests/tools/embedding_oracle.py and for speed.
 *
 *   bench_llm_embed DIR FILE OUT [KEY=VALUE ...] < texts
 *
 * DIR/FILE is a model as the repository would hand it to the engine ("model.gguf", "config.json"); the rest are its options. A text is a line of
 * hexadecimal bytes. OUT gets f32[texts][dims]. All texts are submitted at once; texts, tokens and seconds go to the standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "engine/llm/llm.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/thread.h"

#define TEXTS_MAX 65536

struct shared {
    struct os_mutex lock;
    struct os_cond ended;
    size_t left;
};

struct text {
    struct shared *shared;
    float *v;
    size_t n_tok;
};

static void on_event(void *ctx, const struct token_event *ev)
{
    struct text *t = ctx;
    if (ev->kind == TOKEN_EVENT_TEXT)
        return;
    ASSERT(ev->kind == TOKEN_EVENT_DONE);
    memcpy(t->v, ev->embedding, ev->n_embedding * sizeof *t->v);
    t->n_tok = ev->usage.prompt_tok;
    os_mutex_lock(&t->shared->lock);
    if (--t->shared->left == 0)
        os_cond_signal(&t->shared->ended);
    os_mutex_unlock(&t->shared->lock);
}

static void die(const struct error *err)
{
    fprintf(stderr, "llm_embed: %s\n", err->text);
    exit(1);
}

static struct engine_model *open_model(char **argv, int n_options)
{
    static struct engine_option options[16];
    struct engine_load spec = {.name = "model", .version = "1", .file = argv[2], .options = options};
    struct engine_model *m = NULL;
    struct error err = {0};
    for (int i = 0; i < n_options && i < 16; i++) {
        struct str rest = str_of(argv[4 + i]);
        if (str_cut(&rest, '=', &options[i].key))
            options[i].value = rest;
        spec.n_options++;
    }
    if (os_dir_open(argv[1], &spec.dir_fd, &err) < 0 || engine_llm.load(NULL, &spec, &m, &err) < 0)
        die(&err);
    return m;
}

static void submit(struct engine_model *m, char *line, struct text *t)
{
    struct error err = {0};
    size_t n = strcspn(line, "\n") / 2, n_tok;
    int32_t *tokens;
    uint64_t id;
    for (size_t i = 0; i < n; i++) {
        char byte[3] = {line[2 * i], line[2 * i + 1], 0};
        line[i] = (char)strtoul(byte, NULL, 16);
    }
    if (engine_llm.tokenize(m, (struct str){line, n}, true, true, &tokens, &n_tok, &err) < 0)
        die(&err);
    struct token_request r = {
        .prompt = tokens, .n_prompt = n_tok, .embed = true, .deadline_ns = UINT64_MAX, .on_event = on_event, .ctx = t};
    if (engine_llm.submit(m, &r, &id, &err) < 0)
        die(&err);
    free(tokens);
}

int main(int argc, char **argv)
{
    struct shared s = {.left = 0};
    struct text *texts = calloc(TEXTS_MAX, sizeof *texts);
    char *line = NULL;
    size_t cap = 0, n = 0, tok = 0;
    if (argc < 4 || !texts) {
        fprintf(stderr, "usage: bench_llm_embed DIR FILE OUT [KEY=VALUE ...] < texts\n");
        return 2;
    }
    struct engine_model *m = open_model(argv, argc - 4);
    size_t dims = engine_llm.contract(m)->embedding_dims;
    os_mutex_init(&s.lock, RANK_LEAF);
    os_cond_init(&s.ended);
    s.left = 1; /* until all are submitted */
    uint64_t begin = os_monotonic_ns();
    for (; n < TEXTS_MAX && getline(&line, &cap, stdin) > 0; n++) {
        texts[n] = (struct text){.shared = &s, .v = calloc(dims, sizeof(float))};
        ASSERT(texts[n].v);
        os_mutex_lock(&s.lock);
        s.left++;
        os_mutex_unlock(&s.lock);
        submit(m, line, &texts[n]);
    }
    os_mutex_lock(&s.lock);
    for (s.left--; s.left;)
        os_cond_wait(&s.ended, &s.lock);
    os_mutex_unlock(&s.lock);
    double seconds = (double)(os_monotonic_ns() - begin) * 1e-9;
    FILE *f = fopen(argv[3], "wb");
    for (size_t i = 0; f && i < n; i++) {
        fwrite(texts[i].v, sizeof(float), dims, f);
        tok += texts[i].n_tok;
        free(texts[i].v);
    }
    if (!f || fclose(f) != 0)
        perror(argv[3]);
    printf("%zu texts, %zu tokens, %.3f s\n", n, tok, seconds);
    engine_llm.unload(m);
    free(texts);
    free(line);
    return 0;
}
