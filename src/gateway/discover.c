/* discover.c: which servers a pool has: addresses, names (A and AAAA, or SRV), and a file that others write.
 *
 * Looked up without the pool's lock, then set at once. What a name or a file yields replaces what it yielded before; one that yields nothing (no
 * answer, an error, an empty or broken file) keeps it, since a resolver that is down or a file half written must not empty a pool that works.
 * Each server remembers by `source` what it came from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/endpoint_slice.h"
#include "gateway/gateway_priv.h"
#include "os/clock.h"
#include "os/dns.h"
#include "os/file.h"

#define ADDRESSES_MAX 64 /* that one name stands for */
#define HOST_BYTES    256

struct entry {
    struct upstream_options o;
    char name[OS_ADDR_TEXT_BYTES], host[HOST_BYTES];
};

struct found {
    struct gateway_live *p;
    struct entry *v;
    size_t n, cap;
    uint64_t *lost; /* [n_lost] sources that yielded nothing */
    size_t n_lost, lost_cap;
};

static struct entry *add(struct found *f, const struct upstream_options *o, const char *name, struct str host)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].name, name) == 0)
            return &f->v[i]; /* two names for one address */
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 16;
        struct entry *v = realloc(f->v, cap * sizeof *v);
        if (!v)
            return NULL;
        f->v = v;
        f->cap = cap;
    }
    struct entry *e = &f->v[f->n++];
    e->o = *o;
    snprintf(e->name, sizeof e->name, "%s", name);
    snprintf(e->host, sizeof e->host, "%.*s", STR_ARG(host));
    return e;
}

static int add_addresses(struct found *f, const struct upstream_options *o, struct str host, const struct os_addr *a, size_t n)
{
    char name[OS_ADDR_TEXT_BYTES];
    for (size_t i = 0; i < n; i++) {
        os_addr_text(&a[i], name);
        if (!add(f, o, name, host))
            return STATUS_NOMEM;
    }
    return 0;
}

/* Keep what there is from this source. */
static int lose(struct found *f, uint64_t source, const char *what, const struct error *err)
{
    struct gateway_live *p = f->p;
    LOG(p->g->o.log, LOG_WARN, "upstream_unresolved", LOG_S("pool", p->o.name), LOG_S("address", what),
        LOG_S("reason", err->text));
    metric_inc(p->lookup_failures);
    if (f->n_lost == f->lost_cap) {
        size_t cap = f->lost_cap ? 2 * f->lost_cap : 8;
        uint64_t *v = realloc(f->lost, cap * sizeof *v);
        if (!v)
            return STATUS_NOMEM;
        f->lost = v;
        f->lost_cap = cap;
    }
    f->lost[f->n_lost++] = source;
    return 0;
}

/* The host of "host:port", brackets off; "" of a unix socket. */
static struct str host_of(const char *address)
{
    const char *colon = strrchr(address, ':');
    struct str h = {address, colon ? (size_t)(colon - address) : strlen(address)};
    if (strncmp(address, "unix:", 5) == 0)
        return STR("");
    if (h.n > 2 && h.p[0] == '[' && h.p[h.n - 1] == ']')
        h = (struct str){h.p + 1, h.n - 2};
    return h;
}

static bool is_srv(const char *address)
{
    return address[0] == '_' && !strchr(address, ':');
}

static bool is_name(const char *address)
{
    struct str s = str_of(address);
    bool letters = false;
    for (size_t i = 0; i < s.n; i++)
        letters |= (s.p[i] >= 'g' && s.p[i] <= 'z') || (s.p[i] >= 'G' && s.p[i] <= 'Z') || s.p[i] == '-' || s.p[i] == '_';
    return letters && strncmp(address, "unix:", 5) != 0;
}

/* Addresses of "host:port": by the DNS server that was named, else by the system's ways (hosts file and all). */
static int resolve(struct gateway_live *p, const char *address, struct os_addr *out, size_t *n, struct error *err)
{
    char host[HOST_BYTES];
    const char *server = p->g->o.resolver, *colon = strrchr(address, ':');
    uint64_t port;
    if (!server || !server[0] || !is_name(address))
        return os_addr_resolve(address, out, ADDRESSES_MAX, n, err);
    if (!colon || !str_to_u64(str_of(colon + 1), &port) || !port || port > 65535)
        return error_set(err, STATUS_INVALID, "'%s' is no address: write HOST:PORT", address);
    snprintf(host, sizeof host, "%.*s", STR_ARG(host_of(address)));
    return os_dns_addresses(server, host, (uint16_t)port, out, ADDRESSES_MAX, n, err);
}

/* The SRV records of a service: each target's addresses, at its port and weight; the lowest priority is level 0, the next one is its backup. */
static int look_up_srv(struct found *f, const struct gateway_server *s, const struct upstream_options *base, struct error *err)
{
    struct os_dns_srv records[ADDRESSES_MAX];
    struct os_addr addrs[ADDRESSES_MAX];
    char address[HOST_BYTES + 16];
    size_t n = 0, got, all = 0;
    int rc = os_dns_srv(f->p->g->o.resolver ? f->p->g->o.resolver : "", s->address, records, ADDRESSES_MAX, &n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        struct upstream_options o = *base;
        for (size_t j = 0; j < n; j++) { /* how many different priorities are better than its own */
            bool first = records[j].priority < records[i].priority;
            for (size_t k = 0; k < j && first; k++)
                first = records[k].priority != records[j].priority;
            o.level += first;
        }
        o.level = MIN_OF(o.level, 7u);
        o.weight = MAX_OF(MIN_OF(records[i].weight, 1000u), 1u);
        snprintf(address, sizeof address, "%.*s:%u", HOST_BYTES - 1, records[i].target, records[i].port);
        struct error one;
        if (resolve(f->p, address, addrs, &got, &one) == 0) {
            rc = add_addresses(f, &o, str_of(records[i].target), addrs, got);
            all += got;
        }
    }
    if (!rc && !all)
        rc = error_set(err, STATUS_NOT_FOUND, "none of the targets of '%s' has an address", s->address);
    return rc;
}

/* One configured server: every address that its name has now. */
static int look_up(struct found *f, const struct gateway_server *s, uint64_t source)
{
    struct os_addr addrs[ADDRESSES_MAX];
    struct error err = {0};
    size_t n = 0;
    struct upstream_options o = {
        .weight = s->weight,
        .level = s->backup,
        .zone = gateway__zone_id(f->p->g, s->zone),
        .source = source,
        .max_conns = s->max_conns,
        .max_fails = s->max_fails,
        .fail_timeout_ns = s->fail_timeout,
        .slow_start_ns = s->slow_start,
    };
    int rc;
    if (is_srv(s->address)) {
        rc = look_up_srv(f, s, &o, &err);
    } else {
        rc = resolve(f->p, s->address, addrs, &n, &err);
        if (!rc)
            rc = add_addresses(f, &o, host_of(s->address), addrs, n);
    }
    return rc == STATUS_NOT_FOUND ? lose(f, source, s->address, &err) : rc;
}

static uint64_t source_of(const char *text)
{
    return hash_bytes(text, strlen(text), 11);
}

/* ---- the file ---- */

uint64_t discover__stamp(const char *path)
{
    struct os_file_info i;
    struct error err;
    if (os_file_info(path, &i, &err) < 0)
        return 0;
    uint64_t what[] = {i.mtime_ns, i.size_bytes, i.inode};
    return hash_bytes(what, sizeof what, 1) | 1;
}

static int read_file(struct found *f, const struct gateway_pool *o)
{
    struct arena arena;
    struct buf text;
    struct gateway_server *list = NULL;
    struct error err;
    size_t n = 0;
    uint64_t source = source_of(o->servers_file);
    atomic_store_explicit(&f->p->file_stamp, discover__stamp(o->servers_file), memory_order_relaxed);
    arena_init(&arena, 4096, 0);
    buf_init(&text);
    int rc = os_file_read(o->servers_file, NODE_TEXT_MAX, &text, &err);
    if (!rc)
        rc = endpoint_file_read(buf_str(&text), o->servers_file, o->servers_port, &arena, &list, &n, &err);
    if (!rc && !n)
        rc = error_set(&err, STATUS_NOT_FOUND, "the file lists no server that is ready");
    if (rc)
        rc = rc == STATUS_NOMEM ? rc : lose(f, source, o->servers_file, &err);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = look_up(f, &list[i], source);
        if (rc == STATUS_INVALID) { /* one bad address doesn't cost the others their place */
            error_set(&err, STATUS_INVALID, "'%s' is no address: write HOST:PORT", list[i].address);
            rc = lose(f, source, o->servers_file, &err);
        }
    }
    buf_release(&text);
    arena_release(&arena);
    return rc;
}

/* ---- all of them ---- */

/* What stays of what was there; p->lock held. */
static int keep_lost(struct found *f)
{
    struct upstream_view v;
    char name[OS_ADDR_TEXT_BYTES];
    for (size_t i = 0; f->n_lost && pool_look(f->p->pool, i, 0, &v); i++)
        for (size_t k = 0; k < f->n_lost; k++) {
            if (v.options->source != f->lost[k])
                continue;
            snprintf(name, sizeof name, "%.*s", STR_ARG(v.name));
            if (!add(f, v.options, name, v.options->host))
                return STATUS_NOMEM;
        }
    return 0;
}

static int set_all(struct found *f, struct error *err)
{
    os_mutex_lock(&f->p->lock);
    int rc = keep_lost(f);
    struct upstream_options *list = rc ? NULL : calloc(f->n + 1, sizeof *list);
    for (size_t i = 0; i < f->n && list; i++) {
        list[i] = f->v[i].o;
        list[i].name = str_of(f->v[i].name);
        list[i].host = str_of(f->v[i].host);
    }
    rc = list ? pool_set(f->p->pool, list, f->n, os_monotonic_ns(), err) : STATUS_NOMEM;
    f->p->lookup_stale = f->n_lost > 0;
    live_wake_one(f->p);
    os_mutex_unlock(&f->p->lock);
    free(list);
    return rc;
}

int discover__servers(struct gateway_live *p, const struct gateway_pool *o, struct error *err)
{
    struct found f = {.p = p};
    int rc = 0;
    for (size_t i = 0; i < o->n_servers && !rc; i++)
        rc = look_up(&f, &o->servers[i], source_of(o->servers[i].address));
    if (!rc && o->servers_file[0])
        rc = read_file(&f, o);
    if (rc == STATUS_INVALID)
        error_set(err, STATUS_INVALID, "upstream pool \"%s\" has a server that is no address: write HOST:PORT or unix:/path",
                  o->name);
    if (!rc)
        rc = set_all(&f, err);
    if (rc == STATUS_NOMEM)
        error_set(err, STATUS_NOMEM, "out of memory for the servers of pool \"%s\"", o->name);
    free(f.v);
    free(f.lost);
    return rc;
}

static bool has_names(const struct gateway_pool *o)
{
    for (size_t i = 0; i < o->n_servers; i++)
        if (is_name(o->servers[i].address))
            return true;
    return o->servers_file[0];
}

void discover__round(struct gateway_live *p, const struct gateway_pool *o, uint64_t round)
{
    struct error err;
    uint64_t geo = o->geo.file[0] ? discover__stamp(o->geo.file) : 0;
    if (geo && geo != atomic_load_explicit(&p->geo_stamp, memory_order_relaxed)) {
        atomic_store_explicit(&p->geo_stamp, geo, memory_order_relaxed);
        geo__refresh(p);
    }
    uint64_t every = MAX_OF(o->resolve_interval / RESOLVE_NS, (uint64_t)1);
    bool changed =
        o->servers_file[0] && discover__stamp(o->servers_file) != atomic_load_explicit(&p->file_stamp, memory_order_relaxed);
    if (!changed && (round % every || !has_names(o)))
        return;
    if (discover__servers(p, o, &err) < 0)
        LOG(p->g->o.log, LOG_WARN, "upstream_lookup_failed", LOG_S("pool", o->name), LOG_S("reason", err.text));
}
