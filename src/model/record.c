/* record.c: what a protocol saw of a finished request, counted on the version's series.
 *
 * Series are made at their first use, because most of (protocol x status) never occurs; racing makers get the same handle from the
 * registry of metrics, so the second store changes nothing. */
#include "base/check.h"
#include "base/status.h"
#include "model/infer.h"
#include "model/version_priv.h"

static const char *const protocol_names[MODEL_PROTOCOL_COUNT] = {"http", "grpc", "openai"};

static const struct {
    const char *name, *help;
} phases[SERIES_PHASES] = {
    [PHASE_DECODE] = {"inferd_decode_seconds", "Time from the last byte of a request to its tensors."},
    [PHASE_ENCODE] = {"inferd_encode_seconds",
                      "Time from the outputs to the encoded reply, the way back to the I/O thread included."},
    [PHASE_REQUEST] = {"inferd_request_seconds", "Time from the last byte of a request to its encoded reply."},
};

static struct metric *counter_of(struct series *s, enum model_protocol protocol, int status)
{
    static const char *const labels[] = {"model", "version", "protocol", "status", NULL};
    _Atomic(struct metric *) *slot = &s->requests[protocol][-status];
    struct metric *m = atomic_load_explicit(slot, memory_order_acquire);
    if (m || !s->metrics)
        return m;
    struct metric_family *f = metrics_family(s->metrics, METRIC_COUNTER, "inferd_requests_total",
                                             "Inference requests that ended, by how.", labels, NULL, 0);
    m = f ? metrics_series(f, (const char *const[]){s->model, s->version, protocol_names[protocol], status_name(status), NULL})
          : NULL;
    atomic_store_explicit(slot, m, memory_order_release);
    return m;
}

static struct metric_histogram *histogram_of(struct series *s, enum model_protocol protocol, enum series_phase phase)
{
    static const char *const labels[] = {"model", "version", "protocol", NULL};
    _Atomic(struct metric_histogram *) *slot = &s->phases[protocol][phase];
    struct metric_histogram *h = atomic_load_explicit(slot, memory_order_acquire);
    if (h || !s->metrics)
        return h;
    struct metric_family *f = metrics_family(s->metrics, METRIC_HISTOGRAM, phases[phase].name, phases[phase].help, labels,
                                             METRICS_LATENCY_BOUNDS, METRICS_LATENCY_BOUNDS_N);
    h = f ? metrics_histogram(f, (const char *const[]){s->model, s->version, protocol_names[protocol], NULL}) : NULL;
    atomic_store_explicit(slot, h, memory_order_release);
    return h;
}

static void observe(struct series *s, enum model_protocol protocol, enum series_phase phase, uint64_t from, uint64_t to)
{
    struct metric_histogram *h = histogram_of(s, protocol, phase);
    if (h && from && to >= from)
        metric_observe(h, (double)(to - from) * 1e-9);
}

void model_version_record(struct model_version *v, enum model_protocol protocol, int status, const struct infer_times *t)
{
    struct series *s = v->series;
    ASSERT(protocol < MODEL_PROTOCOL_COUNT && status <= 0 && status > -STATUS_COUNT);
    metric_inc(counter_of(s, protocol, status));
    if (status != STATUS_OK)
        return;
    if (t->output_ns && t->encoded_ns >= t->output_ns)
        delivery_learn(&v->delivery, t->encoded_ns - t->output_ns);
    observe(s, protocol, PHASE_DECODE, t->received_ns, t->decoded_ns);
    observe(s, protocol, PHASE_ENCODE, t->output_ns, t->encoded_ns);
    observe(s, protocol, PHASE_REQUEST, t->received_ns, t->encoded_ns);
}
