/* llm_metrics.c: the engine's own series in the Prometheus text format. One model a call; labels are the model's name and version. */
#include "engine/llm/engine_priv.h"
#include "base/size.h"

/* Bounds as vLLM has them for the same quantities, so that dashboards compare. */
static const double seconds[] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75,
                                 1,     2.5,   5,    7.5,   10,   30,    60,  120,  300};
static const double tokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
_Static_assert(COUNT_OF(seconds) <= LLM_BUCKETS_MAX && COUNT_OF(tokens) <= LLM_BUCKETS_MAX, "a histogram's room");

static void observe(struct llm_histogram *h, const double *bounds, size_t n, double v)
{
    size_t i = 0;
    while (i < n && v > bounds[i])
        i++;
    h->counts[i]++;
    h->n++;
    h->sum += v;
}

void llm_observe_seconds(struct llm_histogram *h, uint64_t ns)
{
    observe(h, seconds, COUNT_OF(seconds), (double)ns * 1e-9);
}

void llm_observe_tokens(struct llm_histogram *h, uint32_t tok)
{
    observe(h, tokens, COUNT_OF(tokens), tok);
}

static void put_histogram(struct buf *out, const char *labels, const char *name, const struct llm_histogram *h,
                          const double *bounds, size_t n)
{
    uint64_t below = 0;
    buf_printf(out, "# TYPE inferd_llm_%s histogram\n", name);
    for (size_t i = 0; i < n; i++) {
        below += h->counts[i];
        buf_printf(out, "inferd_llm_%s_bucket{%s,le=\"%g\"} %llu\n", name, labels, bounds[i], (unsigned long long)below);
    }
    buf_printf(out, "inferd_llm_%s_bucket{%s,le=\"+Inf\"} %llu\n", name, labels, (unsigned long long)h->n);
    buf_printf(out, "inferd_llm_%s_sum{%s} %.9g\ninferd_llm_%s_count{%s} %llu\n", name, labels, h->sum, name, labels,
               (unsigned long long)h->n);
}

static void put(struct buf *out, const char *labels, const char *type, const char *name, uint64_t v)
{
    buf_printf(out, "# TYPE inferd_llm_%s %s\ninferd_llm_%s{%s} %llu\n", name, type, name, labels, (unsigned long long)v);
}

static void put_finished(struct buf *out, const char *labels, const struct llm_stats *s)
{
    static const char *const why[] = {NULL, "stop", "length", "cancelled"};
    buf_printf(out, "# TYPE inferd_llm_requests_finished_total counter\n");
    for (size_t i = TOKEN_FINISH_STOP; i < COUNT_OF(why); i++)
        buf_printf(out, "inferd_llm_requests_finished_total{%s,reason=\"%s\"} %llu\n", labels, why[i],
                   (unsigned long long)s->finished[i]);
    buf_printf(out, "inferd_llm_requests_finished_total{%s,reason=\"failed\"} %llu\n", labels, (unsigned long long)s->failed);
}

/* Which adapters are loaded, for balancers that send requests where theirs is. m->lock held: names may go. */
static void put_adapters(struct buf *out, const struct engine_model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->adapters.max_n; i++) {
        const struct lora_adapter *a = m->adapters.v[i];
        if (!a || !a->loaded)
            continue;
        if (!any)
            buf_append_z(out, "# TYPE inferd_llm_adapter_loaded gauge\n");
        any = true;
        buf_printf(out, "inferd_llm_adapter_loaded{%s,adapter=", m->labels);
        buf_append_json_str(out, str_of(a->name)); /* the same escapes as a label's: names have no control characters */
        buf_append_z(out, "} 1\n");
    }
}

void llm_metrics(const struct engine_model *model, struct buf *out)
{
    struct engine_model *m = (struct engine_model *)model; /* the lock is the only thing written */
    os_mutex_lock(&m->lock);
    struct llm_stats s = m->stats;
    uint64_t adapter_bytes = m->adapters.bytes;
    uint32_t adapters, draining;
    lora_set_count(&m->adapters, &adapters, &draining);
    put_adapters(out, m);
    os_mutex_unlock(&m->lock);
    const char *name = m->labels;
    put(out, name, "gauge", "requests_running", s.step.running);
    put(out, name, "gauge", "requests_waiting", s.step.waiting);
    put(out, name, "counter", "preemptions_total", s.step.preemptions);
    put(out, name, "counter", "requests_rejected_total", s.rejected);
    put_finished(out, name, &s);
    put(out, name, "counter", "prompt_tokens_total", s.prompt_tok);
    put(out, name, "counter", "generated_tokens_total", s.generated_tok);
    put(out, name, "counter", "steps_total", s.step.steps);
    put(out, name, "gauge", "kv_blocks", s.blocks.total);
    put(out, name, "gauge", "kv_blocks_used", s.blocks.used);
    put(out, name, "gauge", "kv_blocks_cached", s.blocks.cached);
    put(out, name, "counter", "kv_evictions_total", s.blocks.evictions);
    put(out, name, "counter", "prefix_queries_tokens_total", s.step.prefix_queries_tok);
    put(out, name, "counter", "prefix_hits_tokens_total", s.step.prefix_hits_tok);
    put(out, name, "counter", "speculation_drafts_total", s.speculated.drafts);
    put(out, name, "counter", "speculation_draft_tokens_total", s.speculated.draft_tok);
    put(out, name, "counter", "speculation_accepted_tokens_total", s.speculated.accepted_tok);
    put(out, name, "gauge", "adapters", adapters);
    put(out, name, "gauge", "adapters_draining", draining);
    put(out, name, "gauge", "adapter_bytes", adapter_bytes);
    put_histogram(out, name, "time_to_first_token_seconds", &s.ttft_s, seconds, COUNT_OF(seconds));
    put_histogram(out, name, "inter_token_seconds", &s.itl_s, seconds, COUNT_OF(seconds));
    put_histogram(out, name, "request_seconds", &s.e2e_s, seconds, COUNT_OF(seconds));
    put_histogram(out, name, "queue_seconds", &s.queue_s, seconds, COUNT_OF(seconds));
    put_histogram(out, name, "step_tokens", &s.step_tok, tokens, COUNT_OF(tokens));
}
