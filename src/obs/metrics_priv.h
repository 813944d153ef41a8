/* metrics_priv.h: for the siblings metrics.c and metrics_render.c: how families, series and hooks are laid out. */
#ifndef INFERD_OBS_METRICS_PRIV_H
#define INFERD_OBS_METRICS_PRIV_H

#include <stdbool.h>

#include "base/list.h"
#include "base/map.h"
#include "obs/metrics.h"
#include "os/thread.h"

#define METRICS_LABELS_MAX 8
#define METRICS_SERIES_MAX 10000 /* per family: a label that a client can choose must not eat the memory */

/* One allocation, cache-line aligned: [header | handle | buckets | key]. The handle has its own cache line, so that two I/O
 * threads updating neighbouring series don't share one. */
struct metrics_series {
    struct list node; /* in family->series */
    struct str key;   /* label values, each followed by a NUL */
    union {
        _Alignas(64) struct metric metric;
        struct metric_histogram histogram;
    };
};

struct metric_family {
    struct list node; /* in metrics->families; first registered first */
    struct metrics *metrics;
    enum metric_kind kind;
    const char *name, *help;
    const char *labels[METRICS_LABELS_MAX];
    size_t n_labels;
    const double *bounds;
    size_t n_bounds;
    struct list series; /* of metrics_series; oldest first */
    struct map by_key;
};

struct metrics_hook {
    struct list node;
    void (*scrape)(void *ctx); /* one of the two */
    void (*render)(void *ctx, struct buf *out);
    void *ctx;
};

struct metrics {
    struct os_mutex lock; /* RANK_METRICS: everything below; never held across a hook */
    struct os_cond idle;  /* signalled when scraping becomes false */
    bool scraping;        /* a scrape runs hooks; guards the hook list too: it changes only while this is false */
    struct list families;
    struct map by_name;
    struct list hooks;
    uint64_t refused; /* series not made because of METRICS_SERIES_MAX */
};

#endif
