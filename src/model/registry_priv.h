/* registry_priv.h: for siblings in model/ only: the registry, its entries (one a model name) and its work queue.
 *
 * `lock` (RANK_REGISTRY) guards the entries. It is never held while something is loaded, scanned or waited for: a load marks its
 * entry busy, works without the lock, and takes it again to enter the outcome. Every change ends in registry__publish, which builds a
 * new snapshot from the entries. Publishing itself is serialised by `publishing` (below), since it waits for readers.
 *
 * Entries are made by scans and loads and freed with the registry, so a pointer to one stays valid. */
#ifndef INFERD_MODEL_REGISTRY_PRIV_H
#define INFERD_MODEL_REGISTRY_PRIV_H

#include "model/layout_priv.h"
#include "model/registry.h"
#include "model/snapshot_priv.h"
#include "model/version_priv.h"

#define REGISTRY_LOADERS_MAX 8

struct entry_version {
    struct list link; /* ascending by version */
    char *name;
    enum version_state state;
    char reason[ERROR_TEXT_BYTES];
    bool no_memory;          /* FAILED for want of it */
    uint64_t since_ns;       /* in this state */
    struct model_version *v; /* what serves, one reference; NULL: nothing */
};

struct entry {
    struct list link;
    struct registry *r;
    char *name;
    struct list versions;
    struct config_pair *labels; /* of the config that was loaded last; strings in `labels_arena` */
    size_t n_labels;
    struct arena labels_arena;
    char reason[ERROR_TEXT_BYTES]; /* why nothing serves */
    bool on_disk, selected;        /* selected: meant to be served */
    bool required;                 /* counts for readiness: see registry.c */
    bool busy, unloading;          /* a load or unload is in progress */
    uint32_t alive;                /* version objects that exist */
    /* poll mode */
    uint64_t seen, seen_since_ns, tried; /* fingerprints: last seen, since when; last tried to load */
    bool gone;
    /* the request in progress */
    struct work work;
    char *inline_config;
    bool first_pass;
    void (*done)(void *ctx, int status, const char *text);
    void *ctx;
};

struct registry {
    struct registry_options o;
    struct version_home home;
    struct repo repo;
    struct snapshot_box box;
    _Atomic bool ready, settled;

    struct os_mutex lock;   /* RANK_REGISTRY: entries and all below up to the blank line */
    struct os_cond changed; /* versions were destroyed; publishing ended; a pass ended */
    struct list entries;    /* by name */
    struct map by_name;     /* the same */
    bool publishing;
    uint64_t wanted_gen, published_gen; /* generations of the snapshot: asked for, shown */
    uint32_t alive;                     /* version objects of all entries */
    uint32_t first_pending;             /* loads of the first pass that have not ended; starts at 1 for the scan */
    uint64_t reserved_bytes;
    bool scan_queued, unsettled, stopping;
    uint64_t next_scan_ns;
    uint64_t next_memory_ns; /* control thread only */

    struct os_mutex work_lock; /* RANK_LEAF */
    struct os_cond work_cond;
    struct list work;
    bool work_stop;
    struct os_thread loaders[REGISTRY_LOADERS_MAX];
    size_t n_loaders;
    struct work scan;
};

/* loader.c: the work queue and loading. */
void registry__work_push(struct registry *r, struct work *w);
int registry__loaders_start(struct registry *r, struct error *err) MUST_CHECK;
void registry__loaders_stop(struct registry *r);
/* version_home.retired */
void registry__retired(struct version_home *h, struct model_version *v);
/* entry.work.run for a load / an unload. */
void registry__load_run(struct work *w);
void registry__unload_run(struct work *w);
/* The entry's unload may be complete (its last version is gone, or one hangs): answer it. No locks. */
void registry__unload_check(struct registry *r, struct entry *e, const char *hung);

/* scan.c: scan.run: look at the disk, add entries, queue loads. */
void registry__scan_run(struct work *w);

/* registry.c */
struct entry *registry__entry(struct registry *r, struct str name, bool make); /* lock held; NULL: none or no memory */
struct entry_version *registry__entry_version(struct entry *e, struct str name, bool make);   /* lock held */
void registry__state(struct entry_version *ev, enum version_state state, const char *reason); /* lock held */
/* Show the entries' present state to readers. No locks held; may wait for readers and for another publisher. */
void registry__publish(struct registry *r);
/* A load of the first pass ended. No locks held. */
void registry__first_pass_step(struct registry *r);
/* Recompute r->ready. Lock held. */
void registry__update_ready(struct registry *r);

/* watch.c: the tick's parts. */
void registry__watch(struct registry *r, uint64_t now_ns);
void registry__scale(struct registry *r, uint64_t now_ns);
void registry__gauges(struct registry *r, uint64_t now_ns);

/* warmup.c: run the configured warm-up requests on every instance of `v`, which is not started yet. */
int registry__warmup_run(struct registry *r, const struct repo_model *m, struct model_version *v, struct error *err) MUST_CHECK;

/* warmup_limit.c: the same, for as long as options.warmup_timeout_ns allows; then DEADLINE, and `v` may still be in use: the thread that
 * the engine keeps holds a reference to it. `m` is used no longer than the call. Blocks; loader thread. */
int registry__warmup(struct registry *r, const struct repo_model *m, struct model_version *v, struct error *err) MUST_CHECK;

/* loader.c: `v`'s entry waits for it no longer: it is held by an engine that doesn't return. */
void registry__write_off(struct registry *r, struct model_version *v);

/* spec.c: which engine and file serve a version, its labels, and the bytes that it will need. `cfg` has been parsed. */
int registry__spec(const struct repo *repo, const struct repo_model *m, const struct repo_version *rv, struct model_config *cfg,
                   struct arena *a, struct version_spec *out, struct error *err) MUST_CHECK;
void registry__spec_release(struct version_spec *spec); /* idempotent; a spec that was never filled has dir_fd -1 */
uint64_t registry__estimate(const struct version_spec *spec, const struct repo_version *rv);

#endif
