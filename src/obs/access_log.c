/* access_log.c: the ring and its writer thread. See access_log.h.
 *
 * Sleeping: the writer stores `sleeping` and then looks at the ring once more; a producer pushes and then loads `sleeping`. Both
 * orders are sequentially consistent, so one of them sees the other, and a record is never left lying while the writer sleeps. */
#include "obs/access_log.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "obs/access_log_priv.h"
#include "obs/metrics.h"
#include "obs/ring.h"
#include "os/clock.h"
#include "os/sink.h"
#include "os/thread.h"
#include "os/wake.h"

#define SLOTS_DEFAULT    4096
#define FILE_BATCH_BYTES 65536 /* one write(2) to a regular file */
#define REST_NS          5000000u
#define PATIENCE_NS      100000000u  /* how long one write waits before the writer looks at `stop` again */
#define LINGER_NS        1000000000u /* at destroy */

static_assert(sizeof(struct access_record) <= 960, "the header says how much a ring takes");

struct access_log {
    struct ring ring;
    struct os_wake wake;
    struct os_thread thread;
    _Atomic bool sleeping, stop, reopen;
    _Atomic uint64_t dropped;
    struct metric *m_dropped, *m_lines;
    enum log_format format;
    struct logger *log;
    /* the writer's own */
    struct os_sink out;
    struct buf line, batch;
    uint64_t batch_lines;
    uint64_t give_up_ns; /* set once stopping */
    bool failing;        /* told the log already */
};

static void count_dropped(struct access_log *l, uint64_t n)
{
    atomic_fetch_add_explicit(&l->dropped, n, memory_order_relaxed);
    metric_add(l->m_dropped, n);
}

uint64_t access_log_dropped(const struct access_log *l)
{
    return atomic_load_explicit(&l->dropped, memory_order_relaxed);
}

void access_log_write(struct access_log *l, const struct access_record *r)
{
    if (!l)
        return;
    if (!ring_push(&l->ring, r))
        count_dropped(l, 1);
    else if (atomic_load_explicit(&l->sleeping, memory_order_seq_cst) &&
             atomic_exchange_explicit(&l->sleeping, false, memory_order_seq_cst))
        os_wake_signal(&l->wake);
}

void access_log_reopen(struct access_log *l)
{
    if (!l)
        return;
    atomic_store(&l->reopen, true);
    os_wake_signal(&l->wake);
}

static bool stopping(struct access_log *l)
{
    if (!atomic_load(&l->stop))
        return false;
    if (!l->give_up_ns)
        l->give_up_ns = os_monotonic_ns() + LINGER_NS;
    return true;
}

static void tell(struct access_log *l, bool failing, int rc)
{
    if (failing == l->failing)
        return;
    l->failing = failing;
    if (failing)
        LOG(l->log, LOG_WARN, "access_log_failing",
            LOG_S("reason", rc == STATUS_AGAIN       ? "nobody reads"
                            : rc == STATUS_EXHAUSTED ? "no space left on the device"
                                                     : status_name(rc)));
    else
        LOG(l->log, LOG_INFO, "access_log_recovered", LOG_U("dropped", access_log_dropped(l)));
}

/* Write the batch. A full pipe is waited for, while the ring fills up behind; a failed write drops the batch. */
static void flush(struct access_log *l)
{
    int rc = l->batch.failed ? STATUS_NOMEM : STATUS_AGAIN;
    while (rc == STATUS_AGAIN && l->batch.n) {
        bool stop = stopping(l);
        rc = os_sink_write(&l->out, l->batch.p, l->batch.n, stop ? l->give_up_ns : os_monotonic_ns() + PATIENCE_NS);
        tell(l, rc != 0, rc);
        if (stop)
            break;
    }
    if (l->batch_lines && rc == 0)
        metric_add(l->m_lines, l->batch_lines);
    else if (l->batch_lines)
        count_dropped(l, l->batch_lines);
    buf_clear(&l->batch);
    l->batch_lines = 0;
}

static void add_line(struct access_log *l, const struct access_record *r)
{
    size_t limit = l->out.unlimited ? FILE_BATCH_BYTES : OS_SINK_PIECE_BYTES;
    buf_clear(&l->line);
    access__render(&l->line, l->format, r);
    if (l->batch.n + l->line.n > limit)
        flush(l);
    buf_append_str(&l->batch, buf_str(&l->line));
    l->batch.failed |= l->line.failed;
    l->batch_lines++;
}

/* Take and write what is there; false when there was nothing. */
static bool drain(struct access_log *l)
{
    struct access_record r;
    bool any = false;
    while (ring_pop(&l->ring, &r)) {
        any = true;
        add_line(l, &r);
        if (stopping(l) && os_monotonic_ns() >= l->give_up_ns)
            break;
    }
    flush(l);
    return any;
}

static void reopen_if_asked(struct access_log *l)
{
    struct error err = {0};
    if (!atomic_exchange(&l->reopen, false))
        return;
    if (os_sink_reopen(&l->out, &err) < 0)
        LOG(l->log, LOG_ERROR, "access_log_reopen_failed", LOG_S("error", err.text));
}

static void writer(void *arg)
{
    struct access_log *l = arg;
    for (;;) {
        bool stop = stopping(l);
        reopen_if_asked(l);
        bool any = drain(l);
        if (stop && (!ring_length(&l->ring) || os_monotonic_ns() >= l->give_up_ns))
            break;
        if (any || stop) { /* also while a producer is between claim and release */
            os_wake_wait(&l->wake, os_monotonic_ns() + (stop ? REST_NS / 5 : REST_NS));
            continue;
        }
        atomic_store_explicit(&l->sleeping, true, memory_order_seq_cst);
        if (ring_length(&l->ring) || atomic_load(&l->stop) || atomic_load(&l->reopen))
            os_wake_wait(&l->wake, os_monotonic_ns() + REST_NS / 5);
        else
            os_wake_wait(&l->wake, UINT64_MAX);
        atomic_store(&l->sleeping, false);
    }
    count_dropped(l, ring_length(&l->ring));
}

static struct metric *counter(struct metrics *m, const char *name, const char *help)
{
    return metrics_series(metrics_family(m, METRIC_COUNTER, name, help, NULL, NULL, 0), NULL);
}

static void register_metrics(struct access_log *l, struct metrics *m, bool audit)
{
    if (!m)
        return;
    l->m_lines = audit ? counter(m, "inferd_audit_log_lines_total", "Audit log lines written.")
                       : counter(m, "inferd_access_log_lines_total", "Access log lines written.");
    l->m_dropped =
        audit
            ? counter(m, "inferd_audit_log_dropped_total", "Audit log records dropped because the writer could not keep up.")
            : counter(m, "inferd_access_log_dropped_total", "Access log records dropped because the writer could not keep up.");
}

int access_log_create(const struct access_log_options *o, struct access_log **out, struct error *err)
{
    size_t bytes;
    if (!size_align(sizeof(struct access_log), 64, &bytes))
        return STATUS_NOMEM;
    struct access_log *l = aligned_alloc(64, bytes);
    if (!l)
        return error_set(err, STATUS_NOMEM, "no memory for the access log");
    *l = (struct access_log){.format = o->format, .log = o->log, .out.fd = -1, .wake.fd = -1};
    int rc = STATUS_NOMEM;
    if (!ring_init(&l->ring, o->slots ? o->slots : SLOTS_DEFAULT, sizeof(struct access_record))) {
        error_set(err, rc, "no memory for the access log's ring");
        goto fail;
    }
    if ((rc = os_sink_open(o->path ? o->path : "stderr", &l->out, err)) < 0 || (rc = os_wake_init(&l->wake, err)) < 0)
        goto fail;
    register_metrics(l, o->metrics, o->audit);
    if ((rc = os_thread_start(&l->thread, "access-log", writer, l, err)) < 0)
        goto fail;
    *out = l;
    return 0;
fail:
    os_wake_release(&l->wake);
    os_sink_close(&l->out);
    ring_release(&l->ring);
    free(l);
    return rc;
}

void access_log_destroy(struct access_log *l)
{
    if (!l)
        return;
    atomic_store(&l->stop, true);
    os_wake_signal(&l->wake);
    os_thread_join(&l->thread);
    buf_release(&l->batch);
    buf_release(&l->line);
    os_wake_release(&l->wake);
    os_sink_close(&l->out);
    ring_release(&l->ring);
    free(l);
}
