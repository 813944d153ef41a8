/* metrics.c: the registry behind metrics.h: families, series, hooks, and the atomic updates.
 *
 * One lock guards the tables. It is taken to register, to find a series, to drop and to render; never to update. Updates are
 * relaxed: a scrape may see one counter of a request and not yet the other, as in every Prometheus client. Hooks run outside
 * the lock; the `scraping` flag keeps the hook list still meanwhile. What was rejected: per-thread shards merged at the scrape
 * (better under many I/O threads, but a series costs threads x 64 bytes and a dropped model must then be waited for). */
#include "obs/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "obs/metrics_priv.h"
#include "os/random.h"

const double METRICS_LATENCY_BOUNDS[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                         0.025,  0.05,    0.1,    0.25,  1,      2.5,   10};
const size_t METRICS_LATENCY_BOUNDS_N = COUNT_OF(METRICS_LATENCY_BOUNDS);

struct metrics *metrics_create(void)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    os_mutex_init(&m->lock, RANK_METRICS);
    os_cond_init(&m->idle);
    list_init(&m->families);
    list_init(&m->hooks);
    map_init(&m->by_name, os_random_u64());
    return m;
}

static void series_remove(struct metric_family *f, struct metrics_series *s)
{
    map_remove(&f->by_key, s->key);
    list_remove(&s->node);
    free(s);
}

void metrics_destroy(struct metrics *m)
{
    if (!m)
        return;
    LIST_EACH(it, &m->families)
    {
        struct metric_family *f = LIST_ENTRY(it, struct metric_family, node);
        LIST_EACH(s, &f->series)
        free(LIST_ENTRY(s, struct metrics_series, node));
        map_release(&f->by_key);
        free(f);
    }
    LIST_EACH(it, &m->hooks)
    free(LIST_ENTRY(it, struct metrics_hook, node));
    map_release(&m->by_name);
    os_cond_release(&m->idle);
    os_mutex_release(&m->lock);
    free(m);
}

static bool is_name(const char *name, bool colon)
{
    for (const char *p = name; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || *p == '_' || (colon && *p == ':');
        if (!letter && !(p > name && *p >= '0' && *p <= '9'))
            return false;
    }
    return *name != 0;
}

/* Triton's names (metrics.compat) are the only counters that may break the rule of the suffix. */
static bool is_counter_name(const char *name)
{
    return str_ends(str_of(name), STR("_total")) || str_starts(str_of(name), STR("nv_"));
}

static bool same_family(const struct metric_family *f, enum metric_kind kind, const char *const *labels, size_t n_labels)
{
    if (f->kind != kind || f->n_labels != n_labels)
        return false;
    for (size_t i = 0; i < n_labels; i++)
        if (strcmp(f->labels[i], labels[i]) != 0)
            return false;
    return true;
}

static struct metric_family *family_make(struct metrics *m, enum metric_kind kind, const char *name, const char *help,
                                         const char *const *labels, size_t n_labels)
{
    struct metric_family *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->metrics = m;
    f->kind = kind;
    f->name = name;
    f->help = help;
    f->n_labels = n_labels;
    for (size_t i = 0; i < n_labels; i++) {
        ASSERT(is_name(labels[i], false) && strcmp(labels[i], "le") != 0);
        f->labels[i] = labels[i];
    }
    list_init(&f->series);
    list_init(&f->node);
    map_init(&f->by_key, os_random_u64());
    if (map_put(&m->by_name, str_of(name), f) < 0) {
        free(f);
        return NULL;
    }
    list_push_back(&m->families, &f->node);
    return f;
}

struct metric_family *metrics_family(struct metrics *m, enum metric_kind kind, const char *name, const char *help,
                                     const char *const *labels, const double *bounds, size_t n_bounds)
{
    size_t n_labels = 0;
    while (labels && labels[n_labels])
        n_labels++;
    ASSERT(is_name(name, true) && n_labels <= METRICS_LABELS_MAX);
    ASSERT((kind != METRIC_COUNTER && kind != METRIC_SECONDS) || is_counter_name(name));
    ASSERT(kind != METRIC_HISTOGRAM || n_bounds > 0);
    for (size_t i = 1; i < n_bounds; i++)
        ASSERT(bounds[i - 1] < bounds[i]);
    os_mutex_lock(&m->lock);
    struct metric_family *f = map_get(&m->by_name, str_of(name));
    if (f) {
        ASSERT(same_family(f, kind, labels, n_labels));
    } else if ((f = family_make(m, kind, name, help, labels, n_labels))) {
        f->bounds = bounds;
        f->n_bounds = n_bounds;
    }
    os_mutex_unlock(&m->lock);
    return f;
}

/* A label value as it is kept: what is not UTF-8 becomes U+FFFD here already, so that two values never look the same in the text. */
static void append_clean(struct buf *out, const char *value)
{
    struct str s = str_of(value);
    for (size_t i = 0, len; i < s.n; i += len ? len : 1) {
        len = str_utf8_at(s, i);
        buf_append_str(out, len ? (struct str){s.p + i, len} : STR("\xef\xbf\xbd"));
    }
    buf_append_c(out, 0);
}

/* The label values, each followed by a NUL. */
static bool key_make(const struct metric_family *f, const char *const *values, struct buf *key)
{
    for (size_t i = 0; i < f->n_labels; i++)
        append_clean(key, values[i]);
    return !key->failed;
}

static struct metrics_series *series_make(struct metric_family *f, struct str key)
{
    size_t buckets = f->kind == METRIC_HISTOGRAM ? f->n_bounds + 1 : 0, bytes;
    if (!size_mul(buckets, sizeof(uint64_t), &bytes) || !size_add(bytes, sizeof(struct metrics_series), &bytes))
        return NULL;
    size_t key_at = bytes;
    if (!size_add(bytes, key.n, &bytes) || !size_align(bytes, 64, &bytes))
        return NULL;
    struct metrics_series *s = aligned_alloc(64, bytes);
    if (!s)
        return NULL;
    memset(s, 0, bytes);
    s->key = (struct str){(char *)s + key_at, key.n};
    if (key.n)
        memcpy((char *)s + key_at, key.p, key.n);
    if (f->kind == METRIC_HISTOGRAM) {
        s->histogram.bounds = f->bounds;
        s->histogram.n_bounds = f->n_bounds;
        s->histogram.buckets = (_Atomic uint64_t *)(s + 1);
    }
    if (map_put(&f->by_key, s->key, s) < 0) {
        free(s);
        return NULL;
    }
    list_push_back(&f->series, &s->node);
    return s;
}

static struct metrics_series *series_get(struct metric_family *f, const char *const *values)
{
    struct buf key = {0};
    struct metrics_series *s = NULL;
    if (!f)
        return NULL;
    if (key_make(f, values, &key)) {
        os_mutex_lock(&f->metrics->lock);
        s = map_get(&f->by_key, buf_str(&key));
        if (!s && f->by_key.n >= METRICS_SERIES_MAX)
            f->metrics->refused++;
        else if (!s)
            s = series_make(f, buf_str(&key));
        os_mutex_unlock(&f->metrics->lock);
    }
    buf_release(&key);
    return s;
}

struct metric *metrics_series(struct metric_family *f, const char *const *values)
{
    ASSERT(!f || f->kind != METRIC_HISTOGRAM);
    struct metrics_series *s = series_get(f, values);
    return s ? &s->metric : NULL;
}

struct metric_histogram *metrics_histogram(struct metric_family *f, const char *const *values)
{
    ASSERT(!f || f->kind == METRIC_HISTOGRAM);
    struct metrics_series *s = series_get(f, values);
    return s ? &s->histogram : NULL;
}

/* Whether `kept` is what append_clean made of `value`. */
static bool is_clean_of(const char *kept, const char *value)
{
    struct str s = str_of(value);
    for (size_t i = 0; i < s.n;) {
        size_t len = str_utf8_at(s, i), n = len ? len : 3;
        if (strncmp(kept, len ? s.p + i : "\xef\xbf\xbd", n) != 0)
            return false;
        kept += n;
        i += len ? len : 1;
    }
    return !*kept;
}

/* Whether the series has `value` at the label named `label`. */
static bool series_has(const struct metric_family *f, const struct metrics_series *s, const char *label, const char *value)
{
    const char *at = s->key.p;
    for (size_t i = 0; i < f->n_labels; i++, at += strlen(at) + 1)
        if (!strcmp(f->labels[i], label))
            return is_clean_of(at, value);
    return false;
}

void metrics_drop2(struct metrics *m, const char *label1, const char *value1, const char *label2, const char *value2)
{
    os_mutex_lock(&m->lock);
    LIST_EACH(it, &m->families)
    {
        struct metric_family *f = LIST_ENTRY(it, struct metric_family, node);
        LIST_EACH(at, &f->series)
        {
            struct metrics_series *s = LIST_ENTRY(at, struct metrics_series, node);
            if (series_has(f, s, label1, value1) && series_has(f, s, label2, value2))
                series_remove(f, s);
        }
    }
    os_mutex_unlock(&m->lock);
}

void metrics_drop(struct metrics *m, const char *label, const char *value)
{
    metrics_drop2(m, label, value, label, value);
}

static uint64_t bits_of(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void add_double(_Atomic uint64_t *at, double delta)
{
    uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(at, &old, bits_of(double_of(old) + delta), memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

void metric_set(struct metric *g, double v)
{
    if (g)
        atomic_store_explicit(&g->v, bits_of(v), memory_order_relaxed);
}

void metric_adjust(struct metric *g, double delta)
{
    if (g)
        add_double(&g->v, delta);
}

uint64_t metric_count(const struct metric *c)
{
    return c ? atomic_load_explicit(&c->v, memory_order_relaxed) : 0;
}
double metric_value(const struct metric *g)
{
    return double_of(metric_count(g));
}

void metric_observe(struct metric_histogram *h, double v)
{
    if (!h || WARN_ON(isnan(v)))
        return;
    size_t i = 0;
    while (i < h->n_bounds && v > h->bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->buckets[i], 1, memory_order_relaxed);
    add_double(&h->sum_bits, v);
}

uint64_t metric_observations(const struct metric_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; h && i <= h->n_bounds; i++)
        n += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
    return n;
}

double metric_sum(const struct metric_histogram *h)
{
    return h ? double_of(atomic_load_explicit(&h->sum_bits, memory_order_relaxed)) : 0;
}
