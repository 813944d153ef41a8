/* config_check.c: listen addresses and the rules that join several rows. */
#include <stdio.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/config.h"
#include "conf/node.h"
#include "conf/options.h"

/* Split "HOST:PORT"; brackets around an IPv6 host are dropped. False when it isn't one. */
static bool split(struct str a, struct str *host, uint64_t *port)
{
    size_t colon = a.n;
    while (colon > 0 && a.p[colon - 1] != ':')
        colon--;
    if (colon == 0 || !str_to_u64((struct str){a.p + colon, a.n - colon}, port) || *port > 65535)
        return false;
    *host = (struct str){a.p, colon - 1};
    if (host->n >= 2 && host->p[0] == '[' && host->p[host->n - 1] == ']') {
        *host = (struct str){host->p + 1, host->n - 2};
        for (size_t i = 0; i < host->n; i++)
            if (!strchr("0123456789abcdefABCDEF:.", host->p[i]) || !host->p[i])
                return false;
        return host->n >= 2;
    }
    for (size_t i = 0; i < host->n; i++) {
        char c = host->p[i];
        bool word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-';
        if (!word && !(c == '*' && host->n == 1))
            return false;
    }
    return host->n > 0 && host->n < 256;
}

bool config_listen_valid(struct str address)
{
    struct str host;
    uint64_t port;
    if (str_starts(address, STR("unix:")))
        return address.n > 6 && address.p[5] == '/' && address.n - 5 < 108 && !memchr(address.p, 0, address.n);
    return split(address, &host, &port);
}

bool config_listen_is_loopback(struct str address)
{
    struct str host;
    uint64_t port;
    if (str_starts(address, STR("unix:")))
        return true;
    if (!split(address, &host, &port))
        return false;
    return str_starts(host, STR("127.")) || str_eq(host, STR("::1")) || str_eq(host, STR("localhost"));
}

/* "127.0.0.1:0" may be given any number of times: each picks a port of its own. */
static bool is_port_zero(const char *address)
{
    size_t n = strlen(address);
    return n > 2 && !strcmp(address + n - 2, ":0") && strncmp(address, "unix:", 5) != 0;
}

bool config_has_tls(const struct config *c, const char *listener)
{
    for (size_t i = 0; c->tls.certificates.n && i < c->tls.listeners.n; i++)
        if (strcmp(c->tls.listeners.v[i], listener) == 0)
            return true;
    return false;
}

bool config_has_auth(const struct config *c, const char *listener)
{
    return c->auth.keys_file[0] || c->jwt.keys[0] ||
           (config_has_tls(c, listener) && c->tls.client_auth == CONFIG_CLIENT_REQUIRED);
}

/* What a listener that others reach lacks; NULL: nothing. */
static const char *lacks(const struct config *c, const char *listener)
{
    if (config_has_tls(c, listener))
        return config_has_auth(c, listener) ? NULL : "authentication";
    return config_has_auth(c, listener) ? "TLS" : "authentication or TLS";
}

/* "inferd.yaml:4: http.listen: " or "--http.listen: " in front of what is wrong. */
static int rule_error(const struct config *c, const char *name, struct error *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
static int rule_error(const struct config *c, const char *name, struct error *err, const char *fmt, ...)
{
    struct error inner;
    size_t index = option_index(option_find(str_of(name)));
    va_list ap;
    va_start(ap, fmt);
    (void)error_vset(&inner, STATUS_INVALID, fmt, ap);
    va_end(ap);
    if (c->source[index] == CONFIG_FILE)
        return node_error(err, c->where, c->line[index], STATUS_INVALID, "%s: %s", name, inner.text);
    return error_set(err, STATUS_INVALID, "%s%s: %s", c->source[index] == CONFIG_FLAG ? "--" : "", name, inner.text);
}

static int check_tls(const struct config *c, struct error *err)
{
    if (c->tls.keys.n && c->tls.keys.n != c->tls.certificates.n)
        return rule_error(c, "tls.keys", err, "there are %zu keys for %zu certificates; give one key each", c->tls.keys.n,
                          c->tls.certificates.n);
    if (c->tls.client_auth != CONFIG_CLIENT_NONE && !c->tls.client_ca[0])
        return rule_error(c, "tls.client_auth", err, "it needs tls.client_ca: whose certificates are good");
    if (c->tls.client_ca[0] && c->tls.client_auth == CONFIG_CLIENT_NONE)
        return rule_error(c, "tls.client_ca", err, "it has an effect only with tls.client_auth optional or required");
    if (c->tls.crl[0] && !c->tls.client_ca[0])
        return rule_error(c, "tls.crl", err, "it has an effect only with tls.client_ca");
    if (c->tls.client_ca[0] && !c->tls.certificates.n)
        return rule_error(c, "tls.client_ca", err, "it has an effect only with tls.certificates");
    return 0;
}

int config_check(const struct config *c, struct error *err)
{
    const struct {
        const char *name, *listener;
        const struct config_list *list;
    } listeners[] = {
        {"http.listen", "http", &c->http.listen},          {"grpc.listen", "http", &c->grpc.listen}, /* the same server */
        {"metrics.listen", "metrics", &c->metrics.listen}, {"admin.listen", "admin", &c->admin.listen},
        {"agent.listen", "agent", &c->agent.listen},
    };
    const char *seen[COUNT_OF(listeners) * CONFIG_LISTEN_MAX];
    size_t n_seen = 0;
    for (size_t i = 0; i < COUNT_OF(listeners); i++)
        for (size_t j = 0; j < listeners[i].list->n; j++) {
            const char *address = listeners[i].list->v[j];
            const char *lack = lacks(c, listeners[i].listener);
            if (lack && !c->insecure && !config_listen_is_loopback(str_of(address)))
                return rule_error(c, listeners[i].name, err,
                                  "%s can be reached from other machines and there is no %s; listen on "
                                  "127.0.0.1 or set `insecure: true` (--insecure)",
                                  address, lack);
            for (size_t k = 0; k < n_seen; k++)
                if (!strcmp(seen[k], address) && !is_port_zero(address))
                    return rule_error(c, listeners[i].name, err, "%s is there twice", address);
            if (n_seen < COUNT_OF(seen))
                seen[n_seen++] = address;
        }
    int rc = check_tls(c, err);
    if (rc == 0 && c->proxy.protocol && !c->proxy.trusted.n)
        rc = rule_error(c, "proxy.protocol", err, "it needs proxy.trusted: who may send the header");
    if (rc == 0 && c->jwt.keys[0] && !c->jwt.issuer[0])
        rc = rule_error(c, "jwt.issuer", err, "jwt.keys needs it: whose tokens are good");
    if (rc == 0 && c->jwt.keys[0] && !c->jwt.audience[0])
        rc = rule_error(c, "jwt.audience", err, "jwt.keys needs it: a token for another service must not be good here");
    if (rc == 0 && c->models.require_signature && c->llm.adapter_path[0])
        rc = rule_error(c, "llm.adapter_path", err,
                        "adapters are not signed, and models.require_signature is set: leave one out");
    if (rc == 0 && c->models.require_signature && !c->models.signature_keys.n)
        rc = rule_error(c, "models.require_signature", err, "it needs models.signature_keys: whose signatures are good");
    if (rc < 0)
        return rc;
    if (!c->http.listen.n)
        return rule_error(c, "http.listen", err, "at least one address is needed");
    if (c->repository.load.n && c->repository.mode != CONFIG_MODE_EXPLICIT)
        return rule_error(c, "repository.load", err, "it has an effect only with `repository.mode: explicit`");
    return 0;
}
