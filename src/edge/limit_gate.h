/* limit_gate.h: overload of a running server: every model's limit and breaker behind a lock of its own, the rules that are in force, and what
 * is told of both: a log line and a metric for each change, and the whole state for the admin API.
 *
 * A model's state is made when it is first asked for and stays to the end (names come from the repository, so they are few); finding it takes
 * no lock. Its lock is held for a decision: some additions, a tenth of a microsecond; a request passes it twice, where it passes its queue's
 * lock four times. New rules replace the old ones whole; old ones stay allocated, since requests refer to them: a few KiB a change. */
#ifndef INFERD_EDGE_LIMIT_GATE_H
#define INFERD_EDGE_LIMIT_GATE_H

#include "base/buf.h"
#include "base/log.h"
#include "edge/limit_policy.h"

struct limit_gate;
struct limit_state;
struct metrics;

/* Why a request isn't answered by its model; "none", "saturated", "breaker", "not_ready", "out_of_memory". */
enum limit_reason { LIMIT_NONE, LIMIT_SATURATED, LIMIT_BREAKER, LIMIT_NOT_READY, LIMIT_NO_MEMORY, LIMIT_REASONS };
const char *limit_reason_name(enum limit_reason r);

/* One request's place at one model: filled by limit_gate_begin, given back by limit_gate_end. Zeroed: it has none. */
struct limit_ticket {
    struct limit_state *state;
    uint64_t tenant;
    uint32_t epoch;
    enum limit_class class;
    bool limited, shared, breaks;
    bool pressed; /* refused for the sake of other models' more important requests (pressure.h) */
};

/* `metrics` and `log` may be NULL. Errors as limit_policy_parse; NOMEM. */
int limit_gate_create(struct str text, const char *where, struct metrics *metrics, struct logger *log, struct limit_gate **out,
                      struct error *err) MUST_CHECK;
/* No ticket is out. NULL is accepted. */
void limit_gate_destroy(struct limit_gate *g);
/* New rules. An error changes nothing. Any thread, one at a time. */
int limit_gate_replace(struct limit_gate *g, struct str text, const char *where, struct error *err) MUST_CHECK;
/* The rules in force; they live as long as the gate. */
const struct limit_policy *limit_gate_policy(const struct limit_gate *g);

/* May a request of `class` begin on `model`, of which `busy` under way at once keep its instances at work? LIMIT_NONE: yes; the ticket has its
 * place. LIMIT_SATURATED, LIMIT_BREAKER: no, and *wait_ns is when to ask again; 0: unknown. `tenant`: a hash; 0: nobody's. Any thread. */
enum limit_reason limit_gate_begin(struct limit_gate *g, struct str model, enum limit_class class, uint64_t tenant,
                                   uint32_t busy, uint64_t now_ns, struct limit_ticket *t, uint64_t *wait_ns);

/* How it ended. `latency_ns` from limit_gate_begin, `run_ns` of it in the run that answered it (0: not known apart), `size` of that run;
 * latency 0: there is nothing to measure (it failed, or came from a cache). The ticket is empty afterwards. Any thread. */
struct limit_result {
    enum breaker_outcome outcome;
    uint64_t latency_ns, run_ns, size;
};
void limit_gate_end(struct limit_gate *g, struct limit_ticket *t, const struct limit_result *r, uint64_t now_ns);

/* `model` was answered for, by `fallback` (NULL: by its own cached answer). Logged when it begins, not for each. */
void limit_gate_note_degraded(struct limit_gate *g, struct str model, enum limit_reason why, const char *fallback,
                              uint64_t now_ns);

/* Members of a JSON object, without braces: "rules" and "models". */
void limit_gate_render(struct limit_gate *g, uint64_t now_ns, struct buf *out);

#endif
