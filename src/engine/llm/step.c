/* step.c: the planner of step.h. Two lists, both in order of (priority, arrival): `waiting` and `running`; a preempted sequence keeps its
 * arrival number and so returns to its place. */
#include "engine/llm/step.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/llm/step_cost.h"
#include "engine/llm/step_tenants.h"

struct step {
    struct step_config c;
    struct blocks *blocks;
    struct list waiting, running;
    uint32_t n_waiting, n_running;
    struct step_tenants *tenants;
    uint64_t next_arrival;
    struct step_plan plan;
    struct step_cost cost;
    struct step_load load; /* of the plan */
    struct step_stats stats;
};

void step_config_default(struct step_config *c)
{
    *c = (struct step_config){.max_seqs = 128,
                              .max_waiting = 1024,
                              .max_tok = 2048,
                              .min_chunk_tok = 16,
                              .whole_tok = 256,
                              .short_prompt_ns = 250000000,
                              .stretch = 2.25,
                              .max_tenants = 1024};
}

struct step *step_create(const struct step_config *c, struct blocks *blocks)
{
    struct step *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->c = *c;
    s->blocks = blocks;
    list_init(&s->waiting);
    list_init(&s->running);
    s->tenants = step_tenants_create(c->max_tenants);
    s->plan.items = calloc(c->max_seqs, sizeof *s->plan.items);
    s->plan.copies = calloc(c->max_seqs, sizeof *s->plan.copies);
    if (!s->tenants || !s->plan.items || !s->plan.copies) {
        step_destroy(s);
        return NULL;
    }
    return s;
}

void step_destroy(struct step *s)
{
    if (!s)
        return;
    ASSERT(s->n_waiting == 0 && s->n_running == 0);
    step_tenants_destroy(s->tenants);
    free(s->plan.items);
    free(s->plan.copies);
    free(s);
}

/* ---- order ---- */

static struct step_seq *seq_of(struct list *l)
{
    return LIST_ENTRY(l, struct step_seq, link);
}

static bool before(const struct step_seq *a, const struct step_seq *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* Insert in order; from the back, where newcomers belong. */
static void insert(struct list *head, struct step_seq *seq)
{
    struct list *at = head->prev;
    while (at != head && before(seq, seq_of(at)))
        at = at->prev;
    list_insert_before(at->next, &seq->link);
}

static uint32_t blocks_for(uint32_t n_tok)
{
    return n_tok / KV_BLOCK_TOK + (n_tok % KV_BLOCK_TOK ? 1 : 0);
}

/* ---- coming and going ---- */

int step_admit(struct step *s, struct step_seq *seq, struct error *err)
{
    struct blocks_stats pool;
    blocks_stats(s->blocks, &pool);
    ASSERT(seq->state == STEP_NEW && seq->n_tok > 0 && seq->n_tok <= seq->limit_tok);
    if (blocks_for(seq->limit_tok) > pool.total)
        return error_set(err, STATUS_INVALID,
                         "prompt and max_tokens together are %u tokens; the KV cache holds %llu: shorten the prompt, lower "
                         "max_tokens, or give the cache more memory",
                         seq->limit_tok, (unsigned long long)pool.total * KV_BLOCK_TOK);
    if (s->n_waiting >= s->c.max_waiting)
        return error_set(err, STATUS_EXHAUSTED, "the queue is full: %u requests are waiting; try again later", s->n_waiting);
    seq->arrival = s->next_arrival++;
    seq->state = STEP_WAITING;
    seq->n_computed = seq->n_blocks = seq->n_sealed = seq->n_cached_tok = seq->n_preempted = seq->n_draft = 0;
    seq->started = seq->planned = false;
    insert(&s->waiting, seq);
    s->n_waiting++;
    seq->tenant_slot = step_tenants_enter(s->tenants, seq->tenant);
    return 0;
}

int step_fork(struct step *s, const struct step_seq *parent, struct step_seq *child, struct error *err)
{
    ASSERT(parent->state == STEP_RUNNING && child->state == STEP_NEW);
    ASSERT(parent->n_blocks <= blocks_for(parent->n_computed)); /* none that only guesses wrote to */
    if (s->n_running >= s->c.max_seqs)
        return error_set(err, STATUS_EXHAUSTED, "no room for another choice: %u sequences are running", s->n_running);
    for (uint32_t i = 0; i < parent->n_blocks; i++) {
        child->table[i] = parent->table[i];
        blocks_ref(s->blocks, child->table[i]);
    }
    child->n_blocks = parent->n_blocks;
    child->n_sealed = parent->n_sealed;
    child->n_computed = parent->n_computed;
    child->n_cached_tok = parent->n_cached_tok;
    child->n_found_tok = child->n_computed;
    child->n_preempted = child->n_draft = 0;
    child->started = true;
    child->planned = false;
    child->arrival = s->next_arrival++;
    child->state = STEP_RUNNING;
    insert(&s->running, child);
    s->n_running++;
    child->tenant_slot = step_tenants_enter(s->tenants, child->tenant);
    return 0;
}

/* Last block first, so that the prefix cache evicts tails first. */
static void give_back(struct step *s, struct step_seq *seq)
{
    while (seq->n_blocks > 0)
        blocks_unref(s->blocks, seq->table[--seq->n_blocks]);
    seq->n_sealed = 0;
    seq->n_computed = 0;
    seq->n_draft = 0;
    seq->planned = false;
}

static bool is_decode(const struct step_item *it)
{
    return it->n - it->n_draft == 1 && it->last;
}

/* Take what is planned for `seq` out of the plan again. */
static void unplan(struct step *s, const struct step_seq *seq)
{
    struct step_plan *p = &s->plan;
    size_t n = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        if (p->items[i].seq == seq) {
            p->n_tok -= p->items[i].n;
            p->n_draft -= p->items[i].n_draft;
            p->n_decode -= is_decode(&p->items[i]);
        } else {
            p->items[n++] = p->items[i];
        }
    }
    p->n_items = n;
    n = 0;
    for (size_t i = 0; i < p->n_copies; i++)
        if (p->copies[i].seq != seq)
            p->copies[n++] = p->copies[i];
    p->n_copies = n;
}

void step_remove(struct step *s, struct step_seq *seq)
{
    ASSERT(seq->state != STEP_NEW);
    list_remove(&seq->link);
    *(seq->state == STEP_WAITING ? &s->n_waiting : &s->n_running) -= 1;
    unplan(s, seq);
    give_back(s, seq);
    seq->state = STEP_NEW;
    step_tenants_leave(s->tenants, seq->tenant_slot);
}

/* ---- memory ---- */

static void preempt(struct step *s, struct step_seq *victim)
{
    list_remove(&victim->link);
    s->n_running--;
    unplan(s, victim);
    give_back(s, victim);
    victim->state = STEP_WAITING;
    victim->n_preempted++;
    insert(&s->waiting, victim);
    s->n_waiting++;
    s->plan.n_preempted++;
    s->stats.preemptions++;
}

/* Preempt the worst running sequence behind `seq`; false when `seq` itself is the worst. */
static bool preempt_worse(struct step *s, struct step_seq *seq)
{
    struct list *worst = list_last(&s->running);
    if (!worst || seq_of(worst) == seq)
        return false;
    preempt(s, seq_of(worst));
    return true;
}

/* Copy on write of a partly filled block that other choices share. Preempting those may leave it to `seq` alone. */
static bool own_partial(struct step *s, struct step_seq *seq)
{
    uint32_t *slot = &seq->table[seq->n_computed / KV_BLOCK_TOK];
    while (!blocks_writable(s->blocks, *slot)) {
        uint32_t id = blocks_alloc(s->blocks);
        if (id != KV_BLOCK_NONE) {
            s->plan.copies[s->plan.n_copies++] = (struct step_copy){seq, *slot, id};
            blocks_unref(s->blocks, *slot);
            *slot = id;
        } else if (!preempt_worse(s, seq)) {
            return false;
        }
    }
    return true;
}

/* Make positions [n_computed, upto) writable, preempting worse sequences where memory is short. False: `seq` is the worst itself. */
static bool extend(struct step *s, struct step_seq *seq, uint32_t upto)
{
    if (seq->n_computed % KV_BLOCK_TOK && !own_partial(s, seq))
        return false;
    while (seq->n_blocks < blocks_for(upto)) {
        uint32_t id = blocks_alloc(s->blocks);
        if (id != KV_BLOCK_NONE)
            seq->table[seq->n_blocks++] = id;
        else if (!preempt_worse(s, seq))
            return false;
    }
    return true;
}

/* ---- planning ---- */

static uint32_t missing(const struct step_seq *seq)
{
    return seq->n_tok - seq->n_computed;
}

/* The sum of the positions [first, first + n). */
static double keys_of(uint32_t first, uint32_t n)
{
    return (first + 0.5 * n) * n;
}

static void plan_item(struct step *s, struct step_seq *seq, uint32_t n)
{
    struct step_item *it = &s->plan.items[s->plan.n_items++];
    *it = (struct step_item){seq, seq->n_computed, n, 0, seq->n_computed + n == seq->n_tok};
    seq->planned = true;
    s->plan.n_tok += n;
    s->plan.n_decode += is_decode(it);
}

/* What the planned items are, for the costs. */
static struct step_load load_of(const struct step_plan *p)
{
    struct step_load l = {0};
    for (size_t i = 0; i < p->n_items; i++) {
        const struct step_item *it = &p->items[i];
        bool decode = is_decode(it);
        *(decode ? &l.n_decode : &l.n_prompt) += it->n; /* guesses cost what decodes do */
        *(decode ? &l.decode_keys : &l.prompt_keys) += keys_of(it->first, it->n);
    }
    return l;
}

/* What prompts may take of a step, beside the planned decodes. */
struct budget {
    struct step_load decodes;
    uint32_t tok;
    double ns;       /* of those that are read in parts; INFINITY: as much as they want */
    uint32_t least;  /* such parts are at least so large, as far as `ns` goes (beside decodes) or whatever it is */
    bool some;       /* at least one token, whatever it costs */
    double short_ns; /* a prompt that costs no more is read whole; 0: none is */
    double whole_ns; /* planned so far of those, and its tokens */
    uint32_t whole_tok;
};

/* Time for prompts where nothing decodes: no more than a newcomer should have to wait. */
static struct budget alone_budget(const struct step *s, struct budget b)
{
    b.ns = s->c.short_prompt_ns ? (double)s->c.short_prompt_ns : INFINITY;
    b.least = s->c.whole_tok;
    b.short_ns = (double)s->c.short_prompt_ns;
    return b;
}

static struct budget prompt_budget(const struct step *s)
{
    struct budget b = {.decodes = load_of(&s->plan),
                       .tok = s->c.max_tok > s->plan.n_tok ? s->c.max_tok - s->plan.n_tok : 0,
                       .ns = INFINITY,
                       .least = s->c.min_chunk_tok,
                       .some = true};
    if (!s->plan.n_decode)
        return alone_budget(s, b);
    if (s->c.stretch <= 0)
        return b;
    if (step_cost_due(&s->cost,
                      b.decodes.n_decode)) { /* they wait a step, so that what the decodes cost alone gets known (again) */
        b.tok = 0;
        return b;
    }
    double decodes = step_cost_decodes(&s->cost, &b.decodes), limit = s->c.stretch * decodes;
    b.short_ns = (double)s->c.short_prompt_ns;
    if (s->c.target_step_ns) {
        limit = fmin(limit, (double)s->c.target_step_ns);
        b.short_ns = fmin(b.short_ns, fmax((double)s->c.target_step_ns - decodes, 0));
    }
    b.ns = fmax(limit - decodes, 0);
    return b;
}

/* Tokens that `seq` may compute, being one of `left` prompts to share the budget: an equal part of tokens and of time; or, where that is very
 * little, up to `least` if there is so much. */
static uint32_t share(const struct step *s, const struct budget *b, const struct step_seq *seq, uint32_t left)
{
    uint32_t all = b->tok, part = b->tok / left;
    if (!isinf(b->ns)) {
        uint32_t fit = step_cost_fit(&s->cost, &b->decodes, seq->n_computed, b->ns);
        uint32_t fit_part = step_cost_fit(&s->cost, &b->decodes, seq->n_computed, b->ns / left);
        all = MIN_OF(all, b->decodes.n_decode || !b->some ? fit : MAX_OF(fit, b->least));
        part = MIN_OF(part, fit_part);
    }
    uint32_t n = MAX_OF(part, MIN_OF(all, b->least));
    if (!n && b->some && b->tok)
        n = 1;
    return MIN_OF(n, missing(seq));
}

static void spend(const struct step *s, struct budget *b, uint32_t first, uint32_t n)
{
    if (!n)
        return;
    b->tok -= n;
    b->some = false;
    if (isinf(b->ns))
        return;
    double cost = step_cost_prompt(&s->cost, first, n);
    b->ns = cost > 0 && cost < b->ns ? b->ns - cost : 0;
}

/* Let `seq` compute up to `n` tokens more; it falls back to waiting when there is no memory for it. */
static uint32_t take(struct step *s, struct step_seq *seq, uint32_t n)
{
    if (!extend(s, seq, seq->n_computed + n)) {
        preempt(s, seq);
        return 0;
    }
    plan_item(s, seq, n);
    return n;
}

/* It has a prompt to read, and no part in this step yet. */
static bool reads(const struct step_seq *seq)
{
    return missing(seq) > 1 && !seq->planned;
}

static uint32_t count_prompts(struct step *s)
{
    uint32_t n = 0;
    LIST_EACH(l, &s->running) n += reads(seq_of(l));
    return n;
}

bool step_reads_prompt(struct step *s)
{
    LIST_EACH(l, &s->running)
    if (missing(seq_of(l)) > 1)
        return true;
    return false;
}

static void plan_decodes(struct step *s)
{
    struct list *l = s->running.next;
    while (l != &s->running) {
        struct step_seq *seq = seq_of(l);
        struct list *prev = l->prev;
        if (missing(seq) == 1 && s->plan.n_tok < s->c.max_tok)
            take(s, seq, 1);
        /* take() may have preempted seq itself or sequences behind it */
        l = seq->state == STEP_RUNNING ? seq->link.next : prev->next;
    }
}

static void plan_prompts(struct step *s, struct budget *b)
{
    uint32_t left = count_prompts(s);
    struct list *l = s->running.next;
    while (l != &s->running && b->tok > 0 && left > 0) {
        struct step_seq *seq = seq_of(l);
        struct list *prev = l->prev;
        if (reads(seq)) {
            uint32_t first = seq->n_computed, n = share(s, b, seq, left--);
            spend(s, b, first, n ? take(s, seq, n) : 0);
        }
        l = seq->state == STEP_RUNNING ? seq->link.next : prev->next;
    }
}

/* Tokens, from `at` on, that a prompt gets which is read from `first` to `end`, because that costs little: all that is left of it; or, where it costs
 * more than a short one, less the more it costs, as long as that is more than long ones get. 0: it is a long one, or there is no room. */
static uint32_t ahead(const struct step *s, const struct budget *b, uint32_t first, uint32_t at, uint32_t end)
{
    double whole = step_cost_prompt(&s->cost, first, end - first);
    double ns = fmin(whole, b->short_ns * (b->short_ns / whole)), all = b->whole_ns + ns;
    if (whole <= 0 || (whole > b->short_ns && ns <= b->ns))
        return 0;
    uint32_t n = whole <= b->short_ns ? end - at : step_cost_fit(&s->cost, &b->decodes, at, ns);
    n = MIN_OF(n, end - at);
    bool few = b->whole_tok + n <= s->c.whole_tok, beside = b->decodes.n_decode && all <= b->ns;
    if (n > b->tok || (b->whole_tok && (all > b->short_ns || (!few && !beside))))
        return 0;
    return n;
}

static void spend_whole(const struct step *s, struct budget *b, uint32_t first, uint32_t n)
{
    double cost = step_cost_prompt(&s->cost, first, n);
    b->tok -= n;
    b->whole_tok += n;
    b->whole_ns += cost;
    if (!b->decodes.n_decode &&
        !isinf(b->ns)) /* what is left of the time for all, but never so little that long prompts stand still */
        b->ns = fmax(b->ns - cost, (double)s->c.short_prompt_ns / 4);
}

/* The waiting sequence to start next: best priority; then those that were running already, oldest first; then the tenant served least;
 * then arrival. `whole`: only those that go ahead of long ones within that budget; NULL: any. */
static struct step_seq *pick_waiting(struct step *s, const struct budget *whole)
{
    struct step_seq *best = NULL;
    LIST_EACH(l, &s->waiting)
    {
        struct step_seq *seq = seq_of(l);
        if (whole && !ahead(s, whole, 0, 0, seq->n_tok))
            continue;
        if (best && seq->priority != best->priority)
            break;
        if (seq->n_preempted)
            return seq;
        if (!best || step_tenants_served(s->tenants, seq->tenant_slot) < step_tenants_served(s->tenants, best->tenant_slot))
            best = seq;
    }
    return best;
}

/* Blocks that a sequence needs for all it knows and one token more. */
static uint32_t blocks_wanted(const struct step_seq *seq)
{
    return blocks_for(seq->n_tok < seq->limit_tok ? seq->n_tok + 1 : seq->n_tok);
}

/* Start `seq` if its whole context fits into what is free or cached and not yet spoken for. */
static bool start(struct step *s, struct step_seq *seq, uint32_t reserved)
{
    /* at least one token is computed, or there would be no logits */
    uint32_t hit = blocks_match(s->blocks, seq->salt, seq->tokens, seq->n_tok, (seq->n_tok - 1) / KV_BLOCK_TOK, seq->table);
    seq->n_blocks = seq->n_sealed = hit;
    if (blocks_wanted(seq) - hit + reserved > blocks_available(s->blocks)) {
        give_back(s, seq);
        return false;
    }
    seq->n_computed = seq->n_found_tok = hit * KV_BLOCK_TOK;
    s->stats.prefix_queries_tok += seq->n_tok;
    s->stats.prefix_hits_tok += seq->n_computed;
    if (!seq->started)
        seq->n_cached_tok = seq->n_computed;
    seq->started = true;
    list_remove(&seq->link);
    s->n_waiting--;
    seq->state = STEP_RUNNING;
    insert(&s->running, seq);
    s->n_running++;
    return true;
}

/* Blocks that running sequences will still take for what they know. */
static uint32_t count_reserved(struct step *s)
{
    uint32_t n = 0;
    LIST_EACH(l, &s->running)
    {
        const struct step_seq *seq = seq_of(l);
        n += blocks_wanted(seq) > seq->n_blocks ? blocks_wanted(seq) - seq->n_blocks : 0;
    }
    return n;
}

/* Guesses of the planned decodes, while tokens are left, in blocks that nobody has a claim to. */
static void plan_drafts(struct step *s)
{
    uint32_t reserved = count_reserved(s), free = blocks_available(s->blocks);
    uint32_t spare = free > reserved ? free - reserved : 0;
    for (size_t i = 0; i < s->plan.n_items; i++) {
        struct step_item *it = &s->plan.items[i];
        struct step_seq *seq = it->seq;
        uint32_t room = s->c.max_tok > s->plan.n_tok ? s->c.max_tok - s->plan.n_tok : 0;
        uint32_t n = seq->n_draft < room ? seq->n_draft : room;
        ASSERT(seq->n_tok + seq->n_draft <= seq->limit_tok);
        while (seq->n_blocks < blocks_for(seq->n_tok + n) && spare > 0) {
            seq->table[seq->n_blocks++] = blocks_alloc(s->blocks);
            spare--;
        }
        uint32_t held = seq->n_blocks * KV_BLOCK_TOK - seq->n_tok;
        it->n_draft = n < held ? n : held;
        it->n += it->n_draft;
        s->plan.n_draft += it->n_draft;
        s->plan.n_tok += it->n_draft;
    }
    LIST_EACH(l, &s->running) seq_of(l)->n_draft = 0;
}

/* Prompts that cost little, whole or nearly, and one after the other: cutting one up, or sharing a step among several, makes all of them late and
 * none earlier. At least one a step; further ones while they are few tokens, or fit into what long prompts would get. */
static void plan_whole(struct step *s, struct budget *b)
{
    struct list *l = s->running.next;
    while (b->short_ns > 0 && l != &s->running) {
        struct step_seq *seq = seq_of(l);
        struct list *prev = l->prev;
        uint32_t n = reads(seq) ? ahead(s, b, seq->n_found_tok, seq->n_computed, seq->n_tok) : 0;
        if (n && take(s, seq, n))
            spend_whole(s, b, seq->n_computed, n);
        l = seq->state == STEP_RUNNING ? seq->link.next : prev->next;
    }
    while (b->short_ns > 0 && !s->plan.n_preempted && s->n_running < s->c.max_seqs) {
        struct step_seq *seq = pick_waiting(s, b);
        if (!seq || !start(s, seq, count_reserved(s)))
            return;
        uint32_t first = seq->n_computed, n = ahead(s, b, first, first, seq->n_tok);
        if (!n) /* what the cache has of it makes it no longer; but half a token may */
            return;
        ASSERT(extend(s, seq, first + n));
        plan_item(s, seq, n);
        spend_whole(s, b, first, n);
    }
}

/* Start waiting sequences while there is budget. They only take memory that is free and spoken for by nobody, so this never
 * preempts. The first that doesn't fit ends it: a smaller one behind it must not overtake it for ever. */
static void plan_waiting(struct step *s, struct budget *b)
{
    while (b->tok > 0 && s->n_running < s->c.max_seqs && s->n_waiting > 0) {
        struct step_seq *seq = pick_waiting(s, NULL);
        if (!b->some && b->ns <= 0)
            return;
        if (!start(s, seq, count_reserved(s)))
            return;
        uint32_t first = seq->n_computed, n = share(s, b, seq, 1);
        if (!n) /* it is running now, and goes on in the next step */
            return;
        ASSERT(extend(s, seq, first + n));
        plan_item(s, seq, n);
        spend(s, b, first, n);
    }
}

const struct step_plan *step_next(struct step *s)
{
    s->plan.n_items = s->plan.n_copies = 0;
    s->plan.n_tok = s->plan.n_decode = s->plan.n_draft = s->plan.n_preempted = 0;
    LIST_EACH(l, &s->running) seq_of(l)->planned = false;
    plan_decodes(s);
    plan_drafts(s);
    struct budget b = prompt_budget(s);
    plan_whole(s, &b);
    plan_prompts(s, &b);
    if (!s->plan.n_preempted)
        plan_waiting(s, &b);
    s->load = load_of(&s->plan);
    DASSERT(step_validate(s));
    return &s->plan;
}

/* ---- after the step ---- */

static void seal_full_blocks(struct step *s, struct step_seq *seq)
{
    while ((seq->n_sealed + 1) * KV_BLOCK_TOK <= seq->n_computed) {
        uint32_t i = seq->n_sealed, parent = i ? seq->table[i - 1] : KV_BLOCK_NONE;
        if (blocks_writable(s->blocks, seq->table[i]))
            seq->table[i] = blocks_seal(s->blocks, seq->table[i], parent, seq->salt, seq->tokens + (size_t)i * KV_BLOCK_TOK);
        seq->n_sealed++;
    }
}

void step_done(struct step *s, uint64_t step_ns)
{
    for (size_t i = 0; i < s->plan.n_items; i++) {
        struct step_item *it = &s->plan.items[i];
        it->seq->n_computed += it->n - it->n_draft;
        step_tenants_charge(s->tenants, it->seq->tenant_slot, it->n - it->n_draft);
        seal_full_blocks(s, it->seq);
    }
    if (s->plan.n_tok)
        step_cost_learn(&s->cost, &s->load, step_ns ? (double)step_ns : 1);
    s->stats.steps++;
    s->stats.tokens += s->plan.n_tok;
    s->plan.n_items = 0;
    DASSERT(step_validate(s));
}

void step_accept(struct step *s, struct step_seq *seq, uint32_t n)
{
    ASSERT(seq->state == STEP_RUNNING && n <= seq->n_tok - seq->n_computed);
    seq->n_computed += n;
    seal_full_blocks(s, seq);
}

void step_stats(const struct step *s, struct step_stats *out)
{
    *out = s->stats;
    out->running = s->n_running;
    out->waiting = s->n_waiting;
}

/* ---- validation ---- */

static bool validate_list(const struct list *head, enum step_state state, uint32_t count)
{
    const struct step_seq *prev = NULL;
    for (const struct list *l = head->next; l != head; l = l->next, count--) {
        const struct step_seq *seq = LIST_ENTRY(l, struct step_seq, link);
        if (!count || seq->state != state || (prev && before(seq, prev)) || seq->n_tok > seq->limit_tok)
            return false;
        if (state == STEP_WAITING && (seq->n_blocks || seq->n_computed))
            return false;
        if (seq->n_blocks < blocks_for(seq->n_computed) || seq->n_computed > seq->n_tok)
            return false;
        prev = seq;
    }
    return count == 0;
}

bool step_validate(const struct step *s)
{
    return validate_list(&s->waiting, STEP_WAITING, s->n_waiting) && validate_list(&s->running, STEP_RUNNING, s->n_running) &&
           s->n_running <= s->c.max_seqs && blocks_validate(s->blocks);
}
