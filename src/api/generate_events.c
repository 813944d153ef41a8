/* generate_events.c: from the engine's step thread to the request's I/O thread: one allocation and one post an event, never a wait. */
#include <stdlib.h>
#include <string.h>

#include "api/generate_priv.h"
#include "base/size.h"
#include "base/status.h"

static void arrive(struct loop_task *t)
{
    struct gen_event *ev = CONTAINER_OF(t, struct gen_event, task);
    struct gen_call *c = ev->prompt->call;
    bool own = ev != &ev->prompt->last;
    generate__take(c, ev); /* the call may be gone now, and with it the last event of its prompts */
    if (own)
        free(ev);
}

static void post(struct gen_prompt *p, struct gen_event *out)
{
    out->task.run = arrive;
    loop_post(p->call->request->loop, &out->task);
}

static size_t text_bytes(const struct token_event *ev)
{
    size_t n = ev->text.n + ev->stop.n;
    for (size_t i = 0; i < ev->n_logprobs; i++)
        n += ev->logprobs[i].bytes.n;
    return n;
}

static struct str copy_text(char **at, struct str s)
{
    char *p = *at;
    if (s.n)
        memcpy(p, s.p, s.n);
    *at += s.n;
    return (struct str){p, s.n};
}

/* Everything the event borrows, behind it in one block: log-probabilities, tokens, text. */
static struct gen_event *copy_event(const struct token_event *ev)
{
    size_t lp = ev->n_logprobs * sizeof *ev->logprobs, tok = ev->n_tokens * sizeof *ev->tokens;
    struct gen_event *out = malloc(sizeof *out + lp + tok + text_bytes(ev));
    if (!out)
        return NULL;
    struct token_logprob *logprobs = (struct token_logprob *)(out + 1);
    int32_t *tokens = (int32_t *)(void *)((char *)logprobs + lp);
    char *at = (char *)tokens + tok;
    *out = (struct gen_event){.kind = ev->kind, .finish = ev->finish, .usage = ev->usage};
    out->text = copy_text(&at, ev->text);
    out->stop = copy_text(&at, ev->stop);
    if (tok)
        memcpy(tokens, ev->tokens, tok);
    for (size_t i = 0; i < ev->n_logprobs; i++) {
        logprobs[i] = ev->logprobs[i];
        logprobs[i].bytes = copy_text(&at, ev->logprobs[i].bytes);
    }
    out->tokens = tokens;
    out->n_tokens = ev->n_tokens;
    out->logprobs = lp ? logprobs : NULL;
    out->n_logprobs = ev->n_logprobs;
    return out;
}

static void keep_embedding(struct gen_prompt *p, const struct token_event *ev)
{
    if (!ev->n_embedding)
        return;
    p->embedding = calloc(ev->n_embedding, sizeof *p->embedding);
    if (!p->embedding) {
        atomic_store_explicit(&p->lost, true, memory_order_relaxed);
        return;
    }
    memcpy(p->embedding, ev->embedding, ev->n_embedding * sizeof *p->embedding);
    p->n_embedding = ev->n_embedding;
}

static void post_final(struct gen_prompt *p, const struct token_event *ev)
{
    p->last = (struct gen_event){.kind = ev->kind, .prompt = p, .finish = ev->finish};
    p->usage = ev->usage;
    keep_embedding(p, ev);
    if (ev->kind == TOKEN_EVENT_FAILED) {
        p->status = ev->status < 0 ? ev->status : STATUS_INTERNAL;
        snprintf(p->error, sizeof p->error, "%s", ev->error ? ev->error : "the model failed");
    } else if (atomic_load_explicit(&p->lost, memory_order_relaxed)) {
        p->last.kind = TOKEN_EVENT_FAILED;
        p->status = STATUS_NOMEM;
        snprintf(p->error, sizeof p->error, "out of memory for this answer; try again later");
    }
    post(p, &p->last);
}

void generate__on_event(void *ctx, const struct token_event *ev)
{
    struct gen_prompt *p = ctx;
    if (ev->kind != TOKEN_EVENT_TEXT) {
        post_final(p, ev);
        return;
    }
    struct gen_event *out = copy_event(ev);
    if (!out) {
        atomic_store_explicit(&p->lost, true, memory_order_relaxed);
        return;
    }
    out->prompt = p;
    out->choice = p->index * p->call->params.n + ev->choice;
    post(p, out);
}
