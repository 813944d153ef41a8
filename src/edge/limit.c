/* limit.c: see limit.h. */
#include "edge/limit.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"

#define GRADIENT_LEAST 0.5
#define NEW_SHARE      0.2
#define BURST_PART     4
#define START          20.0 /* where an adaptive limit begins, within its bounds */

const char *limit_class_name(enum limit_class c)
{
    static const char *const names[LIMIT_CLASSES] = {"core", "high", "normal", "low"};
    return names[c];
}

/* ---- tenants ---- */

/* A tenant in a class is one entry. */
static uint64_t share_key(uint64_t tenant, enum limit_class class)
{
    uint64_t key = tenant * LIMIT_CLASSES + class; /* of 64-bit hashes: two bits of them are lost */
    return key ? key : 1;
}

static uint32_t home_of(uint64_t key)
{
    return (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) % LIMIT_TENANTS;
}

/* Its slot, or the empty one where it would be; NULL: it isn't there and nothing is empty. */
static struct limit_share *find_share(struct limit_shares *s, uint64_t key)
{
    for (uint32_t i = home_of(key), n = 0; n < LIMIT_TENANTS; i = (i + 1) % LIMIT_TENANTS, n++)
        if (s->slots[i].tenant == key || !s->slots[i].tenant)
            return &s->slots[i];
    return NULL;
}

static bool share_add(struct limit_shares *s, uint64_t tenant, enum limit_class class)
{
    uint64_t key = share_key(tenant, class);
    struct limit_share *e = find_share(s, key);
    if (!e)
        return false;
    if (!e->tenant) {
        *e = (struct limit_share){.tenant = key};
        s->used++;
        s->active[class]++;
    }
    e->n++;
    return true;
}

/* Close the gap at `hole`: what stands behind it and would be looked for from before it moves up (Knuth, TAOCP 3, 6.4, algorithm R). */
static void close_gap(struct limit_shares *s, uint32_t hole)
{
    for (uint32_t i = (hole + 1) % LIMIT_TENANTS; s->slots[i].tenant; i = (i + 1) % LIMIT_TENANTS) {
        uint32_t home = home_of(s->slots[i].tenant);
        if ((i + LIMIT_TENANTS - home) % LIMIT_TENANTS < (i + LIMIT_TENANTS - hole) % LIMIT_TENANTS)
            continue;
        s->slots[hole] = s->slots[i];
        s->slots[i] = (struct limit_share){0};
        hole = i;
    }
}

static void share_remove(struct limit_shares *s, uint64_t tenant, enum limit_class class)
{
    struct limit_share *e = find_share(s, share_key(tenant, class));
    ASSERT(e && e->n);
    if (--e->n)
        return;
    *e = (struct limit_share){0};
    s->used--;
    s->active[class]--;
    close_gap(s, (uint32_t)(e - s->slots));
}

/* Has the tenant less than an equal part of what more important classes leave? */
static bool below_share(struct limit *l, enum limit_class class, uint64_t tenant)
{
    uint32_t above = class ? limit_counted(l, (enum limit_class)(class - 1)) : 0, limit = limit_now(l);
    const struct limit_share *e = tenant ? find_share(&l->shares, share_key(tenant, class)) : NULL;
    if (!e || above >= limit)
        return false;
    uint32_t tenants = l->shares.active[class] + !e->tenant, part = (limit - above) / tenants;
    return e->n < MAX_OF(part, 1u);
}

/* ---- admission ---- */

static uint32_t burst_of(const struct limit *l)
{
    return l->o.burst == UINT32_MAX ? MAX_OF(limit_now(l) / BURST_PART, 1u) : l->o.burst;
}

void limit_configure(struct limit *l, const struct limit_options *o)
{
    l->o = *o;
    l->o.least = MIN_OF(MAX_OF(o->least, 1u), LIMIT_REQUESTS_MAX);
    l->o.most = MIN_OF(MAX_OF(o->most, l->o.least), LIMIT_REQUESTS_MAX);
    l->limit = o->adaptive ? MIN_OF(MAX_OF(l->limit, (double)l->o.least), (double)l->o.most) : l->o.most;
    l->burst_left = burst_of(l);
}

void limit_init(struct limit *l, const struct limit_options *o)
{
    memset(l, 0, sizeof *l);
    l->limit = START;
    l->gradient = 1;
    limit_configure(l, o);
}

uint32_t limit_now(const struct limit *l)
{
    return (uint32_t)l->limit;
}

uint32_t limit_counted(const struct limit *l, enum limit_class class)
{
    uint32_t n = 0;
    for (int k = 0; k <= (int)class; k++)
        n += l->in_flight[k];
    return n;
}

bool limit_begin(struct limit *l, enum limit_class class, uint64_t tenant, bool *shared)
{
    uint32_t n = limit_counted(l, class), limit = limit_now(l);
    *shared = false;
    if (n >= limit) {
        l->reached = true;
        if (!below_share(l, class, tenant)) {
            if (!l->burst_left)
                return false;
            l->burst_left--;
        }
    }
    l->in_flight[class]++;
    l->peak = MAX_OF(l->peak, limit_counted(l, LIMIT_LOW));
    *shared = tenant && share_add(&l->shares, tenant, class);
    return true;
}

void limit_end(struct limit *l, enum limit_class class, uint64_t tenant, bool shared)
{
    ASSERT(l->in_flight[class]);
    l->in_flight[class]--;
    if (shared)
        share_remove(&l->shares, tenant, class);
    if (2 * limit_counted(l, LIMIT_LOW) < limit_now(l))
        l->burst_left = burst_of(l);
}

/* ---- measuring ---- */

static uint32_t size_class(uint64_t size)
{
    uint32_t c = 0;
    while (size > 1 && c < LIMIT_SIZES - 1) {
        size >>= 1;
        c++;
    }
    return c;
}

/* Of runs of that size; never 0 once one was seen. */
static uint64_t minimum_of(const struct limit *l, uint32_t size)
{
    uint64_t a = l->least_ns[0][size], b = l->least_ns[1][size];
    return a && b ? MIN_OF(a, b) : MAX_OF(a, b);
}

uint64_t limit_alone_ns(const struct limit *l, uint64_t size)
{
    uint32_t class = size_class(size);
    double a = l->least_each[0][class], b = l->least_each[1][class], each = a > 0 && b > 0 ? MIN_OF(a, b) : MAX_OF(a, b);
    return MAX_OF(minimum_of(l, class), (uint64_t)(each * (double)MAX_OF(size, (uint64_t)1)));
}

static void next_epoch(struct limit *l, uint64_t now_ns)
{
    bool long_gone = now_ns - l->epoch_at_ns >= 2 * l->o.epoch_ns; /* nobody asked for a whole one */
    memcpy(l->least_ns[1], l->least_ns[0], sizeof l->least_ns[1]);
    memset(l->least_ns[0], 0, sizeof l->least_ns[0]);
    memcpy(l->least_each[1], l->least_each[0], sizeof l->least_each[1]);
    memset(l->least_each[0], 0, sizeof l->least_each[0]);
    if (long_gone) {
        memset(l->least_ns[1], 0, sizeof l->least_ns[1]);
        memset(l->least_each[1], 0, sizeof l->least_each[1]);
    }
    if (l->blind && l->reached && l->o.adaptive && !l->probing) {
        l->probing = l->limit;
        l->limit = MAX_OF(l->limit / 2, (double)l->o.least);
        l->window_ns = 0; /* what is under way was let in under the old limit: the window begins anew */
    }
    l->reached = false;
    l->epoch_at_ns = now_ns;
}

static void end_window(struct limit *l)
{
    double gradient = l->o.tolerance * l->minimum_ns / l->latency_ns;
    l->gradient = MIN_OF(MAX_OF(gradient, GRADIENT_LEAST), 1.0);
    if (l->probing) { /* it was for the minimum alone */
        l->limit = l->probing;
        l->probing = 0;
        return;
    }
    if (!l->o.adaptive)
        return;
    double to = (1 - NEW_SHARE) * l->limit + NEW_SHARE * (l->gradient * l->limit + sqrt(l->limit));
    if (to > l->limit && 2 * l->peak < limit_now(l))
        return; /* nobody needs more */
    l->limit = MIN_OF(MAX_OF(to, (double)l->o.least), (double)l->o.most);
}

void limit_sample(struct limit *l, uint64_t latency_ns, uint64_t run_ns, uint64_t size, uint64_t now_ns)
{
    uint32_t class = size_class(size);
    uint64_t *least = &l->least_ns[0][class];
    if (!l->epoch_at_ns || now_ns - l->epoch_at_ns >= l->o.epoch_ns)
        next_epoch(l, now_ns);
    if (!latency_ns)
        return;
    l->blind = !run_ns;
    run_ns = run_ns ? MIN_OF(run_ns, latency_ns) : latency_ns;
    *least = *least ? MIN_OF(*least, run_ns) : run_ns;
    double each = (double)run_ns / (double)MAX_OF(size, (uint64_t)1), *least_each = &l->least_each[0][class];
    *least_each = *least_each > 0 ? MIN_OF(*least_each, each) : each;
    if (!l->window_ns) {
        l->window_ns = now_ns;
        l->samples = 0;
        l->latency_ns = l->minimum_ns = 0;
        l->peak = limit_counted(l, LIMIT_LOW);
    }
    l->samples++;
    l->latency_ns += (double)latency_ns;
    l->minimum_ns += (double)minimum_of(l, class);
    if (l->samples < LIMIT_WINDOW_MIN || now_ns - l->window_ns < LIMIT_WINDOW_NS)
        return;
    end_window(l);
    l->window_ns = 0;
}
