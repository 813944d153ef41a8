/* limit_policy.h: what an operator says about overload: which requests matter most, and per model how it is limited, when it is taken out of
 * service, and what answers instead. From YAML (docs/guide/overload.md); immutable once parsed. */
#ifndef INFERD_EDGE_LIMIT_POLICY_H
#define INFERD_EDGE_LIMIT_POLICY_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "edge/breaker.h"
#include "edge/limit.h"

#define LIMIT_RULES_MAX  256
#define LIMIT_MODELS_MAX 1024
#define LIMIT_CHAIN_MAX  8 /* fallbacks in a row */

/* Patterns as edge_pattern_match; NULL: any. */
struct limit_rule {
    const char *quota_class, *tenant, *model, *route;
    enum limit_class class; /* of what matches */
    enum limit_class best;  /* the most important that a client may ask for by header or KServe priority */
};

struct limit_model_policy {
    const char *match;
    bool limited, breaks;
    bool pressure;              /* shares the machine with the others: see pressure.h */
    struct limit_options limit; /* least 0: what keeps the model busy; most 0: as the gate thinks right */
    struct breaker_options breaker;
    const char *fallback; /* NULL: none */
    bool cache;           /* a cached answer is better than none */
};

struct limit_policy {
    struct limit_rule *rules;
    size_t n_rules;
    bool asks; /* some rule lets clients ask for more than its class */
    struct limit_model_policy *models;
    size_t n_models;
};

/* Everything is in `arena`. INVALID names file, line and what is accepted; also for a ring of fallbacks. */
int limit_policy_parse(struct str text, const char *where, struct arena *arena, struct limit_policy *out,
                       struct error *err) MUST_CHECK;

/* The first entry that matches the model; NULL: nothing is said about it. */
const struct limit_model_policy *limit_policy_model(const struct limit_policy *p, struct str model);

/* Call back with each model that the rules name without a wildcard: what entries match, and fallbacks. */
void limit_policy_each_name(const struct limit_policy *p, void (*each)(void *ctx, struct str model), void *ctx);

struct limit_ask {
    struct str quota_class, tenant, model, route;
    int asked; /* enum limit_class that the client asks for; -1: none */
};
/* The class of a request: that of the first rule that matches, else normal; or the one asked for, as far as the rule goes. Less important
 * than the rule says may always be asked for. */
enum limit_class limit_policy_class(const struct limit_policy *p, const struct limit_ask *ask);

/* "core" ... "low"; -1: not one. */
int limit_class_parse(struct str name);

#endif
