/* bench_openai.c: the load: one event loop on the main thread, a channel a request under way, each answer read as a stream of events.
 *
 * A language model answers some hundred tokens a second, which one thread reads without being noticed. Closed loop: each of
 * --concurrency slots sends its next request when its answer is complete. Open loop: cli/pacer.h says when requests start; each takes
 * a free slot or waits for one, and its time runs from the schedule. Requests are prompts of common words, each different unless
 * --prefix-words says how many they share at their beginning. */
#include "cli/bench_openai.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/kserve.h"
#include "cli/pacer.h"
#include "cli/table.h"
#include "os/clock.h"
#include "os/terminal.h"
#include "wire/json.h"
#include "wire/sse.h"

#define SLOTS_MAX 1024

struct options {
    struct kserve_server server;
    const char *arrival, *prompt;
    uint32_t concurrency, requests, prompt_words, prefix_words, max_tokens, seed, warmup;
    double rate;
    struct bench_limits limits;
    bool openai, chat, json, quiet, stop_at_end;
    struct cli_list headers;
};

struct slot {
    struct http_channel channel;
    struct run *run;
    struct buf request;
    struct sse_reader events;
    bool busy, begun, bad, counted; /* bad: an error came in the stream; counted: not one of the warm-up */
    uint64_t start_ns, last_ns;
    uint32_t n_texts;
    struct bench_sample sample;
};

struct run {
    const struct cli_command *self;
    struct options o;
    const char *model;
    struct http_target target;
    struct loop *loop;
    struct slot *slots; /* [n_slots] */
    uint32_t n_slots, n_busy;
    struct rand rand;
    struct pacer pacer;
    struct loop_timer pace, limit;
    uint64_t started_ns, ended_ns;
    uint32_t n_sent, n_done, n_failed; /* of the counted ones */
    uint32_t n_warm_sent, n_warm_done;
    bool measuring, going_on;
    struct loop_task again;
    uint64_t *waiting; /* open loop: scheduled times that wait for a slot, a ring of o.requests */
    size_t waiting_at, n_waiting;
    struct bench_sample *samples; /* [o.requests] */
    double *gaps;
    size_t n_gaps, cap_gaps;
    char first_error[ERROR_TEXT_BYTES];
};

/* ---- requests ---- */

static const char *const words[] = {
    "time",   "year",    "people", "way",     "day",      "man",     "thing",      "woman",  "life",  "child", "world",
    "school", "state",   "family", "student", "group",    "country", "problem",    "hand",   "part",  "place", "case",
    "week",   "company", "system", "program", "question", "work",    "government", "number", "night", "point", "home",
    "water",  "room",    "mother", "area",    "money",    "story",   "fact",       "month",  "lot"};

static void add_words(struct buf *out, struct rand *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_append_c(out, ' ');
        buf_append_z(out, words[rand_u64(r) % COUNT_OF(words)]);
    }
}

static void make_prompt(struct run *r, struct buf *out)
{
    struct rand shared;
    uint32_t prefix = MIN_OF(r->o.prefix_words, r->o.prompt_words);
    if (r->o.prompt) {
        buf_append_z(out, r->o.prompt);
        return;
    }
    rand_init(&shared, r->o.seed);
    add_words(out, &shared, prefix);
    add_words(out, &r->rand, r->o.prompt_words - prefix);
}

static void make_body(struct run *r, struct buf *body)
{
    struct buf prompt;
    buf_init(&prompt);
    make_prompt(r, &prompt);
    buf_append_z(body, "{\"model\":");
    buf_append_json_str(body, str_of(r->model));
    buf_append_z(body, r->o.chat ? ",\"messages\":[{\"role\":\"user\",\"content\":" : ",\"prompt\":");
    buf_append_json_str(body, buf_str(&prompt));
    buf_printf(body, "%s,\"max_tokens\":%u,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}%s}",
               r->o.chat ? "}]" : "", r->o.max_tokens, r->o.stop_at_end ? "" : ",\"ignore_eos\":true");
    body->failed |= prompt.failed;
    buf_release(&prompt);
}

static int add_headers(const struct run *r, struct http_header *h, size_t *n, struct error *err)
{
    h[(*n)++] = (struct http_header){STR("Content-Type"), STR("application/json")};
    for (size_t i = 0; i < r->o.headers.n; i++) {
        const char *text = r->o.headers.v[i], *colon = strchr(text, ':');
        if (!colon)
            return error_set(err, STATUS_INVALID, "--header: '%s' is not accepted; give 'Name: value'", text);
        h[(*n)++] = (struct http_header){{text, (size_t)(colon - text)}, str_trim(str_of(colon + 1))};
    }
    return 0;
}

static bool make_request(struct run *r, struct slot *s)
{
    struct http_header headers[CLI_LIST_MAX + 1];
    size_t n = 0;
    struct buf body;
    buf_init(&body);
    buf_clear(&s->request);
    make_body(r, &body);
    bool ok = add_headers(r, headers, &n, NULL) == 0 && !body.failed &&
              http_target_request(&r->target, &s->request, STR("POST"),
                                  r->o.chat ? STR("/v1/chat/completions") : STR("/v1/completions"), headers, n, buf_str(&body));
    buf_release(&body);
    return ok && !s->request.failed;
}

/* ---- the life of a request ---- */

static void note_error(struct run *r, const char *text)
{
    if (!r->first_error[0])
        snprintf(r->first_error, sizeof r->first_error, "%s", text);
}

static void add_gap(struct run *r, uint64_t ns)
{
    if (r->n_gaps == r->cap_gaps) {
        size_t cap = r->cap_gaps ? r->cap_gaps * 2 : 4096;
        double *grown = reallocarray(r->gaps, cap, sizeof *grown);
        if (!grown)
            return;
        r->gaps = grown;
        r->cap_gaps = cap;
    }
    r->gaps[r->n_gaps++] = (double)ns;
}

/* Text of a chunk, in either endpoint's form. */
static bool has_text(yyjson_val *root)
{
    yyjson_val *choice = yyjson_arr_get_first(yyjson_obj_get(root, "choices")), *delta = yyjson_obj_get(choice, "delta");
    return yyjson_get_len(yyjson_obj_get(choice, "text")) || yyjson_get_len(yyjson_obj_get(delta, "content")) ||
           yyjson_get_len(yyjson_obj_get(delta, "reasoning_content"));
}

static void on_data(void *ctx, struct str name, struct str data)
{
    struct slot *s = ctx;
    struct json j;
    (void)name;
    if (json_parse(&j, data, NULL, NULL) < 0)
        return; /* [DONE] */
    uint64_t now = os_monotonic_ns();
    yyjson_val *usage = yyjson_obj_get(j.root, "usage"), *error = yyjson_obj_get(j.root, "error");
    if (has_text(j.root)) {
        if (!s->begun)
            s->sample.ttft_ns = now - s->start_ns;
        else if (s->counted)
            add_gap(s->run, now - s->last_ns);
        s->begun = true;
        s->last_ns = now;
        s->n_texts++;
    }
    if (yyjson_is_obj(usage)) {
        s->sample.prompt_tok = (uint32_t)yyjson_get_uint(yyjson_obj_get(usage, "prompt_tokens"));
        s->sample.output_tok = (uint32_t)yyjson_get_uint(yyjson_obj_get(usage, "completion_tokens"));
    }
    if (yyjson_is_obj(error)) {
        const char *text = yyjson_get_str(yyjson_obj_get(error, "message"));
        s->bad = true;
        note_error(s->run, text ? text : "an error without a message");
    }
    json_release(&j);
}

static void on_body(struct http_channel *ch, struct str part)
{
    struct slot *s = ch->user;
    if (ch->parser.status / 100 == 2)
        sse_reader_push(&s->events, part, on_data, s);
    else if (!s->run->first_error[0])
        snprintf(s->run->first_error, sizeof s->run->first_error, "status %d: %.*s", ch->parser.status, STR_ARG(part));
}

static void end_request(struct slot *s, bool ok)
{
    struct run *r = s->run;
    s->busy = false;
    r->n_busy--;
    if (!s->counted) {
        r->n_warm_done++;
    } else if (ok && s->begun && !s->bad) {
        s->sample.e2e_ns = s->last_ns - s->start_ns;
        s->sample.output_tok = s->sample.output_tok ? s->sample.output_tok : s->n_texts;
        r->samples[r->n_done++] = s->sample;
    } else {
        r->n_failed++;
    }
    if (!r->going_on) { /* not from in here: a connection that fails at once would end in a deep recursion */
        r->going_on = true;
        loop_defer(r->loop, &r->again);
    }
}

static void on_done(struct http_channel *ch, int status)
{
    struct slot *s = ch->user;
    end_request(s, status / 100 == 2);
}

static void on_failed(struct http_channel *ch, const struct error *err)
{
    struct slot *s = ch->user;
    note_error(s->run, err->text);
    end_request(s, false);
}

static void on_connected(struct http_channel *ch)
{
    struct slot *s = ch->user;
    http_channel_send(ch, buf_str(&s->request));
}

static void begin_request(struct run *r, struct slot *s, uint64_t start_ns)
{
    s->busy = true;
    s->begun = s->bad = false;
    s->n_texts = 0;
    s->counted = r->measuring;
    s->sample = (struct bench_sample){0};
    sse_reader_release(&s->events);
    s->events = (struct sse_reader){0};
    r->n_busy++;
    if (!make_request(r, s)) {
        note_error(r, "not enough memory for a request");
        end_request(s, false);
        return;
    }
    s->start_ns = start_ns ? start_ns : os_monotonic_ns();
    if (http_channel_is_open(&s->channel))
        http_channel_send(&s->channel, buf_str(&s->request));
    else
        http_channel_connect(&s->channel, &r->target.addr);
}

static struct slot *idle_slot(struct run *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++)
        if (!r->slots[i].busy)
            return &r->slots[i];
    return NULL;
}

/* ---- the order of things ---- */

static void begin_measuring(struct run *r)
{
    r->measuring = true;
    r->started_ns = os_monotonic_ns();
    if (r->o.rate > 0) {
        pacer_init(&r->pacer, r->o.rate, strcmp(r->o.arrival, "poisson") == 0, r->o.seed, r->started_ns);
        loop_timer_start(r->loop, &r->pace, pacer_at_ns(&r->pacer));
    }
}

static void fill_slots(struct run *r)
{
    struct slot *s;
    if (!r->measuring) {
        while (r->n_warm_sent < r->o.warmup && (s = idle_slot(r)) != NULL) {
            r->n_warm_sent++;
            begin_request(r, s, 0);
        }
        return;
    }
    while (r->o.rate > 0 && r->n_waiting && (s = idle_slot(r)) != NULL) {
        uint64_t at = r->waiting[r->waiting_at];
        r->waiting_at = (r->waiting_at + 1) % r->o.requests;
        r->n_waiting--;
        begin_request(r, s, at);
    }
    while (!(r->o.rate > 0) && r->n_sent < r->o.requests && (s = idle_slot(r)) != NULL) {
        r->n_sent++;
        begin_request(r, s, 0);
    }
}

static void live_line(const struct run *r)
{
    if (r->o.quiet || r->o.json || !os_is_terminal(2))
        return;
    fprintf(stderr, "\r%s %u of %u answered, %u under way\033[K", r->measuring ? "measure" : "warm-up",
            r->measuring ? r->n_done + r->n_failed : r->n_warm_done, r->measuring ? r->o.requests : r->o.warmup, r->n_busy);
}

static void go_on(struct run *r)
{
    live_line(r);
    if (!r->measuring && r->n_warm_done == r->o.warmup)
        begin_measuring(r);
    if (r->measuring && r->n_done + r->n_failed == r->o.requests) {
        r->ended_ns = os_monotonic_ns();
        loop_stop(r->loop);
        return;
    }
    fill_slots(r);
}

static void on_again(struct loop_task *t)
{
    struct run *r = CONTAINER_OF(t, struct run, again);
    r->going_on = false;
    go_on(r);
}

static void on_pace(struct loop_timer *t)
{
    struct run *r = CONTAINER_OF(t, struct run, pace);
    uint64_t now = loop_update_now(r->loop);
    while (r->n_sent < r->o.requests && pacer_at_ns(&r->pacer) <= now) {
        r->waiting[(r->waiting_at + r->n_waiting++) % r->o.requests] = pacer_at_ns(&r->pacer);
        r->n_sent++;
        pacer_advance(&r->pacer);
    }
    if (r->n_sent < r->o.requests)
        loop_timer_start(r->loop, t, pacer_at_ns(&r->pacer));
    fill_slots(r);
}

/* Nothing was answered for as long as one call may take. */
static void on_limit(struct loop_timer *t)
{
    struct run *r = CONTAINER_OF(t, struct run, limit);
    uint64_t now = loop_now_ns(r->loop);
    for (uint32_t i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];
        if (!s->busy || now - MAX_OF(s->start_ns, s->last_ns) < r->o.server.timeout_ns)
            continue;
        http_channel_close(&s->channel);
        note_error(r, "a request took longer than --timeout");
        end_request(s, false);
    }
    loop_timer_start(r->loop, t, now + 1000000000);
}

/* ---- the report ---- */

struct result {
    struct bench_summary ttft, tpot, itl, e2e;
    double seconds, input_tok, output_tok, good;
};

static void summarise(struct run *r, struct result *x)
{
    double *v = calloc(r->n_done + 1, sizeof *v);
    size_t n = 0;
    *x = (struct result){.seconds = (double)(r->ended_ns - r->started_ns) * 1e-9};
    for (uint32_t i = 0; i < r->n_done; i++) {
        x->input_tok += r->samples[i].prompt_tok;
        x->output_tok += r->samples[i].output_tok;
        x->good += bench_is_good(&r->samples[i], &r->o.limits);
    }
    if (!v)
        return;
    for (uint32_t i = 0; i < r->n_done; i++)
        v[i] = (double)r->samples[i].ttft_ns * 1e-6;
    bench_summarise(v, r->n_done, &x->ttft);
    for (uint32_t i = 0; i < r->n_done; i++)
        v[i] = (double)r->samples[i].e2e_ns * 1e-6;
    bench_summarise(v, r->n_done, &x->e2e);
    for (uint32_t i = 0; i < r->n_done; i++)
        if (r->samples[i].output_tok > 1)
            v[n++] = bench_tpot_ns(&r->samples[i]) * 1e-6;
    bench_summarise(v, n, &x->tpot);
    for (size_t i = 0; i < r->n_gaps; i++)
        r->gaps[i] *= 1e-6;
    bench_summarise(r->gaps, r->n_gaps, &x->itl);
    free(v);
}

static void put_json(struct buf *out, const char *key, const struct bench_summary *s)
{
    buf_printf(out,
               ",\"mean_%s_ms\":%.4f,\"median_%s_ms\":%.4f,\"std_%s_ms\":%.4f,\"p90_%s_ms\":%.4f,\"p95_%s_ms\":%.4f,\"p99_%s_"
               "ms\":%.4f",
               key, s->mean, key, s->median, key, s->std, key, s->p90, key, s->p95, key, s->p99);
}

/* Keys as vLLM's benchmark writes them. */
static void report_json(const struct run *r, const struct result *x)
{
    struct buf out;
    buf_init(&out);
    buf_append_z(&out, "{\"model_id\":");
    buf_append_json_str(&out, str_of(r->model));
    buf_printf(&out,
               ",\"endpoint\":\"%s\",\"request_rate\":%s%.6g%s,\"max_concurrency\":%u,\"duration\":%.6f,\"completed\":%u,"
               "\"failed\":%u,"
               "\"total_input_tokens\":%.0f,\"total_output_tokens\":%.0f,\"request_throughput\":%.6f,\"request_goodput\":%.6f,"
               "\"output_throughput\":%.4f,\"total_token_throughput\":%.4f",
               r->o.chat ? "/v1/chat/completions" : "/v1/completions", r->o.rate > 0 ? "" : "\"",
               r->o.rate > 0 ? r->o.rate : INFINITY, r->o.rate > 0 ? "" : "\"", r->n_slots, x->seconds, r->n_done, r->n_failed,
               x->input_tok, x->output_tok, r->n_done / x->seconds, x->good / x->seconds, x->output_tok / x->seconds,
               (x->input_tok + x->output_tok) / x->seconds);
    put_json(&out, "ttft", &x->ttft);
    put_json(&out, "tpot", &x->tpot);
    put_json(&out, "itl", &x->itl);
    put_json(&out, "e2el", &x->e2e);
    buf_append_z(&out, "}\n");
    fwrite(out.p ? out.p : "", 1, out.n, stdout);
    buf_release(&out);
}

static void print_row(const char *name, const struct bench_summary *s)
{
    printf("  %-22s %10.2f %10.2f %10.2f %10.2f %10.2f\n", name, s->mean, s->median, s->p90, s->p95, s->p99);
}

static void report_text(const struct run *r, const struct result *x)
{
    struct cli_style style = cli_style(stdout);
    printf("%s%s%s  %s, %s %u connections\n\n", style.bold, r->model, style.off, r->o.chat ? "chat" : "completions",
           r->o.rate > 0 ? "open loop, at most" : "closed loop,", r->n_slots);
    printf("  answered %u, failed %u, in %.2f s: %.2f requests/s", r->n_done, r->n_failed, x->seconds, r->n_done / x->seconds);
    if (r->o.limits.ttft_ns || r->o.limits.tpot_ns || r->o.limits.e2e_ns)
        printf(", %.2f/s within the limits (goodput)", x->good / x->seconds);
    printf("\n  tokens: %.0f read, %.0f generated: %.1f generated/s\n\n", x->input_tok, x->output_tok,
           x->output_tok / x->seconds);
    printf("  %-22s %10s %10s %10s %10s %10s\n", "ms", "mean", "median", "p90", "p95", "p99");
    print_row("time to first token", &x->ttft);
    print_row("inter-token latency", &x->itl);
    print_row("time per output token", &x->tpot);
    print_row("end to end", &x->e2e);
}

/* ---- run ---- */

static int set_up(struct run *r, struct error *err)
{
    struct http_header scratch[CLI_LIST_MAX + 1];
    size_t n = 0;
    int rc = http_target_parse(r->o.server.url, &r->target, err);
    r->target.api_key = kserve_api_key();
    if (rc == 0 && r->target.host[0])
        rc = error_set(err, STATUS_UNIMPLEMENTED, "the load generator speaks no TLS; give http:// or a unix socket");
    if (rc == 0)
        http_target_settle(&r->target, HTTP_CONNECT_NS);
    if (rc == 0)
        rc = add_headers(r, scratch, &n, err);
    if (rc == 0)
        rc = loop_create(&r->loop, err);
    r->n_slots = r->o.rate > 0 ? MIN_OF(r->o.requests, (uint32_t)SLOTS_MAX) : MIN_OF(r->o.concurrency, r->o.requests);
    r->slots = calloc(r->n_slots, sizeof *r->slots);
    r->samples = calloc(r->o.requests, sizeof *r->samples);
    r->waiting = calloc(r->o.requests, sizeof *r->waiting);
    if (rc == 0 && (!r->slots || !r->samples || !r->waiting))
        rc = error_set(err, STATUS_NOMEM, "not enough memory");
    for (uint32_t i = 0; rc == 0 && i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];
        http_channel_init(&s->channel, r->loop);
        s->channel.user = s;
        s->channel.connected = on_connected;
        s->channel.body = on_body;
        s->channel.done = on_done;
        s->channel.failed = on_failed;
        s->run = r;
        buf_init(&s->request);
    }
    return rc;
}

static void tear_down(struct run *r)
{
    for (uint32_t i = 0; r->loop && r->slots && i < r->n_slots; i++) {
        http_channel_release(&r->slots[i].channel);
        buf_release(&r->slots[i].request);
        sse_reader_release(&r->slots[i].events);
    }
    if (r->loop)
        loop_destroy(r->loop);
    free(r->slots);
    free(r->samples);
    free(r->waiting);
    free(r->gaps);
}

static int run(struct run *r)
{
    struct error err = {0};
    struct result x;
    int rc = set_up(r, &err);
    if (rc == 0) {
        rand_init(&r->rand, r->o.seed + 1);
        r->again.run = on_again;
        loop_timer_init(&r->pace, on_pace);
        loop_timer_init(&r->limit, on_limit);
        loop_timer_start(r->loop, &r->limit, loop_now_ns(r->loop) + 1000000000);
        go_on(r);
        loop_run(r->loop);
        if (!r->o.quiet && !r->o.json && os_is_terminal(2))
            fprintf(stderr, "\r\033[K");
        summarise(r, &x);
        r->o.json ? report_json(r, &x) : report_text(r, &x);
        if (r->n_failed && r->first_error[0])
            fprintf(stderr, "inferd: the first failure: %s\n", r->first_error);
    }
    bool good = rc == 0 && r->n_done > 0;
    tear_down(r);
    if (rc < 0)
        return cli_fail("%s", err.text);
    return good && fflush(stdout) == 0 ? CLI_OK : cli_fail("no request was answered well");
}

static const char *const arrivals[] = {"poisson", "constant", NULL};

#define S struct options

/* clang-format off */
static const struct cli_flag flags[] = {
    CLI_FLAG_BOOL(S, openai, "openai", 0, "Measure a language model over OpenAI's API (these options)."),
    CLI_FLAG_COUNT(S, concurrency, "concurrency", 'n', "N", 1, SLOTS_MAX, "Closed loop: requests under way at once (default 1)."),
    CLI_FLAG_NUMBER(S, rate, "rate", 'r', "N", 0.001, 1e6, "Open loop: requests a second, whatever the answers do."),
    CLI_FLAG_WORD(S, arrival, "arrival", 0, arrivals, "Open loop: poisson (default) or constant distances."),
    CLI_FLAG_COUNT(S, requests, "requests", 0, "N", 1, 1e6, "How many to measure (default 64)."),
    CLI_FLAG_COUNT(S, warmup, "warmup", 'w', "N", 0, 1e5, "Requests before measuring (default 1)."),
    CLI_FLAG_COUNT(S, prompt_words, "prompt-words", 0, "N", 1, 1e6, "Length of a random prompt, in common words of about a token each (default 256)."),
    CLI_FLAG_COUNT(S, prefix_words, "prefix-words", 0, "N", 0, 1e6, "So many words at the beginning are the same in all prompts (default 0)."),
    CLI_FLAG_STRING(S, prompt, "prompt", 0, "TEXT", "This prompt instead of random ones."),
    CLI_FLAG_COUNT(S, max_tokens, "max-tokens", 0, "N", 1, 1e6, "Tokens of an answer (default 64)."),
    CLI_FLAG_BOOL(S, stop_at_end, "stop-at-end", 0, "Answers may end before --max-tokens; else ignore_eos is sent."),
    CLI_FLAG_BOOL(S, chat, "chat", 0, "/v1/chat/completions instead of /v1/completions."),
    CLI_FLAG_TIME(S, limits.ttft_ns, "limit-ttft", 0, 0, 0, "Goodput: answers whose first token came within this."),
    CLI_FLAG_TIME(S, limits.tpot_ns, "limit-tpot", 0, 0, 0, "Goodput: whose time per output token is within this."),
    CLI_FLAG_TIME(S, limits.e2e_ns, "limit-e2e", 0, 0, 0, "Goodput: that were complete within this."),
    CLI_FLAG_COUNT(S, seed, "seed", 0, "N", 0, 0, "Of prompts and arrivals (default 1)."),
    CLI_FLAG_LIST(S, headers, "header", 'H', "'NAME: VALUE'", "A further header. May be repeated."),
    CLI_FLAG_BOOL(S, json, "json", 0, "Print one JSON object with the keys of vLLM's benchmark; times in ms."),
    CLI_FLAG_BOOL(S, quiet, "quiet", 'q', "No live line."),
    KSERVE_SERVER_FLAGS(S, server),
};
/* clang-format on */

int bench_openai(const struct cli_command *self, int argc, char **argv)
{
    struct cli_list arguments;
    struct run r = {.self = self};
    r.o = (struct options){.arrival = "poisson", .requests = 64, .prompt_words = 256, .max_tokens = 64, .seed = 1, .warmup = 1};
    kserve_server_init(&r.o.server);
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .options = &r.o, .min_arguments = 1, .max_arguments = 1};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    if (r.o.rate > 0 && r.o.concurrency)
        return cli_usage_error(self, "--rate is an open loop, --concurrency a closed one: give one of them");
    r.o.concurrency = r.o.concurrency ? r.o.concurrency : 1;
    r.model = arguments.v[0];
    return run(&r);
}
