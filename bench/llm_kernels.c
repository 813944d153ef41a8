/* llm_kernels.c: speed of matrix products and attention, beside what the machine can do: raw read bandwidth and int8 peak, measured in the
 * same run. Run by bench/llm_kernels.sh; see there for options.
 *
 * Weights are cycled through copies that together exceed the caches, as a model's layers do. Time is each thread's own CPU time, the least
 * of several rounds, so that other work on the machine counts as little as it can; with several threads the slowest one counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "engine/llm/kernels/kernels.h"
#include "engine/llm/team.h"
#include "os/clock.h"

#include "../tests/unit/engine/llm/kernels/weights.h"

#define THREADS_MAX 64
static size_t weight_set = (size_t)96 << 20;

struct job {
    void (*body)(struct job *j, uint32_t member, struct team *t);
    uint64_t ns[THREADS_MAX];
    const struct kernels *k;
    const struct matrix *m;
    size_t copies;
    const struct acts *x;
    float *y;
    uint32_t n, reps;
    void *scratch[THREADS_MAX];
    const uint8_t *buffer;
    size_t bytes;
    const struct kv_view *kv;
    uint32_t context, rows;
    uint8_t *query[THREADS_MAX];
    struct attn_part *part[THREADS_MAX], *tmp[THREADS_MAX];
};

static volatile float sink;

/* Like an engine's weights: in huge pages where the machine gives them. */
static uint8_t *huge(size_t bytes)
{
    size_t page = (size_t)2 << 20, all = (bytes + page - 1) / page * page;
    uint8_t *p = aligned_alloc(page, all);
    madvise(p, all, MADV_HUGEPAGE);
    memset(p, 0x5a, all);
    return p;
}

static void timed(void *arg, uint32_t member, struct team *t)
{
    struct job *j = arg;
    uint64_t start = os_thread_cpu_ns();
    j->body(j, member, t);
    j->ns[member] = os_thread_cpu_ns() - start;
}

/* Seconds of the slowest member, the best of `rounds`. */
static double best(struct team *t, struct job *j, int rounds)
{
    double least = 1e30;
    for (int r = 0; r < rounds; r++) {
        uint64_t worst = 0;
        team_run(t, timed, j);
        for (uint32_t i = 0; i < team_size(t); i++)
            worst = j->ns[i] > worst ? j->ns[i] : worst;
        least = (double)worst * 1e-9 < least ? (double)worst * 1e-9 : least;
    }
    return least;
}

static void product(struct job *j, uint32_t member, struct team *t)
{
    uint32_t b, e, units = (j->m->rows + KERNEL_ROW_UNIT - 1) / KERNEL_ROW_UNIT;
    team_range(t, member, units, &b, &e);
    uint32_t row1 = e * KERNEL_ROW_UNIT < j->m->rows ? e * KERNEL_ROW_UNIT : j->m->rows;
    struct matmul_out o = {.y = j->y, .ld = j->m->rows};
    for (uint32_t r = 0; r < j->reps; r++)
        j->k->matmul(&j->m[r % j->copies], j->x, j->n, b * KERNEL_ROW_UNIT, row1, &o, j->scratch[member]);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512vnni"))) static void peak(struct job *j, uint32_t member, struct team *t)
{
    (void)member, (void)t;
    __m512i a[12], w = _mm512_set1_epi32(0x01020304), x = _mm512_set1_epi32(0x04030201);
    for (int i = 0; i < 12; i++)
        a[i] = _mm512_setzero_si512();
    for (uint32_t r = 0; r < j->reps; r++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            a[i] = _mm512_dpbusd_epi32(a[i], w, x);
    for (int i = 1; i < 12; i++)
        a[0] = _mm512_add_epi32(a[0], a[i]);
    sink = (float)_mm512_reduce_add_epi32(a[0]);
}
#endif

static void read_all(struct job *j, uint32_t member, struct team *t)
{
    uint32_t b, e;
    uint64_t s[8] = {0};
    team_range(t, member, (uint32_t)(j->bytes / 64), &b, &e);
    for (uint32_t i = b; i < e; i++) {
        const uint64_t *p = (const uint64_t *)(const void *)(j->buffer + (size_t)i * 64);
        __builtin_prefetch(p + 128);
        for (int l = 0; l < 8; l++)
            s[l] += p[l];
    }
    sink = (float)(s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]);
}

static void attend(struct job *j, uint32_t member, struct team *t)
{
    uint32_t b, e;
    team_range(t, member, j->kv->layout->n_head_kv, &b, &e);
    struct attn_tile tile = {.n = j->rows, .query = j->query[member]};
    for (uint32_t i = 0; i < j->rows; i++)
        tile.hi[i] = j->context;
    for (uint32_t r = 0; r < j->reps; r++)
        for (uint32_t h = b; h < e; h++)
            attn_run(j->k, j->kv, &tile, h, 0, (j->context + ATTN_SPAN_TOK - 1) / ATTN_SPAN_TOK, j->part[member],
                     j->tmp[member], j->scratch[member]);
}

static void machine(struct team *t, struct job *j)
{
    j->bytes = (size_t)96 << 20;
    uint8_t *buffer = huge(j->bytes);
    j->buffer = buffer;
    j->body = read_all;
    printf("  read bandwidth %.1f GB/s", (double)j->bytes / best(t, j, 5) * 1e-9);
    free(buffer);
#if defined(__x86_64__)
    if (kernels_by_name("avx512")) {
        j->body = peak;
        j->reps = 2000000;
        printf(", int8 peak (vpdpbusd, 512 bits) %.0f GMAC/s", 12.0 * 64 * j->reps * team_size(t) / best(t, j, 5) * 1e-9);
    }
#endif
    printf("\n");
}

static void products(struct team *t, struct job *j, enum weight_type type, uint32_t rows, uint32_t cols, int rounds)
{
    static const uint32_t counts[] = {1, 2, 4, 8, 16, 32, 128, 512};
    struct matrix m;
    struct acts x;
    uint8_t *src;
    uint64_t seed = 1;
    if (!random_matrix(type, rows, cols, 1, &m, &src))
        return;
    free(src);
    j->copies = weight_set / matrix_bytes(&m) + 1;
    struct matrix *all = malloc(j->copies * sizeof m);
    uint8_t *weights = huge(j->copies * matrix_bytes(&m));
    for (size_t i = 0; i < j->copies; i++) {
        all[i] = m;
        all[i].data = weights + i * matrix_bytes(&m);
        memcpy(all[i].data, m.data, matrix_bytes(&m));
    }
    if (!acts_layout(acts_kind_for(type), cols, 512, &x))
        return;
    x.data = aligned(acts_bytes(&x));
    float *column = malloc(sizeof(float) * cols);
    for (uint32_t c = 0; c < 512; c++) {
        for (uint32_t i = 0; i < cols; i++)
            column[i] = next_float(&seed);
        j->k->acts_put(&x, c, column);
    }
    j->y = aligned(sizeof(float) * rows * 512);
    j->m = all;
    j->x = &x;
    j->body = product;
    for (uint32_t i = 0; i < team_size(t); i++)
        j->scratch[i] = aligned(kernels_scratch_bytes(cols));
    printf("  %-5s %5u x %-5u", weight_type_info(type)->name, rows, cols);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        j->n = counts[i];
        j->reps = counts[i] >= 128 ? 1 : (uint32_t)j->copies < 32 ? 32 : (uint32_t)j->copies;
        double s = best(t, j, rounds) / j->reps;
        printf(" %6.1f", (double)rows * cols * counts[i] / s * 1e-9);
        if (counts[i] == 1)
            printf(" (%4.1f GB/s)", (double)matrix_bytes(&m) / s * 1e-9);
        fflush(stdout);
    }
    printf("\n");
    for (uint32_t i = 0; i < team_size(t); i++)
        free(j->scratch[i]);
    free(m.data);
    free(weights);
    free(all);
    free(x.data);
    free(column);
    free(j->y);
}

static void attention(struct team *t, struct job *j, enum kv_type type, uint32_t dim, int rounds)
{
    struct kv_layout l;
    if (!kv_layout(type, 8, dim, dim, &l))
        return;
    uint32_t blocks = (uint32_t)(weight_set / l.block_bytes), table_len = blocks;
    uint32_t *table = malloc(sizeof(uint32_t) * table_len);
    uint8_t *pool = huge((size_t)blocks * l.block_bytes);
    uint64_t seed = 3;
    float row[256];
    for (uint32_t i = 0; i < dim; i++)
        row[i] = next_float(&seed);
    for (uint32_t b = 0; b < blocks; b++) {
        table[b] = b;
        for (uint32_t s = 0; s < 32; s++)
            for (uint32_t h = 0; h < 8; h++)
                j->k->kv_store(&l, pool + (size_t)b * l.block_bytes, h, s, row, row);
    }
    struct kv_view view = {&l, pool, l.block_bytes, table};
    for (uint32_t i = 0; i < team_size(t); i++) {
        j->scratch[i] = aligned(attn_scratch_bytes(&l));
        j->query[i] = aligned(attn_query_bytes(&l));
        j->part[i] = aligned(attn_part_bytes(&l));
        j->tmp[i] = aligned(attn_part_bytes(&l));
        struct attn_tile tile = {.n = 8, .query = j->query[i]};
        for (uint32_t r = 0; r < 8; r++)
            j->k->attn_query(&l, &tile, r, row, 0.1f);
    }
    j->kv = &view;
    j->body = attend;
    static const char *const names[] = {"F16", "BF16", "Q8"};
    printf("  KV %-4s dim %3u", names[type], dim);
    j->context = blocks * 32;
    j->reps = 1;
    for (uint32_t rows = 1; rows <= 8; rows *= 2) {
        j->rows = rows;
        double s = best(t, j, rounds);
        printf("  %u rows %6.1f GMAC/s (%5.1f GB/s, %5.1f M keys/s)", rows, 2.0 * dim * 8 * rows * j->context / s * 1e-9,
               (double)blocks * (double)l.block_bytes / s * 1e-9, (double)j->context * 8 / s * 1e-6);
    }
    printf("\n");
    for (uint32_t i = 0; i < team_size(t); i++) {
        free(j->scratch[i]);
        free(j->query[i]);
        free(j->part[i]);
        free(j->tmp[i]);
    }
    free(table);
    free(pool);
}

int main(int argc, char **argv)
{
    const char *only = NULL, *isa = NULL;
    uint32_t threads = 1, rows = 2048, cols = 2048;
    int rounds = 5, opt;
    while ((opt = getopt(argc, argv, "t:k:i:r:c:n:w:")) != -1) {
        switch (opt) {
        case 't':
            threads = (uint32_t)atoi(optarg);
            break;
        case 'k':
            only = optarg;
            break;
        case 'i':
            isa = optarg;
            break;
        case 'r':
            rows = (uint32_t)atoi(optarg);
            break;
        case 'c':
            cols = (uint32_t)atoi(optarg);
            break;
        case 'w':
            weight_set = (size_t)atoi(optarg) << 20;
            break;
        case 'n':
            rounds = atoi(optarg);
            break;
        default:
            fprintf(stderr, "usage: bench_llm_kernels [-t threads] [-k type|attn] [-i isa] [-r rows] [-c cols] [-n rounds] [-w "
                            "MiB of weights]\n");
            return 2;
        }
    }
    static struct job j;
    struct team *t;
    j.k = isa ? kernels_by_name(isa) : kernels_best();
    if (!j.k || threads > THREADS_MAX || team_create(threads, "bench", &t, NULL) < 0) {
        fprintf(stderr, "bench_llm_kernels: no such instruction set here, or no threads\n");
        return 1;
    }
    printf("%s, %u thread%s, CPU time\n", j.k->name, threads, threads > 1 ? "s" : "");
    machine(t, &j);
    printf("  GMAC/s at columns        1 (weights read)      2      4      8     16     32    128    512\n");
    for (size_t i = 0; i < N_TYPES; i++) {
        struct str want = {only ? only : "", only ? strlen(only) : 0};
        if (!only || str_ieqz(want, weight_type_info(ALL_TYPES[i])->name))
            products(t, &j, ALL_TYPES[i], rows, cols, rounds);
    }
    for (int k = 0; k < 3; k++)
        if (!only || !strcmp(only, "attn")) {
            attention(t, &j, (enum kv_type)k, 64, rounds);
            attention(t, &j, (enum kv_type)k, 128, rounds);
        }
    team_destroy(t);
    return 0;
}
