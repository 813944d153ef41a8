/* sampler.c: the chain of sampler.h. Candidates are kept as parallel arrays sorted by falling logit once a filter needs order; greedy
 * requests never sort. */
#include "engine/llm/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/map.h"
#include "base/size.h"
#include "base/status.h"

/* ---- history: open addressing id -> counts ---- */

struct seen {
    int32_t id; /* -1: empty */
    uint32_t prompt, generated;
};

struct sampler_history {
    struct seen *slots;
    uint32_t mask;
};

struct sampler_history *sampler_history_create(uint32_t capacity_tok)
{
    struct sampler_history *h = calloc(1, sizeof *h);
    uint32_t n = 64;
    while (n < capacity_tok * 2u && n < 1u << 30)
        n *= 2;
    if (h)
        h->slots = malloc(n * sizeof *h->slots);
    if (!h || !h->slots) {
        free(h);
        return NULL;
    }
    h->mask = n - 1;
    sampler_history_clear(h);
    return h;
}

void sampler_history_destroy(struct sampler_history *h)
{
    if (!h)
        return;
    free(h->slots);
    free(h);
}

void sampler_history_clear(struct sampler_history *h)
{
    for (uint32_t i = 0; i <= h->mask; i++)
        h->slots[i] = (struct seen){.id = -1};
}

void sampler_history_add(struct sampler_history *h, int32_t id, bool prompt)
{
    uint32_t i = (uint32_t)id * 2654435761u;
    for (;; i++) {
        struct seen *s = &h->slots[i & h->mask];
        if (s->id == id || s->id < 0) {
            s->id = id;
            *(prompt ? &s->prompt : &s->generated) += 1;
            return;
        }
    }
}

/* ---- parameters ---- */

void sampler_params_default(struct token_params *p)
{
    *p = (struct token_params){
        .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n = 1, .best_of = 1, .logprobs = -1};
}

static int range(const char *name, float v, double min, double max, bool open_min, struct error *err)
{
    if (isfinite(v) && (open_min ? (double)v > min : (double)v >= min) && (double)v <= max)
        return 0;
    return error_set(err, STATUS_INVALID, "%s is %g; accepted: %s %g to %g", name, (double)v, open_min ? "above" : "", min,
                     max);
}

int sampler_params_check(const struct token_params *p, uint32_t n_vocab, struct error *err)
{
    int rc = range("temperature", p->temperature, 0, 100, false, err);
    if (rc == 0)
        rc = range("top_p", p->top_p, 0, 1, true, err);
    if (rc == 0)
        rc = range("min_p", p->min_p, 0, 1, false, err);
    if (rc == 0)
        rc = range("typical_p", p->typical_p, 0, 1, true, err);
    if (rc == 0)
        rc = range("repetition_penalty", p->repetition_penalty, 0, 100, true, err);
    if (rc == 0)
        rc = range("frequency_penalty", p->frequency_penalty, -2, 2, false, err);
    if (rc == 0)
        rc = range("presence_penalty", p->presence_penalty, -2, 2, false, err);
    if (rc < 0)
        return rc;
    if (p->top_k < -1)
        return error_set(err, STATUS_INVALID, "top_k is %d; accepted: 0 or -1 (off), or from 1", p->top_k);
    if (p->logprobs < -1 || p->logprobs > SAMPLER_TOP_LOGPROBS_MAX)
        return error_set(err, STATUS_INVALID, "top_logprobs is %d; accepted: 0 to %d", p->logprobs, SAMPLER_TOP_LOGPROBS_MAX);
    if (p->n < 1 || p->n > 128 || p->best_of < p->n || p->best_of > 128)
        return error_set(err, STATUS_INVALID, "n is %u and best_of is %u; accepted: 1 to 128 with best_of >= n", p->n,
                         p->best_of);
    if (p->max_tok && p->min_tok > p->max_tok)
        return error_set(err, STATUS_INVALID, "min_tokens is %u, more than max_tokens (%u)", p->min_tok, p->max_tok);
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= n_vocab)
            return error_set(err, STATUS_INVALID, "logit_bias names token %d; the vocabulary has 0 to %u", p->bias[i].id,
                             n_vocab - 1);
        if (!(p->bias[i].bias >= -100 && p->bias[i].bias <= 100))
            return error_set(err, STATUS_INVALID, "logit_bias of token %d is %g; accepted: -100 to 100", p->bias[i].id,
                             (double)p->bias[i].bias);
    }
    for (size_t i = 0; i < p->n_stop_ids; i++)
        if (p->stop_ids[i] < 0 || (uint32_t)p->stop_ids[i] >= n_vocab)
            return error_set(err, STATUS_INVALID, "stop_token_ids names token %d; the vocabulary has 0 to %u", p->stop_ids[i],
                             n_vocab - 1);
    return 0;
}

/* ---- the chain ---- */

struct sampler {
    const struct kernels *k;
    uint32_t n_vocab;
    uint32_t *idx;   /* [n_vocab]: candidates, best first */
    uint32_t *order; /* [n_vocab]: typical's order */
    float *val;      /* [n_vocab]: the candidates' logits, then probabilities */
    float *aux;      /* [n_vocab]: typical's deviations */
    float *raw;      /* [n_vocab]: logits before anything was applied, for log-probabilities */
};

struct sampler *sampler_create(const struct kernels *k, uint32_t n_vocab)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->k = k;
    s->n_vocab = n_vocab;
    s->idx = calloc(n_vocab, sizeof *s->idx);
    s->val = calloc(n_vocab, sizeof *s->val);
    s->aux = calloc(n_vocab, sizeof *s->aux);
    s->raw = calloc(n_vocab, sizeof *s->raw);
    s->order = calloc(n_vocab, sizeof *s->order);
    if (!s->idx || !s->val || !s->aux || !s->raw || !s->order) {
        sampler_destroy(s);
        return NULL;
    }
    return s;
}

void sampler_destroy(struct sampler *s)
{
    if (!s)
        return;
    free(s->idx);
    free(s->val);
    free(s->aux);
    free(s->raw);
    free(s->order);
    free(s);
}

static void apply_bias(const struct sampler_input *in)
{
    for (size_t i = 0; i < in->params->n_bias; i++)
        in->logits[in->params->bias[i].id] += in->params->bias[i].bias;
}

static void apply_penalties(const struct sampler_input *in)
{
    const struct token_params *p = in->params;
    if (!in->history || (p->repetition_penalty == 1 && p->frequency_penalty == 0 && p->presence_penalty == 0))
        return;
    for (uint32_t i = 0; i <= in->history->mask; i++) {
        const struct seen *s = &in->history->slots[i];
        if (s->id < 0)
            continue;
        float *l = &in->logits[s->id];
        if (p->repetition_penalty != 1)
            *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
        *l -= p->frequency_penalty * (float)s->generated + (s->generated ? p->presence_penalty : 0);
    }
}

static bool is_end(const struct sampler_input *in, int32_t id)
{
    for (size_t i = 0; i < in->n_end_ids; i++)
        if (in->end_ids[i] == id)
            return true;
    return false;
}

static void forbid_ends(const struct sampler_input *in)
{
    for (size_t i = 0; in->forbid_end && i < in->n_end_ids; i++)
        in->logits[in->end_ids[i]] = -INFINITY;
}

static int apply_mask(const struct sampler *s, const struct sampler_input *in, struct error *err)
{
    const uint64_t *mask = in->constraint->mask(in->constraint->ctx);
    if (!mask)
        return error_set(
            err, STATUS_NOMEM,
            "what the constraint allows here can't be computed: no token of the vocabulary goes on, it is too ambiguous, or "
            "memory ran out");
    for (uint32_t at = 0; at < s->n_vocab; at += 64) {
        uint64_t word = mask[at / 64];
        uint32_t end = MIN_OF(at + 64, s->n_vocab);
        for (uint32_t id = at; id < end && ~word; id++)
            in->logits[id] = word >> (id % 64) & 1 ? in->logits[id] : -INFINITY;
    }
    return 0;
}

/* Uniform in [0, 1), a pure function of (seed, choice, position). */
static double uniform(const struct sampler_input *in)
{
    uint32_t key[2] = {in->choice, in->position};
    return (double)(hash_bytes(key, sizeof key, in->seed) >> 11) * 0x1p-53;
}

/* Candidates whose deviation from the expected surprise is smallest, until they hold `mass`; keeps their order by probability. */
static uint32_t cut_typical(struct sampler *s, uint32_t n, float mass)
{
    double entropy = 0;
    for (uint32_t i = 0; i < n; i++)
        entropy -= s->val[i] > 0 ? (double)s->val[i] * log((double)s->val[i]) : 0;
    for (uint32_t i = 0; i < n; i++)
        s->aux[i] = s->val[i] > 0 ? -fabsf((float)(-log((double)s->val[i]) - entropy)) : -INFINITY;
    /* threshold: the deviation at which the mass is reached, found by taking the best ones in turn */
    double sum = 0;
    uint32_t kept = 0, want = n;
    s->k->top_k(s->aux, n, n, s->order, NULL);
    for (uint32_t i = 0; i < n && sum < (double)mass; i++, want = i)
        sum += (double)s->val[s->order[i]];
    float least = s->aux[s->order[want ? want - 1 : 0]];
    for (uint32_t i = 0; i < n; i++) {
        if (s->aux[i] < least)
            continue;
        s->val[kept] = s->val[i];
        s->idx[kept++] = s->idx[i];
    }
    return kept;
}

static uint32_t cut_top_p(const struct sampler *s, uint32_t n, float top_p)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += (double)s->val[i];
        if (sum >= (double)top_p)
            return i + 1;
    }
    return n;
}

static uint32_t cut_min_p(const struct sampler *s, uint32_t n, float min_p)
{
    uint32_t kept = 1;
    while (kept < n && s->val[kept] >= min_p * s->val[0])
        kept++;
    return kept;
}

static void normalise(struct sampler *s, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)s->val[i];
    for (uint32_t i = 0; i < n; i++)
        s->val[i] = (float)((double)s->val[i] / sum);
}

/* Walk the first n probabilities to the one that `u` falls into. */
static uint32_t walk(const float *p, uint32_t n, double sum, double u)
{
    double at = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < n; i++) {
        at += (double)p[i];
        if (p[i] > 0)
            last = i;
        if (u * sum < at)
            return i;
    }
    return last; /* rounding left u at the very end */
}

/* The best candidates as probabilities, as many as the filters behind can look at: top_k of them, or (found by doubling) enough for
 * top-p or min-p, or all. Returns how many. `logits` are already divided by the temperature, `total` is the sum of exp(l - best). */
static uint32_t gather(struct sampler *s, const struct sampler_input *in, double total)
{
    const struct token_params *p = in->params;
    bool fixed = p->top_k > 0 && (uint32_t)p->top_k < s->n_vocab;
    uint32_t n = fixed ? (uint32_t)p->top_k : p->typical_p < 1 ? s->n_vocab : MIN_OF(64u, s->n_vocab);
    for (;; n = n < s->n_vocab / 4 ? n * 4 : s->n_vocab) {
        double sum = 0;
        s->k->top_k(in->logits, s->n_vocab, n, s->idx, s->val);
        float best = s->val[0];
        for (uint32_t i = 0; i < n; i++) {
            s->val[i] = s->val[i] > -INFINITY ? expf(s->val[i] - best) : 0;
            sum += (double)s->val[i];
        }
        bool enough = (p->top_p < 1 && sum >= (double)p->top_p * total) || (p->min_p > 0 && s->val[n - 1] < p->min_p);
        if (!fixed && !enough && n < s->n_vocab)
            continue;
        for (uint32_t i = 0; i < n; i++)
            s->val[i] = (float)((double)s->val[i] / (fixed ? sum : total));
        return n;
    }
}

static int32_t pick(struct sampler *s, const struct sampler_input *in)
{
    const struct token_params *p = in->params;
    s->k->scale(in->logits, s->n_vocab, 1 / p->temperature);
    uint32_t best = s->k->argmax(in->logits, s->n_vocab);
    double total = (double)s->k->exp_sum(in->logits, s->n_vocab, in->logits[best], s->val), u = uniform(in);
    if (p->top_k <= 0 && p->top_p >= 1 && p->typical_p >= 1 && p->min_p <= 0)
        return (int32_t)walk(s->val, s->n_vocab, total, u);
    uint32_t n = gather(s, in, total);
    if (p->typical_p < 1) {
        n = cut_typical(s, n, p->typical_p);
        normalise(s, n);
    }
    if (p->top_p < 1)
        n = cut_top_p(s, n, p->top_p);
    if (p->min_p > 0)
        n = cut_min_p(s, n, p->min_p);
    normalise(s, n);
    return (int32_t)s->idx[walk(s->val, n, 1, u)];
}

static int32_t choose(struct sampler *s, const struct sampler_input *in)
{
    return in->params->temperature == 0 ? (int32_t)s->k->argmax(in->logits, s->n_vocab) : pick(s, in);
}

/* log-softmax of the raw logits for the asked alternatives. Returns log(sum(exp)). */
static float take_top(struct sampler *s, const struct sampler_input *in, struct sampler_output *out)
{
    float lse = s->k->logsumexp(in->logits, s->n_vocab);
    out->n_top = in->params->logprobs > 0 ? MIN_OF((uint32_t)in->params->logprobs, s->n_vocab) : 0;
    if (out->n_top) {
        s->k->top_k(in->logits, s->n_vocab, out->n_top, s->idx, s->val);
        for (uint32_t i = 0; i < out->n_top; i++) {
            out->top_id[i] = (int32_t)s->idx[i];
            out->top_logprob[i] = s->val[i] - lse;
        }
    }
    return lse;
}

/* A greedy choice that the grammar allows is also the best of the allowed ones, so the mask is made only when it isn't. Sampling masks
 * first: top-k and top-p must count allowed tokens only. */
static int choose_allowed(struct sampler *s, const struct sampler_input *in, int32_t *id, struct error *err)
{
    if (in->constraint && in->params->temperature > 0) {
        int rc = apply_mask(s, in, err);
        if (rc < 0)
            return rc;
    }
    *id = choose(s, in);
    if (!in->constraint || in->params->temperature > 0 || in->constraint->allows(in->constraint->ctx, *id))
        return 0;
    int rc = apply_mask(s, in, err);
    if (rc == 0)
        *id = choose(s, in);
    return rc;
}

int sampler_next(struct sampler *s, const struct sampler_input *in, struct sampler_output *out, struct error *err)
{
    bool logprobs = in->params->logprobs >= 0;
    float lse = 0;
    *out = (struct sampler_output){.id = -1};
    if (logprobs) {
        lse = take_top(s, in, out);
        memcpy(s->raw, in->logits, s->n_vocab * sizeof *s->raw);
    }
    apply_bias(in);
    apply_penalties(in);
    forbid_ends(in);
    int rc = choose_allowed(s, in, &out->id, err);
    if (rc < 0)
        return rc;
    if (!(in->logits[out->id] > -INFINITY) || (in->forbid_end && is_end(in, out->id)))
        return error_set(err, STATUS_INTERNAL, "the model gave no usable token (all were NaN or excluded)");
    if (logprobs)
        out->logprob = s->raw[out->id] - lse;
    return 0;
}
