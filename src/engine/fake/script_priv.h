/* script_priv.h: for siblings in engine/fake only: the parsed model.fake and the arithmetic of its outputs. */
#ifndef INFERD_ENGINE_FAKE_SCRIPT_PRIV_H
#define INFERD_ENGINE_FAKE_SCRIPT_PRIV_H

#include "base/arena.h"
#include "engine/engine.h"

#define FAKE_IO_MAX 64

enum fake_op {
    FAKE_COPY, /* the input, bytes for bytes */
    FAKE_ADD,  /* element by element; BYTES hold decimal integers, as in Triton's simple_string model */
    FAKE_SUB,
    FAKE_ROW_SUM, /* per row, the sum of all elements of the input */
    FAKE_ROWS,    /* per row, the number of rows in the whole batch: shows what was batched together */
    FAKE_FILL,    /* a constant in the declared shape (-1 beside axis 0 counts as 1) */
};

struct fake_rule {
    enum fake_op op;
    size_t a, b; /* inputs */
    struct str fill;
};

/* A value that triggers something when any input element equals it. */
struct fake_trigger {
    bool on;
    struct str text; /* BYTES elements are compared with it */
    double number;   /* numeric elements are compared with it; NaN when the text is no number */
};

struct fake_script {
    struct engine_io inputs[FAKE_IO_MAX], outputs[FAKE_IO_MAX];
    struct fake_rule rules[FAKE_IO_MAX]; /* per output */
    size_t n_inputs, n_outputs;
    struct str description;
    bool batchable, batchable_set;

    uint64_t base_us, per_row_us, per_element_ns, jitter_us;
    bool spin; /* burn the time instead of sleeping it */

    uint64_t fail_every;     /* every Nth run fails; 0: never */
    uint64_t fail_rows_over; /* a batch of more rows fails; 0: never */
    bool fail_invalid;       /* with INVALID instead of INTERNAL */
    bool fail_no_memory;     /* with NOMEM */
    struct str fail_text;
    struct fake_trigger poison, hang;
    uint64_t hang_every, hang_ms; /* hang_ms 0: until cancelled, for ever when not cancellable */
    bool cancellable;

    bool tokens; /* the token face: token.c */
    struct str answer, chat_template;
    uint64_t piece_bytes, piece_us, prefill_us, context, max_running, max_waiting, fail_after;
    bool reveal, no_system;
    bool constrain; /* a grammar is accepted, and not followed */

    uint64_t load_delay_ms, memory_bytes, estimate_bytes;
    struct str load_fail, instance_fail; /* not empty: the call fails with this text */
};

/* Parse `text` into a zeroed `s`, strings from `a`. INVALID: the line and what is accepted. */
int fake_script_parse(struct str text, struct arena *a, struct fake_script *s, struct error *err) MUST_CHECK;
/* Set one scalar key (everything but input and output). INVALID: unusable value; NOT_FOUND: no such key. */
int fake_script_set(struct fake_script *s, struct str key, struct str value, struct arena *a, struct error *err) MUST_CHECK;

/* True when some element of `t` equals the trigger. */
bool fake_matches(const struct fake_trigger *trigger, const struct tensor *t);
/* Make one output: allocates the slab. `rows`: of the batch. INVALID names the mismatch. */
int fake_compute(const struct fake_rule *rule, const struct engine_io *io, const struct tensor *inputs, int64_t rows,
                 struct tensor *out, struct error *err) MUST_CHECK;

#endif
