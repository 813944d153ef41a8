/* quota.c: see quota.h.
 *
 *   policy --subject--> meter (found by hash and text, least recently used last)
 *   reservation --> up to 16 meters, pinned while it lasts
 *
 * Both come from pools that are made once. A meter may be given to another subject only when it is at rest: nothing reserved, its buckets
 * full, its budgets untouched; else forgetting it would give quota away. When no meter is at rest, newcomers are refused. */
#include "edge/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/list.h"
#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/identity.h"

#define SECOND_NS     1000000000ull
#define MINUTE_NS     (60 * SECOND_NS)
#define HOUR_NS       (60 * MINUTE_NS)
#define DAY_S         86400ull
#define METERS        16384
#define RESERVATIONS  65536
#define SUBJECT_BYTES 496
#define EVICT_LOOK    16 /* meters looked at for one at rest */
#define NONE          UINT32_MAX

__extension__ typedef unsigned __int128 wide;

enum resource { REQUESTS, ROWS, TOKENS, RESOURCES };

static const struct {
    const char *name;
    enum resource resource;
    uint64_t period_ns; /* of a rate */
    bool day, month;    /* of a budget */
} units[QUOTA_UNITS] = {
    [QUOTA_REQUESTS_PER_SECOND] = {"requests_per_second", REQUESTS, SECOND_NS, false, false},
    [QUOTA_ROWS_PER_SECOND] = {"rows_per_second", ROWS, SECOND_NS, false, false},
    [QUOTA_TOKENS_PER_MINUTE] = {"tokens_per_minute", TOKENS, MINUTE_NS, false, false},
    [QUOTA_CONCURRENT] = {"concurrent", REQUESTS, 0, false, false},
    [QUOTA_REQUESTS_PER_DAY] = {"requests_per_day", REQUESTS, 0, true, false},
    [QUOTA_TOKENS_PER_DAY] = {"tokens_per_day", TOKENS, 0, true, false},
    [QUOTA_REQUESTS_PER_MONTH] = {"requests_per_month", REQUESTS, 0, false, true},
    [QUOTA_TOKENS_PER_MONTH] = {"tokens_per_month", TOKENS, 0, false, true},
};

/* One limit of one meter. */
struct gauge {
    wide level;                   /* rate: what is in the bucket, in units of period */
    uint64_t at_ns;               /* rate: as of */
    uint64_t used;                /* concurrent: now; budget: in `window`, reserved included */
    uint64_t reserved;            /* budget: the part of `used` that is not settled */
    uint64_t window;              /* budget: which day or month */
    uint64_t owed;                /* budget: of `used`, what others don't know of yet */
    uint64_t restored;            /* budget: of `used`, what an earlier process had used */
    uint64_t before, before_used; /* budget: the window before it, should the wall clock go back */
};

struct meter {
    struct list order; /* quota.used_order, oldest first; or on the free list */
    uint32_t next;     /* in its chain */
    uint32_t policy;
    uint32_t pins; /* reservations */
    uint64_t hash;
    struct gauge gauges[QUOTA_UNITS];
    size_t subject_n;
    char subject[SUBJECT_BYTES];
};

struct reservation {
    struct list order; /* quota.running, oldest first; or on the free list */
    uint64_t id;       /* 0: free */
    uint64_t expires_ns, produced;
    uint64_t cost[RESOURCES];
    uint64_t day, month; /* when it was made */
    bool elsewhere, owes;
    uint32_t n;
    uint32_t meters[QUOTA_LEVELS_MAX];
};

/* What a policy limits, found once: a request's loops run over these and not over all units. */
struct term {
    enum quota_unit unit;
    enum resource resource;
    uint64_t period_ns, limit; /* period: 0: no rate */
    wide capacity;             /* of a rate's bucket */
    double whole;              /* all of it, in units */
    bool budget;
};

struct plan {
    struct term terms[QUOTA_UNITS];
    uint32_t n;
    uint32_t last; /* the meter that was found last: requests of one caller often follow each other */
};

struct quota {
    const struct quota_policy *policies;
    size_t n_policies;
    struct plan *plans; /* [n_policies] */
    uint64_t expiry_ns, seed, next_serial;
    uint64_t calendar_s, day, month; /* `day` and `month` are those of this second */
    bool dirty, owes;
    struct meter *meters;
    uint32_t n_meters, n_chains, debt_at;
    uint32_t *chains; /* [n_chains] heads */
    struct list used_order, free_meters;
    struct reservation *reservations;
    uint32_t n_reservations;
    struct list running, free_reservations;
};

const char *quota_unit_name(enum quota_unit u)
{
    return units[u].name;
}

bool quota_unit_is_budget(enum quota_unit u)
{
    return units[u].day || units[u].month;
}

bool quota_unit_counts_rows(enum quota_unit u)
{
    return units[u].resource == ROWS;
}

bool quota_unit_counts_tokens(enum quota_unit u)
{
    return units[u].resource == TOKENS;
}

/* --- life --- */

static uint64_t burst_of(const struct quota_policy *p, enum quota_unit u)
{
    return p->burst[u] ? p->burst[u] : p->limit[u];
}

static wide capacity(const struct quota_policy *p, enum quota_unit u)
{
    return (wide)burst_of(p, u) * units[u].period_ns;
}

static void make_plan(const struct quota_policy *p, struct plan *plan)
{
    plan->n = 0;
    for (int k = 0; k < QUOTA_UNITS; k++) {
        enum quota_unit u = (enum quota_unit)k;
        if (!p->limit[u])
            continue;
        plan->terms[plan->n++] = (struct term){.unit = u,
                                               .resource = units[u].resource,
                                               .period_ns = units[u].period_ns,
                                               .limit = p->limit[u],
                                               .capacity = capacity(p, u),
                                               .whole = (double)(units[u].period_ns ? burst_of(p, u) : p->limit[u]),
                                               .budget = quota_unit_is_budget(u)};
    }
}

void quota_limits_changed(struct quota *q)
{
    for (size_t i = 0; i < q->n_policies; i++)
        make_plan(&q->policies[i], &q->plans[i]);
}

struct quota *quota_create(const struct quota_options *o)
{
    struct quota *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->policies = o->policies;
    q->n_policies = o->n_policies;
    q->seed = o->seed;
    q->expiry_ns = o->expiry_ns ? o->expiry_ns : HOUR_NS;
    q->calendar_s = UINT64_MAX;
    q->n_meters = o->meters ? o->meters : METERS;
    q->n_reservations = o->reservations ? o->reservations : RESERVATIONS;
    for (q->n_chains = 16; q->n_chains < q->n_meters; q->n_chains *= 2)
        ;
    q->meters = calloc(q->n_meters, sizeof *q->meters);
    q->chains = malloc(q->n_chains * sizeof *q->chains);
    q->reservations = calloc(q->n_reservations, sizeof *q->reservations);
    q->plans = calloc(MAX_OF(q->n_policies, (size_t)1), sizeof *q->plans);
    if (!q->meters || !q->chains || !q->reservations || !q->plans) {
        quota_destroy(q);
        return NULL;
    }
    for (size_t i = 0; i < q->n_policies; i++)
        q->plans[i].last = NONE;
    quota_limits_changed(q);
    memset(q->chains, 0xff, q->n_chains * sizeof *q->chains);
    list_init(&q->used_order);
    list_init(&q->free_meters);
    list_init(&q->running);
    list_init(&q->free_reservations);
    for (uint32_t i = 0; i < q->n_meters; i++)
        list_push_back(&q->free_meters, &q->meters[i].order);
    for (uint32_t i = 0; i < q->n_reservations; i++)
        list_push_back(&q->free_reservations, &q->reservations[i].order);
    return q;
}

void quota_destroy(struct quota *q)
{
    if (!q)
        return;
    free(q->meters);
    free(q->chains);
    free(q->reservations);
    free(q->plans);
    free(q);
}

/* --- calendars --- */

static uint64_t day_of(uint64_t now_s)
{
    return now_s / DAY_S;
}

/* Months since March of the year 0, and the first day of the next one (Howard Hinnant, "chrono-compatible low-level date algorithms"). */
static uint64_t month_of(uint64_t now_s)
{
    uint64_t z = day_of(now_s) + 719468, era = z / 146097, doe = z - era * 146097;
    uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    return (yoe + era * 400) * 12 + (5 * doy + 2) / 153;
}

static uint64_t month_begin_s(uint64_t month)
{
    uint64_t y = month / 12, era = y / 400, yoe = y % 400, doy = (153 * (month % 12) + 2) / 5;
    return (era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468) * DAY_S;
}

static uint64_t window_of(enum quota_unit u, uint64_t now_s)
{
    return units[u].day ? day_of(now_s) : month_of(now_s);
}

/* The same for a request, whose clock is asked again and again within a second. */
static uint64_t window_now(struct quota *q, enum quota_unit u, uint64_t now_s)
{
    if (q->calendar_s != now_s) {
        q->calendar_s = now_s;
        q->day = day_of(now_s);
        q->month = month_of(now_s);
    }
    return units[u].day ? q->day : q->month;
}

static uint64_t window_left_ns(enum quota_unit u, uint64_t now_s)
{
    uint64_t end = units[u].day ? (day_of(now_s) + 1) * DAY_S : month_begin_s(month_of(now_s) + 1);
    return (end - now_s) * SECOND_NS;
}

/* --- gauges --- */

/* A budget enters `window`. Forward it begins anew. A wall clock that was ahead and is set back gives nothing away: what was used under the wrong
 * date stays used, and the day that was thought over has its count again. */
static void turn(struct gauge *g, uint64_t window)
{
    if (g->window == window)
        return;
    if (window > g->window) {
        g->before = g->window;
        g->before_used = g->used - MIN_OF(g->reserved, g->used);
        g->used = g->reserved = g->owed = g->restored = 0;
    } else if (window == g->before) {
        g->used += g->before_used;
        g->before_used = 0;
    }
    g->window = window;
}

/* Bring a gauge up to now. */
static void refresh(struct quota *q, const struct term *t, struct gauge *g, uint64_t now_ns, uint64_t now_s)
{
    if (t->period_ns && now_ns > g->at_ns) {
        wide level = g->level + (wide)(now_ns - g->at_ns) * t->limit;
        g->level = MIN_OF(level, t->capacity);
        g->at_ns = now_ns;
    }
    if (t->budget)
        turn(g, window_now(q, t->unit, now_s));
}

static uint64_t to_u64(wide v)
{
    return v > UINT64_MAX ? UINT64_MAX : (uint64_t)v;
}

static uint64_t left_of(const struct quota_policy *p, enum quota_unit u, const struct gauge *g)
{
    if (units[u].period_ns)
        return to_u64(g->level / units[u].period_ns);
    return g->used < p->limit[u] ? p->limit[u] - g->used : 0;
}

static void describe(const struct quota_policy *p, enum quota_unit u, const struct gauge *g, uint64_t cost, uint64_t now_s,
                     struct quota_verdict *v)
{
    *v =
        (struct quota_verdict){.policy = p->name, .unit = u, .limit = p->limit[u], .remaining = left_of(p, u, g), .cost = cost};
    if (units[u].period_ns)
        v->reset_ns = to_u64((capacity(p, u) - g->level + p->limit[u] - 1) / p->limit[u]);
    else if (quota_unit_is_budget(u))
        v->reset_ns = window_left_ns(u, now_s);
}

/* There is no room for `cost`: why, and until when. */
static void describe_refusal(const struct quota_policy *p, enum quota_unit u, const struct gauge *g, uint64_t cost,
                             uint64_t now_s, struct quota_verdict *v)
{
    describe(p, u, g, cost, now_s, v);
    if (units[u].period_ns) {
        wide need = (wide)cost * units[u].period_ns;
        if (need <= capacity(p, u))
            v->wait_ns = MAX_OF(to_u64((need - g->level + p->limit[u] - 1) / p->limit[u]), (uint64_t)1);
    } else if (cost <= p->limit[u]) {
        v->wait_ns = quota_unit_is_budget(u) ? window_left_ns(u, now_s) : SECOND_NS;
    }
}

/* The part that is left once `cost` is taken, in whole units as quota_script.lua has it; negative: there is no room for it. */
static double share_left(const struct term *t, const struct gauge *g, uint64_t cost)
{
    uint64_t left = g->used < t->limit ? t->limit - g->used : 0;
    if (t->period_ns) /* seldom longer than 64 bits, and then divided many times as fast */
        left = g->level > UINT64_MAX ? to_u64(g->level / t->period_ns) : (uint64_t)g->level / t->period_ns;
    return cost > left ? -1 : (double)(left - cost) / t->whole;
}

static void charge(const struct term *t, struct gauge *g, uint64_t cost)
{
    if (t->period_ns) {
        wide need = (wide)cost * t->period_ns;
        g->level -= MIN_OF(need, g->level);
        return;
    }
    g->used += cost;
    if (t->budget)
        g->reserved += cost;
}

/* --- meters --- */

static uint32_t *chain_of(struct quota *q, uint64_t hash)
{
    return &q->chains[hash & (q->n_chains - 1)];
}

static bool is_at_rest(struct quota *q, struct meter *m, uint64_t now_ns, uint64_t now_s)
{
    const struct plan *plan = &q->plans[m->policy];
    if (m->pins)
        return false;
    for (uint32_t k = 0; k < plan->n; k++) {
        const struct term *t = &plan->terms[k];
        struct gauge *g = &m->gauges[t->unit];
        refresh(q, t, g, now_ns, now_s);
        if (t->period_ns ? g->level < t->capacity : g->used > 0)
            return false;
    }
    return true;
}

static void unchain(struct quota *q, struct meter *m)
{
    uint32_t *at = chain_of(q, m->hash), index = (uint32_t)(m - q->meters);
    while (*at != index)
        at = &q->meters[*at].next;
    *at = m->next;
}

static struct meter *take_meter(struct quota *q, uint64_t now_ns, uint64_t now_s)
{
    struct list *n = list_pop_front(&q->free_meters);
    int looked = 0;
    if (n)
        return LIST_ENTRY(n, struct meter, order);
    LIST_EACH(node, &q->used_order)
    {
        struct meter *m = LIST_ENTRY(node, struct meter, order);
        if (is_at_rest(q, m, now_ns, now_s)) {
            list_remove(&m->order);
            unchain(q, m);
            return m;
        }
        if (++looked == EVICT_LOOK)
            break;
    }
    return NULL;
}

static bool is_meter_of(const struct meter *m, uint32_t policy, struct str subject)
{
    return m->policy == policy && str_eq((struct str){m->subject, m->subject_n}, subject);
}

/* The meter of a policy and subject, made when there is none; NULL: no room for another. */
static struct meter *find_meter(struct quota *q, uint32_t policy, struct str subject, uint64_t now_ns, uint64_t now_s)
{
    const struct quota_policy *p = &q->policies[policy];
    struct meter *m = q->plans[policy].last == NONE ? NULL : &q->meters[q->plans[policy].last];
    if (m && is_meter_of(m, policy, subject)) { /* it may have been given away since */
        list_remove(&m->order);
        list_push_back(&q->used_order, &m->order);
        return m;
    }
    uint64_t hash = hash_bytes(subject.p, subject.n, q->seed ^ policy);
    for (uint32_t i = *chain_of(q, hash); i != NONE; i = q->meters[i].next) {
        m = &q->meters[i];
        if (m->hash == hash && is_meter_of(m, policy, subject)) {
            list_remove(&m->order);
            list_push_back(&q->used_order, &m->order);
            q->plans[policy].last = i;
            return m;
        }
    }
    m = take_meter(q, now_ns, now_s);
    if (!m)
        return NULL;
    q->plans[policy].last = (uint32_t)(m - q->meters);
    m->hash = hash;
    m->policy = policy;
    m->pins = 0;
    m->next = *chain_of(q, hash);
    *chain_of(q, hash) = (uint32_t)(m - q->meters);
    memcpy(m->subject, subject.p, subject.n);
    m->subject_n = subject.n;
    for (int u = 0; u < QUOTA_UNITS; u++)
        m->gauges[u] =
            (struct gauge){.level = capacity(p, (enum quota_unit)u),
                           .at_ns = now_ns,
                           .window = quota_unit_is_budget((enum quota_unit)u) ? window_of((enum quota_unit)u, now_s) : 0};
    list_push_back(&q->used_order, &m->order);
    return m;
}

/* --- which policies --- */

static bool fits(const char *pattern, struct str value)
{
    return !pattern || edge_pattern_match(str_of(pattern), value);
}

static bool matches(const struct quota_policy *p, const struct quota_ask *a)
{
    return fits(p->quota_class, a->quota_class) && fits(p->tenant, a->tenant) && fits(p->model, a->model) &&
           (p->route ? edge_pattern_match(str_of(p->route), a->route) : a->runs);
}

static bool add_part(char *to, size_t *n, char tag, struct str part)
{
    if (*n + part.n + 2 > SUBJECT_BYTES)
        return false;
    to[(*n)++] = tag;
    if (part.n)
        memcpy(to + *n, part.p, part.n);
    *n += part.n;
    to[(*n)++] = '\x1f';
    return true;
}

/* Whose count it is: the parts that `per` names. False: too long. */
static bool subject_of(const struct quota_policy *p, const struct quota_ask *a, char to[SUBJECT_BYTES], size_t *n)
{
    *n = 0;
    return (!(p->per & QUOTA_PER_KEY) || add_part(to, n, 'k', a->key)) &&
           (!(p->per & QUOTA_PER_TENANT) || add_part(to, n, 't', a->tenant)) &&
           (!(p->per & QUOTA_PER_MODEL) || add_part(to, n, 'm', a->model)) &&
           (!(p->per & QUOTA_PER_ROUTE) || add_part(to, n, 'r', a->route));
}

/* --- reserving --- */

/* Room in all of the meters? Refreshes them; on success `v` is the one with the least left. */
static bool all_have_room(struct quota *q, const uint32_t *meters, uint32_t n, const uint64_t cost[RESOURCES], bool first,
                          bool elsewhere, uint64_t now_ns, uint64_t now_s, struct quota_verdict *v)
{
    double least = 2;
    const struct meter *scarce = NULL;
    enum quota_unit unit = QUOTA_UNITS;
    for (uint32_t i = 0; i < n; i++) {
        struct meter *m = &q->meters[meters[i]];
        const struct plan *plan = &q->plans[m->policy];
        bool judged = !elsewhere || !q->policies[m->policy].shared;
        for (const struct term *t = plan->terms; t < plan->terms + plan->n; t++) {
            struct gauge *g = &m->gauges[t->unit];
            if (!first && t->resource == REQUESTS)
                continue;
            refresh(q, t, g, now_ns, now_s);
            double share = judged ? share_left(t, g, cost[t->resource]) : 3;
            if (share < 0) {
                describe_refusal(&q->policies[m->policy], t->unit, g, cost[t->resource], now_s, v);
                return false;
            }
            if (share < least) {
                least = share;
                scarce = m;
                unit = t->unit;
            }
        }
    }
    if (scarce) {
        describe(&q->policies[scarce->policy], unit, &scarce->gauges[unit], cost[units[unit].resource], now_s, v);
        v->remaining -= v->cost;
    }
    return true;
}

static void charge_all(struct quota *q, const uint32_t *meters, uint32_t n, const uint64_t cost[RESOURCES], bool first)
{
    for (uint32_t i = 0; i < n; i++) {
        struct meter *m = &q->meters[meters[i]];
        const struct plan *plan = &q->plans[m->policy];
        for (const struct term *t = plan->terms; t < plan->terms + plan->n; t++) {
            if (!cost[t->resource] || (!first && t->resource == REQUESTS))
                continue;
            charge(t, &m->gauges[t->unit], cost[t->resource]);
            q->dirty |= t->budget;
        }
    }
}

/* The meters that this request is held against, pinned. False: there is no room to keep count. */
static bool find_meters(struct quota *q, const struct quota_ask *a, uint32_t meters[QUOTA_LEVELS_MAX], uint32_t *n)
{
    char subject[SUBJECT_BYTES];
    size_t len;
    *n = 0;
    for (uint32_t i = 0; i < q->n_policies; i++) {
        if (!matches(&q->policies[i], a))
            continue;
        struct meter *m = *n < QUOTA_LEVELS_MAX && subject_of(&q->policies[i], a, subject, &len)
                              ? find_meter(q, i, (struct str){subject, len}, a->now_ns, a->now_s)
                              : NULL;
        if (!m)
            return false;
        m->pins++;
        meters[(*n)++] = (uint32_t)(m - q->meters);
    }
    return true;
}

static void unpin(struct quota *q, const uint32_t *meters, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        q->meters[meters[i]].pins--;
}

int quota_reserve(struct quota *q, const struct quota_ask *a, uint64_t *id, struct quota_verdict *v)
{
    const uint64_t cost[RESOURCES] = {1, a->rows, a->tokens};
    uint32_t meters[QUOTA_LEVELS_MAX], n;
    *id = 0;
    *v = (struct quota_verdict){0};
    bool counted = find_meters(q, a, meters, &n);
    struct list *node = counted && n ? list_first(&q->free_reservations) : NULL;
    if (counted && n == 0)
        return 0;
    if (!node) {
        v->full = true;
        v->wait_ns = SECOND_NS;
        unpin(q, meters, n);
        return STATUS_EXHAUSTED;
    }
    if (!all_have_room(q, meters, n, cost, true, a->elsewhere, a->now_ns, a->now_s, v)) {
        unpin(q, meters, n);
        return STATUS_EXHAUSTED;
    }
    charge_all(q, meters, n, cost, true);
    struct reservation *r = LIST_ENTRY(node, struct reservation, order);
    list_remove(&r->order);
    list_push_back(&q->running, &r->order);
    r->id = ++q->next_serial * q->n_reservations + (uint64_t)(r - q->reservations);
    r->expires_ns = a->now_ns + q->expiry_ns;
    r->produced = 0;
    r->elsewhere = a->elsewhere;
    r->owes = false;
    r->day = window_now(q, QUOTA_REQUESTS_PER_DAY, a->now_s);
    r->month = window_now(q, QUOTA_REQUESTS_PER_MONTH, a->now_s);
    memcpy(r->cost, cost, sizeof cost);
    memcpy(r->meters, meters, n * sizeof *meters);
    r->n = n;
    *id = r->id;
    return 0;
}

static struct reservation *find(struct quota *q, uint64_t id)
{
    struct reservation *r = &q->reservations[id % q->n_reservations];
    return id && r->id == id ? r : NULL;
}

int quota_more(struct quota *q, uint64_t id, uint64_t rows, uint64_t tokens, uint64_t now_ns, uint64_t now_s,
               struct quota_verdict *v)
{
    const uint64_t cost[RESOURCES] = {0, rows, tokens};
    struct reservation *r = find(q, id);
    *v = (struct quota_verdict){0};
    if (!r)
        return 0;
    if (!all_have_room(q, r->meters, r->n, cost, false, r->elsewhere, now_ns, now_s, v))
        return STATUS_EXHAUSTED;
    charge_all(q, r->meters, r->n, cost, false);
    r->cost[ROWS] += rows;
    r->cost[TOKENS] += tokens;
    return 0;
}

void quota_note(struct quota *q, uint64_t id, uint64_t tokens)
{
    struct reservation *r = find(q, id);
    if (r)
        r->produced = tokens;
}

/* --- settling --- */

/* What was reserved above `really` goes back; what was taken above it is charged. */
static void give_back(struct quota *q, const struct reservation *r, bool shared, const struct term *t, struct gauge *g,
                      uint64_t really, uint64_t now_ns, uint64_t now_s)
{
    uint64_t reserved = r->cost[t->resource];
    if (t->period_ns && really == reserved)
        return; /* it is brought up to now when somebody asks */
    refresh(q, t, g, now_ns, now_s);
    if (t->period_ns) {
        wide level = g->level + (wide)(reserved > really ? reserved - really : 0) * t->period_ns;
        g->level = MIN_OF(level, t->capacity);
        if (really > reserved)
            charge(t, g, really - reserved);
        return;
    }
    if (t->budget) {
        if (g->window > (units[t->unit].day ? r->day : r->month))
            return; /* it was charged to a period that is over */
        g->reserved -= MIN_OF(reserved, g->reserved);
        g->used -= MIN_OF(reserved, g->used);
        g->used += really;
        q->dirty = true;
        if (r->owes && shared && really) {
            g->owed += really;
            q->owes = true;
        }
        return;
    }
    g->used -= MIN_OF(g->used, (uint64_t)1); /* concurrent */
}

static void close_reservation(struct quota *q, struct reservation *r, const uint64_t really[RESOURCES], uint64_t now_ns,
                              uint64_t now_s)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct meter *m = &q->meters[r->meters[i]];
        const struct plan *plan = &q->plans[m->policy];
        for (const struct term *t = plan->terms; t < plan->terms + plan->n; t++)
            give_back(q, r, q->policies[m->policy].shared, t, &m->gauges[t->unit], really[t->resource], now_ns, now_s);
    }
    unpin(q, r->meters, r->n);
    r->id = 0;
    list_remove(&r->order);
    list_push_back(&q->free_reservations, &r->order);
}

void quota_settle(struct quota *q, uint64_t id, uint64_t tokens, uint64_t now_ns, uint64_t now_s)
{
    struct reservation *r = find(q, id);
    if (r)
        close_reservation(q, r, (const uint64_t[RESOURCES]){1, r->cost[ROWS], tokens}, now_ns, now_s);
}

void quota_refund(struct quota *q, uint64_t id, uint64_t now_ns, uint64_t now_s)
{
    struct reservation *r = find(q, id);
    if (r)
        close_reservation(q, r, (const uint64_t[RESOURCES]){0, 0, 0}, now_ns, now_s);
}

size_t quota_expire(struct quota *q, uint64_t now_ns, uint64_t now_s)
{
    struct list *n;
    size_t count = 0;
    while ((n = list_first(&q->running))) {
        struct reservation *r = LIST_ENTRY(n, struct reservation, order);
        if (r->expires_ns > now_ns)
            break;
        quota_settle(q, r->id, r->produced, now_ns, now_s);
        count++;
    }
    return count;
}

/* --- shared policies --- */

size_t quota_levels(const struct quota *q, uint64_t id, struct quota_level levels[QUOTA_LEVELS_MAX])
{
    const struct reservation *r = find((struct quota *)q, id);
    size_t n = 0;
    for (uint32_t i = 0; r && i < r->n; i++) {
        const struct meter *m = &q->meters[r->meters[i]];
        if (q->policies[m->policy].shared)
            levels[n++] = (struct quota_level){m->policy, {m->subject, m->subject_n}};
    }
    return n;
}

void quota_judge_here(struct quota *q, uint64_t id)
{
    struct reservation *r = find(q, id);
    if (r)
        r->elsewhere = false;
}

void quota_owe(struct quota *q, uint64_t id)
{
    struct reservation *r = find(q, id);
    if (r)
        r->owes = true;
}

bool quota_take_debt(struct quota *q, uint64_t now_s, struct quota_debt *out)
{
    for (uint32_t looked = 0; q->owes && looked < q->n_meters; looked++) {
        struct meter *m = &q->meters[q->debt_at];
        bool any = false;
        *out = (struct quota_debt){.level = {m->policy, {m->subject, m->subject_n}}};
        for (int u = QUOTA_REQUESTS_PER_DAY; u < QUOTA_UNITS; u++) {
            struct gauge *g = &m->gauges[u];
            if (!g->owed)
                continue;
            turn(g, window_of((enum quota_unit)u, now_s));
            any |= g->owed > 0;
            out->window[u] = g->window;
            out->amount[u] = g->owed;
            g->owed = 0;
        }
        q->debt_at = (q->debt_at + 1) % q->n_meters;
        if (any)
            return true;
    }
    q->owes = false;
    return false;
}

void quota_owe_all(struct quota *q, uint64_t now_s)
{
    LIST_EACH(node, &q->used_order)
    {
        struct meter *m = LIST_ENTRY(node, struct meter, order);
        const struct quota_policy *p = &q->policies[m->policy];
        for (int u = 0; p->shared && u < QUOTA_UNITS; u++) {
            struct gauge *g = &m->gauges[u];
            if (!p->limit[u] || !quota_unit_is_budget((enum quota_unit)u))
                continue;
            turn(g, window_of((enum quota_unit)u, now_s));
            uint64_t others = g->reserved + g->restored;
            g->owed = g->used > others ? g->used - others : 0;
            q->owes |= g->owed > 0;
        }
    }
}

/* --- across restarts --- */

/* policy TAB unit TAB window TAB used TAB subject in hex NL */
void quota_save(struct quota *q, uint64_t now_s, struct buf *out)
{
    LIST_EACH(node, &q->used_order)
    {
        struct meter *m = LIST_ENTRY(node, struct meter, order);
        const struct quota_policy *p = &q->policies[m->policy];
        for (int u = 0; u < QUOTA_UNITS; u++) {
            struct gauge *g = &m->gauges[u];
            if (!p->limit[u] || !quota_unit_is_budget((enum quota_unit)u))
                continue;
            turn(g, window_of((enum quota_unit)u, now_s));
            if (g->used <= g->reserved)
                continue;
            buf_printf(out, "%s\t%s\t%llu\t%llu\t", p->name, units[u].name, (unsigned long long)g->window,
                       (unsigned long long)(g->used - g->reserved));
            for (size_t i = 0; i < m->subject_n; i++)
                buf_printf(out, "%02x", (unsigned)(unsigned char)m->subject[i]);
            buf_append_c(out, '\n');
        }
    }
    q->dirty = false;
}

bool quota_is_dirty(const struct quota *q)
{
    return q->dirty;
}

void quota_mark_dirty(struct quota *q)
{
    q->dirty = true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_subject(struct str hex, char out[SUBJECT_BYTES], size_t *n)
{
    if (hex.n % 2 || hex.n / 2 > SUBJECT_BYTES)
        return false;
    for (size_t i = 0; i < hex.n; i += 2) {
        int hi = hex_digit(hex.p[i]), lo = hex_digit(hex.p[i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i / 2] = (char)(hi << 4 | lo);
    }
    *n = hex.n / 2;
    return true;
}

static bool load_line(struct quota *q, struct str line, uint64_t now_s)
{
    struct str rest = line, name, unit, window_text, used_text;
    char subject[SUBJECT_BYTES];
    uint64_t window, used;
    size_t n;
    if (!str_cut(&rest, '\t', &name) || !str_cut(&rest, '\t', &unit) || !str_cut(&rest, '\t', &window_text) ||
        !str_cut(&rest, '\t', &used_text) || !str_to_u64(window_text, &window) || !str_to_u64(used_text, &used) ||
        !parse_subject(rest, subject, &n))
        return false;
    for (uint32_t i = 0; i < q->n_policies; i++)
        for (int u = 0; u < QUOTA_UNITS; u++) {
            if (!str_eqz(name, q->policies[i].name) || !str_eqz(unit, units[u].name) || !q->policies[i].limit[u] ||
                !quota_unit_is_budget((enum quota_unit)u) || window < window_of((enum quota_unit)u, now_s))
                continue; /* of a later period: the clock was ahead when it was written; it counts in this one */
            struct meter *m = find_meter(q, i, (struct str){subject, n}, 0, now_s);
            if (m)
                m->gauges[u].used = m->gauges[u].restored = used;
        }
    return true;
}

int quota_load(struct quota *q, struct str text, uint64_t now_s, struct error *err)
{
    struct str line;
    for (size_t n = 1; str_cut(&text, '\n', &line); n++)
        if (line.n && !load_line(q, line, now_s))
            return error_set(err, STATUS_INVALID, "line %zu of the saved budgets is damaged", n);
    return 0;
}
