/* cgroup.h: how much of the machine is ours: CPUs and memory, after cgroup limits (v1, v2 and the hybrid) and affinity.
 *
 * Inside a container the machine's figures are wrong: a thread pool as wide as the machine is throttled for whole periods, and
 * a load that fits the machine is killed by the cgroup. The tightest level from the process's own cgroup up to the mount
 * counts, since the kernel enforces every level. Where there is no cgroup, the machine's own figures stand. */
#ifndef INFERD_OS_CGROUP_H
#define INFERD_OS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

struct os_cpu_limits {
    double quota_cpus;      /* CPU time per wall time that the cgroup allows; 0: no quota */
    uint32_t affinity_cpus; /* CPUs this process may be scheduled on, at least 1 */
    double usable_cpus;     /* the smaller of the two */
    uint32_t threads; /* usable_cpus rounded down, at least 1: more threads than that would be throttled, which stalls all of
                               them for the rest of a period (100 ms) */
};

struct os_memory_limits {
    uint64_t limit_bytes;     /* cgroup limit, or the machine's memory where there is none or it is larger */
    uint64_t used_bytes;      /* counted against that limit, without page cache that the kernel can drop at once */
    uint64_t available_bytes; /* what can still be taken before any level's limit or the machine's own end */
    uint64_t machine_bytes;   /* physical memory */
    bool cgroup;              /* limit_bytes is a cgroup's */
};

/* Read the limits now. Any thread; reads a few files of /proc and /sys, may block shortly. Never fails: what can't be read
 * counts as absent. The CPU figures are fixed at process start in practice; memory use is not, so ask again. */
void os_cpu_limits_read(struct os_cpu_limits *out);
void os_memory_limits_read(struct os_memory_limits *out);

#endif
