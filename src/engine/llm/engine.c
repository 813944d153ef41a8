/* engine.c: the slots of engine_ops: loading a model and sizing what it runs in; passing requests to the step thread.
 *
 * Memory. The weights are packed into one mapping about as large as the file; the file's own pages are read once and dropped. The KV
 * pool is a budget: kv_cache_bytes, or kv_cache_share of the memory that is left after weights and buffers, never more than all
 * sequences at their longest could use. It is taken from the kernel page by page as blocks are used for the first time. The context
 * is the model's or what the pool holds, whichever is less, and is logged at load. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/engine_priv.h"
#include "os/cgroup.h"
#include "os/random.h"

#define WAITING_DEFAULT       1024
#define EMBED_WAITING_DEFAULT 8192 /* texts; one HTTP request may bring 2048 */

/* ---- sizes ---- */

static struct forward_config config_for(const struct llm_options *o, bool embeds, uint32_t n_ctx, uint32_t n_blocks)
{
    return (struct forward_config){.max_tok = (uint32_t)o->max_step_tok,
                                   .max_logits = embeds ? 0 : (uint32_t)o->max_seqs + (o->speculation ? SPEC_COLS_MAX : 0),
                                   .hidden = embeds,
                                   .n_blocks = n_blocks,
                                   .n_ctx = n_ctx,
                                   .kv_type = o->kv_type};
}

/* Blocks of the pool and the context it allows. */
static int size_pool(struct engine_model *m, struct error *err)
{
    const struct llm_hparams *h = m->weights->h;
    const struct llm_options *o = &m->options;
    size_t kv, block = forward_block_bytes(h, o->kv_type);
    uint64_t want = o->context_tok ? o->context_tok : h->n_ctx_train;
    want = MIN_OF(want, h->n_ctx_train);
    struct forward_config one = config_for(o, m->embeds, (uint32_t)want, 1);
    if (!block || !forward_bytes(m->weights, team_size(m->team), &one, &kv, &m->buffer_bytes))
        return error_set(err, STATUS_INVALID, "the model's shapes are too large for a KV cache");
    struct os_memory_limits memory;
    os_memory_limits_read(&memory);
    uint64_t left = memory.available_bytes > m->buffer_bytes ? memory.available_bytes - m->buffer_bytes : 0;
    uint64_t budget = o->kv_cache_bytes ? o->kv_cache_bytes : (uint64_t)((double)left * o->kv_cache_share);
    if (budget > left)
        return error_set(err, STATUS_NOMEM,
                         "a KV cache of %llu bytes is asked for, but only %llu are left after weights and buffers",
                         (unsigned long long)budget, (unsigned long long)left);
    uint64_t most = m->embeds ? llm_encoder_blocks(o, want) : o->max_seqs * ((want + KV_BLOCK_TOK - 1) / KV_BLOCK_TOK);
    uint64_t blocks = MIN_OF(MIN_OF(budget / block, most), (uint64_t)UINT32_MAX / 2);
    if (blocks < 2)
        return error_set(err, STATUS_NOMEM, "the KV cache's budget is %llu bytes, but one block of %d tokens takes %zu",
                         (unsigned long long)budget, KV_BLOCK_TOK, block);
    m->n_blocks = (uint32_t)blocks;
    m->n_ctx = (uint32_t)MIN_OF(want, blocks * KV_BLOCK_TOK);
    m->kv_bytes = block * m->n_blocks;
    return 0;
}

/* ---- parts ---- */

static int collect_eog(struct engine_model *m, struct error *err)
{
    size_t n = tokenizer_size(m->tokenizer);
    m->eog = calloc(n + 1, sizeof *m->eog);
    if (!m->eog)
        return error_set(err, STATUS_NOMEM, "no memory for the model");
    for (size_t i = 0; i < n && i < m->weights->h->n_vocab; i++)
        if (tokenizer_is_eog(m->tokenizer, (int32_t)i))
            m->eog[m->n_eog++] = (int32_t)i;
    return 0;
}

/* A model that embeds needs no scheduler: a step takes whole requests. */
static int create_encoder(struct engine_model *m, struct error *err)
{
    m->items = calloc((size_t)m->options.max_seqs, sizeof *m->items);
    m->item_requests = calloc((size_t)m->options.max_seqs, sizeof *m->item_requests);
    m->block_ids = calloc(m->n_blocks, sizeof *m->block_ids);
    if (!m->items || !m->item_requests || !m->block_ids)
        return error_set(err, STATUS_NOMEM, "no memory for the model's steps");
    for (uint32_t i = 0; i < m->n_blocks; i++)
        m->block_ids[i] = i;
    m->stats.blocks.total = m->n_blocks;
    return 0;
}

static int create_scheduler(struct engine_model *m, struct error *err)
{
    struct step_config c;
    uint32_t seqs = (uint32_t)m->options.max_seqs;
    step_config_default(&c);
    c.max_seqs = seqs;
    c.max_waiting = UINT32_MAX; /* submit bounds the requests; what runs already must be able to come back */
    c.max_tok = (uint32_t)m->options.max_step_tok;
    c.target_step_ns = m->options.target_step_ms * 1000000;
    c.short_prompt_ns = m->options.short_prompt_ms * 1000000;
    m->blocks = blocks_create(m->n_blocks, m->hash_seed);
    m->step = m->blocks ? step_create(&c, m->blocks) : NULL;
    m->sampler = sampler_create(m->weights->k, m->weights->h->n_vocab);
    m->items = calloc(seqs, sizeof *m->items);
    m->item_choices = calloc(seqs, sizeof *m->item_choices);
    m->item_requests = calloc(seqs, sizeof *m->item_requests);
    m->item_logits = calloc(seqs, sizeof *m->item_logits);
    m->wants = calloc(SPEC_COLS_MAX, sizeof *m->wants);
    m->guessers = calloc(SPEC_COLS_MAX, sizeof *m->guessers);
    m->draft_jobs = calloc(SPEC_COLS_MAX, sizeof *m->draft_jobs);
    spec_gate_init(&m->gate);
    m->logits_copy = calloc(m->weights->h->n_vocab, sizeof *m->logits_copy);
    buf_init(&m->text);
    if (!m->step || !m->sampler || !m->items || !m->item_choices || !m->item_requests || !m->item_logits || !m->wants ||
        !m->guessers || !m->draft_jobs || !m->logits_copy || !buf_reserve(&m->text, 4096))
        return error_set(err, STATUS_NOMEM, "no memory for the model's scheduler");
    blocks_stats(m->blocks, &m->stats.blocks);
    return 0;
}

static const struct kernels *kernels_for(const struct llm_options *o)
{
    return o->kernels[0] ? kernels_by_name(o->kernels) : kernels_best();
}

/* An encoder, and a decoder whose file names a pooling, gives embeddings. An encoder sees all of a text at once, so its longest must fit
 * a step. */
static int choose_face(struct engine_model *m, struct model_desc *d, struct error *err)
{
    struct llm_options *o = &m->options;
    if (o->has_pooling) {
        d->h.embd_normalize = d->h.embd_normalize || d->h.pooling == LLM_POOL_NONE;
        d->h.pooling = o->pooling;
    }
    m->embeds = !d->h.causal || d->h.pooling != LLM_POOL_NONE;
    if (!m->embeds) {
        o->max_waiting = o->max_waiting ? o->max_waiting : WAITING_DEFAULT;
        return 0;
    }
    m->adapters.max_n = 0;
    o->max_waiting = o->max_waiting ? o->max_waiting : EMBED_WAITING_DEFAULT;
    if (d->h.pooling == LLM_POOL_NONE)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the file names no pooling: set the option pooling to mean, cls or last to get one vector a text");
    if (!d->h.causal) {
        uint64_t longest = o->context_tok ? MIN_OF(o->context_tok, (uint64_t)d->h.n_ctx_train) : d->h.n_ctx_train;
        o->max_step_tok = MAX_OF(o->max_step_tok, longest);
    }
    return 0;
}

/* A folder in Hugging Face's layout is known by its config.json. */
static const char *file_of(const struct engine_load *spec)
{
    return strcmp(spec->file, "config.json") == 0 ? "." : spec->file;
}

static int open_weights(struct engine_model *m, const struct engine_load *spec, struct error *err)
{
    struct model_desc *d = NULL;
    int rc = model_desc_open_files(spec->files, spec->dir_fd, file_of(spec), &d, err);
    if (rc < 0)
        return rc;
    d->quantize = m->options.quantize;
    d->mix = m->options.mix;
    rc = choose_face(m, d, err);
    if (rc == 0)
        rc = tokenizer_create(&d->tokenizer, &m->tokenizer, err);
    if (rc == 0)
        rc = team_create((uint32_t)m->options.threads, "llm", &m->team, err);
    if (rc == 0)
        rc = llm_model_create(d, kernels_for(&m->options), m->team, spec->log, spec->name, &m->weights, err);
    if (rc < 0)
        model_desc_release(d);
    return rc;
}

static void describe(struct engine_model *m)
{
    snprintf(m->devices, sizeof m->devices, "cpu (%s, %u threads)", m->weights->k->name, team_size(m->team));
    m->contract = (struct engine_contract){.face = ENGINE_TOKEN,
                                           .platform = "inferd_llm",
                                           .context_tokens = m->n_ctx,
                                           .max_waiting = m->options.max_waiting,
                                           .embedding_dims = !m->embeds                                ? 0
                                                             : m->weights->h->pooling == LLM_POOL_RANK ? 1
                                                                                                       : m->weights->h->n_embd,
                                           .reranks = m->weights->h->pooling == LLM_POOL_RANK,
                                           .embedding_cut = m->weights->h->embd_cut || m->options.matryoshka,
                                           .description = m->weights->desc->name,
                                           .devices = m->devices};
    LOG(m->log, LOG_INFO, "llm_ready", LOG_S("model", m->name), LOG_S("arch", m->weights->h->arch), LOG_U("context", m->n_ctx),
        LOG_U("kv_blocks", m->n_blocks), LOG_U("kv_bytes", m->kv_bytes), LOG_U("weight_bytes", m->weights->bytes),
        LOG_U("buffer_bytes", m->buffer_bytes), LOG_U("threads", team_size(m->team)), LOG_S("kernels", m->weights->k->name));
}

/* ---- load, unload ---- */

static void unload(struct engine_model *m)
{
    if (m->thread_started) {
        os_mutex_lock(&m->lock);
        m->closing = true;
        os_cond_signal(&m->wake);
        os_mutex_unlock(&m->lock);
        os_thread_join(&m->thread);
    }
    llm_adapters_release(m);
    llm_chat_close(m);
    llm_constraints_close(m);
    step_destroy(m->step);
    blocks_destroy(m->blocks);
    sampler_destroy(m->sampler);
    draft_destroy(m->draft);
    forward_destroy(m->forward);
    llm_model_destroy(m->weights);
    tokenizer_destroy(m->tokenizer);
    team_destroy(m->team);
    free(m->items);
    free(m->item_choices);
    free(m->item_requests);
    free(m->item_logits);
    free(m->wants);
    free(m->guessers);
    free(m->draft_jobs);
    free(m->logits_copy);
    free(m->block_ids);
    free(m->eog);
    buf_release(&m->text);
    os_cond_release(&m->wake);
    os_mutex_release(&m->lock);
    free(m);
}

static int create_draft(struct engine_model *m, const struct engine_load *spec, struct error *err)
{
    struct draft_config c = {.kernels = m->weights->k,
                             .team = m->team,
                             .tokenizer = m->tokenizer,
                             .n_vocab = m->weights->h->n_vocab,
                             .n_slots = (uint32_t)MIN_OF(m->options.draft_seqs, m->options.max_seqs),
                             .n_ctx = m->n_ctx,
                             .log = m->log};
    if (m->options.draft_model[0] && m->embeds)
        return error_set(err, STATUS_INVALID, "option draft_model: this model gives embeddings, there is nothing to guess");
    return m->options.draft_model[0] ? draft_create(spec->files, spec->dir_fd, m->options.draft_model, &c, &m->draft, err) : 0;
}

static int build(struct engine_model *m, const struct engine_load *spec, struct error *err)
{
    int rc = llm_options_read(spec->options, spec->n_options, &m->options, err);
    m->adapters.max_n = (uint32_t)m->options.max_adapters;
    m->adapters.max_bytes = m->options.adapter_bytes;
    if (rc == 0)
        rc = open_weights(m, spec, err);
    if (rc == 0)
        rc = llm_chat_open(m, err);
    if (rc == 0)
        rc = size_pool(m, err);
    if (rc == 0)
        rc = collect_eog(m, err);
    if (rc == 0)
        rc = m->embeds ? create_encoder(m, err) : create_scheduler(m, err);
    if (rc == 0 && !m->embeds)
        rc = llm_constraints_open(m, err);
    if (rc == 0) {
        m->forward_config = config_for(&m->options, m->embeds, m->n_ctx, m->n_blocks);
        rc = forward_create(m->weights, m->team, &m->forward_config, &m->forward, err);
    }
    if (rc == 0)
        rc = create_draft(m, spec, err);
    if (rc < 0)
        return rc;
    describe(m);
    rc = os_thread_start(&m->thread, "llm-step", llm_loop, m, err);
    m->thread_started = rc == 0;
    return rc;
}

static int load(struct engine *e, const struct engine_load *spec, struct engine_model **out, struct error *err)
{
    (void)e;
    struct engine_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, STATUS_NOMEM, "no memory for a model");
    snprintf(m->name, sizeof m->name, "%s", spec->name);
    snprintf(m->labels, sizeof m->labels, "model=\"%s\",version=\"%s\"", m->name, spec->version ? spec->version : "");
    m->log = spec->log;
    m->hash_seed = os_random_u64();
    m->next_id = 1;
    list_init(&m->incoming);
    list_init(&m->live);
    os_mutex_init(&m->lock, RANK_ENGINE);
    os_cond_init(&m->wake);
    int rc = build(m, spec, err);
    if (rc < 0) {
        unload(m);
        return rc;
    }
    *out = m;
    return 0;
}

static int estimate_file(const struct llm_options *o, const struct engine_load *spec, const char *file, uint64_t *bytes,
                         struct error *err)
{
    struct model_desc *d = NULL;
    size_t packed, other;
    int rc = model_desc_open_files(spec->files, spec->dir_fd, file, &d, err);
    if (rc < 0)
        return rc;
    d->quantize = o->quantize;
    d->mix = o->mix;
    if (llm_model_bytes(d, &packed, &other))
        *bytes += (uint64_t)packed + other + model_desc_held_bytes(d);
    else
        rc = error_set(err, STATUS_INVALID, "a matrix of the model has a shape or type that can't be packed");
    model_desc_release(d);
    return rc;
}

/* Weights as they will be packed, the draft model's too. The KV pool is cut to what is left, so it can't be too much. */
static int estimate(struct engine *e, const struct engine_load *spec, uint64_t *bytes, struct error *err)
{
    struct llm_options o;
    (void)e;
    *bytes = 0;
    int rc = llm_options_read(spec->options, spec->n_options, &o, err);
    if (rc == 0)
        rc = estimate_file(&o, spec, file_of(spec), bytes, err);
    o.quantize = false; /* the model's, not the draft's */
    if (rc == 0 && o.draft_model[0])
        rc = estimate_file(&o, spec, o.draft_model, bytes, err);
    return rc;
}

static const struct engine_contract *contract(const struct engine_model *m)
{
    return &m->contract;
}

static void memory(const struct engine_model *m, struct engine_memory *out)
{
    struct engine_model *mine = (struct engine_model *)m; /* the lock is the only thing written */
    os_mutex_lock(&mine->lock);
    uint64_t adapters = m->adapters.bytes, buffers = m->adapters_prepared ? forward_lora_bytes(m->forward) : 0;
    os_mutex_unlock(&mine->lock);
    *out = (struct engine_memory){.weights_bytes = m->weights->bytes + adapters,
                                  .scratch_bytes = (uint64_t)m->kv_bytes + m->buffer_bytes + buffers};
    if (m->draft) {
        out->weights_bytes += draft_weight_bytes(m->draft);
        out->scratch_bytes += draft_scratch_bytes(m->draft);
    }
}

/* ---- requests ---- */

static int enqueue(struct engine_model *m, struct request *r, uint64_t *id, struct error *err)
{
    int rc = 0;
    os_mutex_lock(&m->lock);
    if (m->closing) {
        rc = error_set(err, STATUS_UNAVAILABLE, "the model is being unloaded");
    } else if (m->n_unstarted >= m->options.max_waiting) {
        m->stats.rejected++;
        rc = error_set(err, STATUS_EXHAUSTED, "the queue is full: %u requests are waiting; try again later", m->n_unstarted);
    } else {
        *id = r->id = m->next_id++;
        m->n_unstarted++;
        atomic_fetch_add_explicit(&m->n_requests, 1, memory_order_relaxed);
        list_push_back(&m->incoming, &r->link);
        os_cond_signal(&m->wake);
    }
    os_mutex_unlock(&m->lock);
    return rc;
}

static int submit(struct engine_model *m, const struct token_request *req, uint64_t *id, struct error *err)
{
    struct request *r = NULL;
    int rc = request_create(m, req, &r, err);
    if (rc == 0)
        rc = enqueue(m, r, id, err);
    if (rc < 0)
        request_destroy(r);
    return rc;
}

static bool cancel_in(struct list *head, uint64_t id)
{
    LIST_EACH(l, head)
    {
        struct request *r = LIST_ENTRY(l, struct request, link);
        if (r->id == id) {
            atomic_store_explicit(&r->cancelled, true, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

static void cancel_id(struct engine_model *m, uint64_t id)
{
    os_mutex_lock(&m->lock);
    if (!cancel_in(&m->incoming, id))
        cancel_in(&m->live, id);
    os_mutex_unlock(&m->lock);
}

/* ---- text, heartbeat ---- */

static int tokenize(struct engine_model *m, struct str text, bool special, bool control, int32_t **tokens, size_t *n,
                    struct error *err)
{
    struct token_list l = {0};
    struct text_span span = {text, control};
    int rc = tokenizer_encode(m->tokenizer, &span, 1, special, 0, &l, err);
    if (rc < 0) {
        token_list_release(&l);
        return rc;
    }
    *tokens = l.v;
    *n = l.n;
    return 0;
}

static int detokenize(struct engine_model *m, const int32_t *tokens, size_t n, struct buf *out, struct error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= m->weights->h->n_vocab)
            return error_set(err, STATUS_INVALID, "token %zu is %d; the vocabulary has 0 to %u", i, tokens[i],
                             m->weights->h->n_vocab - 1);
    tokenizer_decode(m->tokenizer, tokens, n, true, out);
    return out->failed ? error_set(err, STATUS_NOMEM, "no memory for the text") : 0;
}

static void progress(const struct engine_model *m, uint64_t *steps, bool *busy)
{
    *steps = atomic_load_explicit(&m->steps, memory_order_acquire);
    *busy = atomic_load_explicit(&m->n_requests, memory_order_acquire) > 0;
}

const struct engine_ops engine_llm = {
    .name = "llm",
    .files = (const char *const[]){"model.gguf", "config.json", NULL},
    .estimate = estimate,
    .load = load,
    .unload = unload,
    .contract = contract,
    .memory = memory,
    .submit = submit,
    .cancel_id = cancel_id,
    .adapter_load = llm_adapter_load,
    .adapter_unload = llm_adapter_unload,
    .adapter_each = llm_adapter_each,
    .tokenize = tokenize,
    .detokenize = detokenize,
    .text = llm_text,
    .chat = llm_chat,
    .progress = progress,
    .metrics = llm_metrics,
};
