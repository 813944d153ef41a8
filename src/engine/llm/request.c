/* request.c: from a caller's request to one that the step thread can run without allocating: everything it will need is checked, copied and
 * sized here, on the caller's thread. */
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/status.h"
#include "engine/llm/engine_priv.h"
#include "os/clock.h"
#include "os/random.h"

#define PENDING_FIRST 32

/* ---- checks ---- */

static int check_supported(const struct token_request *in, struct error *err)
{
    const struct token_params *p = &in->params;
    if (p->best_of > p->n)
        return error_set(err, STATUS_UNIMPLEMENTED, "best_of is %u; only best_of equal to n is supported", p->best_of);
    return 0;
}

static int check_stops(const struct token_params *p, struct error *err)
{
    if (p->n_stop > STOP_STRINGS_MAX)
        return error_set(err, STATUS_INVALID, "stop has %zu strings; at most %d are accepted", p->n_stop, STOP_STRINGS_MAX);
    for (size_t i = 0; i < p->n_stop; i++)
        if (!p->stop[i].n || p->stop[i].n > STOP_BYTES_MAX)
            return error_set(err, STATUS_INVALID, "stop[%zu] has %zu bytes; accepted: 1 to %d", i, p->stop[i].n,
                             STOP_BYTES_MAX);
    if (p->n_stop_ids > STOP_STRINGS_MAX)
        return error_set(err, STATUS_INVALID, "stop_token_ids has %zu ids; at most %d are accepted", p->n_stop_ids,
                         STOP_STRINGS_MAX);
    return 0;
}

static int check_prompt(const struct engine_model *m, const struct token_request *in, struct error *err)
{
    if (!in->n_prompt)
        return error_set(err, STATUS_INVALID, "prompt has no tokens");
    if (in->embed && in->n_prompt > m->n_ctx)
        return error_set(err, STATUS_INVALID, "this model's context length is %u tokens, but the text has %zu", m->n_ctx,
                         in->n_prompt);
    if (!in->embed && in->n_prompt >= m->n_ctx)
        return error_set(err, STATUS_INVALID,
                         "this model's context length is %u tokens, but the prompt has %zu: shorten it so that at least one "
                         "token can be generated",
                         m->n_ctx, in->n_prompt);
    for (size_t i = 0; i < in->n_prompt; i++)
        if (in->prompt[i] < 0 || (uint32_t)in->prompt[i] >= m->weights->h->n_vocab)
            return error_set(err, STATUS_INVALID, "prompt token %zu is %d; the vocabulary has 0 to %u", i, in->prompt[i],
                             m->weights->h->n_vocab - 1);
    return 0;
}

static int check(const struct engine_model *m, const struct token_request *in, struct error *err)
{
    if (in->embed != m->embeds)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         m->embeds ? "this model gives embeddings; it generates no text"
                                   : "this model generates text; it gives no embeddings");
    if (in->priority < 0)
        return error_set(err, STATUS_INVALID, "priority is %d; accepted: 0 (most urgent) and above", in->priority);
    if (in->embed && in->n_first && (in->n_first >= in->n_prompt || m->weights->h->n_token_types < 2))
        return error_set(err, STATUS_INVALID, "a pair of texts can't be told apart: the first has %zu of %zu tokens",
                         in->n_first, in->n_prompt);
    if (in->embed)
        return check_prompt(m, in, err);
    int rc = sampler_params_check(&in->params, m->weights->h->n_vocab, err);
    if (rc == 0)
        rc = check_supported(in, err);
    if (rc == 0)
        rc = check_stops(&in->params, err);
    if (rc == 0 && (in->params.n > m->options.max_seqs))
        rc = error_set(err, STATUS_INVALID, "n is %u; this model runs at most %llu sequences at once", in->params.n,
                       (unsigned long long)m->options.max_seqs);
    return rc ? rc : check_prompt(m, in, err);
}

/* ---- copies ---- */

static void *copy(struct arena *a, const void *p, size_t n, size_t size)
{
    void *to = arena_array(a, n + 1, size);
    if (to && n)
        memcpy(to, p, n * size);
    return to;
}

static bool copy_params(struct request *r, const struct token_params *p)
{
    struct str *stop = copy(&r->arena, p->stop, p->n_stop, sizeof *stop);
    r->params = *p;
    r->params.stop = stop;
    r->params.stop_ids = copy(&r->arena, p->stop_ids, p->n_stop_ids, sizeof *p->stop_ids);
    r->params.bias = copy(&r->arena, p->bias, p->n_bias, sizeof *p->bias);
    r->params.grammar_kind = r->params.grammar = (struct str){0};
    if (!stop || !r->params.stop_ids || !r->params.bias)
        return false;
    for (size_t i = 0; i < p->n_stop; i++) {
        const char *text = arena_strdup(&r->arena, p->stop[i]);
        if (!text)
            return false;
        stop[i].p = text;
    }
    return true;
}

static bool collect_end_ids(struct request *r, const struct engine_model *m)
{
    const struct token_params *p = &r->params;
    size_t n_eog = p->ignore_eos ? 0 : m->n_eog;
    r->end_ids = arena_array(&r->arena, n_eog + p->n_stop_ids + 1, sizeof *r->end_ids);
    if (!r->end_ids)
        return false;
    for (size_t i = 0; i < n_eog; i++)
        r->end_ids[r->n_end_ids++] = m->eog[i];
    for (size_t i = 0; i < p->n_stop_ids; i++)
        r->end_ids[r->n_end_ids++] = p->stop_ids[i];
    return true;
}

/* ---- choices ---- */

static size_t row_of(const struct request *r)
{
    return r->params.logprobs >= 0 ? 1 + (size_t)r->params.logprobs : 0;
}

static bool grow_pending(struct choice *c, size_t cap)
{
    struct pending *p = &c->pending;
    size_t row = row_of(c->request);
    int32_t *ids = realloc(p->ids, cap * sizeof *ids);
    p->ids = ids ? ids : p->ids;
    size_t *ends = realloc(p->ends, cap * sizeof *ends);
    p->ends = ends ? ends : p->ends;
    struct token_logprob *lp = row ? realloc(p->logprobs, cap * row * sizeof *lp) : NULL;
    p->logprobs = lp ? lp : p->logprobs;
    if (!ids || !ends || (row && !lp))
        return false;
    p->cap = cap;
    return true;
}

static void fill_row(const struct choice *c, struct token_logprob *row, const struct sampler_output *o)
{
    const struct tokenizer *t = c->request->model->tokenizer;
    row[0] = (struct token_logprob){o->id, o->logprob, tokenizer_bytes(t, o->id, true)};
    for (uint32_t i = 0; i < o->n_top; i++)
        row[1 + i] = (struct token_logprob){o->top_id[i], o->top_logprob[i], tokenizer_bytes(t, o->top_id[i], true)};
    for (size_t i = o->n_top; i + 1 < row_of(c->request); i++) /* a vocabulary smaller than top_logprobs */
        row[1 + i] = (struct token_logprob){TOKEN_NONE, 0, {0}};
}

bool choice_add_pending(struct choice *c, const struct sampler_output *o)
{
    struct pending *p = &c->pending;
    if (p->n == p->cap && !grow_pending(c, p->cap * 2))
        return false;
    if (p->logprobs)
        fill_row(c, p->logprobs + p->n * row_of(c->request), o);
    p->ids[p->n] = o->id;
    p->ends[p->n++] = c->bytes;
    return true;
}

static bool wants_penalties(const struct token_params *p)
{
    return p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
}

/* Separates the prefix cache by tenant and by adapter: what a block holds depends on the latter. */
static uint64_t cache_salt(const struct request *r, const struct token_request *in)
{
    uint64_t seed = r->model->hash_seed, salt = in->cache_salt.n ? hash_bytes(in->cache_salt.p, in->cache_salt.n, seed) : 0;
    uint64_t key[2] = {salt, r->adapter ? r->adapter->id : 0};
    return r->adapter ? hash_bytes(key, sizeof key, seed) : salt;
}

static bool fill_choice(struct request *r, struct choice *c, const struct token_request *in, uint32_t limit)
{
    const struct engine_model *m = r->model;
    c->request = r;
    c->tokens = calloc(limit, sizeof *c->tokens);
    c->table = calloc((limit + KV_BLOCK_TOK - 1) / KV_BLOCK_TOK, sizeof *c->table);
    c->history = wants_penalties(&r->params) ? sampler_history_create(limit) : NULL;
    if (!c->tokens || !c->table || (wants_penalties(&r->params) && !c->history) || !grow_pending(c, PENDING_FIRST) ||
        !stop_text_init(&c->text, r->params.stop, r->params.n_stop, 1024))
        return false;
    memcpy(c->tokens, in->prompt, in->n_prompt * sizeof *c->tokens);
    for (size_t i = 0; c->history && i < in->n_prompt; i++)
        sampler_history_add(c->history, in->prompt[i], true);
    c->seq = (struct step_seq){.tokens = c->tokens,
                               .n_tok = (uint32_t)in->n_prompt,
                               .limit_tok = limit,
                               .table = c->table,
                               .salt = cache_salt(r, in),
                               .tenant = hash_bytes(in->tenant.p, in->tenant.n, m->hash_seed),
                               .priority = (uint32_t)in->priority};
    return true;
}

/* Tokens that a choice may generate. */
static uint32_t most_tok(const struct engine_model *m, const struct token_request *in)
{
    uint32_t room = m->n_ctx - (uint32_t)in->n_prompt;
    return in->params.max_tok && in->params.max_tok < room ? in->params.max_tok : room;
}

/* The grammar that the request asks for, if its shortest output fits; one state for each choice. */
static int constrain(struct request *r, const struct token_request *in, struct error *err)
{
    struct grammar *g = NULL;
    int rc = in->embed ? 0 : llm_constraint_get(r->model, &in->params, &g, err);
    if (rc == 0)
        rc = in->embed ? 0 : llm_constraint_fits(g, most_tok(r->model, in), err);
    for (uint32_t i = 0; g && rc == 0 && i < in->params.n; i++)
        rc = grammar_state_create(g, &r->choices[i].grammar, err);
    grammar_unref(g);
    return rc;
}

static bool fill(struct request *r, const struct token_request *in)
{
    const struct engine_model *m = r->model;
    uint32_t limit = (uint32_t)in->n_prompt + most_tok(m, in);
    if (!copy_params(r, &in->params) || !collect_end_ids(r, m))
        return false;
    r->choices = calloc(in->params.n, sizeof *r->choices);
    for (uint32_t i = 0; r->choices && i < in->params.n; i++) {
        r->choices[i].index = i;
        if (!fill_choice(r, &r->choices[i], in, limit))
            return false;
    }
    return r->choices != NULL;
}

/* One choice, which only holds the text. */
static bool fill_embed(struct request *r, const struct token_request *in)
{
    r->params = (struct token_params){.n = 1, .logprobs = -1};
    r->choices = calloc(1, sizeof *r->choices);
    if (!r->choices)
        return false;
    struct choice *c = &r->choices[0];
    c->request = r;
    c->tokens = calloc(in->n_prompt, sizeof *c->tokens);
    r->pooled = arena_array(&r->arena, r->model->weights->h->n_embd, sizeof *r->pooled);
    if (!c->tokens || !r->pooled)
        return false;
    memcpy(c->tokens, in->prompt, in->n_prompt * sizeof *c->tokens);
    c->seq = (struct step_seq){.tokens = c->tokens,
                               .n_tok = (uint32_t)in->n_prompt,
                               .tenant = hash_bytes(in->tenant.p, in->tenant.n, r->model->hash_seed),
                               .priority = (uint32_t)in->priority};
    return true;
}

int request_create(struct engine_model *m, const struct token_request *in, struct request **out, struct error *err)
{
    int rc = check(m, in, err);
    if (rc < 0)
        return rc;
    struct lora_adapter *adapter = NULL;
    rc = llm_adapter_hold(m, in->adapter, &adapter, err);
    if (rc < 0)
        return rc;
    struct request *r = calloc(1, sizeof *r);
    if (!r) {
        llm_adapter_drop(m, adapter);
        return error_set(err, STATUS_NOMEM, "no memory for the request");
    }
    r->adapter = adapter;
    arena_init(&r->arena, 4096, 0);
    list_init(&r->link);
    r->model = m;
    r->seed = in->params.has_seed ? in->params.seed : os_random_u64();
    r->deadline_ns = in->deadline_ns;
    r->arrived_ns = os_monotonic_ns();
    r->n_prompt = (uint32_t)in->n_prompt;
    r->n_open = in->embed ? 1 : in->params.n;
    r->embed = in->embed;
    r->n_first = in->embed ? (uint32_t)in->n_first : 0;
    r->on_event = in->on_event;
    r->ctx = in->ctx;
    if (!(in->embed ? fill_embed(r, in) : fill(r, in))) {
        request_destroy(r);
        return error_set(err, STATUS_NOMEM, "no memory for the request");
    }
    rc = constrain(r, in, err);
    if (rc < 0) {
        request_destroy(r);
        return rc;
    }
    *out = r;
    return 0;
}

void request_destroy(struct request *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; r->choices && i < r->params.n; i++) {
        struct choice *c = &r->choices[i];
        free(c->tokens);
        free(c->table);
        sampler_history_destroy(c->history);
        grammar_state_destroy(c->grammar);
        stop_text_release(&c->text);
        free(c->pending.ids);
        free(c->pending.ends);
        free(c->pending.logprobs);
    }
    llm_adapter_drop(r->model, r->adapter);
    free(r->choices);
    arena_release(&r->arena);
    free(r);
}

struct token_usage request_usage(const struct request *r)
{
    struct token_usage u = {.prompt_tok = r->n_prompt, .cached_tok = r->choices[0].seq.n_cached_tok};
    for (uint32_t i = 0; i < r->params.n; i++)
        u.generated_tok += r->choices[i].n_generated;
    return u;
}
