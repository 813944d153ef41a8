/* http_priv.h: private to net/http_*.c and net/http2_*.c. The objects of the HTTP server and who owns whom:
 *
 *   http_server 1--n worker (a loop and its thread) 1--n conn 1--n req (in order of arrival; over HTTP/1.x replies leave in that order)
 *
 * A worker's objects belong to its thread. A conn dies at the end of the iteration in which it is closed; a req that nobody
 * answered or released yet outlives its conn (req->conn == NULL, pub.gone) and returns to the worker's pool when that happens.
 * Exclusions: no locks here; other threads reach a worker by loop_post, and read the atomics of struct http_server. */
#ifndef INFERD_NET_HTTP_PRIV_H
#define INFERD_NET_HTTP_PRIV_H

#include <stdatomic.h>

#include "base/check.h"
#include "base/list.h"
#include "base/rand.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/peers.h"
#include "net/proxy_header.h"
#include "net/tls.h"
#include "obs/metrics.h"
#include "os/sock.h"
#include "os/thread.h"
#include "wire/coding.h"
#include "wire/http1.h"
#include "wire/http2.h"

enum {
    HTTP_HEAD_READ_BYTES = 16 << 10,  /* one read while no body is under way; bounds what a paused connection keeps */
    HTTP_READ_BYTES = 64 << 10,       /* one read of a body */
    HTTP_BODY_FIRST_BYTES = 64 << 10, /* allocated for a body before any more of it is there */
    HTTP_ARENA_FIRST_BYTES = 4 << 10,
    HTTP_ARENA_EXTRA_BYTES = 64 << 20,  /* a request's arena: this much for its handler, besides the head */
    HTTP_BODY_WINDOW_BYTES = 256 << 10, /* HTTP/1.x: handed to on_body and not given back: no more is read */
    HTTP_STREAM_HIGH_BYTES = 256 << 10,
    HTTP_STREAM_LOW_BYTES = 64 << 10,
    HTTP_POOL_REQS = 256, /* request objects kept by a worker */
    HTTP_SLABS = 32,      /* body slabs kept by a worker */
    HTTP_SLABS_BYTES = 16 << 20,
    HTTP_LINGER_BYTES = 1 << 20,              /* discarded behind an error before we give up */
    HTTP_REFUSED_MAX = 128,                   /* connections past max_connections that get a 503, per worker */
    HTTP2_WRITE_BYTES = 4 * HTTP2_OUTPUT_MIN, /* frames that leave in one call */
};

enum http_limit {
    LIMIT_CONNECTIONS,
    LIMIT_DESCRIPTORS,
    LIMIT_URL,
    LIMIT_HEADERS,
    LIMIT_BODY,
    LIMIT_INFLATE,
    LIMIT_PIPELINE,
    LIMIT_REQUESTS,
    LIMIT_MEMORY,
    LIMIT_HEADER_TIMEOUT,
    LIMIT_BODY_TIMEOUT,
    LIMIT_IDLE_TIMEOUT,
    LIMIT_WRITE_TIMEOUT,
    LIMIT_HTTP2_GLITCHES,
    LIMIT_HANDSHAKE_TIMEOUT,
    LIMIT_ADDRESS_CONNECTIONS,
    LIMIT_ADDRESS_HANDSHAKES,
    LIMIT_TUNNELS,
    LIMIT_PROXY, /* no PROXY header, a broken one, or a stranger where one is due */
    LIMIT_COUNT
};

struct http_metrics {
    struct metric *limit[LIMIT_COUNT];
    struct metric *connections, *accepted, *closed, *lost, *malformed, *bytes_in, *bytes_out, *tunnels;
    struct metric *http2_connections, *glitch[HTTP2_GLITCH_COUNT];
};

struct http_listener {
    struct loop_fd watch;
    struct http_worker *worker;
    bool open, paused;
};

struct http_worker {
    struct http_server *server;
    struct loop *loop;
    struct os_thread thread;
    struct http_listener *listeners;   /* [server->n_listen] */
    struct list conns;                 /* all, oldest first */
    struct list idle;                  /* struct conn.idle_node, longest idle first */
    struct req *pool;                  /* unused request objects, linked by next_free */
    uint32_t n_pool, n_out, n_refused; /* unused requests; requests in use; refused connections under way */
    struct slab *slabs[HTTP_SLABS];
    uint32_t n_slabs;
    uint32_t slab_uses, slab_uses_seen; /* taken from the cache so far, and at the last look of trim_timer */
    struct loop_timer trim_timer;
    size_t slabs_bytes;
    struct http_limits limits;
    struct http1_limits wire_limits;
    struct rand rand;
    struct buf scratch; /* reply heads are built here */
    uint8_t *read_buf;  /* [HTTP_READ_BYTES] */
    uint8_t *write_buf; /* [HTTP2_WRITE_BYTES] */
    char date[32];      /* IMF-fixdate, without the name */
    uint64_t date_until_ns;
    struct loop_timer accept_timer, stop_timer;
    struct loop_task drain_task, stop_task;
    int placeholder_fd;
    bool draining, stopping, abandoned;
    _Atomic bool drain_posted, stop_posted;
};

struct http_server {
    struct http_handler handler;
    struct tls_context *tls;
    struct peers *peers;
    struct network *proxies; /* [n_proxies] */
    size_t n_proxies;
    bool proxy_protocol;
    struct http_metrics m;
    struct logger *log;
    char *name, *server_header;
    struct os_addr *addrs; /* [n_listen], as bound */
    char (*address_texts)[OS_ADDR_TEXT_BYTES];
    size_t n_listen;
    uint32_t n_workers;
    struct http_worker *workers;
    _Atomic uint64_t connections;
    _Atomic uint64_t body_bytes; /* held in body slabs */
    _Atomic uint64_t tunnels;    /* offered or up */
    _Atomic bool stopped;
};

#define CONN_PEER_BYTES 56 /* an IPv6 address in brackets, with its port and zone, and the NUL */

enum conn_state { CONN_OPEN, CONN_LINGER, CONN_CLOSED };

enum conn_deadline {
    DEADLINE_NONE,
    DEADLINE_IDLE,
    DEADLINE_HEADER,
    DEADLINE_BODY,
    DEADLINE_WRITE,
    DEADLINE_LINGER,
    DEADLINE_STREAMS, /* HTTP/2: look at each stream's own deadlines */
    DEADLINE_HANDSHAKE,
};

struct h2_conn;
struct h2_stream;

/* http_peer.c: whom a connection comes from. */
struct conn_origin {
    struct address address; /* zero for a unix socket */
    bool counted;           /* in server->peers */
    bool waits_proxy;       /* the PROXY header is still to come */
    uint16_t header_n;
    char *header; /* [PROXY_HEADER_MAX] while it comes */
};

struct conn {
    struct loop_fd watch;
    struct loop_timer timer;
    struct loop_task flush_task, read_task, free_task;
    struct list node, idle_node;
    struct http_worker *w;
    struct list reqs;   /* struct req.node: being read, waiting, being answered */
    struct req *cur;    /* the one being read; it is the last of reqs */
    struct req *tunnel; /* what comes is not HTTP any more: it is this one's, or nobody's; the last of reqs */
    char *pend;         /* input that had to wait while reading was paused */
    uint32_t pend_n, n_reqs, served;
    uint32_t discarded;
    enum conn_state state;
    enum conn_deadline deadline_kind;
    uint64_t deadline_ns, wrote_ns, idle_since_ns;
    bool corked;        /* input is being parsed: replies wait for the end of it */
    bool closing;       /* no further request is read; input is discarded */
    bool paused;        /* the pipeline is full */
    bool eof;           /* the peer's end was read */
    bool half;          /* the peer's end is known, maybe with unread input before it */
    bool probed;        /* ... and an interim reply was sent to learn whether it still listens */
    bool blocked;       /* the socket's buffer is full */
    bool want_continue; /* cur waits for "100 Continue" */
    bool broken;        /* a reply can't be finished: to be closed at the next occasion */
    bool shut;          /* a tunnel: our side has ended */
    bool refused, is_unix, flush_queued, read_queued;
    bool decided;       /* which protocol it is: `h2`, or HTTP/1.x */
    uint8_t preface_n;  /* not decided: the first bytes were these of HTTP/2's preface */
    struct h2_conn *h2; /* HTTP/2 from here on: cur, parser and pend are not used */
    struct conn_origin origin;
    struct tls_conn *tls;       /* NULL: plain */
    struct http1_parser parser; /* of cur */
    char peer[CONN_PEER_BYTES];
};

/* A part of a reply on its way out: optional text in front, bytes, optional CRLF behind (chunks). */
struct piece {
    struct piece *next;
    struct slice s;
    uint8_t head_n, crlf;
    char head[HTTP1_CHUNK_HEAD_BYTES];
};

enum req_state {
    REQ_READING, /* head or body under way */
    REQ_WAITING, /* on_request was called */
    REQ_STREAM,  /* the reply has begun */
    REQ_REPLIED, /* the reply is complete, maybe not written */
};

struct req {
    struct http_request pub;
    struct list node; /* of conn.reqs */
    struct req *next_free;
    struct conn *conn;          /* NULL: gone */
    char peer[CONN_PEER_BYTES]; /* pub.peer: the conn's own text goes with the conn */
    struct http_worker *w;
    struct arena arena;
    uint32_t holds;
    enum req_state state;
    bool announced; /* on_headers time has passed: on_complete is due */
    bool gone_told, keep_alive, http10, head_only, close_after, chunked_out, waits_writable;
    /* body coming in */
    struct slab *slab;
    uint64_t slab_charged; /* counted in server->body_bytes */
    uint64_t charged;      /* as well: http_body_charge */
    uint64_t body_wire_bytes;
    size_t unconsumed;                        /* HTTP/1.x: handed to on_body and not given back */
    uint64_t rate_since_ns, rate_since_bytes; /* the current window of body_timeout */
    struct coding *coding;
    /* reply going out */
    struct piece *out, **out_tail, *spare;
    size_t out_skip;  /* written bytes of the first piece */
    size_t out_bytes; /* queued and not written */
    void (*on_writable)(struct http_request *r);
    struct h2_stream *h2; /* in the arena; NULL: HTTP/1.x */
    /* http_tunnel.c */
    const struct http_tunnel_events *tunnel;     /* NULL: it has not begun */
    bool tunnel_offered, tunnel_up, tunnel_shut; /* offered: and counted */
};

/* --- http_server.c --- */
void http__limit(struct http_worker *w, enum http_limit l);
/* A connection has closed: descriptors are free again, accepting may go on. */
void http__accept_resume(struct http_worker *w);
/* Ends the worker's loop when it is stopping and nothing is out any more. */
void http__worker_check_stop(struct http_worker *w);

/* --- http_conn.c --- */
void http__conn_open(struct http_worker *w, int fd, const struct os_addr *peer, const struct conn_origin *origin, bool refused);
/* The seam below which TLS goes: all bytes of a connection pass here. As os_sock_read and os_sock_write. */
ssize_t http__conn_recv(struct conn *c, void *p, size_t n);
ssize_t http__conn_send(struct conn *c, const struct os_iov *v, size_t n);
/* At once; `c` stays readable until the end of the iteration. Its requests are told. */
void http__conn_close(struct conn *c);
/* Write what can be written, read on where that made room, set interest and deadline. Every entry from outside ends here. */
void http__conn_pump(struct conn *c);
/* Input of the connection ends here (error, Connection: close): the rest is discarded. */
void http__conn_stop_reading(struct conn *c);
/* The last reply is out: tell the peer that no more comes, and wait a little for its own end, so that what it still sends does not
 * reset the connection under the reply. */
void http__conn_linger(struct conn *c);
void http__conn_drain(struct conn *c);
/* Write what is ready soon, at the end of the loop's iteration. */
void http__conn_flush_soon(struct conn *c);
/* A body timeout has passed with the body of `q` under way. True: it came fast enough meanwhile, and gets another one. */
bool http__body_fast_enough(struct req *q);

/* --- http_tunnel.c --- */
/* As read_once, for a connection whose `tunnel` is set. */
bool http__tunnel_read(struct conn *c);
/* What had come ahead of the 101, or the handler has room again. True: something was handed over. */
bool http__tunnel_resume(struct conn *c);
/* All that is queued may be written: our side's end is due. */
void http__tunnel_flushed(struct conn *c);
/* The socket is dead. True: both sides had ended well, and so has the connection; else it is to be closed. */
bool http__tunnel_closed(struct conn *c);
void http__tunnel_drain(struct conn *c);
/* Its request is complete: it counts no more. */
void http__tunnel_over(struct req *q);

/* --- http_peer.c --- */
/* May this address have another connection? Fills `o`. */
bool http__peer_admit(struct http_worker *w, const struct os_addr *peer, struct conn_origin *o);
void http__peer_leave(struct http_worker *w, struct conn_origin *o);
/* Read on at the PROXY header. 0: it is there, and the connection begins; AGAIN; else the connection is to be closed. */
int http__peer_read_proxy(struct conn *c);

/* --- http_out.c --- */
/* Write queued replies in order. Finishes requests whose reply is out. False: the connection was closed or shut down. */
bool http__flush(struct conn *c);
/* "100 Continue", before or while the first request is read or worked on. */
void http__send_continue(struct conn *c);
void http__reply_error(struct req *q, int status, const char *text, uint32_t retry_after_s, bool announced);
const char *http__date(struct http_worker *w);
/* The caller's headers of an HTTP/1.x reply, those that were added to it, and the empty line. */
void http__put_headers(struct buf *b, const struct req *q, const struct http_header *headers, size_t n);
/* Copy the next `n` <= q->out_bytes bytes of the queued reply to `to` and drop them from the queue. */
void http__out_take(struct req *q, uint8_t *to, size_t n);
/* Let the handler of a stream that was too fast go on, when enough of it has left. */
void http__tell_writable(struct req *q);

/* --- http_req.c --- */
struct req *http__req_begin(struct conn *c); /* NULL: out of memory */
/* The head is parsed: fill the public part, ask the handler. 0, or an HTTP status to refuse with and `err`. */
int http__req_head(struct req *q, const struct http1_parser *p, struct error *err);
/* Body bytes as received. 0, or an HTTP status. */
int http__req_body(struct req *q, const struct http1_parser *p, const char *data, size_t n, struct error *err);
/* Where body bytes may be read to directly (identity body of known length), and how many; 0: nowhere. */
size_t http__req_body_room(struct req *q, const struct http1_parser *p, uint8_t **at, int *status, struct error *err);
/* The body is complete. 0, or an HTTP status. */
int http__req_end(struct req *q, struct error *err);
void http__req_run(struct req *q); /* calls on_request */
/* Hand a piece to on_body, unless the reply is complete. The request may be gone afterwards. */
void http__req_piece(struct req *q, struct slice piece, bool last);
/* HTTP/1.x: the handler is behind, and nothing more is to be read for it. */
bool http__req_is_full(const struct req *q);
/* Its reply is written or dropped: on_complete, and back to the pool unless held. */
void http__req_finish(struct req *q);
/* The connection is gone: tell the handler once; what nobody waits for is freed. */
void http__req_gone(struct req *q);
/* Frees the body; drops the queued reply. */
void http__req_drop_out(struct req *q);
void http__pool_release(struct http_worker *w);
/* For worker.trim_timer: what was not used for some seconds is given back. */
void http__pool_trim(struct loop_timer *t);

/* --- http2_conn.c: a connection that speaks HTTP/2 --- */
/* From now on `c` is HTTP/2 and expects the client's preface: after the preface was seen on a fresh connection, or by ALPN. False:
 * no memory, closed. */
bool http2__start(struct conn *c);
/* Take what was read. False: the connection is not open any more. */
bool http2__input(struct conn *c, const char *data, size_t n);
/* As http__flush. */
bool http2__flush(struct conn *c);
/* The peer's end was read. */
void http2__eof(struct conn *c);
/* Tell the client to go, and close when what it asked for is answered. */
void http2__drain(struct conn *c);
/* The time is up for all of it: GOAWAY and close. */
void http2__end(struct conn *c);
/* When http2__look wants to be called next. */
uint64_t http2__look_at_ns(struct conn *c);
void http2__look(struct conn *c);
struct http2 *http2__session(struct conn *c); /* borrowed */
void http2__say_goaway(struct conn *c);       /* the last half of http2__drain */
/* The connection is closed: no callback does anything any more. */
void http2__closed(struct conn *c);
void http2__release(struct conn *c); /* when `c` is freed */

/* --- http2_stream.c: a request that came over HTTP/2 --- */
extern const struct http2_events http2__events; /* `user` is the struct conn */
/* The reply's head. `length` < 0: not announced. `body`: pieces will follow, or at least the end. False: out of memory. */
bool http2__head(struct req *q, int status, const char *content_type, const struct http_header *headers, size_t n,
                 int64_t length, bool body);
bool http2__trailers(struct req *q, const struct http_header *trailers, size_t n); /* copied. False: out of memory */
/* More of the reply, or its end, is queued. */
void http2__ready(struct req *q);
/* Reset the stream and forget it: the request is gone. `fault`: the client's. */
void http2__cut(struct req *q, enum http2_code code, bool fault);
/* Reset the stream; on_gone comes when the reset leaves. */
void http2__abandon(struct req *q);
bool http2__is_reading(const struct req *q); /* the client has not ended its side */
void http2__consumed(struct req *q, size_t n);
/* Look at this stream's deadlines. False: it was ended, the list of requests has changed. */
bool http2__look_at_stream(struct req *q, uint64_t now_ns);

static inline struct req *http__req_of(struct http_request *r)
{
    return (struct req *)r;
}
static_assert(offsetof(struct req, pub) == 0, "a request's public part is its beginning");

#endif
