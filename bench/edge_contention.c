/* edge_contention.c: what the edge's two locks cost when all I/O threads meet at them: a key is authorised (edge.lock), a quota reserved and settled
 * (quota_gate.lock), by 1 to 16 threads, with one key of one tenant and with 10,000 keys of 1,000.
 *
 *     bench_edge_contention [SECONDS]
 *
 * Prints requests a second of all threads and the CPU time of one: where threads wait for each other the first stops growing with the cores,
 * where they spin or bounce lines the second grows. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"
#include "edge/edge.h"
#include "edge/keys.h"
#include "edge/quota_gate.h"
#include "os/clock.h"
#include "os/thread.h"

#define THREADS_MAX 16
#define KEYS        10000u
#define TENANTS     1000u

static const char policies[] =
    "policies:\n"
    "- {name: key, per: key, requests_per_second: 100000000, rows_per_second: 100000000, concurrent: 100000}\n"
    "- {name: tenant, per: [tenant, model], requests_per_day: 100000000000, requests_per_month: 100000000000}\n"
    "- {name: all, requests_per_second: 100000000}\n";

struct world {
    struct edge *edge;
    struct quota_gate *gate;
    char (*keys)[KEY_TEXT_BYTES]; /* [KEYS] */
    uint32_t n_keys;
    _Atomic bool stop;
};

struct worker {
    struct os_thread thread;
    struct world *w;
    uint64_t seed, done, cpu_ns;
};

static void die(const char *what, const struct error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

static void open_world(struct world *w)
{
    struct error err = {0};
    struct buf text;
    struct rand rand;
    size_t n;
    rand_init(&rand, 5);
    buf_init(&text);
    w->keys = calloc(KEYS, sizeof *w->keys);
    for (uint32_t i = 0; i < KEYS; i++) {
        uint8_t random[KEY_RANDOM_BYTES];
        char name[24], tenant[24], id[KEY_ID_BYTES + 1];
        snprintf(name, sizeof name, "k%u", i);
        snprintf(tenant, sizeof tenant, "t%u", i % TENANTS);
        for (size_t k = 0; k < sizeof random; k++)
            random[k] = (uint8_t)rand_u64(&rand);
        const struct key_spec s = {.who = {.name = str_of(name), .tenant = str_of(tenant), .scopes = EDGE_INFER}};
        if (key_make(&s, random, &text, w->keys[i], id, &err) < 0)
            die("key", &err);
    }
    const struct edge_options o = {.keys = true};
    const struct quota_gate_options q = {0};
    w->edge = edge_create(&o);
    if (!w->edge || edge_set_keys(w->edge, buf_str(&text), "keys", &n, &err) < 0 ||
        quota_gate_create(str_of(policies), "quotas", &q, &w->gate, &err) < 0)
        die("start", &err);
    buf_release(&text);
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void request(struct world *w, uint32_t key)
{
    struct error err = {0};
    struct edge_identity *who = NULL;
    enum edge_verdict verdict;
    struct quota_wait wait;
    const struct edge_ask a = {.credentials = {.api_key = str_of(w->keys[key])},
                               .need = {.scope = EDGE_INFER},
                               .model = STR("m"),
                               .now_s = 1800000000};
    if (edge_authorise(w->edge, &a, &who, &verdict, &err) < 0)
        die("authorise", &err);
    uint64_t now = os_monotonic_ns();
    const struct quota_ask q = {.key = str_of(who->id),
                                .tenant = str_of(who->tenant),
                                .quota_class = str_of(who->quota),
                                .model = STR("m"),
                                .route = STR("infer"),
                                .runs = true,
                                .rows = 1,
                                .now_ns = now,
                                .now_s = 1800000000};
    if (quota_gate_ask(w->gate, &q, &wait) < 0)
        die("quota", &err);
    quota_gate_settle(w->gate, wait.id, 0, now, 1800000000);
    edge_identity_unref(who);
}

static void run(void *arg)
{
    struct worker *k = arg;
    struct rand rand;
    rand_init(&rand, k->seed);
    uint64_t began = thread_cpu_ns();
    while (!atomic_load_explicit(&k->w->stop, memory_order_relaxed)) {
        request(k->w, (uint32_t)rand_below(&rand, k->w->n_keys));
        k->done++;
    }
    k->cpu_ns = thread_cpu_ns() - began;
}

static void measure(struct world *w, uint32_t threads, double seconds)
{
    struct worker workers[THREADS_MAX] = {0};
    struct error err = {0};
    uint64_t done = 0, cpu = 0, began = os_monotonic_ns();
    atomic_store(&w->stop, false);
    for (uint32_t i = 0; i < threads; i++) {
        workers[i].w = w;
        workers[i].seed = i + 1;
        if (os_thread_start(&workers[i].thread, "bench", run, &workers[i], &err) < 0)
            die("thread", &err);
    }
    os_sleep_ns((uint64_t)(seconds * 1e9));
    atomic_store(&w->stop, true);
    for (uint32_t i = 0; i < threads; i++) {
        os_thread_join(&workers[i].thread);
        done += workers[i].done;
        cpu += workers[i].cpu_ns;
    }
    double took = (double)(os_monotonic_ns() - began) / 1e9;
    printf("%5u keys, %2u threads: %9.0f requests/s, %6.2f us of CPU each\n", w->n_keys, threads, (double)done / took,
           (double)cpu / (double)done / 1e3);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    struct world w = {0};
    open_world(&w);
    for (int round = 0; round < 2; round++) {
        w.n_keys = round ? KEYS : 1;
        for (uint32_t threads = 1; threads <= THREADS_MAX; threads *= 2)
            measure(&w, threads, seconds);
    }
    quota_gate_destroy(w.gate);
    edge_destroy(w.edge);
    free(w.keys);
    return 0;
}
