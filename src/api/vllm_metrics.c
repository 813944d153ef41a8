/* vllm_metrics.c: vLLM's metric names over ours, for dashboards and LLM-aware routers that exist (metrics.compat: vllm).
 *
 * The engines have rendered their own series as text; this renames what has the same meaning there, and makes the two that are not kept
 * as such: the share of KV blocks in use, and the cache's size. Labels: model_name in place of model and version. Text to text. */
#include <stdlib.h>

#include "api/api_priv.h"
#include "base/size.h"
#include "obs/metrics.h"

static const struct alias {
    const char *ours, *theirs; /* without "inferd_llm_" and "vllm:" */
} aliases[] = {
    {"requests_running", "num_requests_running"},
    {"requests_waiting", "num_requests_waiting"},
    {"preemptions_total", "num_preemptions_total"},
    {"requests_finished_total", "request_success_total"},
    {"prompt_tokens_total", "prompt_tokens_total"},
    {"generated_tokens_total", "generation_tokens_total"},
    {"prefix_queries_tokens_total", "prefix_cache_queries_total"},
    {"prefix_hits_tokens_total", "prefix_cache_hits_total"},
    {"speculation_drafts_total", "spec_decode_num_drafts_total"},
    {"speculation_draft_tokens_total", "spec_decode_num_draft_tokens_total"},
    {"speculation_accepted_tokens_total", "spec_decode_num_accepted_tokens_total"},
    {"time_to_first_token_seconds", "time_to_first_token_seconds"},
    {"inter_token_seconds", "inter_token_latency_seconds"},
    {"inter_token_seconds", "time_per_output_token_seconds"},
    {"request_seconds", "e2e_request_latency_seconds"},
    {"queue_seconds", "request_queue_time_seconds"},
    {"step_tokens", "iteration_tokens_total"},
};

#define OURS "inferd_llm_"

/* "# TYPE inferd_llm_NAME kind" -> NAME and kind. */
static bool read_type(struct str line, struct str *name, struct str *kind)
{
    const struct str front = STR("# TYPE " OURS);
    if (!str_starts(line, front))
        return false;
    struct str rest = {line.p + front.n, line.n - front.n};
    str_cut(&rest, ' ', name);
    *kind = rest;
    return true;
}

static void put_sample(struct buf *out, const char *theirs, struct str suffix, struct str labels, struct str value)
{
    struct str reason = metrics_label(labels, "reason"), le = metrics_label(labels, "le");
    buf_printf(out, "vllm:%s%.*s{model_name=\"%.*s\"", theirs, STR_ARG(suffix), STR_ARG(metrics_label(labels, "model")));
    if (reason.p)
        buf_printf(out, ",finished_reason=\"%.*s\"", STR_ARG(str_eqz(reason, "cancelled") ? STR("abort") : reason));
    if (le.p)
        buf_printf(out, ",le=\"%.*s\"", STR_ARG(le));
    buf_printf(out, "}%.*s\n", STR_ARG(value));
}

/* A sample line of the family `name`: what follows the name (_bucket, _sum, _count), the labels, the rest with its space. */
static bool read_sample(struct str line, struct str name, struct str *suffix, struct str *labels, struct str *value)
{
    const struct str front = STR(OURS);
    const char *open = line.n ? memchr(line.p, '{', line.n) : NULL, *close = line.n ? memrchr(line.p, '}', line.n) : NULL;
    if (!open || !close || close < open || !str_starts(line, front))
        return false;
    struct str whole = {line.p + front.n, (size_t)(open - line.p) - front.n};
    if (!str_starts(whole, name))
        return false;
    *suffix = (struct str){whole.p + name.n, whole.n - name.n};
    *labels = (struct str){open, (size_t)(close - open)};
    *value = (struct str){close + 1, line.n - (size_t)(close + 1 - line.p)};
    return true;
}

/* One family of ours under one of their names; `text` is a whole page of ours, where each family stands once. */
static void rename_family(struct str text, const struct alias *a, struct buf *out)
{
    struct str line, name, kind, suffix, labels, value;
    bool in = false;
    while (str_cut(&text, '\n', &line)) {
        if (read_type(line, &name, &kind)) {
            in = str_eqz(name, a->ours);
            if (in)
                buf_printf(out, "# TYPE vllm:%s %.*s\n", a->theirs, STR_ARG(kind));
        } else if (in && read_sample(line, str_of(a->ours), &suffix, &labels, &value)) {
            put_sample(out, a->theirs, suffix, labels, value);
        }
    }
}

/* The value of `family` for the model whose labels are `want`. */
static double value_of(struct str text, const char *family, struct str want)
{
    struct str line, suffix, labels, value;
    double v = 0;
    while (str_cut(&text, '\n', &line))
        if (read_sample(line, str_of(family), &suffix, &labels, &value) && !suffix.n && str_eq(labels, want) &&
            str_to_f64(str_trim(value), &v))
            return v;
    return 0;
}

static void put_cache(struct str text, bool info, struct buf *out)
{
    struct str rest = text, line, suffix, labels, value;
    bool first = true;
    while (str_cut(&rest, '\n', &line)) {
        double total;
        if (!read_sample(line, STR("kv_blocks"), &suffix, &labels, &value) || suffix.n || !str_to_f64(str_trim(value), &total))
            continue;
        if (first)
            buf_printf(out, "# TYPE vllm:%s gauge\n", info ? "cache_config_info" : "kv_cache_usage_perc");
        first = false;
        if (info)
            buf_printf(out, "vllm:cache_config_info{model_name=\"%.*s\",block_size=\"32\",num_gpu_blocks=\"%.0f\"} 1\n",
                       STR_ARG(metrics_label(labels, "model")), total);
        else
            buf_printf(out, "vllm:kv_cache_usage_perc{model_name=\"%.*s\"} %.6g\n", STR_ARG(metrics_label(labels, "model")),
                       total > 0 ? value_of(text, "kv_blocks_used", labels) / total : 0);
    }
}

void api__render_vllm(struct str engines, struct buf *out)
{
    for (size_t i = 0; i < COUNT_OF(aliases); i++)
        rename_family(engines, &aliases[i], out);
    put_cache(engines, false, out);
    put_cache(engines, true, out);
}
