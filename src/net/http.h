/* http.h: the server side of HTTP as the rest of inferd sees it: requests come in whole or, for handlers that ask, in pieces;
 * replies go out as slices or as a stream. The same interface serves HTTP/1.1 and HTTP/2 streams.
 *
 * Threads: everything happens on the connection's loop thread. Life of a request: headers parsed -> on_headers -> body
 * collected in slabs up to the limit (decompressed, de-chunked) -> on_request -> exactly one reply -> freed when the reply is
 * written or the connection is gone and nobody holds it. on_gone is called at most once, when the client went away before
 * the reply was complete, and never from within a handler's own call of a function here: cancel what runs, then still answer (the
 * reply is dropped; a stream is ended) or release the hold.
 * If the client left while the body was still coming, on_request is never called and there is nothing to answer. on_headers and
 * on_complete come in pairs; reply_status is 499 when the client left before any reply.
 *
 * Bodies in pieces (on_body) let a request body arrive while its reply flows: on_headers sets on_body -> on_request as soon as the
 * head is in -> on_body for each piece, the last one with `last` set; the reply may begin and end at any time from on_request on.
 * Such a handler answers exactly once too. What ends the exchange early: on_gone (the client reset the stream or left, or its body turned out to be
 * malformed or too long: over HTTP/1.x it is then told so in the handler's place, unless a reply has begun), the reply
 * being complete (the rest of the body is discarded; over HTTP/2 the client is told so, over HTTP/1.x the connection ends behind such a
 * reply), or http_stream_abort. Both directions push back: bytes that on_body has handed out and http_body_consumed has not given back close
 * the client's window, over HTTP/1.x nothing more is read from 256 KiB on; and http_stream_write says false until on_writable. A full stream
 * holds up no other stream of its connection. */
#ifndef INFERD_NET_HTTP_H
#define INFERD_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "net/loop.h"
#include "wire/http1.h" /* struct http_header */

struct http_server;
struct http_request;
struct metrics;
struct tls_context; /* net/tls.h */
struct network;     /* net/address.h */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OPTIONS, HTTP_PATCH, HTTP_OTHER };

/* Read-only for handlers, except the members they are told to set. */
struct http_request {
    enum http_method method;
    struct str method_text;
    struct str path;  /* without query; still percent-encoded; begins with '/' (or is "*") */
    struct str query; /* behind '?', may be empty */
    struct http_header *headers;
    size_t n_headers;
    struct slice body;       /* contiguous, decoded; owner set when non-empty. 64-byte aligned start */
    uint64_t received_ns;    /* last byte of the request */
    uint64_t first_byte_ns;  /* first byte of the request */
    uint64_t wire_in_bytes;  /* as received, with headers */
    uint64_t wire_out_bytes; /* set when the reply is complete */
    int reply_status;        /* set by http_reply* */
    /* Set before http_reply to a HEAD whose answer comes from elsewhere: what a GET's body would be long; -1: nobody said. Else it is
     * the length of the body that http_reply is given. */
    int64_t head_length;
    bool has_head_length;
    struct arena *arena; /* lives as long as the request */
    struct loop *loop;
    uint32_t max_inflate_ratio; /* the server's limit, for handlers that decompress parts of a body themselves */
    uint8_t version; /* 10, 11, 20: HTTP/1.0, HTTP/1.1, HTTP/2. Of the latter ":authority" is given as the header "host" */
    /* "127.0.0.1:4711" or "unix"; on_headers may replace it by the client's behind a trusted proxy, then with port 0. */
    struct str peer;
    struct str request_id;  /* x-request-id when well-formed ([A-Za-z0-9._-]{1,128}), else made */
    struct str traceparent; /* W3C trace context, empty when absent or malformed */
    bool gone;              /* client left; replies are dropped */
    bool secure;            /* came over TLS */
    /* Names of the verified client certificate, see tls_conn_peer_names; valid in on_headers only. */
    const struct str *peer_names;
    size_t n_peer_names;

    /* set by handlers in on_headers or on_request */
    void (*on_gone)(struct http_request *r);
    void *user;                /* handler's own state */
    void *taker;               /* state of whom the handler handed the request to */
    uint64_t body_limit_bytes; /* on_headers may lower or raise it from the server's default */
    const char *allow;         /* constant, for the Allow header of a 405 reply; NULL: none */
    uint32_t
        retry_after_s; /* for Retry-After of a 429 or 503, whoever replies; UINT32_MAX: none is sent; 0: as the reply says */
    /* Added to the reply, whatever it turns out to be; they live as long as the request. */
    const struct http_header *reply_headers;
    size_t n_reply_headers;
    /* Likewise, after those: of constants, numbers and labels that were checked when they were read, with names in lower case. Written unchecked. */
    const struct http_header *own_headers;
    size_t n_own_headers;
    struct str log_model, log_version; /* for the access log; borrowed until on_complete */

    /* Set in on_headers only: the body comes in pieces (see the top). `piece` is borrowed for the call, has no owner and may be empty
     * (an empty body is one empty last piece); copy what is to stay. `body` stays empty. body_limit_bytes bounds the sum of all pieces (a
     * stream without an end sets UINT64_MAX); past it the exchange is cut off and on_gone is called. A Content-Encoding other than
     * identity is refused with 415, or its bytes are handed out as they are (body_raw). */
    void (*on_body)(struct http_request *r, struct slice piece, bool last);
    bool body_raw;
    bool body_unhurried; /* with on_body: no body timeout; a stream may be quiet for as long as its client lives */
};

struct http_handler {
    /* Headers are in, the body is not: route, authenticate, set body_limit_bytes. Negative: refuse now with that status (err
     * text becomes the reply through on_error) and close if a body is under way. (optional) */
    int (*on_headers)(void *ctx, struct http_request *r, struct error *err);
    /* The whole request is in. Must lead to exactly one reply, now or later. */
    void (*on_request)(void *ctx, struct http_request *r);
    /* Write the body of an error reply into `body` ({"error": ...}); returns its content type. Called for protocol errors as
     * well, where `r` may be NULL (400, 408, 413, 431 before a request exists). */
    const char *(*on_error)(void *ctx, struct http_request *r, int status, const char *text, struct buf *body);
    /* The reply is written (or dropped): one access-log record. (optional) */
    void (*on_complete)(void *ctx, struct http_request *r, uint64_t now_ns);
    void *ctx;
    /* A request that on_headers has seen is to be answered with an error. True: answered in its protocol's own form, with http_reply;
     * false: on_error makes the body. (optional) */
    bool (*on_refuse)(void *ctx, struct http_request *r, int status, const char *text, uint32_t retry_after_s);
};

/* All limits of one server; each is an option of the config and has a counter inferd_http_limit_total{limit=...}. */
struct http_limits {
    uint32_t
        max_refused; /* connections past max_connections that are told so, per thread; 0: 128. The others are just closed. */
    uint32_t max_connections; /* over all threads; past it: accept, 503, close */
    uint32_t max_header_bytes, max_headers, max_url_bytes;
    uint64_t max_body_bytes;    /* as decoded */
    uint32_t max_inflate_ratio; /* decoded / encoded, checked past 64 KiB */
    uint32_t max_pipeline;      /* requests of one connection waiting or running; past it reading pauses */
    uint32_t max_requests;      /* per connection, 0: none */
    uint64_t header_timeout_ns, body_timeout_ns, idle_timeout_ns, write_timeout_ns;
    uint64_t min_body_rate;   /* bytes/s that a body must come at once body_timeout has passed; 0: the timeout is final */
    uint64_t max_body_memory; /* bytes of request bodies held by the server at once, 0: none; past it 503 */
    /* HTTP/2; those of a connection are fixed when it begins. See wire/http2.h. */
    uint32_t http2_max_streams;                 /* of a connection at once */
    uint32_t http2_window_bytes;                /* of a stream: what the client may send ahead of the handler */
    uint32_t http2_table_bytes;                 /* HPACK table, each direction */
    uint32_t http2_max_continuations;           /* of one header block, <= 8 */
    uint32_t http2_glitches, http2_glitch_rate; /* budget, and what it gets back a second; spent: GOAWAY */
    uint64_t handshake_timeout_ns;              /* of TLS, and of a PROXY header */
    /* Of one client address (IPv6: of a /64), 0: none: connections at once; TLS connections begun a second. Trusted proxies aren't counted. */
    uint32_t max_connections_per_address, max_handshakes_per_address;
    uint32_t max_tunnels; /* at once, those that are asked for included; past it 503. 0: none */
};

struct http_server_options {
    const char *const *listen; /* "127.0.0.1:8000", "[::1]:8000", "unix:/run/inferd.sock"; port 0 picks one */
    size_t n_listen;
    uint32_t threads;          /* loops; each has its own SO_REUSEPORT listener */
    const char *name;          /* listener's name in logs and metrics: "http", "metrics", "admin" */
    const char *server_header; /* NULL: none */
    struct http_limits limits;
    struct http_handler handler;
    const struct network *proxies; /* [n_proxies] addresses of trusted proxies; copied */
    size_t n_proxies;
    bool proxy_protocol;     /* only those may connect to TCP addresses, and begin with a PROXY header (version 1 or 2) */
    struct tls_context *tls; /* speak TLS on every TCP address; NULL: plain. Outlives the server */
    struct metrics *metrics;
    struct logger *log;
};

/* Bind and start the threads. Fails with the address and the reason. */
int http_server_start(const struct http_server_options *o, struct http_server **out, struct error *err) MUST_CHECK;
/* The bound address of listener `i` ("127.0.0.1:8000" with the real port), borrowed. */
const char *http_server_address(const struct http_server *s, size_t i);
/* Limits may be swapped while serving (reload); applies to requests that begin later. Any thread. */
void http_server_set_limits(struct http_server *s, const struct http_limits *l);
/* Stop accepting; answer what is in flight with `Connection: close`; close idle connections. Any thread. */
void http_server_drain(struct http_server *s);
uint64_t http_server_connections(const struct http_server *s); /* open now */
/* Return when every worker has left the handler that it was in when this was called: what was made known to handlers before
 * (an atomic they look at first) holds for all of them from then on. Blocks; not from a worker. */
void http_server_sync(struct http_server *s);
/* Close everything, join the threads, free. Requests still held by others are answered as gone first. */
void http_server_stop(struct http_server *s);

/* `r->peer` without its port and brackets: "192.0.2.1", "2001:db8::1", "unix". Borrowed from it. */
struct str http_peer_address(const struct http_request *r);
/* First header with this name, trimmed; .p == NULL when absent. */
struct str http_header_get(const struct http_request *r, const char *name);

/* Keep `r` (and its arena, body) alive across threads until http_release; loop thread only. A request that will be answered
 * later need not be held: it lives until its reply. Hold it for anything that outlives the reply. */
void http_hold(struct http_request *r);
void http_release(struct http_request *r);

/* on_body only: the handler is done with `n` more of the bytes that it was handed, so that the client may send as many again. Call it
 * from on_body itself or any time later; also after the reply or the client's end, when it does nothing. Loop thread. */
void http_body_consumed(struct http_request *r, size_t n);
/* A body that came in pieces is whole after all: `s`, whose reference is taken over, is r->body from now on. Once. */
void http_body_set(struct http_request *r, struct slab *s);
/* What the handler keeps beside `body` (of one that came in pieces, or decompressed by itself) is `bytes` now (not: more), counted against the
 * server's max_body_memory until the request ends. STATUS_UNAVAILABLE when that would pass it: answer with it and keep no more. Loop
 * thread, or a thread that works on the request while the loop's doesn't. */
int http_body_charge(struct http_request *r, uint64_t bytes, struct error *err) MUST_CHECK;

/* The whole reply in one call. `headers`: extra ones, copied; Content-Length, Date and Connection are ours. Slices: references
 * are taken over (owner may be NULL for bytes that live as long as the request, e.g. in its arena). HEAD sends no body. */
void http_reply(struct http_request *r, int http_status, const char *content_type, const struct http_header *headers,
                size_t n_headers, struct slice *body, size_t n_body);
/* Error reply through on_error; `status` is a negative enum status, mapped by its table. Adds x-request-id, and Retry-After for
 * 429 and 503 when retry_after_s > 0. */
void http_reply_error(struct http_request *r, int status, const char *text, uint32_t retry_after_s);

/* A reply in pieces (chunked, or EOF-delimited for HTTP/1.0). http_stream_write returns false when the client is too slow:
 * stop producing until on_writable. */
void http_stream_begin(struct http_request *r, int http_status, const char *content_type, const struct http_header *headers,
                       size_t n_headers, void (*on_writable)(struct http_request *r));
bool http_stream_write(struct http_request *r, struct slice piece); /* the reference is taken over */
void http_stream_end(struct http_request *r);
/* End a stream with trailers (copied; names in lower case). HTTP/2 sends them behind the body; HTTP/1.x has no client that asked for
 * them, and they are left out. A reply that is nothing but trailers ("trailers-only" in gRPC) is http_reply with these as headers
 * and no body: one HEADERS frame that ends the stream. */
void http_stream_end_trailers(struct http_request *r, const struct http_header *trailers, size_t n);
/* Abort a stream that can't be finished: over HTTP/1.x the connection is cut, so that the client sees a truncated body; over HTTP/2
 * the stream is reset with INTERNAL_ERROR. */
void http_stream_abort(struct http_request *r);

/* Tunnels: an HTTP/1.1 connection that becomes a pair of byte streams. on_headers offers it for a request without a body that asks to switch protocols;
 * from then on nothing behind its head is read as HTTP. Then either an ordinary reply, behind which the connection ends (what the client has sent
 * for a tunnel is dropped), or http_tunnel_begin.
 *
 * Then http_stream_write sends bytes as they are, `input` hands out what the client sends (as on_body: http_body_consumed gives back; `last`, with an
 * empty piece: the client sends no more, but may still read), http_tunnel_shut ends our side, http_stream_end is for when both sides have
 * ended, or nothing more is wanted (what is queued still leaves), http_stream_abort cuts. on_gone as ever. */
struct http_tunnel_events {
    void (*writable)(struct http_request *r); /* as on_writable */
    void (*input)(struct http_request *r, struct slice piece, bool last);
    void (*drain)(struct http_request *r); /* the server is about to stop: end it when that is convenient */
};
/* UNAVAILABLE: the listener has max_tunnels; answer with it. */
int http_tunnel_offer(struct http_request *r, struct error *err) MUST_CHECK;
bool http_tunnel_offered(const struct http_request *r);
/* 101 with `Upgrade: protocol`, and these headers, copied. `drain` may be called from within. */
void http_tunnel_begin(struct http_request *r, struct str protocol, const struct http_header *headers, size_t n,
                       const struct http_tunnel_events *events);
/* Nothing more will be written: the client reads the end behind what is queued. */
void http_tunnel_shut(struct http_request *r);

#endif
