/* cgroup_priv.h: for cgroup.c, cgroup_parse.c and their test only: the texts of /proc and /sys, parsed without touching them. */
#ifndef INFERD_OS_CGROUP_PRIV_H
#define INFERD_OS_CGROUP_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "os/cgroup.h"

/* cpu.max: "max 100000" -> 0, "150000 100000" -> 1.5. False when malformed. */
bool cgroup__parse_cpu_max(struct str text, double *cpus);
/* cpu.cfs_quota_us and cpu.cfs_period_us: quota -1 -> 0. */
bool cgroup__parse_cpu_cfs(struct str quota, struct str period, double *cpus);
/* memory.max, memory.limit_in_bytes, memory.current, ...: "max" -> UINT64_MAX. */
bool cgroup__parse_bytes(struct str text, uint64_t *bytes);
/* The value of "key value" on a line of its own (memory.stat), or of "key:   value kB" (meminfo, in bytes). */
bool cgroup__parse_keyed(struct str text, const char *key, uint64_t *value);
/* /proc/self/cgroup: the path of this process in the hierarchy that has `controller` ("" is v2). */
bool cgroup__find_path(struct str text, const char *controller, struct str *path);
/* /proc/self/mountinfo: where that hierarchy is mounted, and which part of it. Still octal-escaped. */
bool cgroup__find_mount(struct str text, const char *controller, struct str *root, struct str *point);
/* The folder of `path` in a hierarchy whose part `root` is mounted at `point`; unescaped, appended to `out`. A path outside
 * the mounted part (a container's own cgroup namespace hides it) is the mount point itself. */
void cgroup__join(struct str root, struct str point, struct str path, struct buf *out);

/* The readers over a file tree: `prefix` goes in front of /proc, and in front of mount points. */
void cgroup__read_cpu(const char *prefix, uint32_t affinity_cpus, struct os_cpu_limits *out);
void cgroup__read_memory(const char *prefix, struct os_memory_limits *out);

#endif
