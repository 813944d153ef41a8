/* metrics.h: counters, gauges and histograms, and their Prometheus text form.
 *
 * Families are registered once, at start or at model load, under a lock; series are found once and then updated through a
 * handle with relaxed atomics, so the hot path takes no lock and allocates nothing. A scrape reads without stopping writers.
 * A series is refcounted by its users; when a model unloads its series are dropped. */
#ifndef INFERD_OBS_METRICS_H
#define INFERD_OBS_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

struct metrics;
struct metric_family;

/* METRIC_SECONDS is a counter whose value is a double (CPU seconds): rendered as a counter, updated like a gauge. */
enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM, METRIC_SECONDS };

/* A counter or gauge value: gauges store the bits of a double, counters an integer count. */
struct metric {
    _Atomic uint64_t v;
};

/* Fixed log-spaced bounds, shared by all series of a family. */
struct metric_histogram {
    const double *bounds; /* ascending upper bounds, in the family's unit */
    size_t n_bounds;
    _Atomic uint64_t sum_bits; /* the bits of a double: bytes and seconds alike never wrap */
    _Atomic uint64_t *buckets; /* [n_bounds + 1], not cumulative */
};

struct metrics *metrics_create(void);
void metrics_destroy(struct metrics *m);

/* Register a family: `name` in Prometheus form with unit suffix, `help` one sentence, `labels` the label names in order
 * (NULL-terminated, may be NULL). bounds only for histograms. Registering the same name again returns the same family.
 * NULL when out of memory. Strings are borrowed and must be constants. Any thread; takes the registry's lock. */
struct metric_family *metrics_family(struct metrics *m, enum metric_kind kind, const char *name, const char *help,
                                     const char *const *labels, const double *bounds, size_t n_bounds);

/* Find or make the series with these label values (copied), one per label name. The pointer stays valid until
 * metrics_drop. Takes a lock: keep the handle. NULL when out of memory or past 10,000 series in the family. */
struct metric *metrics_series(struct metric_family *f, const char *const *values);
struct metric_histogram *metrics_histogram(struct metric_family *f, const char *const *values);
/* Remove every series whose label `label` has `value`, in all families. Handles to them must not be used afterwards. */
void metrics_drop(struct metrics *m, const char *label, const char *value);
/* As metrics_drop, for series that match both labels. */
void metrics_drop2(struct metrics *m, const char *label1, const char *value1, const char *label2, const char *value2);

static inline void metric_add(struct metric *c, uint64_t n)
{
    if (c)
        atomic_fetch_add_explicit(&c->v, n, memory_order_relaxed);
}
static inline void metric_inc(struct metric *c)
{
    metric_add(c, 1);
}
/* For a counter that mirrors a count kept elsewhere: store it; it must never go down. */
static inline void metric_mirror(struct metric *c, uint64_t n)
{
    if (c)
        atomic_store_explicit(&c->v, n, memory_order_relaxed);
}
void metric_set(struct metric *g, double v);
void metric_adjust(struct metric *g, double delta);
uint64_t metric_count(const struct metric *c);
double metric_value(const struct metric *g);
/* Count `v` in its bucket (bounds are inclusive: le) and add it to the sum. NaN is dropped (WARN_ON). */
void metric_observe(struct metric_histogram *h, double v);
/* All handles may be NULL: then updates do nothing and reads give 0. */
uint64_t metric_observations(const struct metric_histogram *h);
double metric_sum(const struct metric_histogram *h);

/* Called at each scrape to refresh gauges that are computed (process CPU, memory, queue depths). Hooks run on the scraping
 * thread without any lock of the registry, one scrape at a time, in order of registration; they must not block, render or
 * unhook. Out of memory: the hook is not kept (WARN_ON). */
void metrics_on_scrape(struct metrics *m, void (*fn)(void *ctx), void *ctx);
/* Extra text appended to each scrape (engines' own series); must be complete families. */
void metrics_on_render(struct metrics *m, void (*fn)(void *ctx, struct buf *out), void *ctx);
/* Forget all hooks with this ctx; waits for a scrape that is running them. After it returns `ctx` may be freed. */
void metrics_unhook(struct metrics *m, const void *ctx);

/* Prometheus text format 0.0.4; `# HELP`/`# TYPE` once per family; label values escaped, bytes in them that are not UTF-8 become
 * U+FFFD. Families in order of registration, series in order of creation; a family without series is left out. Any thread;
 * waits for another scrape to end. Out of memory sets out->failed. */
void metrics_render(struct metrics *m, struct buf *out);

/* `name`="value" as that format wants it, for hooks that write lines of their own. */
void metrics_append_label(struct buf *out, const char *name, struct str value);
/* The value of `key` among the labels of a line of that format, as it stands there (escapes too); empty when it isn't there. */
struct str metrics_label(struct str labels, const char *key);

/* Default bounds: 14 latency bounds from 100 us to 10 s, in seconds. */
extern const double METRICS_LATENCY_BOUNDS[];
extern const size_t METRICS_LATENCY_BOUNDS_N;

#endif
