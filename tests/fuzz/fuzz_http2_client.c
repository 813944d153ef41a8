/* What a server sends to an HTTP/2 client with three calls under way, handed in whole and cut into pieces: the same events and the same end. Byte 0: bit
 * 0 calls are cancelled at their first body byte, bit 1 a call has a body that never ends. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "wire/http2_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http2_client_limits LIMITS = {
    .max_header_bytes = 1000, .max_headers = 12, .window_bytes = 65535, .connection_bytes = 65535, .table_bytes = 512};

struct owner {
    struct http2_client *h;
    struct http2_call calls[3];
    struct arena arena;
    uint64_t trace; /* FNV-1a over the events */
    int over[3], how;
};

static void note(struct owner *o, const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        o->trace = (o->trace ^ b[i]) * 1099511628211u;
}

static void must_be_under_way(struct owner *o, struct http2_call *c)
{
    if (o->over[c - o->calls])
        abort();
}

static void on_head(void *user, struct http2_call *c)
{
    struct owner *o = user;
    must_be_under_way(o, c);
    note(o, &c->status, sizeof c->status);
    for (uint32_t i = 0; i < c->n_headers; i++)
        note(o, c->headers[i].value.p, c->headers[i].value.n);
}

static void on_body(void *user, struct http2_call *c, const uint8_t *p, size_t n)
{
    struct owner *o = user;
    must_be_under_way(o, c);
    if (!(o->how & 1))
        note(o, p, n); /* else how much of it comes before the cancel depends on the cut */
    if (o->how & 1) {
        o->over[c - o->calls] = 1;
        http2_client_cancel(o->h, c);
    } else {
        http2_client_consume(o->h, c, n);
    }
}

static void over(struct owner *o, struct http2_call *c, uint32_t what)
{
    must_be_under_way(o, c);
    o->over[c - o->calls] = 1;
    note(o, &what, sizeof what);
}

static void on_end(void *user, struct http2_call *c)
{
    over(user, c, c->n_trailers);
}

static void on_failed(void *user, struct http2_call *c, enum http2_failure why, uint32_t code)
{
    over(user, c, 1000 + (uint32_t)why * 100 + (code & 31));
}

static struct str on_pending(void *user, struct http2_call *c, bool *last)
{
    struct owner *o = user;
    (void)c;
    *last = !(o->how & 2);
    return STR("body");
}

static void on_taken(void *user, struct http2_call *c, size_t n)
{
    (void)user, (void)c, (void)n;
}

static const struct http2_client_events EVENTS = {on_head, on_body, on_end, on_failed, on_pending, on_taken};

static uint64_t run(const uint8_t *data, size_t size, size_t step, int how)
{
    struct owner o = {.how = how, .trace = 14695981039346656037u};
    struct error err;
    uint8_t out[HTTP2_OUTPUT_MIN];
    arena_init(&o.arena, 4096, 1 << 22);
    if (http2_client_create(&LIMITS, &EVENTS, &o, &o.h, &err))
        abort();
    const struct http2_client_request r = {
        .method = STR("GET"), .scheme = STR("http"), .authority = STR("h"), .path = STR("/"), .body = how & 2};
    for (int i = 0; i < 3; i++) {
        o.calls[i].arena = &o.arena;
        if (http2_client_submit(o.h, &o.calls[i], &r))
            abort();
    }
    for (int i = 0; i < 4; i++) /* the body that never ends fills the window */
        http2_client_output(o.h, out, sizeof out);
    bool ok = true;
    for (size_t at = 0; at < size && ok; at += step)
        ok = http2_client_input(o.h, data + at, MIN_OF(step, size - at));
    note(&o, &ok, sizeof ok);
    for (int i = 0; i < 8 && http2_client_output(o.h, out, sizeof out); i++)
        ;
    http2_client_destroy(o.h);
    arena_release(&o.arena);
    return o.trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int how = data[0] & 3;
    uint64_t whole = run(data + 1, size - 1, size, how);
    if (whole != run(data + 1, size - 1, 1 + data[1] % 7, how))
        abort();
    return 0;
}
