/* guard_priv.h: for guard.c and guard_generate.c only. */
#ifndef INFERD_API_GUARD_PRIV_H
#define INFERD_API_GUARD_PRIV_H

#include "api/api_priv.h"
#include "api/guard.h"
#include "base/size.h"

/* The rules of all output policies that hold for a request. */
struct guard_selection {
    const struct policy_rule *rules[POLICY_RULES_MAX];
    const struct guard_output *policy[POLICY_RULES_MAX];
    size_t index[POLICY_RULES_MAX]; /* in its policy */
    size_t n, hold_bytes;
    bool changes; /* one of them redacts or refuses */
};

/* Returns how many. */
size_t api__guard_select(const struct guard_set *set, const struct guard_who *who, struct guard_selection *out);
/* Count what `r` has found. */
void api__guard_count(struct api *a, const struct guard_selection *s, const struct redactor *r, const struct guard_who *who,
                      const char *request_id);

/* g->who has its model: which input policies hold. */
void api__guard_choose(struct api_guard *g);
/* Input policy `i` has found something: count, log, and by its mode refuse (returns rc) or remember (returns 0). */
int api__guard_found(struct api_call *call, const struct guard_who *who, size_t i, enum guard_check check, enum guard_mode mode,
                     int rc, const char *request_id, const struct error *err, uint64_t *flagged) MUST_CHECK;
/* Content type and the body's limit, for the model in the path. I/O thread. */
int api__guard_head(struct http_request *r, struct api_call *call, struct error *err) MUST_CHECK;
int api__guard_body(struct api_call *call, const struct guard_who *who, uint64_t bytes, const char *request_id,
                    uint64_t *flagged, struct error *err) MUST_CHECK;
int api__guard_depth(struct api_call *call, const struct guard_who *who, struct str json, const char *request_id,
                     uint64_t *flagged, struct error *err) MUST_CHECK;

#endif
