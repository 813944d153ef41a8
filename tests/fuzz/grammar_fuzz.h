/* grammar_fuzz.h: what the three grammar targets do with an input. The first byte seeds a walk, the rest is the source. Small limits, so that many
 * inputs reach them. A refusal has to carry its code and a text; what compiles has to keep its promises along a random way: masks and single
 * answers agree, accepting follows them, there is always something allowed, and the way out is as short as the automaton says. */
#ifndef INFERD_FUZZ_GRAMMAR_H
#define INFERD_FUZZ_GRAMMAR_H

#include "../unit/text/grammar_rig.h"
#include "base/status.h"

#define FUZZ_STEPS 10

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline struct grammar_vocab *fuzz_vocab(void)
{
    static struct grammar_vocab *v;
    if (!v) {
        struct tokenizer *t = rig_tokenizer(0);
        ASSERT(grammar_vocab_create(t, (uint32_t)tokenizer_size(t), &v, NULL) == 0);
    }
    return v;
}

/* The end is at most `dist` bytes away; follow them when they are few. */
static inline void fuzz_way_out(struct grammar_state *s)
{
    for (uint32_t dist = grun_dist(&s->g->run, s->config); dist > 0 && dist < 200; dist--) {
        int32_t id = rig_nearest(s);
        if (id == TOKEN_NONE) /* only where everything left is too ambiguous to hold */
            return;
        ASSERT(grammar_accept(s, id));
        if (grun_dist(&s->g->run, s->config) != dist - 1)
            return; /* the nearest one was too ambiguous */
    }
    if (grun_dist(&s->g->run, s->config) == 0)
        ASSERT(grammar_can_end(s) && grammar_accept(s, RIG_EOS));
}

static inline void fuzz_walk(struct grammar *g, uint64_t seed)
{
    struct grammar_state *s = NULL, *copy = NULL;
    struct rand r;
    rand_init(&r, seed);
    ASSERT(grammar_state_create(g, &s, NULL) == 0);
    for (int i = 0; i < FUZZ_STEPS; i++) {
        const uint64_t *m = grammar_mask(s);
        if (!m) /* too ambiguous: a refusal, never an open door */
            break;
        uint32_t n = rig_check_mask(s);
        if (n == 0)
            break;
        int32_t id = rig_pick(s, m, rand_below(&r, n));
        if (i == FUZZ_STEPS / 2)
            ASSERT(grammar_state_copy(s, &copy, NULL) == 0);
        if (!grammar_accept(s, id))
            abort();
    }
    fuzz_way_out(s);
    if (copy)
        fuzz_way_out(copy);
    grammar_state_destroy(copy);
    grammar_state_destroy(s);
}

static inline int fuzz_source(enum grammar_kind kind, const uint8_t *data, size_t size)
{
    static const struct grammar_limits limits = {.max_source_bytes = 4096, .max_rules = 200, .max_depth = 12, .max_stacks = 64};
    struct grammar *g = NULL;
    struct error err = {0};
    if (size < 1)
        return 0;
    struct str source = {(const char *)data + 1, size - 1};
    int rc = grammar_compile(fuzz_vocab(), kind, source, &limits, &g, &err);
    if (rc < 0) {
        ASSERT(err.code == rc && err.text[0] && !g);
        ASSERT(rc == STATUS_INVALID || rc == STATUS_EXHAUSTED);
        return 0;
    }
    fuzz_walk(g, data[0]);
    grammar_unref(g);
    return 0;
}

#endif
