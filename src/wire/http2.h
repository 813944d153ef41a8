/* http2.h: the server side of one HTTP/2 connection (RFC 9113), bytes in, events and bytes out, no I/O and no clock. nghttp2 does
 * frames, HPACK and flow control; what is here makes requests of them, bounds everything a peer chooses, and keeps the glitch budget.
 *
 *     http2_input(bytes) -> begin, head, (body ...), end | closed           for each stream, in any interleaving
 *     http2_respond, http2_resume, http2_reset ... -> http2_output(bytes)   pending() and fill() are asked for reply bytes
 *
 * Order of a stream's events: begin; head exactly once unless closed comes first; body only behind head; end at most once; closed
 * exactly once unless the stream was detached. Events may call any function here except http2_input, http2_output and
 * http2_destroy.
 *
 * Glitches. What a client may do but no good client does often is counted by class and paid from one budget per connection (`glitches`,
 * refilled with `glitch_rate` a second): resets of unanswered streams (rapid reset, CVE-2023-44487), resets that it provokes from us
 * (CVE-2025-8671), CONTINUATION, SETTINGS, empty DATA, unknown frames; PING, PRIORITY, WINDOW_UPDATE and late resets only beyond what the
 * connection's real traffic explains (each stream and each DATA frame that we sent earns some of them). The budget spent, the
 * connection ends with GOAWAY ENHANCE_YOUR_CALM. The idea of one budget is HAProxy's, the earned frames are Envoy's.
 *
 * Memory: heads live in the arena that begin() gives, bounded by the limits; a connection without streams is nghttp2's session (two HPACK
 * tables and a frame buffer) and a small struct. Single thread. */
#ifndef INFERD_WIRE_HTTP2_H
#define INFERD_WIRE_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "wire/http1.h" /* struct http_header */
#include "wire/url.h"

struct http2;

#define HTTP2_PREFACE       "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define HTTP2_PREFACE_BYTES 24

/* RFC 9113, 7. */
enum http2_code {
    HTTP2_NO_ERROR = 0,
    HTTP2_PROTOCOL_ERROR = 1,
    HTTP2_INTERNAL_ERROR = 2,
    HTTP2_STREAM_CLOSED = 5,
    HTTP2_REFUSED_STREAM = 7,
    HTTP2_CANCEL = 8,
    HTTP2_ENHANCE_YOUR_CALM = 11,
};

enum http2_glitch {
    HTTP2_GLITCH_RESET,         /* the client reset a stream that was not answered yet */
    HTTP2_GLITCH_INDUCED_RESET, /* the client made us reset a stream: malformed, over a limit, too slow */
    HTTP2_GLITCH_CONTINUATION,
    HTTP2_GLITCH_SETTINGS,
    HTTP2_GLITCH_PING,
    HTTP2_GLITCH_PRIORITY,
    HTTP2_GLITCH_EMPTY_DATA,
    HTTP2_GLITCH_WINDOW,     /* WINDOW_UPDATE */
    HTTP2_GLITCH_HEADERS,    /* a header list past its limit */
    HTTP2_GLITCH_LATE_RESET, /* of a stream that is over */
    HTTP2_GLITCH_UNKNOWN,    /* frame types that we don't know, and those that only servers send */
    HTTP2_GLITCH_COUNT
};
/* "reset", "induced_reset", ...: metric label. */
const char *http2_glitch_name(enum http2_glitch g);

/* Borrowed for the life of the connection's http2_create call only. */
struct http2_limits {
    uint32_t max_streams; /* SETTINGS_MAX_CONCURRENT_STREAMS */
    uint32_t
        max_header_bytes; /* SETTINGS_MAX_HEADER_LIST_SIZE: names, values and 32 for each; past it 431, past 4 times it GOAWAY */
    uint32_t max_headers;       /* 431 */
    uint32_t max_url_bytes;     /* 414 */
    uint32_t max_continuations; /* of one header block, <= 8; past it GOAWAY */
    uint32_t
        window_bytes; /* of a stream: what may come and not be consumed. The connection's is twice as much, at least 1 MiB */
    uint32_t table_bytes; /* HPACK dynamic table, each direction */
    uint32_t glitches, glitch_rate;
};

/* One request. The owner embeds it in an object of its own; valid from begin until closed. */
struct http2_stream {
    /* set by the owner in begin */
    struct arena *arena;
    /* set by the owner at any time: a reply that ends before the request leaves the stream open for the rest of that, which body() still
     * gets; else the client is told with RST_STREAM NO_ERROR to stop (RFC 9113, 8.1), which some take for a failure of the reply */
    bool linger;
    /* valid from head on, in the arena */
    struct str method, scheme;
    struct url_target url;
    struct http_header *headers; /* without pseudo-headers; ":authority" is the first, as "host" */
    uint32_t n_headers;
    bool has_body;        /* DATA may follow; else `end` comes at once */
    bool has_length;      /* content-length was given (nghttp2 checks that it is kept) */
    bool expect_continue; /* wants 100 before it sends the body */
    uint64_t content_length;
    int error_status;       /* not 0: to be refused with this: 400, 414, 417, 431, 501 */
    const char *error_text; /* constant, a sentence */
    int32_t id;
    bool answered; /* the end of the reply was put out */
    /* private */
    uint32_t header_cap;
    struct str path, authority;
    uint64_t head_bytes;
    struct http_header *trailers;
    size_t n_trailers;
    bool deferred, ours, client_ended;
};

struct http2_events {
    /* A new request. NULL: no memory, the stream is refused. */
    struct http2_stream *(*begin)(void *user);
    void (*head)(void *user, struct http2_stream *s);
    /* Body bytes, borrowed. Give them back with http2_consume, now or later. */
    void (*body)(void *user, struct http2_stream *s, const uint8_t *p, size_t n);
    /* The client has sent its last byte on this stream. */
    void (*end)(void *user, struct http2_stream *s);
    /* The stream is over. `complete`: all of the reply was put out. `s` is not touched any more. */
    void (*closed)(void *user, struct http2_stream *s, bool complete);
    /* How many bytes of the reply's body are ready; `*last`: no more will come behind them. */
    size_t (*pending)(void *user, struct http2_stream *s, bool *last);
    /* Put the next `n` (<= pending) bytes of the reply's body to `to`. */
    void (*fill)(void *user, struct http2_stream *s, uint8_t *to, size_t n);
    void (*glitch)(void *user, enum http2_glitch g);
    /* The budget is spent: the connection ends. */
    void (*overdrawn)(void *user);
    /* The answer to http2_shutdown's notice: the client knows. */
    void (*shutdown_seen)(void *user);
};

/* `e` and `user` are borrowed for the life of the connection. The first output is our SETTINGS. STATUS_NOMEM. */
int http2_create(const struct http2_limits *l, const struct http2_events *e, void *user, struct http2 **out,
                 struct error *err) MUST_CHECK;
void http2_destroy(struct http2 *h); /* no events */

/* Take all of `n` bytes, beginning with the client's preface. False: the connection is over; write what http2_output still gives. */
bool http2_input(struct http2 *h, const uint8_t *p, size_t n, uint64_t now_ns);
/* Put what is to be sent to `to`; returns the bytes, 0 when there is nothing. `room` >= HTTP2_OUTPUT_MIN. */
size_t http2_output(struct http2 *h, uint8_t *to, size_t room);
#define HTTP2_OUTPUT_MIN (16384 + 9)
/* Nothing more will be read or written: close the connection. */
bool http2_done(const struct http2 *h);
/* A header block has begun and not ended. */
bool http2_in_head(const struct http2 *h);

/* Begin the reply. Names are lowered. `body`: pending() will be asked; else the head ends the stream. STATUS_NOMEM. */
int http2_respond(struct http2 *h, struct http2_stream *s, int status, const struct http_header *headers, size_t n,
                  bool body) MUST_CHECK;
/* "100 Continue". */
void http2_continue(struct http2 *h, struct http2_stream *s);
/* pending() has more to say than it had. */
void http2_resume(struct http2 *h, struct http2_stream *s);
/* Headers behind the body, sent when pending() says last; borrowed until closed. Before that, and before the resume. */
void http2_set_trailers(struct http2_stream *s, struct http_header *trailers, size_t n);
/* `n` body bytes of the stream are dealt with: the client may send as many again. */
void http2_consume(struct http2 *h, struct http2_stream *s, size_t n);
/* Reset the stream; closed follows with the next output. `fault`: the client's, a glitch is counted. */
void http2_reset(struct http2 *h, struct http2_stream *s, enum http2_code code, bool fault);
/* The owner forgets `s` now: no event of this stream comes any more. */
void http2_detach(struct http2 *h, struct http2_stream *s);

/* Ask the peer for a sign of life; its answer is no event. */
void http2_ping(struct http2 *h);

/* Graceful end, first half (RFC 9113, 6.8): tell the client to open no more streams; those on their way are still served. */
void http2_shutdown(struct http2 *h);
/* Second half: streams from now on are ignored; when those that run are over, http2_done is true. */
void http2_goaway(struct http2 *h);
/* End at once: GOAWAY with `code`, then done. Streams that run are cut off. */
void http2_terminate(struct http2 *h, enum http2_code code);

#endif
