/* engine_metrics.c: the engines' own series on the metrics page. Each model's engine renders its own text; a family may stand on the page
 * only once (Prometheus text format 0.0.4), so the texts are merged: per family one TYPE line, then every model's samples. */
#include <stdlib.h>

#include "api/api_priv.h"
#include "base/size.h"
#include "model/registry.h"

struct texts {
    struct api *api;
    struct buf *v;
    size_t n, cap;
};

static struct buf *add_text(struct texts *t)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 8;
        struct buf *grown = reallocarray(t->v, cap, sizeof *grown);
        if (!grown)
            return NULL;
        t->v = grown;
        t->cap = cap;
    }
    buf_init(&t->v[t->n]);
    return &t->v[t->n++];
}

static void gather(void *ctx, const struct index_row *row)
{
    struct texts *t = ctx;
    struct model_version *v;
    if (!row->version.n || registry_find(t->api->o.registry, row->model, row->version, &v, NULL) < 0)
        return;
    struct buf *text = model_version_ops(v)->metrics ? add_text(t) : NULL;
    if (text)
        model_version_ops(v)->metrics(model_version_engine(v), text);
    model_version_unref(v);
}

static bool is_type(struct str line)
{
    return str_starts(line, STR("# TYPE "));
}

/* Does the TYPE line `line` stand in one of the texts before number `n`? */
static bool seen_before(const struct str *texts, size_t n, struct str line)
{
    for (size_t i = 0; i < n; i++) {
        struct str rest = texts[i], each;
        while (str_cut(&rest, '\n', &each))
            if (str_eq(each, line))
                return true;
    }
    return false;
}

/* The samples below the TYPE line `type` in `text`. */
static void put_samples(struct str text, struct str type, struct buf *out)
{
    struct str line;
    bool in = false;
    while (str_cut(&text, '\n', &line)) {
        if (is_type(line))
            in = str_eq(line, type);
        else if (in && line.n) {
            buf_append_str(out, line);
            buf_append_c(out, '\n');
        }
    }
}

void api__merge_metrics(const struct str *texts, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        struct str rest = texts[i], line;
        while (str_cut(&rest, '\n', &line)) {
            if (!is_type(line) || seen_before(texts, i, line))
                continue;
            buf_append_str(out, line);
            buf_append_c(out, '\n');
            for (size_t k = i; k < n; k++)
                put_samples(texts[k], line, out);
        }
    }
}

void api__render_engines(struct api *a, struct buf *out)
{
    struct texts t = {.api = a};
    registry_index(a->o.registry, true, gather, &t);
    struct str *views = calloc(t.n + 1, sizeof *views);
    for (size_t i = 0; i < t.n && views; i++)
        views[i] = t.v[i].failed ? (struct str){0} : buf_str(&t.v[i]);
    if (views)
        api__merge_metrics(views, t.n, out);
    else
        out->failed = true;
    free(views);
    for (size_t i = 0; i < t.n; i++)
        buf_release(&t.v[i]);
    free(t.v);
}
