/* speculate.c: guesses for the decodes of the next step: who may guess, who does (spec.h), and where the guesses come from: the sequence's own
 * text, or a draft model. They are written behind the sequence's known tokens, where the step and, if they are right, the
 * answer want them. The step thread's. */
#include "base/size.h"
#include "engine/llm/engine_priv.h"
#include "os/clock.h"

/* Guesses that could still become tokens of the answer: the step itself gives one more. */
static uint32_t room(const struct engine_model *m, const struct choice *c)
{
    uint32_t left = c->seq.limit_tok - c->seq.n_tok;
    return left > 1 ? MIN_OF(left - 1, (uint32_t)m->options.speculation_tok) : 0;
}

static bool decodes(const struct choice *c)
{
    return c->seq.state == STEP_RUNNING && c->n_generated > 0 && c->seq.n_tok - c->seq.n_computed == 1;
}

/* How many tokens `c` could guess. Those found by lookup are in place already. */
static uint32_t could_guess(struct engine_model *m, struct choice *c)
{
    uint32_t n = room(m, c);
    if (!n)
        return 0;
    if (m->options.speculation == LLM_SPECULATION_LOOKUP)
        return spec_lookup(c->tokens, c->seq.n_tok, n, c->tokens + c->seq.n_tok);
    return draft_claim(m->draft, c->request->id, c->index, c->seq.n_tok) ? n : 0;
}

/* Fill `wants` and `guessers`; returns how many sequences decode. */
static uint32_t collect(struct engine_model *m, uint32_t *n_wants)
{
    uint32_t n_decode = 0;
    *n_wants = 0;
    LIST_EACH(l, &m->live)
    {
        struct request *r = LIST_ENTRY(l, struct request, link);
        for (uint32_t i = 0; i < r->params.n; i++) {
            struct choice *c = &r->choices[i];
            if (!decodes(c))
                continue;
            uint32_t len = n_decode++ < SPEC_COLS_MAX ? could_guess(m, c) : 0;
            if (!len)
                continue;
            m->guessers[*n_wants] = c;
            m->wants[(*n_wants)++] = (struct spec_want){.record = &c->record, .len = len};
        }
    }
    return n_decode;
}

static void run_draft(struct engine_model *m, uint32_t n_wants)
{
    uint32_t n = 0, longest = 0;
    uint64_t begin = os_monotonic_ns();
    for (uint32_t i = 0; i < n_wants; i++) {
        struct choice *c = m->guessers[i];
        if (!m->wants[i].guess)
            continue;
        m->guessers[n] = c;
        longest = MAX_OF(longest, m->wants[i].guess);
        m->draft_jobs[n++] = (struct draft_job){.request = c->request->id,
                                                .tokens = c->tokens,
                                                .n_tok = c->seq.n_tok,
                                                .params = &c->request->params,
                                                .seed = c->request->seed,
                                                .choice = c->index,
                                                .want = m->wants[i].guess,
                                                .out = c->tokens + c->seq.n_tok};
    }
    if (!n)
        return;
    if (draft_run(m->draft, m->draft_jobs, n)) /* catching up isn't the price of a guess */
        spec_gate_guess_cost(&m->gate, longest, os_monotonic_ns() - begin);
    for (uint32_t i = 0; i < n; i++) {
        m->guessers[i]->seq.n_draft = m->draft_jobs[i].got;
        if (!m->draft_jobs[i].got)
            m->guessers[i]->record.idle = UINT32_MAX - 1; /* its context is being computed: go on with that */
    }
}

/* As many as there are, whether it pays or not. */
static void guess_always(struct engine_model *m, uint32_t n_wants, uint32_t n_decode)
{
    uint32_t left = SPEC_COLS_MAX - n_decode;
    for (uint32_t i = 0; i < n_wants; i++) {
        m->wants[i].guess = MIN_OF(m->wants[i].len, left);
        left -= m->wants[i].guess;
    }
}

void llm_speculate(struct engine_model *m)
{
    uint32_t n_wants;
    if (m->options.speculation == LLM_SPECULATION_OFF)
        return;
    if (m->draft)
        draft_round(m->draft);
    /* Beside a long prompt guesses would lengthen each step twofold: by their own columns, and by the prompt's part, which is cut by what
     * decodes cost (step_config.stretch). */
    if (!m->options.speculation_always && step_reads_prompt(m->step))
        return;
    uint32_t n_decode = collect(m, &n_wants);
    if (!n_wants || n_decode >= SPEC_COLS_MAX)
        return;
    if (m->options.speculation_always)
        guess_always(m, n_wants, n_decode);
    else
        spec_gate_plan(&m->gate, m->wants, n_wants, n_decode, SPEC_COLS_MAX);
    if (m->draft) {
        run_draft(m, n_wants);
        return;
    }
    for (uint32_t i = 0; i < n_wants; i++)
        m->guessers[i]->seq.n_draft = m->wants[i].guess;
}

void llm_speculation_cost(struct engine_model *m, const struct step_plan *plan, uint64_t step_ns)
{
    if (m->options.speculation != LLM_SPECULATION_OFF && plan->n_tok == plan->n_decode + plan->n_draft)
        spec_gate_cost(&m->gate, plan->n_tok, step_ns);
}

void llm_speculation_outcome(struct engine_model *m, struct choice *c, uint32_t n, uint32_t right)
{
    spec_gate_outcome(&m->gate, &c->record, n, right);
    m->speculated.drafts++;
    m->speculated.draft_tok += n;
    m->speculated.accepted_tok += right;
}
