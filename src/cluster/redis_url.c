/* redis_url.c: see redis_url.h. */
#include "cluster/redis_url.h"

#include <string.h>

#include "base/status.h"
#include "base/str.h"

#define FORMS                                                                                                                  \
    "accepted: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, unix:/PATH[?db=DB], or "                         \
    "redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT],.../MASTER[/DB]"

static int bad(struct error *err, const char *what)
{
    return error_set(err, STATUS_INVALID, "%s; " FORMS, what);
}

static bool copy(char *to, size_t room, struct str s)
{
    if (s.n >= room || (s.n && memchr(s.p, 0, s.n)))
        return false;
    if (s.n)
        memcpy(to, s.p, s.n);
    to[s.n] = 0;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool decode(char *to, size_t room, struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '%') {
            int hi = i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1, lo = i + 2 < s.n ? hex_digit(s.p[i + 2]) : -1;
            if (hi < 0 || lo < 0 || (hi | lo) == 0)
                return false;
            c = (char)(hi << 4 | lo);
            i += 2;
        }
        if (n + 1 >= room)
            return false;
        to[n++] = c;
    }
    to[n] = 0;
    return true;
}

static int take_db(struct str s, struct redis_url *u, struct error *err)
{
    uint64_t db;
    if (!s.n)
        return 0;
    if (!str_to_u64(s, &db) || db > REDIS_DB_MAX)
        return bad(err, "the database must be a number from 0 to 65535");
    u->db = (uint32_t)db;
    return 0;
}

/* The last '@' ends the credentials, so that one in a password needn't be escaped. */
static int take_credentials(struct str *rest, struct redis_url *u, struct error *err)
{
    size_t at = rest->n;
    while (at > 0 && rest->p[at - 1] != '@')
        at--;
    if (at == 0)
        return 0;
    struct str all = {rest->p, at - 1};
    const char *colon = memchr(all.p, ':', all.n);
    struct str user = {all.p, colon ? (size_t)(colon - all.p) : 0};
    struct str password = colon ? (struct str){colon + 1, all.n - user.n - 1} : all;
    *rest = (struct str){rest->p + at, rest->n - at};
    if (!decode(u->user, sizeof u->user, user) || !decode(u->password, sizeof u->password, password))
        return bad(err, "the credentials are too long or hold a % that is not followed by two hexadecimal digits");
    if (u->user[0] && !u->password[0])
        return bad(err, "a user needs a password");
    return 0;
}

static bool is_numeric(struct str host)
{
    bool digits = true;
    for (size_t i = 0; i < host.n; i++) {
        if (host.p[i] == ':')
            return true; /* IPv6 */
        digits &= (host.p[i] >= '0' && host.p[i] <= '9') || host.p[i] == '.';
    }
    return digits;
}

static bool is_host(struct str host)
{
    for (size_t i = 0; i < host.n; i++) {
        char c = host.p[i];
        if (!((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '.' || c == '-' || c == '_' ||
              c == ':'))
            return false;
    }
    return host.n > 0;
}

static int take_address(struct str s, struct str port, struct redis_url *u, uint64_t *number, struct error *err)
{
    struct str host = s;
    bool brackets = s.n && s.p[0] == '[';
    const char *end = brackets ? memchr(s.p, ']', s.n) : NULL;
    if (brackets && !end)
        return bad(err, "the address has no closing bracket");
    const char *colon = brackets ? end + 1 : s.n ? memchr(s.p, ':', s.n) : NULL;
    if (colon && colon < s.p + s.n) {
        host.n = (size_t)(colon - s.p);
        port = (struct str){colon + 1, s.n - host.n - 1};
        if (*colon != ':')
            return bad(err, "the address is not HOST:PORT");
    }
    if (brackets)
        host = (struct str){s.p + 1, (size_t)(end - s.p) - 1};
    if (!str_to_u64(port, number) || *number == 0 || *number > 65535)
        return bad(err, "the port must be a number from 1 to 65535");
    if (!is_host(host) || (!brackets && memchr(host.p, ':', host.n)) || !copy(u->host, sizeof u->host, host))
        return bad(err, "there is no usable host");
    u->numeric = is_numeric(host);
    struct str parts[] = {brackets ? STR("[") : STR(""), host, brackets ? STR("]:") : STR(":"), port};
    size_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!copy(u->address + at, sizeof u->address - at, parts[i]))
            return bad(err, "the host is too long");
        at += parts[i].n;
    }
    return 0;
}

static int parse_unix(struct str s, struct redis_url *u, struct error *err)
{
    const char *mark = memchr(s.p, '?', s.n);
    struct str path = {s.p, mark ? (size_t)(mark - s.p) : s.n}, query = {path.p + path.n, s.n - path.n};
    if (path.n < 7 || path.p[5] != '/' || path.n - 5 >= 108 || !copy(u->address, sizeof u->address, path))
        return bad(err, "the socket's path must begin with / and have at most 107 bytes");
    u->numeric = true;
    if (!query.n)
        return 0;
    if (!str_starts(query, STR("?db=")))
        return bad(err, "the query of unix: may only be ?db=DB");
    return take_db((struct str){query.p + 4, query.n - 4}, u, err);
}

/* HOST[:PORT],.../MASTER[/DB] */
static int parse_sentinels(struct str rest, struct redis_url *u, struct error *err)
{
    struct str hosts, master, one;
    uint64_t port;
    if (!str_cut(&rest, '/', &hosts) || !str_cut(&rest, '/', &master) || !master.n)
        return bad(err, "sentinels are asked for a master, and none is named");
    while (str_cut(&hosts, ',', &one)) {
        if (u->n_sentinels == REDIS_SENTINELS_MAX)
            return bad(err, "there are more than 8 sentinels");
        int rc = take_address(one, STR("26379"), u, &port, err);
        if (rc < 0)
            return rc;
        memcpy(u->sentinels[u->n_sentinels].host, u->host, sizeof u->host);
        u->sentinels[u->n_sentinels++].port = (uint16_t)port;
    }
    u->numeric = false;
    u->host[0] = 0;
    memcpy(u->address, "sentinel/", 9);
    if (!copy(u->master, sizeof u->master, master) || !copy(u->address + 9, sizeof u->address - 9, master))
        return bad(err, "the master's name is too long");
    for (size_t i = 0; i < master.n; i++)
        if (master.p[i] <= ' ' || master.p[i] > '~')
            return bad(err, "the master's name holds a character that none has");
    return take_db(rest, u, err);
}

int redis_url_parse(const char *text, struct redis_url *out, struct error *err)
{
    struct str s = str_of(text);
    *out = (struct redis_url){0};
    uint64_t port;
    bool sentinel = str_starts(s, STR("redis+sentinel://"));
    if (str_starts(s, STR("unix:")))
        return parse_unix(s, out, err);
    out->tls = str_starts(s, STR("rediss://"));
    if (!out->tls && !sentinel && !str_starts(s, STR("redis://")))
        return bad(err, "the address begins with no known scheme");
    size_t skip = sentinel ? 17 : out->tls ? 9 : 8;
    struct str rest = {s.p + skip, s.n - skip};
    int rc = take_credentials(&rest, out, err);
    if (rc < 0)
        return rc;
    if (sentinel)
        return parse_sentinels(rest, out, err);
    const char *slash = rest.n ? memchr(rest.p, '/', rest.n) : NULL;
    struct str db = slash ? (struct str){slash + 1, rest.n - (size_t)(slash - rest.p) - 1} : (struct str){0};
    rest.n -= slash ? db.n + 1 : 0;
    rc = take_address(rest, STR("6379"), out, &port, err);
    return rc < 0 ? rc : take_db(db, out, err);
}
