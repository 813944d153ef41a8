/* http2_priv.h: private to wire/http2*.c. */
#ifndef INFERD_WIRE_HTTP2_PRIV_H
#define INFERD_WIRE_HTTP2_PRIV_H

#include <nghttp2/nghttp2.h>

#include "wire/http2.h"

enum {
    HTTP2_REMEMBERED = 16,
    HTTP2_CREDIT_FIRST = 64, /* a client's greeting: a few PRIORITY and WINDOW_UPDATE frames */
    HTTP2_CREDIT_MAX = 65536,
};

struct http2 {
    nghttp2_session *session;
    const struct http2_events *events;
    void *user;
    /* limits, as in struct http2_limits */
    uint32_t max_header_bytes, max_headers, max_url_bytes, max_continuations, glitches, glitch_rate;
    /* input */
    uint64_t now_ns, refilled_ns;
    uint32_t tokens;         /* left of the budget */
    uint32_t credit;         /* light frames that real traffic has earned */
    uint32_t continuations;  /* of the current header block */
    uint32_t frame_left;     /* of the current frame's payload */
    uint8_t head[9], head_n; /* the frame's head, as far as it has come */
    uint8_t preface_left;
    bool in_head;
    int32_t last_id;                 /* highest stream that the client has opened */
    int32_t ended[HTTP2_REMEMBERED]; /* closed streams of late: that the client had ended or reset */
    int32_t reset[HTTP2_REMEMBERED]; /* and that we have reset */
    uint32_t ended_at, reset_at;
    /* the end */
    bool dead, goaway_out; /* dead: nghttp2 is not asked any more; what is left to send is our GOAWAY */
    enum http2_code dead_code;
    /* output */
    const uint8_t *rest; /* of the frame that nghttp2 gave last */
    size_t rest_n;
    uint8_t *to; /* during http2_output */
    size_t to_n, room;
};

/* --- http2.c --- */
/* The stream's object; NULL for one that is closed, detached, or not opened. */
struct http2_stream *http2__stream_of(struct http2 *h, int32_t id);

/* --- http2_guard.c --- */
/* A frame's head is complete: count it, check its stream. False: the connection is dead. */
bool http2__judge(struct http2 *h);
/* The client has earned `n` light frames. */
void http2__earn(struct http2 *h, uint32_t n);
/* Add to a ring of HTTP2_REMEMBERED stream ids. */
void http2__remember(int32_t *ids, uint32_t *at, int32_t id);
/* Count a glitch and pay for it. False: the budget is spent and the connection dead. */
bool http2__spend(struct http2 *h, enum http2_glitch g);
/* End the connection with our own GOAWAY. */
void http2__kill(struct http2 *h, enum http2_code code);

/* --- http2_head.c --- */
/* One field of a request's head, which nghttp2 has checked by itself; copied. False: the list is far past its limit. */
bool http2__head_add(struct http2 *h, struct http2_stream *s, struct str name, struct str value);
/* The head is complete: check what spans fields and take the target apart. Sets error_status. */
void http2__head_end(struct http2_stream *s, bool has_body);
/* A list of headers for nghttp2, in the arena, with `:status` in front when `status` is not 0; names lowered; what can't be
 * a field is left out. NULL: out of memory. */
nghttp2_nv *http2__make_nv(struct arena *a, int status, const struct http_header *headers, size_t n, size_t *n_out);
/* The same for a request, its pseudo-headers in front as they are. */
nghttp2_nv *http2__make_request_nv(struct arena *a, const struct http_header *pseudo, size_t n_pseudo,
                                   const struct http_header *headers, size_t n, size_t *n_out);

#endif
