/* quota_gate.h: one struct quota for all threads of a server, behind a lock, with its policies and the file of its budgets' text.
 *
 * The lock is held for a decision: some hash lookups and additions, under a microsecond. Clocks are passed in. */
#ifndef INFERD_EDGE_QUOTA_GATE_H
#define INFERD_EDGE_QUOTA_GATE_H

#include "edge/quota.h"

struct quota_gate;
struct metrics;

/* From the text of a policy file. Errors as quota_policies_parse; NOMEM. `metrics` may be NULL. */
int quota_gate_create(struct str text, const char *where, struct metrics *metrics, struct quota_gate **out,
                      struct error *err) MUST_CHECK;
void quota_gate_destroy(struct quota_gate *g); /* NULL is accepted */

/* As in quota.h. Any thread. */
int quota_gate_reserve(struct quota_gate *g, const struct quota_ask *ask, uint64_t *id, struct quota_verdict *v) MUST_CHECK;
int quota_gate_more(struct quota_gate *g, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
                    struct quota_verdict *v) MUST_CHECK;
void quota_gate_note(struct quota_gate *g, uint64_t id, uint64_t tokens);
void quota_gate_settle(struct quota_gate *g, uint64_t id, uint64_t tokens, uint64_t now_ns, uint64_t now_s);
void quota_gate_refund(struct quota_gate *g, uint64_t id, uint64_t now_ns, uint64_t now_s);

/* Expire; and, when budgets have changed, append their text to `out` and return true. The control thread, now and then. */
bool quota_gate_tick(struct quota_gate *g, uint64_t now_ns, uint64_t now_s, struct buf *out);
/* What the tick gave could not be written. */
void quota_gate_mark_dirty(struct quota_gate *g);
int quota_gate_load(struct quota_gate *g, struct str text, uint64_t now_s, struct error *err) MUST_CHECK;

/* Call back with each model that a policy names without a wildcard. */
void quota_gate_models(const struct quota_gate *g, void (*each)(void *ctx, const char *policy, struct str model), void *ctx);

/* One whole sentence for the caller who was refused. */
void quota_explain(const struct quota_verdict *v, struct error *err);

#endif
