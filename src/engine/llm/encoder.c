/* encoder.c: the step of a model that gives embeddings: an encoder of BERT's kind, or a decoder whose file names a pooling.
 *
 * Nothing is kept between steps: no cache of prefixes, no sequence that goes on. So there is no scheduler, only a choice of requests: by priority,
 * then a text a tenant in turn, each tenant's by arrival, as many as fit the step's tokens and the pool's blocks; block tables are stretches of 0, 1, 2, ... An encoder's tokens
 * see each other in both directions, so a text is computed in one piece. A decoder's text that is longer than a step is computed alone, piece
 * by piece; others wait for it.
 *
 * A text's embedding does not depend on what shares its step: the forward pass promises that for the hidden states, and pooling adds them up in the
 * order of the tokens. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "engine/llm/engine_priv.h"
#include "os/clock.h"

static uint32_t blocks_for(uint32_t n_tok)
{
    return (n_tok + KV_BLOCK_TOK - 1) / KV_BLOCK_TOK;
}

uint64_t llm_encoder_blocks(const struct llm_options *o, uint64_t n_ctx)
{
    uint64_t one = (n_ctx + KV_BLOCK_TOK - 1) / KV_BLOCK_TOK;
    return MAX_OF(one, o->max_step_tok / KV_BLOCK_TOK + o->max_seqs);
}

/* ---- choosing ---- */

struct batch {
    uint32_t n, n_tok, n_blocks;
};

/* False: it doesn't fit any more. */
static bool add(struct engine_model *m, struct batch *b, struct request *r)
{
    uint32_t n = r->n_prompt, max_tok = m->forward_config.max_tok, first = 0;
    if (b->n && (n > max_tok - b->n_tok || blocks_for(n) > m->n_blocks - b->n_blocks))
        return false;
    m->item_requests[b->n] = r;
    m->items[b->n] = (struct forward_item){.tokens = r->choices[0].tokens,
                                           .first = first,
                                           .n = MIN_OF(n, max_tok),
                                           .table = m->block_ids + b->n_blocks,
                                           .n_first = r->n_first,
                                           .cancelled = &r->cancelled};
    b->n++;
    b->n_tok += MIN_OF(n, max_tok);
    b->n_blocks += blocks_for(n);
    return true;
}

/* The lowest priority value of live requests that is at least `from`; false: there is none. */
static bool next_priority(const struct engine_model *m, uint32_t from, uint32_t *out)
{
    bool found = false;
    LIST_EACH(l, (struct list *)&m->live)
    {
        uint32_t p = LIST_ENTRY(l, struct request, link)->choices[0].seq.priority;
        if (p >= from && (!found || p < *out)) {
            *out = p;
            found = true;
        }
    }
    return found;
}

#define TENANTS_A_ROUND 64

/* Tenants that have had their text of a round. */
struct round {
    uint64_t tenant[TENANTS_A_ROUND];
    size_t n;
};

/* False: it has had one. With more tenants than are remembered the rest goes by arrival. */
static bool take_turn(struct round *t, uint64_t tenant)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->tenant[i] == tenant)
            return false;
    if (t->n < TENANTS_A_ROUND)
        t->tenant[t->n++] = tenant;
    return true;
}

static bool several_tenants(const struct engine_model *m, uint32_t priority)
{
    struct round t = {0};
    LIST_EACH(l, (struct list *)&m->live)
    {
        const struct step_seq *s = &LIST_ENTRY(l, struct request, link)->choices[0].seq;
        if (s->priority == priority && take_turn(&t, s->tenant) && t.n > 1)
            return true;
    }
    return false;
}

/* One pass over the waiting of a priority; `turns`: at most one text a tenant. False: the step is full. *added: something was. */
static bool pick(struct engine_model *m, struct batch *b, uint32_t priority, bool turns, bool *added)
{
    struct round t = {0};
    *added = false;
    LIST_EACH(l, &m->live)
    {
        struct request *r = LIST_ENTRY(l, struct request, link);
        const struct step_seq *s = &r->choices[0].seq;
        if (r->picked || s->priority != priority || (turns && !take_turn(&t, s->tenant)))
            continue;
        if (b->n == m->options.max_seqs || !add(m, b, r))
            return false;
        *added = r->picked = true;
    }
    return true;
}

static struct batch choose(struct engine_model *m)
{
    struct batch b = {0};
    uint32_t priority = 0;
    bool room = true, added;
    for (uint32_t from = 0; room && next_priority(m, from, &priority); from = priority + 1) {
        bool turns = several_tenants(m, priority);
        do
            room = pick(m, &b, priority, turns, &added);
        while (turns && room && added);
        if (priority == UINT32_MAX)
            break;
    }
    return b;
}

/* ---- pooling ---- */

/* Take in hidden states of columns [col, col + n), the text's tokens [first, first + n). */
static void pool(const struct engine_model *m, struct request *r, uint32_t col, uint32_t first, uint32_t n)
{
    const struct llm_hparams *h = m->weights->h;
    size_t bytes = h->n_embd * sizeof *r->pooled;
    switch (h->pooling) {
    case LLM_POOL_MEAN:
        for (uint32_t i = 0; i < n; i++)
            m->weights->k->add(r->pooled, forward_hidden(m->forward, col + i), h->n_embd);
        break;
    case LLM_POOL_CLS:
    case LLM_POOL_RANK:
        if (first == 0)
            memcpy(r->pooled, forward_hidden(m->forward, col), bytes);
        break;
    case LLM_POOL_LAST:
        memcpy(r->pooled, forward_hidden(m->forward, col + n - 1), bytes);
        break;
    case LLM_POOL_NONE:
        ASSERT(!"a model without pooling does not embed");
    }
}

/* classifier(tanh(pooler(x))) of the first token's hidden state, which is in pooled[]; the score is left in pooled[0]. */
static void rank(const struct llm_model *w, float *pooled)
{
    size_t n = w->h->n_embd;
    double score = (double)w->classifier_b[0];
    for (size_t i = 0; i < n; i++)
        score += (double)w->classifier[i] * tanh((double)(w->k->dot(w->pooler + i * n, pooled, n) + w->pooler_b[i]));
    pooled[0] = (float)score;
}

static void finish_vector(const struct engine_model *m, const struct request *r)
{
    const struct kernels *k = m->weights->k;
    const struct llm_hparams *h = m->weights->h;
    if (h->pooling == LLM_POOL_RANK) {
        rank(m->weights, r->pooled);
        return;
    }
    if (h->pooling == LLM_POOL_MEAN)
        k->scale(r->pooled, h->n_embd, 1.0f / (float)r->n_prompt);
    float norm = h->embd_normalize ? sqrtf(k->dot(r->pooled, r->pooled, h->n_embd)) : 0;
    if (norm > 0)
        k->scale(r->pooled, h->n_embd, 1.0f / norm);
}

/* ---- the step ---- */

static void publish(struct engine_model *m, uint32_t n_tok, uint32_t running, uint32_t n_blocks)
{
    os_mutex_lock(&m->lock);
    m->stats.step.running = running;
    m->stats.step.waiting = m->n_unstarted;
    m->stats.step.steps += n_tok > 0;
    m->stats.step.tokens += n_tok;
    m->stats.blocks.used = n_blocks;
    if (n_tok)
        llm_observe_tokens(&m->stats.step_tok, n_tok);
    os_mutex_unlock(&m->lock);
    if (n_tok)
        atomic_fetch_add_explicit(&m->steps, 1, memory_order_release);
}

/* Compute what is laid out, and the rest of a text that is longer than a step. False: nobody wants it any more. */
static bool compute(struct engine_model *m, struct batch *b)
{
    forward_keep_hidden(m->forward, true);
    for (;;) {
        struct forward_item *it = &m->items[0];
        if (!forward_run(m->forward, m->items, b->n))
            return false;
        for (uint32_t i = 0, col = 0; i < b->n; col += m->items[i++].n)
            pool(m, m->item_requests[i], col, m->items[i].first, m->items[i].n);
        publish(m, b->n_tok, b->n, b->n_blocks);
        uint32_t done = it->first + it->n, left = m->item_requests[0]->n_prompt - done;
        if (!left)
            return true;
        it->tokens += it->n;
        it->first = done;
        b->n_tok = it->n = MIN_OF(left, m->forward_config.max_tok);
    }
}

void llm_encoder_step(struct engine_model *m)
{
    uint64_t now = os_monotonic_ns();
    struct batch b = choose(m);
    if (!b.n)
        return;
    for (uint32_t i = 0; i < b.n; i++)
        llm_start_request(m, m->item_requests[i], now);
    bool whole = compute(m, &b);
    for (uint32_t i = 0; i < b.n; i++) {
        struct request *r = m->item_requests[i];
        bool cancelled = !whole || atomic_load_explicit(&r->cancelled, memory_order_relaxed);
        if (!cancelled)
            finish_vector(m, r);
        llm_finish(m, r,
                   (struct token_event){.kind = TOKEN_EVENT_DONE,
                                        .finish = cancelled ? TOKEN_FINISH_CANCELLED : TOKEN_FINISH_STOP,
                                        .embedding = cancelled ? NULL : r->pooled,
                                        .n_embedding = cancelled ? 0 : m->contract.embedding_dims});
    }
    publish(m, 0, 0, 0);
}
