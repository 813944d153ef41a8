/* bench_openai.h: `inferd bench --openai`: a language model under load, over OpenAI's API, with the measures that vLLM's benchmark has.
 *
 *   TTFT  from the start of a request to its first text          ITL   between two texts after that
 *   E2E   from the start to the last text                        TPOT  (E2E - TTFT) / (generated tokens - 1)
 *   goodput: requests a second that kept every limit given
 * The start is the moment of sending in a closed loop, and the scheduled moment in an open one. */
#ifndef INFERD_CLI_BENCH_OPENAI_H
#define INFERD_CLI_BENCH_OPENAI_H

#include "base/buf.h"
#include "cli/cli.h"

/* argv[0] is the subcommand; --openai among the rest is accepted. Returns enum cli_exit. */
int bench_openai(const struct cli_command *self, int argc, char **argv);

/* ---- for tests ---- */

/* One finished request; times in ns. */
struct bench_sample {
    uint64_t ttft_ns, e2e_ns;
    uint32_t prompt_tok, output_tok;
};

struct bench_limits {
    uint64_t ttft_ns, tpot_ns, e2e_ns; /* 0: none */
};

/* Time per output token; 0 for answers of fewer than two tokens. */
double bench_tpot_ns(const struct bench_sample *s);
bool bench_is_good(const struct bench_sample *s, const struct bench_limits *l);
/* Mean, standard deviation and percentiles (linear between ranks, as numpy has them) of `v`, which is sorted. */
struct bench_summary {
    double mean, std, median, p90, p95, p99;
};
void bench_summarise(double *v, size_t n, struct bench_summary *out);

#endif
