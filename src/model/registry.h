/* registry.h: the models a server has: the repository on disk, the versions loaded from it, and the way to find one.
 *
 * The set of models is an immutable, refcounted snapshot that readers (I/O threads) take without a lock held across use;
 * loader and control threads publish a new one. A version is refcounted; the registry holds one reference while it serves,
 * each request one more, so an unload drains by itself. See README.md of this folder for the state machine. */
#ifndef INFERD_MODEL_REGISTRY_H
#define INFERD_MODEL_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/engine.h"
#include "model/seal_vault.h"

struct registry;
struct model_version;
struct metrics;      /* obs/metrics.h */
struct model_config; /* conf/model_config.h */

enum registry_mode { REGISTRY_NONE, REGISTRY_POLL, REGISTRY_EXPLICIT };

enum version_state {
    VERSION_UNLOADED,
    VERSION_LOADING,
    VERSION_WARMING,
    VERSION_READY,
    VERSION_DRAINING,
    VERSION_FAILED,
};
const char *version_state_name(enum version_state s); /* Triton's words: "UNAVAILABLE", "LOADING", "READY", "UNLOADING" */

/* All that it points to must live as long as the registry. */
struct registry_options {
    const char *const *roots; /* repository folders, or a lone model file or model folder each */
    size_t n_roots;
    enum registry_mode mode;
    const char *const *load; /* explicit mode: names loaded at start; "*" is all */
    size_t n_load;
    uint64_t poll_interval_ns, poll_settle_ns; /* a change must be stable for settle before it counts */
    bool follow_symlinks;                      /* allow links that leave the repository */
    bool strict_readiness;       /* ready only when every selected model is; else when the first load pass is over */
    uint64_t memory_limit_bytes; /* 0: from the cgroup or the machine */
    uint64_t queue_bytes_total;  /* bound over all models' queues */
    uint32_t compute_threads;    /* from the cgroup quota */
    uint32_t loader_threads;
    uint64_t warmup_timeout_ns;              /* a load whose warm-up takes longer fails; 0: no limit */
    uint64_t hang_timeout_ns;                /* watchdog: an instance running longer is hung */
    uint64_t default_deadline_ns;            /* for models that declare none; 0: none */
    const struct engine_ops *const *engines; /* NULL-terminated */
    struct seal_policy seal;                 /* sealed and signed models */
    struct engine **engine_state;            /* parallel to `engines`; from ops->open */
    struct metrics *metrics;
    struct logger *log;
};

/* Scan and start loading (in the background; loader threads). Fails only on an unusable root or option. */
int registry_create(const struct registry_options *o, struct registry **out, struct error *err) MUST_CHECK;
/* Refuse new work, fail what is queued, drain running work, unload, join all threads. */
void registry_destroy(struct registry *r);

/* Called by the control thread about every 100 ms: poll the repository, run the watchdog, scale instances, expire. */
void registry_tick(struct registry *r, uint64_t now_ns);

/* From atomics only: never waits for a load, a queue or an engine. */
bool registry_ready(const struct registry *r);
bool registry_settled(const struct registry *r); /* the first load pass is over */

/* Find a version that serves. `version`: empty (the highest ready one by version order, or the model's `stable` label
 * where set), an integer, a semver or a label. On success *out holds a reference. NOT_FOUND: unknown model or version;
 * UNAVAILABLE: known, not ready (text says the state and reason); NOMEM: the same, and it is for want of memory. Any thread, wait-free for readers. */
int registry_find(struct registry *r, struct str model, struct str version, struct model_version **out,
                  struct error *err) MUST_CHECK;
/* It is known, and doesn't serve now. */
static inline bool registry_is_unready(int found)
{
    return found == STATUS_UNAVAILABLE || found == STATUS_NOMEM;
}
struct model_version *model_version_ref(struct model_version *v);
void model_version_unref(struct model_version *v);

struct str model_version_model(const struct model_version *v);   /* model name */
struct str model_version_version(const struct model_version *v); /* "3" or "1.2.0" */
const struct engine_contract *model_version_contract(const struct model_version *v);
const struct model_config *model_version_config(const struct model_version *v); /* effective: file + inferred */
/* Effective max batch rows; 0: the model does not batch (shapes have no batch axis of ours). */
uint32_t model_version_max_batch(const struct model_version *v);
/* Requests of one row that keep every instance at work: a full batch in each, and one more that waits. For a token model: four. */
uint32_t model_version_busy(const struct model_version *v);
/* Labels of output `index` for the classification extension; NULL when it has none. n lines. */
const struct str *model_version_labels(const struct model_version *v, size_t index, size_t *n);
/* The engine's token face, for the OpenAI protocol. */
const struct engine_ops *model_version_ops(const struct model_version *v);
struct engine_model *model_version_engine(const struct model_version *v);

/* Triton statistics extension. Counters are cumulative; ns. */
struct version_duration {
    uint64_t count, ns;
};
struct version_batch_stat {
    uint32_t rows;
    struct version_duration input, infer, output;
};
struct version_stats {
    uint64_t last_inference_ms; /* wall clock, ms since 1970 */
    uint64_t inference_count;   /* rows */
    uint64_t execution_count;   /* engine runs */
    struct version_duration success, fail, queue, compute_input, compute_infer, compute_output, cache_hit, cache_miss;
    struct version_batch_stat batch[256]; /* by batch rows seen, sorted; rows above fall into the last */
    size_t n_batch;
    struct engine_memory memory;
    uint64_t pending; /* queued + running requests */
};
void model_version_stats(const struct model_version *v, struct version_stats *out);
/* How long a request that came now would wait for its answer, as well as the batcher knows; 0: unknown. For Retry-After. Any
 * thread; takes the queue's lock shortly. */
uint64_t model_version_backlog_ns(struct model_version *v);

/* Protocols that carry inference, as the `protocol` label of metrics. */
enum model_protocol { MODEL_PROTOCOL_HTTP, MODEL_PROTOCOL_GRPC, MODEL_PROTOCOL_OPENAI, MODEL_PROTOCOL_COUNT };
struct infer_times; /* model/infer.h */

/* Count one finished request of this version as its protocol saw it: inferd_requests_total{model,version,protocol,status}
 * (status: status_name), and on STATUS_OK the histograms inferd_decode_seconds, inferd_encode_seconds (encoded_ns -
 * output_ns) and inferd_request_seconds (encoded_ns - received_ns). Lock-free after a series' first use. Any thread. */
void model_version_record(struct model_version *v, enum model_protocol protocol, int status, const struct infer_times *t);

/* One row a model version for the repository index; borrowed for the call. */
struct index_row {
    struct str model, version; /* version empty: the model has no loaded version */
    enum version_state state;
    uint64_t since_ns; /* in this state since then, monotonic; 0: never loaded */
    struct str reason;
};
/* From memory, never from disk. `model` empty: all. Also lists, in poll and explicit mode, models known but not loaded. */
void registry_index(struct registry *r, bool ready_only, void (*row)(void *ctx, const struct index_row *row), void *ctx);
/* Versions of one model that are ready, ascending: calls back with each name. NOT_FOUND when the model is unknown. */
int registry_versions(struct registry *r, struct str model, void (*each)(void *ctx, struct str version), void *ctx,
                      struct error *err) MUST_CHECK;

/* Explicit mode. Returns at once; `done` (optional) is called once on a loader thread with the outcome: load: the new version
 * serves, or failed and the old one still serves; unload: drained and freed. CONFLICT: the mode is not explicit or the same
 * model is being loaded or unloaded; NOT_FOUND: no such model. `config`: optional inline model config (JSON text). */
int registry_load(struct registry *r, struct str model, struct str config,
                  void (*done)(void *ctx, int status, const char *text), void *ctx, struct error *err) MUST_CHECK;
int registry_unload(struct registry *r, struct str model, void (*done)(void *ctx, int status, const char *text), void *ctx,
                    struct error *err) MUST_CHECK;
enum registry_mode registry_mode(const struct registry *r);
/* Whether a model may still come to serve by itself: one is being loaded, or waits until its files have settled. Any thread; takes the
 * registry's lock. */
bool registry_waits(struct registry *r);

/* Shutdown: queued work is answered with UNAVAILABLE, running work may finish; true once nothing is in flight. */
void registry_drain(struct registry *r);
bool registry_idle(const struct registry *r);

/* Print, per model, what would be served: contract, policy, sources of each value (inferd check). No server needed. */
int registry_check(const struct registry_options *o, struct buf *out, struct error *err) MUST_CHECK;

#endif
