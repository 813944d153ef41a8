/* transport.c: how the servers of a pool are spoken to: protocol, TLS, how many connections are kept. Made when the pool is, from its options
 * and the files they name; immutable, so that connections may hold it beyond a reload. Another certificate is another transport. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/gateway_config.h"
#include "gateway/gateway_priv.h"
#include "os/file.h"

static uint64_t mix_file(uint64_t h, const char *path)
{
    struct os_file_info info;
    if (!path[0] || os_file_info(path, &info, NULL) < 0)
        return h;
    uint64_t parts[] = {h, info.size_bytes, info.mtime_ns, info.inode};
    return hash_bytes(parts, sizeof parts, 11);
}

static uint64_t stamp_of(const struct gateway_pool *o)
{
    return mix_file(mix_file(mix_file(0, o->tls.ca), o->tls.certificate), o->tls.key);
}

bool transport_is_stale(const struct gateway_transport *t, const struct gateway_pool *o)
{
    return t->stamp != stamp_of(o);
}

static int make_tls(struct gateway_transport *t, const struct gateway_pool *o, struct error *err)
{
    struct tls_client_options c = {
        .ca_file = strcmp(o->tls.ca, "system") == 0 ? NULL : o->tls.ca,
        .certificate = o->tls.certificate[0] ? o->tls.certificate : NULL,
        .key = o->tls.key[0] ? o->tls.key : NULL,
        .http1 = t->protocol != GATEWAY_HTTP2,
        .h2 = t->protocol != GATEWAY_HTTP1,
    };
    int rc = tls_client_create_with(&c, &t->tls, err);
    return rc ? error_prefix(err, "upstreams[].tls of pool \"%s\"", o->name) : 0;
}

int transport_create(struct gateway *g, const struct gateway_pool *o, struct gateway_transport **out, struct error *err)
{
    struct gateway_transport *t = calloc(1, sizeof *t);
    int rc = 0;
    if (t) {
        atomic_init(&t->refs, 1);
        t->id = atomic_fetch_add_explicit(&g->transports, 1, memory_order_relaxed);
        t->protocol = (enum gateway_protocol)o->protocol;
        t->keepalive = MAX_OF(o->keepalive, o->keepalive_min);
        t->keepalive_min = o->keepalive_min;
        t->keepalive_ns = o->keepalive_timeout;
        t->ping_ns = o->ping_interval;
        t->pool = strdup(o->name);
        t->tls_name = strdup(o->tls.name);
        t->stamp = stamp_of(o);
    }
    if (!t || !t->pool || !t->tls_name)
        rc = error_set(err, STATUS_NOMEM, "out of memory for an upstream pool");
    else if (o->tls.ca[0])
        rc = make_tls(t, o, err);
    if (rc) {
        transport_unref(t);
        return rc;
    }
    *out = t;
    return 0;
}

struct gateway_transport *transport_ref(struct gateway_transport *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
    return t;
}

void transport_unref(struct gateway_transport *t)
{
    if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1)
        return;
    tls_client_destroy(t->tls);
    free(t->tls_name);
    free(t->pool);
    free(t);
}
