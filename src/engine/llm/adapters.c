/* adapters.c: LoRA adapters of a loaded model at run time. A slot of the set is taken first, under the lock, so that two loads of one name
 * meet there; reading and packing happen outside of it, on the caller's thread; then the adapter is found by name. The buffers that
 * adapted columns need in a step are made at the first load and kept. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/engine_priv.h"
#include "os/cgroup.h"
#include "os/dir.h"
#include "os/file.h"

/* A folder is a PEFT adapter, a file a GGUF one. */
static int open_desc(const struct engine_model *m, int dir_fd, const char *path, struct lora_desc **out, struct error *err)
{
    int fd = -1;
    if (os_open_beneath(dir_fd, path, OS_FILE_DIRECTORY, false, &fd, NULL) < 0)
        return lora_desc_open(dir_fd, path, m->weights->desc, out, err);
    int rc = lora_desc_open(fd, ".", m->weights->desc, out, err);
    os_close(fd);
    return rc;
}

static int check_desc(const struct engine_model *m, const struct lora_desc *d, size_t *bytes, struct error *err)
{
    struct os_memory_limits memory;
    if (d->max_rank > m->options.max_adapter_rank)
        return error_set(err, STATUS_INVALID, "the adapter's rank is %u; max_adapter_rank is %llu", d->max_rank,
                         (unsigned long long)m->options.max_adapter_rank);
    if (!lora_adapter_bytes(d, bytes))
        return error_set(err, STATUS_INVALID, "a matrix of the adapter has a shape or type that can't be packed");
    os_memory_limits_read(&memory);
    if (*bytes > memory.available_bytes)
        return error_set(err, STATUS_NOMEM, "the adapter takes %zu bytes, but only %llu are left", *bytes,
                         (unsigned long long)memory.available_bytes);
    return 0;
}

/* Charge it, fill it, make the step's buffers at the first one. */
static int fill(struct engine_model *m, struct lora_adapter *a, const struct lora_desc *d, struct error *err)
{
    size_t bytes;
    int rc = check_desc(m, d, &bytes, err);
    if (rc < 0)
        return rc;
    os_mutex_lock(&m->lock);
    rc = lora_set_charge(&m->adapters, a, bytes, err);
    if (rc == 0 && !m->adapters_prepared) {
        rc = forward_lora_prepare(m->forward, (uint32_t)m->options.max_adapter_rank, m->adapters.max_n, err);
        m->adapters_prepared = rc == 0;
    }
    os_mutex_unlock(&m->lock);
    return rc < 0 ? rc : lora_adapter_fill(a, d, m->weights->k, err);
}

int llm_adapter_load(struct engine_model *m, struct str name, int dir_fd, const char *path, struct error *err)
{
    struct lora_adapter *a = NULL;
    struct lora_desc *d = NULL;
    if (!m->adapters.max_n)
        return error_set(err, STATUS_UNIMPLEMENTED, "this model takes no adapters: max_adapters is 0");
    os_mutex_lock(&m->lock);
    int rc = lora_set_reserve(&m->adapters, name, &a, err);
    os_mutex_unlock(&m->lock);
    if (rc < 0)
        return rc;
    rc = open_desc(m, dir_fd, path, &d, err);
    if (rc == 0)
        rc = fill(m, a, d, err);
    lora_desc_release(d);
    uint32_t rank = rc == 0 ? a->max_rank : 0; /* once it is loaded, another caller may unload and free it */
    size_t bytes = a->bytes;
    os_mutex_lock(&m->lock);
    a->loading = false;
    a->loaded = rc == 0;
    if (rc < 0)
        lora_set_remove(&m->adapters, a);
    os_mutex_unlock(&m->lock);
    if (rc < 0) {
        lora_adapter_destroy(a);
        return rc;
    }
    LOG(m->log, LOG_INFO, "adapter_loaded", LOG_S("model", m->name), LOG_STR("adapter", name), LOG_U("rank", rank),
        LOG_U("bytes", bytes));
    return 0;
}

/* The caller holds the lock. True: it is out of the set and nobody's; destroy it. */
static bool take_if_unused(struct engine_model *m, struct lora_adapter *a)
{
    if (a->loaded || a->users)
        return false;
    lora_set_remove(&m->adapters, a);
    return true;
}

int llm_adapter_unload(struct engine_model *m, struct str name, struct error *err)
{
    bool gone = false;
    uint32_t users = 0;
    os_mutex_lock(&m->lock);
    struct lora_adapter *a = lora_set_find(&m->adapters, name);
    if (a) {
        a->loaded = false;
        users = a->users;
        gone = take_if_unused(m, a);
    }
    os_mutex_unlock(&m->lock);
    if (!a)
        return error_set(err, STATUS_NOT_FOUND, "no adapter \"%.*s\" is loaded", STR_ARG(name));
    LOG(m->log, LOG_INFO, "adapter_unloaded", LOG_S("model", m->name), LOG_STR("adapter", name), LOG_U("requests_left", users));
    if (gone)
        lora_adapter_destroy(a);
    return 0;
}

void llm_adapter_each(struct engine_model *m, void (*each)(void *ctx, struct str name), void *ctx)
{
    char names[LORA_ADAPTERS_MAX][sizeof m->adapters.v[0]->name];
    size_t n = 0;
    os_mutex_lock(&m->lock);
    for (size_t i = 0; i < LORA_ADAPTERS_MAX; i++)
        if (m->adapters.v[i] && m->adapters.v[i]->loaded)
            memcpy(names[n++], m->adapters.v[i]->name, sizeof names[0]);
    os_mutex_unlock(&m->lock);
    for (size_t i = 0; i < n; i++)
        each(ctx, str_of(names[i]));
}

int llm_adapter_hold(struct engine_model *m, struct str name, struct lora_adapter **out, struct error *err)
{
    *out = NULL;
    if (!name.n)
        return 0;
    os_mutex_lock(&m->lock);
    struct lora_adapter *a = lora_set_find(&m->adapters, name);
    if (a)
        a->users++;
    os_mutex_unlock(&m->lock);
    *out = a;
    return a ? 0 : error_set(err, STATUS_NOT_FOUND, "no adapter \"%.*s\" is loaded", STR_ARG(name));
}

void llm_adapter_drop(struct engine_model *m, struct lora_adapter *a)
{
    if (!a)
        return;
    os_mutex_lock(&m->lock);
    a->users--;
    bool gone = take_if_unused(m, a);
    os_mutex_unlock(&m->lock);
    if (gone)
        lora_adapter_destroy(a);
}

void llm_adapters_release(struct engine_model *m)
{
    for (uint32_t i = 0; i < LORA_ADAPTERS_MAX; i++)
        lora_adapter_destroy(m->adapters.v[i]);
}
