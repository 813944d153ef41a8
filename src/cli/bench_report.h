/* bench_report.h: what a measurement found: merged over workers, as a table for people and as JSON for scripts. Main thread. */
#ifndef INFERD_CLI_BENCH_REPORT_H
#define INFERD_CLI_BENCH_REPORT_H

#include <stdio.h>

#include "base/buf.h"
#include "cli/bench_worker.h"

struct bench_server_stats {
    bool known;
    double requests, rows, runs, queue_ns, compute_ns; /* counts and summed times since the model was loaded */
};

struct bench_report {
    const char *target; /* model name or path */
    bool open, poisson;
    double rate;                         /* asked for, open loop */
    uint32_t connections, threads, rows; /* rows of one request; 0: not an inference */
    size_t request_bytes, distinct;
    double warm_s, seconds; /* of the window */
    struct bench_counts counts;
    struct hdr *latency, *corrected; /* NULL: none */
    uint64_t expected_ns;
    const char *first_error;
    struct bench_server_stats before, after;
};

/* Add a joined worker's results; `latency` and `corrected` are made at the first. False without memory. */
bool bench_report_add(struct bench_report *r, const struct bench_worker *w);
void bench_report_release(struct bench_report *r);

/* Totals, latency and the server's own figures as tables; what did not happen is left out. */
void bench_report_print(const struct bench_report *r, FILE *f);
/* One JSON object and a line feed; times in ns. */
void bench_report_json(const struct bench_report *r, struct buf *out);

#endif
