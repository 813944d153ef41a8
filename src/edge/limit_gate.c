/* limit_gate.c: see limit_gate.h. */
#include "edge/limit_gate.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/list.h"
#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/pressure.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/random.h"
#include "os/thread.h"

#define STATES    4096 /* slots; at most three quarters are used */
#define CALM_NS   1000000000ull
#define QUIET_NS  10000000000ull /* nothing degraded for so long: it is over */
#define MOST      1000u          /* where the rules give no `max`: that, or */
#define MOST_BUSY 4              /* so many times what keeps the model busy */
#define NS_PER_MS 1000000u

/* Rules as they were read. */
struct rule_set {
    struct list link;
    struct arena arena;
    struct str text; /* that it was read from */
    struct limit_policy policy;
};

struct limit_state {
    struct str model;
    uint64_t hash;
    struct os_mutex lock;                    /* RANK_LEAF: what follows */
    const struct rule_set *set;              /* the rules that `policy` is of */
    const struct limit_model_policy *policy; /* NULL: none */
    struct limit limit;
    struct breaker breaker;
    struct pressure_window windows[LIMIT_LOW]; /* of the classes that have one below */
    uint32_t busy;
    bool saturated;
    uint64_t refused_ns; /* when last */
    uint64_t refused[LIMIT_CLASSES], degraded, degraded_ns;
    enum limit_reason degraded_for; /* the last one */
    /* constant */
    struct metric *limit_gauge, *in_flight, *breaker_gauge, *shed[LIMIT_CLASSES];
};

struct limit_gate {
    struct metrics *metrics;
    struct logger *log;
    uint64_t seed;
    _Atomic(const struct rule_set *) current;
    struct os_mutex lock; /* RANK_CALLS: sets, adding to `states`; METRICS is taken inside */
    struct list sets;
    size_t n_states;
    _Atomic(struct limit_state *) states[STATES]; /* open addressing; never removed */
    struct os_mutex pressure_lock;                /* RANK_LEAF: what follows */
    struct pressure pressure;
    bool sheds[LIMIT_CLASSES]; /* as told */
    _Atomic bool pressed;      /* something is shed: else nobody takes the lock to ask */
    struct metric *pressure_shed[LIMIT_CLASSES], *pressure_share[LIMIT_CLASSES];
    struct metric_family *pressure_changes;
    struct metric_family *limit_family, *in_flight_family, *shed_family, *breaker_family, *changes_family, *degraded_family;
};

const char *limit_reason_name(enum limit_reason r)
{
    static const char *const names[LIMIT_REASONS] = {"none", "saturated", "breaker", "not_ready", "out_of_memory"};
    return names[r];
}

/* ---- rules ---- */

static void free_set(struct rule_set *s)
{
    arena_release(&s->arena);
    free(s);
}

static const struct rule_set *current_set(const struct limit_gate *g)
{
    return atomic_load_explicit(&g->current, memory_order_acquire);
}

/* Publication: what is in the set was written before the release that readers acquire. */
int limit_gate_replace(struct limit_gate *g, struct str text, const char *where, struct error *err)
{
    const struct rule_set *now = current_set(g);
    if (now && str_eq(now->text, text))
        return 0;
    struct rule_set *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory for the rules of overload");
    arena_init(&s->arena, 16 << 10, 16 << 20);
    const char *copy = arena_strdup(&s->arena, text);
    s->text = (struct str){copy, text.n};
    int rc = copy ? limit_policy_parse(s->text, where, &s->arena, &s->policy, err)
                  : error_set(err, STATUS_NOMEM, "out of memory for the rules of overload");
    if (rc < 0) {
        free_set(s);
        return rc;
    }
    os_mutex_lock(&g->lock);
    list_push_back(&g->sets, &s->link);
    os_mutex_unlock(&g->lock);
    atomic_store_explicit(&g->current, s, memory_order_release);
    return 0;
}

const struct limit_policy *limit_gate_policy(const struct limit_gate *g)
{
    return &current_set(g)->policy;
}

/* ---- life ---- */

/* A scrape's thread. */
static void refresh_gauges(void *ctx)
{
    struct limit_gate *g = ctx;
    uint64_t now = os_monotonic_ns();
    for (int c = LIMIT_HIGH; c < LIMIT_CLASSES; c++) {
        os_mutex_lock(&g->pressure_lock);
        double share = pressure_share(&g->pressure, (enum limit_class)c, now);
        os_mutex_unlock(&g->pressure_lock);
        metric_set(g->pressure_share[c], share);
    }
    for (size_t i = 0; i < STATES; i++) {
        struct limit_state *s = atomic_load_explicit(&g->states[i], memory_order_acquire);
        if (!s)
            continue;
        os_mutex_lock(&s->lock);
        bool limited = s->policy && s->policy->limited, breaks = s->policy && s->policy->breaks;
        uint32_t limit = limited ? limit_now(&s->limit) : 0, n = limited ? limit_counted(&s->limit, LIMIT_LOW) : 0;
        enum breaker_state state = breaks ? s->breaker.state : BREAKER_CLOSED;
        os_mutex_unlock(&s->lock);
        metric_set(s->limit_gauge, limit);
        metric_set(s->in_flight, n);
        metric_set(s->breaker_gauge, state);
    }
}

static void make_pressure_metrics(struct limit_gate *g, struct metrics *m)
{
    static const char *const by_class[] = {"class", NULL}, *const by_change[] = {"class", "to", NULL};
    struct metric_family *shed =
        metrics_family(m, METRIC_COUNTER, "inferd_pressure_shed_total",
                       "Requests refused for the sake of more important ones of other models.", by_class, NULL, 0);
    struct metric_family *share = metrics_family(
        m, METRIC_GAUGE, "inferd_pressure_share",
        "Part of a class's requests that more important ones of other models leave room for.", by_class, NULL, 0);
    g->pressure_changes = metrics_family(
        m, METRIC_COUNTER, "inferd_pressure_changes_total",
        "How often a class began to be shed for other models' sake, and was let in again: shed, calm.", by_change, NULL, 0);
    for (int c = LIMIT_HIGH; c < LIMIT_CLASSES; c++) {
        const char *const name[] = {limit_class_name((enum limit_class)c)};
        g->pressure_shed[c] = metrics_series(shed, name);
        g->pressure_share[c] = metrics_series(share, name);
    }
}

static void make_families(struct limit_gate *g, struct metrics *m)
{
    static const char *const by_model[] = {"model", NULL}, *const by_class[] = {"model", "class", NULL};
    static const char *const by_change[] = {"model", "to", NULL}, *const by_reason[] = {"model", "by", "reason", NULL};
    if (!m)
        return;
    g->limit_family = metrics_family(m, METRIC_GAUGE, "inferd_limit_requests",
                                     "Requests that the model's limit lets be under way at once.", by_model, NULL, 0);
    g->in_flight_family = metrics_family(m, METRIC_GAUGE, "inferd_limit_in_flight", "Requests under way that the limit counts.",
                                         by_model, NULL, 0);
    g->shed_family = metrics_family(m, METRIC_COUNTER, "inferd_limit_shed_total",
                                    "Requests that the model's limit refused, by class of priority.", by_class, NULL, 0);
    g->breaker_family = metrics_family(m, METRIC_GAUGE, "inferd_breaker_state",
                                       "The model's circuit breaker. 0: closed; 1: half open; 2: open.", by_model, NULL, 0);
    g->changes_family =
        metrics_family(m, METRIC_COUNTER, "inferd_overload_changes_total",
                       "Changes of a model's state of overload: saturated, calm, open, half_open, closed.", by_change, NULL, 0);
    g->degraded_family =
        metrics_family(m, METRIC_COUNTER, "inferd_degraded_total",
                       "Requests answered by a model's fallback or a cached answer, by why.", by_reason, NULL, 0);
    make_pressure_metrics(g, m);
}

int limit_gate_create(struct str text, const char *where, struct metrics *metrics, struct logger *log, struct limit_gate **out,
                      struct error *err)
{
    struct limit_gate *g = calloc(1, sizeof *g);
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for the rules of overload");
    g->metrics = metrics;
    g->log = log;
    g->seed = os_random_u64();
    os_mutex_init(&g->lock, RANK_CALLS);
    os_mutex_init(&g->pressure_lock, RANK_LEAF);
    list_init(&g->sets);
    int rc = limit_gate_replace(g, text, where, err);
    if (rc < 0) {
        limit_gate_destroy(g);
        return rc;
    }
    make_families(g, metrics);
    if (metrics)
        metrics_on_scrape(metrics, refresh_gauges, g);
    *out = g;
    return 0;
}

void limit_gate_destroy(struct limit_gate *g)
{
    struct list *l;
    if (!g)
        return;
    if (g->metrics)
        metrics_unhook(g->metrics, g);
    for (size_t i = 0; i < STATES; i++) {
        struct limit_state *s = atomic_load_explicit(&g->states[i], memory_order_relaxed);
        if (!s)
            continue;
        os_mutex_release(&s->lock);
        free(s);
    }
    while ((l = list_pop_front(&g->sets)))
        free_set(LIST_ENTRY(l, struct rule_set, link));
    os_mutex_release(&g->pressure_lock);
    os_mutex_release(&g->lock);
    free(g);
}

/* ---- states ---- */

/* Its slot, or the empty one where it belongs. There always is an empty one. */
static size_t find_slot(const struct limit_gate *g, struct str model, uint64_t hash, struct limit_state **out)
{
    for (size_t i = hash % STATES;; i = (i + 1) % STATES) {
        struct limit_state *s = atomic_load_explicit(&g->states[i], memory_order_acquire);
        *out = s;
        if (!s || (s->hash == hash && str_eq(s->model, model)))
            return i;
    }
}

static struct limit_state *make_state(struct limit_gate *g, struct str model, uint64_t hash)
{
    struct limit_state *s = calloc(1, sizeof *s + model.n + 1);
    if (!s)
        return NULL;
    char *name = (char *)(s + 1);
    memcpy(name, model.p, model.n);
    s->model = (struct str){name, model.n};
    s->hash = hash;
    os_mutex_init(&s->lock, RANK_LEAF);
    if (!g->metrics)
        return s;
    s->limit_gauge = metrics_series(g->limit_family, (const char *const[]){name});
    s->in_flight = metrics_series(g->in_flight_family, (const char *const[]){name});
    s->breaker_gauge = metrics_series(g->breaker_family, (const char *const[]){name});
    for (int c = 0; c < LIMIT_CLASSES; c++)
        s->shed[c] = metrics_series(g->shed_family, (const char *const[]){name, limit_class_name((enum limit_class)c)});
    return s;
}

/* NULL: there is no room for another. */
static struct limit_state *state_of(struct limit_gate *g, struct str model)
{
    uint64_t hash = hash_bytes(model.p, model.n, g->seed);
    struct limit_state *s;
    find_slot(g, model, hash, &s);
    if (s)
        return s;
    os_mutex_lock(&g->lock);
    size_t at = find_slot(g, model, hash, &s);
    if (!s && g->n_states < STATES - STATES / 4) {
        s = make_state(g, model, hash);
        g->n_states += s != NULL;
        atomic_store_explicit(&g->states[at], s, memory_order_release);
    }
    os_mutex_unlock(&g->lock);
    return s;
}

/* What keeps the model busy is the least that the limit may be: below it batches get smaller, and nothing is gained. Only a `max` that an
 * operator wrote goes before it. */
static struct limit_options options_for(const struct limit_model_policy *p, uint32_t busy)
{
    struct limit_options o = p->limit;
    if (!o.most)
        o.most = MAX_OF(MOST, MOST_BUSY * busy);
    o.least = MIN_OF(MAX_OF(o.least, busy), o.most);
    return o;
}

/* Bring the state to the rules in force and to what keeps its model busy. Locked. */
static void refresh(struct limit_state *s, const struct rule_set *set, uint32_t busy)
{
    bool fresh = !s->set;
    if (s->set == set && s->busy == busy)
        return;
    s->set = set;
    s->busy = busy;
    s->policy = limit_policy_model(&set->policy, s->model);
    if (!s->policy)
        return;
    struct limit_options o = options_for(s->policy, busy);
    if (fresh || !s->limit.o.most) {
        limit_init(&s->limit, &o);
        breaker_init(&s->breaker, &s->policy->breaker);
    } else {
        limit_configure(&s->limit, &o);
        breaker_configure(&s->breaker, &s->policy->breaker);
    }
}

/* ---- telling of changes ---- */

/* What changed while the lock was held. */
struct changes {
    enum breaker_state breaker_was, breaker;
    bool saturated_was, saturated, restored;
    uint32_t limit, in_flight;
    struct breaker_slot counts;
    enum limit_class class; /* that was refused */
};

static void look_before(const struct limit_state *s, struct changes *c)
{
    *c = (struct changes){.breaker_was = s->breaker.state, .saturated_was = s->saturated};
}

static void look_after(const struct limit_state *s, struct changes *c)
{
    c->breaker = s->breaker.state;
    c->saturated = s->saturated;
    c->limit = limit_now(&s->limit);
    c->in_flight = limit_counted(&s->limit, LIMIT_LOW);
}

static void count_change(struct limit_gate *g, const struct limit_state *s, const char *to)
{
    if (g->metrics)
        metric_inc(metrics_series(g->changes_family, (const char *const[]){s->model.p, to}));
}

/* Unlocked: the log may be slow, and changes are rare. */
static void tell(struct limit_gate *g, struct limit_state *s, const struct changes *c)
{
    if (c->saturated != c->saturated_was) {
        count_change(g, s, c->saturated ? "saturated" : "calm");
        LOG(g->log, c->saturated ? LOG_WARN : LOG_INFO, c->saturated ? "model_saturated" : "model_calm",
            LOG_STR("model", s->model), LOG_U("limit", c->limit), LOG_U("in_flight", c->in_flight),
            LOG_S("class", limit_class_name(c->class)));
    }
    if (c->breaker != c->breaker_was) {
        const char *to = breaker_state_name(c->breaker);
        count_change(g, s, to);
        LOG(g->log, c->breaker == BREAKER_OPEN ? LOG_ERROR : LOG_WARN, "breaker_changed", LOG_STR("model", s->model),
            LOG_S("to", to), LOG_U("answers", c->counts.answers), LOG_U("errors", c->counts.errors),
            LOG_U("slow", c->counts.slow));
    }
    if (c->restored)
        LOG(g->log, LOG_INFO, "model_restored", LOG_STR("model", s->model));
}

/* ---- what models owe each other ---- */

/* Classes that begin or cease to be shed: the bits of those that changed. Locked. */
static unsigned look_at_pressure(struct limit_gate *g, uint64_t now_ns)
{
    unsigned changed = 0;
    bool any = false;
    for (int c = LIMIT_HIGH; c < LIMIT_CLASSES; c++) {
        bool sheds = pressure_share(&g->pressure, (enum limit_class)c, now_ns) < 1;
        changed |= (unsigned)(sheds != g->sheds[c]) << c | (unsigned)sheds << (c + LIMIT_CLASSES);
        g->sheds[c] = sheds;
        any |= sheds;
    }
    atomic_store_explicit(&g->pressed, any, memory_order_relaxed);
    return changed;
}

static void tell_pressure(struct limit_gate *g, unsigned changed)
{
    for (int c = LIMIT_HIGH; c < LIMIT_CLASSES; c++) {
        bool sheds = changed >> (c + LIMIT_CLASSES) & 1;
        const char *name = limit_class_name((enum limit_class)c);
        if (!(changed >> c & 1))
            continue;
        if (g->metrics)
            metric_inc(metrics_series(g->pressure_changes, (const char *const[]){name, sheds ? "shed" : "calm"}));
        LOG(g->log, sheds ? LOG_WARN : LOG_INFO, sheds ? "pressure_sheds" : "pressure_calm", LOG_S("class", name));
    }
}

/* A window of a class on some model has ended. */
static void press(struct limit_gate *g, enum limit_class class, bool squeezed, uint64_t now_ns)
{
    os_mutex_lock(&g->pressure_lock);
    pressure_tell(&g->pressure, class, squeezed, now_ns);
    unsigned changed = look_at_pressure(g, now_ns);
    os_mutex_unlock(&g->pressure_lock);
    tell_pressure(g, changed);
}

/* Nobody is in the way of more important ones of other models, or this request is of those that are let in all the same. */
static bool is_let_in(struct limit_gate *g, enum limit_class class, uint64_t now_ns)
{
    if (class == LIMIT_CORE || !atomic_load_explicit(&g->pressed, memory_order_relaxed))
        return true;
    os_mutex_lock(&g->pressure_lock);
    bool let_in = pressure_admit(&g->pressure, class, now_ns);
    unsigned changed = look_at_pressure(g, now_ns);
    os_mutex_unlock(&g->pressure_lock);
    tell_pressure(g, changed);
    return let_in;
}

/* ---- a request ---- */

static enum limit_reason begin(struct limit_state *s, uint64_t now_ns, struct limit_ticket *t, uint64_t *wait_ns)
{
    const struct limit_model_policy *p = s->policy;
    t->limited = t->breaks = t->shared = false;
    if (p->breaks) {
        if (!breaker_begin(&s->breaker, now_ns, &t->epoch, wait_ns))
            return LIMIT_BREAKER;
        t->breaks = true;
    }
    if (!p->limited)
        return LIMIT_NONE;
    if (limit_begin(&s->limit, t->class, t->tenant, &t->shared)) {
        t->limited = true;
        s->saturated &= now_ns - s->refused_ns < CALM_NS;
        return LIMIT_NONE;
    }
    if (t->breaks)
        breaker_end(&s->breaker, t->epoch, BREAKER_SAYS_NOTHING, 0, now_ns);
    t->breaks = false;
    s->refused_ns = now_ns;
    s->saturated = true;
    s->refused[t->class]++;
    return LIMIT_SATURATED;
}

enum limit_reason limit_gate_begin(struct limit_gate *g, struct str model, enum limit_class class, uint64_t tenant,
                                   uint32_t busy, uint64_t now_ns, struct limit_ticket *t, uint64_t *wait_ns)
{
    struct limit_state *s = state_of(g, model);
    bool let_in = is_let_in(g, class, now_ns);
    struct changes c;
    *wait_ns = 0;
    *t = (struct limit_ticket){.class = class, .tenant = tenant};
    if (!s)
        return LIMIT_NONE;
    os_mutex_lock(&s->lock);
    refresh(s, current_set(g), busy);
    if (!s->policy) {
        os_mutex_unlock(&s->lock);
        return LIMIT_NONE;
    }
    if (!let_in && s->policy->limited && s->policy->pressure) {
        s->refused[class]++;
        os_mutex_unlock(&s->lock);
        t->pressed = true;
        metric_inc(g->pressure_shed[class]);
        return LIMIT_SATURATED;
    }
    look_before(s, &c);
    enum limit_reason why = begin(s, now_ns, t, wait_ns);
    look_after(s, &c);
    os_mutex_unlock(&s->lock);
    c.class = class;
    if (why == LIMIT_NONE)
        t->state = s;
    else if (why == LIMIT_SATURATED)
        metric_inc(s->shed[class]);
    tell(g, s, &c);
    return why;
}

void limit_gate_end(struct limit_gate *g, struct limit_ticket *t, const struct limit_result *r, uint64_t now_ns)
{
    struct limit_state *s = t->state;
    struct changes c;
    bool ended = false, squeezed = false;
    if (!s)
        return;
    os_mutex_lock(&s->lock);
    look_before(s, &c);
    if (r->outcome != BREAKER_OK)
        c.counts = breaker_counts(&s->breaker, now_ns);
    if (t->limited) {
        if (r->latency_ns)
            limit_sample(&s->limit, r->latency_ns, r->run_ns, r->size, now_ns);
        if (r->latency_ns && t->class < LIMIT_LOW && s->policy && s->policy->pressure)
            ended = pressure_window_add(&s->windows[t->class], r->latency_ns, r->run_ns, limit_alone_ns(&s->limit, r->size),
                                        limit_counted(&s->limit, LIMIT_LOW), s->limit.o.least, s->limit.o.tolerance, now_ns,
                                        &squeezed);
        limit_end(&s->limit, t->class, t->tenant, t->shared);
        s->saturated &= now_ns - s->refused_ns < CALM_NS;
    }
    if (t->breaks)
        breaker_end(&s->breaker, t->epoch, r->outcome, r->run_ns ? r->run_ns : r->latency_ns, now_ns);
    if (s->degraded_for && r->outcome == BREAKER_OK && now_ns - s->degraded_ns >= QUIET_NS) {
        s->degraded_for = LIMIT_NONE;
        c.restored = true;
    }
    look_after(s, &c);
    os_mutex_unlock(&s->lock);
    c.class = t->class;
    tell(g, s, &c);
    if (ended)
        press(g, t->class, squeezed, now_ns);
    *t = (struct limit_ticket){0};
}

void limit_gate_note_degraded(struct limit_gate *g, struct str model, enum limit_reason why, const char *fallback,
                              uint64_t now_ns)
{
    struct limit_state *s = state_of(g, model);
    if (!s)
        return;
    os_mutex_lock(&s->lock);
    bool begins = s->degraded_for != why || now_ns - s->degraded_ns >= QUIET_NS;
    s->degraded++;
    s->degraded_for = why;
    s->degraded_ns = now_ns;
    os_mutex_unlock(&s->lock);
    if (g->metrics)
        metric_inc(metrics_series(g->degraded_family,
                                  (const char *const[]){s->model.p, fallback ? "fallback" : "cache", limit_reason_name(why)}));
    if (begins)
        LOG(g->log, LOG_WARN, "model_degraded", LOG_STR("model", s->model), LOG_S("reason", limit_reason_name(why)),
            LOG_S("by", fallback ? fallback : "cache"));
}

/* ---- admin ---- */

/* Calm comes with the next request; whoever looks when there is none shall not be told of a burst that is long over. */
static void render_limit(const struct limit_state *s, uint64_t now_ns, struct buf *out)
{
    bool saturated = s->saturated && now_ns - MIN_OF(now_ns, s->refused_ns) < CALM_NS;
    buf_printf(out, ",\"limit\":%u,\"gradient\":%.3f,\"busy_at\":%u,\"saturated\":%s,\"in_flight\":{", limit_now(&s->limit),
               s->limit.gradient, s->busy, saturated ? "true" : "false");
    for (int c = 0; c < LIMIT_CLASSES; c++)
        buf_printf(out, "%s\"%s\":%u", c ? "," : "", limit_class_name((enum limit_class)c), s->limit.in_flight[c]);
    buf_append_z(out, "},\"refused\":{");
    for (int c = 0; c < LIMIT_CLASSES; c++)
        buf_printf(out, "%s\"%s\":%llu", c ? "," : "", limit_class_name((enum limit_class)c),
                   (unsigned long long)s->refused[c]);
    buf_append_z(out, "}");
}

static void render_breaker(const struct limit_state *s, uint64_t now_ns, struct buf *out)
{
    struct breaker_slot n = breaker_counts(&s->breaker, now_ns);
    bool open = s->breaker.state == BREAKER_OPEN && s->breaker.until_ns > now_ns;
    buf_printf(out, ",\"breaker\":{\"state\":\"%s\",\"answers\":%u,\"errors\":%u,\"slow\":%u,\"probe_in_ms\":%llu}",
               breaker_state_name(s->breaker.state), n.answers, n.errors, n.slow,
               (unsigned long long)(open ? (s->breaker.until_ns - now_ns) / NS_PER_MS : 0));
}

static void render_state(const struct limit_state *s, uint64_t now_ns, struct buf *out)
{
    buf_append_z(out, "{\"model\":");
    buf_append_json_str(out, s->model);
    buf_append_z(out, ",\"rule\":");
    buf_append_json_str(out, str_of(s->policy->match));
    if (s->policy->limited)
        render_limit(s, now_ns, out);
    if (s->policy->breaks)
        render_breaker(s, now_ns, out);
    if (s->policy->fallback) {
        buf_append_z(out, ",\"fallback\":");
        buf_append_json_str(out, str_of(s->policy->fallback));
    }
    buf_printf(out, ",\"cache\":%s,\"degraded\":%llu}", s->policy->cache ? "true" : "false", (unsigned long long)s->degraded);
}

void limit_gate_render(struct limit_gate *g, uint64_t now_ns, struct buf *out)
{
    bool any = false;
    buf_printf(out, "\"rules\":%zu,\"pressure\":{", limit_gate_policy(g)->n_rules);
    for (int c = LIMIT_HIGH; c < LIMIT_CLASSES; c++) {
        os_mutex_lock(&g->pressure_lock);
        double share = pressure_share(&g->pressure, (enum limit_class)c, now_ns);
        os_mutex_unlock(&g->pressure_lock);
        buf_printf(out, "%s\"%s\":%.3f", c > LIMIT_HIGH ? "," : "", limit_class_name((enum limit_class)c), share);
    }
    buf_append_z(out, "},\"models\":[");
    for (size_t i = 0; i < STATES; i++) {
        struct limit_state *s = atomic_load_explicit(&g->states[i], memory_order_acquire);
        if (!s)
            continue;
        os_mutex_lock(&s->lock);
        if (s->policy) {
            if (any)
                buf_append_c(out, ',');
            render_state(s, now_ns, out);
            any = true;
        }
        os_mutex_unlock(&s->lock);
    }
    buf_append_c(out, ']');
}
