/* http2.c: a server's end of one HTTP/2 connection over nghttp2: its callbacks, the end. See http2.h; how bytes go in and out is in
 * http2_session.c, the glitch budget in http2_guard.c, heads are in http2_head.c.
 *
 * The end comes in three ways. nghttp2 finds a connection error, or we call terminate: it sends GOAWAY, and wants nothing more.
 * Or the budget is spent, or nghttp2 gives up (out of memory, flooded): then its state is not trusted any more, and we send a GOAWAY
 * of our own making (`dead`). */
#include "wire/http2.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/http2_priv.h"

#define SECOND                1000000000ull
#define MIN_CONNECTION_WINDOW (1u << 20)
#define GOAWAY_BYTES          8u
#define CREDIT_PER_STREAM     4u
#define CREDIT_PER_DATA       3u /* for WINDOW_UPDATE of stream and connection, and a PING that measures the round trip */

static const uint8_t SHUTDOWN_PING[8] = {'s', 'h', 'u', 't', 'd', 'o', 'w', 'n'};
/* What a detached stream has in nghttp2 for its owner; only its address is used. */
static const struct http2_stream DETACHED;

const char *http2_glitch_name(enum http2_glitch g)
{
    static const char *const names[HTTP2_GLITCH_COUNT] = {
        [HTTP2_GLITCH_RESET] = "reset",
        [HTTP2_GLITCH_INDUCED_RESET] = "induced_reset",
        [HTTP2_GLITCH_CONTINUATION] = "continuation",
        [HTTP2_GLITCH_SETTINGS] = "settings",
        [HTTP2_GLITCH_PING] = "ping",
        [HTTP2_GLITCH_PRIORITY] = "priority",
        [HTTP2_GLITCH_EMPTY_DATA] = "empty_data",
        [HTTP2_GLITCH_WINDOW] = "window_update",
        [HTTP2_GLITCH_HEADERS] = "header_list",
        [HTTP2_GLITCH_LATE_RESET] = "late_reset",
        [HTTP2_GLITCH_UNKNOWN] = "unknown_frame",
    };
    return names[g];
}

/* --- streams --- */

struct http2_stream *http2__stream_of(struct http2 *h, int32_t id)
{
    void *s = nghttp2_session_get_stream_user_data(h->w.ng, id);
    return s == &DETACHED ? NULL : s;
}

static bool is_detached(struct http2 *h, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h->w.ng, id) == &DETACHED;
}

static int result(bool ok)
{
    return ok ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

/* --- callbacks: input --- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2 *h = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct http2_stream *s = h->events->begin(h->user);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    s->id = frame->hd.stream_id;
    http2__earn(h, CREDIT_PER_STREAM);
    return nghttp2_session_set_stream_user_data(session, s->id, s) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                     const uint8_t *value, size_t value_n, uint8_t flags, void *user)
{
    struct http2 *h = user;
    struct http2_stream *s = http2__stream_of(h, frame->hd.stream_id);
    (void)session;
    (void)flags;
    if (!s)
        return 0;
    struct str field = {(const char *)name, name_n}, text = {(const char *)value, value_n};
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) { /* trailers: nobody reads them, but their size counts */
        s->head_bytes += name_n + value_n;
        if (s->head_bytes <= 4ull * h->max_header_bytes)
            return 0;
    } else if (http2__head_add(h, s, field, text)) {
        return 0;
    }
    if (http2__spend(h, HTTP2_GLITCH_HEADERS))
        http2__kill(h, HTTP2_ENHANCE_YOUR_CALM);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void head_received(struct http2 *h, struct http2_stream *s, const nghttp2_frame *frame)
{
    int32_t id = s->id;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    http2__head_end(s, !end);
    if (s->error_status == 431)
        http2__spend(h, HTTP2_GLITCH_HEADERS);
    h->events->head(h->user, s);
    s = http2__stream_of(h, id);
    if (end && s)
        h->events->end(h->user, s);
}

static bool data_received(struct http2 *h, struct http2_stream *s, const nghttp2_frame *frame)
{
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (end)
        h->events->end(h->user, s);
    else if (frame->hd.length && frame->hd.length <= frame->data.padlen)
        return http2__spend(h, HTTP2_GLITCH_EMPTY_DATA);
    return !h->w.dead;
}

/* A whole, valid frame. */
static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2 *h = user;
    struct http2_stream *s = http2__stream_of(h, frame->hd.stream_id);
    (void)session;
    h->in_head = false;
    if (s && frame->hd.flags & NGHTTP2_FLAG_END_STREAM && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS))
        s->client_ended = true;
    if (frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK &&
        memcmp(frame->ping.opaque_data, SHUTDOWN_PING, sizeof SHUTDOWN_PING) == 0)
        h->events->shutdown_seen(h->user);
    if (!s)
        return result(!h->w.dead);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        head_received(h, s, frame);
    else if (frame->hd.type == NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        h->events->end(h->user, s);
    else if (frame->hd.type == NGHTTP2_DATA)
        return result(data_received(h, s, frame));
    return result(!h->w.dead);
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *user)
{
    struct http2 *h = user;
    struct http2_stream *s = http2__stream_of(h, id);
    (void)flags;
    /* the connection's window is for all: it is given back at once, only the stream's waits for the handler */
    if (nghttp2_session_consume_connection(session, n))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (s)
        h->events->body(h->user, s, data, n);
    return result(!h->w.dead);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct http2 *h = user;
    struct http2_stream *s = http2__stream_of(h, id);
    (void)code;
    if (!s)
        return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    if (s->client_ended)
        http2__remember(h->ended, &h->ended_at, id);
    h->events->closed(h->user, s, s->answered);
    return result(!h->w.dead);
}

/* --- callbacks: output --- */

static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *to, size_t most, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
    struct http2 *h = user;
    struct http2_stream *s = http2__stream_of(h, id);
    bool last = false;
    (void)to;
    (void)source;
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = h->events->pending(h->user, s, &last), take = MIN_OF(n, most);
    if (take == 0 && !last) {
        s->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags = NGHTTP2_DATA_FLAG_NO_COPY;
    if (last && take == n) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (s->n_trailers) {
            size_t n_nv;
            nghttp2_nv *nv = http2__make_nv(s->arena, 0, s->trailers, s->n_trailers, &n_nv);
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (!nv || nghttp2_submit_trailer(session, id, nv, n_nv))
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)take;
}

static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n, nghttp2_data_source *source,
                     void *user)
{
    struct http2 *h = user;
    struct http2_stream *s = http2__stream_of(h, frame->hd.stream_id);
    (void)session;
    (void)source;
    if (!http2__session_fits(&h->w, n))
        return NGHTTP2_ERR_WOULDBLOCK;
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    uint8_t *to = http2__session_put_frame(&h->w, head, n);
    if (n)
        h->events->fill(h->user, s, to, n);
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2 *h = user;
    int32_t id = frame->hd.stream_id;
    struct http2_stream *s = http2__stream_of(h, id);
    uint8_t type = frame->hd.type;
    if (type == NGHTTP2_DATA)
        http2__earn(h, CREDIT_PER_DATA);
    if (type == NGHTTP2_GOAWAY && frame->goaway.last_stream_id == INT32_MAX)
        return nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, SHUTDOWN_PING) ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
    if (type == NGHTTP2_RST_STREAM)
        http2__remember(h->reset, &h->reset_at, id);
    if (type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR && !is_detached(h, id) &&
        !(s && s->ours))
        return result(http2__spend(h, HTTP2_GLITCH_INDUCED_RESET));
    if (s && (type == NGHTTP2_DATA || type == NGHTTP2_HEADERS) && frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        s->answered = s->ours = true;
        if (!s->linger && nghttp2_session_get_stream_remote_close(session, id) == 0)
            return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_NO_ERROR) ? NGHTTP2_ERR_CALLBACK_FAILURE
                                                                                               : 0;
    }
    return 0;
}

/* --- life --- */

static void set_callbacks(nghttp2_session_callbacks *c)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(c, send_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, on_frame_send);
}

static void set_options(nghttp2_option *option)
{
    /* its own bucket for resets (33 a second, those of answered streams too) would cut off clients that cancel a lot: ours counts */
    nghttp2_option_set_stream_reset_rate_limit(option, UINT32_MAX, UINT32_MAX);
}

static int greet(struct http2 *h, const struct http2_limits *l)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, l->max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, l->window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, l->max_header_bytes},
        {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, l->table_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    uint64_t window = MIN_OF(MAX_OF((uint64_t)l->window_bytes * 2, (uint64_t)MIN_CONNECTION_WINDOW), (uint64_t)INT32_MAX);
    int rc = nghttp2_submit_settings(h->w.ng, NGHTTP2_FLAG_NONE, settings, COUNT_OF(settings));
    return rc ? rc : nghttp2_session_set_local_window_size(h->w.ng, NGHTTP2_FLAG_NONE, 0, (int32_t)window);
}

static enum http2_code code_of(ssize_t rc)
{
    switch (rc) {
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
        return HTTP2_PROTOCOL_ERROR;
    case NGHTTP2_ERR_NOMEM:
    case NGHTTP2_ERR_CALLBACK_FAILURE:
        return HTTP2_INTERNAL_ERROR;
    default: /* flooded, too many CONTINUATION frames */
        return HTTP2_ENHANCE_YOUR_CALM;
    }
}

static void gave_up(void *owner, ssize_t code)
{
    http2__kill(owner, code_of(code));
}

static bool judge(void *owner)
{
    return http2__judge(owner);
}

static const struct http2_side SERVER = {
    .create = nghttp2_session_server_new2,
    .set_callbacks = set_callbacks,
    .set_options = set_options,
    .judge = judge,
    .gave_up = gave_up,
};

int http2_create(const struct http2_limits *l, const struct http2_events *e, void *user, struct http2 **out, struct error *err)
{
    struct http2 *h = fault_point("http2") ? NULL : malloc(sizeof *h);
    if (h) {
        *h = (struct http2){.events = e,
                            .user = user,
                            .max_header_bytes = l->max_header_bytes,
                            .max_headers = l->max_headers,
                            .max_url_bytes = l->max_url_bytes,
                            .max_continuations = l->max_continuations,
                            .glitches = l->glitches,
                            .glitch_rate = l->glitch_rate,
                            .tokens = l->glitches,
                            .credit = HTTP2_CREDIT_FIRST,
                            .preface_left = HTTP2_PREFACE_BYTES};
        if (http2__session_init(&h->w, &SERVER, h, l->table_bytes) == 0 && greet(h, l) == 0) {
            *out = h;
            return 0;
        }
    }
    http2_destroy(h);
    return error_set(err, STATUS_NOMEM, "out of memory for an HTTP/2 connection");
}

void http2_destroy(struct http2 *h)
{
    if (!h)
        return;
    nghttp2_session_del(h->w.ng);
    free(h);
}

/* --- input and output --- */

static size_t take_preface(struct http2 *h, const uint8_t *p, size_t n)
{
    size_t take = MIN_OF(n, (size_t)h->preface_left);
    h->preface_left -= (uint8_t)take;
    http2__session_feed(&h->w, p, take);
    return take;
}

bool http2_input(struct http2 *h, const uint8_t *p, size_t n, uint64_t now_ns)
{
    if (h->refilled_ns == 0)
        h->refilled_ns = now_ns;
    h->now_ns = now_ns;
    while (n && !h->w.dead) {
        size_t take = h->preface_left ? take_preface(h, p, n) : http2__session_take_frame(&h->w, p, n);
        p += take;
        n -= take;
    }
    return !h->w.dead;
}

static void put_u32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void put_goaway(struct http2 *h)
{
    static const uint8_t HEAD[HTTP2_FRAME_HEAD_BYTES] = {[2] = GOAWAY_BYTES, [3] = NGHTTP2_GOAWAY};
    if (h->goaway_out || !http2__session_fits(&h->w, GOAWAY_BYTES))
        return;
    uint8_t *to = http2__session_put_frame(&h->w, HEAD, GOAWAY_BYTES);
    put_u32(to, (uint32_t)nghttp2_session_get_last_proc_stream_id(h->w.ng));
    put_u32(to + 4, (uint32_t)h->dead_code);
    h->goaway_out = true;
}

size_t http2_output(struct http2 *h, uint8_t *to, size_t room)
{
    http2__session_output(&h->w, to, room);
    if (h->w.dead && h->w.rest_n == 0)
        put_goaway(h);
    return h->w.to_n;
}

bool http2_done(const struct http2 *h)
{
    if (h->w.dead)
        return h->goaway_out;
    return http2__session_is_over(&h->w);
}

bool http2_in_head(const struct http2 *h)
{
    return (h->in_head || h->w.head_n || h->preface_left) && !h->w.dead;
}

/* --- replies --- */

int http2_respond(struct http2 *h, struct http2_stream *s, int status, const struct http_header *headers, size_t n, bool body)
{
    size_t n_nv;
    const nghttp2_data_provider data = {.read_callback = read_data};
    nghttp2_nv *nv = http2__make_nv(s->arena, status, headers, n, &n_nv);
    if (!nv || nghttp2_submit_response(h->w.ng, s->id, nv, n_nv, body ? &data : NULL))
        return STATUS_NOMEM;
    return 0;
}

void http2_continue(struct http2 *h, struct http2_stream *s)
{
    size_t n;
    nghttp2_nv *nv = http2__make_nv(s->arena, 100, NULL, 0, &n);
    if (nv)
        nghttp2_submit_headers(h->w.ng, NGHTTP2_FLAG_NONE, s->id, NULL, nv, n, NULL);
}

void http2_resume(struct http2 *h, struct http2_stream *s)
{
    if (!s->deferred)
        return;
    s->deferred = false;
    nghttp2_session_resume_data(h->w.ng, s->id);
}

void http2_set_trailers(struct http2_stream *s, struct http_header *trailers, size_t n)
{
    s->trailers = trailers;
    s->n_trailers = n;
}

void http2_consume(struct http2 *h, struct http2_stream *s, size_t n)
{
    if (n)
        nghttp2_session_consume_stream(h->w.ng, s->id, n);
}

void http2_reset(struct http2 *h, struct http2_stream *s, enum http2_code code, bool fault)
{
    s->ours = true;
    if (fault)
        http2__spend(h, HTTP2_GLITCH_INDUCED_RESET);
    nghttp2_submit_rst_stream(h->w.ng, NGHTTP2_FLAG_NONE, s->id, (uint32_t)code);
}

void http2_detach(struct http2 *h, struct http2_stream *s)
{
    nghttp2_session_set_stream_user_data(h->w.ng, s->id, (void *)(uintptr_t)&DETACHED);
}

/* --- the end --- */

void http2_shutdown(struct http2 *h)
{
    nghttp2_submit_shutdown_notice(h->w.ng); /* the PING follows when this is out: the library would put it in front */
}

void http2_ping(struct http2 *h)
{
    nghttp2_submit_ping(h->w.ng, NGHTTP2_FLAG_NONE, NULL);
}

void http2_goaway(struct http2 *h)
{
    nghttp2_submit_goaway(h->w.ng, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->w.ng), NGHTTP2_NO_ERROR, NULL,
                          0);
}

void http2_terminate(struct http2 *h, enum http2_code code)
{
    nghttp2_session_terminate_session(h->w.ng, (uint32_t)code);
}
