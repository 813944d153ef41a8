/* loop.c: the step thread: take new requests, drop those that nobody wants, let the scheduler plan, compute, sample, deliver.
 *
 *   incoming --admit--> [scheduler: waiting -> running <-> preempted] --every choice ended / cancelled / failed--> final event
 *
 * A request of several choices starts with the first alone; when its prompt has been computed the others are forked from it, and all
 * sample their first token from the same logits with their own random numbers. A choice that can't be forked (too many sequences run)
 * is admitted by itself and finds its prompt in the prefix cache. */
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "engine/llm/engine_priv.h"
#include "os/clock.h"

/* ---- ends ---- */

static void deliver(const struct request *r, const struct token_event *ev)
{
    r->on_event(r->ctx, ev);
}

static void leave_scheduler(struct engine_model *m, struct choice *c)
{
    if (c->seq.state != STEP_NEW)
        step_remove(m->step, &c->seq);
}

static void count_end(struct engine_model *m, const struct request *r, const struct token_event *ev)
{
    struct llm_stats *s = &m->stats;
    s->prompt_tok += ev->usage.prompt_tok;
    s->cached_tok += ev->usage.cached_tok;
    s->generated_tok += ev->usage.generated_tok;
    if (ev->kind == TOKEN_EVENT_FAILED)
        s->failed++;
    else
        s->finished[ev->finish]++;
    llm_observe_seconds(&s->e2e_s, os_monotonic_ns() - r->arrived_ns);
}

void llm_finish(struct engine_model *m, struct request *r, struct token_event ev)
{
    for (uint32_t i = 0; i < r->params.n; i++)
        leave_scheduler(m, &r->choices[i]);
    ev.usage = request_usage(r);
    os_mutex_lock(&m->lock);
    list_remove(&r->link);
    m->n_unstarted -= r->started_ns == 0;
    count_end(m, r, &ev);
    if (!m->embeds) { /* whoever gets the event sees the blocks given back */
        step_stats(m->step, &m->stats.step);
        blocks_stats(m->blocks, &m->stats.blocks);
    }
    os_mutex_unlock(&m->lock);
    deliver(r, &ev);
    request_destroy(r);
    atomic_fetch_sub_explicit(&m->n_requests, 1, memory_order_release);
}

static void fail(struct engine_model *m, struct request *r, int status, const char *text)
{
    llm_finish(m, r, (struct token_event){.kind = TOKEN_EVENT_FAILED, .status = status, .error = text});
}

static void cancel(struct engine_model *m, struct request *r)
{
    llm_finish(m, r, (struct token_event){.kind = TOKEN_EVENT_DONE, .finish = TOKEN_FINISH_CANCELLED});
}

/* Requests that were cancelled or are late. Only this thread changes `live`, so it may be read without the lock. */
static void sweep(struct engine_model *m, uint64_t now)
{
    LIST_EACH(l, &m->live)
    {
        struct request *r = LIST_ENTRY(l, struct request, link);
        if (atomic_load_explicit(&r->cancelled, memory_order_relaxed))
            cancel(m, r);
        else if (now >= r->deadline_ns)
            fail(m, r, STATUS_DEADLINE, "the request's deadline passed");
    }
}

/* ---- new requests ---- */

static void admit(struct engine_model *m, struct list *fresh)
{
    LIST_EACH(l, fresh)
    {
        struct request *r = LIST_ENTRY(l, struct request, link);
        struct error err = {0};
        os_mutex_lock(&m->lock);
        list_remove(&r->link);
        list_push_back(&m->live, &r->link);
        os_mutex_unlock(&m->lock);
        if (!m->embeds && step_admit(m->step, &r->choices[0].seq, &err) < 0)
            fail(m, r, err.code, err.text);
    }
}

/* Wait for work. False: the model is being closed. */
static bool take_incoming(struct engine_model *m)
{
    struct list fresh;
    list_init(&fresh);
    os_mutex_lock(&m->lock);
    while (!m->closing && list_empty(&m->incoming) && list_empty(&m->live))
        os_cond_wait(&m->wake, &m->lock);
    bool open = !m->closing;
    for (struct list *l; (l = list_pop_front(&m->incoming)) != NULL;)
        list_push_back(&fresh, l);
    os_mutex_unlock(&m->lock);
    admit(m, &fresh);
    return open;
}

static void close_all(struct engine_model *m)
{
    LIST_EACH(l, &m->live)
    fail(m, LIST_ENTRY(l, struct request, link), STATUS_UNAVAILABLE, "the model is being unloaded");
}

/* ---- text ---- */

/* Deliver what `text` was given since; tokens whose last byte is out go along. `finish` ends the choice; tokens that were not given
 * by then belong to a stop string. */
static void deliver_text(struct engine_model *m, struct choice *c, enum token_finish why, struct str stop)
{
    struct pending *p = &c->pending;
    size_t n = 0, row = p->logprobs ? 1 + (size_t)c->request->params.logprobs : 0;
    while (n < p->n && p->ends[n] <= c->text.given)
        n++;
    if (!n && !m->text.n && why == TOKEN_FINISH_NONE)
        return;
    struct token_event ev = {.kind = TOKEN_EVENT_TEXT,
                             .choice = c->index,
                             .text = buf_str(&m->text),
                             .tokens = p->ids,
                             .n_tokens = n,
                             .logprobs = p->logprobs,
                             .n_logprobs = n * row,
                             .finish = why,
                             .stop = stop,
                             .usage = request_usage(c->request)};
    deliver(c->request, &ev);
    p->n -= n;
    memmove(p->ids, p->ids + n, p->n * sizeof *p->ids);
    memmove(p->ends, p->ends + n, p->n * sizeof *p->ends);
    if (row)
        memmove(p->logprobs, p->logprobs + n * row, p->n * row * sizeof *p->logprobs);
}

/* False: it was the last one, the request is gone. */
static bool end_choice(struct engine_model *m, struct choice *c, enum token_finish why, struct str stop)
{
    struct request *r = c->request;
    leave_scheduler(m, c);
    deliver_text(m, c, why, stop);
    if (--r->n_open > 0)
        return true;
    llm_finish(m, r, (struct token_event){.kind = TOKEN_EVENT_DONE, .choice = c->index, .finish = why, .stop = stop});
    return false;
}

static bool is_end_id(const struct request *r, int32_t id)
{
    for (size_t i = 0; i < r->n_end_ids; i++)
        if (r->end_ids[i] == id)
            return true;
    return false;
}

static void observe_token(struct engine_model *m, struct choice *c)
{
    uint64_t now = os_monotonic_ns();
    os_mutex_lock(&m->lock);
    if (c->last_token_ns)
        llm_observe_seconds(&m->stats.itl_s, now - c->last_token_ns);
    else if (c->index == 0)
        llm_observe_seconds(&m->stats.ttft_s, now - c->request->arrived_ns);
    os_mutex_unlock(&m->lock);
    c->last_token_ns = now;
}

/* A new token of `c`. False: the request is gone. */
static bool accept_token(struct engine_model *m, struct choice *c, const struct sampler_output *o)
{
    struct request *r = c->request;
    c->n_generated++;
    observe_token(m, c);
    buf_clear(&m->text);
    if (is_end_id(r, o->id)) {
        stop_text_finish(&c->text, &m->text);
        return end_choice(m, c, TOKEN_FINISH_STOP, (struct str){0});
    }
    if (c->grammar && !grammar_accept(c->grammar, o->id)) {
        fail(m, r, STATUS_INTERNAL, "the constraint could not follow the chosen token: it is too ambiguous");
        return false;
    }
    c->tokens[c->seq.n_tok++] = o->id;
    if (c->history)
        sampler_history_add(c->history, o->id, false);
    struct str bytes = tokenizer_bytes(m->tokenizer, o->id, r->params.control_text);
    c->bytes += bytes.n;
    bool kept = choice_add_pending(c, o);
    int stop = stop_text_push(&c->text, bytes, &m->text);
    if (!kept || c->text.held.failed || m->text.failed) {
        fail(m, r, STATUS_NOMEM, "no memory for the request's text");
        return false;
    }
    if (stop >= 0)
        return end_choice(m, c, TOKEN_FINISH_STOP, r->params.stop[stop]);
    bool complete = c->grammar && grammar_must_end(c->grammar); /* nothing but the end could follow: it need not be generated */
    if (complete || c->seq.n_tok >= c->seq.limit_tok) {
        stop_text_finish(&c->text, &m->text);
        return end_choice(m, c, complete ? TOKEN_FINISH_STOP : TOKEN_FINISH_LENGTH, (struct str){0});
    }
    deliver_text(m, c, TOKEN_FINISH_NONE, (struct str){0});
    return true;
}

/* ---- sampling: each of these returns false when the request is gone ---- */

/* The next token of `c` from `logits`, which are overwritten. */
static bool sample(struct engine_model *m, struct choice *c, float *logits)
{
    struct request *r = c->request;
    struct error err = {0};
    struct sampler_output out;
    struct sampler_constraint constraint = {llm_constraint_allows, llm_constraint_mask, c->grammar};
    struct sampler_input in = {.logits = logits,
                               .params = &r->params,
                               .history = c->history,
                               .constraint = c->grammar ? &constraint : NULL,
                               .seed = r->seed,
                               .choice = c->index,
                               .position = c->seq.n_tok,
                               .forbid_end = c->n_generated < r->params.min_tok,
                               .end_ids = r->end_ids,
                               .n_end_ids = r->n_end_ids};
    int rc = sampler_next(m->sampler, &in, &out, &err);
    if (rc == 0)
        return accept_token(m, c, &out);
    fail(m, r, rc, err.text);
    return false;
}

/* Start the other choices behind the first one's computed prompt. */
static bool fork_choices(struct engine_model *m, struct request *r)
{
    r->forked = true;
    for (uint32_t i = 1; i < r->params.n; i++) {
        struct error err = {0};
        if (step_fork(m->step, &r->choices[0].seq, &r->choices[i].seq, &err) == 0)
            continue;
        if (step_admit(m->step, &r->choices[i].seq, &err) < 0) {
            fail(m, r, err.code, err.text);
            return false;
        }
    }
    return true;
}

/* The first distribution of a request with several choices: each that was forked takes its token from a copy. One that had to be
 * admitted by itself samples when it has computed its prompt. */
static bool sample_forked(struct engine_model *m, struct request *r, float *logits)
{
    size_t bytes = (size_t)m->weights->h->n_vocab * sizeof *logits;
    uint32_t n = r->params.n;
    memcpy(m->logits_copy, logits, bytes);
    bool alive = fork_choices(m, r);
    for (uint32_t i = 0; alive && i < n; i++) {
        if (r->choices[i].seq.state != STEP_RUNNING)
            continue;
        memcpy(logits, m->logits_copy, bytes);
        alive = sample(m, &r->choices[i], logits);
    }
    return alive;
}

static bool sample_item(struct engine_model *m, struct choice *c, float *logits)
{
    if (c->index == 0 && !c->request->forked && c->request->params.n > 1)
        return sample_forked(m, c->request, logits);
    return sample(m, c, logits);
}

/* ---- the step ---- */

void llm_start_request(struct engine_model *m, struct request *r, uint64_t now)
{
    r->started_ns = now;
    os_mutex_lock(&m->lock);
    m->n_unstarted--;
    llm_observe_seconds(&m->stats.queue_s, now - r->arrived_ns);
    os_mutex_unlock(&m->lock);
}

static uint32_t lay_items(struct engine_model *m, const struct step_plan *plan, uint64_t now)
{
    for (size_t i = 0; i < plan->n_copies; i++)
        forward_copy_block(m->forward, plan->copies[i].from, plan->copies[i].to);
    for (size_t i = 0; i < plan->n_items; i++) {
        const struct step_item *it = &plan->items[i];
        struct choice *c = CONTAINER_OF(it->seq, struct choice, seq);
        if (!c->request->started_ns)
            llm_start_request(m, c->request, now);
        m->item_choices[i] = c;
        m->item_requests[i] = c->request;
        m->item_logits[i] = it->last ? 1 + it->n_draft : 0;
        m->items[i] = (struct forward_item){.tokens = it->seq->tokens + it->first,
                                            .first = it->first,
                                            .n = it->n,
                                            .table = it->seq->table,
                                            .n_logits = m->item_logits[i],
                                            .lora = c->request->adapter,
                                            .cancelled = &c->request->cancelled};
    }
    return (uint32_t)plan->n_items;
}

/* When a request ends, other items of the step may be its choices (n > 1): their memory is gone, so they are found by pointer alone. */
static void forget_items_of(struct engine_model *m, const struct request *r, uint32_t from, uint32_t n)
{
    for (uint32_t k = from; k < n; k++)
        if (m->item_requests[k] == r)
            m->item_choices[k] = NULL;
}

/* The token behind what is known, and one more behind each guess that it proves right. */
static bool sample_guessed(struct engine_model *m, struct choice *c, uint32_t n_draft, uint32_t row)
{
    uint32_t right = 0;
    for (;; right++) {
        int32_t guess = right < n_draft ? c->tokens[c->seq.n_tok] : TOKEN_NONE;
        if (!sample_item(m, c, forward_logits(m->forward, row + right)))
            return false;
        if (c->seq.state != STEP_RUNNING || right == n_draft || c->tokens[c->seq.n_tok - 1] != guess)
            break;
        step_accept(m->step, &c->seq, 1);
    }
    if (n_draft)
        llm_speculation_outcome(m, c, n_draft, right);
    return true;
}

static void sample_all(struct engine_model *m, uint32_t n)
{
    for (uint32_t i = 0, row = 0; i < n; row += m->item_logits[i++]) {
        struct choice *c = m->item_choices[i];
        if (m->item_logits[i] && c && !sample_guessed(m, c, m->item_logits[i] - 1, row))
            forget_items_of(m, m->item_requests[i], i + 1, n);
    }
}

static void publish(struct engine_model *m, uint32_t n_tok)
{
    os_mutex_lock(&m->lock);
    step_stats(m->step, &m->stats.step);
    blocks_stats(m->blocks, &m->stats.blocks);
    m->stats.speculated = m->speculated;
    if (n_tok)
        llm_observe_tokens(&m->stats.step_tok, n_tok);
    os_mutex_unlock(&m->lock);
    atomic_fetch_add_explicit(&m->steps, 1, memory_order_release);
}

static void run_step(struct engine_model *m)
{
    llm_speculate(m);
    uint64_t begin = os_monotonic_ns();
    const struct step_plan *plan = step_next(m->step);
    uint32_t n_tok = plan->n_tok, n = lay_items(m, plan, begin);
    if (!n)
        return;
    bool whole = forward_run(m->forward, m->items, n);
    if (!whole) /* everybody in it was cancelled: nothing of it counts */
        sweep(m, 0);
    uint64_t took = os_monotonic_ns() - begin;
    if (whole)
        llm_speculation_cost(m, plan, took);
    step_done(m->step, took);
    if (whole)
        sample_all(m, n);
    publish(m, whole ? n_tok : 0);
}

void llm_loop(void *engine_model)
{
    struct engine_model *m = engine_model;
    while (take_incoming(m)) {
        sweep(m, os_monotonic_ns());
        if (m->embeds)
            llm_encoder_step(m);
        else
            run_step(m);
    }
    close_all(m);
}
