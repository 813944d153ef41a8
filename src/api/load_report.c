/* load_report.c: this server as a replica tells a balancer how loaded it is, in a header of its answers (ORCA's endpoint-load-metrics, as
 * vLLM and Triton send it), when the request asks for it with endpoint-load-metrics-format: text or json; and in a line, as HAProxy's agents do.
 *
 * What it says: requests that wait (for models without tokens: that are there), the fullest KV cache, and that it is loading or draining. Gathered
 * at most every REFRESH_NS by whichever request comes first; the others read what is there. Two atomics; a mix of two moments does no harm. */
#include <string.h>

#include "api/api_priv.h"
#include "base/status.h"
#include "model/registry.h"
#include "os/clock.h"

#define REFRESH_NS 25000000ull
#define OURS       "inferd_llm_"
#define HALF_AT    8.0 /* requests that wait where half of the weight is left */

static const char *state_of(const struct api *a)
{
    int phase = atomic_load_explicit(&a->phase, memory_order_acquire);
    return phase > API_SERVING ? "draining" : api__is_ready(a) ? NULL : "loading";
}

struct pending {
    struct api *api;
    uint64_t n;
};

static void add_pending(void *ctx, const struct index_row *row)
{
    struct pending *p = ctx;
    struct model_version *v;
    struct version_stats s;
    if (!row->version.n || registry_find(p->api->o.registry, row->model, row->version, &v, NULL) < 0)
        return;
    model_version_stats(v, &s);
    p->n += s.pending;
    model_version_unref(v);
}

/* "inferd_llm_NAME{...} VALUE". */
static bool sample(struct str line, const char *name, double *v)
{
    size_t n = strlen(name);
    const char *end = line.n ? memrchr(line.p, '}', line.n) : NULL;
    return end && str_starts(line, (struct str){name, n}) && line.n > n && line.p[n] == '{' &&
           str_to_f64(str_trim((struct str){end + 1, line.n - (size_t)(end + 1 - line.p)}), v);
}

static void gather(struct api *a)
{
    struct pending p = {.api = a};
    struct buf text;
    struct str rest, line;
    double waiting = 0, kv = 0, blocks = 0, v;
    buf_init(&text);
    api__render_engines(a, &text);
    rest = text.failed ? (struct str){0} : buf_str(&text);
    while (rest.n && str_cut(&rest, '\n', &line)) {
        if (sample(line, OURS "requests_waiting", &v))
            waiting += v;
        else if (sample(line, OURS "kv_blocks", &v))
            blocks = v;
        else if (sample(line, OURS "kv_blocks_used", &v) && blocks > 0 && v / blocks > kv)
            kv = v / blocks;
    }
    buf_release(&text);
    registry_index(a->o.registry, true, add_pending, &p);
    atomic_store_explicit(&a->load.waiting, (uint64_t)waiting + p.n, memory_order_relaxed);
    atomic_store_explicit(&a->load.kv_ppm, (uint64_t)(kv * 1e6), memory_order_relaxed);
}

unsigned api_load_percent(double kv, uint64_t waiting)
{
    double cache = 1 - (kv < 0 ? 0 : kv > 1 ? 1 : kv), queue = HALF_AT / (HALF_AT + (double)waiting);
    unsigned percent = (unsigned)(100 * (cache < queue ? cache : queue) + 0.5);
    return percent ? percent : 1;
}

static void refresh(struct api *a)
{
    uint64_t now = os_monotonic_ns(), at = atomic_load_explicit(&a->load.at_ns, memory_order_relaxed);
    if (at && now - at < REFRESH_NS)
        return;
    if (atomic_compare_exchange_strong_explicit(&a->load.at_ns, &at, now, memory_order_relaxed, memory_order_relaxed))
        gather(a);
}

void api__load_report(struct api *a, struct http_request *r)
{
    struct str format = http_header_get(r, "endpoint-load-metrics-format");
    bool text = str_ieqz(format, "text");
    if (!text && !str_ieqz(format, "json"))
        return;
    refresh(a);
    const char *state = state_of(a);
    unsigned long long waiting = atomic_load_explicit(&a->load.waiting, memory_order_relaxed);
    double kv = (double)atomic_load_explicit(&a->load.kv_ppm, memory_order_relaxed) / 1e6;
    const char *value =
        text ? arena_printf(r->arena,
                            "TEXT named_metrics.num_requests_waiting=%llu, named_metrics.kv_cache_usage_perc=%.4f%s%s%s",
                            waiting, kv, state ? ", named_metrics." : "", state ? state : "",
                            state ? "=1" : ", named_metrics.draining=0")
             : arena_printf(r->arena,
                            "JSON {\"named_metrics\":{\"num_requests_waiting\":%llu,\"kv_cache_usage_perc\":%.4f,\"%s\":%d}}",
                            waiting, kv, state ? state : "draining", state != NULL);
    if (value)
        api__add_headers(r, &(struct http_header){STR("endpoint-load-metrics"), str_of(value)}, 1);
}

void api_agent_line(struct api *a, struct buf *out)
{
    const char *state = state_of(a);
    refresh(a);
    double kv = (double)atomic_load_explicit(&a->load.kv_ppm, memory_order_relaxed) / 1e6;
    if (!state)
        buf_printf(out, "up ready %u%%\n", api_load_percent(kv, atomic_load_explicit(&a->load.waiting, memory_order_relaxed)));
    else
        buf_append_z(out, strcmp(state, "draining") == 0 ? "drain\n" : "down #loading\n");
}
