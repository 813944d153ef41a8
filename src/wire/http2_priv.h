/* http2_priv.h: private to wire/http2*.c. */
#ifndef INFERD_WIRE_HTTP2_PRIV_H
#define INFERD_WIRE_HTTP2_PRIV_H

#include <nghttp2/nghttp2.h>

#include "wire/http2.h"

struct http2 {
    nghttp2_session *session;
    const struct http2_events *events;
    void *user;
    /* limits, as in struct http2_limits */
    uint32_t max_header_bytes, max_headers, max_url_bytes, max_continuations, glitches, glitch_rate;
    /* input */
    uint64_t now_ns, refilled_ns;
    uint32_t tokens;        /* left of the budget */
    uint32_t credit;        /* light frames that real traffic has earned */
    uint32_t continuations; /* of the current header block */
    bool in_head;
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

#endif
