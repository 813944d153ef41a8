/* gateway.h: requests that other servers answer: which pool they go to, and sending them there.
 *
 * Decisions (which route, which upstream, when to eject, how many retries) are route/'s; here are the connections, the clock and the locks.
 *
 * Threads: a request is forwarded on its own I/O thread, over connections that belong to that thread. Pools are shared and locked around each
 * decision. One thread of its own ticks the pools and runs active checks, one more looks up names where there are any. */
#ifndef INFERD_GATEWAY_GATEWAY_H
#define INFERD_GATEWAY_GATEWAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "conf/gateway_config.h"
#include "net/http.h"
#include "obs/metrics.h"

struct gateway;
struct gateway_table;

struct gateway_options {
    const struct gateway_config *config; /* copied */
    const char *zone;                    /* "": none */
    const char *resolver;                /* DNS server to ask, "IPv4:port"; "": the system's way of finding names */
    struct metrics *metrics;
    struct logger *log;
};

/* Resolves every name (may block on the resolver); a name that can't be resolved yet is a warning, and is tried again. Starts the threads.
 * INVALID, NOMEM. */
int gateway_create(const struct gateway_options *o, struct gateway **out, struct error *err) MUST_CHECK;
/* Other pools and routes from now on. What is under way ends under the ones it began with. Pools of the same name keep what they know of
 * servers of the same address. On error nothing changes. */
int gateway_reload(struct gateway *g, const struct gateway_config *config, struct error *err) MUST_CHECK;
/* Stop the threads: no checks, no lookups any more. Requests still end. */
void gateway_close(struct gateway *g);
/* After the HTTP servers are gone. Accepts NULL. */
void gateway_destroy(struct gateway *g);

enum gateway_where {
    GATEWAY_LOCAL,  /* no route sends it away */
    GATEWAY_REMOTE, /* target->route says where */
    GATEWAY_MODEL,  /* depends on the model, which is not known yet */
};

/* A route that was chosen; holds a reference to its table until gateway_forward or gateway_forget. */
struct gateway_target {
    struct gateway_table *table;
    const struct gateway_route *route;
};

/* Where does `r` go? `model`: its name where it is known from the path (.p != NULL), or `model_known`: after the body has been read. */
enum gateway_where gateway_match(struct gateway *g, const struct http_request *r, struct str model, bool model_known,
                                 struct gateway_target *target);
void gateway_forget(struct gateway_target *target);
/* Does the chosen route or its pools use what the body says (the model's name to rewrite, a user to hash, a prompt to compare)? */
bool gateway_asks_for_body(const struct gateway_target *target);
/* Does it ask to become a WebSocket (HTTP/1.1, GET, no body)? What that is for on a route without `websocket` is up to who answers: it is an
 * ordinary request there. */
bool gateway_asks_upgrade(const struct http_request *r);
/* From on_headers, for every request that a route sends away: one that asks to become a WebSocket where the route allows it may (http_tunnel_offer).
 * INVALID: it doesn't ask properly; UNAVAILABLE. */
int gateway_offer_upgrade(const struct gateway_target *target, struct http_request *r, struct error *err) MUST_CHECK;
/* From on_headers, for a request whose body nobody here asks for: have it come in pieces (r->on_body) where that is worth it. gateway_forward then is
 * called at once, without the body. False: it is collected. */
bool gateway_stream_body(const struct gateway_target *target, struct http_request *r);
/* http_request.on_body of such a request, or what its owner's own on_body calls; from gateway_forward on. */
void gateway_piece(struct http_request *r, struct slice piece, bool last);
/* End it: what came in a piece can't be passed on. Answered with the error, or cut off where an answer has begun. */
void gateway_cut(struct http_request *r, int status, const char *text);
/* Does the chosen route give models another name? */
bool gateway_rewrites(const struct gateway_target *target);
/* The largest body that any route takes; for requests whose route isn't known before the body. */
uint64_t gateway_max_body(struct gateway *g);

/* What is known of the request beside its bytes. */
struct gateway_hints {
    struct str model, user;
    struct str model_raw; /* the model's value where it lies in the body, quotes included; .p == NULL: it is not there */
    bool stream;          /* the answer is wanted in pieces */
    uint64_t tokens;      /* prompt and answer, roughly; 0: unknown */
    struct str prompt;    /* raw bytes of the prompt's value in the body; .n == 0: unknown */
    struct str tenant;    /* whose request it is, for turns in the queue; .n == 0: nobody is known */
    int priority;         /* 1 + enum wait_class of route/waitlist.h; 0: the route's */
    uint64_t *
        used; /* set to the tokens that the answer says it took, where it says so, before the reply is complete; in the request's arena;
                       NULL: nobody asks */
    bool grpc; /* the body comes in pieces (gateway_piece), errors are gRPC's, `endless`: max_body does not bound it */
    bool endless;
    int *grpc_code;       /* set to the status that the call's server ended it with, before the reply is complete; as `used` */
    bool own_credentials; /* Authorization and x-api-key were meant for this server: they are not sent on */
};

/* Send it on; leads to exactly one reply. `target` is taken. Loop thread, from on_request. */
void gateway_forward(struct gateway *g, struct http_request *r, struct gateway_target *target,
                     const struct gateway_hints *hints);

/* Pools and servers with their state, as members of a JSON object, for the admin page. Any thread. */
void gateway_status(struct gateway *g, struct buf *out);

#endif
