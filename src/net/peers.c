/* peers.c: see peers.h. An entry without connections is kept while its rate matters, a second at most, and freed by whoever comes by. */
#include "net/peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "os/thread.h"

#define CHAINS    4096u /* a power of two */
#define SWEEP     4u    /* chains swept at each entry */
#define SECOND_NS 1000000000ull

struct peer {
    struct peer *next;
    struct address address;
    uint32_t connections;
    uint64_t level; /* of its bucket: connections * SECOND_NS */
    uint64_t seen_ns;
};

struct peers {
    struct os_mutex lock; /* guards all below */
    uint64_t seed;
    uint32_t sweep;
    size_t n;
    struct peer *chains[CHAINS];
};

struct peers *peers_create(uint64_t seed)
{
    struct peers *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->seed = seed;
    os_mutex_init(&p->lock, RANK_LEAF);
    return p;
}

void peers_destroy(struct peers *p)
{
    for (size_t i = 0; p && i < CHAINS; i++)
        while (p->chains[i]) {
            struct peer *e = p->chains[i];
            p->chains[i] = e->next;
            free(e);
        }
    if (p)
        os_mutex_release(&p->lock);
    free(p);
}

/* IPv4 whole, IPv6 by its network. */
static struct address key_of(const struct address *a)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    struct address k = *a;
    if (memcmp(a->bytes, mapped, sizeof mapped) != 0)
        memset(k.bytes + 8, 0, 8);
    return k;
}

static struct peer **find(struct peers *p, const struct address *key)
{
    struct peer **at = &p->chains[hash_bytes(key->bytes, sizeof key->bytes, p->seed) & (CHAINS - 1)];
    while (*at && memcmp((*at)->address.bytes, key->bytes, sizeof key->bytes) != 0)
        at = &(*at)->next;
    return at;
}

static void sweep(struct peers *p, uint64_t now_ns)
{
    for (uint32_t i = 0; i < SWEEP; i++) {
        struct peer **at = &p->chains[p->sweep++ & (CHAINS - 1)];
        while (*at) {
            struct peer *e = *at;
            if (e->connections || now_ns < e->seen_ns + SECOND_NS) {
                at = &e->next;
                continue;
            }
            *at = e->next;
            p->n--;
            free(e);
        }
    }
}

static void refill(struct peer *e, const struct peers_limits *l, uint64_t now_ns)
{
    uint64_t most = l->max_rate * SECOND_NS, since = now_ns > e->seen_ns ? now_ns - e->seen_ns : 0;
    uint64_t gain = since >= SECOND_NS ? most : since * l->max_rate;
    e->level = MIN_OF(e->level + gain, most);
    e->seen_ns = MAX_OF(e->seen_ns, now_ns);
}

static enum peers_verdict judge(struct peer *e, const struct peers_limits *l)
{
    if (l->max_connections && e->connections >= l->max_connections)
        return PEERS_TOO_MANY;
    if (l->max_rate && e->level < SECOND_NS)
        return PEERS_TOO_FAST;
    return PEERS_OK;
}

enum peers_verdict peers_enter(struct peers *p, const struct address *a, const struct peers_limits *l, uint64_t now_ns,
                               bool *counted)
{
    struct address key = key_of(a);
    enum peers_verdict v = PEERS_OK;
    *counted = false;
    if (!l->max_connections && !l->max_rate)
        return PEERS_OK;
    os_mutex_lock(&p->lock);
    sweep(p, now_ns);
    struct peer **at = find(p, &key), *e = *at;
    if (!e && (e = calloc(1, sizeof *e))) {
        *e = (struct peer){.address = key, .level = l->max_rate * SECOND_NS, .seen_ns = now_ns};
        *at = e;
        p->n++;
    }
    if (e) {
        refill(e, l, now_ns);
        v = judge(e, l);
        if (v == PEERS_OK) {
            e->connections++;
            e->level -= l->max_rate ? SECOND_NS : 0;
            *counted = true;
        }
    }
    os_mutex_unlock(&p->lock);
    return v;
}

void peers_leave(struct peers *p, const struct address *a)
{
    struct address key = key_of(a);
    os_mutex_lock(&p->lock);
    struct peer *e = *find(p, &key);
    if (e && e->connections)
        e->connections--;
    os_mutex_unlock(&p->lock);
}

size_t peers_count(struct peers *p)
{
    os_mutex_lock(&p->lock);
    size_t n = p->n;
    os_mutex_unlock(&p->lock);
    return n;
}
