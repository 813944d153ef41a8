/* quota.h: how much a caller may have: rates, concurrency, and budgets by calendar, over several levels at once. Exact and local.
 *
 * A policy says for whom it is (match), over what it counts (per: each key, each tenant, ...), and its limits. A request is held against every
 * policy that matches it, in one step: either all have room and all are charged, or none is and the answer names the one that hasn't.
 *
 *     reserve ──> (more) ──> settle      real usage is known: what was reserved above it goes back
 *        └──────────────────> refund     nothing was done: all of it goes back
 *        └─ expiry ─────────> settle     by what was noted until then: a caller that never came back holds nothing for ever
 *
 * So a hundred requests at once can't pass a budget for one: each reserves what it may cost before it runs. A reservation is named by an id
 * that is never used twice; settling one that is over does nothing.
 *
 * Rates are token buckets in whole numbers: a bucket of `burst` units holds burst * period, gains `limit` every nanosecond, and a unit takes
 * `period` out: no rounding, no drift. Budgets are counts of the UTC day or month.
 *
 * Pure: no clock, no lock, no allocation after quota_create. One thread at a time (edge/quota_gate.c locks). */
#ifndef INFERD_EDGE_QUOTA_H
#define INFERD_EDGE_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define QUOTA_LEVELS_MAX   16 /* policies that one request may be held against */
#define QUOTA_POLICIES_MAX 256
#define QUOTA_LIMIT_MAX    1000000000000ull

enum quota_unit {
    QUOTA_REQUESTS_PER_SECOND,
    QUOTA_ROWS_PER_SECOND,
    QUOTA_TOKENS_PER_MINUTE,
    QUOTA_CONCURRENT,
    QUOTA_REQUESTS_PER_DAY,
    QUOTA_TOKENS_PER_DAY,
    QUOTA_REQUESTS_PER_MONTH,
    QUOTA_TOKENS_PER_MONTH,
    QUOTA_UNITS
};
/* "requests_per_second": the key in a policy file, and what headers call it. */
const char *quota_unit_name(enum quota_unit u);
/* A budget is used up until a date, a rate until a moment. */
bool quota_unit_is_budget(enum quota_unit u);
/* What it counts; neither: requests. */
bool quota_unit_counts_rows(enum quota_unit u);
bool quota_unit_counts_tokens(enum quota_unit u);

enum quota_per { QUOTA_PER_KEY = 1, QUOTA_PER_TENANT = 2, QUOTA_PER_MODEL = 4, QUOTA_PER_ROUTE = 8 };

/* Strings live as long as the quota. Patterns as edge_pattern_match; NULL: any. */
struct quota_policy {
    const char *name;
    unsigned per; /* of enum quota_per; 0: one count for all together */
    const char *quota_class, *tenant, *model, *route;
    uint64_t limit[QUOTA_UNITS]; /* 0: none */
    uint64_t burst[QUOTA_UNITS]; /* of rates: units that may come at once; 0: one second's, or minute's, worth */
    signed char said;            /* `shared:` of the file: 0 nothing, 1 true, -1 false */
    bool shared;                 /* counted by all servers together (quota_shared.h) */
};

/* Read policies from YAML (docs/guide/security.md); they and their strings live in `arena`. INVALID names file, line and what is accepted. */
struct arena;
int quota_policies_parse(struct str text, const char *where, struct arena *arena, struct quota_policy **out, size_t *n,
                         struct error *err) MUST_CHECK;
/* Which are shared: those that say `shared: true`, and where `by_default` is set those that say nothing. How many. */
size_t quota_policies_share(struct quota_policy *policies, size_t n, bool by_default);

struct quota;

struct quota_options {
    const struct quota_policy *policies; /* [n_policies] */
    size_t n_policies;
    uint32_t meters;       /* callers that can be told apart at once; 0: 16384 */
    uint32_t reservations; /* requests under way at once; 0: 65536 */
    uint64_t expiry_ns;    /* of a reservation; 0: one hour */
    uint64_t seed;         /* of the hash */
};

/* NULL when out of memory. */
struct quota *quota_create(const struct quota_options *o);
void quota_destroy(struct quota *q); /* NULL is accepted */

struct quota_ask {
    struct str key, tenant, quota_class, model, route;
    bool runs;      /* the route runs a model; policies that name no route are for these only */
    bool at_once;   /* the caller can't wait for others to judge */
    bool elsewhere; /* shared policies are judged elsewhere: here they are charged without being asked, also by quota_more */
    uint64_t rows, tokens; /* a request always counts as one */
    uint64_t now_ns;       /* monotonic */
    uint64_t now_s;        /* wall clock, for calendars */
};

/* The policy that refused, or of those passed the one with the least left. limit 0: none applied. */
struct quota_verdict {
    const char *policy;
    enum quota_unit unit;
    uint64_t limit, remaining, cost;
    uint64_t reset_ns; /* until all of it is there again */
    uint64_t wait_ns;  /* refused: until this request could pass; 0: it never can */
    bool full;         /* refused because there are too many callers or requests to keep count of */
};

/* 0: *id is the reservation, 0 when no policy applied. EXHAUSTED: refused, nothing is charged. */
int quota_reserve(struct quota *q, const struct quota_ask *ask, uint64_t *id, struct quota_verdict *v) MUST_CHECK;
/* More rows and tokens for a request that was let in. EXHAUSTED: not charged; the reservation stands as it was. */
int quota_more(struct quota *q, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
               struct quota_verdict *v) MUST_CHECK;
/* What was produced so far, should it expire or its process forget it. */
void quota_note(struct quota *q, uint64_t id, uint64_t tokens);
/* It is over: `tokens` is what it really took. */
void quota_settle(struct quota *q, uint64_t id, uint64_t tokens, uint64_t now_ns, uint64_t now_s);
/* Nothing was done for it: as if it had not been. */
void quota_refund(struct quota *q, uint64_t id, uint64_t now_ns, uint64_t now_s);
/* Settle what is past its expiry. How many there were. Call now and then. */
size_t quota_expire(struct quota *q, uint64_t now_ns, uint64_t now_s);

/* --- for quota_shared.c: policies that are judged elsewhere, and here while elsewhere can't be reached --- */

/* Limits or bursts of the policies have changed; which of them there are stays. */
void quota_limits_changed(struct quota *q);

/* The meter of a policy: whose it is. Borrowed until the reservation is over. */
struct quota_level {
    uint32_t policy;
    struct str subject;
};
/* The shared policies that a reservation is held against: their number. */
size_t quota_levels(const struct quota *q, uint64_t id, struct quota_level levels[QUOTA_LEVELS_MAX]);
/* From now on this reservation is judged here. */
void quota_judge_here(struct quota *q, uint64_t id);
/* Nobody elsewhere knows of this reservation: what it takes of shared budgets, once settled, is owed there. */
void quota_owe(struct quota *q, uint64_t id);
/* What one meter owes; its budgets by unit, 0 elsewhere. */
struct quota_debt {
    struct quota_level level;
    uint64_t window[QUOTA_UNITS], amount[QUOTA_UNITS];
};
/* Take one meter's debts: they are the caller's to pay. False: there are none. */
bool quota_take_debt(struct quota *q, uint64_t now_s, struct quota_debt *out);
/* Elsewhere everything was lost: what this process has settled in the windows that run is owed, neither more nor less. */
void quota_owe_all(struct quota *q, uint64_t now_s);

/* Budgets of this day and month as lines of text, for a file; what is only reserved is left out, so a process that is killed gives it back. */
void quota_save(struct quota *q, uint64_t now_s, struct buf *out);
/* Take them up again. Lines of policies or periods that are no more are skipped; INVALID names a line that isn't one. */
int quota_load(struct quota *q, struct str text, uint64_t now_s, struct error *err) MUST_CHECK;
/* Have budgets changed since quota_save? */
bool quota_is_dirty(const struct quota *q);
/* What quota_save gave could not be kept: it is to be saved again. */
void quota_mark_dirty(struct quota *q);

#endif
