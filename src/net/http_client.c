/* http_client.c: the blocking client of http_client.h, and what both clients share: targets and request bytes.
 *
 * The socket is non-blocking all the same, so that one deadline bounds connecting, sending and receiving together. A request is
 * repeated once, on a new connection, when a kept-alive one turns out to be closed before any byte of the answer: the server has
 * not begun to answer it. (A server may have run it; the callers' requests are safe to repeat: inference and listings.) */
#include "net/http_client.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "net/tls.h"
#include "os/clock.h"
#include "os/file.h"

#define SECOND     1000000000ull
#define READ_BYTES 65536

static const struct http1_limits ANSWER_LIMITS = {.max_head_bytes = 64 << 10, .max_headers = 200, .max_url_bytes = 8192};

struct http_client {
    struct http_target target;
    struct http_client_options options;
    int fd;
    struct tls_client *trust; /* NULL: plain */
    struct tls_conn *tls;     /* of `fd` */
    struct buf request, body;
    struct arena arena;
    struct http1_parser parser;
    uint64_t deadline_ns;
    char *in; /* [READ_BYTES] */
};

/* --- targets and requests --- */

static bool copy_text(char *to, size_t room, struct str s)
{
    if (s.n >= room)
        return false;
    if (s.n)
        memcpy(to, s.p, s.n);
    to[s.n] = 0;
    return true;
}

static int resolve(const char *address, struct http_target *out, struct error *err)
{
    int rc = os_addr_resolve(address, out->addrs, HTTP_TARGET_ADDRS_MAX, &out->n_addrs, err);
    if (rc == 0)
        out->addr = out->addrs[0];
    return rc;
}

static int parse_http(struct str rest, const char *default_port, struct http_target *out, struct error *err)
{
    char address[300];
    const char *slash = rest.n ? memchr(rest.p, '/', rest.n) : NULL;
    struct str host = {rest.p, slash ? (size_t)(slash - rest.p) : rest.n}, prefix = {rest.p + host.n, rest.n - host.n};
    while (prefix.n && prefix.p[prefix.n - 1] == '/')
        prefix.n--;
    if (!url_is_authority(host) || host.n == 0 || !copy_text(out->authority, sizeof out->authority, host) ||
        !copy_text(out->prefix, sizeof out->prefix, prefix) || !copy_text(address, sizeof address - 5, host))
        return error_set(err, STATUS_INVALID, "the server's address is not HOST:PORT, http://HOST:PORT or unix:/path");
    const char *colon = strrchr(address, ':');
    bool has_port = colon && !strchr(colon, ']');
    if (!has_port && !default_port)
        return error_set(err, STATUS_INVALID, "the server's address '%s' has no port", address);
    if (!has_port)
        memcpy(address + host.n, default_port, strlen(default_port) + 1);
    return resolve(address, out, err);
}

/* The authority without port and brackets. */
static void copy_host(struct http_target *t)
{
    struct str a = str_of(t->authority);
    const char *end = a.p[0] == '[' ? memchr(a.p, ']', a.n) : memchr(a.p, ':', a.n);
    struct str host = {a.p + (a.p[0] == '['), end ? (size_t)(end - a.p) - (a.p[0] == '[') : a.n};
    memcpy(t->host, host.p, host.n);
    t->host[host.n] = 0;
}

int http_target_parse(const char *url, struct http_target *out, struct error *err)
{
    *out = (struct http_target){0};
    struct str s = str_of(url);
    if (str_starts(s, STR("https://"))) {
        int rc = parse_http((struct str){s.p + 8, s.n - 8}, ":443", out, err);
        if (rc == 0)
            copy_host(out);
        return rc;
    }
    if (str_starts(s, STR("unix:"))) {
        memcpy(out->authority, "localhost", 10);
        return resolve(url, out, err);
    }
    bool scheme = str_starts(s, STR("http://"));
    return parse_http(scheme ? (struct str){s.p + 7, s.n - 7} : s, scheme ? ":80" : NULL, out, err);
}

static bool takes_connection(const struct os_addr *addr, uint64_t timeout_ns)
{
    struct error ignored;
    int fd = -1, rc = os_sock_connect(addr, &fd, &ignored);
    if (rc == STATUS_AGAIN)
        rc = os_sock_wait(fd, true, timeout_ns) ? os_sock_connected(fd, &ignored) : STATUS_TIMEOUT;
    os_close(fd);
    return rc == 0;
}

void http_target_settle(struct http_target *t, uint64_t timeout_ns)
{
    for (size_t i = 0; i < t->n_addrs && t->n_addrs > 1; i++)
        if (takes_connection(&t->addrs[i], timeout_ns)) {
            t->addr = t->addrs[i];
            return;
        }
}

static bool is_visible(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= 0x20 || (unsigned char)s.p[i] >= 0x7f)
            return false;
    return s.n > 0;
}

bool http_target_request(const struct http_target *t, struct buf *out, struct str method, struct str path,
                         const struct http_header *headers, size_t n_headers, struct str body)
{
    size_t before = out->n;
    bool ok = http1_is_token(method) && is_visible(path);
    bool sends = body.n || str_eqz(method, "POST") || str_eqz(method, "PUT") || str_eqz(method, "PATCH");
    buf_append_str(out, method);
    buf_append_c(out, ' ');
    buf_append_z(out, t->prefix);
    buf_append_str(out, path);
    buf_append_z(out, " HTTP/1.1\r\n");
    ok = http1_write_header(out, STR("Host"), str_of(t->authority)) && ok;
    if (sends)
        http1_write_header_u64(out, "Content-Length", body.n);
    bool own = false;
    for (size_t i = 0; i < n_headers; i++) {
        own |= str_ieqz(headers[i].name, "authorization") || str_ieqz(headers[i].name, "x-api-key");
        ok = http1_write_header(out, headers[i].name, headers[i].value) && ok;
    }
    if (t->api_key && !own)
        ok = http1_write_header(out, STR("x-api-key"), str_of(t->api_key)) && ok;
    buf_append_z(out, "\r\n");
    buf_append_str(out, body);
    if (!ok || out->failed)
        out->n = before;
    return ok && !out->failed;
}

/* --- the connection --- */

int http_client_create(const char *url, const struct http_client_options *options, struct http_client **out, struct error *err)
{
    struct http_client *c = calloc(1, sizeof *c);
    char *in = malloc(READ_BYTES);
    if (!c || !in) {
        free(c);
        free(in);
        return error_set(err, STATUS_NOMEM, "out of memory for an HTTP client");
    }
    c->in = in;
    c->fd = -1;
    if (options)
        c->options = *options;
    if (!c->options.connect_timeout_ns)
        c->options.connect_timeout_ns = HTTP_CONNECT_NS;
    if (!c->options.timeout_ns)
        c->options.timeout_ns = 60 * SECOND;
    if (!c->options.max_body_bytes)
        c->options.max_body_bytes = 256 << 20;
    buf_init(&c->request);
    buf_init(&c->body);
    arena_init(&c->arena, 4096, 0);
    int rc = http_target_parse(url, &c->target, err);
    c->target.api_key = c->options.api_key;
    if (rc == 0 && c->target.host[0])
        rc = tls_client_create(c->options.ca_file, &c->trust, err);
    if (rc) {
        http_client_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

static void disconnect(struct http_client *c)
{
    tls_conn_destroy(c->tls);
    c->tls = NULL;
    os_close(c->fd);
    c->fd = -1;
}

void http_client_destroy(struct http_client *c)
{
    if (!c)
        return;
    disconnect(c);
    tls_client_destroy(c->trust);
    buf_release(&c->request);
    buf_release(&c->body);
    arena_release(&c->arena);
    free(c->in);
    free(c);
}

/* Wait until ready or the deadline. */
static int wait_ready(struct http_client *c, bool write, struct error *err)
{
    uint64_t now = os_monotonic_ns();
    if (now < c->deadline_ns && os_sock_wait(c->fd, write, c->deadline_ns - now))
        return 0;
    return error_set(err, STATUS_TIMEOUT, "%s did not answer in time", c->target.authority);
}

static int shake_hands(struct http_client *c, struct error *err)
{
    c->tls = tls_client_connect(c->trust, c->fd, c->target.host);
    if (!c->tls)
        return error_set(err, STATUS_NOMEM, "out of memory for TLS");
    int rc;
    while ((rc = tls_conn_handshake(c->tls, err)) == STATUS_AGAIN)
        if ((rc = wait_ready(c, tls_conn_wants_write(c->tls), err)))
            return rc;
    return rc ? error_prefix(err, "%s", c->target.authority) : 0;
}

static int connect_to(struct http_client *c, const struct os_addr *addr, struct error *err)
{
    int rc = os_sock_connect(addr, &c->fd, err);
    if (rc != STATUS_AGAIN)
        return rc;
    uint64_t whole = c->deadline_ns;
    c->deadline_ns = MIN_OF(whole, os_monotonic_ns() + c->options.connect_timeout_ns);
    rc = wait_ready(c, true, err);
    c->deadline_ns = whole;
    if (rc == 0)
        rc = os_sock_connected(c->fd, err);
    return rc ? error_prefix(err, "%s", c->target.authority) : 0;
}

/* To the address that answered last, else to the others in the resolver's order. */
static int open_connection(struct http_client *c, struct error *err)
{
    struct http_target *t = &c->target;
    int rc = connect_to(c, &t->addr, err);
    for (size_t i = 0; i < t->n_addrs && rc && t->n_addrs > 1; i++) {
        disconnect(c);
        rc = connect_to(c, &t->addrs[i], err);
        if (rc == 0)
            t->addr = t->addrs[i];
    }
    if (rc == 0 && c->trust)
        rc = shake_hands(c, err);
    if (rc)
        disconnect(c);
    return rc;
}

static int send_request(struct http_client *c, struct error *err)
{
    size_t at = 0;
    while (at < c->request.n) {
        struct os_iov v = {c->request.p + at, c->request.n - at};
        ssize_t n = c->tls ? tls_conn_write(c->tls, &v, 1) : os_sock_write(c->fd, &v, 1);
        if (n == STATUS_AGAIN) {
            int rc = wait_ready(c, true, err);
            if (rc)
                return rc;
        } else if (n < 0) {
            /* a server that refuses a body answers and closes: its answer may be there */
            return 0;
        } else {
            at += (size_t)n;
        }
    }
    return 0;
}

static int take_body(struct http_client *c, const struct http_client_request *r, struct str part, struct error *err)
{
    if (r->on_body) {
        int rc = r->on_body(r->ctx, part);
        return rc ? error_set(err, rc, "the caller stopped reading the answer") : 0;
    }
    if (c->body.n + part.n > c->options.max_body_bytes)
        return error_set(err, STATUS_TOO_LARGE, "the answer has more than %zu bytes", c->options.max_body_bytes);
    buf_append_str(&c->body, part);
    return c->body.failed ? error_set(err, STATUS_NOMEM, "out of memory for the answer") : 0;
}

/* One event of the answer, from `*at` on. 0 go on, 1 complete, negative failed. */
static int step(struct http_client *c, const struct http_client_request *r, size_t n, size_t *at, struct error *err)
{
    struct str part;
    size_t used;
    bool head = strcmp(r->method, "HEAD") == 0;
    enum http1_event e = http1_read(&c->parser, c->in + *at, n - *at, &used, &part);
    *at += used;
    switch (e) {
    case HTTP1_BODY:
        return take_body(c, r, part, err);
    case HTTP1_ERROR:
        return error_set(err, STATUS_INVALID, "the server's answer is no valid HTTP: %s", c->parser.error_text);
    case HTTP1_END:
        if (c->parser.status / 100 != 1)
            return 1;
        arena_clear(&c->arena);
        http1_init_response(&c->parser, &c->arena, &ANSWER_LIMITS, head);
        return 0;
    default:
        return 0;
    }
}

/* Parse `n` bytes. An answer that is complete at its head, or with its last byte, says so in a call without input. */
static int take_input(struct http_client *c, const struct http_client_request *r, size_t n, struct error *err)
{
    size_t at = 0;
    int rc;
    do
        rc = step(c, r, n, &at, err);
    while (rc == 0 && at < n);
    return rc == 0 ? step(c, r, n, &at, err) : rc;
}

/* *nothing: the connection ended before any byte. */
static int receive(struct http_client *c, const struct http_client_request *r, bool *nothing, struct error *err)
{
    *nothing = true;
    for (;;) {
        ssize_t n = c->tls ? tls_conn_read(c->tls, c->in, READ_BYTES) : os_sock_read(c->fd, c->in, READ_BYTES);
        if (n == STATUS_AGAIN) {
            int rc = wait_ready(c, false, err);
            if (rc)
                return rc;
            continue;
        }
        if (n <= 0 && *nothing)
            return error_set(err, STATUS_IO, "%s closed the connection without an answer", c->target.authority);
        if (n < 0 || (n == 0 && http1_eof(&c->parser) != HTTP1_END))
            return error_set(err, STATUS_IO, "the connection to %s broke in the middle of the answer", c->target.authority);
        if (n == 0)
            return 0;
        *nothing = false;
        int rc = take_input(c, r, (size_t)n, err);
        if (rc)
            return rc < 0 ? rc : 0;
    }
}

static int exchange(struct http_client *c, const struct http_client_request *r, bool *again, struct error *err)
{
    bool reused = c->fd >= 0, nothing = true;
    int rc = reused ? 0 : open_connection(c, err);
    if (rc)
        return rc;
    buf_clear(&c->body);
    arena_clear(&c->arena);
    http1_init_response(&c->parser, &c->arena, &ANSWER_LIMITS, strcmp(r->method, "HEAD") == 0);
    rc = send_request(c, err);
    if (rc == 0)
        rc = receive(c, r, &nothing, err);
    *again = rc == STATUS_IO && reused && nothing;
    if (rc || !c->parser.keep_alive)
        disconnect(c);
    return rc;
}

int http_client_call(struct http_client *c, const struct http_client_request *r, struct http_client_answer *answer,
                     struct error *err)
{
    bool again = false;
    *answer = (struct http_client_answer){0};
    buf_clear(&c->request);
    if (!http_target_request(&c->target, &c->request, str_of(r->method), str_of(r->path), r->headers, r->n_headers, r->body))
        return error_set(err, STATUS_INVALID, "the path, or a header, holds a character that can't be sent");
    c->deadline_ns = os_monotonic_ns() + c->options.timeout_ns;
    int rc = exchange(c, r, &again, err);
    if (again)
        rc = exchange(c, r, &again, err);
    if (rc)
        return rc;
    *answer = (struct http_client_answer){c->parser.status, c->parser.headers, c->parser.n_headers, buf_str(&c->body)};
    return 0;
}

struct str http_client_header(const struct http_client_answer *a, const char *name)
{
    for (size_t i = 0; i < a->n_headers; i++)
        if (str_ieqz(a->headers[i].name, name))
            return a->headers[i].value;
    return (struct str){NULL, 0};
}
