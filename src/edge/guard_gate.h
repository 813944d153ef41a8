/* guard_gate.h: the guard of a server: the set of policies in force, their counters, and the references of their models.
 *
 * A reference belongs to an input policy, by its name: it is read from a file, or recorded from live traffic (record, stop, save). It stays
 * when policies are loaded again, as long as the policy has one. One lock, held for a copy of pointers, or of the rows of one request
 * while recording. Any thread. */
#ifndef INFERD_EDGE_GUARD_GATE_H
#define INFERD_EDGE_GUARD_GATE_H

#include "edge/guard.h"

#define GUARD_RECORD_BYTES_MAX (256u << 20) /* of one recording */

struct guard_gate;
struct logger;
struct metrics;

struct guard_gate_options {
    struct metrics *metrics; /* may be NULL */
    struct logger *log;      /* may be NULL */
    const char *folder;      /* for references without a file; NULL: there is none. Borrowed */
};

/* NULL: out of memory. Empty: guard_gate_set gives NULL. */
struct guard_gate *guard_gate_create(const struct guard_gate_options *o);
/* Nobody holds a set any more. */
void guard_gate_destroy(struct guard_gate *g); /* NULL is accepted */

/* Put the policies of this text in force, with their references from disk; a mistake changes nothing. They must fit what `routes` sends on
 * (guard_check_routes). Reads files. Empty text: none. */
int guard_gate_load(struct guard_gate *g, struct str text, const char *where, const struct gateway_config *routes,
                    struct error *err) MUST_CHECK;
/* The policies in force with a reference of the caller's; NULL: none are. */
struct guard_set *guard_gate_set(struct guard_gate *g);

/* The inputs of a request against the reference of `p`, and into its recording. INVALID: *err says which row is unlike what it knows. */
int guard_gate_observe(struct guard_gate *g, const struct guard_input *p, const struct tensor *inputs, size_t n,
                       struct error *err) MUST_CHECK;

/* Count a finding, and log it: at most so many lines a second. `mode` is what came of it. */
void guard_gate_note_input(struct guard_gate *g, const struct guard_input *p, enum guard_check check, enum guard_mode mode,
                           const struct guard_who *who, const char *request_id, const char *text);
/* `hits` matches of rule `i` of `p`. */
void guard_gate_note_output(struct guard_gate *g, const struct guard_output *p, size_t i, uint64_t hits,
                            const struct guard_who *who, const char *request_id);

/* ---- for the admin; `model` is exact; CONFLICT: no policy has a reference of this model ---- */

/* Begin a recording, or begin it again. */
int guard_gate_record(struct guard_gate *g, struct str model, struct error *err) MUST_CHECK;
/* End it and put what was recorded in force. CONFLICT: nothing is being recorded; INVALID: the rows are too few or of no use. Takes as long as
 * the rows are many. */
int guard_gate_stop(struct guard_gate *g, struct str model, struct error *err) MUST_CHECK;
/* Write what was recorded as .npy to the reference's file, or into the folder, and forget it. CONFLICT: nothing was recorded, or there is no such place. */
int guard_gate_save(struct guard_gate *g, struct str model, struct error *err) MUST_CHECK;
/* [{"policy":..,"model":..,"input":..,"rows":..,"features":..,"recording":..,"recorded":..,"thresholds":{..}},..] */
void guard_gate_status(struct guard_gate *g, struct buf *out);

#endif
