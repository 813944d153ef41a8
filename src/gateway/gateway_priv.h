/* gateway_priv.h: for the files of gateway/ only.
 *
 *   gateway.c  life, tables, reload, matching
 *   pools.c    a pool with its lock, its budget, its queue and its metrics
 *   transport.c  how a pool's servers are spoken to: protocol, TLS
 *   peers.c    connections of one I/O thread
 *   exchange.h one request at one server, whatever is spoken; exchange_h1.c HTTP/1.1
 *   forward.c  one request on its way, try by try
 *   hedge.c    a second try beside the first
 *   upload.c   its body on the way up
 *   answer.c   an upstream's answer on its way to the client
 *   tunnel.c   WebSockets
 *   explain.c  what a client is told of a server that failed
 *   headers.c  what is sent on and what is not, both ways
 *   check.c    the thread that ticks pools and checks servers; the one that looks up names
 *   discover.c which servers there are: names looked up, files read
 *   geo.c      which zone a client is near
 *   report.c   what servers say of themselves: polled, or in a header of their answers
 *
 * Locks: gateway.lock (RANK_ROUTES): the current table. gateway_pool_live.lock (RANK_POOL): the pool, its budget, its queue. Neither is held
 * across a call out of this folder but into route/ and the log. */
#ifndef INFERD_GATEWAY_PRIV_H
#define INFERD_GATEWAY_PRIV_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/map.h"
#include "gateway/exchange.h"
#include "gateway/gateway.h"
#include "net/http2_channel.h"
#include "net/http_client.h"
#include "os/sock.h"
#include "os/thread.h"
#include "route/delay.h"
#include "route/pool.h"
#include "route/prefix.h"
#include "route/retry.h"
#include "wire/usage_peek.h"
#include "route/waitlist.h"

#define GATEWAY_ZONES    31
#define GATEWAY_OUTCOMES 5 /* enum pick_outcome */

enum tunnel_result { TUNNEL_ENDED, TUNNEL_CLIENT_LEFT, TUNNEL_BROKEN, TUNNEL_IDLE, TUNNEL_DRAINED, TUNNEL_RESULTS };
enum tunnel_way { TUNNEL_UP, TUNNEL_DOWN, TUNNEL_WAYS };
enum hedge_result { HEDGE_STARTED, HEDGE_WON, HEDGE_LOST, HEDGE_FAILED, HEDGE_RESULTS };

/* A pool as it runs. Refcounted: by the tables that name it. */
struct gateway_live {
    _Atomic uint32_t refs;
    struct gateway *g;
    struct arena arena;
    struct gateway_pool o; /* a copy */
    struct gateway_transport *transport;
    struct gateway_transport *plain; /* of metrics pages on a port of their own; NULL: those are not */
    struct os_mutex lock;            /* RANK_POOL: the rest of this group */
    struct pool *pool;
    struct retry_budget budget;
    struct waitlist waits; /* forward.waiter: no server has room */
    struct delay delay;    /* how long answers take */
    bool lookup_stale;     /* the latest lookup of some servers yielded nothing */
    struct metric *unreplayable;
    struct metric *retries, *queued, *queue_refused, *budget_refused;
    /* a struct attendant for each server, by what it does; the check thread's */
    struct list checks;        /* probe.c */
    struct list pages, agents; /* report.c */
    struct metric *lookup_failures;
    struct geo *geo;             /* geo.c; lock */
    _Atomic uint64_t geo_stamp;  /* of its file, as it was last read */
    _Atomic uint64_t file_stamp; /* of servers_file, as it was last read */
    struct metric *hedges[HEDGE_RESULTS];
    struct metric *report_failures, *evicted;
    struct metric_histogram *queue_seconds;
    struct metric *tunnels, *tunnels_ended[TUNNEL_RESULTS], *tunnel_bytes[TUNNEL_WAYS];
};

/* One configuration of routes; immutable, refcounted by the gateway and by the requests under way. */
struct gateway_table {
    _Atomic uint32_t refs;
    struct arena arena;
    struct gateway_config config;
    struct gateway_live **pools; /* [config.n_pools] */
    uint64_t max_body;
};

struct gateway {
    struct gateway_options o;
    struct os_mutex lock; /* RANK_ROUTES */
    struct gateway_table *table;
    char *zones[GATEWAY_ZONES];        /* id - 1 -> name; grows only; lock */
    char via[40];                      /* "inferd-1f2e3d4c": how this process finds requests that come back */
    char via_http1[48], via_http2[48]; /* the whole of a Via header that has no other in front */
    uint64_t seed;
    _Atomic uint64_t transports; /* made so far */
    struct metric_family *requests_family;
    /* check.c */
    struct os_thread checker, resolver;
    bool checker_started, resolver_started;
    struct loop *loop;
    _Atomic bool stop;
};

/* ---- gateway.c ---- */
struct gateway_table *gateway__table_get(struct gateway *g); /* a reference */
void gateway__table_unref(struct gateway_table *t);
struct gateway_live *gateway__pool_of(const struct gateway_table *t, const char *name); /* borrowed */
/* The id of a zone's name, 0 for "" or when there are too many. */
uint32_t gateway__zone_id(struct gateway *g, const char *name);
/* The same for a name from outside: 0 when no server has it. */
uint32_t gateway__find_zone(struct gateway *g, struct str name);

/* ---- pools.c ---- */
struct gateway_live *live_create(struct gateway *g, const struct gateway_pool *o, struct error *err);
struct gateway_live *live_ref(struct gateway_live *p);
void live_unref(struct gateway_live *p);
/* Count an ended try and give its place to who waits. */
void live_done(struct gateway_live *p, const struct pick *k, enum pick_outcome outcome, uint64_t now_ns);
/* Wake the first that waits, if any; p->lock held. */
void live_wake_one(struct gateway_live *p);

/* ---- peers.c ---- */
struct forward;

/* Connections of one loop; LOOP_SLOT_GATEWAY. */
struct gateway_loop {
    struct gateway *g;
    struct loop *loop;
    struct map peers;  /* transport's id and name -> struct peer */
    struct list conns; /* all of them */
    struct list idle;  /* conn.old, longest idle first */
    struct loop_timer sweep;
};

#define PEER_KEY_BYTES (OS_ADDR_TEXT_BYTES + sizeof(uint64_t))

/* A server as this loop sees it. */
struct peer {
    char key[PEER_KEY_BYTES]; /* the transport's id, then `name` */
    const char *name;         /* in `key`, NUL-terminated */
    char *host;               /* whom it must prove to be over TLS */
    struct os_addr addr;
    struct gateway_transport *transport;
    struct dial_tls tls; /* client NULL: plain */
    struct tls_resume resume;
    struct list idle;                    /* conn.idle, latest first */
    struct list h2;                      /* conn.idle of those that speak HTTP/2, in use or not */
    uint32_t n_idle, n_conns, n_warming; /* warming: being opened ahead */
    uint64_t told_ns;                    /* when a failed handshake was last logged */
    bool speaks_h2;                      /* GATEWAY_AUTO: it did last time */
};

struct conn {
    struct http_channel channel;
    struct gateway_loop *home;
    struct peer *peer;
    struct list all, idle, old;
    struct exchange *x; /* NULL: idle, or HTTP/2 */
    /* HTTP/2 */
    bool is_h2, waiting; /* waiting: it is not connected yet */
    struct http2_channel *h2;
    struct list streams; /* exchange.link */
    uint32_t n_streams;
    bool gone;    /* dropped */
    bool warming; /* being opened ahead, for nobody yet */
    struct loop_task reap;
    uint64_t idle_since_ns;
    struct buf head; /* of the request that is sent */
};

/* NULL: out of memory. */
struct gateway_loop *peers_of_loop(struct gateway *g, struct loop *loop);
/* It is being opened ahead no more: it is connected, or came to nothing. */
void peers__warm(struct conn *c);
/* Back into the idle ones, unless there are enough already or it is closed. */
void peers__give(struct conn *c);
/* An HTTP/2 one on which nothing goes on: its idle time begins. */
void peers__rest(struct conn *c);
/* Close it. Idempotent. */
void peers__drop(struct conn *c);
/* A handshake failed: say so, not too often. */
void peers__tls_failed(struct conn *c, const struct error *err);

/* ---- explain.c ---- */
enum exchange_fault exchange__connect_fault(const struct dial *d); /* of one that has failed */
const char *exchange__explain(enum exchange_fault fault);          /* a sentence */

/* ---- exchange_h1.c ---- */
/* Make `c`'s connection ready to carry `x`. */
void h1__attach(struct conn *c);
extern const struct exchange_ops h1__ops;

/* ---- exchange_h2.c ---- */
/* `c` is to speak HTTP/2 once it is connected. */
void h2__attach(struct conn *c);
/* It is connected: begin to. False: no memory. */
bool h2__start(struct conn *c, struct error *err) MUST_CHECK;
bool h2__has_room(const struct conn *c);
void h2__join(struct conn *c, struct exchange *x);
extern const struct exchange_ops h2__ops;

/* ---- upload.c ---- */

/* A request's body; see there. */
struct upload {
    bool streamed, ended; /* it comes as it comes; all of it has */
    struct slice whole;   /* not streamed: borrowed, or rewritten and owned */
    struct buf kept;
    uint64_t base, sent, total, told, keep;
};

void upload_init(struct upload *u, struct slice whole); /* taken over */
void upload_init_streamed(struct upload *u, uint64_t keep);
void upload_release(struct upload *u);
bool upload_can_rewind(const struct upload *u);
void upload_rewind(struct upload *u); /* for another try */
struct str upload_pending(const struct upload *u, bool *last);
void upload_taken(struct upload *u, struct http_request *r, size_t n);
/* A piece came. TOO_LARGE: past `limit`; NOMEM, UNAVAILABLE. */
int upload_add(struct upload *u, struct http_request *r, struct slice piece, bool last, uint64_t limit,
               struct error *err) MUST_CHECK;

/* ---- forward.c ---- */

enum forward_phase {
    FORWARD_WAITING,
    FORWARD_CONNECTING,
    FORWARD_SENT,
    FORWARD_BUFFERING,
    FORWARD_STREAMING,
    FORWARD_TUNNEL,
    FORWARD_OVER
};

struct forward {
    struct http_request *r;
    struct gateway *g;
    struct gateway_target target;
    struct gateway_live *p; /* the route's pool, or its fallback; borrowed from the table */
    struct gateway_loop *home;
    struct gateway_hints hints;
    struct pick_request ask;
    struct pick pick;
    struct exchange x;
    struct hedge *hedge;   /* the second try beside it; NULL: none so far */
    struct tunnel *tunnel; /* FORWARD_TUNNEL and behind it */
    enum forward_phase phase;
    bool upgrade; /* it asks to become a WebSocket, and may */
    bool picked, counted, retrying, on_fallback, events, blocked;
    bool left; /* a server has ended a connection before it began on this: that happens once */
    uint32_t tries;
    uint64_t wait_until_ns;             /* for room; 0: it doesn't wait */
    uint64_t deadline_ns, try_until_ns; /* of the beginning of the answer; UINT64_MAX: none */
    struct loop_timer timer;
    struct exchange_request request; /* of this try; in the request's arena */
    struct upload up;
    uint64_t client_deadline_ns; /* the client's own; UINT64_MAX: none */
    struct waiter waiter;        /* in p->waits; p->lock */
    bool evicted;                /* p->lock: somebody more important took its place; its task is on the way */
    uint64_t waits_since_ns;
    struct loop_task task;
    bool posted;              /* p->lock: taken off the queue, the task is on its way */
    struct buf answer;        /* FORWARD_BUFFERING */
    struct loop_task begin;   /* answer.c: at the end of the iteration in which the head came */
    bool held, begin_queued;  /* a long answer, of which the client has heard nothing yet; the task is on its way */
    struct usage_peek *usage; /* of an answer that may tell how many tokens it took */
    struct error last;        /* why the latest try failed */
    int last_status;          /* STATUS_UPSTREAM, STATUS_DEADLINE ... */
    uint64_t *blocks;         /* [PREFIX_BLOCKS_MAX], in the arena; NULL: nobody asks */
};

/* It is over: count, free, let go. The reply has been given. */
void forward__end(struct forward *f, enum pick_outcome outcome);
/* When to be woken next. */
void forward__arm(struct forward *f, uint64_t at_ns);

/* A hedge came to nothing after the first try had: try elsewhere, or say what the latest failure was. */
void forward__lost(struct forward *f, const char *why);
/* Another's answer is taken: this try is cancelled. */
void forward__yield(struct forward *f);
/* What an answer of this status says about its server. */
enum pick_outcome forward__outcome(int status);

/* ---- hedge.c ---- */
/* The first try is on its way: when a second one is to begin beside it, if the pool and the request allow that. */
void hedge__arm(struct forward *f, uint64_t now_ns);
/* It is not wanted any more. Idempotent. */
void hedge__drop(struct forward *f);
/* The first try has failed; true: the hedge runs, and is waited for. */
bool hedge__takes_over(struct forward *f);

/* ---- answer.c ---- */
void answer__begin(struct forward *f);
void answer__take(struct forward *f, struct str part);
void answer__end(struct forward *f);
/* It broke after its beginning was sent: say so in-band where the format has a way, and end. */
void answer__break(struct forward *f, int status, const char *text);

/* ---- tunnel.c ---- */
/* A 101 came: is it the answer to this request's key? */
bool tunnel__is_accepted(const struct forward *f);
/* The two connections are one from here on. False: no memory, and nothing has happened. */
bool tunnel__begin(struct forward *f);
/* The server sent something; took something; sends no more; broke off. */
void tunnel__take(struct forward *f, struct str part);
void tunnel__taken(struct forward *f);
void tunnel__ended(struct forward *f);
void tunnel__broke(struct forward *f);
/* Nothing has moved for as long as that may be. */
void tunnel__silent(struct forward *f);
/* It is over: into the metrics; before its try is counted. */
void tunnel__count(struct forward *f);

/* ---- headers.c ---- */
/* The request as it is sent on, into f->request. INVALID names a header that can't be sent. */
int headers__request(struct forward *f, uint64_t now_ns, struct error *err) MUST_CHECK;
/* Headers of an answer that are passed back, into an array in the request's arena; the content type apart. NULL: out of memory. */
struct http_header *headers__answer(struct forward *f, size_t *n, const char **content_type);
/* Its trailers that are passed back; *n 0: none. */
struct http_header *headers__trailers(struct forward *f, size_t *n);
/* Has this request been here before? */
bool headers__looped(const struct gateway *g, const struct http_request *r);

/* ---- geo.c ---- */
/* INVALID: the file can't be used. */
int geo__open(const struct gateway_pool *o, struct geo **out, struct error *err) MUST_CHECK;
void geo__close(struct geo *g); /* NULL is accepted */
/* The id of the zone to prefer for a client, 0: none. */
uint32_t geo__zone(struct gateway_live *p, struct str address);
/* The file has changed. */
void geo__refresh(struct gateway_live *p);

/* ---- probe.c ---- */
/* Checks for the servers that are there, none for those that left. The check thread. */
void probe__tend(struct gateway_live *p);
void probe__stop(struct gateway_live *p);

/* ---- report.c ---- */
/* An answer's head is in: its load header, where the pool asks for one. */
void report__head(struct forward *f);
/* Polls for the servers that are there, none for those that left. The check thread. */
void report__tend(struct gateway_live *p);
void report__stop(struct gateway_live *p);

/* ---- discover.c ---- */
/* Find `o`'s servers by name and file, and set them. A name or file that yields nothing keeps what was there from it: warned about, counted.
 * Blocks on the resolver. INVALID: something that is no address; NOMEM. */
int discover__servers(struct gateway_live *p, const struct gateway_pool *o, struct error *err) MUST_CHECK;
/* What the resolver thread does every RESOLVE_NS: names whose time has come, files that have changed. */
void discover__round(struct gateway_live *p, const struct gateway_pool *o, uint64_t round);
/* Of a file: what changes when somebody writes or replaces it; 0: it isn't there. */
uint64_t discover__stamp(const char *path);
#define RESOLVE_NS 250000000ull

/* ---- check.c ---- */
/* What is done again and again for one server of a pool: a check, a poll. Embedded; the check thread's. */
struct attendant {
    struct list link;
    struct gateway_live *p;
    char name[OS_ADDR_TEXT_BYTES]; /* of the server */
    char host[256];                /* whom it has to prove to be, and is asked for; "" when it is an address */
    bool wanted;
};

/* One kind of them. `start` makes one for `who`, which says pool, name and host, and returns its own copy of `who`; NULL where that can't be now:
 * it is asked again at the next round. `stop` takes it down; it is not in a list any more. */
struct attendant_kind {
    struct attendant *(*start)(const struct attendant *who);
    void (*stop)(struct attendant *a);
};

/* Make `list` hold one for each server of the pool, or none where it is not `wanted`: those of servers that left are stopped. */
void check__attend(struct gateway_live *p, struct list *list, const struct attendant_kind *kind, bool wanted);
/* Stop all. */
void check__dismiss(struct list *list, const struct attendant_kind *kind);
/* The server of this name; p->lock held. NULL: it left. */
struct upstream *check__find(struct gateway_live *p, const char *name);
int check__start(struct gateway *g, struct error *err) MUST_CHECK;
/* gauges.c: a hook of the metrics page; `ctx` is the gateway. */
void gauges__render(void *ctx, struct buf *out);
void check__stop(struct gateway *g);

#endif
