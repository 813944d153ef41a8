/* net_server.h: the server under test, with handlers that a path chooses, for the tests of the HTTP server. */
#ifndef TESTS_NET_SERVER_H
#define TESTS_NET_SERVER_H

#include "net_util.h"

/* --- a server with scripted handlers --- */

static struct http_server *server;
static struct metrics *metrics;
static char address[128];
static _Atomic int gone, completed, last_status, headers_seen;
static _Atomic bool last_peer_local;          /* of the last completed request: its peer was on 127.0.0.1 */
static _Atomic(struct http_request *) parked; /* /park: answered by the test */
static struct loop_task answer_task;

static inline void reply_text(struct http_request *r, int status, struct str s)
{
    struct slice body = slice_borrow(s.p, s.n);
    http_reply(r, status, "text/plain", NULL, 0, &body, 1);
}

static inline void on_gone(struct http_request *r)
{
    gone++;
    if (str_eqz(r->path, "/park-answer-when-gone") || str_eqz(r->path, "/hold"))
        reply_text(r, 200, STR("late"));
    else if (str_eqz(r->path, "/stream") || str_eqz(r->path, "/pieces"))
        http_stream_end(r);
}

static inline void answer_parked(struct loop_task *t)
{
    (void)t;
    struct http_request *r = atomic_exchange(&parked, NULL);
    reply_text(r, 200, STR("parked"));
}

/* /stream?N: N pieces of 1000 bytes, as fast as the client takes them */
static inline void stream_more(struct http_request *r)
{
    size_t *left = r->user;
    static const char piece[1000] = {[0 ... 999] = 's'};
    while (*left) {
        --*left;
        if (!http_stream_write(r, slice_borrow(piece, sizeof piece)))
            return;
    }
    http_stream_end(r);
}

static inline void stream(struct http_request *r)
{
    size_t *left = arena_alloc(r->arena, sizeof *left);
    uint64_t n;
    assert_true(str_to_u64(r->query, &n));
    *left = n;
    r->user = left;
    http_stream_begin(r, 200, "text/plain", NULL, 0, stream_more);
    stream_more(r);
}

/* /pieces: begins its reply at once, echoes what on_body brings in brackets, and ends behind the last piece */
static inline void echo_piece(struct http_request *r, struct slice piece, bool last)
{
    struct slab *copy = slab_create(piece.n + 2);
    copy->data[0] = '[';
    if (piece.n)
        memcpy(copy->data + 1, piece.p, piece.n);
    copy->data[piece.n + 1] = ']';
    http_stream_write(r, (struct slice){copy->data, piece.n + 2, copy});
    http_body_consumed(r, piece.n);
    if (last)
        http_stream_end_trailers(r, &(struct http_header){STR("grpc-status"), STR("0")}, 1);
}

/* /hold: takes pieces and gives nothing back until the test posts release_task; answers with the number of bytes behind the last piece */
static _Atomic size_t held_bytes;
static _Atomic(struct http_request *) holding;
static struct loop_task release_task;

static inline void hold_piece(struct http_request *r, struct slice piece, bool last)
{
    held_bytes += piece.n;
    holding = r;
    if (!last)
        return;
    char *text = arena_printf(r->arena, "%zu", held_bytes);
    reply_text(r, 200, str_of(text));
    holding = NULL;
}

/* /charge: charges several amounts and answers with what came of each */
static inline void charge_piece(struct http_request *r, struct slice piece, bool last)
{
    static const uint64_t amounts[] = {600, 1001, 400, 1000};
    struct buf b;
    if (!last || piece.n)
        return;
    buf_init(&b);
    for (size_t i = 0; i < COUNT_OF(amounts); i++) {
        struct error err;
        int rc = http_body_charge(r, amounts[i], &err);
        buf_printf(&b, "%s%llu: %s", i ? ", " : "", (unsigned long long)amounts[i], rc ? status_name(rc) : "0");
    }
    char *copy = arena_strdup(r->arena, buf_str(&b));
    reply_text(r, 200, (struct str){copy, b.n});
    buf_release(&b);
}

static inline void release_held(struct loop_task *t)
{
    (void)t;
    http_body_consumed(holding, held_bytes);
}

static inline int on_headers(void *ctx, struct http_request *r, struct error *err)
{
    (void)ctx;
    headers_seen++;
    r->on_gone = on_gone;
    if (str_eqz(r->path, "/small"))
        r->body_limit_bytes = 10;
    if (str_starts(r->path, STR("/pieces"))) {
        r->on_body = echo_piece;
        r->body_unhurried = true;
    }
    if (str_eqz(r->path, "/charge"))
        r->on_body = charge_piece;
    if (str_eqz(r->path, "/hold")) {
        r->on_body = hold_piece;
        held_bytes = 0;
    }
    if (str_eqz(r->path, "/forbidden"))
        return error_set(err, STATUS_FORBIDDEN, "not for you");
    return 0;
}

static inline void describe(struct http_request *r)
{
    struct buf b;
    buf_init(&b);
    buf_printf(&b, "%.*s %.*s?%.*s id=%.*s tp=%.*s n=%zu align=%zu peer=%d body=", STR_ARG(r->method_text), STR_ARG(r->path),
               STR_ARG(r->query), STR_ARG(r->request_id), STR_ARG(r->traceparent), r->n_headers,
               (size_t)(uintptr_t)r->body.p % 64, r->peer.n > 9 && memcmp(r->peer.p, "127.0.0.1", 9) == 0);
    buf_append(&b, r->body.p, r->body.n);
    char *copy = arena_alloc(r->arena, b.n);
    memcpy(copy, b.p, b.n);
    reply_text(r, 200, (struct str){copy, b.n});
    buf_release(&b);
}

static inline void on_request(void *ctx, struct http_request *r)
{
    (void)ctx;
    if (str_eqz(r->path, "/hi"))
        reply_text(r, 200, STR("hi"));
    else if (str_eqz(r->path, "/hold") || str_eqz(r->path, "/charge"))
        return; /* answered with the last piece */
    else if (str_starts(r->path, STR("/park")))
        parked = r;
    else if (str_eqz(r->path, "/stream"))
        stream(r);
    else if (str_eqz(r->path, "/pieces"))
        http_stream_begin(r, 200, "text/plain", NULL, 0, NULL);
    else if (str_eqz(r->path, "/busy"))
        http_reply_error(r, STATUS_EXHAUSTED, "queue full", 7);
    else if (str_eqz(r->path, "/nothing"))
        http_reply(r, 204, NULL, NULL, 0, NULL, 0);
    else if (str_eqz(r->path, "/abort")) {
        http_stream_begin(r, 200, "text/plain", NULL, 0, NULL);
        http_stream_write(r, slice_borrow("part", 4));
        http_stream_abort(r);
    } else if (str_eqz(r->path, "/echo")) {
        struct slice body = r->body.owner ? slice_of(r->body.owner, 0, r->body.n) : slice_borrow("", 0);
        http_reply(r, 200, "application/octet-stream", NULL, 0, &body, 1);
    } else
        describe(r);
}

static inline const char *on_error(void *ctx, struct http_request *r, int status, const char *text, struct buf *body)
{
    (void)ctx;
    buf_printf(body, "{\"error\":\"%s\",\"known\":%d,\"status\":%d}", text, r != NULL, status);
    return "application/json";
}

static inline void on_complete(void *ctx, struct http_request *r, uint64_t now_ns)
{
    (void)ctx;
    (void)now_ns;
    last_status = r->reply_status;
    last_peer_local = str_starts(r->peer, STR("127.0.0.1:"));
    completed++;
}

static inline void start_on(const struct http_limits *limits, uint32_t threads, const char *const *listen_on, size_t n)
{
    struct error err;
    struct http_server_options o = {.listen = listen_on,
                                    .n_listen = n,
                                    .threads = threads,
                                    .name = "test",
                                    .server_header = NULL,
                                    .limits = *limits,
                                    .handler = {on_headers, on_request, on_error, on_complete, NULL}};
    gone = completed = headers_seen = 0;
    parked = NULL;
    answer_task.run = answer_parked;
    release_task.run = release_held;
    metrics = metrics_create();
    o.metrics = metrics;
    if (http_server_start(&o, &server, &err))
        fail_msg("%s", err.text);
    snprintf(address, sizeof address, "%s", http_server_address(server, 0));
}

static inline void start(const struct http_limits *limits)
{
    start_on(limits, 1, (const char *const[]){"127.0.0.1:0"}, 1);
}

static inline struct http_limits defaults(void)
{
    struct http_limits l;
    default_limits(&l);
    return l;
}

static inline int stop(void **state)
{
    (void)state;
    if (server)
        http_server_stop(server);
    metrics_destroy(metrics);
    server = NULL;
    metrics = NULL;
    return 0;
}

static inline int start_default(void **state)
{
    (void)state;
    struct http_limits l = defaults();
    start(&l);
    return 0;
}

/* --- helpers --- */

/* Replace the value of each Date header by stars, and take x-request-id lines out (test_request_fields looks at one). */
static inline void mask(struct buf *b)
{
    char *at = (char *)(uintptr_t)buf_z(b), *line;
    while ((line = strstr(at, "x-request-id: "))) {
        char *end = strstr(line, "\r\n");
        assert_non_null(end);
        memmove(line, end + 2, strlen(end + 2) + 1);
        b->n -= (size_t)(end + 2 - line);
    }
    while ((at = strstr(at, "Date: ")))
        for (at += 6; *at && *at != '\r'; at++)
            *at = '*';
}

#define DATE  "Date: *****************************\r\n"
#define OK(n) "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " n "\r\n" DATE

/* Send `in`, close our writing half when `half`, and compare everything until the server closes. */
static inline void talk_bytes(const char *in, size_t n, bool half, const char *want)
{
    struct buf b;
    buf_init(&b);
    int fd = tcp_connect(address);
    send_all(fd, in, n);
    if (half)
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
    if (!recv_until(fd, &b, NULL))
        fail_msg("not closed after: %s", buf_z(&b));
    mask(&b);
    assert_string_equal(buf_z(&b), want);
    close(fd);
    buf_release(&b);
}

static inline void talk(const char *in, const char *want)
{
    talk_bytes(in, strlen(in), false, want);
}

#define HOST  "Host: h\r\n"
#define CLOSE "Connection: close\r\n"

#define ERR(line, text, known, status, length)                                                                                 \
    "HTTP/1.1 " line "\r\nContent-Type: application/json\r\nContent-Length: " length "\r\n" DATE CLOSE                         \
    "\r\n{\"error\":\"" text "\",\"known\":" known ",\"status\":" status "}"

#define SERVED(f) cmocka_unit_test_setup_teardown(f, start_default, stop)
#define OWN(f)    cmocka_unit_test_teardown(f, stop)

#endif
