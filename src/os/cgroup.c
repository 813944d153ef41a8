/* cgroup.c: walks from this process's cgroup up to the mount and keeps the tightest figure. See cgroup.h. */
#include "os/cgroup.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "os/cgroup_priv.h"
#include "os/file.h"

#define TEXT_MAX_BYTES (4u << 20) /* mountinfo of a busy container host is large */
#define LEVELS_MAX     64

/* prefix + path, whole, into `out` (cleared first); false when it can't be read. */
static bool slurp(const char *prefix, const char *path, struct buf *out)
{
    struct buf full = {0};
    buf_printf(&full, "%s%s", prefix, path);
    buf_clear(out);
    bool ok = !full.failed && os_file_read(buf_z(&full), TEXT_MAX_BYTES, out, NULL) == 0;
    buf_release(&full);
    return ok;
}

/* One hierarchy as this process sees it. */
struct hierarchy {
    struct buf folder; /* of the level being looked at; NUL-terminated */
    size_t top;        /* length of the mount point: the walk ends there */
    struct buf text;   /* scratch */
    const char *prefix;
    bool v2;
};

static bool hierarchy_find(struct hierarchy *h, const char *prefix, const char *controller)
{
    struct buf cgroups = {0}, mounts = {0};
    struct str path, root, point;
    *h = (struct hierarchy){.prefix = prefix};
    bool read = slurp(prefix, "/proc/self/cgroup", &cgroups) && slurp(prefix, "/proc/self/mountinfo", &mounts);
    bool found = read && cgroup__find_path(buf_str(&cgroups), controller, &path) &&
                 cgroup__find_mount(buf_str(&mounts), controller, &root, &point);
    if (read && !found) {
        h->v2 = true;
        found = cgroup__find_path(buf_str(&cgroups), "", &path) && cgroup__find_mount(buf_str(&mounts), "", &root, &point);
    }
    if (found) {
        cgroup__join(root, point, (struct str){0}, &h->folder);
        h->top = h->folder.n;
        buf_clear(&h->folder);
        cgroup__join(root, point, path, &h->folder);
    }
    buf_release(&cgroups);
    buf_release(&mounts);
    return found && !h->folder.failed;
}

static void hierarchy_release(struct hierarchy *h)
{
    buf_release(&h->folder);
    buf_release(&h->text);
}

/* Go one level up; false at the mount point. */
static bool hierarchy_up(struct hierarchy *h)
{
    if (h->folder.n <= h->top)
        return false;
    while (h->folder.n > h->top && h->folder.p[--h->folder.n] != '/')
        ;
    return true;
}

/* The text of `file` at this level; empty when absent. Valid until the next call. */
static struct str hierarchy_read(struct hierarchy *h, const char *file)
{
    struct buf path = {0};
    buf_append_str(&path, buf_str(&h->folder));
    buf_printf(&path, "/%s", file);
    bool ok = !path.failed && slurp(h->prefix, buf_z(&path), &h->text);
    buf_release(&path);
    return ok ? buf_str(&h->text) : (struct str){0};
}

static double quota_here(struct hierarchy *h)
{
    double cpus = 0;
    if (h->v2)
        return cgroup__parse_cpu_max(hierarchy_read(h, "cpu.max"), &cpus) ? cpus : 0;
    struct buf quota = {0};
    buf_append_str(&quota, hierarchy_read(h, "cpu.cfs_quota_us"));
    bool ok = cgroup__parse_cpu_cfs(buf_str(&quota), hierarchy_read(h, "cpu.cfs_period_us"), &cpus);
    buf_release(&quota);
    return ok ? cpus : 0;
}

void cgroup__read_cpu(const char *prefix, uint32_t affinity_cpus, struct os_cpu_limits *out)
{
    struct hierarchy h;
    *out = (struct os_cpu_limits){.affinity_cpus = MAX_OF(affinity_cpus, 1u)};
    if (hierarchy_find(&h, prefix, "cpu")) {
        int levels = 0;
        do {
            double q = quota_here(&h);
            if (q > 0 && (out->quota_cpus == 0 || q < out->quota_cpus))
                out->quota_cpus = q;
        } while (++levels < LEVELS_MAX && hierarchy_up(&h));
    }
    hierarchy_release(&h);
    out->usable_cpus = out->affinity_cpus;
    if (out->quota_cpus > 0 && out->quota_cpus < out->usable_cpus)
        out->usable_cpus = out->quota_cpus;
    out->threads = out->usable_cpus < 1 ? 1 : (uint32_t)(out->usable_cpus + 1e-9);
}

/* Limit and use at this level; false where there is none (the root, a level without the controller). */
static bool memory_here(struct hierarchy *h, uint64_t *limit, uint64_t *used)
{
    uint64_t cache = 0;
    if (!cgroup__parse_bytes(hierarchy_read(h, h->v2 ? "memory.max" : "memory.limit_in_bytes"), limit) ||
        !cgroup__parse_bytes(hierarchy_read(h, h->v2 ? "memory.current" : "memory.usage_in_bytes"), used))
        return false;
    if (cgroup__parse_keyed(hierarchy_read(h, "memory.stat"), h->v2 ? "inactive_file" : "total_inactive_file", &cache))
        *used -= MIN_OF(*used, cache);
    return true;
}

void cgroup__read_memory(const char *prefix, struct os_memory_limits *out)
{
    struct hierarchy h;
    struct buf text = {0};
    *out = (struct os_memory_limits){0};
    if (slurp(prefix, "/proc/meminfo", &text)) {
        struct str s = buf_str(&text);
        if (!cgroup__parse_keyed(s, "MemTotal", &out->machine_bytes))
            out->machine_bytes = 0;
        if (!cgroup__parse_keyed(s, "MemAvailable", &out->available_bytes))
            out->available_bytes = out->machine_bytes;
    }
    buf_release(&text);
    if (!out->machine_bytes) /* no /proc: physical memory, all of it taken as free */
        out->available_bytes = out->machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    out->limit_bytes = out->machine_bytes;
    out->used_bytes = out->machine_bytes - MIN_OF(out->machine_bytes, out->available_bytes);
    if (hierarchy_find(&h, prefix, "memory")) {
        int levels = 0;
        do {
            uint64_t limit, used;
            if (!memory_here(&h, &limit, &used))
                continue;
            if (limit < out->limit_bytes) {
                out->limit_bytes = limit;
                out->used_bytes = used;
                out->cgroup = true;
            }
            out->available_bytes = MIN_OF(out->available_bytes, limit - MIN_OF(limit, used));
        } while (++levels < LEVELS_MAX && hierarchy_up(&h));
    }
    hierarchy_release(&h);
}

static uint32_t affinity(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        if (!set)
            break;
        int rc = sched_getaffinity(0, bytes, set);
        int e = errno, n = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return n > 0 ? (uint32_t)n : 1;
        if (e != EINVAL) /* EINVAL: the kernel's set is larger */
            break;
    }
    return 1;
}

void os_cpu_limits_read(struct os_cpu_limits *out)
{
    cgroup__read_cpu("", affinity(), out);
}
void os_memory_limits_read(struct os_memory_limits *out)
{
    cgroup__read_memory("", out);
}
