/* bench.c: `inferd bench`: options, requests, the live line and the order of events; the load itself is bench_worker.c. */
#include <math.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/bench_openai.h"
#include "cli/bench_options.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/table.h"
#include "os/clock.h"
#include "os/signals.h"
#include "os/terminal.h"
#include "wire/json.h"

#define LIVE_NS 500000000u

struct bench {
    struct bench_options o;
    struct http_target server;
    struct http_client *client;
    struct arena arena;
    struct kserve_model model;
    struct http_header headers[CLI_LIST_MAX + 2];
    size_t n_headers;
    struct buf texts[BENCH_DISTINCT_MAX]; /* whole requests */
    struct str requests[BENCH_DISTINCT_MAX];
    size_t n_requests;
    char deadline[KSERVE_DEADLINE_BYTES];
    char json_bytes[24]; /* Inference-Header-Content-Length of the first request; "": none */
    struct bench_plan plan;
    struct bench_worker *workers;
    struct bench_report report;
};

/* ---- requests ---- */

static int add_header(struct bench *b, const char *text, struct error *err)
{
    const char *colon = strchr(text, ':');
    if (!colon)
        return error_set(err, STATUS_INVALID, "--header: '%s' is not accepted; give 'Name: value'", text);
    b->headers[b->n_headers++] = (struct http_header){{text, (size_t)(colon - text)}, str_trim(str_of(colon + 1))};
    return 0;
}

static int headers_of(struct bench *b, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < b->o.headers.n && rc == 0; i++)
        rc = add_header(b, b->o.headers.v[i], err);
    if (b->o.request.deadline_ns && rc == 0)
        b->headers[b->n_headers++] = kserve_deadline_header(b->o.request.deadline_ns, b->deadline);
    return rc;
}

static int add_request(struct bench *b, const char *method, const char *path, struct str body, size_t header_bytes,
                       struct error *err)
{
    struct buf *out = &b->texts[b->n_requests];
    size_t n = b->n_headers;
    char text[24];
    buf_init(out);
    if (header_bytes) {
        snprintf(text, sizeof text, "%zu", header_bytes);
        b->headers[n++] = (struct http_header){STR("Inference-Header-Content-Length"), str_of(text)};
        if (!b->n_requests)
            snprintf(b->json_bytes, sizeof b->json_bytes, "%s", text);
    }
    bool ok = http_target_request(&b->server, out, str_of(method), str_of(path), b->headers, n, body);
    b->requests[b->n_requests++] = buf_str(out);
    if (ok && !out->failed)
        return 0;
    return error_set(err, out->failed ? STATUS_NOMEM : STATUS_INVALID, "a header or the path can't be sent");
}

/* A plain HTTP request: GET, or POST with --body. */
static int plain_request(struct bench *b, struct error *err)
{
    struct buf body;
    buf_init(&body);
    int rc = b->o.body ? cli_read_file(b->o.body, 256u << 20, &body, err) : 0;
    if (rc == 0)
        rc = add_request(b, b->o.body ? "POST" : "GET", b->o.path, buf_str(&body), 0, err);
    buf_release(&body);
    return rc;
}

static int infer_request(struct bench *b, const struct cli_list *files, const char *path, uint64_t seed, struct error *err)
{
    const struct inputs_media media = {.scale = "unit"};
    struct inputs_generate g = {.rows = b->o.rows,
                                .dynamic = b->o.dynamic,
                                .shapes = b->o.request.shapes,
                                .zero = b->o.request.zero,
                                .int_below = b->o.int_below};
    struct inputs in;
    struct buf body;
    size_t header_bytes = 0;
    rand_init(&g.rand, seed);
    inputs_init(&in);
    buf_init(&body);
    int rc = 0;
    for (size_t i = 0; i < b->o.request.data.n && rc == 0; i++)
        rc = inputs_add_json(&in, &b->model, b->o.request.data.v[i], err);
    for (size_t i = 1; i < files->n && rc == 0; i++)
        rc = inputs_add_file(&in, &b->model, files->v[i], &media, err);
    if (rc == 0)
        rc = inputs_generate(&in, &b->model, &g, err);
    const struct kserve_request r = {.inputs = in.tensors,
                                     .n_inputs = in.n,
                                     .json = b->o.json_tensors,
                                     .outputs = b->o.request.outputs.v,
                                     .n_outputs = b->o.request.outputs.n};
    if (rc == 0)
        rc = kserve_request_build(&r, &b->model, &body, &header_bytes, err);
    if (rc == 0)
        rc = add_request(b, "POST", path, buf_str(&body), header_bytes, err);
    buf_release(&body);
    inputs_release(&in);
    return rc;
}

static int infer_requests(struct bench *b, const struct cli_list *files, struct error *err)
{
    struct buf path;
    int rc = kserve_model_get(b->client, b->o.target, b->o.request.version, &b->arena, &b->model, err);
    buf_init(&path);
    kserve_model_path(&path, b->o.target, b->o.request.version);
    buf_append_z(&path, "/infer");
    for (uint32_t i = 0; i < b->o.distinct && rc == 0; i++) {
        rc = infer_request(b, files, buf_z(&path), b->o.seed + i, err);
        if (rc == 0 && i > 0 && str_eq(b->requests[0], b->requests[i])) { /* nothing in them is random */
            buf_release(&b->texts[--b->n_requests]);
            break;
        }
    }
    buf_release(&path);
    return rc;
}

/* One request through the blocking client, so that a mistake is one sentence and not a table of failures. A server that is busy or
 * failing is measured all the same. */
static int try_first(struct bench *b, struct error *err)
{
    struct str whole = b->requests[0], line = whole, method, target;
    const char *end = memmem(whole.p, whole.n, "\r\n\r\n", 4);
    struct http_client_answer answer;
    char path[2048], verb[8];
    struct http_header headers[CLI_LIST_MAX + 2];
    size_t n = b->n_headers;
    (void)str_cut(&line, ' ', &method);
    (void)str_cut(&line, ' ', &target);
    size_t prefix = strlen(b->server.prefix);
    snprintf(path, sizeof path, "%.*s", STR_ARG(target));
    snprintf(verb, sizeof verb, "%.*s", STR_ARG(method));
    for (size_t i = 0; i < n; i++)
        headers[i] = b->headers[i];
    if (b->json_bytes[0])
        headers[n++] = (struct http_header){STR("Inference-Header-Content-Length"), str_of(b->json_bytes)};
    struct str body = {end + 4, whole.n - (size_t)(end + 4 - whole.p)};
    answer.status = 0;
    int rc = kserve_call(b->client, verb, path + prefix, headers, n, body, &answer, err);
    bool busy = answer.status == 429 || answer.status >= 500; /* the measurement counts these */
    return busy ? 0 : rc;
}

/* ---- the server's own figures ---- */

static void read_stats(struct bench *b, struct bench_server_stats *out)
{
    struct http_client_answer answer;
    struct error err = {0};
    struct json body;
    struct buf path;
    yyjson_val *row;
    size_t i, n;
    if (b->o.path)
        return;
    buf_init(&path);
    kserve_model_path(&path, b->o.target, b->o.request.version);
    buf_append_z(&path, "/stats");
    if (kserve_call(b->client, "GET", buf_z(&path), NULL, 0, STR(""), &answer, &err) == 0 &&
        json_parse(&body, answer.body, NULL, NULL) == 0) {
        yyjson_arr_foreach(yyjson_obj_get(body.root, "model_stats"), i, n, row)
        {
            yyjson_val *s = yyjson_obj_get(row, "inference_stats");
            out->known = true;
            out->rows += yyjson_get_num(yyjson_obj_get(row, "inference_count"));
            out->runs += yyjson_get_num(yyjson_obj_get(row, "execution_count"));
            out->requests += yyjson_get_num(yyjson_obj_get(yyjson_obj_get(s, "success"), "count"));
            out->queue_ns += yyjson_get_num(yyjson_obj_get(yyjson_obj_get(s, "queue"), "ns"));
            out->compute_ns += yyjson_get_num(yyjson_obj_get(yyjson_obj_get(s, "compute_infer"), "ns"));
        }
        json_release(&body);
    }
    buf_release(&path);
}

/* ---- the run ---- */

static void live_line(struct bench *b, struct hdr *total, double since_s, double interval_s)
{
    char p50[32], p99[32], max[32], line[200];
    uint64_t ok = 0, bad = 0;
    hdr_clear(total);
    for (uint32_t i = 0; i < b->o.threads; i++) {
        struct bench_worker *w = &b->workers[i];
        os_mutex_lock(&w->lock);
        hdr_merge(total, w->live.latency);
        hdr_clear(w->live.latency);
        ok += w->live.ok;
        bad += w->live.bad;
        w->live.ok = w->live.bad = 0;
        os_mutex_unlock(&w->lock);
    }
    double warm = (double)b->o.warmup_ns * 1e-9;
    int n = snprintf(line, sizeof line, "%s %5.1f s  %9.1f/s  p50 %9s  p99 %9s  max %9s",
                     since_s < warm ? "warm-up" : "measure", since_s < warm ? since_s : since_s - warm, (double)ok / interval_s,
                     table_time((double)hdr_percentile(total, 50), p50, sizeof p50),
                     table_time((double)hdr_percentile(total, 99), p99, sizeof p99),
                     table_time((double)total->max, max, sizeof max));
    if (bad && n > 0 && (size_t)n < sizeof line)
        snprintf(line + n, sizeof line - (size_t)n, "  not ok %llu", (unsigned long long)bad);
    fprintf(stderr, "\r%.*s\033[K", os_terminal_columns(2) - 1, line);
    fflush(stderr);
}

/* Wait for the end; SIGINT ends early and still reports. */
static void watch(struct bench *b, struct os_signals *signals)
{
    bool live = !b->o.quiet && os_is_terminal(2);
    struct hdr *total = live ? hdr_create(BENCH_LIVE_MAX) : NULL;
    uint64_t start = os_monotonic_ns(), last = start;
    bool stopped = false;
    for (uint64_t now = start; now < b->plan.stop_ns && !stopped; now = os_monotonic_ns()) {
        uint64_t until = MIN_OF(now + LIVE_NS, b->plan.stop_ns);
        bool done = true;
        stopped = os_signals_wait(signals, until) == OS_SIGNAL_STOP;
        now = os_monotonic_ns();
        if (total && now > last)
            live_line(b, total, (double)(now - start) * 1e-9, (double)(now - last) * 1e-9);
        last = now;
        for (uint32_t i = 0; i < b->o.threads; i++)
            done = done && atomic_load_explicit(&b->workers[i].ended, memory_order_acquire);
        if (done)
            break;
    }
    for (uint32_t i = 0; stopped && i < b->o.threads; i++)
        atomic_store_explicit(&b->workers[i].stop, true, memory_order_relaxed);
    if (live)
        fprintf(stderr, "\r\033[K");
    hdr_destroy(total);
}

static int start_workers(struct bench *b, struct error *err)
{
    uint32_t connections = b->o.rate > 0 ? b->o.connections : b->o.concurrency;
    uint64_t now = os_monotonic_ns();
    b->plan = (struct bench_plan){
        .addr = b->server.addr,
        .requests = b->requests,
        .n_requests = b->n_requests,
        .open = b->o.rate > 0,
        .poisson = strcmp(b->o.arrival, "poisson") == 0,
        .busy_poll = b->o.busy_poll,
        .rate = b->o.rate / b->o.threads,
        .connections = connections / b->o.threads,
        .warm_ns = now + b->o.warmup_ns,
        .stop_ns = now + b->o.warmup_ns + b->o.duration_ns,
        .timeout_ns = b->o.request.server.timeout_ns,
        .most = b->o.requests / b->o.threads,
    };
    b->plan.drain_ns = b->plan.stop_ns + b->o.request.server.timeout_ns;
    int rc = 0;
    for (uint32_t i = 0; i < b->o.threads && rc == 0; i++) {
        rc = bench_worker_start(&b->workers[i], &b->plan, b->o.seed * 1000003u + i, err);
        if (rc < 0)
            for (uint32_t k = 0; k < i; k++) {
                atomic_store_explicit(&b->workers[k].stop, true, memory_order_relaxed);
                bench_worker_join(&b->workers[k]);
                bench_worker_release(&b->workers[k]);
            }
    }
    return rc;
}

static int measure(struct bench *b, struct error *err)
{
    struct os_signals signals;
    int rc = os_signals_open(&signals, err);
    if (rc < 0)
        return rc;
    read_stats(b, &b->report.before);
    rc = start_workers(b, err);
    if (rc == 0) {
        uint64_t first = 0, last = 0;
        bool memory = true;
        watch(b, &signals);
        for (uint32_t i = 0; i < b->o.threads; i++) {
            bench_worker_join(&b->workers[i]);
            memory = bench_report_add(&b->report, &b->workers[i]) && memory;
            last = MAX_OF(last, b->workers[i].last_ns);
        }
        first = b->plan.warm_ns;
        /* the whole window; up to the last answer when it ended early */
        bool early = os_monotonic_ns() < b->plan.stop_ns;
        b->report.seconds = (double)((early && last > first ? last : b->plan.stop_ns) - first) * 1e-9;
        rc = memory ? 0 : error_set(err, STATUS_NOMEM, "not enough memory for the report");
        read_stats(b, &b->report.after);
    }
    os_signals_close(&signals);
    return rc;
}

static int report(struct bench *b)
{
    struct bench_report *r = &b->report;
    struct buf out;
    r->target = b->o.target;
    r->open = b->plan.open;
    r->poisson = b->plan.poisson;
    r->rate = b->o.rate;
    r->connections = b->plan.connections * b->o.threads;
    r->threads = b->o.threads;
    r->rows = b->o.path ? 0 : b->o.rows;
    r->distinct = b->n_requests;
    r->request_bytes = b->requests[0].n;
    r->warm_s = (double)b->o.warmup_ns * 1e-9;
    if (!b->o.json) {
        bench_report_print(r, stdout);
    } else {
        buf_init(&out);
        bench_report_json(r, &out);
        fwrite(out.p ? out.p : "", 1, out.n, stdout);
        buf_release(&out);
    }
    if (fflush(stdout) != 0)
        return cli_fail("the output could not be written");
    return r->counts.ok ? CLI_OK : cli_fail("no request was answered well");
}

static int run_bench(struct bench *b, const struct cli_list *arguments)
{
    struct error err = {0};
    int rc = http_target_parse(b->o.request.server.url, &b->server, &err);
    b->server.api_key = kserve_api_key();
    if (rc == 0 && b->server.host[0])
        rc = error_set(&err, STATUS_UNIMPLEMENTED, "the load generator speaks no TLS; give http:// or a unix socket");
    if (rc == 0)
        http_target_settle(&b->server, HTTP_CONNECT_NS);
    if (rc == 0)
        rc = kserve_connect(&b->o.request.server, &b->client, &err);
    if (rc == 0)
        rc = headers_of(b, &err);
    if (rc == 0)
        rc = b->o.path ? plain_request(b, &err) : infer_requests(b, arguments, &err);
    if (rc == 0)
        rc = try_first(b, &err);
    b->report.open = b->o.rate > 0;
    if (rc == 0)
        rc = measure(b, &err);
    return rc == 0 ? report(b) : cli_fail("%s", err.text);
}

static void release(struct bench *b)
{
    for (uint32_t i = 0; b->report.latency && i < b->o.threads; i++)
        bench_worker_release(&b->workers[i]);
    for (size_t i = 0; i < b->n_requests; i++)
        buf_release(&b->texts[i]);
    bench_report_release(&b->report);
    http_client_destroy(b->client);
    arena_release(&b->arena);
    free(b->workers);
    free(b);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_list arguments;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--openai") == 0)
            return bench_openai(self, argc, argv);
    struct bench *b = calloc(1, sizeof *b);
    struct bench_worker *workers = calloc(BENCH_THREADS_MAX, sizeof *workers);
    if (!b || !workers) {
        free(b);
        free(workers);
        return cli_fail("not enough memory");
    }
    b->workers = workers;
    bench_options_init(&b->o);
    arena_init(&b->arena, 16384, 0);
    int code = bench_options_parse(self, argc, argv, &b->o, &arguments);
    if (code == CLI_GO)
        code = run_bench(b, &arguments);
    release(b);
    return code;
}

const struct cli_command command_bench = {
    .name = "bench",
    .arguments = "MODEL [NAME=FILE]...",
    .summary = "Measure a running server with closed or open load.",
    .details = "Requests are random tensors of the model's shapes unless files or --data give them. With --rate latency runs "
               "from the\n"
               "scheduled time, so what a slow server holds up is counted (no coordinated omission); without, a second row is "
               "corrected\n"
               "for it. Ctrl-C ends early and reports.\n"
               "A language model is measured with --openai: inferd bench --openai --help has its options.",
    .run = run,
};
