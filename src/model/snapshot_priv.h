/* snapshot_priv.h: for siblings in model/ only: the immutable picture of all models that readers look things up in.
 *
 * Readers are wait-free: enter (one atomic add on a counter), load the pointer, look up, take a reference to what they found, leave
 * (one atomic subtract). A publisher swaps the pointer and then waits until every reader that may still look at the old one has
 * left: sleepable RCU with two counters (McKenney, "Sleepable Read-Copy Update", 2006): wait for the stragglers of the other
 * counter, flip, wait for this one. Only loaders wait, and only for lookups, which take microseconds. */
#ifndef INFERD_MODEL_SNAPSHOT_PRIV_H
#define INFERD_MODEL_SNAPSHOT_PRIV_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/map.h"
#include "conf/model_config.h"
#include "model/registry.h"

struct snap_version {
    struct str name, reason;
    enum version_state state;
    bool no_memory; /* FAILED for want of it */
    uint64_t since_ns;
    struct model_version *v; /* serving; holds a reference. NULL: none */
};

struct snap_model {
    struct str name, reason;
    struct snap_version *versions; /* ascending */
    size_t n_versions;
    const struct config_pair *labels;
    size_t n_labels;
};

struct snapshot {
    _Atomic uint32_t refs;
    struct arena arena;
    struct map by_name;
    struct snap_model *models; /* by name */
    size_t n;
};

struct snapshot_box {
    _Atomic(struct snapshot *) current;
    _Atomic uint32_t side;
    _Atomic uint64_t readers[2];
};

/* Enter: the current snapshot, valid until snapshot_leave with the same token. Any thread, wait-free. */
struct snapshot *snapshot_enter(struct snapshot_box *b, uint32_t *token);
void snapshot_leave(struct snapshot_box *b, uint32_t token);
/* A reference for longer looks; release with snapshot_unref. */
struct snapshot *snapshot_get(struct snapshot_box *b);
void snapshot_unref(struct snapshot *s);
/* Make `s` (one reference, the box's from now on) the current one and drop the box's reference to the old one once no reader can be
 * on its way to it. One publisher at a time; waits for readers. Takes no lock. */
void snapshot_publish(struct snapshot_box *b, struct snapshot *s);

/* Look up in a snapshot; see registry_find. Returns a version with a reference. */
int snapshot_find(const struct snapshot *s, struct str model, struct str version, struct model_version **out,
                  struct error *err);

#endif
