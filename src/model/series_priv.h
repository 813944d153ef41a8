/* series_priv.h: for siblings in model/ only: what is counted per (model, version name).
 *
 * One series outlives the version objects that feed it: a reload of version 3 goes on counting where the old build stopped, so
 * counters never go back. Refcounted under the owner's lock (see series_get); everything inside is updated with relaxed atomics
 * by any thread. The metric families and Triton's statistics are fed by the same calls. */
#ifndef INFERD_MODEL_SERIES_PRIV_H
#define INFERD_MODEL_SERIES_PRIV_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/status.h"
#include "model/infer.h"
#include "model/registry.h"
#include "obs/metrics.h"
#include "os/thread.h"

enum series_where { WHERE_ADMISSION, WHERE_QUEUE, WHERE_RUNNING, WHERE_COUNT };
enum series_phase { PHASE_DECODE, PHASE_ENCODE, PHASE_REQUEST, SERIES_PHASES };
enum series_reject { REJECT_MODEL, REJECT_TOTAL, REJECT_COUNT };

struct atomic_duration {
    _Atomic uint64_t count, ns;
};

struct series {
    struct list link;
    uint32_t refs; /* guarded by the table's lock */
    char *model, *version;

    struct metric *rows, *executions, *queue_rows, *queue_bytes, *instances, *instances_hung, *busy_s, *memory, *cache_hits,
        *cache_misses;
    struct metric *cancelled[WHERE_COUNT], *deadline[WHERE_COUNT], *rejected[REJECT_COUNT];
    struct metric_histogram *batch_rows, *queue_s, *batch_wait_s, *compute_s;

    /* made at their first use, by record.c */
    _Atomic(struct metric *) requests[MODEL_PROTOCOL_COUNT][STATUS_COUNT];
    _Atomic(struct metric_histogram *) phases[MODEL_PROTOCOL_COUNT][SERIES_PHASES];
    struct metrics *metrics; /* NULL: nothing is exported */

    _Atomic uint64_t last_inference_ms, inference_count, execution_count;
    struct atomic_duration success, fail, queue, input, infer, output, cache_hit, cache_miss;
    struct {
        struct atomic_duration input, infer, output;
    } batch[256]; /* [rows - 1], the last one also for more */
};

/* All series of a registry, and the families they belong to. */
struct series_table {
    struct os_mutex lock; /* RANK_VERSION_STATE: the list and the refcounts */
    struct list all;
    struct metrics *metrics; /* NULL: nothing is exported */
    struct metric *loads[2]; /* by result: ok, failed */
};

void series_table_init(struct series_table *t, struct metrics *m);
/* Every series must have been put back. */
void series_table_release(struct series_table *t);

/* Find or make; one reference. NULL when out of memory. Loader threads. */
struct series *series_get(struct series_table *t, struct str model, struct str version);
/* Drop one reference; the last one removes the series from the metrics. NULL is accepted. */
void series_put(struct series_table *t, struct series *s);

/* One request ended: `inf` has its status and times. Any thread. */
void series_request(struct series *s, const struct infer *inf, uint64_t now_ns);
/* One engine run ended well: rows in it, and the times of its phases in ns. Any thread. */
void series_run(struct series *s, uint32_t rows, uint64_t input_ns, uint64_t infer_ns, uint64_t output_ns);
/* Triton's statistics. `out->memory` and `out->pending` are the caller's to fill. */
void series_stats(const struct series *s, struct version_stats *out);

#endif
