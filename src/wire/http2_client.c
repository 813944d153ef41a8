/* http2_client.c: nghttp2's client session behind http2_client.h.
 *
 * A call's object is its stream's user data until it is over; a stream without one is passed over (it was cancelled, or has ended). A head block
 * is collected field by field and given out when its frame is complete: interim answers are dropped there. nghttp2 has checked each field, the
 * order of blocks, and that content-length is kept.
 *
 * How bytes go in and out is in http2_session.c. */
#include "wire/http2_client.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/http2_priv.h"

#define FIELD_OVERHEAD    32 /* RFC 9113, 10.5.1 */
#define CONTINUATIONS_MAX 8
#define STREAMS_AT_FIRST  16 /* before the server has said how many it takes; more wait inside nghttp2 */

struct http2_client {
    struct http2_session w;
    const struct http2_client_events *events;
    void *user;
    uint32_t max_header_bytes, max_headers;
    uint32_t n_calls;
    uint32_t continuations; /* of the current header block */
    bool going;             /* GOAWAY came, or went */
    const char *why;
};

static struct http2_call *call_of(struct http2_client *h, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h->w.ng, id);
}

/* It is over: no event of it comes any more. */
static void forget(struct http2_client *h, struct http2_call *c)
{
    nghttp2_session_set_stream_user_data(h->w.ng, c->id, NULL);
    h->n_calls--;
}

static int result(const struct http2_client *h)
{
    return h->w.dead ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void kill(struct http2_client *h, const char *why)
{
    if (!h->why)
        h->why = why;
    h->w.dead = true;
}

/* ---- callbacks: heads ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, frame->hd.stream_id);
    (void)session;
    if (!c)
        return 0;
    c->block_bytes = c->cap = 0;
    c->in_trailers = c->got_head;
    if (c->in_trailers) {
        c->trailers = NULL;
        c->n_trailers = 0;
    } else {
        c->status = 0;
        c->headers = NULL;
        c->n_headers = 0;
        c->has_length = false;
    }
    return 0;
}

static bool push(struct http2_call *c, struct str name, struct str value)
{
    struct http_header **list = c->in_trailers ? &c->trailers : &c->headers;
    uint32_t *n = c->in_trailers ? &c->n_trailers : &c->n_headers;
    if (*n == c->cap) {
        uint32_t cap = c->cap ? c->cap * 2 : 16;
        struct http_header *more = arena_array(c->arena, cap, sizeof *more);
        if (!more)
            return false;
        if (*n)
            memcpy(more, *list, *n * sizeof *more);
        *list = more;
        c->cap = cap;
    }
    char *own_name = arena_strdup(c->arena, name), *own_value = arena_strdup(c->arena, value);
    (*list)[*n] = (struct http_header){{own_name, name.n}, {own_value, value.n}};
    *n += own_name && own_value;
    return own_name && own_value;
}

static bool field(const struct http2_client *h, struct http2_call *c, struct str name, struct str value)
{
    uint64_t status;
    c->block_bytes += (uint32_t)(name.n + value.n + FIELD_OVERHEAD);
    if (c->block_bytes > h->max_header_bytes || (c->in_trailers ? c->n_trailers : c->n_headers) >= h->max_headers)
        return false;
    if (str_eqz(name, ":status")) {
        c->status = str_to_u64(value, &status) ? (int)MIN_OF(status, (uint64_t)999) : 0;
        return c->status >= 100; /* the library looks at its length only */
    }
    if (!c->in_trailers && str_eqz(name, "content-length"))
        c->has_length = str_to_u64(value, &c->content_length);
    return push(c, name, value);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                     const uint8_t *value, size_t value_n, uint8_t flags, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, frame->hd.stream_id);
    (void)session, (void)flags;
    if (!c || field(h, c, (struct str){(const char *)name, name_n}, (struct str){(const char *)value, value_n}))
        return 0;
    c->bad = true;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the stream is reset */
}

/* The answer is complete; what is left of the request is not wanted any more. */
static void ended(struct http2_client *h, struct http2_call *c)
{
    if (!c->sent_all)
        nghttp2_submit_rst_stream(h->w.ng, NGHTTP2_FLAG_NONE, c->id, NGHTTP2_NO_ERROR);
    forget(h, c);
    h->events->end(h->user, c);
}

static void head_received(struct http2_client *h, struct http2_call *c, bool end)
{
    int32_t id = c->id;
    if (c->status / 100 == 1 && !end)
        return; /* interim: the next block begins anew */
    c->got_head = true;
    c->has_body = !end;
    h->events->head(h->user, c);
    c = call_of(h, id);
    if (end && c)
        ended(h, c);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, frame->hd.stream_id);
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        h->going = true;
    if (!c || c->bad)
        return result(h);
    if (frame->hd.type == NGHTTP2_HEADERS && !c->in_trailers)
        head_received(h, c, end);
    else if (end && (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA))
        ended(h, c);
    return result(h);
}

/* ---- callbacks: bodies, ends ---- */

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t n, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, id);
    (void)flags;
    /* the connection's window is for all: only the stream's waits for the owner */
    if (nghttp2_session_consume_connection(session, n))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (c)
        h->events->body(h->user, c, data, n);
    return result(h);
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, id);
    (void)session;
    if (!c)
        return 0;
    forget(h, c);
    enum http2_failure unbegun = h->going ? HTTP2_CALL_LEFT : HTTP2_CALL_UNBEGUN;
    h->events->failed(h->user, c, code == NGHTTP2_REFUSED_STREAM && !c->got_head ? unbegun : HTTP2_CALL_RESET, code);
    return result(h);
}

/* A request that could not be put out: the connection was told to go meanwhile. */
static int on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int code, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = frame->hd.type == NGHTTP2_HEADERS ? call_of(h, frame->hd.stream_id) : NULL;
    (void)session, (void)code;
    if (!c)
        return 0;
    forget(h, c);
    h->events->failed(h->user, c, h->going ? HTTP2_CALL_LEFT : HTTP2_CALL_UNBEGUN, NGHTTP2_REFUSED_STREAM);
    return result(h);
}

/* ---- callbacks: output ---- */

static ssize_t read_data(nghttp2_session *session, int32_t id, uint8_t *to, size_t most, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, id);
    bool last = false;
    (void)session, (void)to, (void)source;
    if (!c)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = h->events->pending(h->user, c, &last).n, take = MIN_OF(n, most);
    if (take == 0 && !last) {
        c->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags = NGHTTP2_DATA_FLAG_NO_COPY;
    if (last && take == n)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)take;
}

static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t n, nghttp2_data_source *source,
                     void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, frame->hd.stream_id);
    bool last;
    (void)session, (void)source;
    if (!http2__session_fits(&h->w, n))
        return NGHTTP2_ERR_WOULDBLOCK;
    if (!c)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    uint8_t *to = http2__session_put_frame(&h->w, head, n);
    if (n) {
        memcpy(to, h->events->pending(h->user, c, &last).p, n);
        h->events->taken(h->user, c, n);
    }
    return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct http2_client *h = user;
    struct http2_call *c = call_of(h, frame->hd.stream_id);
    (void)session;
    if (c && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        c->sent_all = true;
    return 0;
}

/* ---- life ---- */

static void set_callbacks(nghttp2_session_callbacks *c)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(c, on_not_sent);
    nghttp2_session_callbacks_set_send_data_callback(c, send_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, on_frame_send);
}

static void set_options(nghttp2_option *option)
{
    nghttp2_option_set_peer_max_concurrent_streams(option, STREAMS_AT_FIRST);
}

static bool judge(void *owner)
{
    struct http2_client *h = owner;
    h->continuations = h->w.head[3] == NGHTTP2_CONTINUATION ? h->continuations + 1 : 0;
    if (h->continuations > CONTINUATIONS_MAX)
        kill(h, "a header block in more CONTINUATION frames than are accepted");
    return !h->w.dead;
}

static void gave_up(void *owner, ssize_t code)
{
    kill(owner, nghttp2_strerror((int)code));
}

static const struct http2_side CLIENT = {
    .create = nghttp2_session_client_new2,
    .set_callbacks = set_callbacks,
    .set_options = set_options,
    .judge = judge,
    .gave_up = gave_up,
};

static int greet(struct http2_client *h, const struct http2_client_limits *l)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, l->window_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, l->max_header_bytes},
        {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, l->table_bytes},
    };
    int rc = nghttp2_submit_settings(h->w.ng, NGHTTP2_FLAG_NONE, settings, COUNT_OF(settings));
    return rc ? rc : nghttp2_session_set_local_window_size(h->w.ng, NGHTTP2_FLAG_NONE, 0, (int32_t)l->connection_bytes);
}

int http2_client_create(const struct http2_client_limits *l, const struct http2_client_events *e, void *user,
                        struct http2_client **out, struct error *err)
{
    struct http2_client *h = fault_point("http2_client") ? NULL : calloc(1, sizeof *h);
    if (h) {
        h->events = e;
        h->user = user;
        h->max_header_bytes = l->max_header_bytes;
        h->max_headers = l->max_headers;
        if (http2__session_init(&h->w, &CLIENT, h, l->table_bytes) == 0 && greet(h, l) == 0) {
            *out = h;
            return 0;
        }
    }
    http2_client_destroy(h);
    return error_set(err, STATUS_NOMEM, "out of memory for an HTTP/2 connection");
}

void http2_client_destroy(struct http2_client *h)
{
    if (!h)
        return;
    nghttp2_session_del(h->w.ng);
    free(h);
}

/* ---- input and output ---- */

bool http2_client_input(struct http2_client *h, const uint8_t *p, size_t n)
{
    while (n && !h->w.dead) {
        size_t take = http2__session_take_frame(&h->w, p, n);
        p += take;
        n -= take;
    }
    return !h->w.dead;
}

size_t http2_client_output(struct http2_client *h, uint8_t *to, size_t room)
{
    if (h->w.dead)
        return 0;
    http2__session_output(&h->w, to, room);
    return h->w.to_n;
}

bool http2_client_done(const struct http2_client *h)
{
    return h->w.dead || http2__session_is_over(&h->w);
}

const char *http2_client_why(const struct http2_client *h)
{
    return h->why ? h->why : h->going ? "the server said goodbye (GOAWAY)" : "the server ended the connection";
}

/* ---- calls ---- */

uint32_t http2_client_room(const struct http2_client *h)
{
    uint32_t most = nghttp2_session_get_remote_settings(h->w.ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    if (h->going || h->w.dead || !nghttp2_session_check_request_allowed(h->w.ng) || h->n_calls >= most)
        return 0;
    return most - h->n_calls;
}

uint32_t http2_client_calls(const struct http2_client *h)
{
    return h->n_calls;
}

int http2_client_submit(struct http2_client *h, struct http2_call *c, const struct http2_client_request *r)
{
    const nghttp2_data_provider data = {.read_callback = read_data};
    size_t n;
    *c = (struct http2_call){.arena = c->arena, .user = c->user, .sent_all = !r->body};
    if (h->going || h->w.dead || !nghttp2_session_check_request_allowed(h->w.ng))
        return STATUS_UNAVAILABLE;
    const struct http_header pseudo[] = {
        {STR(":method"), r->method}, {STR(":scheme"), r->scheme}, {STR(":authority"), r->authority}, {STR(":path"), r->path}};
    nghttp2_nv *nv = http2__make_request_nv(c->arena, pseudo, COUNT_OF(pseudo), r->headers, r->n_headers, &n);
    int32_t id = nv ? nghttp2_submit_request(h->w.ng, NULL, nv, n, r->body ? &data : NULL, c) : NGHTTP2_ERR_NOMEM;
    if (id < 0)
        return id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE ? STATUS_UNAVAILABLE : STATUS_NOMEM;
    c->id = id;
    h->n_calls++;
    return 0;
}

void http2_client_resume(struct http2_client *h, struct http2_call *c)
{
    if (!c->deferred)
        return;
    c->deferred = false;
    nghttp2_session_resume_data(h->w.ng, c->id);
}

void http2_client_consume(struct http2_client *h, struct http2_call *c, size_t n)
{
    if (n)
        nghttp2_session_consume_stream(h->w.ng, c->id, n);
}

void http2_client_cancel(struct http2_client *h, struct http2_call *c)
{
    forget(h, c);
    nghttp2_submit_rst_stream(h->w.ng, NGHTTP2_FLAG_NONE, c->id, NGHTTP2_CANCEL);
}

void http2_client_ping(struct http2_client *h)
{
    nghttp2_submit_ping(h->w.ng, NGHTTP2_FLAG_NONE, NULL);
}

void http2_client_goaway(struct http2_client *h)
{
    h->going = true;
    nghttp2_session_terminate_session(h->w.ng, NGHTTP2_NO_ERROR);
}
