/* pool.c: a pool's life and membership, a pick and its end, what checks and reports change. Who may be picked is eligible.c's to say, who
 * is picked a balance_*.c's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "route/pool_priv.h"

#define NS_PER_S          1000000000ull
#define UPSTREAMS_MAX     4096
#define WEIGHT_MAX        1000
#define SLOW_START_FLOOR  0.1
#define PREFIX_BLOCKS_SET 16384 /* blocks remembered an upstream: 4 MiB of prompt */

static const char *const balance_names[BALANCE_COUNT] = {
    [BALANCE_ROUND_ROBIN] = "round_robin",
    [BALANCE_LEAST_CONN] = "least_conn",
    [BALANCE_P2C] = "p2c",
    [BALANCE_HASH] = "hash",
    [BALANCE_LLM] = "llm",
};

static const balance_fn policies[BALANCE_COUNT] = {
    [BALANCE_ROUND_ROBIN] = balance__round_robin,
    [BALANCE_LEAST_CONN] = balance__least_conn,
    [BALANCE_P2C] = balance__p2c,
    [BALANCE_HASH] = balance__hash,
    [BALANCE_LLM] = balance__llm,
};

static const char *const event_names[] = {
    [POOL_EJECTED] = "ejected",         [POOL_EJECTION_REFUSED] = "ejection_refused",
    [POOL_READMITTED] = "readmitted",   [POOL_CHECK_DOWN] = "check_down",
    [POOL_CHECK_UP] = "check_up",       [POOL_SUSPECT] = "suspect",
    [POOL_CLEARED] = "cleared",         [POOL_SAYS] = "says",
    [POOL_LAST_RESORT] = "last_resort",
};

static const char *const says_names[] = {
    [UPSTREAM_READY] = "it says that it is ready",       [UPSTREAM_LOADING] = "it says that it is loading",
    [UPSTREAM_DRAINING] = "it says that it is draining", [UPSTREAM_MAINTENANCE] = "it says that it is in maintenance",
    [UPSTREAM_DOWN] = "its agent says that it is down",
};

const char *balance_name(enum balance_policy p)
{
    return balance_names[p];
}

const char *upstream_says_name(enum upstream_says s)
{
    static const char *const names[] = {
        [UPSTREAM_READY] = "ready",       [UPSTREAM_LOADING] = "loading",
        [UPSTREAM_DRAINING] = "draining", [UPSTREAM_MAINTENANCE] = "maintenance",
        [UPSTREAM_DOWN] = "down",
    };
    return names[s];
}

const char *pool_event_name(enum pool_event e)
{
    return event_names[e];
}

/* ---- life ---- */

static void set_defaults(struct pool_options *o)
{
    o->min_healthy = o->min_healthy ? o->min_healthy : 1;
    o->fall = o->fall ? o->fall : 3;
    o->rise = o->rise ? o->rise : 2;
    o->overprovision = o->overprovision > 0 ? o->overprovision : 1.4;
    o->zone_min_healthy = o->zone_min_healthy ? o->zone_min_healthy : 2;
    o->hash_bound = o->hash_bound > 1 ? o->hash_bound : 1.25;
    o->latency_tau_ns = o->latency_tau_ns ? o->latency_tau_ns : 10 * NS_PER_S;
    o->word_ns = o->word_ns ? o->word_ns : 10 * NS_PER_S;
    struct llm_options *l = &o->llm;
    if (l->queue <= 0 && l->kv <= 0 && l->prefix <= 0 && l->adapter <= 0) {
        l->queue = 2;
        l->kv = 2;
        l->prefix = 3;
        l->adapter = 1;
    }
    l->bound = l->bound > 1 ? l->bound : 1.25;
    l->report_max_ns = l->report_max_ns ? l->report_max_ns : NS_PER_S / 5;
    outlier__defaults(&o->outlier);
}

int pool_create(const struct pool_options *o, pool_event_fn on_event, void *ctx, struct pool **out, struct error *err)
{
    struct pool *p = calloc(1, sizeof *p);
    char *name = strdup(o->name ? o->name : "");
    if (!p || !name) {
        free(p);
        free(name);
        return error_set(err, STATUS_NOMEM, "no memory for an upstream pool");
    }
    *p = (struct pool){.o = *o, .name = name, .on_event = on_event, .ctx = ctx};
    set_defaults(&p->o);
    rand_init(&p->rand, o->seed);
    *out = p;
    return 0;
}

static void upstream_free(struct upstream *u)
{
    if (!u)
        return;
    prefix_set_destroy(u->prefix);
    free(u->name);
    free(u->host);
    free(u);
}

void pool_destroy(struct pool *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        ASSERT(p->all[i]->in_flight == 0);
        upstream_free(p->all[i]);
    }
    free((void *)p->all);
    free((void *)p->few);
    free((void *)p->tie);
    free(p->name);
    free(p);
}

void pool__event(struct pool *p, struct upstream *u, enum pool_event e, const char *reason)
{
    if (p->on_event)
        p->on_event(p->ctx, p, u, e, reason);
}

void pool__enter(struct pool *p, struct upstream *u, uint64_t now_ns)
{
    (void)p;
    u->since_ns = MAX_OF(now_ns, (uint64_t)1);
    u->current = 0;
}

/* ---- membership ---- */

static struct upstream *find(const struct pool *p, struct str name)
{
    for (size_t i = 0; i < p->n; i++)
        if (str_eqz(name, p->all[i]->name))
            return p->all[i];
    return NULL;
}

static int check_list(const struct upstream_options *list, size_t n, struct error *err)
{
    if (n > UPSTREAMS_MAX)
        return error_set(err, STATUS_INVALID, "a pool has %zu upstreams; at most %d are allowed", n, UPSTREAMS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].name.n)
            return error_set(err, STATUS_INVALID, "upstream %zu has no address", i + 1);
        if (list[i].weight > WEIGHT_MAX)
            return error_set(err, STATUS_INVALID, "upstream \"%.*s\" has weight %u; a weight is 1 to %d", STR_ARG(list[i].name),
                             list[i].weight, WEIGHT_MAX);
        if (list[i].level >= POOL_LEVELS_MAX)
            return error_set(err, STATUS_INVALID, "upstream \"%.*s\" has priority level %u; a level is 0 to %d",
                             STR_ARG(list[i].name), list[i].level, POOL_LEVELS_MAX - 1);
        if (list[i].zone >= POOL_ZONES_MAX)
            return error_set(err, STATUS_INVALID, "a pool spans more than %d zones", POOL_ZONES_MAX - 1);
        for (size_t j = 0; j < i; j++)
            if (str_eq(list[i].name, list[j].name))
                return error_set(err, STATUS_INVALID, "upstream \"%.*s\" is listed twice; use its weight",
                                 STR_ARG(list[i].name));
    }
    return 0;
}

static void configure(struct upstream *u, const struct upstream_options *o)
{
    struct str name = {u->name, strlen(u->name)};
    u->o = *o;
    u->o.name = name;
    u->o.host = str_of(u->host);
    u->o.weight = o->weight ? o->weight : 1;
    u->o.fail_timeout_ns = o->fail_timeout_ns ? o->fail_timeout_ns : 10 * NS_PER_S;
}

static struct upstream *upstream_new(struct pool *p, const struct upstream_options *o)
{
    struct upstream *u = calloc(1, sizeof *u);
    if (!u)
        return NULL;
    u->pool = p;
    u->name = str_dup(o->name);
    u->host = str_dup(o->host.p ? o->host : STR(""));
    u->prefix = p->o.policy == BALANCE_LLM ? prefix_set_create(PREFIX_BLOCKS_SET) : NULL;
    if (!u->name || !u->host || (p->o.policy == BALANCE_LLM && !u->prefix)) {
        upstream_free(u);
        return NULL;
    }
    configure(u, o);
    return u;
}

/* Room for `n` more than there are. */
static int reserve(struct pool *p, size_t n)
{
    size_t want = p->n + n;
    if (want <= p->cap)
        return 0;
    struct upstream ***const arrays[] = {&p->all, &p->few, &p->tie};
    for (size_t i = 0; i < COUNT_OF(arrays); i++) {
        struct upstream **grown = (struct upstream **)realloc((void *)*arrays[i], want * sizeof *grown);
        if (!grown)
            return STATUS_NOMEM;
        *arrays[i] = grown;
    }
    p->cap = want;
    return 0;
}

/* Drop those that left and have nothing in flight. */
static void sweep_gone(struct pool *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (p->all[i]->gone && !p->all[i]->in_flight)
            upstream_free(p->all[i]);
        else
            p->all[kept++] = p->all[i];
    }
    p->n = kept;
}

static bool listed(const struct upstream *u, const struct upstream_options *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqz(list[i].name, u->name))
            return true;
    return false;
}

int pool_set(struct pool *p, const struct upstream_options *list, size_t n, uint64_t now_ns, struct error *err)
{
    int rc = check_list(list, n, err);
    if (rc)
        return rc;
    size_t before = p->n;
    rc = reserve(p, n);
    for (size_t i = 0; !rc && i < n; i++) {
        if (find(p, list[i].name))
            continue;
        struct upstream *u = upstream_new(p, &list[i]);
        if (!u)
            rc = STATUS_NOMEM;
        else
            p->all[p->n++] = u;
    }
    if (rc) {
        while (p->n > before)
            upstream_free(p->all[--p->n]);
        return error_set(err, STATUS_NOMEM, "no memory for the upstreams of pool \"%s\"", p->name);
    }
    for (size_t i = before; before && i < p->n; i++)
        pool__enter(p, p->all[i], now_ns);
    for (size_t i = 0; i < n; i++) {
        struct upstream *u = find(p, list[i].name);
        configure(u, &list[i]);
        if (u->gone)
            pool__enter(p, u, now_ns);
    }
    for (size_t i = 0; i < p->n; i++)
        p->all[i]->gone = !listed(p->all[i], list, n);
    sweep_gone(p);
    return 0;
}

/* ---- pick and done ---- */

double pool__share(const struct pool *p, const struct upstream *u, uint64_t now_ns)
{
    uint64_t window = u->o.slow_start_ns ? u->o.slow_start_ns : p->o.slow_start_ns;
    double share = u->report.has_weight ? u->report.weight_pc / 100.0 : 1;
    if (!u->since_ns || !window || now_ns >= u->since_ns + window)
        return share;
    uint64_t age = now_ns > u->since_ns ? now_ns - u->since_ns : 0;
    return share * MAX_OF(SLOW_START_FLOOR, (double)age / (double)window);
}

int pool_pick(struct pool *p, const struct pick_request *r, uint64_t now_ns, struct pick *out, struct error *err)
{
    size_t n;
    bool last_resort;
    int rc = pool__eligible(p, r, now_ns, &n, &last_resort, err);
    if (rc)
        return rc;
    struct upstream *u = policies[p->o.policy](p, p->few, n, r, now_ns);
    *out = (struct pick){u, now_ns, r->tokens ? r->tokens : 1, last_resort};
    u->in_flight++;
    u->tokens += out->tokens;
    if (u->prefix)
        prefix_set_add(u->prefix, r->prefix, r->n_prefix);
    if (last_resort)
        pool__event(p, u, POOL_LAST_RESORT, "all upstreams that pass their checks are ejected: one of them is used");
    return 0;
}

void pool_done(struct pool *p, const struct pick *k, enum pick_outcome outcome, uint64_t now_ns)
{
    struct upstream *u = k->upstream;
    uint64_t latency = now_ns > k->at_ns ? now_ns - k->at_ns : 0;
    ASSERT(u->pool == p && u->in_flight && u->tokens >= k->tokens);
    u->in_flight--;
    u->tokens -= k->tokens;
    if (outcome == PICK_OK)
        balance__learn_latency(p, u, latency, now_ns);
    outlier__learn(p, u, outcome, latency, now_ns);
    if (u->gone && !u->in_flight)
        sweep_gone(p);
}

/* ---- what checks and reports change ---- */

static void clear_suspect(struct pool *p, struct upstream *u, const char *reason)
{
    if (!u->suspect)
        return;
    u->suspect = false;
    pool__event(p, u, POOL_CLEARED, reason);
}

void pool_checked(struct pool *p, struct upstream *u, bool passed, uint64_t now_ns)
{
    bool first = !u->checked;
    u->checked = true;
    if (passed)
        clear_suspect(p, u, "a check passed");
    if (passed != u->down) { /* it confirms the state */
        u->check_run = 0;
        return;
    }
    u->check_run++;
    if (!first && u->check_run < (u->down ? p->o.rise : p->o.fall))
        return;
    u->down = !passed;
    u->check_run = 0;
    if (passed)
        pool__enter(p, u, now_ns);
    pool__event(p, u, passed ? POOL_CHECK_UP : POOL_CHECK_DOWN, passed ? "its checks pass again" : "its checks fail");
}

/* Its word from now on. */
static void says(struct pool *p, struct upstream *u, enum upstream_says word, const char *reason, uint64_t now_ns)
{
    u->said_until_ns = now_ns + p->o.word_ns;
    if (word == u->report.says)
        return;
    u->report.says = word;
    if (word == UPSTREAM_READY)
        pool__enter(p, u, now_ns);
    pool__event(p, u, POOL_SAYS, reason);
}

void pool_reported(struct pool *p, struct upstream *u, const struct upstream_report *r, uint64_t now_ns)
{
    struct upstream_report *own = &u->report;
    if (r->has_load) {
        own->queued = r->queued;
        own->kv_use = MIN_OF(MAX_OF(r->kv_use, 0.0), 1.0);
        u->reported_ns = MAX_OF(now_ns, (uint64_t)1);
    }
    if (r->has_adapters) {
        own->n_adapters = MIN_OF(r->n_adapters, (uint32_t)REPORT_ADAPTERS_MAX);
        memcpy(own->adapters, r->adapters, own->n_adapters * sizeof own->adapters[0]);
    }
    if (r->has_weight) {
        own->has_weight = r->weight_pc > 0;
        own->weight_pc = r->weight_pc;
    }
    if (r->has_max_conns)
        own->max_conns = r->max_conns;
    /* weight 0 is HAProxy's other way to say drain */
    bool none = r->has_weight && !r->weight_pc;
    if (none && (!r->has_says || r->says == UPSTREAM_READY))
        says(p, u, UPSTREAM_DRAINING, "its agent gives it weight 0", now_ns);
    else if (r->has_says)
        says(p, u, r->says, says_names[r->says], now_ns);
    else if (r->has_weight && u->report.says == UPSTREAM_DRAINING)
        says(p, u, UPSTREAM_READY, "its agent gives it weight again", now_ns);
}

void pool_tick(struct pool *p, uint64_t now_ns)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->all[i]->report.says != UPSTREAM_READY && now_ns >= p->all[i]->said_until_ns)
            says(p, p->all[i], UPSTREAM_READY, "it has not repeated that it takes nothing", now_ns);
    outlier__tick(p, now_ns);
}

/* ---- to look at ---- */

bool pool_look(const struct pool *p, size_t i, uint64_t now_ns, struct upstream_view *out)
{
    if (i >= p->n)
        return false;
    struct upstream *u = p->all[i];
    *out = (struct upstream_view){
        .upstream = u,
        .name = u->o.name,
        .options = &u->o,
        .usable = upstream__usable(u, now_ns),
        .down = u->down,
        .ejected = upstream__ejected(u, now_ns),
        .suspect = u->suspect,
        .says = u->report.says,
        .in_flight = u->in_flight,
        .level = u->o.level,
        .zone = u->o.zone,
        .weight = u->o.weight,
        .times_ejected = u->times_ejected,
        .tokens = u->tokens,
        .ejected_until_ns = u->ejected_until_ns,
        .queued = u->report.queued,
        .kv_use = u->report.kv_use,
        .report_age_ns = u->reported_ns ? now_ns - MIN_OF(now_ns, u->reported_ns) : UINT64_MAX,
        .latency_ns = u->latency_ns,
        .share = pool__share(p, u, now_ns),
    };
    return true;
}

const char *pool_name(const struct pool *p)
{
    return p->name;
}

/* These two are asked without the owner's lock, while pool_set may write the options anew: from what never changes. */
struct str upstream_name(const struct upstream *u)
{
    return str_of(u->name);
}

struct str upstream_host(const struct upstream *u)
{
    return str_of(u->host);
}

void **upstream_tags(struct upstream *u)
{
    return u->tags;
}

void pool_validate(const struct pool *p)
{
    ASSERT(p->n <= p->cap);
    for (size_t i = 0; i < p->n; i++) {
        const struct upstream *u = p->all[i];
        ASSERT(u->pool == p && u->o.weight >= 1 && u->o.weight <= WEIGHT_MAX);
        ASSERT(!u->gone || u->in_flight);
        ASSERT((u->tokens == 0) == (u->in_flight == 0) || u->tokens >= u->in_flight);
        ASSERT((u->prefix != NULL) == (p->o.policy == BALANCE_LLM));
        for (size_t j = 0; j < i; j++)
            ASSERT(!str_eqz(u->o.name, p->all[j]->name));
    }
}
