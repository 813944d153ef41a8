/* answer.c: an upstream's answer on its way back. One of a known, small length is collected and then given whole, so that until its last byte
 * another server can be asked instead; anything else is streamed: what one read brings is written at once, and a client that doesn't read
 * stops the reading from its upstream, no more.
 *
 * A stream begins at the end of the iteration in which its head came, which is when its first bytes could leave anyway: what breaks, or ends, in
 * the same read as its head is a collected answer still, so the first can be tried again and the second has a length. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "wire/grpc_frame.h"

#define COLLECT_BYTES (64u << 10)
#define GRPC_UNKNOWN  2
#define GRPC_CODE_MAX 16

static void on_writable(struct http_request *r)
{
    struct forward *f = r->taker;
    if (exchange_is_open(&f->x) && f->blocked) {
        f->blocked = false;
        exchange_pause(&f->x, false);
        forward__arm(f, loop_now_ns(f->home->loop) + f->target.route->idle_timeout);
    }
}

static bool has_events(const char *content_type)
{
    static const char sse[] = "text/event-stream";
    return content_type && str_ieqz((struct str){content_type, MIN_OF(strlen(content_type), sizeof sse - 1)}, sse);
}

/* Look for the tokens that the answer took, where somebody pays for them and it can be read. */
static void look_for_usage(struct forward *f)
{
    struct str type = exchange_header(&f->x, "content-type"), coding = exchange_header(&f->x, "content-encoding");
    bool json = str_starts(type, STR("application/json")), sse = str_starts(type, STR("text/event-stream"));
    f->usage = f->hints.used && f->x.status / 100 == 2 && (json || sse) && !coding.n ? ARENA_NEW(f->r->arena, struct usage_peek)
                                                                                     : NULL;
    if (f->usage)
        usage_peek_init(f->usage, sse);
}

/* What is settled is what the answer said last. */
static void tell_usage(struct forward *f)
{
    if (f->phase != FORWARD_STREAMING) { /* collected: by the first try or by a hedge */
        look_for_usage(f);
        if (f->usage)
            usage_peek_feed(f->usage, f->answer.p, f->answer.n);
    }
    if (f->usage && f->usage->known)
        *f->hints.used = f->usage->tokens;
}

/* The reading from the upstream goes on when the client has taken enough. */
static void pass_on(struct forward *f, struct slice piece)
{
    if (!http_stream_write(f->r, piece) && exchange_is_open(&f->x)) {
        f->blocked = true;
        exchange_pause(&f->x, true);
        forward__arm(f, UINT64_MAX); /* it is the client that is slow: net's write timeout watches it */
    }
}

static void no_memory(struct forward *f)
{
    exchange_drop(&f->x);
    http_reply_error(f->r, STATUS_NOMEM, "out of memory for this reply; try again later", 1);
    forward__end(f, PICK_CANCELLED);
}

/* All that came with the head is good: from here on it is a stream. */
static void begin_stream(struct loop_task *t)
{
    struct forward *f = CONTAINER_OF(t, struct forward, begin);
    f->begin_queued = false;
    if (!f->held || f->phase != FORWARD_BUFFERING || !exchange_is_open(&f->x))
        return;
    size_t n;
    const char *type;
    struct http_header *headers = headers__answer(f, &n, &type);
    struct slice piece = {0};
    bool empty = f->answer.n == 0;
    if (f->usage)
        usage_peek_feed(f->usage, f->answer.p, f->answer.n);
    if (headers && !empty)
        piece = slice_take(&f->answer);
    if (!headers || (!empty && !piece.p)) {
        no_memory(f);
        return;
    }
    hedge__drop(f);
    f->phase = FORWARD_STREAMING;
    f->events = has_events(type);
    http_stream_begin(f->r, f->x.status, type, headers, n, on_writable);
    if (piece.p)
        pass_on(f, piece);
}

/* Nothing can follow such a head, whatever the server makes of it: over HTTP/2 the end of its stream may come late, or with trailers. */
static bool is_only_head(const struct forward *f)
{
    return f->r->method == HTTP_HEAD || f->x.status == 204 || f->x.status == 304;
}

void answer__begin(struct forward *f)
{
    look_for_usage(f);
    const struct exchange *x = &f->x;
    bool small = x->answer_body == HTTP1_NO_BODY || (x->answer_body == HTTP1_LENGTH && x->content_length <= COLLECT_BYTES);
    f->phase = FORWARD_BUFFERING;
    f->held = !small && !is_only_head(f);
    if (!f->held || f->begin_queued)
        return;
    f->begin_queued = true;
    f->begin.run = begin_stream;
    loop_defer(f->home->loop, &f->begin);
}

void answer__take(struct forward *f, struct str part)
{
    if (f->usage && f->phase == FORWARD_STREAMING)
        usage_peek_feed(f->usage, part.p, part.n);
    if (f->phase == FORWARD_BUFFERING) {
        buf_append_str(&f->answer, part);
        return;
    }
    struct slab *s = slab_create(part.n);
    if (!s) {
        answer__break(f, STATUS_NOMEM, "out of memory for this reply");
        return;
    }
    memcpy(s->data, part.p, part.n);
    s->n = part.n;
    struct slice piece = slice_of(s, 0, part.n);
    slab_unref(s);
    pass_on(f, piece);
}

/* Trailers go to clients that can have them (HTTP/2); net leaves them out elsewhere. */
static void end_stream(struct forward *f)
{
    size_t n;
    struct http_header *trailers = headers__trailers(f, &n);
    if (n)
        http_stream_end_trailers(f->r, trailers, n);
    else
        http_stream_end(f->r);
}

/* In its trailers, or in an answer's head that is all of it; of a server that says none, or nonsense: UNKNOWN. */
static void tell_grpc_code(const struct forward *f)
{
    const struct exchange *x = &f->x;
    struct str said = exchange_header(x, "grpc-status");
    uint64_t code;
    if (!f->hints.grpc_code)
        return;
    for (size_t i = 0; i < x->n_trailers; i++)
        if (str_ieqz(x->trailers[i].name, "grpc-status"))
            said = x->trailers[i].value;
    *f->hints.grpc_code = said.p && str_to_u64(said, &code) && code <= GRPC_CODE_MAX ? (int)code : GRPC_UNKNOWN;
}

/* A HEAD's answer has no body to count: its length is what the server said. */
static void tell_head_length(struct forward *f)
{
    uint64_t length;
    f->r->has_head_length = true;
    f->r->head_length =
        str_to_u64(exchange_header(&f->x, "content-length"), &length) && length <= INT64_MAX ? (int64_t)length : -1;
}

void answer__end(struct forward *f)
{
    tell_usage(f);
    tell_grpc_code(f);
    if (f->r->method == HTTP_HEAD)
        tell_head_length(f);
    if (f->phase == FORWARD_STREAMING) {
        end_stream(f);
        return;
    }
    size_t n;
    const char *type;
    struct http_header *headers = headers__answer(f, &n, &type);
    struct slice body = {0};
    bool empty = f->answer.n == 0;
    if (!empty)
        body = slice_take(&f->answer);
    if (f->x.n_trailers && headers && f->r->version == 20 && !is_only_head(f)) {
        http_stream_begin(f->r, f->x.status, type, headers, n, NULL);
        if (body.p)
            http_stream_write(f->r, body);
        end_stream(f);
    } else if (!headers || (!empty && !body.p))
        http_reply_error(f->r, STATUS_NOMEM, "out of memory for this reply; try again later", 1);
    else
        http_reply(f->r, f->x.status, type, headers, n, &body, !empty);
}

/* A status in trailers, as if the server had ended the call with it. */
static void end_call(struct forward *f, int status, const char *text)
{
    char code[8];
    struct buf message;
    buf_init(&message);
    if (f->hints.grpc_code)
        *f->hints.grpc_code = status_grpc(status);
    snprintf(code, sizeof code, "%d", status_grpc(status));
    grpc_message_append(&message, str_of(text));
    const struct http_header trailers[] = {{STR("grpc-status"), str_of(code)}, {STR("grpc-message"), buf_str(&message)}};
    http_stream_end_trailers(f->r, trailers, message.n ? 2 : 1);
    buf_release(&message);
    forward__end(f, status == STATUS_UPSTREAM ? PICK_GATEWAY_FAILURE : PICK_CANCELLED);
}

void answer__break(struct forward *f, int status, const char *text)
{
    struct buf event;
    if (f->hints.grpc) {
        end_call(f, status, text);
        return;
    }
    buf_init(&event);
    if (f->events) {
        buf_append_z(&event, "event: error\ndata: {\"error\":{\"message\":");
        buf_append_json_str(&event, str_of(text));
        buf_append_z(&event, ",\"type\":\"upstream_error\",\"param\":null,\"code\":\"upstream_broken\"}}\n\n");
    }
    struct slice piece = f->events ? slice_take(&event) : (struct slice){0};
    if (piece.p) {
        http_stream_write(f->r, piece);
        http_stream_end(f->r);
    } else {
        http_stream_abort(f->r);
    }
    buf_release(&event);
    forward__end(f, PICK_GATEWAY_FAILURE);
}
