/* edge.h: the one authorisation point: credentials, a route's need and a model's name in, a decision out.
 *
 * Protocols call edge_authorise once a request, after routing and before its body is read; where the model's name is in the body they
 * ask again for the model (edge_authorise_model). There is no other place that decides, and what a route doesn't declare is denied.
 * Without a source of identities (no key file, no token issuer, no client authority) the edge is open and every answer is yes; then the
 * configuration's own rules keep the listeners on loopback.
 *
 * Threads: edge_authorise from any I/O thread at once; it takes one lock for the length of a hash lookup, never while it verifies a token.
 * Replacing the keys takes the same lock for a pointer swap. Clocks are passed in. */
#ifndef INFERD_EDGE_EDGE_H
#define INFERD_EDGE_EDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "edge/identity.h"

struct edge;
struct metrics;
struct jwt_rules; /* edge/jwt.h */

struct edge_options {
    bool keys;                      /* there is a key file: its table comes by edge_set_keys */
    const struct jwt_rules *tokens; /* NULL: no tokens are taken; keys come by edge_set_issuer_keys. Outlives the edge */
    struct metrics *metrics;        /* may be NULL */
};

/* NULL when out of memory. */
struct edge *edge_create(const struct edge_options *o);
void edge_destroy(struct edge *e); /* nobody may use it any more; NULL is accepted */

/* Is anything asked of callers? Constant after start. */
bool edge_is_closed(const struct edge *e);

/* Replace the keys by those of `text`, the content of the file called `where`. On an error (INVALID names the line) the old keys stay
 * in force. *n: how many there are now. Any thread. */
int edge_set_keys(struct edge *e, struct str text, const char *where, size_t *n, struct error *err) MUST_CHECK;

/* Replace the issuer's keys by those of `text` (a JWK set). Tokens that were verified under the old ones are verified anew. Errors as
 * above. */
int edge_set_issuer_keys(struct edge *e, struct str text, const char *where, size_t *n, struct error *err) MUST_CHECK;
/* Did a token name a key that we don't have, since edge_set_issuer_keys or since `clear` was passed? */
bool edge_misses_key(struct edge *e, bool clear);

/* What a route asks of its caller: a constant of the route table. */
struct edge_need {
    unsigned scope;   /* one of enum edge_scope; 0: nobody passes, whoever asks */
    bool every_model; /* its answer is about all models at once: who may see only some is refused */
    bool open;        /* nothing is asked (a liveness probe) */
};

/* As received; .p == NULL: not sent. */
struct edge_credentials {
    struct str authorization, api_key; /* the headers Authorization and x-api-key */
    bool repeated;                     /* one of them was there more than once */
    const struct str *certificate;     /* names of the verified client certificate, "URI:spiffe://..." */
    size_t n_certificate;
};

struct edge_ask {
    struct edge_credentials credentials;
    struct edge_need need;
    struct str model; /* empty: the route has none, or it isn't known yet */
    uint64_t now_s;   /* wall clock, since 1970 */
};

/* Why a caller was turned away, as the `reason` of audit records and the label of inferd_auth_total. */
enum edge_verdict {
    EDGE_OPEN, /* nothing was asked */
    EDGE_ALLOWED,
    EDGE_NO_CREDENTIALS,
    EDGE_BAD_CREDENTIALS,
    EDGE_EXPIRED,
    EDGE_NO_SCOPE,
    EDGE_HIDDEN_MODEL,
    EDGE_OVER_QUOTA, /* by quota_gate.h, not by edge_authorise */
    EDGE_BAD_INPUT,  /* by guard.h: an input policy refused it */
    EDGE_BAD_OUTPUT, /* by policy.h: an output policy ended the answer */
    EDGE_VERDICTS
};
const char *edge_verdict_name(enum edge_verdict v);

/* 0: go on. UNAUTHENTICATED (401; ask for credentials), FORBIDDEN (403), NOT_FOUND (404: the model is hidden from this caller; the text
 * is that of a model that doesn't exist). *who: the caller where he could be told, also when he is refused; a reference of the
 * caller's, NULL where nobody is known (on an open route: where he brought nothing that is valid). *verdict says which. */
int edge_authorise(struct edge *e, const struct edge_ask *ask, struct edge_identity **who, enum edge_verdict *verdict,
                   struct error *err) MUST_CHECK;

/* The same question about one more model, for a caller who passed. `who` may be NULL (open edge). NOT_FOUND as above. */
int edge_authorise_model(struct edge *e, const struct edge_identity *who, struct str model, enum edge_verdict *verdict,
                         struct error *err) MUST_CHECK;

#endif
