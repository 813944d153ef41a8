/* http2_priv.h: private to wire/http2*.c. */
#ifndef INFERD_WIRE_HTTP2_PRIV_H
#define INFERD_WIRE_HTTP2_PRIV_H

#include <nghttp2/nghttp2.h>

#include "wire/http2.h"

enum {
    HTTP2_FRAME_HEAD_BYTES = 9,
    HTTP2_REMEMBERED = 16,
    HTTP2_CREDIT_FIRST = 64, /* a client's greeting: a few PRIORITY and WINDOW_UPDATE frames */
    HTTP2_CREDIT_MAX = 65536,
};

/* What a server's and a client's session differ in. Each is called with the owner's address. */
struct http2_side {
    int (*create)(nghttp2_session **out, const nghttp2_session_callbacks *callbacks, void *owner, const nghttp2_option *option);
    void (*set_callbacks)(nghttp2_session_callbacks *callbacks); /* but on_invalid_header, which is there */
    void (*set_options)(nghttp2_option *option);                 /* but those that both have */
    bool (*judge)(void *owner);                                  /* a frame's head is in head[]. False: it is dead */
    void (*gave_up)(void *owner, ssize_t code);                  /* nghttp2's own; to set `dead` */
};

/* A session of nghttp2 with what is under way in and out. Embedded in its owner. */
struct http2_session {
    nghttp2_session *ng;
    const struct http2_side *side;
    void *owner;
    bool dead; /* nghttp2 is not asked any more */
    /* input */
    uint8_t head_n, head[HTTP2_FRAME_HEAD_BYTES]; /* the frame's head, as far as it has come */
    uint32_t frame_left;                          /* of the current frame's payload */
    /* output */
    const uint8_t *rest; /* of the frame that nghttp2 gave last */
    size_t rest_n;
    uint8_t *to; /* the caller's buffer, during output */
    size_t to_n, room;
};

struct http2 {
    struct http2_session w;
    const struct http2_events *events;
    void *user;
    /* limits, as in struct http2_limits */
    uint32_t max_header_bytes, max_headers, max_url_bytes, max_continuations, glitches, glitch_rate;
    /* input */
    uint64_t now_ns, refilled_ns;
    uint32_t tokens;        /* left of the budget */
    uint32_t credit;        /* light frames that real traffic has earned */
    uint32_t continuations; /* of the current header block */
    uint8_t preface_left;
    bool in_head;
    int32_t last_id;                 /* highest stream that the client has opened */
    int32_t ended[HTTP2_REMEMBERED]; /* closed streams of late: that the client had ended or reset */
    int32_t reset[HTTP2_REMEMBERED]; /* and that we have reset */
    uint32_t ended_at, reset_at;
    /* the end: when w.dead, what is left to send is our GOAWAY */
    bool goaway_out;
    enum http2_code dead_code;
};

/* --- http2_session.c --- */
/* Make the session; 0 or nghttp2's error. Its `ng` is the owner's to delete in any case. */
int http2__session_init(struct http2_session *w, const struct http2_side *side, void *owner, uint32_t table_bytes);
/* Bytes for nghttp2, unless it is dead. False: it is now. */
bool http2__session_feed(struct http2_session *w, const uint8_t *p, size_t n);
/* One frame, or what has come of it: its head is judged before the library sees it, when all in front of it is done. The bytes taken. */
size_t http2__session_take_frame(struct http2_session *w, const uint8_t *p, size_t n);
/* A frame with a payload of `n` bytes has room in the output. */
bool http2__session_fits(const struct http2_session *w, size_t n);
/* Put a frame's head out, for which http2__session_fits() said yes; where its payload is to be written. */
uint8_t *http2__session_put_frame(struct http2_session *w, const uint8_t *head, size_t n);
/* Gather what there is to send into `to`, HTTP2_OUTPUT_MIN bytes at least: to_n afterwards. */
void http2__session_output(struct http2_session *w, uint8_t *to, size_t room);
/* Nothing is left to read or to send. */
bool http2__session_is_over(const struct http2_session *w);

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
