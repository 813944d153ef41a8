/* metrics_render.c: hooks and the Prometheus text format (exposition format 0.0.4).
 *
 * A scrape: wait for the running one, refresh (hooks), render the families under the lock, append the hooks' own text. The
 * count of a histogram is the sum of its buckets as they were read, so `_count` and the +Inf bucket always agree. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "obs/metrics_priv.h"
#include "obs/text_priv.h"

static const char *const kind_names[] = {"counter", "gauge", "histogram", "counter"};

static void add_hook(struct metrics *m, struct metrics_hook hook)
{
    struct metrics_hook *h = malloc(sizeof *h);
    if (WARN_ON(!h))
        return;
    *h = hook;
    os_mutex_lock(&m->lock);
    while (m->scraping)
        os_cond_wait(&m->idle, &m->lock);
    list_push_back(&m->hooks, &h->node);
    os_mutex_unlock(&m->lock);
}

void metrics_on_scrape(struct metrics *m, void (*fn)(void *ctx), void *ctx)
{
    add_hook(m, (struct metrics_hook){.scrape = fn, .ctx = ctx});
}

void metrics_on_render(struct metrics *m, void (*fn)(void *ctx, struct buf *out), void *ctx)
{
    add_hook(m, (struct metrics_hook){.render = fn, .ctx = ctx});
}

void metrics_unhook(struct metrics *m, const void *ctx)
{
    os_mutex_lock(&m->lock);
    while (m->scraping)
        os_cond_wait(&m->idle, &m->lock);
    LIST_EACH(it, &m->hooks)
    {
        struct metrics_hook *h = LIST_ENTRY(it, struct metrics_hook, node);
        if (h->ctx != ctx)
            continue;
        list_remove(&h->node);
        free(h);
    }
    os_mutex_unlock(&m->lock);
}

/* Backslash and newline, and the quote in label values. */
static void append_escaped(struct buf *out, struct str s, bool quote)
{
    size_t start = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c != '\n' && c != '\\' && !(quote && c == '"'))
            continue;
        buf_append(out, s.p + start, i - start);
        buf_append(out, (char[]){'\\', c == '\n' ? 'n' : c}, 2);
        start = i + 1;
    }
    buf_append(out, s.p + start, s.n - start);
}

void metrics_append_label(struct buf *out, const char *name, struct str value)
{
    buf_append_z(out, name);
    buf_append(out, "=\"", 2);
    append_escaped(out, value, true);
    buf_append_c(out, '"');
}

static void append_double(struct buf *out, double v)
{
    if (isfinite(v))
        text__append_f64(out, v);
    else
        buf_append_z(out, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
}

/* Texts that many lines share, rendered once: a series' labels (a="x",b="y") and a family's bounds, NUL-terminated each. */
struct shared_text {
    struct buf labels, bounds;
};

static void render_labels(struct buf *labels, const struct metric_family *f, const struct metrics_series *s)
{
    const char *value = s->key.p;
    buf_clear(labels);
    for (size_t i = 0; i < f->n_labels; i++, value += strlen(value) + 1) {
        buf_append_z(labels, i ? "," : "");
        metrics_append_label(labels, f->labels[i], str_of(value));
    }
}

static void render_bounds(struct buf *bounds, const struct metric_family *f)
{
    buf_clear(bounds);
    for (size_t i = 0; i <= f->n_bounds && f->kind == METRIC_HISTOGRAM; i++) {
        append_double(bounds, i < f->n_bounds ? f->bounds[i] : INFINITY);
        buf_append_c(bounds, 0);
    }
}

/* name_suffix{labels,le="..."}<space>; `le` NULL: none. */
static void append_head(struct buf *out, const struct metric_family *f, const char *suffix, const struct buf *labels,
                        const char *le)
{
    buf_append_z(out, f->name);
    buf_append_z(out, suffix);
    if (labels->n || le) {
        buf_append_c(out, '{');
        buf_append(out, labels->p, labels->n);
        if (le) {
            buf_append_z(out, labels->n ? ",le=\"" : "le=\"");
            buf_append_z(out, le);
            buf_append_c(out, '"');
        }
        buf_append_c(out, '}');
    }
    buf_append_c(out, ' ');
}

static void append_histogram(struct buf *out, const struct metric_family *f, const struct metric_histogram *h,
                             const struct shared_text *text)
{
    uint64_t below = 0;
    const char *le = text->bounds.p;
    for (size_t i = 0; i <= h->n_bounds; i++, le += strlen(le) + 1) {
        below += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        append_head(out, f, "_bucket", &text->labels, le);
        buf_append_u64(out, below);
        buf_append_c(out, '\n');
    }
    append_head(out, f, "_sum", &text->labels, NULL);
    append_double(out, metric_sum(h));
    buf_append_c(out, '\n');
    append_head(out, f, "_count", &text->labels, NULL);
    buf_append_u64(out, below);
    buf_append_c(out, '\n');
}

static void append_series(struct buf *out, const struct metric_family *f, const struct metrics_series *s,
                          struct shared_text *text)
{
    render_labels(&text->labels, f, s);
    if (text->labels.failed) {
        out->failed = true;
        return;
    }
    if (f->kind == METRIC_HISTOGRAM) {
        append_histogram(out, f, &s->histogram, text);
        return;
    }
    append_head(out, f, "", &text->labels, NULL);
    if (f->kind == METRIC_COUNTER)
        buf_append_u64(out, metric_count(&s->metric));
    else
        append_double(out, metric_value(&s->metric));
    buf_append_c(out, '\n');
}

static void append_family(struct buf *out, struct metric_family *f, struct shared_text *text)
{
    if (list_empty(&f->series))
        return;
    buf_printf(out, "# HELP %s ", f->name);
    append_escaped(out, str_of(f->help), false);
    buf_printf(out, "\n# TYPE %s %s\n", f->name, kind_names[f->kind]);
    render_bounds(&text->bounds, f);
    if (text->bounds.failed)
        out->failed = true;
    LIST_EACH(it, &f->series)
    {
        if (out->failed)
            return;
        append_series(out, f, LIST_ENTRY(it, struct metrics_series, node), text);
    }
}

static void append_families(struct metrics *m, struct buf *out)
{
    struct shared_text text = {0};
    LIST_EACH(it, &m->families)
    {
        append_family(out, LIST_ENTRY(it, struct metric_family, node), &text);
    }
    buf_release(&text.labels);
    buf_release(&text.bounds);
}

static void append_refused(struct buf *out, uint64_t refused)
{
    if (refused)
        buf_printf(out,
                   "# HELP inferd_metrics_refused_series_total Lookups of series refused because their family was full.\n"
                   "# TYPE inferd_metrics_refused_series_total counter\n"
                   "inferd_metrics_refused_series_total %llu\n",
                   (unsigned long long)refused);
}

void metrics_render(struct metrics *m, struct buf *out)
{
    os_mutex_lock(&m->lock);
    while (m->scraping)
        os_cond_wait(&m->idle, &m->lock);
    m->scraping = true;
    os_mutex_unlock(&m->lock);

    LIST_EACH(it, &m->hooks)
    {
        struct metrics_hook *h = LIST_ENTRY(it, struct metrics_hook, node);
        if (h->scrape)
            h->scrape(h->ctx);
    }
    os_mutex_lock(&m->lock);
    append_families(m, out);
    append_refused(out, m->refused);
    os_mutex_unlock(&m->lock);
    LIST_EACH(it, &m->hooks)
    {
        struct metrics_hook *h = LIST_ENTRY(it, struct metrics_hook, node);
        if (h->render)
            h->render(h->ctx, out);
    }
    os_mutex_lock(&m->lock);
    m->scraping = false;
    os_cond_broadcast(&m->idle);
    os_mutex_unlock(&m->lock);
}

struct str metrics_label(struct str labels, const char *key)
{
    size_t k = strlen(key);
    for (size_t i = 0; i + k + 2 < labels.n; i++) {
        if ((i && !strchr(",{ ", labels.p[i - 1])) || memcmp(labels.p + i, key, k) != 0 ||
            memcmp(labels.p + i + k, "=\"", 2) != 0)
            continue;
        struct str v = {labels.p + i + k + 2, 0};
        while (i + k + 2 + v.n < labels.n && v.p[v.n] != '"')
            v.n++;
        return v;
    }
    return (struct str){0};
}
