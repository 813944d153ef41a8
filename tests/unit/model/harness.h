/* harness.h: for the tests of model/: a repository in a temporary folder, a registry over it with the fake engine, and requests
 * whose answers are waited for. Waiting is on conditions with a bound, never by sleeping for a guess. */
#ifndef TESTS_MODEL_HARNESS_H
#define TESTS_MODEL_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/fake/fake.h"
#include "model/infer.h"
#include "model/registry.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/thread.h"

#define MS      1000000ull
#define WAIT_NS (20000 * MS) /* a test that waits longer has failed */

struct world {
    char dir[64];
    const char *roots[4];
    const char *load[8];
    struct registry_options o;
    struct registry *r;
    struct metrics *metrics;
    struct logger log;
};

static inline void log_to_stderr(struct logger *lg, enum log_level level, const char *event, const struct log_field *f)
{
    (void)lg;
    fprintf(stderr, "  %s %s", log_level_name(level), event);
    for (; f->key; f++)
        if (f->kind == LOG_KIND_STR)
            fprintf(stderr, " %s=%.*s", f->key, (int)f->s.n, f->s.p);
        else
            fprintf(stderr, " %s=%llu", f->key, (unsigned long long)f->u);
    fprintf(stderr, "\n");
}

/* Write `text` to <dir>/<path>, making its folders. */
static inline void put_at(const char *dir, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", dir, path);
    for (char *p = full + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(full, 0755);
            *p = '/';
        }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static inline void put(struct world *w, const char *path, const char *text)
{
    put_at(w->dir, path, text);
}

/* Remove a folder with all below it. */
static inline void remove_tree(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", path, (char *)NULL);
        _exit(127);
    }
    int status;
    waitpid(pid, &status, 0);
}

static const struct engine_ops *const test_engines[] = {&engine_fake, NULL};

static inline void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    snprintf(w->dir, sizeof w->dir, "/tmp/inferd-model-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->roots[0] = w->dir;
    w->metrics = metrics_create();
    w->log.write = log_to_stderr;
    w->log.level = getenv("TEST_LOG") ? LOG_DEBUG : LOG_OFF;
    w->o = (struct registry_options){.roots = w->roots,
                                     .n_roots = 1,
                                     .load = w->load,
                                     .mode = REGISTRY_NONE,
                                     .poll_interval_ns = 20 * MS,
                                     .poll_settle_ns = 60 * MS,
                                     .strict_readiness = true,
                                     .memory_limit_bytes = 1ull << 30,
                                     .queue_bytes_total = 1ull << 30,
                                     .compute_threads = 1,
                                     .loader_threads = 2,
                                     .hang_timeout_ns = 10000 * MS,
                                     .engines = test_engines,
                                     .metrics = w->metrics,
                                     .log = &w->log};
}

static inline void until(bool (*is)(void *), void *arg, const char *what)
{
    uint64_t end = os_monotonic_ns() + WAIT_NS;
    while (!is(arg)) {
        if (os_monotonic_ns() > end)
            fail_msg("waited in vain for: %s", what);
        os_sleep_ns(MS / 2);
    }
}

static inline bool is_settled(void *r)
{
    return registry_settled(r);
}
static inline bool is_ready(void *r)
{
    return registry_ready(r);
}
static inline bool is_idle(void *r)
{
    return registry_idle(r);
}

/* Start, and wait for the end of the first pass. */
static inline void world_start(struct world *w)
{
    struct error err = {0};
    if (registry_create(&w->o, &w->r, &err))
        fail_msg("%s", err.text);
    until(is_settled, w->r, "the first pass");
}

static inline void world_release(struct world *w)
{
    registry_destroy(w->r);
    metrics_destroy(w->metrics);
    remove_tree(w->dir);
}

/* A request of up to two FP32 or INT32 inputs; freed with call_release after its answer. */
struct call {
    struct infer inf;
    struct tensor inputs[4], outputs[4];
    bool wanted[4];
    struct os_mutex lock;
    struct os_cond cond;
    bool over;
    uint64_t over_ns;
    unsigned times;
};

static inline void call_done(struct infer *inf)
{
    struct call *c = (struct call *)inf;
    os_mutex_lock(&c->lock);
    c->over = true;
    c->times++;
    c->over_ns = os_monotonic_ns();
    os_cond_broadcast(&c->cond);
    os_mutex_unlock(&c->lock);
}

/* Find the model; the text of the error is kept in inf.error. */
static inline int call_init(struct call *c, struct registry *r, const char *model, const char *version)
{
    memset(c, 0, sizeof *c);
    infer_init(&c->inf);
    os_mutex_init(&c->lock, RANK_LEAF);
    os_cond_init(&c->cond);
    c->inf.inputs = c->inputs;
    c->inf.outputs = c->outputs;
    c->inf.done = call_done;
    return registry_find(r, str_of(model), str_of(version ? version : ""), &c->inf.version, &c->inf.error);
}

/* Add an input with `n` 4-byte elements from `p`. */
static inline void call_input(struct call *c, const char *name, enum dtype t, const void *p, size_t n, int rank,
                              const int64_t *dims)
{
    struct slab *s = slab_create(n * 4 + 1);
    assert_non_null(s);
    memcpy(s->data, p, n * 4);
    struct tensor *x = &c->inputs[c->inf.n_inputs++];
    *x = (struct tensor){.name = str_of(name), .dtype = t, .data = slice_of(s, 0, n * 4)};
    slab_unref(s);
    x->shape.rank = (uint8_t)rank;
    for (int d = 0; d < rank; d++)
        x->shape.dim[d] = dims[d];
}

/* `rows` rows of one value each: shape [rows, 1]. */
static inline void call_column(struct call *c, const char *name, const int32_t *values, int64_t rows)
{
    call_input(c, name, DTYPE_INT32, values, (size_t)rows, 2, (const int64_t[]){rows, 1});
}

static inline int call_submit(struct call *c)
{
    return infer_submit(&c->inf, NULL, &c->inf.error);
}

static inline void call_wait(struct call *c)
{
    uint64_t end = os_monotonic_ns() + WAIT_NS;
    os_mutex_lock(&c->lock);
    while (!c->over && os_cond_wait_until(&c->cond, &c->lock, end))
        ;
    bool over = c->over;
    os_mutex_unlock(&c->lock);
    assert_true(over);
}

static inline void call_release(struct call *c)
{
    infer_release(&c->inf);
    os_cond_release(&c->cond);
    os_mutex_release(&c->lock);
}

/* One whole request of one INT32 value to input "X" of a [-1,1] model; returns the status, the value of output 0 in *out. */
static inline int ask(struct registry *r, const char *model, const char *version, int32_t value, int32_t *out,
                      struct error *err)
{
    struct call c;
    int rc = call_init(&c, r, model, version);
    if (!rc) {
        call_column(&c, "X", &value, 1);
        rc = call_submit(&c);
        if (!rc) {
            call_wait(&c);
            rc = c.inf.status;
        }
    }
    if (!rc && out)
        memcpy(out, c.outputs[0].data.p, 4);
    if (rc && err)
        *err = c.inf.error;
    call_release(&c);
    return rc;
}

#define IDENTITY "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] copy X\n"

#endif
