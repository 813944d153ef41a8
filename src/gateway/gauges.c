/* gauges.c: what /metrics says of pools and servers as they stand. It is written from the table in force at each scrape rather than kept as
 * series, so that a pool or server that has left is gone from the page, and not shown for ever as it was at its last tick. Called by the
 * scraping thread. */
#include "gateway/gateway_priv.h"
#include "os/clock.h"

/* Once in front of a family's first line. */
static void head(struct buf *out, bool *begun, const char *name, const char *help)
{
    if (!*begun)
        buf_printf(out, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name);
    *begun = true;
}

static void show_servers(struct buf *out, const struct gateway_table *t, bool usable)
{
    const char *name = usable ? "inferd_upstream_usable" : "inferd_upstream_in_flight";
    bool begun = false;
    uint64_t now = os_monotonic_ns();
    for (size_t i = 0; i < t->config.n_pools; i++) {
        struct gateway_live *p = t->pools[i];
        struct upstream_view v;
        os_mutex_lock(&p->lock);
        for (size_t k = 0; pool_look(p->pool, k, now, &v); k++) {
            head(out, &begun, name,
                 usable ? "1: the upstream gets requests; 0: its checks fail, it is ejected, or it says no."
                        : "Requests that an upstream works on.");
            buf_printf(out, "%s{", name);
            metrics_append_label(out, "pool", str_of(p->o.name));
            buf_append_c(out, ',');
            metrics_append_label(out, "upstream", v.name);
            buf_printf(out, "} %u\n", usable ? v.usable : v.in_flight);
        }
        os_mutex_unlock(&p->lock);
    }
}

static void show_pools(struct buf *out, const struct gateway_table *t, bool waiting)
{
    const char *name = waiting ? "inferd_upstream_waiting" : "inferd_upstream_lookup_stale";
    bool begun = false;
    for (size_t i = 0; i < t->config.n_pools; i++) {
        struct gateway_live *p = t->pools[i];
        os_mutex_lock(&p->lock);
        unsigned value = waiting ? p->waits.n : p->lookup_stale;
        os_mutex_unlock(&p->lock);
        head(out, &begun, name,
             waiting ? "Requests that wait for room on a server."
                     : "1: some servers are those of an earlier lookup, as the latest yielded nothing.");
        buf_printf(out, "%s{", name);
        metrics_append_label(out, "pool", str_of(p->o.name));
        buf_printf(out, "} %u\n", value);
    }
}

void gauges__render(void *ctx, struct buf *out)
{
    struct gateway_table *t = gateway__table_get(ctx);
    show_servers(out, t, true);
    show_servers(out, t, false);
    show_pools(out, t, true);
    show_pools(out, t, false);
    gateway__table_unref(t);
}
