/* export_priv.h: for conf/export*.c only.
 *
 *   export.c          the plan: pools and routes with the last one added, names, addresses; what all three share
 *   export_notes.c    what the front can't say
 *   export_nginx.c    export_haproxy.c   export_envoy.c: one front each */
#ifndef INFERD_CONF_EXPORT_PRIV_H
#define INFERD_CONF_EXPORT_PRIV_H

#include "base/arena.h"
#include "conf/export.h"

#define EXPORT_MS 1000000ull

#define EXPORT_NORMAL 2 /* `priority` */
enum export_protocol { EXPORT_HTTP1, EXPORT_HTTP2, EXPORT_AUTO };
enum export_balance {
    EXPORT_ROUND_ROBIN,
    EXPORT_LEAST_CONN,
    EXPORT_P2C,
    EXPORT_HASH,
    EXPORT_LLM
}; /* as gateway_config.c's words */

/* "host:port" taken apart. */
struct export_address {
    struct str host; /* without brackets; "" for * */
    struct str port;
    const char *path; /* of unix:/path; NULL */
};

struct export_pool {
    const struct gateway_pool *o;
    const char *name;  /* letters, digits, _ and - */
    const char *where; /* "upstreams[llm]", for notes */
};

struct export_route {
    const struct gateway_route *o;
    const struct export_pool *pool;
    const char *where; /* "routes[2]", for notes */
};

struct export_plan {
    const struct config *c;
    const struct export_options *o;
    struct arena *arena;
    struct buf *out, *notes;
    struct export_address listen, grpc; /* grpc.port.n 0: none */
    bool tls;
    struct export_pool *pools;
    struct export_route *routes; /* the last one takes everything */
    size_t n_pools, n_routes;
    const struct gateway_pool *usual; /* the defaults of a pool's keys */
};

/* A line of notes: "where: text". */
void export__note(struct export_plan *p, const char *where, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* `text` for a regular expression, every byte as itself, without quotes, spaces or backslash-quote troubles ("\x20"). */
void export__regex(struct buf *out, struct str text);
/* The paths of a route as an anchored regular expression; NULL: all paths. Model names are those of /v2/models/NAME. In the plan's arena. */
const char *export__path_regex(struct export_plan *p, const struct gateway_route *r);
/* A host pattern ("*.example.com") as an anchored expression, the port left open. */
void export__host_regex(struct buf *out, const char *pattern);
/* "name: value" taken apart; value.p NULL: there is none. */
void export__header(const char *text, struct str *name, struct str *value);
/* Milliseconds, at least 1. */
unsigned long long export__ms(uint64_t ns);
/* Is `word` among them? */
bool export__has_word(const struct gateway_words *w, const char *word);
struct export_address export__address(const char *text);
/* Whom a pool's servers have to prove to be, and the file of authorities; for pools with tls.ca. */
struct str export__tls_name(const struct gateway_pool *o);
const char *export__tls_ca(const struct gateway_pool *o);
bool export__is_ip(struct str host);
/* Did file or flags give this option? */
bool export__is_set(const struct export_plan *p, const char *option);
/* Name everything that the front has no words for. */
void export__notes(struct export_plan *p);

void export__nginx(struct export_plan *p);
void export__haproxy(struct export_plan *p);
void export__envoy(struct export_plan *p);

#endif
