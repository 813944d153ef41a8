/* bench_report.c: percentiles, rates and the server's own figures. */
#include "cli/bench_report.h"

#include "base/size.h"
#include "cli/cli.h"
#include "cli/table.h"

static const struct percentile {
    const char *title, *key;
    double percent;
} percentiles[] = {{">P50", "p50", 50}, {">P90", "p90", 90},       {">P95", "p95", 95},
                   {">P99", "p99", 99}, {">P99.9", "p99_9", 99.9}, {">P99.99", "p99_99", 99.99}};

bool bench_report_add(struct bench_report *r, const struct bench_worker *w)
{
    if (!r->latency && !(r->latency = hdr_create(BENCH_LATENCY_MAX)))
        return false;
    if (!r->open && !r->corrected && !(r->corrected = hdr_create(BENCH_LATENCY_MAX)))
        return false;
    hdr_merge(r->latency, w->latency);
    if (r->corrected)
        hdr_merge(r->corrected, w->corrected);
    r->expected_ns = MAX_OF(r->expected_ns, w->expected_ns);
    r->counts.ok += w->counts.ok;
    r->counts.failed += w->counts.failed;
    r->counts.broken += w->counts.broken;
    r->counts.timeouts += w->counts.timeouts;
    r->counts.unfinished += w->counts.unfinished;
    r->counts.connects += w->counts.connects;
    r->counts.bytes_in += w->counts.bytes_in;
    r->counts.bytes_out += w->counts.bytes_out;
    for (size_t i = 0; i < BENCH_STATUS_MAX; i++)
        r->counts.status[i] += w->counts.status[i];
    if (!r->first_error && w->first_error[0])
        r->first_error = w->first_error;
    return true;
}

void bench_report_release(struct bench_report *r)
{
    hdr_destroy(r->latency);
    hdr_destroy(r->corrected);
}

static double per_second(const struct bench_report *r, uint64_t n)
{
    return r->seconds > 0 ? (double)n / r->seconds : 0;
}

/* ---- for people ---- */

static void print_head(const struct bench_report *r, FILE *f)
{
    struct cli_style s = cli_style(f);
    char bytes[32], window[32], warm[32];
    fprintf(f, "%s%s%s  ", s.bold, r->target, s.off);
    if (r->open)
        fprintf(f, "open loop, %s arrivals at %.6g/s, ", r->poisson ? "Poisson" : "constant", r->rate);
    else
        fprintf(f, "closed loop, ");
    fprintf(f, "%u connection%s, %u thread%s, ", r->connections, r->connections == 1 ? "" : "s", r->threads,
            r->threads == 1 ? "" : "s");
    fprintf(f, "%s after %s of warm-up\n", table_time(r->seconds * 1e9, window, sizeof window),
            table_time(r->warm_s * 1e9, warm, sizeof warm));
    fprintf(f, "%zu distinct request%s of about %s", r->distinct, r->distinct == 1 ? "" : "s",
            table_bytes((double)r->request_bytes, bytes, sizeof bytes));
    if (r->rows)
        fprintf(f, ", %u row%s each", r->rows, r->rows == 1 ? "" : "s");
    fputs("\n\n", f);
}

static void print_totals(const struct bench_report *r, FILE *f)
{
    const struct bench_counts *c = &r->counts;
    struct cli_style s = cli_style(f);
    char in[32], out[32];
    uint64_t bad = c->failed + c->broken + c->timeouts + c->unfinished;
    fprintf(f, "answers   %llu ok, %s%llu not%s   ", (unsigned long long)c->ok, bad ? s.red : "", (unsigned long long)bad,
            bad ? s.off : "");
    fprintf(f, "%s%.1f/s%s", s.green, per_second(r, c->ok), s.off);
    if (r->rows > 1)
        fprintf(f, "   %.1f rows/s", per_second(r, c->ok * r->rows));
    fprintf(f, "   sent %s/s, received %s/s\n", table_bytes(per_second(r, c->bytes_out), out, sizeof out),
            table_bytes(per_second(r, c->bytes_in), in, sizeof in));
    if (!bad && !c->connects)
        return;
    fprintf(f, "not ok   ");
    for (size_t i = 0; i < BENCH_STATUS_MAX; i++)
        if (c->status[i] && i / 100 != 2)
            fprintf(f, " %zu (%s): %llu", i, http1_reason((int)i), (unsigned long long)c->status[i]);
    if (c->timeouts)
        fprintf(f, " timed out: %llu", (unsigned long long)c->timeouts);
    if (c->broken)
        fprintf(f, " connection broken: %llu", (unsigned long long)c->broken);
    if (c->unfinished)
        fprintf(f, " never answered: %llu", (unsigned long long)c->unfinished);
    if (c->connects)
        fprintf(f, " could not connect: %llu", (unsigned long long)c->connects);
    fprintf(f, "%s%s%s\n", r->first_error ? " (first: " : "", r->first_error ? r->first_error : "", r->first_error ? ")" : "");
}

static void add_latency_row(struct table *t, const char *name, const struct hdr *h)
{
    char text[32];
    table_cell(t, "%s", name);
    for (size_t i = 0; i < COUNT_OF(percentiles); i++)
        table_cell(t, "%s", table_time((double)hdr_percentile(h, percentiles[i].percent), text, sizeof text));
    table_cell(t, "%s", table_time((double)h->max, text, sizeof text));
    table_cell(t, "%s", table_time(hdr_mean(h), text, sizeof text));
    table_cell(t, "%s", table_time(hdr_stddev(h), text, sizeof text));
}

static void print_latency(const struct bench_report *r, FILE *f)
{
    const char *titles[COUNT_OF(percentiles) + 5] = {"LATENCY"};
    char text[32];
    struct table t;
    size_t n = 1;
    for (size_t i = 0; i < COUNT_OF(percentiles); i++)
        titles[n++] = percentiles[i].title;
    titles[n++] = ">MAX", titles[n++] = ">MEAN", titles[n++] = ">STDDEV";
    table_init(&t, titles);
    add_latency_row(&t, r->open ? "from schedule" : "from send", r->latency);
    if (r->corrected && r->expected_ns)
        add_latency_row(&t, "corrected", r->corrected);
    fputc('\n', f);
    table_print(&t, f);
    table_release(&t);
    if (r->corrected && r->expected_ns)
        fprintf(
            f,
            "corrected: with the requests that a connection would have sent every %s while it waited (coordinated omission)\n",
            table_time((double)r->expected_ns, text, sizeof text));
}

static void print_server(const struct bench_report *r, FILE *f)
{
    char queue[32], compute[32];
    double n = r->after.requests - r->before.requests, runs = r->after.runs - r->before.runs;
    if (!r->before.known || !r->after.known || n <= 0 || runs <= 0)
        return;
    fprintf(f, "\nserver    %.2f rows a run, queue %s, compute %s (means, warm-up included)\n",
            (r->after.rows - r->before.rows) / runs,
            table_time((r->after.queue_ns - r->before.queue_ns) / n, queue, sizeof queue),
            table_time((r->after.compute_ns - r->before.compute_ns) / n, compute, sizeof compute));
}

void bench_report_print(const struct bench_report *r, FILE *f)
{
    print_head(r, f);
    print_totals(r, f);
    if (r->latency && r->latency->n)
        print_latency(r, f);
    print_server(r, f);
}

/* ---- for scripts ---- */

static void json_latency(const char *name, const struct hdr *h, struct buf *out)
{
    buf_printf(out, ",\"%s\":{\"count\":%llu,\"min\":%llu,\"mean\":%.1f,\"stddev\":%.1f", name, (unsigned long long)h->n,
               (unsigned long long)(h->n ? h->min : 0), hdr_mean(h), hdr_stddev(h));
    for (size_t i = 0; i < COUNT_OF(percentiles); i++)
        buf_printf(out, ",\"%s\":%llu", percentiles[i].key, (unsigned long long)hdr_percentile(h, percentiles[i].percent));
    buf_printf(out, ",\"max\":%llu}", (unsigned long long)h->max);
}

static void json_counts(const struct bench_report *r, struct buf *out)
{
    const struct bench_counts *c = &r->counts;
    bool comma = false;
    buf_printf(out,
               ",\"ok\":%llu,\"failed\":%llu,\"broken\":%llu,\"timeouts\":%llu,\"unfinished\":%llu,\"connect_failures\":%llu",
               (unsigned long long)c->ok, (unsigned long long)c->failed, (unsigned long long)c->broken,
               (unsigned long long)c->timeouts, (unsigned long long)c->unfinished, (unsigned long long)c->connects);
    buf_append_z(out, ",\"status\":{");
    for (size_t i = 0; i < BENCH_STATUS_MAX; i++)
        if (c->status[i]) {
            buf_printf(out, "%s\"%zu\":%llu", comma ? "," : "", i, (unsigned long long)c->status[i]);
            comma = true;
        }
    buf_printf(out, "},\"bytes_sent\":%llu,\"bytes_received\":%llu", (unsigned long long)c->bytes_out,
               (unsigned long long)c->bytes_in);
}

static void json_server(const struct bench_report *r, struct buf *out)
{
    if (!r->before.known || !r->after.known)
        return;
    buf_printf(out, ",\"server\":{\"requests\":%.0f,\"rows\":%.0f,\"runs\":%.0f,\"queue_ns\":%.0f,\"compute_ns\":%.0f}",
               r->after.requests - r->before.requests, r->after.rows - r->before.rows, r->after.runs - r->before.runs,
               r->after.queue_ns - r->before.queue_ns, r->after.compute_ns - r->before.compute_ns);
}

void bench_report_json(const struct bench_report *r, struct buf *out)
{
    buf_append_z(out, "{\"target\":");
    buf_append_json_str(out, str_of(r->target));
    buf_printf(out, ",\"mode\":\"%s\"", r->open ? "open" : "closed");
    if (r->open)
        buf_printf(out, ",\"arrivals\":\"%s\",\"rate\":%.9g", r->poisson ? "poisson" : "constant", r->rate);
    buf_printf(out, ",\"connections\":%u,\"threads\":%u,\"rows\":%u,\"distinct\":%zu,\"seconds\":%.6f,\"warm_seconds\":%.6f",
               r->connections, r->threads, r->rows, r->distinct, r->seconds, r->warm_s);
    json_counts(r, out);
    buf_printf(out, ",\"per_second\":%.3f,\"rows_per_second\":%.3f", per_second(r, r->counts.ok),
               per_second(r, r->counts.ok * r->rows));
    if (r->latency)
        json_latency("latency_ns", r->latency, out);
    if (r->corrected && r->expected_ns)
        json_latency("corrected_ns", r->corrected, out);
    if (r->expected_ns)
        buf_printf(out, ",\"expected_interval_ns\":%llu", (unsigned long long)r->expected_ns);
    if (r->first_error) {
        buf_append_z(out, ",\"first_error\":");
        buf_append_json_str(out, str_of(r->first_error));
    }
    json_server(r, out);
    buf_append_z(out, "}\n");
}
