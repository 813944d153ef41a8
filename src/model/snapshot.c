/* snapshot.c: see snapshot_priv.h. */
#include "model/snapshot_priv.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"
#include "model/version_priv.h"
#include "os/clock.h"

/* All of these are sequentially consistent. A reader's add comes before its load of the pointer; a publisher's store of the pointer
 * comes before its look at the counters. So a reader that the publisher did not see has loaded the new pointer. */
struct snapshot *snapshot_enter(struct snapshot_box *b, uint32_t *token)
{
    *token = atomic_load(&b->side) & 1;
    atomic_fetch_add(&b->readers[*token], 1);
    return atomic_load(&b->current);
}

void snapshot_leave(struct snapshot_box *b, uint32_t token)
{
    atomic_fetch_sub(&b->readers[token], 1);
}

struct snapshot *snapshot_get(struct snapshot_box *b)
{
    uint32_t token;
    struct snapshot *s = snapshot_enter(b, &token);
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    snapshot_leave(b, token);
    return s;
}

void snapshot_unref(struct snapshot *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->models[i].n_versions; k++)
            model_version_unref(s->models[i].versions[k].v);
    map_release(&s->by_name);
    arena_release(&s->arena);
    free(s);
}

static void wait_readers(struct snapshot_box *b, uint32_t side)
{
    while (atomic_load(&b->readers[side]) != 0)
        os_sleep_ns(20000);
}

void snapshot_publish(struct snapshot_box *b, struct snapshot *s)
{
    struct snapshot *old = atomic_exchange(&b->current, s);
    uint32_t side = atomic_load(&b->side) & 1;
    wait_readers(b, side ^ 1);
    atomic_store(&b->side, side ^ 1);
    wait_readers(b, side);
    snapshot_unref(old);
}

static const struct snap_version *by_version(const struct snap_model *m, struct str version)
{
    for (size_t i = 0; i < m->n_versions; i++)
        if (str_eq(m->versions[i].name, version))
            return &m->versions[i];
    return NULL;
}

static const struct snap_version *by_label(const struct snap_model *m, struct str label)
{
    for (size_t i = 0; i < m->n_labels; i++)
        if (str_eq(m->labels[i].key, label))
            return by_version(m, m->labels[i].value);
    return NULL;
}

static bool serves(const struct snap_version *v)
{
    return v && v->v && !atomic_load_explicit(&v->v->hung, memory_order_acquire);
}

/* The `stable` label where set, else the highest that serves, else the highest there is. */
static const struct snap_version *by_default(const struct snap_model *m)
{
    const struct snap_version *v = by_label(m, STR("stable"));
    if (v)
        return v;
    for (size_t i = m->n_versions; i > 0; i--)
        if (serves(&m->versions[i - 1]))
            return &m->versions[i - 1];
    return m->n_versions ? &m->versions[m->n_versions - 1] : NULL;
}

static int no_version(const struct snap_model *m, struct str version, struct error *err)
{
    char list[256];
    size_t n = 0;
    list[0] = 0;
    for (size_t i = 0; i < m->n_versions && n + 1 < sizeof list; i++)
        if (m->versions[i].v)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%.*s", n ? ", " : "", STR_ARG(m->versions[i].name));
    return error_set(err, STATUS_NOT_FOUND, "model \"%.*s\" has no version or label \"%.*s\"%s%s", STR_ARG(m->name),
                     STR_ARG(version), n ? ": it serves " : "", list);
}

static int not_ready(const struct snap_model *m, const struct snap_version *v, struct error *err)
{
    static const char *const words[] = {"is not loaded", "is loading",        "is warming up",
                                        "is not ready",  "is being unloaded", "failed to load"};
    struct str reason = v ? v->reason : m->reason;
    return error_set(err, v && v->no_memory ? STATUS_NOMEM : STATUS_UNAVAILABLE, "model \"%.*s\"%s%.*s %s%s%.*s",
                     STR_ARG(m->name), v ? " version " : "", STR_ARG(v ? v->name : (struct str){0}),
                     words[v ? v->state : VERSION_UNLOADED], reason.n ? ": " : "", STR_ARG(reason));
}

int snapshot_find(const struct snapshot *s, struct str model, struct str version, struct model_version **out, struct error *err)
{
    const struct snap_model *m = map_get(&s->by_name, model);
    if (!m)
        return error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\"", STR_ARG(model));
    const struct snap_version *v;
    if (!version.n) {
        v = by_default(m);
    } else {
        v = by_version(m, version);
        if (!v)
            v = by_label(m, version);
        if (!v)
            return no_version(m, version, err);
    }
    if (!v || !v->v)
        return not_ready(m, v, err);
    if (!serves(v))
        return error_set(err, STATUS_UNAVAILABLE, "model \"%.*s\" version %.*s is not ready: an instance has stopped answering",
                         STR_ARG(m->name), STR_ARG(v->name));
    *out = model_version_ref(v->v);
    return 0;
}
