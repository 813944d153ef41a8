/* http2.c: one HTTP/2 connection over nghttp2: its callbacks, input, output, the end. See http2.h; the glitch budget is in
 * http2_guard.c, heads are in http2_head.c.
 *
 * Input is cut at frames: the head of each is judged (http2_guard.c) before nghttp2 sees it. Its own callback for that does not come
 * for frames that it passes over, and those are just as good for a flood.
 *
 * Output. nghttp2 gives control frames one by one as bytes of its own; DATA frames come through send_data, which writes frame head
 * and payload straight to the caller's buffer, so a body is copied once between where the handler left it and the socket.
 * When a DATA frame does not fit, nghttp2 is told to wait and offers the same frame at the next call.
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
#define FRAME_HEAD_BYTES      9
#define GOAWAY_BYTES          (FRAME_HEAD_BYTES + 8)
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
    void *s = nghttp2_session_get_stream_user_data(h->session, id);
    return s == &DETACHED ? NULL : s;
}

static bool is_detached(struct http2 *h, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h->session, id) == &DETACHED;
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

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                             const uint8_t *value, size_t value_n, uint8_t flags, void *user)
{
    (void)session, (void)frame, (void)name, (void)name_n, (void)value, (void)value_n, (void)flags, (void)user;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the library would pass over the field: the stream is reset instead */
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
    return !h->dead;
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
        return result(!h->dead);
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        head_received(h, s, frame);
    else if (frame->hd.type == NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        h->events->end(h->user, s);
    else if (frame->hd.type == NGHTTP2_DATA)
        return result(data_received(h, s, frame));
    return result(!h->dead);
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
    return result(!h->dead);
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
    return result(!h->dead);
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
    if (h->room - h->to_n < FRAME_HEAD_BYTES + n)
        return NGHTTP2_ERR_WOULDBLOCK;
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    memcpy(h->to + h->to_n, head, FRAME_HEAD_BYTES);
    h->to_n += FRAME_HEAD_BYTES;
    if (n)
        h->events->fill(h->user, s, h->to + h->to_n, n);
    h->to_n += n;
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
    nghttp2_session_callbacks_set_on_invalid_header_callback(c, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(c, send_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, on_frame_send);
}

static int create_session(struct http2 *h, uint32_t table_bytes)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int rc = nghttp2_session_callbacks_new(&callbacks);
    if (rc == 0)
        rc = nghttp2_option_new(&option);
    if (rc == 0) {
        set_callbacks(callbacks);
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        /* its own bucket for resets (33 a second, those of answered streams too) would cut off clients that cancel a lot: ours counts */
        nghttp2_option_set_stream_reset_rate_limit(option, UINT32_MAX, UINT32_MAX);
        nghttp2_option_set_max_deflate_dynamic_table_size(option, table_bytes);
        rc = nghttp2_session_server_new2(&h->session, callbacks, h, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return rc;
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
    int rc = nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, COUNT_OF(settings));
    return rc ? rc : nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0, (int32_t)window);
}

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
        if (create_session(h, l->table_bytes) == 0 && greet(h, l) == 0) {
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
    nghttp2_session_del(h->session);
    free(h);
}

/* --- input and output --- */

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

static bool feed(struct http2 *h, const uint8_t *p, size_t n)
{
    ssize_t rc = n ? nghttp2_session_mem_recv(h->session, p, n) : 0;
    if (rc < 0)
        http2__kill(h, code_of(rc));
    return !h->dead;
}

static size_t take_preface(struct http2 *h, const uint8_t *p, size_t n)
{
    size_t take = MIN_OF(n, (size_t)h->preface_left);
    h->preface_left -= (uint8_t)take;
    feed(h, p, take);
    return take;
}

/* One frame at a time, or what has come of it: its head is judged before the library sees it, when all in front of it is done. */
static size_t take_frame(struct http2 *h, const uint8_t *p, size_t n)
{
    size_t used = 0;
    if (h->frame_left == 0) {
        used = MIN_OF(n, (size_t)FRAME_HEAD_BYTES - h->head_n);
        memcpy(h->head + h->head_n, p, used);
        h->head_n += (uint8_t)used;
        if (h->head_n < FRAME_HEAD_BYTES)
            return used;
        h->head_n = 0;
        h->frame_left = (uint32_t)h->head[0] << 16 | (uint32_t)h->head[1] << 8 | h->head[2];
        if (!http2__judge(h) || !feed(h, h->head, FRAME_HEAD_BYTES))
            return used;
    }
    size_t part = MIN_OF(n - used, (size_t)h->frame_left);
    h->frame_left -= (uint32_t)part;
    feed(h, p + used, part);
    return used + part;
}

bool http2_input(struct http2 *h, const uint8_t *p, size_t n, uint64_t now_ns)
{
    if (h->refilled_ns == 0)
        h->refilled_ns = now_ns;
    h->now_ns = now_ns;
    while (n && !h->dead) {
        size_t take = h->preface_left ? take_preface(h, p, n) : take_frame(h, p, n);
        p += take;
        n -= take;
    }
    return !h->dead;
}

static void put_u32(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void put_goaway(struct http2 *h)
{
    uint8_t *to = h->to + h->to_n;
    if (h->goaway_out || h->room - h->to_n < GOAWAY_BYTES)
        return;
    memset(to, 0, GOAWAY_BYTES);
    to[2] = 8;
    to[3] = NGHTTP2_GOAWAY;
    put_u32(to + FRAME_HEAD_BYTES, (uint32_t)nghttp2_session_get_last_proc_stream_id(h->session));
    put_u32(to + FRAME_HEAD_BYTES + 4, (uint32_t)h->dead_code);
    h->to_n += GOAWAY_BYTES;
    h->goaway_out = true;
}

static void put_rest(struct http2 *h)
{
    size_t n = MIN_OF(h->rest_n, h->room - h->to_n);
    if (n == 0)
        return;
    memcpy(h->to + h->to_n, h->rest, n);
    h->to_n += n;
    h->rest += n;
    h->rest_n -= n;
}

size_t http2_output(struct http2 *h, uint8_t *to, size_t room)
{
    ASSERT(room >= HTTP2_OUTPUT_MIN);
    h->to = to;
    h->to_n = 0;
    h->room = room;
    for (;;) {
        put_rest(h);
        if (h->rest_n)
            break;
        if (h->dead) {
            put_goaway(h);
            break;
        }
        ssize_t n = nghttp2_session_mem_send(h->session, &h->rest);
        if (n < 0) {
            http2__kill(h, code_of(n));
            continue;
        }
        if (n == 0)
            break;
        h->rest_n = (size_t)n;
    }
    return h->to_n;
}

bool http2_done(const struct http2 *h)
{
    if (h->dead)
        return h->goaway_out;
    return h->rest_n == 0 && !nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session);
}

bool http2_in_head(const struct http2 *h)
{
    return (h->in_head || h->head_n || h->preface_left) && !h->dead;
}

/* --- replies --- */

int http2_respond(struct http2 *h, struct http2_stream *s, int status, const struct http_header *headers, size_t n, bool body)
{
    size_t n_nv;
    const nghttp2_data_provider data = {.read_callback = read_data};
    nghttp2_nv *nv = http2__make_nv(s->arena, status, headers, n, &n_nv);
    if (!nv || nghttp2_submit_response(h->session, s->id, nv, n_nv, body ? &data : NULL))
        return STATUS_NOMEM;
    return 0;
}

void http2_continue(struct http2 *h, struct http2_stream *s)
{
    size_t n;
    nghttp2_nv *nv = http2__make_nv(s->arena, 100, NULL, 0, &n);
    if (nv)
        nghttp2_submit_headers(h->session, NGHTTP2_FLAG_NONE, s->id, NULL, nv, n, NULL);
}

void http2_resume(struct http2 *h, struct http2_stream *s)
{
    if (!s->deferred)
        return;
    s->deferred = false;
    nghttp2_session_resume_data(h->session, s->id);
}

void http2_set_trailers(struct http2_stream *s, struct http_header *trailers, size_t n)
{
    s->trailers = trailers;
    s->n_trailers = n;
}

void http2_consume(struct http2 *h, struct http2_stream *s, size_t n)
{
    if (n)
        nghttp2_session_consume_stream(h->session, s->id, n);
}

void http2_reset(struct http2 *h, struct http2_stream *s, enum http2_code code, bool fault)
{
    s->ours = true;
    if (fault)
        http2__spend(h, HTTP2_GLITCH_INDUCED_RESET);
    nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, s->id, (uint32_t)code);
}

void http2_detach(struct http2 *h, struct http2_stream *s)
{
    nghttp2_session_set_stream_user_data(h->session, s->id, (void *)(uintptr_t)&DETACHED);
}

/* --- the end --- */

void http2_shutdown(struct http2 *h)
{
    nghttp2_submit_shutdown_notice(h->session); /* the PING follows when this is out: the library would put it in front */
}

void http2_ping(struct http2 *h)
{
    nghttp2_submit_ping(h->session, NGHTTP2_FLAG_NONE, NULL);
}

void http2_goaway(struct http2 *h)
{
    nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
}

void http2_terminate(struct http2 *h, enum http2_code code)
{
    nghttp2_session_terminate_session(h->session, (uint32_t)code);
}
