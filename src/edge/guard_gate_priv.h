/* guard_gate_priv.h: for guard_gate.c and guard_recording.c only. */
#ifndef INFERD_EDGE_GUARD_GATE_PRIV_H
#define INFERD_EDGE_GUARD_GATE_PRIV_H

#include <stdatomic.h>

#include "base/list.h"
#include "edge/guard_gate.h"
#include "os/thread.h"

struct metric_family;

struct guard_gate {
    struct guard_gate_options o;
    struct os_mutex lock; /* set, slots and what is in them */
    struct guard_set *set;
    _Atomic bool has_set;
    struct list slots; /* guard_slot.link */
    struct metric_family *inputs, *outputs;
    _Atomic uint64_t log_second;
    _Atomic uint32_t log_lines;
};

/* Give each policy of `s` that has a reference its slot, and slots without a reference theirs from disk. */
int guard__slots_bind(struct guard_gate *g, struct guard_set *s, struct error *err) MUST_CHECK;
void guard__slots_release(struct guard_gate *g);

#endif
