/* bench_options.h: what `inferd bench` was asked for. Main thread. */
#ifndef INFERD_CLI_BENCH_OPTIONS_H
#define INFERD_CLI_BENCH_OPTIONS_H

#include "cli/kserve.h"

#define BENCH_DISTINCT_MAX 1024
#define BENCH_THREADS_MAX  64

struct bench_options {
    struct kserve_request_options request;
    const char *target; /* model or path */
    const char *path, *body, *arrival;
    uint32_t concurrency, connections, threads, rows, distinct, requests, dynamic, seed;
    double rate, int_below;
    uint64_t duration_ns, warmup_ns;
    bool json_tensors, json, quiet, busy_poll;
    struct cli_list headers;
};

/* The defaults. */
void bench_options_init(struct bench_options *o);
/* Flags and arguments (a model, then NAME=FILE); an enum cli_exit as cli_parse gives it. */
int bench_options_parse(const struct cli_command *self, int argc, char **argv, struct bench_options *o,
                        struct cli_list *arguments);

#endif
