/* engine_rig.h: the token face of a loaded model, driven from a test: requests in, everything that came back kept for comparison. */
#ifndef TEST_ENGINE_RIG_H
#define TEST_ENGINE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/status.h"
#include "engine/llm/llm.h"
#include "engine/llm/sampler.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/file.h"
#include "os/thread.h"

#define ANSWER_CHOICES 8
#define ANSWER_TOKENS  512

/* What one request gave; filled on the step thread, read after answer_wait. */
struct answer {
    struct os_mutex lock;
    struct os_cond ended;
    struct choice_answer {
        struct buf text;
        int32_t tokens[ANSWER_TOKENS];
        float logprobs[ANSWER_TOKENS]; /* of the chosen tokens */
        size_t n;
        enum token_finish finish;
        char stop[64];
    } choice[ANSWER_CHOICES];
    uint32_t n_final, n_events;
    enum token_event_kind kind;
    enum token_finish finish;
    struct token_usage usage;
    int status;
    char error[512];
};

static inline void on_event(void *ctx, const struct token_event *ev)
{
    struct answer *a = ctx;
    os_mutex_lock(&a->lock);
    struct choice_answer *c = &a->choice[ev->choice];
    a->n_events++;
    assert_int_equal(0, a->n_final);
    buf_append_str(&c->text, ev->text);
    size_t row = ev->n_tokens && ev->logprobs ? ev->n_logprobs / ev->n_tokens : 0;
    for (size_t i = 0; i < ev->n_tokens && c->n < ANSWER_TOKENS; i++) {
        c->tokens[c->n] = ev->tokens[i];
        c->logprobs[c->n++] = row ? ev->logprobs[i * row].logprob : 0;
    }
    if (ev->kind == TOKEN_EVENT_TEXT) {
        c->finish = ev->finish;
        snprintf(c->stop, sizeof c->stop, "%.*s", STR_ARG(ev->stop));
    } else {
        a->n_final++;
        a->kind = ev->kind;
        a->finish = ev->finish;
        a->usage = ev->usage;
        a->status = ev->status;
        snprintf(a->error, sizeof a->error, "%s", ev->error ? ev->error : "");
        os_cond_broadcast(&a->ended);
    }
    os_mutex_unlock(&a->lock);
}

static inline struct answer *answer_new(void)
{
    struct answer *a = calloc(1, sizeof *a);
    os_mutex_init(&a->lock, RANK_LEAF);
    os_cond_init(&a->ended);
    return a;
}

static inline void answer_free(struct answer *a)
{
    for (size_t i = 0; i < ANSWER_CHOICES; i++)
        buf_release(&a->choice[i].text);
    os_cond_release(&a->ended);
    os_mutex_release(&a->lock);
    free(a);
}

static inline void answer_wait(struct answer *a)
{
    uint64_t until = os_monotonic_ns() + 60000000000u;
    os_mutex_lock(&a->lock);
    while (!a->n_final)
        assert_true(os_cond_wait_until(&a->ended, &a->lock, until));
    os_mutex_unlock(&a->lock);
}

/* Load <dir>/<file> with options "key", "value", ..., NULL. */
static inline struct engine_model *rig_load_from(const char *dir, const char *file, const char *const *options)
{
    struct engine_option list[12];
    struct engine_load spec = {.name = "tiny", .version = "1", .file = file, .options = list};
    struct engine_model *m = NULL;
    struct error err = {0};
    for (; options && options[spec.n_options * 2]; spec.n_options++)
        list[spec.n_options] =
            (struct engine_option){str_of(options[spec.n_options * 2]), str_of(options[spec.n_options * 2 + 1])};
    assert_int_equal(0, os_dir_open(dir, &spec.dir_fd, &err));
    int rc = engine_llm.load(NULL, &spec, &m, &err);
    os_close(spec.dir_fd);
    if (rc)
        fail_msg("%s", err.text);
    return m;
}

/* Load TEST_DATA/llm/<file> (or <folder>/<file>). */
static inline struct engine_model *rig_load(const char *file, const char *const *options)
{
    const char *slash = strchr(file, '/');
    char dir[512];
    snprintf(dir, sizeof dir, TEST_DATA "/llm/%.*s", slash ? (int)(slash - file) : 0, file);
    return rig_load_from(dir, slash ? slash + 1 : file, options);
}

/* Copy TEST_DATA/llm/<arch>.gguf to <dir>/<as> with another context length (the file's key is patched in place). */
static inline void rig_copy_with_context(const char *arch, const char *dir, const char *as, uint32_t context)
{
    struct buf b;
    struct error err = {0};
    char path[512], key[64];
    buf_init(&b);
    snprintf(path, sizeof path, TEST_DATA "/llm/%s.gguf", arch);
    assert_int_equal(0, os_file_read(path, 1 << 24, &b, &err));
    int n = snprintf(key, sizeof key, "%s.context_length", arch);
    char *at = memmem(b.p, b.n, key, (size_t)n);
    assert_non_null(at);
    memcpy(at + n + 4, &context, sizeof context); /* behind the value's type */
    snprintf(path, sizeof path, "%s/%s", dir, as);
    assert_int_equal(0, os_file_write_atomic(path, b.p, b.n, 0644, &err));
    buf_release(&b);
}

/* A pseudo-random prompt of n ids below `vocab`. */
static inline void rig_prompt(int32_t *ids, size_t n, uint32_t vocab, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % vocab);
    }
}

static inline struct token_request rig_request(const int32_t *prompt, size_t n, struct answer *a)
{
    struct token_request r = {.prompt = prompt, .n_prompt = n, .deadline_ns = UINT64_MAX, .on_event = on_event, .ctx = a};
    sampler_params_default(&r.params);
    r.params.has_seed = true;
    r.params.seed = 7;
    r.params.logprobs = 0;
    r.params.ignore_eos = true;
    r.params.max_tok = 24;
    return r;
}

static inline uint64_t rig_submit(struct engine_model *m, const struct token_request *r)
{
    struct error err = {0};
    uint64_t id = 0;
    if (engine_llm.submit(m, r, &id, &err))
        fail_msg("%s", err.text);
    return id;
}

/* The value of a series without labels of its own, by its name behind "inferd_llm_". */
static inline uint64_t rig_metric(struct engine_model *m, const char *name)
{
    struct buf b;
    buf_init(&b);
    engine_llm.metrics(m, &b);
    char line[128];
    snprintf(line, sizeof line, "\ninferd_llm_%s{model=\"tiny\",version=\"1\"} ", name);
    const char *at = strstr(buf_z(&b), line);
    assert_non_null(at);
    uint64_t v = strtoull(at + strlen(line), NULL, 10);
    buf_release(&b);
    return v;
}

/* Same tokens, same log-probabilities bit by bit, same text. */
static inline void assert_same_answer(const struct answer *a, const struct answer *b)
{
    for (size_t i = 0; i < ANSWER_CHOICES; i++) {
        const struct choice_answer *x = &a->choice[i], *y = &b->choice[i];
        assert_int_equal(x->n, y->n);
        assert_memory_equal(x->tokens, y->tokens, x->n * sizeof *x->tokens);
        assert_memory_equal(x->logprobs, y->logprobs, x->n * sizeof *x->logprobs);
        assert_true(str_eq(buf_str(&x->text), buf_str(&y->text)));
        assert_int_equal(x->finish, y->finish);
    }
}

#endif
