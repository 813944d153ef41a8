/* clock.h: the two clocks. Decisions never call these: they are passed `now`. Any thread. */
#ifndef INFERD_OS_CLOCK_H
#define INFERD_OS_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in ns; never 0. */
uint64_t os_monotonic_ns(void);
/* CLOCK_REALTIME in ns since 1970. */
uint64_t os_wall_ns(void);
/* CPU time of the calling thread / of the process, ns. */
uint64_t os_thread_cpu_ns(void);
uint64_t os_process_cpu_ns(void);
/* Sleep for at least `ns`; continues after signals. */
void os_sleep_ns(uint64_t ns);

#endif
