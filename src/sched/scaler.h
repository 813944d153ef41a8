/* scaler.h: how many instances a model should have, from queue pressure. Pure: state and time in, a number out.
 *
 * Grows by one when the backlog has exceeded `grow_backlog_ns` for `grow_after_ns` with every instance busy; shrinks by one
 * when utilisation over `shrink_after_ns` would stay under 60 % with one fewer. Hysteresis keeps it from flapping. */
#ifndef INFERD_SCHED_SCALER_H
#define INFERD_SCHED_SCALER_H

#include <stdint.h>

struct scaler {
    uint32_t min, max;
    uint64_t grow_backlog_ns, grow_after_ns, shrink_after_ns;
    /* state */
    uint64_t pressed_since_ns, window_start_ns, last_change_ns;
    uint64_t busy_ns_at_window; /* cumulative busy time of all instances when the window began */
};

/* Defaults: grow when the backlog exceeds 50 ms for 200 ms, shrink over 10 s. */
void scaler_init(struct scaler *s, uint32_t min, uint32_t max, uint64_t now_ns);

/* `instances` now existing, `busy` of them running, cumulative busy time `busy_total_ns`, backlog as of batcher_backlog_ns.
 * Returns the wanted number of instances, within [min, max], at most one away from `instances`. */
uint32_t scaler_decide(struct scaler *s, uint64_t now_ns, uint32_t instances, uint32_t busy, uint64_t busy_total_ns,
                       uint64_t backlog_ns);

#endif
