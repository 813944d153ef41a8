/* http_client.h: HTTP/1.1 clients, for the command line and the load generator.
 *
 * struct http_client   blocking, one connection kept alive, one call at a time: `inferd infer`, `inferd models`.
 * struct http_channel  one connection on an event loop, driven by callbacks: `inferd bench` holds thousands, a gateway its upstreams.
 *
 * Both read answers with wire/http1.h (strict) and skip interim ones. No redirects, no proxies. */
#ifndef INFERD_NET_HTTP_CLIENT_H
#define INFERD_NET_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "net/dial.h"
#include "net/loop.h"
#include "os/sock.h"
#include "wire/http1.h"

/* Where a client goes: "http://host:port/prefix", "https://...", "host:port", "unix:/path". */
#define HTTP_TARGET_ADDRS_MAX 8
#define HTTP_CONNECT_NS       5000000000ull /* what a connection may take where nobody says */

struct http_target {
    struct os_addr addr;                         /* to connect to: the first, or the one that answered */
    struct os_addr addrs[HTTP_TARGET_ADDRS_MAX]; /* [n_addrs] all that the name has: "localhost" may be ::1 and 127.0.0.1 */
    size_t n_addrs;
    char authority[256]; /* for the Host header */
    char prefix[256];    /* in front of every path; no slash at its end */
    const char *api_key; /* sent as x-api-key by requests that bring no credentials of their own; NULL: none; borrowed */
    char host[256];      /* of https: whom the server must prove to be; else "" */
};
/* Parse and resolve (may block on the resolver). The port defaults to 80 behind "http://", to 443 behind "https://".
 * STATUS_INVALID, STATUS_NOT_FOUND. */
int http_target_parse(const char *url, struct http_target *out, struct error *err) MUST_CHECK;
/* Make `addr` the first of the addresses that takes a connection within `timeout_ns`; none does: it stays. Blocks; does nothing where there
 * is one address only. For those who connect by themselves: http_client tries each. */
void http_target_settle(struct http_target *t, uint64_t timeout_ns);
/* Append a whole request: line, Host, Content-Length when there is a body (or the method is POST, PUT or PATCH), the headers given,
 * body. False: a header or the path can't be sent. */
bool http_target_request(const struct http_target *t, struct buf *out, struct str method, struct str path,
                         const struct http_header *headers, size_t n_headers, struct str body);

/* --- blocking --- */

struct http_client;

struct http_client_options {
    uint64_t connect_timeout_ns; /* 0: HTTP_CONNECT_NS */
    uint64_t timeout_ns;         /* of a whole call; 0: 60 s */
    size_t max_body_bytes;       /* of an answer; 0: 256 MiB */
    const char *api_key;         /* as in http_target */
    const char *ca_file;         /* https: PEM of the authorities to believe; NULL: the system's */
};

/* Parses `url`; connects at the first call. `options` may be NULL. One thread. */
int http_client_create(const char *url, const struct http_client_options *options, struct http_client **out,
                       struct error *err) MUST_CHECK;
void http_client_destroy(struct http_client *c);

struct http_client_request {
    const char *method, *path;
    const struct http_header *headers;
    size_t n_headers;
    struct str body;
    /* (optional) Takes the body in pieces as they come, instead of answer->body. Negative: stop and close; returned by the call. */
    int (*on_body)(void *ctx, struct str part);
    void *ctx;
};

/* Borrowed from the client until its next call. */
struct http_client_answer {
    int status;
    const struct http_header *headers;
    size_t n_headers;
    struct str body;
};

/* One request and its answer, whatever its status. A kept-alive connection that the server had closed meanwhile is replaced once.
 * Blocks. STATUS_UNAVAILABLE no connection, STATUS_TIMEOUT, STATUS_IO the connection broke, STATUS_INVALID the answer is not
 * HTTP, STATUS_TOO_LARGE. */
int http_client_call(struct http_client *c, const struct http_client_request *r, struct http_client_answer *answer,
                     struct error *err) MUST_CHECK;
/* First header of the answer with this name; .p == NULL when absent. */
struct str http_client_header(const struct http_client_answer *a, const char *name);

/* --- on a loop --- */

struct http_channel {
    /* set by the owner before http_channel_connect; callbacks may send, close and connect again */
    struct loop *loop;
    void *user;
    void (*connected)(struct http_channel *ch);
    void (*head)(struct http_channel *ch);                  /* (optional) status and headers of the final answer are in */
    void (*body)(struct http_channel *ch, struct str part); /* (optional) */
    void (*done)(struct http_channel *ch, int status);      /* the answer is complete */
    void (*failed)(struct http_channel *ch, const struct error *err); /* closed by then */
    bool head_request;                                                /* the next request is a HEAD */
    /* The next request asks to switch protocols. 101 is then an answer: switched(), and from there on body() hands out what comes, body_next says
     * what is to be sent (its `last` ends our side), and ended() that the server sends no more. It ends with http_channel_close. */
    bool upgrade;
    void (*switched)(struct http_channel *ch);
    void (*ended)(struct http_channel *ch);
    /* (optional) the body of a request that comes as it comes, http_channel_send_stream: what is there now (`*last`: all of the rest), and that
     * `n` bytes of it are written */
    struct str (*body_next)(struct http_channel *ch, bool *last);
    void (*body_taken)(struct http_channel *ch, size_t n);
    /* of the current answer */
    uint64_t sent_ns;       /* when http_channel_send was called */
    uint64_t first_byte_ns; /* of the answer */
    uint64_t body_bytes;
    struct http1_parser parser; /* headers, from the first body byte to the end of done() */
    /* private */
    struct dial dial;
    struct arena arena;
    struct str out, out_next; /* what is still to be written */
    uint32_t generation;      /* changes when the connection is closed: callbacks may have done so */
    uint8_t state, body_mode;
    bool paused, eof, shut; /* a tunnel: their side has ended; ours has */
    uint8_t tail_left;      /* bytes of the CRLF behind the chunk that are not written */
    size_t chunk_left;      /* body bytes announced and not written */
    char chunk_head[HTTP1_CHUNK_HEAD_BYTES];
};

void http_channel_init(struct http_channel *ch, struct loop *loop);
/* Close and free what it holds. Nothing is called any more. Loop thread, as all of these. */
void http_channel_release(struct http_channel *ch);
/* Start to connect; then connected() or failed(), maybe from within this call. */
void http_channel_connect(struct http_channel *ch, const struct os_addr *addr);
/* The same over TLS where `tls` is not NULL. */
void http_channel_connect_tls(struct http_channel *ch, const struct os_addr *addr, const struct dial_tls *tls);
/* Send these bytes (a whole request, http_target_request), borrowed until done() or failed(). One request at a time. */
void http_channel_send(struct http_channel *ch, struct str request);
/* Head, then a body from body_next: in chunks, or as it is (its length stands in the head). http_channel_more: body_next has more to give
 * than it had. An answer may come before the body's end; the connection is then closed behind it. */
void http_channel_send_stream(struct http_channel *ch, struct str head, bool chunked);
void http_channel_more(struct http_channel *ch);
/* Stop reading the answer, and go on. What has been read already is still delivered: at most 16 KiB. */
void http_channel_pause(struct http_channel *ch, bool paused);
void http_channel_close(struct http_channel *ch); /* quietly; idempotent */
bool http_channel_is_open(const struct http_channel *ch);

#endif
