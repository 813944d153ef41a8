/* grpc_stream.c: what streaming calls have in common: messages out of the body's pieces, deadlines, back-pressure, the end.
 *
 * A stream is in its request's arena. It ends once, for one of these reasons: its method is done, the client went away, its deadline
 * passed, a message couldn't be read, or the server drains and nothing runs on it. From then on `over` is set, nothing is written, and
 * what still runs is cancelled and holds the request until it is back.
 *
 * Bytes are given back to the client's window when they have been read into a message. While the method is busy, what comes waits, up to
 * that window. A timer looks at the deadline, at the server's phase and, for methods that want it, at their state. */
#include "api/kserve_grpc_priv.h"
#include "base/check.h"
#include "base/status.h"

#define TICK_NS 200000000u

static const struct grpc_stream_ops *ops_of(enum route_id id)
{
    return id == ROUTE_GRPC_STREAM_INFER   ? &api__grpc_stream_infer
           : id == ROUTE_GRPC_HEALTH_WATCH ? &api__grpc_health_watch
                                           : &api__grpc_reflection;
}

static int phase_of(const struct grpc_stream *s)
{
    return atomic_load_explicit(&s->g->api->phase, memory_order_acquire);
}

/* ---- the end ---- */

void api__grpc_stream_finish(struct grpc_stream *s, int status, const char *text)
{
    struct http_request *r = s->g->request;
    if (s->over)
        return;
    http_hold(r);
    s->over = true;
    loop_timer_stop(r->loop, &s->timer);
    r->on_gone = NULL;
    if (s->ops->over)
        s->ops->over(s);
    grpc_reader_release(&s->reader);
    buf_release(&s->waiting);
    api__grpc_stream_end(s->g, status, text);
    http_release(r);
}

static void on_gone(struct http_request *r)
{
    struct api_call *call = r->user;
    api__grpc_stream_finish(call->stream, STATUS_CANCELLED, "the client went away");
}

static void start_timer(struct grpc_stream *s)
{
    struct loop *loop = s->g->request->loop;
    loop_timer_start(loop, &s->timer, MIN_OF(loop_now_ns(loop) + TICK_NS, s->g->deadline_ns));
}

static void on_timer(struct loop_timer *t)
{
    struct grpc_stream *s = CONTAINER_OF(t, struct grpc_stream, timer);
    struct http_request *r = s->g->request;
    int phase = phase_of(s);
    http_hold(r);
    if (loop_now_ns(r->loop) >= s->g->deadline_ns)
        api__grpc_stream_finish(s, STATUS_DEADLINE, "the call's deadline passed");
    else if (phase == API_CLOSED || (phase == API_DRAINING && !s->running))
        api__grpc_stream_finish(s, STATUS_UNAVAILABLE, "the server is stopping; ask another one");
    else if (s->ops->tick)
        s->ops->tick(s);
    if (!s->over)
        start_timer(s);
    http_release(r);
}

/* ---- the way in ---- */

static bool is_busy(const struct grpc_stream *s)
{
    return s->ops->busy && s->ops->busy(s);
}

static int take_message(struct grpc_stream *s, struct grpc_message *m, struct error *err)
{
    if (phase_of(s) == API_CLOSED) {
        slice_release(&m->data);
        return error_set(err, STATUS_UNAVAILABLE, "the server is stopping; ask another one");
    }
    return s->ops->message(s, m, err);
}

/* Read messages from data[0..n) until it is used up, the method is busy or the stream over; returns the bytes read. */
static size_t feed(struct grpc_stream *s, const uint8_t *data, size_t n)
{
    struct error err = {0};
    struct grpc_message m;
    size_t left = n;
    int rc = 0;
    s->feeding = true;
    while (rc == 0 && !s->over && !is_busy(s)) {
        rc = grpc_read(&s->reader, &data, &left, &m, &err);
        if (rc == 0) {
            rc = http_body_charge(s->g->request, s->kept_bytes + grpc_reader_bytes(&s->reader), &err);
            break;
        }
        if (rc == 1)
            rc = take_message(s, &m, &err);
    }
    s->feeding = false;
    if (rc < 0)
        api__grpc_stream_finish(s, rc, err.text);
    return n - left;
}

static void end_input(struct grpc_stream *s)
{
    struct error err = {0};
    if (s->over || s->reading_ended || !s->input_ended || s->waiting.n)
        return;
    s->reading_ended = true;
    int rc = grpc_reader_finish(&s->reader, &err);
    if (rc < 0)
        api__grpc_stream_finish(s, rc, err.text);
    else
        s->ops->input_end(s);
}

void api__grpc_stream_resume(struct grpc_stream *s)
{
    struct http_request *r = s->g->request;
    if (s->over || s->feeding)
        return;
    http_hold(r);
    if (s->waiting.n) {
        size_t used = feed(s, (const uint8_t *)s->waiting.p, s->waiting.n);
        if (!s->over && used) {
            memmove(s->waiting.p, s->waiting.p + used, s->waiting.n - used);
            s->waiting.n -= used;
        }
        http_body_consumed(r, used);
    }
    end_input(s);
    http_release(r);
}

void api__grpc_stream_body(struct http_request *r, struct slice piece, bool last)
{
    struct api_call *call = r->user;
    struct grpc_stream *s = call->stream;
    if (!s || s->over) {
        http_body_consumed(r, piece.n);
        return;
    }
    http_hold(r);
    s->input_ended |= last;
    size_t used = s->waiting.n ? 0 : feed(s, piece.p, piece.n);
    if (!s->over && used < piece.n)
        buf_append(&s->waiting, piece.p + used, piece.n - used);
    http_body_consumed(r, s->over ? piece.n : used);
    if (s->waiting.failed)
        api__grpc_stream_finish(s, STATUS_NOMEM, "out of memory for this call; try again later");
    end_input(s);
    http_release(r);
}

/* ---- the way out ---- */

static void on_writable(struct http_request *r)
{
    struct api_call *call = r->user;
    struct grpc_stream *s = call->stream;
    http_hold(r);
    s->writable = true;
    if (!s->over && s->ops->writable)
        s->ops->writable(s);
    http_release(r);
}

void api__grpc_stream_send(struct grpc_stream *s, struct slice frame)
{
    if (s->over)
        slice_release(&frame);
    else
        s->writable = http_stream_write(s->g->request, frame);
}

void api__grpc_stream_hold(struct grpc_stream *s, uint64_t bytes)
{
    s->running++;
    s->kept_bytes += bytes;
    http_hold(s->g->request);
}

void api__grpc_stream_release(struct grpc_stream *s, uint64_t bytes)
{
    ASSERT(s->running > 0 && s->kept_bytes >= bytes);
    s->running--;
    s->kept_bytes -= bytes;
    if (!s->running && s->complete)
        api__call_end(s->g->request, s->g->call);
    http_release(s->g->request);
}

bool api__grpc_stream_outlives(struct grpc_stream *s)
{
    s->complete = true;
    return s->running > 0;
}

void api__grpc_stream(struct api *a, struct http_request *r, struct api_call *call)
{
    const struct grpc_stream_ops *ops = ops_of(call->match.id);
    struct grpc_stream *s = arena_zalloc(r->arena, ops->bytes);
    (void)a;
    if (!s) {
        api__grpc_fail(call->grpc, STATUS_NOMEM, "out of memory for this call; try again later", 1);
        return;
    }
    s->g = call->grpc;
    s->ops = ops;
    s->writable = true;
    grpc_reader_init(&s->reader, s->g->limit_bytes);
    buf_init(&s->waiting);
    loop_timer_init(&s->timer, on_timer);
    call->stream = s;
    r->on_gone = on_gone;
    api__grpc_stream_begin(s->g, s->g->compress, on_writable);
    start_timer(s);
}
