/* bench_worker.h: one thread of `inferd bench`: an event loop with its share of the connections and of the rate.
 *
 * Closed loop: each connection sends its next request when the answer to the last one is there. Latency runs from the send. A stall
 * hides the requests that were not sent meanwhile (coordinated omission); `corrected` puts them back, with the median of the
 * warm-up as the distance at which a connection would have sent.
 * Open loop: a schedule (cli/pacer.h) that no answer can delay. Latency runs from the scheduled time, so a request that waited for
 * a free connection has waited, and nothing is omitted.
 * What counts: closed, answers that arrive between warm_ns and stop_ns; open, requests scheduled between them, however late they
 * are answered (up to drain_ns). Threads: a worker's members are its thread's until it is joined, but for `live`, under `lock`. */
#ifndef INFERD_CLI_BENCH_WORKER_H
#define INFERD_CLI_BENCH_WORKER_H

#include <stdatomic.h>

#include "cli/pacer.h"
#include "net/http_client.h"
#include "obs/hdr.h"
#include "os/thread.h"

#define BENCH_STATUS_MAX  600
#define BENCH_LATENCY_MAX 3600000000000ull /* an hour in ns */
#define BENCH_LIVE_MAX    60000000000ull

struct bench_plan {
    struct os_addr addr;
    const struct str *requests; /* whole requests, sent in turn */
    size_t n_requests;
    bool open, poisson;
    bool busy_poll;                      /* never sleep */
    double rate;                         /* of one worker, open loop */
    uint32_t connections;                /* of one worker */
    uint64_t warm_ns, stop_ns, drain_ns; /* monotonic: measuring begins, sending ends, waiting ends */
    uint64_t timeout_ns;                 /* of one request */
    uint64_t most;                       /* answers of one worker in the window after which it stops; 0: no limit */
};

struct bench_counts {
    uint64_t ok, failed;       /* answers with 2xx and with another status */
    uint64_t broken, timeouts; /* connections that failed under a request; requests that took longer than timeout_ns */
    uint64_t unfinished;       /* not answered when the waiting ended */
    uint64_t connects;         /* connections that could not be made */
    uint64_t bytes_in, bytes_out;
    uint64_t status[BENCH_STATUS_MAX];
};

struct bench_live {
    struct hdr *latency; /* since the last look */
    uint64_t ok, bad;
};

struct bench_channel;

struct bench_worker {
    const struct bench_plan *plan;
    uint64_t seed;
    struct os_thread thread;
    struct loop *loop;
    /* results */
    struct bench_counts counts;
    struct hdr *latency, *corrected; /* ns, of 2xx answers; `corrected` in closed loop only */
    uint64_t expected_ns;            /* closed loop: the distance that the correction used; 0: none */
    uint64_t first_ns, last_ns;      /* first and last answer in the window */
    char first_error[ERROR_TEXT_BYTES];
    /* the main thread's window */
    struct os_mutex lock;
    struct bench_live live;
    /* the thread's own */
    struct bench_channel *channels, *idle;
    uint32_t busy;
    struct hdr *warm;
    struct pacer pacer;
    struct loop_timer pace, sweep;
    uint64_t *backlog; /* open loop: scheduled times that wait for a connection; a ring */
    size_t backlog_at, backlog_n, backlog_cap;
    size_t next_request;
    bool stopping;
    _Atomic bool stop;  /* asked to end early */
    _Atomic bool ended; /* the loop is over: results are final */
};

/* Start the thread. `plan` must outlive it. NOMEM, or what the thread's start says; then nothing is left to release. */
int bench_worker_start(struct bench_worker *w, const struct bench_plan *plan, uint64_t seed, struct error *err) MUST_CHECK;
/* Wait until it is done. Results are valid until release. */
void bench_worker_join(struct bench_worker *w);
void bench_worker_release(struct bench_worker *w);

#endif
