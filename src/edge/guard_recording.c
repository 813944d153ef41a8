/* guard_recording.c: references of models: read from .npy, recorded from requests, fitted, scored.
 *
 * A slot is made when a policy with a reference is first seen and lives as long as the gate, so that a set may point to it. What changes in it,
 * the fitted reference and the recording, is under the gate's lock; fitting is done outside of it, on rows that were taken out.
 *
 * A recording keeps rows as they came, of one data type and shape (the first's; others are left out), until it has enough. It is written as
 * .npy, which is what is read: whoever wants to can look at it with numpy, thin it out, or add to it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/guard_gate_priv.h"
#include "os/dir.h"
#include "os/file.h"
#include "tensor/npy.h"

#define FILE_BYTES_MAX (GUARD_RECORD_BYTES_MAX + (1u << 20))
#define FILE_MODE      0600
#define FOLDER_MODE    0700
#define PATH_BYTES     4096

struct guard_slot {
    struct list link;
    char *policy, *model, *input, *file; /* the last two may be NULL */
    unsigned methods;
    double rate;
    enum guard_layout layout;
    size_t want;
    struct guard_reference *reference; /* NULL: none */
    bool recording;
    struct buf rows; /* as recorded */
    size_t n_rows;
    enum dtype dtype;
    struct shape row; /* of one row, with dim[0] = 1 */
};

static char *copy(const char *z)
{
    return z ? str_dup(str_of(z)) : NULL;
}

static void free_slot(struct guard_slot *s)
{
    guard_reference_unref(s->reference);
    buf_release(&s->rows);
    free(s->policy);
    free(s->model);
    free(s->input);
    free(s->file);
    free(s);
}

void guard__slots_release(struct guard_gate *g)
{
    LIST_EACH(l, &g->slots)
    free_slot(LIST_ENTRY(l, struct guard_slot, link));
    list_init(&g->slots);
}

/* ---- fitting ---- */

/* Where neighbours are in a row of this shape, [1, ...]. */
static struct guard_grid grid_of(enum guard_layout layout, const struct shape *row)
{
    struct guard_grid g = {0};
    int at = row->rank - 3;
    if (layout == GUARD_NO_IMAGE || at < 0)
        return g;
    bool planes = layout == GUARD_CHW;
    g.planes = planes;
    g.height = (size_t)row->dim[at + (planes ? 1 : 0)];
    g.width = (size_t)row->dim[at + (planes ? 2 : 1)];
    g.channels = (size_t)row->dim[at + (planes ? 0 : 2)];
    return g;
}

static int fit(const struct guard_slot *s, const struct tensor *rows, struct guard_reference **out, struct error *err)
{
    struct guard_grid grid = grid_of(s->layout, &rows->shape);
    int rc = guard_reference_fit(rows, s->methods, s->rate, &grid, out, err);
    return rc < 0 ? error_prefix(err, "the policy \"%s\"", s->policy) : 0;
}

static bool path_of(const struct guard_gate *g, const struct guard_slot *s, char *out, size_t cap)
{
    int n = -1;
    size_t front = 0;
    if (s->file) {
        n = snprintf(out, cap, "%s", s->file);
    } else if (g->o.folder) {
        front = strlen(g->o.folder) + sizeof "/guard";
        n = snprintf(out, cap, "%s/guard/%s.npy", g->o.folder, s->policy);
    }
    if (n <= 0 || (size_t)n >= cap)
        return false;
    for (size_t i = front; front && i < (size_t)n; i++) /* a policy's name may have one */
        out[i] = out[i] == '/' ? '_' : out[i];
    return true;
}

/* The reference from its file, where there is one. */
static int read_reference(struct guard_gate *g, struct guard_slot *s, struct error *err)
{
    char path[PATH_BYTES];
    struct buf text;
    struct tensor rows = {0};
    if (!path_of(g, s, path, sizeof path))
        return 0;
    buf_init(&text);
    int rc = os_file_read(path, FILE_BYTES_MAX, &text, err);
    if (rc == STATUS_NOT_FOUND) {
        if (s->file && g->o.log)
            LOG(g->o.log, LOG_WARN, "guard_reference_missing", LOG_S("policy", s->policy), LOG_S("file", path),
                LOG_S("hint", "record one: POST /admin/guard/MODEL/record, stop, save"));
        buf_release(&text);
        return 0;
    }
    struct slice file = slice_borrow(text.p, text.n);
    if (rc == 0)
        rc = npy_read(file, &rows, err);
    if (rc == 0)
        rc = fit(s, &rows, &s->reference, err);
    tensor_release(&rows);
    buf_release(&text);
    return rc < 0 ? error_prefix(err, "%s", path) : 0;
}

/* ---- slots of a set ---- */

/* What a fitted reference depends on. */
static bool same_rule(const struct guard_slot *s, const struct guard_input *p, enum guard_layout layout)
{
    const struct guard_reference_rule *x = p->reference;
    return strcmp(s->policy, p->name) == 0 && strcmp(s->model, p->match.model) == 0 && s->methods == x->methods &&
           s->rate >= x->rate && s->rate <= x->rate && s->layout == layout && s->want == x->record_rows &&
           str_eq(str_of(s->input), str_of(x->input)) && str_eq(str_of(s->file), str_of(x->file));
}

static enum guard_layout layout_of(const struct guard_input *p)
{
    for (size_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].image.layout != GUARD_NO_IMAGE)
            return p->tensors[i].image.layout;
    return GUARD_NO_IMAGE;
}

static struct guard_slot *make_slot(const struct guard_input *p, enum guard_layout layout)
{
    const struct guard_reference_rule *x = p->reference;
    struct guard_slot *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    list_init(&s->link);
    s->policy = copy(p->name);
    s->model = copy(p->match.model);
    s->input = copy(x->input);
    s->file = copy(x->file);
    s->methods = x->methods;
    s->rate = x->rate;
    s->layout = layout;
    s->want = x->record_rows;
    if (s->policy && s->model && (s->input || !x->input) && (s->file || !x->file))
        return s;
    free_slot(s);
    return NULL;
}

static struct guard_slot *find_slot(struct guard_gate *g, const struct guard_input *p, enum guard_layout layout)
{
    struct guard_slot *found = NULL;
    os_mutex_lock(&g->lock);
    LIST_EACH(l, &g->slots)
    {
        struct guard_slot *s = LIST_ENTRY(l, struct guard_slot, link);
        if (!found && same_rule(s, p, layout))
            found = s;
    }
    os_mutex_unlock(&g->lock);
    return found;
}

int guard__slots_bind(struct guard_gate *g, struct guard_set *set, struct error *err)
{
    for (size_t i = 0; i < set->n_inputs; i++) {
        struct guard_input *p = &set->inputs[i];
        enum guard_layout layout = layout_of(p);
        if (!p->reference)
            continue;
        p->slot = find_slot(g, p, layout);
        if (p->slot)
            continue;
        struct guard_slot *s = make_slot(p, layout);
        int rc = s ? read_reference(g, s, err) : error_set(err, STATUS_NOMEM, "out of memory for the guard's references");
        if (rc < 0) {
            if (s)
                free_slot(s);
            return rc;
        }
        os_mutex_lock(&g->lock);
        list_push_back(&g->slots, &s->link);
        os_mutex_unlock(&g->lock);
        p->slot = s;
    }
    return 0;
}

/* ---- requests ---- */

/* Lock held. Keep the rows of `t` that there is room for. */
static void record_rows(struct guard_slot *s, const struct tensor *t, size_t rows, size_t features)
{
    size_t bytes = features * dtype_bytes(t->dtype);
    struct shape row = t->shape;
    if (!bytes || !row.rank)
        return;
    row.dim[0] = 1;
    if (!s->n_rows) {
        s->dtype = t->dtype;
        s->row = row;
    }
    if (t->dtype != s->dtype || !shape_eq(&row, &s->row))
        return;
    size_t room = MIN_OF(s->want - s->n_rows, (GUARD_RECORD_BYTES_MAX - s->rows.n) / bytes), n = MIN_OF(rows, room);
    buf_append(&s->rows, t->data.p, n * bytes);
    if (s->rows.failed)
        s->rows.failed = false; /* what there is, is whole rows */
    s->n_rows = s->rows.n / bytes;
    s->recording = n == rows && s->n_rows < s->want;
}

static int judge(const struct guard_input *p, const struct guard_reference *r, const struct tensor *t, size_t rows,
                 struct error *err)
{
    for (size_t row = 0; row < rows; row++) {
        struct guard_score score;
        guard_reference_score(r, t, row, &score);
        for (int m = 0; m < GUARD_METHODS; m++) {
            double most = guard_reference_threshold(r, (enum guard_method)m);
            char where[48] = "";
            if (!(p->reference->methods & 1u << m) || score.v[m] <= most)
                continue;
            if (m == GUARD_ROBUST_Z)
                snprintf(where, sizeof where, " (feature %zu)", score.feature);
            return error_set(err, STATUS_INVALID,
                             "input \"%.*s\", row %zu, is unlike what the model knows: %s is %g%s; accepted: at most %g, "
                             "which a share of %g of the reference exceeds",
                             STR_ARG(t->name), row, guard_method_name((enum guard_method)m), score.v[m], where, most,
                             p->reference->rate);
        }
    }
    return 0;
}

int guard_gate_observe(struct guard_gate *g, const struct guard_input *p, const struct tensor *inputs, size_t n,
                       struct error *err)
{
    struct guard_slot *s = p->slot;
    const struct tensor *t = NULL;
    size_t rows, features;
    for (size_t i = 0; s && i < n && !t; i++)
        if (s->input ? str_eqz(inputs[i].name, s->input) : n == 1)
            t = &inputs[i];
    if (!t || !guard_row_features(t, &rows, &features))
        return 0;
    os_mutex_lock(&g->lock);
    if (s->recording)
        record_rows(s, t, rows, features);
    struct guard_reference *r = s->reference ? guard_reference_ref(s->reference) : NULL;
    os_mutex_unlock(&g->lock);
    int rc = 0;
    if (r && guard_reference_features(r) == features)
        rc = judge(p, r, t, rows, err);
    else if (r)
        rc = error_set(err, STATUS_INVALID,
                       "input \"%.*s\" has %zu features a row; the model's reference has %zu, so it can't be compared",
                       STR_ARG(t->name), features, guard_reference_features(r));
    guard_reference_unref(r);
    return rc;
}

/* ---- the admin ---- */

/* Lock held. The slot of the set in force for this model. */
static struct guard_slot *slot_of(struct guard_gate *g, struct str model)
{
    for (size_t i = 0; g->set && i < g->set->n_inputs; i++)
        if (g->set->inputs[i].slot && str_eqz(model, g->set->inputs[i].slot->model))
            return g->set->inputs[i].slot;
    return NULL;
}

static int no_slot(struct str model, struct error *err)
{
    return error_set(err, STATUS_CONFLICT, "no input policy has a reference of the model \"%.*s\"; give one in guard.file",
                     STR_ARG(model));
}

int guard_gate_record(struct guard_gate *g, struct str model, struct error *err)
{
    os_mutex_lock(&g->lock);
    struct guard_slot *s = slot_of(g, model);
    if (s) {
        buf_clear(&s->rows);
        s->n_rows = 0;
        s->recording = true;
    }
    os_mutex_unlock(&g->lock);
    return s ? 0 : no_slot(model, err);
}

/* Take a copy of what was recorded as one tensor. */
static int take_rows(struct guard_gate *g, struct str model, bool end, struct guard_slot **slot, struct tensor *rows,
                     struct error *err)
{
    struct buf bytes;
    buf_init(&bytes);
    *rows = (struct tensor){0};
    os_mutex_lock(&g->lock);
    struct guard_slot *s = *slot = slot_of(g, model);
    if (s && s->n_rows) {
        buf_append(&bytes, s->rows.p, s->rows.n);
        rows->dtype = s->dtype;
        rows->shape = s->row;
        rows->shape.dim[0] = (int64_t)s->n_rows;
    }
    if (s && end)
        s->recording = false;
    os_mutex_unlock(&g->lock);
    bool failed = bytes.failed;
    rows->data = slice_take(&bytes);
    buf_release(&bytes);
    if (!s)
        return no_slot(model, err);
    if (failed)
        return error_set(err, STATUS_NOMEM, "out of memory for the recorded rows");
    return rows->data.p ? 0
                        : error_set(err, STATUS_CONFLICT, "nothing was recorded for the model \"%.*s\"; begin with record",
                                    STR_ARG(model));
}

int guard_gate_stop(struct guard_gate *g, struct str model, struct error *err)
{
    struct guard_slot *s;
    struct tensor rows;
    struct guard_reference *fresh = NULL, *old = NULL;
    int rc = take_rows(g, model, true, &s, &rows, err);
    if (rc == 0)
        rc = fit(s, &rows, &fresh, err);
    tensor_release(&rows);
    if (rc < 0)
        return rc;
    os_mutex_lock(&g->lock);
    old = s->reference;
    s->reference = fresh;
    os_mutex_unlock(&g->lock);
    guard_reference_unref(old);
    return 0;
}

/* They are on disk, unless others are being recorded already. */
static void forget_rows(struct guard_gate *g, struct guard_slot *s)
{
    os_mutex_lock(&g->lock);
    if (!s->recording) {
        buf_release(&s->rows);
        s->n_rows = 0;
    }
    os_mutex_unlock(&g->lock);
}

int guard_gate_save(struct guard_gate *g, struct str model, struct error *err)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    struct guard_slot *s;
    struct tensor rows;
    struct buf file;
    buf_init(&file);
    int rc = take_rows(g, model, false, &s, &rows, err);
    if (rc == 0 && !path_of(g, s, path, sizeof path))
        rc = error_set(err, STATUS_CONFLICT, "there is no place to save it: give reference.file, or set state_dir");
    if (rc == 0)
        rc = npy_write(&rows, &file, err);
    if (rc == 0 && !s->file && snprintf(folder, sizeof folder, "%s/guard", g->o.folder) < (int)sizeof folder)
        rc = os_dir_make(folder, FOLDER_MODE, err);
    if (rc == 0)
        rc = os_file_write_atomic(path, file.p, file.n, FILE_MODE, err);
    buf_release(&file);
    tensor_release(&rows);
    if (rc == 0)
        forget_rows(g, s);
    if (rc == STATUS_IO && g->o.log) {
        LOG(g->o.log, LOG_ERROR, "guard_reference_not_saved", LOG_S("file", path), LOG_S("reason", err ? err->text : ""));
        rc = error_set(err, STATUS_IO, "the reference could not be written; the log says why");
    }
    return rc;
}

static void put_slot(const struct guard_slot *s, struct buf *out)
{
    const struct guard_reference *r = s->reference;
    buf_append_z(out, "{\"policy\":");
    buf_append_json_str(out, str_of(s->policy));
    buf_append_z(out, ",\"model\":");
    buf_append_json_str(out, str_of(s->model));
    buf_append_z(out, ",\"input\":");
    s->input ? buf_append_json_str(out, str_of(s->input)) : buf_append_z(out, "null");
    buf_printf(out, ",\"rows\":%zu,\"features\":%zu,\"recording\":%s,\"recorded\":%zu,\"wanted\":%zu,\"thresholds\":{",
               r ? guard_reference_rows(r) : 0, r ? guard_reference_features(r) : 0, s->recording ? "true" : "false", s->n_rows,
               s->want);
    const char *comma = "";
    for (int m = 0; r && m < GUARD_METHODS; m++) {
        if (!(s->methods & 1u << m))
            continue;
        buf_printf(out, "%s\"%s\":%.9g", comma, guard_method_name((enum guard_method)m),
                   guard_reference_threshold(r, (enum guard_method)m));
        comma = ",";
    }
    buf_append_z(out, "}}");
}

void guard_gate_status(struct guard_gate *g, struct buf *out)
{
    const char *comma = "";
    buf_append_c(out, '[');
    os_mutex_lock(&g->lock);
    for (size_t i = 0; g->set && i < g->set->n_inputs; i++) {
        if (!g->set->inputs[i].slot)
            continue;
        buf_append_z(out, comma);
        put_slot(g->set->inputs[i].slot, out);
        comma = ",";
    }
    os_mutex_unlock(&g->lock);
    buf_append_c(out, ']');
}
