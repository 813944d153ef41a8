/* llm_steps: steps of the forward pass alone, for profiles and for comparisons on a machine that is busy. Two times are said: the step thread's own
 * CPU time (with one thread that is all of it) and the wall's.
 *
 *   bench_llm_steps MODEL.gguf THREADS KV_TYPE decode SEQUENCES DEPTH STEPS     one token of each sequence a step, behind DEPTH tokens
 *   bench_llm_steps MODEL.gguf THREADS KV_TYPE prompt TOKENS DEPTH TIMES        a chunk of TOKENS behind DEPTH tokens
 *   bench_llm_steps MODEL.gguf THREADS KV_TYPE mixed:SEQUENCES TOKENS DEPTH TIMES   the same beside one token of each of SEQUENCES behind 64
 * KV_TYPE: f16, bf16, q8_0. TOKENS and DEPTH of `prompt` and `mixed` may be lists (1,8,32): each pair is measured, and a line is said for it.
 * Positions below DEPTH hold zeros, in pages of their own: what attention reads costs the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/llm/forward.h"
#include "engine/llm/forward_priv.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/file.h"

#define BESIDE_DEPTH 64
#define LIST_MAX     32

struct rig {
    struct llm_model *model;
    struct team *team;
    struct forward *forward;
    uint32_t n_seq; /* decodes */
    uint32_t max_chunk, max_depth, decode_depth;
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

static uint32_t blocks_of(uint32_t n_tok)
{
    return n_tok / KV_TILE_TOK + 1;
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
    uint32_t of_decode = blocks_of(r->decode_depth + 256), of_prompt = blocks_of(r->max_depth + r->max_chunk);
    struct forward_config c = {.max_tok = r->n_seq + r->max_chunk,
                               .max_logits = r->n_seq + 1,
                               .n_blocks = r->n_seq * of_decode + of_prompt,
                               .n_ctx = (of_prompt > of_decode ? of_prompt : of_decode) * KV_TILE_TOK,
                               .kv_type = type};
    if (forward_create(r->model, r->team, &c, &r->forward, &err) < 0)
        die(&err);
    memset(r->forward->kv_base, 0, r->forward->kv_bytes);
    r->tables = calloc(c.n_blocks, sizeof *r->tables);
    r->tokens = calloc(c.max_tok, sizeof *r->tokens);
    r->items = calloc(r->n_seq + 1, sizeof *r->items);
    for (uint32_t i = 0; i < c.n_blocks; i++)
        r->tables[i] = i;
    for (uint32_t i = 0; i < c.max_tok; i++)
        r->tokens[i] = (int32_t)(100 + i * 7 % 1000);
    for (uint32_t i = 0; i < r->n_seq; i++)
        r->items[i] = (struct forward_item){.tokens = r->tokens + i, .n = 1, .table = r->tables + i * of_decode, .n_logits = 1};
    r->items[r->n_seq] = (struct forward_item){.tokens = r->tokens + r->n_seq, .table = r->tables + r->n_seq * of_decode};
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Decodes beside a chunk (0: none) behind `depth`, and a line about it. */
static void measure(struct rig *r, const char *what, uint32_t chunk, uint32_t depth, uint32_t times)
{
    double *cpu = calloc(times, sizeof *cpu), *wall = calloc(times, sizeof *wall), cpu_sum = 0, wall_sum = 0;
    uint32_t cols = r->n_seq + chunk;
    struct forward_item *it = &r->items[r->n_seq];
    it->first = depth;
    it->n = chunk;
    it->n_logits = chunk && !r->n_seq;
    for (uint32_t i = 0; i <= times; i++) { /* the first is not counted */
        for (uint32_t k = 0; k < r->n_seq; k++)
            r->items[k].first = r->decode_depth + i % 256;
        double c0 = cpu_s(), w0 = (double)os_monotonic_ns() * 1e-9;
        forward_run(r->forward, r->items, r->n_seq + (chunk > 0));
        if (i == 0)
            continue;
        cpu_sum += cpu[i - 1] = cpu_s() - c0;
        wall_sum += wall[i - 1] = (double)os_monotonic_ns() * 1e-9 - w0;
    }
    qsort(cpu, times, sizeof *cpu, by_value);
    qsort(wall, times, sizeof *wall, by_value);
    printf("%s %u at %u: %.2f ms a step (best %.2f), %.1f tokens/s (best %.1f); wall %.2f ms, median %.2f, best %.2f\n", what,
           chunk ? chunk : r->n_seq, chunk ? depth : r->decode_depth, cpu_sum / times * 1e3, cpu[0] * 1e3,
           cols * times / cpu_sum, cols / cpu[0], wall_sum / times * 1e3, wall[times / 2] * 1e3, wall[0] * 1e3);
    fflush(stdout);
    free(cpu);
    free(wall);
}

static uint32_t parse_list(const char *s, uint32_t *out, uint32_t *most)
{
    uint32_t n = 0;
    *most = 0;
    for (char *end; *s && n < LIST_MAX; s = *end ? end + 1 : end) {
        out[n] = (uint32_t)strtoul(s, &end, 10);
        *most = out[n] > *most ? out[n] : *most;
        n++;
        if (end == s)
            break;
    }
    return n;
}

int main(int argc, char **argv)
{
    struct rig r = {0};
    if (argc != 8) {
        fprintf(stderr, "usage: see the top of bench/llm_steps.c\n");
        return 2;
    }
    const char *what = argv[4];
    uint32_t sizes[LIST_MAX], depths[LIST_MAX], times = (uint32_t)strtoul(argv[7], NULL, 10);
    uint32_t n_sizes = parse_list(argv[5], sizes, &r.max_chunk), n_depths = parse_list(argv[6], depths, &r.max_depth);
    bool decode = strcmp(what, "decode") == 0;
    if (decode) {
        r.n_seq = sizes[0];
        r.decode_depth = depths[0];
        r.max_chunk = r.max_depth = 0;
    } else if (strncmp(what, "mixed:", 6) == 0) {
        r.n_seq = (uint32_t)strtoul(what + 6, NULL, 10);
        r.decode_depth = BESIDE_DEPTH;
    }
    rig_open(&r, argv[1], (unsigned)strtoul(argv[2], NULL, 10), kv_type(argv[3]));
    for (uint32_t d = 0; !decode && d < n_depths; d++)
        for (uint32_t i = 0; i < n_sizes; i++)
            measure(&r, what, sizes[i], depths[d], times);
    if (decode)
        measure(&r, what, 0, 0, times);
    forward_destroy(r.forward);
    llm_model_destroy(r.model);
    team_destroy(r.team);
    free(r.tables);
    free(r.tokens);
    free(r.items);
    return 0;
}
