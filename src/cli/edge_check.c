/* edge_check.c: what `serve` would say about the edge's files, without serving: keys, the issuer's keys, quotas, certificates, networks. */
#include "cli/edge_check.h"

#include "base/arena.h"
#include "base/status.h"
#include "edge/client.h"
#include "edge/jwt.h"
#include "edge/keys.h"
#include "edge/guard.h"
#include "edge/limit_policy.h"
#include "cluster/redis_url.h"
#include "edge/quota.h"
#include "net/tls.h"
#include "os/file.h"

#define POLICY_BYTES (4u << 20)

static int read_text(const char *path, size_t limit, struct buf *text, struct error *err)
{
    buf_init(text);
    return os_file_read(path, limit, text, err);
}

static int check_keys(const char *path, struct error *err)
{
    struct key_table t;
    struct buf text;
    int rc = read_text(path, KEY_FILE_MAX, &text, err);
    if (rc == 0)
        rc = key_table_parse(buf_str(&text), path, 1, &t, err);
    buf_release(&text);
    if (rc == 0)
        key_table_release(&t);
    return rc < 0 ? error_prefix(err, "auth.keys_file") : 0;
}

/* A URL is not asked: the check says what is configured, not who is up. */
static int check_issuer(const char *keys, struct error *err)
{
    struct jwks *j;
    struct buf text;
    struct str k = str_of(keys);
    if (str_starts(k, STR("http://")) || str_starts(k, STR("https://")))
        return 0;
    int rc = read_text(keys, JWKS_BYTES_MAX, &text, err);
    if (rc == 0)
        rc = jwks_parse(buf_str(&text), keys, &j, err);
    buf_release(&text);
    if (rc == 0)
        jwks_unref(j);
    return rc < 0 ? error_prefix(err, "jwt.keys") : 0;
}

static int check_quotas(const char *path, bool shares, struct error *err)
{
    struct quota_policy *p;
    struct arena arena;
    struct buf text;
    size_t n;
    arena_init(&arena, 4096, 16 << 20);
    int rc = read_text(path, POLICY_BYTES, &text, err);
    if (rc == 0)
        rc = quota_policies_parse(buf_str(&text), path, &arena, &p, &n, err);
    for (size_t i = 0; rc == 0 && !shares && i < n; i++)
        if (p[i].said > 0)
            rc = error_set(err, STATUS_INVALID, "the policy \"%s\" is to be shared, but redis.url is not set", p[i].name);
    buf_release(&text);
    arena_release(&arena);
    return rc < 0 ? error_prefix(err, "quota.file") : 0;
}

static int check_redis(const char *url, struct error *err)
{
    struct redis_url u;
    int rc = redis_url_parse(url, &u, err);
    return rc < 0 ? error_prefix(err, "redis.url") : 0;
}

static int check_guard(const char *path, const struct gateway_config *routes, struct error *err)
{
    struct guard_set *set = NULL;
    struct buf text;
    int rc = read_text(path, POLICY_BYTES, &text, err);
    if (rc == 0)
        rc = guard_set_parse(buf_str(&text), path, &set, err);
    if (rc == 0)
        rc = guard_check_routes(set, routes, err);
    guard_set_unref(set);
    buf_release(&text);
    return rc < 0 ? error_prefix(err, "guard.file") : 0;
}

static int check_overload(const char *path, struct error *err)
{
    struct limit_policy p;
    struct arena arena;
    struct buf text;
    arena_init(&arena, 4096, 16 << 20);
    int rc = read_text(path, POLICY_BYTES, &text, err);
    if (rc == 0)
        rc = limit_policy_parse(buf_str(&text), path, &arena, &p, err);
    buf_release(&text);
    arena_release(&arena);
    return rc < 0 ? error_prefix(err, "overload.file") : 0;
}

void cli_tls_options(const struct config *c, struct tls_options *out)
{
    *out = (struct tls_options){
        .certificates = c->tls.certificates.v,
        .n = c->tls.certificates.n,
        .keys = c->tls.keys.v,
        .n_keys = c->tls.keys.n,
        .h2 = true,
        .check_host = c->tls.check_host,
        .only_13 = c->tls.min_version == CONFIG_TLS_13,
        .client_ca = c->tls.client_ca[0] ? c->tls.client_ca : NULL,
        .crl = c->tls.crl[0] ? c->tls.crl : NULL,
        .client_auth = (enum tls_client_auth)c->tls.client_auth,
        .ticket_rotation_ns = c->tls.ticket_rotation,
    };
}

static int check_certificates(const struct config *c, struct logger *log, struct error *err)
{
    struct tls_options o;
    struct tls_context *t;
    cli_tls_options(c, &o);
    o.log = log; /* says what ends soon */
    int rc = tls_context_create(&o, &t, err);
    if (rc < 0)
        return error_prefix(err, "tls");
    tls_context_destroy(t);
    return 0;
}

int cli_client_rules(const struct config *c, struct network *proxies, struct error *err)
{
    for (size_t i = 0; i < c->proxy.trusted.n; i++)
        if (network_parse(str_of(c->proxy.trusted.v[i]), &proxies[i], err) < 0)
            return error_prefix(err, "proxy.trusted");
    for (size_t i = 0; i < c->cors.origins.n; i++)
        if (!cors_origin_valid(str_of(c->cors.origins.v[i])))
            return error_set(err, STATUS_INVALID, "cors.origins: \"%s\" is no origin; give https://HOST, https://*.DOMAIN or *",
                             c->cors.origins.v[i]);
    return 0;
}

int cli_edge_check(const struct config *c, struct logger *log, struct error *err)
{
    struct network proxies[CLI_PROXIES_MAX];
    int rc = cli_client_rules(c, proxies, err);
    if (rc == 0 && c->auth.keys_file[0])
        rc = check_keys(c->auth.keys_file, err);
    if (rc == 0 && c->jwt.keys[0])
        rc = check_issuer(c->jwt.keys, err);
    if (rc == 0 && c->redis.url[0])
        rc = check_redis(c->redis.url, err);
    if (rc == 0 && c->quota.file[0])
        rc = check_quotas(c->quota.file, c->redis.url[0] != 0, err);
    if (rc == 0 && c->guard.file[0])
        rc = check_guard(c->guard.file, &c->gateway, err);
    if (rc == 0 && c->overload.file[0])
        rc = check_overload(c->overload.file, err);
    if (rc == 0 && c->tls.certificates.n)
        rc = check_certificates(c, log, err);
    return rc;
}
