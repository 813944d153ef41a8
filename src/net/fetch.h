/* fetch.h: whole files over HTTP(S) from somebody else's server: redirects, resuming, proxies of the environment. For `inferd pull`.
 *
 * Over libcurl, which is opened at the first use (a server that only serves never maps it). Blocking; one transfer at a time; one thread.
 * Only http and https, at most 10 redirects, certificates checked. A token is sent to the host that was asked and to no other. */
#ifndef INFERD_NET_FETCH_H
#define INFERD_NET_FETCH_H

#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct fetch;

/* UNAVAILABLE: libcurl is not installed. */
int fetch_create(struct fetch **out, struct error *err) MUST_CHECK;
void fetch_destroy(struct fetch *f); /* NULL accepted */

struct fetch_request {
    const char *url;
    const char *token; /* bearer token; NULL: none */
    uint64_t from;     /* first byte wanted; 0: all */
    uint64_t stall_ns; /* give up when less than 1 byte a second came for so long; 0: 60 s */
    /* A part of the body of a 2xx answer; `status` is its status (206: it begins at `from`). Negative: stop; returned by the call. */
    int (*on_body)(void *ctx, int status, struct str part);
    void *ctx;
};

struct fetch_answer {
    int status;       /* of the last answer */
    uint64_t length;  /* bytes of the body that came */
    struct str error; /* the beginning of the body of an answer that isn't 2xx; borrowed until the next call */
};

/* UNAVAILABLE no connection or name, TIMEOUT stalled, IO the transfer broke off (what came was given), INVALID the URL; statuses of the
 * server are not errors. */
int fetch_get(struct fetch *f, const struct fetch_request *r, struct fetch_answer *out, struct error *err) MUST_CHECK;

#endif
