/* llm_steps: steps of the forward pass alone, for profiles and for comparisons on a machine that is busy: time is the step thread's own CPU time
 * (with one thread that is all of it).
 *
 *   bench_llm_steps MODEL.gguf THREADS KV_TYPE decode SEQUENCES DEPTH STEPS     one token of each sequence a step, behind DEPTH tokens
 *   bench_llm_steps MODEL.gguf THREADS KV_TYPE prompt TOKENS DEPTH TIMES        a chunk of TOKENS behind DEPTH tokens
 * KV_TYPE: f16, bf16, q8_0. Positions below DEPTH hold zeros: what attention reads costs the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/llm/forward.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/file.h"

struct rig {
    struct llm_model *model;
    struct team *team;
    struct forward *forward;
    uint32_t n_seq, n_tok, depth, per_seq;
    uint32_t *tables;
    int32_t *tokens;
    struct forward_item *items;
};

static void die(const struct error *err)
{
    fprintf(stderr, "llm_steps: %s\n", err->text);
    exit(1);
}

static enum kv_type kv_type(const char *s)
{
    return strcmp(s, "q8_0") == 0 ? KV_Q8 : strcmp(s, "bf16") == 0 ? KV_BF16 : KV_F16;
}

static void rig_open(struct rig *r, const char *path, unsigned threads, enum kv_type type)
{
    struct error err = {0};
    struct model_desc *d;
    char dir[4096];
    const char *slash = strrchr(path, '/');
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    int fd = -1;
    if (os_dir_open(dir, &fd, &err) < 0 || model_desc_open(fd, slash ? slash + 1 : path, &d, &err) < 0 ||
        team_create(threads, "steps", &r->team, &err) < 0 ||
        llm_model_create(d, kernels_best(), r->team, NULL, "model", &r->model, &err) < 0)
        die(&err);
    os_close(fd);
    r->per_seq = (r->depth + r->n_tok + 256) / KV_TILE_TOK + 1;
    struct forward_config c = {.max_tok = r->n_seq * r->n_tok,
                               .max_logits = r->n_seq,
                               .n_blocks = r->per_seq * r->n_seq,
                               .n_ctx = r->per_seq * KV_TILE_TOK,
                               .kv_type = type};
    if (forward_create(r->model, r->team, &c, &r->forward, &err) < 0)
        die(&err);
    r->tables = calloc((size_t)r->per_seq * r->n_seq, sizeof *r->tables);
    r->tokens = calloc((size_t)r->n_tok * r->n_seq, sizeof *r->tokens);
    r->items = calloc(r->n_seq, sizeof *r->items);
    for (uint32_t i = 0; i < r->per_seq * r->n_seq; i++)
        r->tables[i] = i;
    for (uint32_t i = 0; i < r->n_tok * r->n_seq; i++)
        r->tokens[i] = (int32_t)(100 + i * 7 % 1000);
}

static void step(struct rig *r, uint32_t at)
{
    for (uint32_t i = 0; i < r->n_seq; i++)
        r->items[i] = (struct forward_item){.tokens = r->tokens + (size_t)i * r->n_tok,
                                            .first = r->depth + at,
                                            .n = r->n_tok,
                                            .table = r->tables + (size_t)i * r->per_seq,
                                            .n_logits = 1};
    forward_run(r->forward, r->items, r->n_seq);
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    struct rig r = {0};
    if (argc != 8) {
        fprintf(stderr, "usage: see the top of bench/llm_steps.c\n");
        return 2;
    }
    bool decode = strcmp(argv[4], "decode") == 0;
    uint32_t n = (uint32_t)strtoul(argv[5], NULL, 10), times = (uint32_t)strtoul(argv[7], NULL, 10);
    r.depth = (uint32_t)strtoul(argv[6], NULL, 10);
    r.n_seq = decode ? n : 1;
    r.n_tok = decode ? 1 : n;
    rig_open(&r, argv[1], (unsigned)strtoul(argv[2], NULL, 10), kv_type(argv[3]));
    step(&r, 0);
    double best = 1e9, total = 0;
    for (uint32_t i = 0; i < times; i++) {
        double begin = cpu_s();
        step(&r, decode ? i % 256 : 0);
        double t = cpu_s() - begin;
        total += t;
        best = t < best ? t : best;
    }
    printf("%s %u at %u: %.2f ms a step (best %.2f), %.1f tokens/s (best %.1f)\n", argv[4], n, r.depth, total / times * 1e3,
           best * 1e3, n * times / total, n / best);
    forward_destroy(r.forward);
    llm_model_destroy(r.model);
    team_destroy(r.team);
    free(r.tables);
    free(r.tokens);
    free(r.items);
    return 0;
}
