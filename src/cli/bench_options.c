/* bench_options.c: the flags of `inferd bench`, and what they can't check one by one. */
#include "cli/bench_options.h"

#include "base/size.h"

static const char *const arrivals[] = {"poisson", "constant", NULL};

#define S struct bench_options

/* clang-format off */
static const struct cli_flag flags[] = {
    CLI_FLAG_COUNT(S, concurrency, "concurrency", 'n', "N", 1, 100000, "Closed loop: connections, each of which sends again when it is answered (default 1)."),
    CLI_FLAG_NUMBER(S, rate, "rate", 'r', "N", 0.001, 1e8, "Open loop: requests a second, whatever the answers do."),
    CLI_FLAG_WORD(S, arrival, "arrival", 0, arrivals, "Open loop: poisson (default) or constant distances."),
    CLI_FLAG_COUNT(S, connections, "connections", 0, "N", 1, 100000, "Open loop: connections; a request that finds none free waits, and that counts (default 128)."),
    CLI_FLAG_TIME(S, duration_ns, "duration", 'd', 0.01, 864000, "How long to measure (default 10s)."),
    CLI_FLAG_COUNT(S, requests, "requests", 0, "N", 0, 0, "Stop after about so many answers, if that is sooner."),
    CLI_FLAG_TIME(S, warmup_ns, "warmup", 'w', 0, 86400, "Load before measuring (default 1s)."),
    CLI_FLAG_COUNT(S, rows, "rows", 'b', "N", 1, 1e6, "Rows of a request on the batch axis (default 1)."),
    CLI_FLAG_COUNT(S, threads, "threads", 't', "N", 1, BENCH_THREADS_MAX, "Threads of the load generator (default 1)."),
    CLI_FLAG_BOOL(S, busy_poll, "busy-poll", 0, "The threads never sleep: latency without the time that a core of the client takes to wake."),
    CLI_FLAG_COUNT(S, dynamic, "dynamic", 0, "N", 1, 1e6, "Size of open dims that --shape does not give (default 16)."),
    CLI_FLAG_COUNT(S, distinct, "distinct", 0, "N", 1, BENCH_DISTINCT_MAX, "Different random requests, sent in turn (default 8)."),
    CLI_FLAG_NUMBER(S, int_below, "int-below", 0, "N", 1, 9e15, "Random whole numbers are below this (default 100)."),
    CLI_FLAG_COUNT(S, seed, "seed", 0, "N", 0, 0, "Of data and arrivals (default 1)."),
    CLI_FLAG_BOOL(S, json_tensors, "json-tensors", 0, "Tensors as JSON instead of binary, both ways."),
    CLI_FLAG_LIST(S, headers, "header", 'H', "'NAME: VALUE'", "A further header. May be repeated."),
    CLI_FLAG_STRING(S, path, "path", 0, "PATH", "Measure a plain GET of this path (POST with --body) instead of a model."),
    CLI_FLAG_STRING(S, body, "body", 0, "FILE", "With --path: POST this file."),
    CLI_FLAG_BOOL(S, json, "json", 0, "Print one JSON object instead of the tables; times in ns."),
    CLI_FLAG_BOOL(S, quiet, "quiet", 'q', "No live line."),
    KSERVE_REQUEST_FLAGS(S, request),
    KSERVE_SERVER_FLAGS(S, request.server),
};
/* clang-format on */

void bench_options_init(struct bench_options *o)
{
    *o = (struct bench_options){.arrival = "poisson",
                                .connections = 128,
                                .threads = 1,
                                .rows = 1,
                                .distinct = 8,
                                .dynamic = 16,
                                .seed = 1,
                                .int_below = 100,
                                .duration_ns = 10000000000ull,
                                .warmup_ns = 1000000000ull};
    kserve_server_init(&o->request.server);
}

static int check(const struct cli_command *self, struct bench_options *o, const struct cli_list *arguments)
{
    if (!arguments->n == !o->path)
        return cli_usage_error(self, "name a model, or a --path (one of the two)");
    if (o->body && !o->path)
        return cli_usage_error(self, "--body goes with --path; data for a model is NAME=FILE or --data");
    if (o->rate > 0 && o->concurrency)
        return cli_usage_error(self, "--rate is an open loop, --concurrency a closed one: give one of them");
    o->concurrency = o->concurrency ? o->concurrency : 1;
    uint32_t connections = o->rate > 0 ? o->connections : o->concurrency;
    if (connections % o->threads)
        return cli_usage_error(self, "%u connections can't be shared evenly by %u threads", connections, o->threads);
    if (o->requests && o->requests < o->threads)
        return cli_usage_error(self, "%u requests are fewer than the %u threads", o->requests, o->threads);
    o->target = o->path ? o->path : arguments->v[0];
    return CLI_GO;
}

int bench_options_parse(const struct cli_command *self, int argc, char **argv, struct bench_options *o,
                        struct cli_list *arguments)
{
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .options = o, .max_arguments = KSERVE_IO_MAX + 1};
    int code = cli_parse(&spec, argc, argv, arguments);
    return code == CLI_GO ? check(self, o, arguments) : code;
}
