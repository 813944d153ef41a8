/* draft.c: see draft.h. A slot's KV blocks are its own for good: slot s has the blocks [s * per_slot, (s + 1) * per_slot). */
#include "engine/llm/draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/forward.h"
#include "engine/llm/sampler.h"
#include "os/cgroup.h"

#define STEP_TOK 512u /* computed at most in one go when a slot catches up */

struct slot {
    uint64_t request; /* 0: nobody's */
    uint32_t choice;
    uint64_t round;  /* last claimed in */
    uint32_t n_done; /* tokens in its KV cache */
    int32_t *tokens; /* [n_ctx]: which */
    uint32_t *table;
};

struct draft {
    struct draft_config c;
    struct llm_model *model;
    struct forward *forward;
    struct sampler *sampler;
    size_t kv_bytes, buffer_bytes;
    uint64_t round;
    struct slot *slots;         /* [n_slots] */
    int32_t *tokens;            /* of all slots */
    uint32_t *tables;           /* likewise */
    struct forward_item *items; /* [n_slots] */
    uint32_t *item_job;         /* [n_slots] */
    struct slot **job_slot;     /* [n_slots] */
};

/* ---- life ---- */

static int same_vocabulary(const struct tokenizer *a, const struct tokenizer *b, uint32_t n, uint32_t n_draft,
                           struct error *err)
{
    if (n_draft != n || tokenizer_size(a) != tokenizer_size(b))
        return error_set(err, STATUS_INVALID, "the draft model has %u tokens, the model %u: they must have the same vocabulary",
                         n_draft, n);
    for (size_t i = 0; i < tokenizer_size(a); i++)
        if (!str_eq(tokenizer_bytes(a, (int32_t)i, true), tokenizer_bytes(b, (int32_t)i, true)))
            return error_set(err, STATUS_INVALID,
                             "token %zu of the draft model isn't that of the model: they must have the same vocabulary", i);
    return 0;
}

static int check(const struct draft *d, const struct model_desc *desc, struct error *err)
{
    struct tokenizer *t = NULL;
    if (!desc->h.causal)
        return error_set(err, STATUS_INVALID, "the draft model is an encoder (%s)", desc->h.arch);
    int rc = tokenizer_create(&desc->tokenizer, &t, err);
    if (rc == 0)
        rc = same_vocabulary(d->c.tokenizer, t, d->c.n_vocab, desc->h.n_vocab, err);
    tokenizer_destroy(t);
    return rc;
}

static uint32_t per_slot(const struct draft *d)
{
    return (d->c.n_ctx + KV_TILE_TOK - 1) / KV_TILE_TOK;
}

static int allocate_slots(struct draft *d, struct error *err)
{
    uint32_t n = d->c.n_slots, blocks = per_slot(d);
    d->slots = calloc(n, sizeof *d->slots);
    d->tokens = calloc((size_t)n * d->c.n_ctx, sizeof *d->tokens);
    d->tables = calloc((size_t)n * blocks, sizeof *d->tables);
    d->items = calloc(n, sizeof *d->items);
    d->item_job = calloc(n, sizeof *d->item_job);
    d->job_slot = calloc(n, sizeof *d->job_slot);
    if (!d->slots || !d->tokens || !d->tables || !d->items || !d->item_job || !d->job_slot)
        return error_set(err, STATUS_NOMEM, "no memory for the draft model's slots");
    for (uint32_t i = 0; i < n * blocks; i++)
        d->tables[i] = i;
    for (uint32_t i = 0; i < n; i++) {
        d->slots[i].tokens = d->tokens + (size_t)i * d->c.n_ctx;
        d->slots[i].table = d->tables + (size_t)i * blocks;
    }
    return 0;
}

static int create_forward(struct draft *d, struct error *err)
{
    struct os_memory_limits memory;
    struct forward_config c = {.max_tok = MAX_OF(STEP_TOK, d->c.n_slots),
                               .max_logits = d->c.n_slots,
                               .n_blocks = d->c.n_slots * per_slot(d),
                               .n_ctx = d->c.n_ctx,
                               .kv_type = KV_F16};
    if (!forward_bytes(d->model, team_size(d->c.team), &c, &d->kv_bytes, &d->buffer_bytes))
        return error_set(err, STATUS_INVALID, "the draft model's shapes are too large for a KV cache");
    os_memory_limits_read(&memory);
    if (d->kv_bytes > memory.available_bytes)
        return error_set(
            err, STATUS_NOMEM,
            "the draft model's KV cache (%u sequences of %u tokens) takes %zu bytes, but only %llu are left: lower "
            "draft_sequences or context",
            d->c.n_slots, d->c.n_ctx, d->kv_bytes, (unsigned long long)memory.available_bytes);
    return forward_create(d->model, d->c.team, &c, &d->forward, err);
}

static int open_model(struct draft *d, const struct engine_files *files, int dir_fd, const char *file, struct error *err)
{
    struct model_desc *desc = NULL;
    int rc = model_desc_open_files(files, dir_fd, file, &desc, err);
    if (rc == 0)
        rc = check(d, desc, err);
    if (rc == 0) {
        d->c.n_ctx = MIN_OF(d->c.n_ctx, desc->h.n_ctx_train);
        rc = llm_model_create(desc, d->c.kernels, d->c.team, d->c.log, "draft", &d->model, err);
    }
    if (rc < 0)
        model_desc_release(desc);
    return rc;
}

int draft_create(const struct engine_files *files, int dir_fd, const char *file, const struct draft_config *c,
                 struct draft **out, struct error *err)
{
    struct draft *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(err, STATUS_NOMEM, "no memory for a draft model");
    d->c = *c;
    int rc = open_model(d, files, dir_fd, file, err);
    if (rc == 0)
        rc = allocate_slots(d, err);
    if (rc == 0)
        rc = create_forward(d, err);
    if (rc == 0 && !(d->sampler = sampler_create(c->kernels, c->n_vocab)))
        rc = error_set(err, STATUS_NOMEM, "no memory for a draft model");
    if (rc < 0) {
        draft_destroy(d);
        return rc;
    }
    *out = d;
    return 0;
}

void draft_destroy(struct draft *d)
{
    if (!d)
        return;
    sampler_destroy(d->sampler);
    forward_destroy(d->forward);
    llm_model_destroy(d->model);
    free(d->slots);
    free(d->tokens);
    free(d->tables);
    free(d->items);
    free(d->item_job);
    free(d->job_slot);
    free(d);
}

size_t draft_weight_bytes(const struct draft *d)
{
    return d->model->bytes;
}

size_t draft_scratch_bytes(const struct draft *d)
{
    return d->kv_bytes + d->buffer_bytes;
}

/* ---- slots ---- */

void draft_round(struct draft *d)
{
    d->round++;
}

static struct slot *slot_of(const struct draft *d, uint64_t request, uint32_t choice)
{
    for (uint32_t i = 0; i < d->c.n_slots; i++)
        if (d->slots[i].request == request && d->slots[i].choice == choice)
            return &d->slots[i];
    return NULL;
}

/* The slot that was longest not claimed, unless that was in this round or the one before: a sequence keeps its slot while it runs. */
static struct slot *spare_slot(const struct draft *d)
{
    struct slot *oldest = &d->slots[0];
    for (uint32_t i = 1; i < d->c.n_slots; i++)
        if (d->slots[i].round < oldest->round)
            oldest = &d->slots[i];
    return oldest->round == 0 || oldest->round + 1 < d->round ? oldest : NULL;
}

bool draft_claim(struct draft *d, uint64_t request, uint32_t choice, uint32_t n_tok)
{
    if (n_tok >= d->c.n_ctx)
        return false;
    struct slot *s = slot_of(d, request, choice);
    if (!s) {
        s = spare_slot(d);
        if (!s)
            return false;
        s->request = request;
        s->choice = choice;
    }
    s->round = d->round;
    return true;
}

/* ---- guessing ---- */

/* What the slot holds of the sequence; at least its last token is computed again, or there would be no logits. */
static void keep_prefix(struct slot *s, const struct draft_job *j)
{
    uint32_t n = 0, most = MIN_OF(s->n_done, j->n_tok - 1);
    while (n < most && s->tokens[n] == j->tokens[n])
        n++;
    s->n_done = n;
}

static void put_item(struct draft *d, uint32_t index, uint32_t job, const int32_t *tokens, uint32_t n, bool logits)
{
    struct slot *s = d->job_slot[job];
    memcpy(s->tokens + s->n_done, tokens, n * sizeof *tokens);
    d->items[index] = (struct forward_item){
        .tokens = s->tokens + s->n_done, .first = s->n_done, .n = n, .table = s->table, .n_logits = logits};
    d->item_job[index] = job;
    s->n_done += n;
}

/* The next guess of job `j` from its logits. */
static bool guess(struct draft *d, struct draft_job *j, float *logits)
{
    struct token_params p = *j->params;
    struct sampler_output out;
    struct error err = {0};
    p.logprobs = -1;
    struct sampler_input in = {
        .logits = logits, .params = &p, .seed = j->seed, .choice = j->choice, .position = j->n_tok + j->got};
    if (sampler_next(d->sampler, &in, &out, &err) < 0)
        return false;
    j->out[j->got++] = out.id;
    return true;
}

static void compute(struct draft *d, struct draft_job *jobs, uint32_t n_items)
{
    forward_run(d->forward, d->items, n_items);
    for (uint32_t i = 0, row = 0; i < n_items; i++)
        if (d->items[i].n_logits)
            guess(d, &jobs[d->item_job[i]], forward_logits(d->forward, row++));
}

/* Bring the slots up to their sequences, as far as one step goes; the first guess of those that are there. */
static bool catch_up(struct draft *d, struct draft_job *jobs, uint32_t n)
{
    uint32_t room = STEP_TOK, n_items = 0;
    bool all = true;
    for (uint32_t i = 0; i < n; i++) {
        struct draft_job *j = &jobs[i];
        struct slot *s = d->job_slot[i] = slot_of(d, j->request, j->choice);
        ASSERT(s && j->n_tok < d->c.n_ctx);
        j->got = 0;
        keep_prefix(s, j);
        uint32_t missing = j->n_tok - s->n_done, take = MIN_OF(missing, room);
        room -= take;
        all &= missing <= 2; /* the last guess of the round before may have been right; it wasn't computed here */
        if (take)
            put_item(d, n_items++, i, j->tokens + s->n_done, take, take == missing && j->want > 0);
    }
    compute(d, jobs, n_items);
    return all;
}

bool draft_run(struct draft *d, struct draft_job *jobs, uint32_t n)
{
    ASSERT(n <= d->c.n_slots);
    bool all = catch_up(d, jobs, n);
    for (uint32_t k = 1;; k++) {
        uint32_t n_items = 0;
        for (uint32_t i = 0; i < n; i++)
            if (jobs[i].got == k && jobs[i].want > k && d->job_slot[i]->n_done < d->c.n_ctx)
                put_item(d, n_items++, i, &jobs[i].out[k - 1], 1, true);
        if (!n_items)
            return all;
        compute(d, jobs, n_items);
    }
}
