/* http2_guard.c: what an HTTP/2 client may do, and how often: the glitch budget of http2.h, the judging of frame heads, and memory of
 * closed streams.
 *
 * nghttp2 forgets closed streams here (it would keep hundreds of bytes for each of the last max_streams) and then passes over DATA and HEADERS
 * for them, as it must for a stream that we reset while they were on their way. The two short rings tell that case from a client that
 * goes on with a stream it has ended itself. A ring that is too short errs on the side of passing over for DATA; HEADERS of a stream
 * that was reset more than HTTP2_REMEMBERED resets ago are taken for an error, which only request trailers could meet. */
#include "base/size.h"
#include "wire/http2_priv.h"

#define SECOND 1000000000ull

/* --- the budget --- */

void http2__kill(struct http2 *h, enum http2_code code)
{
    if (h->w.dead)
        return;
    h->w.dead = true;
    h->dead_code = code;
}

static void refill(struct http2 *h)
{
    uint64_t since = h->now_ns - h->refilled_ns;
    if (h->glitch_rate == 0 || since < SECOND / h->glitch_rate)
        return;
    uint64_t more = since > 3600 * SECOND ? h->glitches : since * h->glitch_rate / SECOND;
    h->tokens = (uint32_t)MIN_OF(h->tokens + more, (uint64_t)h->glitches);
    h->refilled_ns = h->now_ns;
}

bool http2__spend(struct http2 *h, enum http2_glitch g)
{
    h->events->glitch(h->user, g);
    refill(h);
    if (h->tokens == 0) {
        if (!h->w.dead)
            h->events->overdrawn(h->user);
        http2__kill(h, HTTP2_ENHANCE_YOUR_CALM);
        return false;
    }
    h->tokens--;
    return !h->w.dead;
}

/* Frames that good clients send in proportion to their traffic: earned first, then paid for. */
static bool light(struct http2 *h, enum http2_glitch g)
{
    if (h->credit == 0)
        return http2__spend(h, g);
    h->credit--;
    return true;
}

void http2__earn(struct http2 *h, uint32_t n)
{
    h->credit = MIN_OF(h->credit + n, HTTP2_CREDIT_MAX);
}

/* --- closed streams --- */

void http2__remember(int32_t *ids, uint32_t *at, int32_t id)
{
    ids[(*at)++ % HTTP2_REMEMBERED] = id;
}

static bool is_remembered(const int32_t *ids, int32_t id)
{
    for (int i = 0; i < HTTP2_REMEMBERED; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* DATA or HEADERS of a stream that nghttp2 does not have. It would pass over them, since they may have crossed our reset; a stream that
 * the client itself has ended, or never opened, is an error (RFC 9113, 5.1 and 5.1.1). */
static bool check_stream(struct http2 *h, uint8_t type, int32_t id)
{
    if (nghttp2_session_get_stream_user_data(h->w.ng, id) || id == 0 || id > h->last_id)
        return true;
    if (is_remembered(h->ended, id))
        http2__kill(h, HTTP2_STREAM_CLOSED);
    else if (type == NGHTTP2_HEADERS && !is_remembered(h->reset, id))
        http2__kill(h, HTTP2_PROTOCOL_ERROR);
    return !h->w.dead;
}

/* --- frames --- */

static bool count_reset(struct http2 *h, int32_t id)
{
    struct http2_stream *s = http2__stream_of(h, id);
    if (s)
        s->client_ended = true;
    else if (is_remembered(h->reset, id))
        http2__remember(h->ended, &h->ended_at, id); /* it has seen our reset, or forestalled it: nothing more may come */
    if (s && !s->answered)
        return http2__spend(h, HTTP2_GLITCH_RESET);
    return light(h, HTTP2_GLITCH_LATE_RESET);
}

static bool count_continuation(struct http2 *h)
{
    if (!http2__spend(h, HTTP2_GLITCH_CONTINUATION))
        return false;
    if (++h->continuations > h->max_continuations)
        http2__kill(h, HTTP2_ENHANCE_YOUR_CALM);
    return !h->w.dead;
}

bool http2__judge(struct http2 *h)
{
    const uint8_t *head = h->w.head;
    uint8_t type = head[3], flags = head[4];
    int32_t id = (int32_t)((uint32_t)(head[5] & 0x7f) << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8]);
    bool ack = flags & NGHTTP2_FLAG_ACK, end = flags & NGHTTP2_FLAG_END_STREAM;
    h->in_head = type == NGHTTP2_HEADERS || type == NGHTTP2_CONTINUATION;
    switch (type) {
    case NGHTTP2_DATA:
        return check_stream(h, type, id) && (h->w.frame_left || end || http2__spend(h, HTTP2_GLITCH_EMPTY_DATA));
    case NGHTTP2_HEADERS:
        h->continuations = 0;
        if (!check_stream(h, type, id))
            return false;
        h->last_id = MAX_OF(h->last_id, id);
        return true;
    case NGHTTP2_CONTINUATION:
        return count_continuation(h);
    case NGHTTP2_PRIORITY: /* the library passes over it, since our SETTINGS say that there are no such priorities */
        if (id == 0)
            http2__kill(h, HTTP2_PROTOCOL_ERROR);
        return !h->w.dead && light(h, HTTP2_GLITCH_PRIORITY);
    case NGHTTP2_PRIORITY_UPDATE:
        return light(h, HTTP2_GLITCH_PRIORITY);
    case NGHTTP2_RST_STREAM:
        return count_reset(h, id);
    case NGHTTP2_SETTINGS:
        return ack || http2__spend(h, HTTP2_GLITCH_SETTINGS);
    case NGHTTP2_PING:
        return light(h, HTTP2_GLITCH_PING);
    case NGHTTP2_WINDOW_UPDATE:
        return light(h, HTTP2_GLITCH_WINDOW);
    case NGHTTP2_GOAWAY:
        return true;
    default:
        return http2__spend(h, HTTP2_GLITCH_UNKNOWN);
    }
}
