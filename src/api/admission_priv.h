/* admission_priv.h: for api's own files: where requests meet the limits and breakers of their models (edge/limit_gate.h), and what answers in
 * a model's place when it can't.
 *
 *   new ─> admit ──ok──────────────────────────────────────────────────────────> end
 *            └─refused, or it fails later for want of room─> first ─> cache, next ─> admit ...
 *
 * A request has one `struct admission`, made only where the server has such rules: without them a request pays for a look at a pointer. One
 * thread at a time: whoever works on the request. */
#ifndef INFERD_API_ADMISSION_PRIV_H
#define INFERD_API_ADMISSION_PRIV_H

#include "api/api_priv.h"
#include "edge/limit_gate.h"

struct admission {
    struct limit_ticket ticket;
    struct str model;          /* that was asked for; lives as long as the request */
    enum limit_class class;    /* once admit was asked */
    enum limit_reason why;     /* the model that was asked for doesn't answer; LIMIT_NONE: it does */
    enum limit_reason refused; /* by admit, just now */
    const char *fallback;      /* answers in its place; NULL: none does */
    bool admitted, from_cache, charged;
    uint32_t hops;
    uint64_t since_ns; /* admitted */
    char text[176];    /* of x-inferd-degraded */
    /* what is answered if nothing else answers */
    int status;
    uint32_t retry_after_s;
    const struct error *first; /* with `why` */
};

/* In `arena`; NULL without rules, or without memory. */
struct admission *api__admission_new(struct api *a, struct arena *arena, struct str model);
/* May a request be admitted before its body is read? Not where the body may say how much it matters. */
bool api__admission_is_early(const struct api *a);

/* Ask the limit and the breaker of `v`. `priority`: KServe's, 0: none. EXHAUSTED, UNAVAILABLE; INVALID: a class that isn't one. */
int api__admit(struct http_request *r, struct api_call *call, struct admission *m, const struct model_version *v,
               uint32_t priority, struct error *err) MUST_CHECK;
/* The attempt at a model is over: how, and what it took (limit_gate_end). An empty ticket is fine. */
void api__admission_end(struct api *a, struct admission *m, int status, uint64_t latency_ns, uint64_t run_ns, uint64_t size);

/* An attempt failed with `status`: is it one after which another may answer? Remembers the first failure, which is the answer if none does,
 * in `arena`, where the admission is. */
bool api__admission_may_degrade(struct http_request *r, struct api_call *call, struct admission *m, int status,
                                const struct error *err, struct arena *arena);
/* Does a rule allow a cached answer of the model that was asked for? At most once. */
bool api__admission_may_use_cache(struct api *a, struct admission *m);
/* The next model that may answer, in the order of the rules: of the token face or not, and giving embeddings or not. A reference; NULL: none. */
struct model_version *api__admission_next(struct api *a, struct admission *m, bool token, bool embeds);
/* Say in the reply's headers, and to metrics and log, that another answers. I/O thread, before the reply. */
void api__admission_tell(struct http_request *r, struct api *a, struct admission *m, bool in_headers);

#endif
