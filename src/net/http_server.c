/* http_server.c: the server: listeners, worker threads, accepting, limits, drain and stop.
 *
 * Each worker has its own SO_REUSEPORT socket per TCP address, so that the kernel spreads connections and no lock is shared; a
 * unix socket can't be shared that way, and all workers watch the same one. SO_REUSEPORT would also let a second inferd bind the
 * same port and take half of the connections; therefore the address is probed without it first.
 *
 * No descriptors left (EMFILE): the longest-idle connections are closed to make room; when there are none, the placeholder
 * descriptor is given up to accept one connection, which is closed so that its client learns at once, and accepting pauses for
 * 100 ms or until a connection closes. Listening sockets are level-triggered, so nothing is lost by pausing. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "net/http_priv.h"
#include "os/file.h"
#include "os/futex.h"
#include "os/random.h"

#define MS              1000000ull
#define ACCEPT_PAUSE_NS (100 * MS)
#define STOP_WAIT_NS    (10000 * MS) /* for handlers to answer or release what they hold */
#define ACCEPT_BATCH    64
#define REAP_BATCH      8
#define UNIX_MODE       0660

/* --- metrics --- */

void http__limit(struct http_worker *w, enum http_limit l)
{
    metric_inc(w->server->m.limit[l]);
}

static struct metric *series(struct metrics *m, enum metric_kind kind, const char *name, const char *help, const char *listener)
{
    static const char *const labels[] = {"listener", NULL};
    struct metric_family *f = metrics_family(m, kind, name, help, labels, NULL, 0);
    return f ? metrics_series(f, (const char *const[]){listener}) : NULL;
}

static void make_metrics(struct http_server *s, struct metrics *m)
{
    static const char *const labels[] = {"listener", "limit", NULL};
    static const char *const names[LIMIT_COUNT] = {[LIMIT_CONNECTIONS] = "connections",
                                                   [LIMIT_DESCRIPTORS] = "descriptors",
                                                   [LIMIT_URL] = "url",
                                                   [LIMIT_HEADERS] = "headers",
                                                   [LIMIT_BODY] = "body",
                                                   [LIMIT_INFLATE] = "inflate",
                                                   [LIMIT_PIPELINE] = "pipeline",
                                                   [LIMIT_REQUESTS] = "requests",
                                                   [LIMIT_MEMORY] = "body_memory",
                                                   [LIMIT_IDLE_TIMEOUT] = "idle_time",
                                                   [LIMIT_HEADER_TIMEOUT] = "header_time",
                                                   [LIMIT_BODY_TIMEOUT] = "body_time",
                                                   [LIMIT_WRITE_TIMEOUT] = "write_time",
                                                   [LIMIT_HTTP2_GLITCHES] = "http2_glitches",
                                                   [LIMIT_HANDSHAKE_TIMEOUT] = "handshake_time",
                                                   [LIMIT_ADDRESS_CONNECTIONS] = "address_connections",
                                                   [LIMIT_ADDRESS_HANDSHAKES] = "address_handshakes",
                                                   [LIMIT_TUNNELS] = "tunnels",
                                                   [LIMIT_PROXY] = "proxy_header"};
    if (!m)
        return;
    struct metric_family *f =
        metrics_family(m, METRIC_COUNTER, "inferd_http_limit_total", "Times an HTTP limit was hit.", labels, NULL, 0);
    for (size_t i = 0; f && i < LIMIT_COUNT; i++)
        s->m.limit[i] = metrics_series(f, (const char *const[]){s->name, names[i]});
    static const char *const glitch_labels[] = {"listener", "class", NULL};
    f = metrics_family(m, METRIC_COUNTER, "inferd_http2_glitches_total",
                       "What HTTP/2 clients did that good ones do not do often, paid from the connection's budget.",
                       glitch_labels, NULL, 0);
    for (size_t i = 0; f && i < HTTP2_GLITCH_COUNT; i++)
        s->m.glitch[i] = metrics_series(f, (const char *const[]){s->name, http2_glitch_name((enum http2_glitch)i)});
    s->m.http2_connections =
        series(m, METRIC_GAUGE, "inferd_http2_connections", "Open connections that speak HTTP/2.", s->name);
    s->m.connections = series(m, METRIC_GAUGE, "inferd_http_connections", "Open HTTP connections.", s->name);
    s->m.tunnels =
        series(m, METRIC_GAUGE, "inferd_http_tunnels", "Connections that have become tunnels (WebSockets).", s->name);
    s->m.accepted = series(m, METRIC_COUNTER, "inferd_http_accepted_total", "HTTP connections accepted.", s->name);
    s->m.closed = series(m, METRIC_COUNTER, "inferd_http_closed_total", "HTTP connections closed.", s->name);
    s->m.lost = series(m, METRIC_COUNTER, "inferd_http_lost_total", "HTTP requests whose client left before the reply was out.",
                       s->name);
    s->m.malformed = series(m, METRIC_COUNTER, "inferd_http_malformed_total", "HTTP requests refused by the parser.", s->name);
    s->m.bytes_in =
        series(m, METRIC_COUNTER, "inferd_http_received_bytes_total", "Bytes received by HTTP connections.", s->name);
    s->m.bytes_out = series(m, METRIC_COUNTER, "inferd_http_sent_bytes_total", "Bytes sent by HTTP connections.", s->name);
}

/* --- accepting --- */

static void accept_set(struct http_worker *w, bool paused)
{
    for (size_t i = 0; i < w->server->n_listen; i++) {
        struct http_listener *l = &w->listeners[i];
        if (!l->open || l->paused == paused)
            continue;
        l->paused = paused;
        loop_fd_set(w->loop, &l->watch, paused ? LOOP_NO_RDHUP : LOOP_READ | LOOP_NO_RDHUP);
    }
}

void http__accept_resume(struct http_worker *w)
{
    if (!heap_contains(&w->accept_timer.node))
        return;
    loop_timer_stop(w->loop, &w->accept_timer);
    accept_set(w, false);
}

static void accept_again(struct loop_timer *t)
{
    struct http_worker *w = CONTAINER_OF(t, struct http_worker, accept_timer);
    accept_set(w, false);
}

/* Close idle connections that have had an answer, the longest idle first. True when there were any. */
static bool reap_idle(struct http_worker *w)
{
    int n = 0;
    LIST_EACH(node, &w->idle)
    {
        struct conn *c = LIST_ENTRY(node, struct conn, idle_node);
        if (!c->served)
            continue;
        http__conn_close(c);
        if (++n == REAP_BATCH)
            break;
    }
    return n > 0;
}

static void out_of_descriptors(struct http_worker *w, int listen_fd)
{
    struct os_addr peer;
    if (!os_sock_wait(listen_fd, false, 0))
        return; /* accept(2) takes its descriptor before it looks whether anybody waits */
    http__limit(w, LIMIT_DESCRIPTORS);
    if (reap_idle(w))
        return; /* level-triggered: we are called again */
    if (w->placeholder_fd >= 0) {
        os_close(w->placeholder_fd);
        int fd = os_sock_accept(listen_fd, &peer);
        os_close(fd);
        w->placeholder_fd = os_fd_placeholder();
    } else {
        w->placeholder_fd = os_fd_placeholder();
    }
    accept_set(w, true);
    loop_timer_start(w->loop, &w->accept_timer, loop_now_ns(w->loop) + ACCEPT_PAUSE_NS);
}

static void accepted(struct http_worker *w, int fd, const struct os_addr *peer)
{
    struct http_server *s = w->server;
    struct conn_origin origin;
    if (!http__peer_admit(w, peer, &origin)) {
        os_close(fd);
        return;
    }
    uint64_t before = atomic_fetch_add_explicit(&s->connections, 1, memory_order_relaxed);
    metric_inc(s->m.accepted);
    bool refused = before >= w->limits.max_connections;
    if (refused) {
        atomic_fetch_sub_explicit(&s->connections, 1, memory_order_relaxed);
        http__limit(w, LIMIT_CONNECTIONS);
        if (w->n_refused >= (w->limits.max_refused ? w->limits.max_refused : HTTP_REFUSED_MAX)) {
            http__peer_leave(w, &origin);
            os_close(fd);
            return;
        }
    }
    http__conn_open(w, fd, peer, &origin, refused);
}

static void accept_some(struct http_listener *l, int most)
{
    struct os_addr peer;
    for (int i = 0; i < most; i++) {
        int fd = os_sock_accept(l->watch.fd, &peer);
        if (fd >= 0) {
            accepted(l->worker, fd, &peer);
        } else if (fd == STATUS_EXHAUSTED) {
            out_of_descriptors(l->worker, l->watch.fd);
            return;
        } else if (fd == STATUS_AGAIN) {
            return;
        }
    }
}

static void listener_ready(struct loop_fd *watch, uint32_t events)
{
    struct http_listener *l = CONTAINER_OF(watch, struct http_listener, watch);
    (void)events;
    loop_update_now(l->worker->loop);
    accept_some(l, ACCEPT_BATCH);
}

static void close_listeners(struct http_worker *w)
{
    loop_timer_stop(w->loop, &w->accept_timer);
    for (size_t i = 0; i < w->server->n_listen; i++) {
        struct http_listener *l = &w->listeners[i];
        if (!l->open)
            continue;
        l->open = false;
        loop_fd_remove(w->loop, &l->watch);
        /* every worker watches a unix socket's one descriptor; the server closes it */
        if (!os_addr_is_unix(&w->server->addrs[i]))
            os_close(l->watch.fd);
    }
}

/* --- drain and stop --- */

static void run_drain(struct loop_task *t)
{
    struct http_worker *w = CONTAINER_OF(t, struct http_worker, drain_task);
    if (w->draining)
        return;
    w->draining = true;
    LIST_EACH(node, &w->conns)
    {
        http__conn_drain(LIST_ENTRY(node, struct conn, node));
    }
    /* closing a listener resets what waits in its queue: take that in first */
    for (size_t i = 0; i < w->server->n_listen; i++)
        if (w->listeners[i].open)
            accept_some(&w->listeners[i], 1 << 16);
    close_listeners(w);
}

void http__worker_check_stop(struct http_worker *w)
{
    if (w->stopping && w->n_out == 0)
        loop_stop(w->loop);
}

static void abandon(struct loop_timer *t)
{
    struct http_worker *w = CONTAINER_OF(t, struct http_worker, stop_timer);
    w->abandoned = true;
    LOG(w->server->log, LOG_ERROR, "http_stop_abandoned", LOG_S("listener", w->server->name), LOG_U("requests", w->n_out));
    loop_stop(w->loop);
}

static void run_stop(struct loop_task *t)
{
    struct http_worker *w = CONTAINER_OF(t, struct http_worker, stop_task);
    struct list *n;
    w->draining = w->stopping = true;
    close_listeners(w);
    while ((n = list_first(&w->conns)))
        http__conn_close(LIST_ENTRY(n, struct conn, node));
    loop_timer_start(w->loop, &w->stop_timer, loop_now_ns(w->loop) + STOP_WAIT_NS);
    http__worker_check_stop(w);
}

void http_server_drain(struct http_server *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++)
        if (!atomic_exchange(&s->workers[i].drain_posted, true))
            loop_post(s->workers[i].loop, &s->workers[i].drain_task);
}

/* --- waiting for handlers --- */

struct sync {
    struct loop_task task;
    _Atomic uint32_t done;
};

static void run_sync(struct loop_task *t)
{
    struct sync *y = CONTAINER_OF(t, struct sync, task);
    atomic_store_explicit(&y->done, 1, memory_order_release);
    os_futex_wake_all(&y->done);
}

void http_server_sync(struct http_server *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct sync y = {.task = {.run = run_sync}};
        loop_post(s->workers[i].loop, &y.task);
        /* the wake is the last thing that touches `y`, and touches only its address */
        while (!atomic_load_explicit(&y.done, memory_order_acquire))
            os_futex_wait(&y.done, 0);
    }
}

/* --- limits --- */

struct limits_message {
    struct loop_task task;
    struct http_worker *w;
    struct http_limits limits;
};

static void take_limits(struct http_worker *w, const struct http_limits *l)
{
    w->limits = *l;
    w->wire_limits = (struct http1_limits){
        .max_head_bytes = l->max_header_bytes, .max_headers = l->max_headers, .max_url_bytes = l->max_url_bytes};
}

static void run_limits(struct loop_task *t)
{
    struct limits_message *m = CONTAINER_OF(t, struct limits_message, task);
    take_limits(m->w, &m->limits);
    free(m);
}

void http_server_set_limits(struct http_server *s, const struct http_limits *l)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        struct limits_message *m = malloc(sizeof *m);
        if (WARN_ON(!m)) /* the old limits stay */
            return;
        *m = (struct limits_message){{.run = run_limits}, &s->workers[i], *l};
        loop_post(s->workers[i].loop, &m->task);
    }
}

/* --- start --- */

static void worker_main(void *arg)
{
    loop_run(((struct http_worker *)arg)->loop);
}

static void worker_release(struct http_worker *w)
{
    loop_destroy(w->loop);
    http__pool_release(w);
    buf_release(&w->scratch);
    free(w->read_buf);
    free(w->write_buf);
    free(w->listeners);
    os_close(w->placeholder_fd);
}

/* Listener `i` of worker `w`: the first worker's binds (and finds the port when it is 0), the others share. */
static int open_listener(struct http_server *s, uint32_t w_index, size_t i, struct error *err)
{
    struct http_worker *w = &s->workers[w_index];
    struct http_listener *l = &w->listeners[i];
    bool is_unix = os_addr_is_unix(&s->addrs[i]);
    *l = (struct http_listener){.watch = {.fd = -1, .ready = listener_ready}, .worker = w};
    int rc = 0;
    if (w_index > 0 && is_unix)
        l->watch.fd = s->workers[0].listeners[i].watch.fd;
    else
        rc = os_sock_listen(&s->addrs[i], s->n_workers > 1 && !is_unix, UNIX_MODE, &l->watch.fd, err);
    if (rc == 0 && w_index == 0)
        rc = os_sock_local(l->watch.fd, &s->addrs[i], err);
    if (rc == 0)
        rc = loop_fd_add(w->loop, &l->watch, LOOP_READ | LOOP_NO_RDHUP, err);
    l->open = rc == 0;
    if (rc && !is_unix)
        os_close(l->watch.fd);
    return rc;
}

static int worker_init(struct http_server *s, uint32_t index, const struct http_limits *limits, struct error *err)
{
    struct http_worker *w = &s->workers[index];
    w->server = s;
    list_init(&w->conns);
    list_init(&w->idle);
    take_limits(w, limits);
    rand_init(&w->rand, os_random_u64());
    buf_init(&w->scratch);
    loop_timer_init(&w->accept_timer, accept_again);
    loop_timer_init(&w->stop_timer, abandon);
    loop_timer_init(&w->trim_timer, http__pool_trim);
    w->drain_task.run = run_drain;
    w->stop_task.run = run_stop;
    w->placeholder_fd = os_fd_placeholder();
    w->read_buf = malloc(HTTP_READ_BYTES);
    w->listeners = calloc(s->n_listen, sizeof *w->listeners);
    w->write_buf = malloc(HTTP2_WRITE_BYTES);
    if (!w->read_buf || !w->write_buf || !w->listeners)
        return error_set(err, STATUS_NOMEM, "out of memory for an I/O thread");
    int rc = loop_create(&w->loop, err);
    for (size_t i = 0; rc == 0 && i < s->n_listen; i++)
        rc = open_listener(s, index, i, err);
    return rc;
}

static int parse_addresses(struct http_server *s, const struct http_server_options *o, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->n_listen; i++) {
        rc = os_addr_parse(o->listen[i], &s->addrs[i], err);
        if (rc == 0 && s->n_workers > 1)
            rc = os_sock_probe_free(&s->addrs[i], err);
    }
    return rc;
}

static void destroy(struct http_server *s)
{
    for (uint32_t i = 0; s->workers && i < s->n_workers; i++)
        if (s->workers[i].listeners)
            close_listeners(&s->workers[i]);
    for (size_t i = 0; s->workers && s->workers[0].listeners && i < s->n_listen; i++) {
        struct http_listener *l = &s->workers[0].listeners[i];
        if (l->worker && l->watch.fd >= 0 && os_addr_is_unix(&s->addrs[i])) {
            os_close(l->watch.fd);
            os_sock_unlink(&s->addrs[i]);
        }
    }
    for (uint32_t i = 0; s->workers && i < s->n_workers; i++)
        if (s->workers[i].server)
            worker_release(&s->workers[i]);
    free(s->workers);
    free(s->addrs);
    free(s->address_texts);
    free(s->proxies);
    peers_destroy(s->peers);
    free(s->name);
    free(s->server_header);
    free(s);
}

static int init(struct http_server *s, const struct http_server_options *o, struct error *err)
{
    s->handler = o->handler;
    s->tls = o->tls;
    s->proxy_protocol = o->proxy_protocol;
    s->peers = peers_create(os_random_u64());
    s->proxies = calloc(MAX_OF(o->n_proxies, (size_t)1), sizeof *s->proxies);
    if (!s->peers || !s->proxies)
        return error_set(err, STATUS_NOMEM, "out of memory for the HTTP server");
    if (o->n_proxies)
        memcpy(s->proxies, o->proxies, o->n_proxies * sizeof *s->proxies);
    s->n_proxies = o->n_proxies;
    s->log = o->log;
    s->n_listen = o->n_listen;
    s->n_workers = MAX_OF(o->threads, 1u);
    s->name = strdup(o->name ? o->name : "http");
    s->server_header = o->server_header ? strdup(o->server_header) : NULL;
    s->addrs = calloc(MAX_OF(o->n_listen, (size_t)1), sizeof *s->addrs);
    s->address_texts = calloc(MAX_OF(o->n_listen, (size_t)1), sizeof *s->address_texts);
    s->workers = calloc(s->n_workers, sizeof *s->workers);
    if (!s->name || !s->addrs || !s->address_texts || !s->workers || (o->server_header && !s->server_header))
        return error_set(err, STATUS_NOMEM, "out of memory for the HTTP server");
    make_metrics(s, o->metrics);
    int rc = parse_addresses(s, o, err);
    for (uint32_t i = 0; rc == 0 && i < s->n_workers; i++)
        rc = worker_init(s, i, &o->limits, err);
    for (size_t i = 0; rc == 0 && i < s->n_listen; i++)
        os_addr_text(&s->addrs[i], s->address_texts[i]);
    return rc;
}

static void stop_workers(struct http_server *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        loop_post(s->workers[i].loop, &s->workers[i].stop_task);
    for (uint32_t i = 0; i < n; i++)
        os_thread_join(&s->workers[i].thread);
}

int http_server_start(const struct http_server_options *o, struct http_server **out, struct error *err)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory for the HTTP server");
    int rc = init(s, o, err);
    for (uint32_t i = 0; rc == 0 && i < s->n_workers; i++) {
        rc = os_thread_start(&s->workers[i].thread, s->name, worker_main, &s->workers[i], err);
        if (rc)
            stop_workers(s, i);
    }
    if (rc) {
        destroy(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *http_server_address(const struct http_server *s, size_t i)
{
    return i < s->n_listen ? s->address_texts[i] : "";
}

uint64_t http_server_connections(const struct http_server *s)
{
    return atomic_load_explicit(&s->connections, memory_order_relaxed);
}

void http_server_stop(struct http_server *s)
{
    if (!s)
        return;
    stop_workers(s, s->n_workers);
    bool abandoned = false;
    for (uint32_t i = 0; i < s->n_workers; i++)
        abandoned |= s->workers[i].abandoned;
    /* somebody still holds requests and may post to their loop: leaking the server is safer than freeing it */
    if (!abandoned)
        destroy(s);
}
