/* spec.c: see spec.h. */
#include "engine/llm/spec.h"

#include "base/size.h"

#define LOOK_BACK     16384u
#define NGRAM_MAX     4u
#define NGRAM_MIN     2u
#define TRY_AGAIN     64u   /* steps without a guess before one is tried; twice as many after each that was wrong, */
#define TRY_SELDOM    1024u /* up to so many */
#define TRY_LEN       3u    /* its length */
#define FIRST_RIGHT   0.5f  /* share of right guesses before anything is known */
#define UNKNOWN_SLOPE 0.03  /* a column more than any seen is taken to cost so much of the step: an invitation to find out */
#define COST_WEIGHT   0.125 /* of a new observation in an average */
#define RIGHT_WEIGHT  0.06f /* likewise */

/* ---- prompt lookup ---- */

/* How many tokens before `at` equal those before `n`, at most NGRAM_MAX. */
static uint32_t match(const int32_t *tokens, uint32_t n, uint32_t at)
{
    uint32_t len = 0;
    while (len < NGRAM_MAX && len < at && tokens[at - 1 - len] == tokens[n - 1 - len])
        len++;
    return len;
}

uint32_t spec_lookup(const int32_t *tokens, uint32_t n, uint32_t max, int32_t *out)
{
    uint32_t best = NGRAM_MIN - 1, from = 0, stop = n > LOOK_BACK ? n - LOOK_BACK : 0, given = 0;
    for (uint32_t at = n; at-- > stop + 1 && best < NGRAM_MAX;) {
        if (tokens[at - 1] != tokens[n - 1])
            continue;
        uint32_t len = match(tokens, n, at);
        if (len > best) {
            best = len;
            from = at;
        }
    }
    while (from && given < max && from + given < n) {
        out[given] = tokens[from + given];
        given++;
    }
    return given;
}

/* ---- does it pay ---- */

void spec_gate_init(struct spec_gate *g)
{
    *g = (struct spec_gate){.right = FIRST_RIGHT};
}

/* Expected cost of a step of c columns. */
static double cost_of(const struct spec_gate *g, uint32_t c)
{
    uint32_t below = c, above = c;
    while (below > 0 && g->cost_ns[below] <= 0)
        below--;
    while (above < SPEC_COLS_MAX && g->cost_ns[above] <= 0)
        above++;
    double lo = g->cost_ns[below], hi = g->cost_ns[above];
    if (below == 0)
        return hi;
    if (above == below)
        return lo;
    if (hi <= 0)
        return lo * (1 + UNKNOWN_SLOPE * (c - below));
    return lo + (hi - lo) * (c - below) / (above - below);
}

static double probability(const struct spec_gate *g, const struct spec_record *r)
{
    return (double)(r->known ? r->right : g->right);
}

/* Guesses of one sequence at a threshold, and how many of them are expected to be right: each with p, as long as those before it are. */
static uint32_t guesses_at(double p, uint32_t len, double threshold, double *right)
{
    uint32_t n = 0;
    double all = p;
    *right = 0;
    for (; n < len && all >= threshold; n++, all *= p)
        *right += all;
    return n;
}

static double tokens_a_ns(const struct spec_gate *g, const struct spec_want *wants, uint32_t n_wants, uint32_t n_decode,
                          double threshold, uint32_t max_cols)
{
    double tokens = n_decode, right;
    uint32_t cols = n_decode, longest = 0;
    for (uint32_t i = 0; i < n_wants; i++) {
        uint32_t n = guesses_at(probability(g, wants[i].record), wants[i].len, threshold, &right);
        tokens += right;
        cols += n;
        longest = MAX_OF(longest, n);
    }
    return cols > max_cols ? -1 : tokens / (cost_of(g, cols) + g->guess_ns * longest);
}

/* The best threshold; above 1: no guesses. */
static double choose(const struct spec_gate *g, const struct spec_want *wants, uint32_t n_wants, uint32_t n_decode,
                     uint32_t max_cols)
{
    static const double thresholds[] = {0.9, 0.75, 0.6, 0.45, 0.33, 0.22, 0.14, 0.08, 0.04};
    double best = 2, most = tokens_a_ns(g, wants, n_wants, n_decode, best, max_cols);
    for (size_t i = 0; i < COUNT_OF(thresholds); i++) {
        double rate = tokens_a_ns(g, wants, n_wants, n_decode, thresholds[i], max_cols);
        if (rate > most) {
            most = rate;
            best = thresholds[i];
        }
    }
    return best;
}

void spec_gate_plan(struct spec_gate *g, struct spec_want *wants, uint32_t n_wants, uint32_t n_decode, uint32_t max_cols)
{
    uint32_t cols = n_decode;
    max_cols = MIN_OF(max_cols, (uint32_t)SPEC_COLS_MAX);
    /* a step of these decodes alone must be known first, or there is nothing to compare with */
    bool may = n_decode < max_cols && g->cost_ns[n_decode] > 0;
    double threshold = may ? choose(g, wants, n_wants, n_decode, max_cols) : 2, right;
    for (uint32_t i = 0; i < n_wants; i++) {
        struct spec_want *w = &wants[i];
        w->guess = guesses_at(probability(g, w->record), MIN_OF(w->len, (uint32_t)SPEC_GUESS_MAX), threshold, &right);
        if (may && !w->guess && ++w->record->idle >= MAX_OF(w->record->wait, TRY_AGAIN))
            w->guess = MIN_OF(TRY_LEN, w->len);
        w->guess = MIN_OF(w->guess, max_cols > cols ? max_cols - cols : 0);
        cols += w->guess;
        if (w->guess)
            w->record->idle = 0;
    }
}

static void average(double *to, double v)
{
    *to += *to > 0 ? COST_WEIGHT * (v - *to) : v;
}

void spec_gate_cost(struct spec_gate *g, uint32_t n_cols, uint64_t ns)
{
    if (n_cols <= SPEC_COLS_MAX)
        average(&g->cost_ns[n_cols], (double)ns);
}

void spec_gate_guess_cost(struct spec_gate *g, uint32_t k, uint64_t ns)
{
    if (k)
        average(&g->guess_ns, (double)ns / k);
}

void spec_gate_outcome(struct spec_gate *g, struct spec_record *r, uint32_t n, uint32_t right)
{
    uint32_t looked_at = MIN_OF(right + 1, n); /* those behind the first wrong one say nothing */
    if (!r->known)
        *r = (struct spec_record){.right = g->right, .known = true};
    r->wait = right ? TRY_AGAIN : MIN_OF(MAX_OF(r->wait, TRY_AGAIN) * 2, TRY_SELDOM);
    for (uint32_t i = 0; i < looked_at; i++) {
        float v = i < right ? 1.0f : 0.0f;
        r->right += RIGHT_WEIGHT * (v - r->right);
        g->right += RIGHT_WEIGHT / 4 * (v - g->right);
    }
}
