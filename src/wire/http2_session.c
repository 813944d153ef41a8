/* http2_session.c: what a server's and a client's connection over nghttp2 share: the library's session, input cut at frames, output gathered
 * in the caller's buffer. See struct http2_session in http2_priv.h.
 *
 * Input is cut at frames: the owner judges the head of each before nghttp2 sees it. The library's own callback for that does not come for
 * frames that it passes over, and those are just as good for a flood.
 *
 * Output. nghttp2 gives control frames one by one as bytes of its own; DATA frames come through the owner's send_data callback, which writes
 * frame head and payload straight to the caller's buffer, so a body is copied once between where it was left and the socket. When a DATA
 * frame does not fit, nghttp2 is told to wait and offers the same frame at the next call. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "wire/http2_priv.h"

static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_n,
                             const uint8_t *value, size_t value_n, uint8_t flags, void *user)
{
    (void)session, (void)frame, (void)name, (void)name_n, (void)value, (void)value_n, (void)flags, (void)user;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the library would pass over the field: the stream is reset instead */
}

int http2__session_init(struct http2_session *w, const struct http2_side *side, void *owner, uint32_t table_bytes)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    *w = (struct http2_session){.side = side, .owner = owner};
    int rc = nghttp2_session_callbacks_new(&callbacks);
    if (rc == 0)
        rc = nghttp2_option_new(&option);
    if (rc == 0) {
        nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
        side->set_callbacks(callbacks);
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_max_deflate_dynamic_table_size(option, table_bytes);
        side->set_options(option);
        rc = side->create(&w->ng, callbacks, owner, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return rc;
}

bool http2__session_feed(struct http2_session *w, const uint8_t *p, size_t n)
{
    ssize_t rc = n && !w->dead ? nghttp2_session_mem_recv(w->ng, p, n) : 0;
    if (rc < 0)
        w->side->gave_up(w->owner, rc);
    return !w->dead;
}

size_t http2__session_take_frame(struct http2_session *w, const uint8_t *p, size_t n)
{
    size_t used = 0;
    if (w->frame_left == 0) {
        used = MIN_OF(n, (size_t)HTTP2_FRAME_HEAD_BYTES - w->head_n);
        memcpy(w->head + w->head_n, p, used);
        w->head_n += (uint8_t)used;
        if (w->head_n < HTTP2_FRAME_HEAD_BYTES)
            return used;
        w->head_n = 0;
        w->frame_left = (uint32_t)w->head[0] << 16 | (uint32_t)w->head[1] << 8 | w->head[2];
        if (!w->side->judge(w->owner) || !http2__session_feed(w, w->head, HTTP2_FRAME_HEAD_BYTES))
            return used;
    }
    size_t part = MIN_OF(n - used, (size_t)w->frame_left);
    w->frame_left -= (uint32_t)part;
    http2__session_feed(w, p + used, part);
    return used + part;
}

bool http2__session_fits(const struct http2_session *w, size_t n)
{
    return w->room - w->to_n >= HTTP2_FRAME_HEAD_BYTES + n;
}

uint8_t *http2__session_put_frame(struct http2_session *w, const uint8_t *head, size_t n)
{
    uint8_t *at = w->to + w->to_n;
    ASSERT(http2__session_fits(w, n));
    memcpy(at, head, HTTP2_FRAME_HEAD_BYTES);
    w->to_n += HTTP2_FRAME_HEAD_BYTES + n;
    return at + HTTP2_FRAME_HEAD_BYTES;
}

static void put_rest(struct http2_session *w)
{
    size_t n = MIN_OF(w->rest_n, w->room - w->to_n);
    if (n == 0)
        return;
    memcpy(w->to + w->to_n, w->rest, n);
    w->to_n += n;
    w->rest += n;
    w->rest_n -= n;
}

void http2__session_output(struct http2_session *w, uint8_t *to, size_t room)
{
    ASSERT(room >= HTTP2_OUTPUT_MIN);
    w->to = to;
    w->to_n = 0;
    w->room = room;
    for (;;) {
        put_rest(w);
        if (w->rest_n || w->dead)
            return;
        ssize_t n = nghttp2_session_mem_send(w->ng, &w->rest);
        if (n < 0)
            w->side->gave_up(w->owner, n);
        if (n <= 0)
            return;
        w->rest_n = (size_t)n;
    }
}

bool http2__session_is_over(const struct http2_session *w)
{
    return w->rest_n == 0 && !nghttp2_session_want_read(w->ng) && !nghttp2_session_want_write(w->ng);
}
