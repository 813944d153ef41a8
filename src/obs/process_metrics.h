/* process_metrics.h: the process's own figures, refreshed at each scrape: process_cpu_seconds_total,
 * process_resident_memory_bytes, process_virtual_memory_bytes, process_open_fds, process_max_fds, process_threads,
 * process_start_time_seconds (the names that every Prometheus client uses), inferd_warnings_total (WARN_ON hits) and
 * inferd_build_info. */
#ifndef INFERD_OBS_PROCESS_METRICS_H
#define INFERD_OBS_PROCESS_METRICS_H

struct metrics;
struct process_metrics;

/* Register the families and the scrape hook. `version` and `build_id` are copied. NULL when out of memory. */
struct process_metrics *process_metrics_create(struct metrics *m, const char *version, const char *build_id);
/* Unhook and free; before metrics_destroy. NULL is accepted. */
void process_metrics_destroy(struct process_metrics *p);

#endif
