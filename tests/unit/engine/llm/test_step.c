/* test_step.c: the step planner under a fake clock: order, budget, sharing, preemption, fairness; and long random runs with a pool that is
 * far too small, after which everybody must have finished. Expected plans are worked out by hand from the rules in step.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rand.h"
#include "base/status.h"
#include "engine/llm/step.h"

#define MAX_TOK 2048

struct seq {
    struct step_seq s;
    int32_t tokens[MAX_TOK];
    uint32_t table[MAX_TOK / KV_BLOCK_TOK + 1];
};

static struct seq *make(uint32_t n_tok, uint32_t limit, int32_t first)
{
    struct seq *q = calloc(1, sizeof *q);
    for (uint32_t i = 0; i < MAX_TOK; i++)
        q->tokens[i] = first + (int32_t)i;
    q->s = (struct step_seq){.tokens = q->tokens, .n_tok = n_tok, .limit_tok = limit, .table = q->table};
    return q;
}

/* Every prompt in parts: those that are read whole have tests of their own. */
static struct step *planner(struct blocks *b, uint32_t max_tok, uint64_t target_ns)
{
    struct step_config c;
    step_config_default(&c);
    c.short_prompt_ns = 0;
    c.max_tok = max_tok;
    c.target_step_ns = target_ns;
    if (!target_ns)
        c.stretch = 0;
    c.max_waiting = 64;
    return step_create(&c, b);
}

static const struct step_item *item_of(const struct step_plan *p, const struct seq *q)
{
    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].seq == &q->s)
            return &p->items[i];
    return NULL;
}

static void expect_item(const struct step_plan *p, const struct seq *q, uint32_t first, uint32_t n, bool last)
{
    const struct step_item *it = item_of(p, q);
    assert_non_null(it);
    assert_int_equal(it->first, first);
    assert_int_equal(it->n, n);
    assert_int_equal(it->last, last);
}

static void finish(struct step *s, struct seq *q)
{
    step_remove(s, &q->s);
    free(q);
}

static void decodes_first_then_chunks(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(64, 1);
    struct step *s = planner(b, 100, 0);
    struct seq *a = make(10, 50, 0), *c = make(300, 310, 5000);
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    const struct step_plan *p = step_next(s);
    expect_item(p, a, 0, 10, true);
    step_done(s, 1000);
    a->s.n_tok++; /* sampled */
    assert_int_equal(step_admit(s, &c->s, NULL), 0);
    p = step_next(s);
    assert_ptr_equal(p->items[0].seq, &a->s);
    expect_item(p, a, 10, 1, true);
    expect_item(p, c, 0, 99, false);
    assert_int_equal(p->n_decode, 1);
    step_done(s, 1000);
    a->s.n_tok++;
    p = step_next(s);
    expect_item(p, c, 99, 99, false);
    step_done(s, 1000);
    finish(s, a);
    p = step_next(s);
    expect_item(p, c, 198, 100, false);
    step_done(s, 1000);
    p = step_next(s);
    expect_item(p, c, 298, 2, true);
    step_done(s, 1000);
    finish(s, c);
    assert_int_equal(step_next(s)->n_items, 0);
    step_destroy(s);
    blocks_destroy(b);
}

static void prompts_share_the_budget(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(128, 1);
    struct step *s = planner(b, 200, 0);
    struct seq *x = make(1000, 1001, 0), *y = make(150, 151, 5000);
    assert_int_equal(step_admit(s, &x->s, NULL), 0);
    expect_item(step_next(s), x, 0, 200, false);
    step_done(s, 1000);
    assert_int_equal(step_admit(s, &y->s, NULL), 0);
    step_next(s); /* x alone still has the whole budget: y is waiting */
    step_done(s, 1000);
    finish(s, y);
    y = make(150, 151, 5000);
    finish(s, x);
    x = make(1000, 1001, 9000);
    assert_int_equal(step_admit(s, &y->s, NULL), 0);
    assert_int_equal(step_admit(s, &x->s, NULL), 0);
    const struct step_plan *p = step_next(s);
    expect_item(p, y, 0, 150, true);
    expect_item(p, x, 0, 50, false);
    step_done(s, 1000);
    finish(s, x);
    finish(s, y);
    step_destroy(s);
    blocks_destroy(b);
}

/* A prompt of 1,000 tokens alone, 20 us each; then decodes alone take 2 ms. `want`: tokens of a second prompt beside them. */
static void prompt_beside_decode(uint64_t target_ns, uint32_t want)
{
    struct blocks *b = blocks_create(256, 1);
    struct step *s = planner(b, 1024, target_ns);
    struct seq *a = make(1000, 1200, 0), *c = make(2000, 2001, 5000);
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    assert_int_equal(step_next(s)->n_tok, 1000);
    step_done(s, 20000000);
    for (int i = 0; i < 64; i++) {
        a->s.n_tok++;
        step_next(s);
        step_done(s, 2000000);
    }
    a->s.n_tok++;
    assert_int_equal(step_admit(s, &c->s, NULL), 0);
    for (uint32_t i = 0; i < 5; i++) {
        const struct step_plan *p = step_next(s);
        expect_item(p, c, i * want, want, false);
        step_done(s, 2000000 + 20000ull * want);
        a->s.n_tok++;
    }
    finish(s, a);
    finish(s, c);
    step_destroy(s);
    blocks_destroy(b);
}

static void target_time_limits_prompts_beside_decodes(void **state)
{
    (void)state;
    prompt_beside_decode(10000000, 125); /* (2.25 * 2 ms - 2 ms) / 20 us: the target of 10 ms is more */
    prompt_beside_decode(4000000, 100);  /* (4 ms - 2 ms) / 20 us */
}

/* A target that can't be met, and nothing known of prompts (the first was one token, so a decode): a token a step all the same. */
static void a_prompt_always_gets_a_token(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(256, 1);
    struct step *s = planner(b, 1024, 1000000);
    struct seq *a = make(1, 1000, 0), *c = make(20, 21, 5000);
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    step_next(s);
    step_done(s, 2000000);
    assert_int_equal(step_admit(s, &c->s, NULL), 0);
    for (uint32_t i = 0; i < 20; i++) {
        a->s.n_tok++;
        expect_item(step_next(s), c, i, 1, i == 19);
        step_done(s, 2020000);
    }
    finish(s, a);
    finish(s, c);
    step_destroy(s);
    blocks_destroy(b);
}

/* The machine of issue 3's budget, as measured: 8 decodes take 63 ms, a prompt token 7.4 ms at position 0 and as much again every 4,096. An 8,192
 * token prompt runs alone in chunks of 2,048, then beside 8 streams. By hand: a chunk of n at position p may cost 1.25 * 63 = 79 ms:
 * n = 79 / (7.4 * (1 + p / 4096)): 10.6 at 0, 5.3 at 4,096, 3.6 at 8,000, and a little more as the decodes grow by a fifth till then: they
 * read keys at the same price. */
static double long_prompt_ms(const struct step_item *it)
{
    return it && it->n > 1 ? 7.4 * it->n * (1 + (it->first + 0.5 * it->n) / 4096) : 0;
}

struct beside {
    double stretch; /* the longest step as a multiple of its decodes alone */
    double prompt_ms, all_ms;
    uint32_t chunk_at[3]; /* at 0, 4,096 and 8,000 */
};

/* Run until `c` has computed `upto`, with 8 streams if there are any. `noise`: a step takes up to so much more or less. */
static struct beside run_long(struct step *s, struct seq *c, uint32_t upto, struct seq **streams, double noise)
{
    struct beside r = {0};
    struct rand rnd;
    rand_init(&rnd, 3);
    while (c->s.n_computed < upto) {
        const struct step_plan *p = step_next(s);
        const struct step_item *it = item_of(p, c);
        double prompt = long_prompt_ms(it), decodes = p->n_decode ? 63 : 0;
        for (int i = 0; streams && i < 8; i++)
            decodes += 7.4 * streams[i]->s.n_computed / 4096;
        double t = prompt + decodes;
        if (it) {
            uint32_t at = it->first < 4096 ? 0 : it->first < 8000 ? 1 : 2;
            r.chunk_at[at] = r.chunk_at[at] ? r.chunk_at[at] : it->n;
        }
        t *= 1 + noise * (2 * (double)rand_below(&rnd, 1001) / 1000 - 1);
        r.stretch = decodes > 0 && t > r.stretch * decodes ? t / decodes : r.stretch;
        r.prompt_ms += prompt;
        r.all_ms += t;
        step_done(s, (uint64_t)(t * 1e6));
        for (int i = 0; streams && i < 8; i++)
            streams[i]->s.n_tok += streams[i]->s.n_computed == streams[i]->s.n_tok;
    }
    return r;
}

static void long_prompt_beside_streams(double noise, struct beside *r)
{
    enum { LONG = 8192 };
    static int32_t tokens[2][LONG + 1];
    static uint32_t tables[2][LONG / KV_BLOCK_TOK + 1];
    struct blocks *b = blocks_create(2048, 1);
    struct step *s = planner(b, 2048, UINT64_MAX);
    struct seq *streams[8], longs[2];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k <= LONG; k++)
            tokens[i][k] = 10000 * (i + 1) + k;
        longs[i] = (struct seq){.s = {.tokens = tokens[i], .n_tok = LONG, .limit_tok = LONG + 1, .table = tables[i]}};
    }
    assert_int_equal(step_admit(s, &longs[0].s, NULL), 0);
    run_long(s, &longs[0], LONG, NULL, noise);
    step_remove(s, &longs[0].s);
    for (int i = 0; i < 8; i++) {
        streams[i] = make(1, MAX_TOK, 100000 * (i + 1));
        assert_int_equal(step_admit(s, &streams[i]->s, NULL), 0);
    }
    run_long(s, streams[0], 40, streams, noise); /* steps of decodes alone */
    assert_int_equal(step_admit(s, &longs[1].s, NULL), 0);
    *r = run_long(s, &longs[1], LONG, streams, noise);
    step_remove(s, &longs[1].s);
    for (int i = 0; i < 8; i++)
        finish(s, streams[i]);
    step_destroy(s);
    blocks_destroy(b);
}

static void a_deep_prompt_keeps_the_gap(void **state)
{
    (void)state;
    struct beside r;
    long_prompt_beside_streams(0, &r);
    assert_in_range(r.chunk_at[0], 10, 11);
    assert_in_range(r.chunk_at[1], 5, 6);
    assert_in_range(r.chunk_at[2], 4, 5);
    assert_true(r.stretch <= 2.25 + 0.15); /* half a token more is 11 ms of 77 at the end */
    assert_true(r.all_ms <= 2 * r.prompt_ms);
    long_prompt_beside_streams(0.15, &r);
    print_message("noise of 15 %%: longest %.2f of its decodes, the prompt after %.2f of alone\n", r.stretch,
                  r.all_ms / r.prompt_ms);
    assert_true(r.stretch <= 3);
    assert_true(r.all_ms <= 2 * r.prompt_ms);
}

/* A machine whose step of n decodes takes 10 + 2n ms and whose prompt token takes 0.4 ms more with depth, under streams that come and go while
 * prompts are always being read, so that decodes are never alone: nearly all steps stay below three times the decodes', and the prompts
 * get at least 40 % of the time. */
static void costs_are_learned_from_mixed_steps(void **state)
{
    (void)state;
    enum { STREAMS = 16 };
    struct blocks *b = blocks_create(4096, 1);
    struct step *s = planner(b, 1024, UINT64_MAX);
    struct seq *stream[STREAMS] = {0}, *prompt = NULL;
    struct rand r;
    uint32_t mixed = 0, too_long = 0;
    double prompt_ns = 0, total_ns = 0;
    rand_init(&r, 5);
    for (int step = 0; step < 6000; step++) {
        size_t at = rand_below(&r, STREAMS);
        if (step % 50 == 0 && stream[at]) {
            finish(s, stream[at]);
            stream[at] = NULL;
        } else if (step % 50 == 0 || (step < 16 && !stream[at])) {
            stream[at] = make(1, MAX_TOK, (int32_t)step * MAX_TOK);
            assert_int_equal(step_admit(s, &stream[at]->s, NULL), 0);
        }
        if (!prompt) {
            prompt = make(2000, MAX_TOK, (int32_t)step * MAX_TOK);
            assert_int_equal(step_admit(s, &prompt->s, NULL), 0);
        }
        const struct step_plan *p = step_next(s);
        const struct step_item *it = item_of(p, prompt);
        double d = p->n_decode ? 1e7 + 2e6 * p->n_decode : 0, n = p->n_tok - p->n_decode;
        double each = it ? 4e5 * (1 + it->first / 2000.0) : 4e5, noise = 0.9 + 0.2 * (double)rand_below(&r, 1000) / 1000;
        double t = (d + n * each) * noise;
        if (step > 500 && p->n_decode && n > 0) {
            mixed++;
            too_long += t > 3 * d;
            prompt_ns += n * each;
            total_ns += t;
        }
        step_done(s, (uint64_t)t);
        for (size_t i = 0; i < STREAMS; i++) {
            if (stream[i] && stream[i]->s.n_computed == stream[i]->s.n_tok)
                stream[i]->s.n_tok++;
            if (stream[i] && stream[i]->s.n_tok == MAX_TOK) {
                finish(s, stream[i]);
                stream[i] = NULL;
            }
        }
        if (prompt->s.n_computed == prompt->s.n_tok) {
            finish(s, prompt);
            prompt = NULL;
        }
    }
    print_message("%u of %u mixed steps too long, prompts got %.2f of the time\n", too_long, mixed, prompt_ns / total_ns);
    assert_true(mixed > 4000 && too_long <= mixed / 50);
    assert_true(prompt_ns >= 0.4 * total_ns);
    for (size_t i = 0; i < STREAMS; i++)
        if (stream[i])
            finish(s, stream[i]);
    if (prompt)
        finish(s, prompt);
    step_destroy(s);
    blocks_destroy(b);
}

/* ---- short prompts ---- */

/* Prompt tokens of 0.1 ms and decodes of 10 ms are known, and one stream decodes; `short_ms` bounds what is read whole. */
static struct step *taught(struct blocks *b, uint64_t short_ms, struct seq **stream)
{
    struct step_config c;
    step_config_default(&c);
    c.short_prompt_ns = short_ms * 1000000;
    struct step *s = step_create(&c, b);
    *stream = make(256, MAX_TOK, -5000);
    assert_int_equal(step_admit(s, &(*stream)->s, NULL), 0);
    assert_int_equal(step_next(s)->n_tok, 256);
    step_done(s, 25600000);
    for (int i = 0; i < 3; i++) {
        (*stream)->s.n_tok++;
        assert_int_equal(step_next(s)->n_tok, 1);
        step_done(s, 10000000);
    }
    (*stream)->s.n_tok++;
    return s;
}

/* 0.1 ms a token: 2,000 tokens are 200 ms and long, 300 and 200 are short. The long one came first and gets (2.25 - 1) * 10 ms = 125 tokens a step,
 * no more and no less; of the short ones the first is taken whole, the second isn't squeezed in beside it. */
static void short_prompts_go_whole_and_in_order(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(512, 1);
    struct seq *stream, *q[3];
    struct step *s = taught(b, 50, &stream);
    static const uint32_t lengths[3] = {2000, 300, 200};
    for (int i = 0; i < 3; i++) {
        q[i] = make(lengths[i], MAX_TOK, 5000 * (i + 1));
        assert_int_equal(step_admit(s, &q[i]->s, NULL), 0);
    }
    const struct step_plan *p = step_next(s);
    expect_item(p, stream, 259, 1, true);
    expect_item(p, q[0], 0, 125, false);
    expect_item(p, q[1], 0, 300, true);
    assert_null(item_of(p, q[2]));
    step_done(s, 52500000);
    stream->s.n_tok++, q[1]->s.n_tok++;
    p = step_next(s); /* two decodes: what they cost alone is not known yet */
    assert_int_equal(p->n_tok, 2);
    step_done(s, 10000000);
    stream->s.n_tok++, q[1]->s.n_tok++;
    p = step_next(s);
    expect_item(p, q[0], 125, 125, false);
    expect_item(p, q[2], 0, 200, true);
    assert_int_equal(p->n_decode, 2);
    step_done(s, 42500000);
    for (int i = 0; i < 3; i++)
        finish(s, q[i]);
    finish(s, stream);
    step_destroy(s);
    blocks_destroy(b);
}

/* 1,000 tokens are 100 ms, twice what is short: half of those 50 ms a step, 250 tokens, which is more than the 125 of a long one. */
static void longer_prompts_get_less_by_degrees(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(512, 1);
    struct seq *stream, *q = make(1000, MAX_TOK, 5000);
    struct step *s = taught(b, 50, &stream);
    assert_int_equal(step_admit(s, &q->s, NULL), 0);
    for (uint32_t i = 0; i < 4; i++) {
        expect_item(step_next(s), q, i * 250, 250, i == 3);
        step_done(s, 35000000);
        stream->s.n_tok++;
    }
    finish(s, q);
    finish(s, stream);
    step_destroy(s);
    blocks_destroy(b);
}

/* One decode with 8 guesses is a step of nine columns: alone 18 ms, once that has been seen, so that a long prompt gets 1.25 * 18 = 22.5 ms or 225
 * tokens beside it, and 125 where the stream guesses nothing. */
static void guesses_count_as_decodes(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(512, 1);
    struct seq *stream, *q = make(2000, MAX_TOK, 5000);
    struct step *s = taught(b, 50, &stream);
    assert_int_equal(step_admit(s, &q->s, NULL), 0);
    stream->s.n_draft = 8;
    assert_int_equal(step_next(s)->n_tok, 9);
    step_done(s, 18000000);
    stream->s.n_tok++;
    stream->s.n_draft = 8;
    expect_item(step_next(s), q, 0, 225, false);
    step_done(s, 40500000);
    stream->s.n_tok++;
    expect_item(step_next(s), q, 225, 125, false);
    step_done(s, 22500000);
    finish(s, q);
    finish(s, stream);
    step_destroy(s);
    blocks_destroy(b);
}

/* Few tokens go together: of ten prompts of 60, four are 240 of the 256 tokens that a step of them takes. What a long one would get beside decodes
 * of 10 ms, 12.5 ms or 125 tokens, goes to the next three. */
static void tiny_prompts_go_together(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(512, 1);
    struct seq *stream, *q[10];
    struct step *s = taught(b, 50, &stream);
    for (int i = 0; i < 10; i++) {
        q[i] = make(60, 61, 5000 * (i + 1));
        assert_int_equal(step_admit(s, &q[i]->s, NULL), 0);
    }
    const struct step_plan *p = step_next(s);
    assert_int_equal(p->n_tok, 1 + 4 * 60 + 125);
    for (int i = 0; i < 6; i++)
        expect_item(p, q[i], 0, 60, true);
    step_done(s, 46500000);
    for (int i = 0; i < 10; i++)
        finish(s, q[i]);
    finish(s, stream);
    step_destroy(s);
    blocks_destroy(b);
}

/* What the prefix cache has costs nothing: a prompt of 1,000 tokens of which 896 are cached is short once it has started. */
static void a_cached_beginning_makes_a_prompt_short(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(512, 1);
    struct seq *stream, *first = make(1000, 1001, 5000), *again = make(1000, 1001, 5000);
    struct step *s = taught(b, 50, &stream);
    step_remove(s, &stream->s);
    memset(again->tokens + 900, 0, 100 * sizeof *again->tokens);
    assert_int_equal(step_admit(s, &first->s, NULL), 0);
    while (first->s.n_computed < 1000) {
        const struct step_plan *p = step_next(s);
        step_done(s, p->n_tok * 100000);
    }
    finish(s, first);
    assert_int_equal(step_admit(s, &again->s, NULL), 0);
    expect_item(step_next(s), again, 896, 104, true);
    step_done(s, 10400000);
    finish(s, again);
    free(stream);
    step_destroy(s);
    blocks_destroy(b);
}

/* Where a target time is given, no short prompt makes a step longer either: 20 ms less 10 for the decodes are 100 tokens. */
static void the_target_time_holds_for_short_prompts(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(512, 1);
    struct seq *stream, *q = make(300, 301, 5000);
    struct step *s = taught(b, 50, &stream);
    step_remove(s, &stream->s);
    step_destroy(s);
    free(stream);
    struct step_config c;
    step_config_default(&c);
    c.target_step_ns = 20000000;
    s = step_create(&c, b);
    stream = make(256, MAX_TOK, 900000);
    assert_int_equal(step_admit(s, &stream->s, NULL), 0);
    step_next(s);
    step_done(s, 25600000);
    for (int i = 0; i < 2; i++) {
        stream->s.n_tok++;
        step_next(s);
        step_done(s, 10000000);
    }
    stream->s.n_tok++;
    assert_int_equal(step_admit(s, &q->s, NULL), 0);
    expect_item(step_next(s), q, 0, 100, false);
    step_done(s, 20000000);
    finish(s, stream);
    finish(s, q);
    step_destroy(s);
    blocks_destroy(b);
}

/* ---- under load ---- */

/* SmolLM2 on two cores, in ms as bench/llm_steps.c has them: a prompt token 0.54 and 0.0005 more for each 1.1 positions before it, a step of n
 * decodes 2 + n. Requests of 256 tokens and 64 of an answer come at random, 70 % of what the machine can do: 138 ms + 63 * (2 / 16 + 1) =
 * 209 ms each with 16 at once, 4.8/s, so 3.35/s. What is returned: times to the first token, sorted. */
#define LOAD_REQUESTS 200

struct served {
    double mean, p95, longest_step;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double load_step_ms(const struct step_plan *p, double slower)
{
    double t = p->n_decode ? 2 + p->n_decode : 2;
    for (size_t i = 0; i < p->n_items; i++)
        if (p->items[i].n > 1)
            t += p->items[i].n * (0.51 + 0.00045 * (p->items[i].first + 0.5 * p->items[i].n));
    return t * slower;
}

static struct served serve_load(uint64_t short_ms, double rate, double slower)
{
    enum { LIVE = 256 };
    static double arrivals[LOAD_REQUESTS], first[LOAD_REQUESTS];
    struct step_config c;
    struct served r = {0};
    struct rand rnd;
    struct seq *live[LIVE] = {0};
    int of[LIVE], next = 0, n_first = 0;
    struct blocks *b = blocks_create(256, 1);
    step_config_default(&c);
    c.short_prompt_ns = short_ms * 1000000;
    struct step *s = step_create(&c, b);
    double now = 0;
    rand_init(&rnd, 9);
    for (int i = 0; i < LOAD_REQUESTS; i++)
        arrivals[i] = (i ? arrivals[i - 1] : 0) - 1000 / rate * log((1 + (double)rand_below(&rnd, 1000000)) / 1000001);
    for (int n_live = 0; next < LOAD_REQUESTS || n_live;) {
        if (!n_live && arrivals[next] > now)
            now = arrivals[next];
        for (int at = 0; next < LOAD_REQUESTS && arrivals[next] <= now; next++, n_live++) {
            while (live[at])
                assert_true(++at < LIVE);
            live[at] = make(256, 320, 400 * next);
            of[at] = next;
            assert_int_equal(step_admit(s, &live[at]->s, NULL), 0);
        }
        const struct step_plan *p = step_next(s);
        double took = load_step_ms(p, slower);
        r.longest_step = p->n_decode && took > r.longest_step ? took : r.longest_step;
        now += took;
        step_done(s, (uint64_t)(took * 1e6));
        for (int i = 0; i < LIVE; i++) {
            if (!live[i] || live[i]->s.n_computed < live[i]->s.n_tok)
                continue;
            if (live[i]->s.n_tok++ == 256)
                first[n_first++] = now - arrivals[of[i]];
            if (live[i]->s.n_tok == 320) {
                finish(s, live[i]);
                live[i] = NULL;
                n_live--;
            }
        }
    }
    qsort(first, LOAD_REQUESTS, sizeof *first, by_value);
    r.p95 = first[LOAD_REQUESTS * 95 / 100];
    for (int i = 0; i < LOAD_REQUESTS; i++)
        r.mean += first[i] / LOAD_REQUESTS;
    step_destroy(s);
    blocks_destroy(b);
    return r;
}

/* The floor: a machine that does nothing but read prompts, one after the other (M/D/1), has a mean of S + S * u / (2 * (1 - u)); S = 256 tokens =
 * 145 ms, u = 3.35 * 0.145 = 0.49: 215 ms. Ours also makes the answers meanwhile. */
static void first_tokens_come_soon_under_load(void **state)
{
    (void)state;
    struct served parts = serve_load(0, 3.35, 1), whole = serve_load(250, 3.35, 1), slow = serve_load(250, 3.35 / 2, 2);
    print_message("first tokens after %.0f ms (p95 %.0f), steps up to %.0f; all in parts: %.0f (%.0f), %.0f\n", whole.mean,
                  whole.p95, whole.longest_step, parts.mean, parts.p95, parts.longest_step);
    assert_true(whole.mean <= 1.25 * 215);
    assert_true(whole.p95 <= 0.5 * parts.p95);
    assert_true(whole.p95 < 500);
    assert_true(whole.longest_step < 250);
    /* a machine half as fast with half the load: 290 ms a prompt are more than 250, and the times are little more than twice those */
    print_message("half as fast: %.0f ms (p95 %.0f), steps up to %.0f\n", slow.mean, slow.p95, slow.longest_step);
    assert_true(slow.mean <= 2.5 * whole.mean && slow.p95 <= 2.5 * whole.p95);
    assert_true(slow.longest_step <= 250 + 2.25 * 2 * (2 + 30)); /* a short one, and what a long one gets beside 30 decodes */
}

static void refuses_what_never_fits_and_a_full_queue(void **state)
{
    (void)state;
    struct error err = {0};
    struct blocks *b = blocks_create(4, 1);
    struct step *s = planner(b, 100, 0);
    struct seq *big = make(100, 4 * KV_BLOCK_TOK + 1, 0);
    assert_int_equal(step_admit(s, &big->s, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "129"));
    assert_non_null(strstr(err.text, "128"));
    free(big);
    struct seq *q[65];
    for (int i = 0; i < 65; i++) {
        q[i] = make(10, 20, 0);
        assert_int_equal(step_admit(s, &q[i]->s, &err), i < 64 ? 0 : STATUS_EXHAUSTED);
    }
    free(q[64]);
    for (int i = 0; i < 64; i++)
        finish(s, q[i]);
    step_destroy(s);
    blocks_destroy(b);
}

static void prefix_hits_are_counted_and_never_whole(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(32, 1);
    struct step *s = planner(b, 1000, 0);
    struct seq *a = make(96, 100, 0), *c = make(96, 100, 0);
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    step_next(s);
    step_done(s, 1000);
    finish(s, a);
    assert_int_equal(step_admit(s, &c->s, NULL), 0);
    expect_item(step_next(s), c, 64, 32, true); /* the last block is computed again: its logits are needed */
    assert_int_equal(c->s.n_cached_tok, 64);
    step_done(s, 1000);
    finish(s, c);
    step_destroy(s);
    blocks_destroy(b);
}

static void worst_is_preempted_and_keeps_its_place(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(4, 1);
    struct step *s = planner(b, 1000, 0);
    struct seq *a = make(63, 128, 0), *c = make(63, 128, 5000), *d = make(10, 20, 9000);
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    assert_int_equal(step_admit(s, &c->s, NULL), 0);
    step_next(s);
    step_done(s, 1000); /* 4 blocks in use */
    assert_int_equal(step_admit(s, &d->s, NULL), 0);
    for (int i = 0; i < 2; i++) {
        a->s.n_tok++, c->s.n_tok++;
        step_next(s);
        step_done(s, 1000);
    }
    /* position 64 needs a fifth block: c is younger */
    assert_int_equal(c->s.state, STEP_WAITING);
    assert_int_equal(c->s.n_preempted, 1);
    assert_int_equal(a->s.state, STEP_RUNNING);
    assert_int_equal(d->s.state, STEP_WAITING); /* c is before d */
    finish(s, a);
    const struct step_plan *p = step_next(s);
    assert_non_null(item_of(p, c));
    assert_non_null(item_of(p, d));
    step_done(s, 1000);
    finish(s, c);
    finish(s, d);
    step_destroy(s);
    blocks_destroy(b);
}

static void priority_beats_age_for_memory(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(4, 1);
    struct step *s = planner(b, 1000, 0);
    struct seq *old = make(63, 128, 0), *urgent = make(63, 128, 5000);
    old->s.priority = 1;
    assert_int_equal(step_admit(s, &old->s, NULL), 0);
    assert_int_equal(step_admit(s, &urgent->s, NULL), 0);
    for (int i = 0; i < 3; i++) {
        step_next(s);
        step_done(s, 1000);
        old->s.n_tok += old->s.state == STEP_RUNNING;
        urgent->s.n_tok++;
    }
    assert_int_equal(urgent->s.state, STEP_RUNNING);
    assert_int_equal(old->s.state, STEP_WAITING);
    finish(s, old);
    finish(s, urgent);
    step_destroy(s);
    blocks_destroy(b);
}

static void forks_share_until_they_write(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(8, 1);
    struct step *s = planner(b, 1000, 0);
    struct seq *a = make(40, 64, 0), *c = make(40, 64, 0);
    struct blocks_stats pool;
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    step_next(s);
    step_done(s, 1000);
    assert_int_equal(step_fork(s, &a->s, &c->s, NULL), 0);
    blocks_stats(b, &pool);
    assert_int_equal(pool.used, 2);
    a->s.n_tok++, c->s.n_tok++;
    a->tokens[40] = 1, c->tokens[40] = 2;
    const struct step_plan *p = step_next(s);
    assert_int_equal(p->n_copies, 1); /* the second to write finds itself alone */
    assert_int_equal(p->n_items, 2);
    assert_int_not_equal(a->table[1], c->table[1]);
    assert_int_equal(a->table[0], c->table[0]);
    step_done(s, 1000);
    finish(s, a);
    finish(s, c);
    step_destroy(s);
    blocks_destroy(b);
}

static void flood_of_one_tenant_leaves_the_other_its_share(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(4, 1);
    struct step *s = planner(b, 32, 0);
    struct seq *flood[20], *quiet[4];
    for (int i = 0; i < 20; i++) {
        flood[i] = make(31, 32, 100 * i);
        flood[i]->s.tenant = 1;
        assert_int_equal(step_admit(s, &flood[i]->s, NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        quiet[i] = make(31, 32, 10000 + 100 * i);
        quiet[i]->s.tenant = 2;
        assert_int_equal(step_admit(s, &quiet[i]->s, NULL), 0);
    }
    int flood_done = 0, quiet_done = 0;
    for (int step = 0; step < 8; step++) { /* 256 tokens, about 8 sequences: the quiet tenant's 4 must be among them */
        const struct step_plan *p = step_next(s);
        struct seq *done[4];
        size_t n = 0;
        for (size_t i = 0; i < p->n_items; i++) {
            if (!p->items[i].last)
                continue;
            flood_done += p->items[i].seq->tenant == 1;
            quiet_done += p->items[i].seq->tenant == 2;
            done[n++] = CONTAINER_OF(p->items[i].seq, struct seq, s);
        }
        step_done(s, 1000);
        for (size_t i = 0; i < n; i++)
            step_remove(s, &done[i]->s);
    }
    assert_int_equal(quiet_done, 4);
    assert_in_range(flood_done, 3, 4);
    for (int i = 0; i < 20; i++) {
        if (flood[i]->s.state != STEP_NEW)
            step_remove(s, &flood[i]->s);
        free(flood[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(quiet[i]->s.state, STEP_NEW);
        free(quiet[i]);
    }
    step_destroy(s);
    blocks_destroy(b);
}

/* Random arrivals, forks, cancels and lengths in a pool that holds about three of them. Every sequence that isn't cancelled reaches its
 * limit within a bounded number of steps, and nothing stays allocated. */
static void everybody_finishes(void **state)
{
    (void)state;
    enum { LIVE = 12 };
    struct blocks *b = blocks_create(16, 7);
    struct step *s = planner(b, 64, 0);
    struct seq *live[LIVE] = {0};
    struct rand r;
    uint64_t finished = 0, idle_steps = 0, guessed = 0;
    rand_init(&r, 11);
    for (int step = 0; step < 30000; step++) {
        size_t at = rand_below(&r, LIVE);
        if (!live[at] && step < 25000) {
            uint32_t n = 1 + (uint32_t)rand_below(&r, 200);
            live[at] = make(n, n + 1 + (uint32_t)rand_below(&r, 100), 10 * (int32_t)rand_below(&r, 3));
            live[at]->s.priority = (uint32_t)rand_below(&r, 2);
            live[at]->s.tenant = rand_below(&r, 3);
            assert_int_equal(step_admit(s, &live[at]->s, NULL), 0);
        } else if (live[at] && rand_below(&r, 200) == 0) {
            finish(s, live[at]);
            live[at] = NULL;
        }
        for (size_t i = 0; i < LIVE; i++) {
            struct step_seq *q = live[i] ? &live[i]->s : NULL;
            if (q && q->state == STEP_RUNNING && q->n_tok - q->n_computed == 1)
                q->n_draft = (uint32_t)rand_below(&r, q->limit_tok - q->n_tok < 5 ? q->limit_tok - q->n_tok + 1 : 6);
        }
        const struct step_plan *p = step_next(s);
        assert_true(step_validate(s));
        assert_true(p->n_tok <= 64);
        guessed += p->n_draft;
        bool any = false;
        for (size_t i = 0; i < LIVE; i++)
            any |= live[i] != NULL;
        idle_steps += any && !p->n_items;
        struct step_seq *sampled[LIVE];
        uint32_t drafts[LIVE];
        size_t n_sampled = 0;
        for (size_t i = 0; i < p->n_items; i++) {
            drafts[n_sampled] = p->items[i].n_draft;
            if (p->items[i].last)
                sampled[n_sampled++] = p->items[i].seq;
        }
        step_done(s, 1000);
        for (size_t i = 0; i < n_sampled; i++) {
            uint32_t right = (uint32_t)rand_below(&r, drafts[i] + 1);
            for (uint32_t k = 0; k <= right && sampled[i]->n_tok < sampled[i]->limit_tok; k++) {
                sampled[i]->n_tok++;
                if (k < right)
                    step_accept(s, sampled[i], 1);
            }
            assert_true(step_validate(s));
        }
        for (size_t i = 0; i < LIVE; i++) {
            if (live[i] && live[i]->s.n_computed == live[i]->s.limit_tok) {
                finish(s, live[i]);
                live[i] = NULL;
                finished++;
            }
        }
    }
    for (size_t i = 0; i < LIVE; i++)
        assert_null(live[i]);
    struct step_stats st;
    struct blocks_stats pool;
    step_stats(s, &st);
    blocks_stats(b, &pool);
    assert_true(guessed > 1000 && finished > 200 && st.preemptions > 50 && st.prefix_hits_tok > 0);
    assert_int_equal(idle_steps, 0);
    assert_int_equal(pool.used, 0);
    step_destroy(s);
    blocks_destroy(b);
}

/* Two decodes that fill their blocks, one spare block: guesses take the free tokens of the sequences' own blocks, then the spare one, never
 * another's; what was right counts as computed, the rest doesn't. */
static void guesses_take_only_what_is_spare(void **state)
{
    (void)state;
    struct blocks *b = blocks_create(3, 1);
    struct step *s = planner(b, 100, 0);
    struct seq *a = make(20, 60, 0), *c = make(20, 32, 5000);
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    assert_int_equal(step_admit(s, &c->s, NULL), 0);
    step_next(s);
    step_done(s, 1000);
    assert_false(step_reads_prompt(s));
    a->s.n_tok += 1;
    c->s.n_tok += 1;
    assert_false(step_reads_prompt(s));
    a->s.n_draft = 30; /* tokens 21 to 50 */
    c->s.n_draft = 11;
    const struct step_plan *p = step_next(s);
    expect_item(p, a, 20, 31, true);
    expect_item(p, c, 20, 12, true);
    assert_int_equal(p->n_draft, 41);
    assert_int_equal(p->n_decode, 2);
    assert_int_equal(p->n_tok, 43);
    assert_int_equal(blocks_available(b), 0);
    step_done(s, 1000);
    assert_int_equal(a->s.n_computed, 21);
    a->s.n_tok = 32 + 2; /* 12 right, and one sampled behind */
    step_accept(s, &a->s, 12);
    assert_int_equal(a->s.n_computed, 33);
    assert_int_equal(a->s.n_sealed, 1);
    c->s.n_tok = 22; /* none right */
    a->s.n_draft = 0;
    p = step_next(s);
    expect_item(p, a, 33, 1, true);
    expect_item(p, c, 21, 1, true);
    step_done(s, 1000);
    /* no block is spare: a's guesses end with its block, and the budget of 100 tokens bounds them before */
    a->s.n_tok = 35;
    c->s.n_tok = 23;
    a->s.n_draft = 25;
    p = step_next(s);
    expect_item(p, a, 34, 26, true);
    expect_item(p, c, 22, 1, true);
    step_done(s, 1000);
    finish(s, a);
    finish(s, c);
    step_destroy(s);
    blocks_destroy(b);
    /* the blocks that a running prompt will still need are claimed */
    b = blocks_create(4, 1);
    s = planner(b, 33, 0);
    a = make(31, 90, 0);
    c = make(60, 63, 5000);
    assert_int_equal(step_admit(s, &a->s, NULL), 0);
    step_next(s);
    step_done(s, 1000);
    a->s.n_tok = 32;
    assert_int_equal(step_admit(s, &c->s, NULL), 0);
    p = step_next(s);
    expect_item(p, a, 31, 1, true);
    expect_item(p, c, 0, 32, false);
    assert_true(step_reads_prompt(s));
    step_done(s, 1000); /* a and c have a block each and will need one more each: that is all four */
    a->s.n_tok = 33;
    a->s.n_draft = 32;
    p = step_next(s);
    expect_item(p, a, 32, 32, true); /* its guesses go to the end of the block that it needs anyway */
    assert_int_equal(p->n_draft, 31);
    expect_item(p, c, 32, 1, false);
    assert_int_equal(p->n_preempted, 0);
    step_done(s, 1000);
    finish(s, a);
    finish(s, c);
    step_destroy(s);
    blocks_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_first_then_chunks),
        cmocka_unit_test(prompts_share_the_budget),
        cmocka_unit_test(target_time_limits_prompts_beside_decodes),
        cmocka_unit_test(a_prompt_always_gets_a_token),
        cmocka_unit_test(a_deep_prompt_keeps_the_gap),
        cmocka_unit_test(costs_are_learned_from_mixed_steps),
        cmocka_unit_test(short_prompts_go_whole_and_in_order),
        cmocka_unit_test(longer_prompts_get_less_by_degrees),
        cmocka_unit_test(guesses_count_as_decodes),
        cmocka_unit_test(tiny_prompts_go_together),
        cmocka_unit_test(a_cached_beginning_makes_a_prompt_short),
        cmocka_unit_test(the_target_time_holds_for_short_prompts),
        cmocka_unit_test(first_tokens_come_soon_under_load),
        cmocka_unit_test(refuses_what_never_fits_and_a_full_queue),
        cmocka_unit_test(prefix_hits_are_counted_and_never_whole),
        cmocka_unit_test(worst_is_preempted_and_keeps_its_place),
        cmocka_unit_test(priority_beats_age_for_memory),
        cmocka_unit_test(forks_share_until_they_write),
        cmocka_unit_test(flood_of_one_tenant_leaves_the_other_its_share),
        cmocka_unit_test(guesses_take_only_what_is_spare),
        cmocka_unit_test(everybody_finishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
