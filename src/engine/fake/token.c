/* token.c: a language model without a model: the answer is what the script or the request says, in pieces, at intervals.
 *
 * A token is a byte (ids 0 to 255). The prompt of a chat is the content of its last message, so a test says in its request what the
 * model shall answer: without `answer` in the script it is the prompt itself. Each piece counts as one generated token. Cutting at
 * characters and stop strings is text/stop.h's, as in every engine. One thread a model, one lock (RANK_ENGINE): the thread alone walks
 * and frees requests; submit adds, cancel marks. Events are delivered without the lock. */
#include "engine/fake/token.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/thread.h"
#include "text/stop.h"
#include "wire/json.h"

#define TOP_MAX 20

struct answer {
    struct stop_text text;
    size_t n_pushed, n_listed; /* pieces */
    bool over;
};

struct fake_request {
    struct list link;
    uint64_t id, due_ns, deadline_ns;
    struct token_params params;
    struct arena arena;
    struct str say;
    size_t n_prompt;
    struct answer *answers; /* [n] */
    uint32_t n_open, n_generated;
    bool running;
    _Atomic bool cancelled;
    void (*on_event)(void *ctx, const struct token_event *ev);
    void *ctx;
};

struct fake_tokens {
    const struct fake_script *script;
    struct engine_text facts;
    struct os_mutex lock; /* the list's links, next_id, closing */
    struct os_cond wake;
    struct list requests;      /* in order of arrival */
    uint64_t next_id, changes; /* changes: by submit and cancel, so that none is slept through */
    uint32_t n_waiting, n_running;
    bool closing;
    _Atomic uint64_t steps;
    struct os_thread thread;
};

/* ---- requests ---- */

static void request_free(struct fake_request *r)
{
    for (uint32_t i = 0; r->answers && i < r->params.n; i++)
        stop_text_release(&r->answers[i].text);
    arena_release(&r->arena);
    free(r);
}

static bool copy_request(const struct fake_tokens *t, struct fake_request *r, const struct token_request *q)
{
    const struct token_params *p = &q->params;
    struct str *stop = arena_array(&r->arena, p->n_stop + 1, sizeof *stop);
    char *say = arena_alloc(&r->arena, q->n_prompt + 1);
    r->answers = arena_array(&r->arena, p->n, sizeof *r->answers);
    if (!stop || !say || !r->answers)
        return false;
    for (size_t i = 0; i < p->n_stop; i++)
        stop[i] = (struct str){arena_strdup(&r->arena, p->stop[i]), p->stop[i].n};
    for (size_t i = 0; i < q->n_prompt; i++)
        say[i] = (char)q->prompt[i];
    r->params = *p;
    r->params.stop = stop;
    r->say = t->script->answer.n ? t->script->answer : (struct str){say, q->n_prompt};
    for (uint32_t i = 0; i < p->n; i++)
        if (!stop_text_init(&r->answers[i].text, stop, p->n_stop, 64))
            return false;
    return true;
}

static int check(const struct fake_tokens *t, const struct token_request *q, struct error *err)
{
    if (q->params.grammar_kind.n && !t->script->constrain)
        return error_set(err, STATUS_UNIMPLEMENTED, "constrained output is not available for this model");
    if (q->embed || q->adapter.n)
        return error_set(err, STATUS_UNIMPLEMENTED, "the scripted model has no embeddings and no adapters");
    if (q->n_prompt >= t->script->context)
        return error_set(err, STATUS_INVALID, "the context length is %llu tokens, but the prompt has %zu",
                         (unsigned long long)t->script->context, q->n_prompt);
    return 0;
}

int fake_tokens_submit(struct fake_tokens *t, const struct token_request *q, uint64_t *id, struct error *err)
{
    int rc = check(t, q, err);
    if (rc < 0)
        return rc;
    struct fake_request *r = calloc(1, sizeof *r);
    if (!r)
        return error_set(err, STATUS_NOMEM, "no memory for the request");
    arena_init(&r->arena, 1024, 0);
    r->n_prompt = q->n_prompt;
    r->n_open = q->params.n;
    r->deadline_ns = q->deadline_ns;
    r->on_event = q->on_event;
    r->ctx = q->ctx;
    if (!copy_request(t, r, q)) {
        request_free(r);
        return error_set(err, STATUS_NOMEM, "no memory for the request");
    }
    os_mutex_lock(&t->lock);
    if (t->closing || t->n_waiting >= t->script->max_waiting) {
        rc = error_set(err, STATUS_EXHAUSTED, "the queue is full: %u requests are waiting; try again later", t->n_waiting);
    } else {
        *id = r->id = ++t->next_id;
        t->n_waiting++;
        t->changes++;
        list_push_back(&t->requests, &r->link);
        os_cond_signal(&t->wake);
    }
    os_mutex_unlock(&t->lock);
    if (rc < 0)
        request_free(r);
    return rc;
}

void fake_tokens_cancel(struct fake_tokens *t, uint64_t id)
{
    os_mutex_lock(&t->lock);
    LIST_EACH(l, &t->requests)
    if (LIST_ENTRY(l, struct fake_request, link)->id == id)
        atomic_store(&LIST_ENTRY(l, struct fake_request, link)->cancelled, true);
    t->changes++;
    os_cond_signal(&t->wake);
    os_mutex_unlock(&t->lock);
}

/* ---- events: step thread, no lock ---- */

static struct token_usage usage_of(const struct fake_request *r)
{
    return (struct token_usage){.prompt_tok = (uint32_t)r->n_prompt, .generated_tok = r->n_generated};
}

static void finish(struct fake_tokens *t, struct fake_request *r, struct token_event ev)
{
    os_mutex_lock(&t->lock);
    list_remove(&r->link);
    if (r->running)
        t->n_running--;
    else
        t->n_waiting--;
    os_mutex_unlock(&t->lock);
    ev.usage = usage_of(r);
    r->on_event(r->ctx, &ev);
    request_free(r);
}

static void fail(struct fake_tokens *t, struct fake_request *r, int status, const char *text)
{
    finish(t, r, (struct token_event){.kind = TOKEN_EVENT_FAILED, .status = status, .error = text});
}

static struct str piece_of(const struct fake_tokens *t, const struct fake_request *r, size_t i)
{
    size_t size = t->script->piece_bytes, at = i * size;
    return at >= r->say.n ? (struct str){0} : (struct str){r->say.p + at, MIN_OF(size, r->say.n - at)};
}

/* The rows of the tokens that are given with this event. */
static size_t list_tokens(const struct fake_tokens *t, const struct fake_request *r, struct answer *a, int32_t *ids,
                          struct token_logprob *rows, size_t most)
{
    static const char bytes[2] = "?";
    size_t n = 0, top = (size_t)MAX_OF(r->params.logprobs, 0);
    while (n < most && a->n_listed < a->n_pushed) {
        struct str p = piece_of(t, r, a->n_listed);
        size_t end = (size_t)(p.p - r->say.p) + p.n;
        if (end > a->text.given)
            break;
        ids[n] = (unsigned char)p.p[0];
        rows[n * (1 + top)] = (struct token_logprob){ids[n], -0.25f, p};
        for (size_t k = 0; k < top; k++)
            rows[n * (1 + top) + 1 + k] = (struct token_logprob){(int32_t)k, -0.25f - (float)k, {bytes, 1}};
        n++;
        a->n_listed++;
    }
    return n;
}

static void deliver(const struct fake_tokens *t, const struct fake_request *r, uint32_t choice, struct str text,
                    enum token_finish why, struct str stop)
{
    int32_t ids[32];
    struct token_logprob rows[32 * (1 + TOP_MAX)];
    size_t top = (size_t)MAX_OF(r->params.logprobs, 0);
    size_t n = list_tokens(t, r, &r->answers[choice], ids, rows, COUNT_OF(ids));
    if (!text.n && !n && why == TOKEN_FINISH_NONE)
        return;
    struct token_event ev = {.kind = TOKEN_EVENT_TEXT,
                             .choice = choice,
                             .text = text,
                             .tokens = ids,
                             .n_tokens = n,
                             .logprobs = r->params.logprobs >= 0 ? rows : NULL,
                             .n_logprobs = r->params.logprobs >= 0 ? n * (1 + top) : 0,
                             .finish = why,
                             .stop = stop,
                             .usage = usage_of(r)};
    r->on_event(r->ctx, &ev);
}

static void end_answer(const struct fake_tokens *t, struct fake_request *r, uint32_t i, struct buf *out, enum token_finish why,
                       struct str stop)
{
    r->answers[i].over = true;
    r->n_open--;
    deliver(t, r, i, buf_str(out), why, stop);
}

/* The next piece of one answer. */
static void say_piece(const struct fake_tokens *t, struct fake_request *r, uint32_t i)
{
    struct answer *a = &r->answers[i];
    struct str piece = piece_of(t, r, a->n_pushed);
    struct buf out;
    buf_init(&out);
    r->n_generated++;
    int stop = -1;
    if (piece.n) {
        a->n_pushed++;
        stop = stop_text_push(&a->text, piece, &out);
    }
    bool full = r->params.max_tok && a->n_pushed >= r->params.max_tok;
    if (stop >= 0) {
        end_answer(t, r, i, &out, TOKEN_FINISH_STOP, r->params.stop[stop]);
    } else if (!piece.n || full) { /* the end is a token, too, as in real models */
        stop_text_finish(&a->text, &out);
        end_answer(t, r, i, &out, piece.n ? TOKEN_FINISH_LENGTH : TOKEN_FINISH_STOP, (struct str){0});
    } else {
        deliver(t, r, i, buf_str(&out), TOKEN_FINISH_NONE, (struct str){0});
    }
    buf_release(&out);
}

/* ---- the thread ---- */

/* What is to be done with `r` now. Returns when it wants to be looked at again. */
static uint64_t step_request(struct fake_tokens *t, struct fake_request *r, uint64_t now)
{
    const struct fake_script *s = t->script;
    if (atomic_load(&r->cancelled))
        return finish(t, r, (struct token_event){.kind = TOKEN_EVENT_DONE, .finish = TOKEN_FINISH_CANCELLED}), UINT64_MAX;
    if (now >= r->deadline_ns)
        return fail(t, r, STATUS_DEADLINE, "the request's deadline passed"), UINT64_MAX;
    if (!r->running && t->n_running < s->max_running) {
        os_mutex_lock(&t->lock);
        r->running = true;
        t->n_waiting--;
        t->n_running++;
        os_mutex_unlock(&t->lock);
        r->due_ns = now + s->prefill_us * 1000;
    }
    if (!r->running || now < r->due_ns)
        return MIN_OF(r->deadline_ns, r->running ? r->due_ns : UINT64_MAX);
    if (s->fail_after && r->n_generated >= s->fail_after)
        return fail(t, r, STATUS_INTERNAL, "the model failed as its script says"), UINT64_MAX;
    for (uint32_t i = 0; i < r->params.n; i++)
        if (!r->answers[i].over)
            say_piece(t, r, i);
    if (r->n_open == 0)
        return finish(t, r, (struct token_event){.kind = TOKEN_EVENT_DONE, .finish = TOKEN_FINISH_STOP}), 0;
    r->due_ns += s->piece_us * 1000;
    return r->due_ns;
}

static void run(void *arg)
{
    struct fake_tokens *t = arg;
    os_mutex_lock(&t->lock);
    while (!t->closing) {
        uint64_t now = os_monotonic_ns(), next = UINT64_MAX, changes = t->changes;
        struct list *l = t->requests.next;
        while (l != &t->requests) { /* only this thread removes, so `l` and what follows it stay */
            struct list *after = l->next;
            os_mutex_unlock(&t->lock);
            uint64_t again = step_request(t, LIST_ENTRY(l, struct fake_request, link), now);
            next = MIN_OF(next, again);
            os_mutex_lock(&t->lock);
            l = after;
        }
        atomic_fetch_add(&t->steps, 1);
        if (!t->closing && changes == t->changes && next > os_monotonic_ns())
            os_cond_wait_until(&t->wake, &t->lock, next);
    }
    os_mutex_unlock(&t->lock);
    while (!list_empty(&t->requests))
        fail(t, LIST_ENTRY(list_first(&t->requests), struct fake_request, link), STATUS_UNAVAILABLE,
             "the model is being unloaded");
}

int fake_tokens_create(const struct fake_script *s, struct fake_tokens **out, struct error *err)
{
    struct fake_tokens *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, STATUS_NOMEM, "no memory for a model");
    t->script = s;
    t->facts = (struct engine_text){
        .chat_template = s->chat_template,
        .chat_tools = s->chat_template.n > 0,
        .chat_tool_calls = s->chat_template.n > 0,
        .chat_tool_responses = s->chat_template.n > 0,
        .chat_system = !s->no_system,
        .chat_thinking = s->chat_template.n && memmem(s->chat_template.p, s->chat_template.n, "<think>", 7),
        .defaults = {
            .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n = 1, .best_of = 1, .logprobs = -1}};
    list_init(&t->requests);
    os_mutex_init(&t->lock, RANK_ENGINE);
    os_cond_init(&t->wake);
    int rc = os_thread_start(&t->thread, "fake-step", run, t, err);
    if (rc < 0) {
        os_cond_release(&t->wake);
        os_mutex_release(&t->lock);
        free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void fake_tokens_destroy(struct fake_tokens *t)
{
    if (!t)
        return;
    os_mutex_lock(&t->lock);
    t->closing = true;
    os_cond_signal(&t->wake);
    os_mutex_unlock(&t->lock);
    os_thread_join(&t->thread);
    os_cond_release(&t->wake);
    os_mutex_release(&t->lock);
    free(t);
}

/* ---- text ---- */

int fake_tokens_encode(struct str text, int32_t **tokens, size_t *n, struct error *err)
{
    int32_t *ids = calloc(text.n + 1, sizeof *ids);
    if (!ids)
        return error_set(err, STATUS_NOMEM, "no memory for the tokens");
    for (size_t i = 0; i < text.n; i++)
        ids[i] = (unsigned char)text.p[i];
    *tokens = ids;
    *n = text.n;
    return 0;
}

int fake_tokens_decode(const int32_t *tokens, size_t n, struct buf *out, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] > 255)
            return error_set(err, STATUS_INVALID, "token %zu is %d; the vocabulary has 0 to 255", i, tokens[i]);
        buf_append_c(out, (char)tokens[i]);
    }
    return out->failed ? error_set(err, STATUS_NOMEM, "no memory for the text") : 0;
}

const struct engine_text *fake_tokens_text(const struct fake_tokens *t)
{
    return &t->facts;
}

int fake_tokens_chat(const struct fake_tokens *t, struct str args, size_t max_tok, int32_t **tokens, size_t *n,
                     struct error *err)
{
    struct json j;
    struct str content = {0};
    if (t->script->reveal)
        return fake_tokens_encode(args, tokens, n, err);
    int rc = json_parse(&j, args, NULL, err);
    if (rc < 0)
        return rc;
    rc = json_get_str(yyjson_arr_get_last(yyjson_obj_get(j.root, "messages")), "content", JSON_REQUIRED, &content, NULL, err);
    if (rc == 0 && max_tok && content.n > max_tok)
        rc = error_set(err, STATUS_TOO_LARGE, "more than %zu tokens", max_tok);
    if (rc == 0)
        rc = fake_tokens_encode(content, tokens, n, err);
    json_release(&j);
    return rc;
}

void fake_tokens_progress(const struct fake_tokens *t, uint64_t *steps, bool *busy)
{
    *steps = atomic_load(&t->steps);
    *busy = false; /* its waits are meant */
}
