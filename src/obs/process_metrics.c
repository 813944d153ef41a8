/* process_metrics.c: see process_metrics.h. */
#include "obs/process_metrics.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "obs/metrics.h"
#include "os/process.h"

enum { CPU, RSS, VIRTUAL, OPEN_FDS, MAX_FDS, THREADS, START, WARNINGS, COUNT };

static const struct {
    enum metric_kind kind;
    const char *name, *help;
} families[COUNT] = {
    [CPU] = {METRIC_SECONDS, "process_cpu_seconds_total", "User and system CPU time of all threads in seconds."},
    [RSS] = {METRIC_GAUGE, "process_resident_memory_bytes", "Resident memory in bytes."},
    [VIRTUAL] = {METRIC_GAUGE, "process_virtual_memory_bytes", "Address space in bytes."},
    [OPEN_FDS] = {METRIC_GAUGE, "process_open_fds", "Open file descriptors."},
    [MAX_FDS] = {METRIC_GAUGE, "process_max_fds", "Limit of open file descriptors."},
    [THREADS] = {METRIC_GAUGE, "process_threads", "Threads of the process."},
    [START] = {METRIC_GAUGE, "process_start_time_seconds", "Start of the process, seconds since 1970."},
    [WARNINGS] = {METRIC_COUNTER, "inferd_warnings_total", "Unexpected but survivable conditions met; any is worth a report."},
};

struct process_metrics {
    struct metrics *metrics;
    struct metric *m[COUNT];
};

static void refresh(void *ctx)
{
    struct process_metrics *p = ctx;
    struct os_process_usage now;
    os_process_read(&now);
    metric_set(p->m[CPU], (double)now.cpu_ns / 1e9);
    metric_set(p->m[RSS], (double)now.rss_bytes);
    metric_set(p->m[VIRTUAL], (double)now.virtual_bytes);
    metric_set(p->m[OPEN_FDS], (double)now.open_fds);
    metric_set(p->m[MAX_FDS], (double)now.max_fds);
    metric_set(p->m[THREADS], (double)now.threads);
    metric_set(p->m[START], (double)now.start_wall_ns / 1e9);
    metric_mirror(p->m[WARNINGS], check_warnings());
}

struct process_metrics *process_metrics_create(struct metrics *m, const char *version, const char *build_id)
{
    static const char *const build_labels[] = {"version", "build_id", NULL};
    struct process_metrics *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->metrics = m;
    for (size_t i = 0; i < COUNT_OF(families); i++)
        p->m[i] = metrics_series(metrics_family(m, families[i].kind, families[i].name, families[i].help, NULL, NULL, 0), NULL);
    struct metric_family *build = metrics_family(m, METRIC_GAUGE, "inferd_build_info",
                                                 "Version and build id of the binary; the value is 1.", build_labels, NULL, 0);
    metric_set(metrics_series(build, (const char *const[]){version, build_id}), 1);
    metrics_on_scrape(m, refresh, p);
    return p;
}

void process_metrics_destroy(struct process_metrics *p)
{
    if (p)
        metrics_unhook(p->metrics, p);
    free(p);
}
