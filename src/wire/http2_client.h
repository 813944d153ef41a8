/* http2_client.h: the client side of one HTTP/2 connection (RFC 9113), bytes in, events and bytes out, no I/O and no clock; nghttp2 inside, as
 * in http2.h. Many calls share a connection.
 *
 *     http2_client_submit -> head, (body ...), end                     of the final answer; interim ones are passed over
 *                         -> failed                                    reset, refused, malformed, past a limit, or never begun
 *
 * After `end` and `failed` a call is forgotten here, as after http2_client_cancel. An answer that ends before the request does resets the rest of
 * the request. Events may call any function here but input, output and destroy.
 *
 * What a server may send is bounded: the decoded size and number of header fields, of head and trailers each; CONTINUATION frames of one
 * block; bytes that were not consumed, by windows of stream and connection; its floods of PING and SETTINGS, by nghttp2. Push is off. Memory:
 * heads live in the call's arena. Single thread. */
#ifndef INFERD_WIRE_HTTP2_CLIENT_H
#define INFERD_WIRE_HTTP2_CLIENT_H

#include "wire/http2.h"

struct http2_client;

struct http2_client_limits {
    uint32_t max_header_bytes; /* names, values and 32 for each; a call past it fails */
    uint32_t max_headers;
    uint32_t window_bytes;     /* of a call: what may come and not be consumed */
    uint32_t connection_bytes; /* of the connection; given back as bytes come */
    uint32_t table_bytes;      /* HPACK, each direction */
};

/* Embedded in the owner's object; valid from submit until end, failed or cancel. */
struct http2_call {
    /* set by the owner */
    struct arena *arena;
    void *user;
    /* from head on, in the arena; trailers from end on */
    int status;
    struct http_header *headers, *trailers;
    uint32_t n_headers, n_trailers;
    bool has_body; /* else `end` follows at once */
    bool has_length;
    uint64_t content_length;
    /* private */
    int32_t id;
    uint32_t cap, block_bytes;
    bool got_head, in_trailers, deferred, bad, sent_all, is_head_request;
};

enum http2_failure {
    HTTP2_CALL_RESET,   /* by the server, or by us because of what it sent */
    HTTP2_CALL_UNBEGUN, /* the server says that it has done nothing for it (REFUSED_STREAM) */
    HTTP2_CALL_LEFT,    /* the same, as it ends the connection (GOAWAY): another connection to it is as good as ever */
};

struct http2_client_events {
    void (*head)(void *user, struct http2_call *c);
    /* Borrowed bytes. Give them back with http2_client_consume, now or later. */
    void (*body)(void *user, struct http2_call *c, const uint8_t *p, size_t n);
    void (*end)(void *user, struct http2_call *c);
    void (*failed)(void *user, struct http2_call *c, enum http2_failure why, uint32_t code);
    /* What is ready of the request's body; `*last`: all of the rest. */
    struct str (*pending)(void *user, struct http2_call *c, bool *last);
    void (*taken)(void *user, struct http2_call *c, size_t n);
};

/* The first output is the preface and our SETTINGS. STATUS_NOMEM. */
int http2_client_create(const struct http2_client_limits *l, const struct http2_client_events *e, void *user,
                        struct http2_client **out, struct error *err) MUST_CHECK;
void http2_client_destroy(struct http2_client *h); /* no events; NULL is accepted */

/* Take all of `n` bytes. False: the connection is over (http2_client_why says why); calls that are left were not told. */
bool http2_client_input(struct http2_client *h, const uint8_t *p, size_t n);
/* Put what is to be sent to `to`; the bytes, 0: nothing. `room` >= HTTP2_OUTPUT_MIN. */
size_t http2_client_output(struct http2_client *h, uint8_t *to, size_t room);
/* Nothing more will be read or written. */
bool http2_client_done(const struct http2_client *h);
const char *http2_client_why(const struct http2_client *h); /* a constant */

/* Calls that may be begun now: what the server allows, less those under way; 0 once it said GOAWAY. */
uint32_t http2_client_room(const struct http2_client *h);
uint32_t http2_client_calls(const struct http2_client *h); /* under way */

struct http2_client_request {
    struct str method, scheme, authority, path; /* path with its query */
    const struct http_header *headers;          /* names are lowered */
    size_t n_headers;
    bool body; /* pending() will be asked */
};
/* STATUS_NOMEM; UNAVAILABLE: no call can be begun on this connection any more. The request's strings are copied. */
int http2_client_submit(struct http2_client *h, struct http2_call *c, const struct http2_client_request *r) MUST_CHECK;
/* pending() has more to say than it had. */
void http2_client_resume(struct http2_client *h, struct http2_call *c);
void http2_client_consume(struct http2_client *h, struct http2_call *c, size_t n);
/* Nobody wants it any more: RST_STREAM CANCEL; no event of it comes. */
void http2_client_cancel(struct http2_client *h, struct http2_call *c);
/* Ask for a sign of life. */
void http2_client_ping(struct http2_client *h);
/* Say that no more comes: GOAWAY with the next output. */
void http2_client_goaway(struct http2_client *h);

#endif
