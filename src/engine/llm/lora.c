/* lora.c: packing an adapter; the table of a model's adapters. F32, F16 and BF16 halves are packed as they are; quantised ones become F32, since
 * an adapter's products are made in f32 (they are small, and their inputs aren't rounded to 8 bits). */
#include "engine/llm/lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/pages.h"

/* ---- packing ---- */

static enum weight_type packed_type(enum weight_type t)
{
    return acts_kind_for(t) == ACTS_F32 ? t : WEIGHT_F32;
}

static const struct lora_pair *pair_of(const struct lora_layer_desc *l, int target)
{
    const struct lora_pair *const pairs[LORA_TARGETS] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    return pairs[target];
}

/* Lay `m` out for `w`; its place goes to *at. */
static bool place(struct matrix *m, const struct llm_weight *w, size_t *at, uint8_t *base)
{
    size_t bytes;
    if (!matrix_layout(packed_type(w->type), w->rows, w->cols, m) || !size_align(matrix_bytes(m), KERNEL_ALIGN, &bytes))
        return false;
    m->data = base ? base + *at : NULL;
    return size_add(*at, bytes, at);
}

static bool place_all(const struct lora_desc *d, struct lora_layer *layers, uint8_t *base, size_t *bytes)
{
    struct lora_layer unused;
    *bytes = 0;
    for (uint32_t i = 0; i < d->n_layer; i++) {
        for (int t = 0; t < LORA_TARGETS; t++) {
            const struct lora_pair *p = pair_of(&d->layers[i], t);
            struct lora_matrix *m = layers ? &layers[i].m[t] : &unused.m[t];
            if (p->a.data && (!place(&m->a, &p->a, bytes, base) || !place(&m->b, &p->b, bytes, base)))
                return false;
            m->scale = p->scale;
        }
    }
    return true;
}

bool lora_adapter_bytes(const struct lora_desc *d, size_t *bytes)
{
    size_t layers;
    return place_all(d, NULL, NULL, bytes) && size_mul(d->n_layer, sizeof(struct lora_layer), &layers) &&
           size_add(*bytes, layers, bytes);
}

/* Through `row` (f32, all rows) where the type isn't packed as it is. */
static void pack(const struct kernels *k, const struct matrix *m, const struct llm_weight *w, float *row)
{
    const uint8_t *src = w->data;
    if (m->type != w->type) {
        for (uint32_t r = 0; r < w->rows; r++)
            k->dequant_row(w->type, w->data + (size_t)r * (w->bytes / w->rows), w->cols, row + (size_t)r * w->cols);
        src = (const uint8_t *)row;
    }
    k->pack(m, src, 0, m->strips);
}

static size_t largest_half(const struct lora_desc *d)
{
    size_t n = 1;
    for (uint32_t i = 0; i < d->n_layer; i++)
        for (int t = 0; t < LORA_TARGETS; t++) {
            const struct lora_pair *p = pair_of(&d->layers[i], t);
            n = MAX_OF(n, MAX_OF((size_t)p->a.rows * p->a.cols, (size_t)p->b.rows * p->b.cols));
        }
    return n;
}

int lora_adapter_fill(struct lora_adapter *a, const struct lora_desc *d, const struct kernels *k, struct error *err)
{
    a->layers = calloc(d->n_layer, sizeof *a->layers);
    float *row = calloc(largest_half(d), sizeof *row);
    if (a->layers && place_all(d, a->layers, NULL, &a->packed_bytes))
        a->packed = os_pages_map(a->packed_bytes);
    if (!row || !a->packed) {
        free(row);
        return error_set(err, STATUS_NOMEM, "no memory for an adapter of %zu bytes", a->packed_bytes);
    }
    ASSERT(place_all(d, a->layers, a->packed, &a->packed_bytes));
    a->n_layer = d->n_layer;
    a->max_rank = d->max_rank;
    for (uint32_t i = 0; i < d->n_layer; i++) {
        for (int t = 0; t < LORA_TARGETS; t++) {
            const struct lora_pair *p = pair_of(&d->layers[i], t);
            if (!p->a.data)
                continue;
            pack(k, &a->layers[i].m[t].a, &p->a, row);
            pack(k, &a->layers[i].m[t].b, &p->b, row);
        }
    }
    free(row);
    return 0;
}

void lora_adapter_destroy(struct lora_adapter *a)
{
    if (!a)
        return;
    os_pages_unmap(a->packed, a->packed_bytes);
    free(a->layers);
    free(a);
}

/* ---- the set ---- */

static bool good_name(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7f)
            return false;
    return name.n >= 1 && name.n < sizeof((struct lora_adapter *)0)->name;
}

int lora_set_reserve(struct lora_set *s, struct str name, struct lora_adapter **out, struct error *err)
{
    uint32_t slot = s->max_n, taken = 0;
    if (!good_name(name))
        return error_set(err, STATUS_INVALID,
                         "an adapter's name has %zu bytes; accepted: 1 to 128 bytes without control characters", name.n);
    for (uint32_t i = s->max_n; i-- > 0;) {
        const struct lora_adapter *a = s->v[i];
        taken += a != NULL;
        slot = a ? slot : i;
        if (a && a->loading && str_eqz(name, a->name))
            return error_set(err, STATUS_CONFLICT, "an adapter \"%.*s\" is being loaded", STR_ARG(name));
    }
    if (lora_set_find(s, name))
        return error_set(err, STATUS_CONFLICT, "an adapter \"%.*s\" is loaded already: unload it first", STR_ARG(name));
    if (slot == s->max_n)
        return error_set(err, STATUS_EXHAUSTED, "%u adapters are loaded or still in use, and max_adapters is %u", taken,
                         s->max_n);
    struct lora_adapter *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(err, STATUS_NOMEM, "no memory for an adapter");
    memcpy(a->name, name.p, name.n);
    a->id = ++s->next_id;
    a->loading = true;
    s->v[slot] = a;
    *out = a;
    return 0;
}

int lora_set_charge(struct lora_set *s, struct lora_adapter *a, size_t bytes, struct error *err)
{
    if (bytes > s->max_bytes || s->bytes > s->max_bytes - bytes)
        return error_set(err, STATUS_EXHAUSTED, "the adapter takes %zu bytes; adapter_memory is %llu, of which %llu are taken",
                         bytes, (unsigned long long)s->max_bytes, (unsigned long long)s->bytes);
    s->bytes += bytes;
    a->bytes = bytes;
    return 0;
}

struct lora_adapter *lora_set_find(const struct lora_set *s, struct str name)
{
    for (uint32_t i = 0; i < s->max_n; i++)
        if (s->v[i] && s->v[i]->loaded && str_eqz(name, s->v[i]->name))
            return s->v[i];
    return NULL;
}

void lora_set_remove(struct lora_set *s, struct lora_adapter *a)
{
    for (uint32_t i = 0; i < s->max_n; i++) {
        if (s->v[i] != a)
            continue;
        s->v[i] = NULL;
        s->bytes -= a->bytes;
    }
}

void lora_set_count(const struct lora_set *s, uint32_t *loaded, uint32_t *draining)
{
    *loaded = *draining = 0;
    for (uint32_t i = 0; i < s->max_n; i++) {
        const struct lora_adapter *a = s->v[i];
        *loaded += a && a->loaded;
        *draining += a && !a->loaded && !a->loading;
    }
}
