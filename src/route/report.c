/* report.c: the three readers. Each goes over its text once, without a copy; only the header's JSON form is parsed into a tree. */
#include "route/report.h"

#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "obs/metrics.h"
#include "wire/json.h"

#define QUEUED_MAX  1e9
#define PERCENT_MAX 25600 /* HAProxy's highest weight, of 1 */

uint64_t report_adapter(struct str name)
{
    uint64_t h = hash_bytes(name.p, name.n, 5);
    return h ? h : 1;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* ---- the header ---- */

/* One metric by its name; a name that we don't know says nothing. */
static void take_metric(struct upstream_report *r, struct str name, double v)
{
    if (str_eqz(name, "num_requests_waiting") || str_eqz(name, "waiting_queue_size")) {
        r->has_load = true;
        r->queued = (uint32_t)MIN_OF(MAX_OF(v, 0.0), QUEUED_MAX);
    } else if (str_eqz(name, "kv_cache_usage_perc") || str_eqz(name, "kv_cache_utilization")) {
        r->has_load = true;
        r->kv_use = MIN_OF(MAX_OF(v, 0.0), 1.0);
    } else if (str_eqz(name, "draining") || str_eqz(name, "loading")) {
        bool yes = v > 0;
        r->has_says = true;
        if (yes)
            r->says = str_eqz(name, "draining") ? UPSTREAM_DRAINING : UPSTREAM_LOADING;
    }
}

static int read_text(struct str list, struct upstream_report *out, struct error *err)
{
    struct str part;
    const struct str front = STR("named_metrics.");
    while (list.n && str_cut(&list, ',', &part)) {
        struct str name, value = str_trim(part);
        double v;
        if (!value.n)
            continue;
        if (!memchr(value.p, '=', value.n) || !str_cut(&value, '=', &name) || !str_to_f64(str_trim(value), &v))
            return error_set(err, STATUS_INVALID, "endpoint-load-metrics: \"%.*s\" is no name=number", STR_ARG(part));
        name = str_trim(name);
        if (str_starts(name, front))
            name = (struct str){name.p + front.n, name.n - front.n};
        take_metric(out, name, v);
    }
    return 0;
}

static int read_json(struct str text, struct upstream_report *out, struct error *err)
{
    static const char *const names[] = {"num_requests_waiting", "waiting_queue_size", "kv_cache_usage_perc",
                                        "kv_cache_utilization", "draining",           "loading"};
    static const struct json_limits limits = {.max_bytes = 16384, .max_depth = 8};
    struct json j = {0};
    int rc = json_parse(&j, text, &limits, err);
    yyjson_val *named = NULL;
    if (rc)
        return rc;
    rc = json_get_obj(j.root, "named_metrics", JSON_OPTIONAL, &named, NULL, err);
    for (size_t i = 0; i < COUNT_OF(names) && named && !rc; i++) {
        double v = 0;
        bool found = false;
        rc = json_get_f64(named, names[i], JSON_OPTIONAL, -1e300, 1e300, &v, &found, err);
        if (!rc && found)
            take_metric(out, str_of(names[i]), v);
    }
    json_release(&j);
    return rc;
}

int report_read_header(struct str value, struct upstream_report *out, struct error *err)
{
    const struct str text = STR("TEXT "), json = STR("JSON ");
    *out = (struct upstream_report){0};
    value = str_trim(value);
    if (str_starts(value, text))
        return read_text((struct str){value.p + text.n, value.n - text.n}, out, err);
    if (str_starts(value, json))
        return read_json((struct str){value.p + json.n, value.n - json.n}, out, err);
    return error_set(err, STATUS_INVALID, "endpoint-load-metrics must begin with TEXT or JSON");
}

/* ---- the metrics page ---- */

/* Whose numbers: a page may carry the same twice, under our names and under vLLM's. */
enum source { VLLM, SGLANG, OURS, SOURCES };

struct page {
    double waiting[SOURCES], kv[SOURCES], rows, blocks, used;
    double adapters_at; /* vLLM dates its lists by their value */
    bool any;
};

static const struct wanted {
    const char *name;
    enum { WAITING, KV, ROWS, BLOCKS, BLOCKS_USED } what;
    enum source source;
} wanted[] = {
    {"vllm:num_requests_waiting", WAITING, VLLM},
    {"vllm:kv_cache_usage_perc", KV, VLLM},
    {"vllm:gpu_cache_usage_perc", KV, VLLM},
    {"sglang:num_queue_reqs", WAITING, SGLANG},
    {"sglang:token_usage", KV, SGLANG},
    {"inferd_llm_requests_waiting", WAITING, OURS},
    {"inferd_llm_kv_blocks", BLOCKS, OURS},
    {"inferd_llm_kv_blocks_used", BLOCKS_USED, OURS},
    {"inferd_queue_rows", ROWS, OURS},
};

static void take_sample(struct page *g, const struct wanted *w, double v)
{
    g->any = true;
    switch (w->what) {
    case WAITING:
        g->waiting[w->source] += v;
        break;
    case KV:
        g->kv[w->source] = MAX_OF(g->kv[w->source], v);
        break;
    case ROWS:
        g->rows += v;
        break;
    case BLOCKS: /* a model's two lines follow each other, the total first: the use is of the latest */
        g->blocks = v;
        break;
    case BLOCKS_USED:
        if (g->blocks > 0)
            g->kv[OURS] = MAX_OF(g->kv[OURS], v / g->blocks);
        break;
    }
}

static void take_adapters(struct page *g, struct str labels, double at, struct upstream_report *out)
{
    struct str names = metrics_label(labels, "running_lora_adapters"), one;
    if (out->has_adapters && at < g->adapters_at)
        return;
    g->any = true;
    g->adapters_at = at;
    out->has_adapters = true;
    out->n_adapters = 0;
    while (names.n && str_cut(&names, ',', &one) && out->n_adapters < REPORT_ADAPTERS_MAX)
        if (str_trim(one).n)
            out->adapters[out->n_adapters++] = report_adapter(str_trim(one));
}

/* "name{labels} value [time]" or "name value [time]". */
static bool cut_sample(struct str line, struct str *name, struct str *labels, double *v)
{
    size_t n = 0;
    *labels = (struct str){0};
    while (n < line.n && line.p[n] != '{' && !is_space(line.p[n]))
        n++;
    *name = (struct str){line.p, n};
    if (!n || line.p[0] == '#')
        return false;
    if (n < line.n && line.p[n] == '{') {
        const char *end = memrchr(line.p, '}', line.n);
        if (!end)
            return false;
        *labels = (struct str){line.p + n + 1, (size_t)(end - line.p) - n - 1};
        n = (size_t)(end - line.p) + 1;
    }
    struct str rest = str_trim((struct str){line.p + n, line.n - n}), value;
    return rest.n && str_cut(&rest, ' ', &value) && str_to_f64(str_trim(value), v);
}

static void take_line(struct page *g, struct str line, struct upstream_report *out)
{
    struct str name, labels;
    double v;
    if (!cut_sample(line, &name, &labels, &v))
        return;
    if (str_eqz(name, "inferd_llm_adapter_loaded")) { /* one a line; our page has no vllm:lora_requests_info */
        struct str adapter = metrics_label(labels, "adapter");
        out->has_adapters = true;
        if (v > 0 && adapter.n && out->n_adapters < REPORT_ADAPTERS_MAX)
            out->adapters[out->n_adapters++] = report_adapter(adapter);
        return;
    }
    if (str_eqz(name, "vllm:lora_requests_info")) {
        take_adapters(g, labels, v, out);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        if (str_eqz(name, wanted[i].name)) {
            take_sample(g, &wanted[i], v);
            return;
        }
}

int report_read_metrics(struct str text, struct upstream_report *out, struct error *err)
{
    struct page g = {0};
    struct str line;
    double waiting = 0, kv = 0;
    *out = (struct upstream_report){0};
    while (text.n && str_cut(&text, '\n', &line))
        take_line(&g, line, out);
    if (!g.any)
        return error_set(err, STATUS_INVALID, "the page has none of vllm:*, sglang:* and inferd's metrics of load");
    for (size_t i = 0; i < SOURCES; i++) {
        waiting = MAX_OF(waiting, g.waiting[i]);
        kv = MAX_OF(kv, g.kv[i]);
    }
    out->has_load = true;
    out->queued = (uint32_t)MIN_OF(MAX_OF(waiting + g.rows, 0.0), QUEUED_MAX);
    out->kv_use = MIN_OF(MAX_OF(kv, 0.0), 1.0);
    return 0;
}

/* ---- the agent's line ---- */

static void say(struct upstream_report *r, enum upstream_says says)
{
    r->has_says = true;
    r->says = says;
}

static bool take_number(struct upstream_report *r, struct str word)
{
    const struct str maxconn = STR("maxconn:");
    uint64_t v;
    if (word.n > 1 && word.p[word.n - 1] == '%' && str_to_u64((struct str){word.p, word.n - 1}, &v) && v <= PERCENT_MAX) {
        r->has_weight = true;
        r->weight_pc = (uint32_t)v;
        return true;
    }
    if (str_starts(word, maxconn) && str_to_u64((struct str){word.p + maxconn.n, word.n - maxconn.n}, &v) && v <= UINT32_MAX) {
        r->has_max_conns = true;
        r->max_conns = (uint32_t)v;
        return true;
    }
    return false;
}

static bool take_word(struct upstream_report *r, struct str word)
{
    static const struct {
        const char *word;
        enum upstream_says says;
    } words[] = {
        {"ready", UPSTREAM_READY}, {"up", UPSTREAM_READY},    {"loading", UPSTREAM_LOADING}, {"drain", UPSTREAM_DRAINING},
        {"down", UPSTREAM_DOWN},   {"failed", UPSTREAM_DOWN}, {"stopped", UPSTREAM_DOWN},    {"maint", UPSTREAM_MAINTENANCE},
    };
    const char *hash = memchr(word.p, '#', word.n); /* a reason for people */
    if (hash)
        word.n = (size_t)(hash - word.p);
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (str_eqz(word, words[i].word)) {
            /* "up ready" is one state; "up drain" is drain: a no outweighs a yes */
            if (!r->has_says || words[i].says != UPSTREAM_READY)
                say(r, words[i].says);
            return true;
        }
    return take_number(r, word);
}

int report_read_agent(struct str text, struct upstream_report *out, struct error *err)
{
    bool any = false;
    *out = (struct upstream_report){0};
    for (size_t i = 0; i < text.n && text.p[i] != '\n' && text.p[i] != '\r';) {
        size_t n = 0;
        if (is_space(text.p[i]) || text.p[i] == ',') {
            i++;
            continue;
        }
        /* a reason goes on to the end of the line, blanks included */
        bool reason = false;
        while (i + n < text.n && text.p[i + n] != '\n' && text.p[i + n] != '\r' &&
               (reason || (!is_space(text.p[i + n]) && text.p[i + n] != ',')))
            reason |= text.p[i + n++] == '#';
        if (!take_word(out, (struct str){text.p + i, n}))
            return error_set(err, STATUS_INVALID, "an agent's line has \"%.*s\", which is no word of an agent",
                             (int)MIN_OF(n, (size_t)40), text.p + i);
        any = true;
        i += n;
    }
    if (!any)
        return error_set(err, STATUS_INVALID, "an agent said nothing");
    return 0;
}
