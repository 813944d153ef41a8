/* gateway_config.c: one row a key; the rows give the parser, the range, the default, and the reference page. */
#include "conf/gateway_config.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/options.h"
#include "conf/suggest.h"
#include "wire/http1.h"

#define MS   1000000ull
#define SEC  (1000 * MS)
#define HOUR (3600 * SEC)
#define MIB  (1ull << 20)

enum key_kind { KEY_STRING, KEY_COUNT, KEY_BYTES, KEY_TIME, KEY_BOOL, KEY_PERCENT, KEY_ENUM, KEY_WORDS, KEY_MAP, KEY_LIST };

struct key {
    const char *name;
    enum key_kind kind;
    size_t offset;
    const char *initial; /* as text; NULL: zero */
    uint64_t min, max;
    const char *const *words;     /* KEY_ENUM; KEY_WORDS: what is accepted, NULL: anything */
    const struct section *inside; /* KEY_MAP; KEY_LIST of maps */
    const char *help;
};

struct section {
    const char *title;
    const struct key *keys;
    size_t n, size;
    const char *bare; /* in a list: a scalar stands for a map with this key */
};

#define AT(type, field) offsetof(struct type, field)
#define SECTION(title, keys, type, bare)                                                                                       \
    {                                                                                                                          \
        title, keys, COUNT_OF(keys), sizeof(struct type), bare                                                                 \
    }

static const char *const balances[] = {"round_robin", "least_conn", "p2c", "hash", "llm", NULL};
static const char *const protocols[] = {"http1", "http2", "auto", NULL};
static const char *const hash_keys[] = {"client", "model", "user", "path", NULL};
static const char *const priorities[] = {"core", "high", "normal", "low", NULL};
static const char *const retry_words[] = {"connect", "reset", "timeout", "502", "503", "504", NULL};

/* clang-format off */
static const struct key server_keys[] = {
    {"address",      KEY_STRING, AT(gateway_server, address),      NULL,  1, 255, NULL, NULL, "host:port or unix:/path. A name that has several addresses is as many servers; \"_service._tcp.name\" without a port stands for its SRV records, with their priorities and weights."},
    {"weight",       KEY_COUNT,  AT(gateway_server, weight),       "1",   1, 1000, NULL, NULL, "Its share beside the others."},
    {"backup",       KEY_BOOL,   AT(gateway_server, backup),       "false", 0, 0, NULL, NULL, "Takes over in proportion as less than 1 / 1.4 of the others is usable."},
    {"zone",         KEY_STRING, AT(gateway_server, zone),         "",    0, 63, NULL, NULL, "Where it is; with gateway.zone, the local zone is preferred."},
    {"max_conns",    KEY_COUNT,  AT(gateway_server, max_conns),    "0",   0, 1000000, NULL, NULL, "Requests in flight on it at once; 0: no bound."},
    {"max_fails",    KEY_COUNT,  AT(gateway_server, max_fails),    "0",   0, 1000, NULL, NULL, "nginx's rule: so many failures within fail_timeout take it out for fail_timeout. 0: the pool's rule."},
    {"fail_timeout", KEY_TIME,   AT(gateway_server, fail_timeout), "10s", SEC, HOUR, NULL, NULL, "See max_fails."},
    {"slow_start",   KEY_TIME,   AT(gateway_server, slow_start),   "0",   0, HOUR, NULL, NULL, "0: the pool's."},
};
static const struct section server_section = SECTION("upstreams[].servers[]", server_keys, gateway_server, "address");

static const struct key check_keys[] = {
    {"path",     KEY_STRING, AT(gateway_pool, check.path),     "",   0, 1023, NULL, NULL, "GET this; 2xx passes. Empty (and no grpc): no checks, the requests themselves tell."},
    {"body",         KEY_STRING, AT(gateway_pool, check.body),         "",   0, 65535, NULL, NULL, "POST this to path instead: a canary, a real inference."},
    {"content_type", KEY_STRING, AT(gateway_pool, check.content_type), "application/json", 1, 127, NULL, NULL, "Of body."},
    {"expect",       KEY_STRING, AT(gateway_pool, check.expect),       "",   0, 1023, NULL, NULL, "A text that must be in the first 256 KiB of the answer. Empty: the status is enough."},
    {"grpc",         KEY_BOOL,   AT(gateway_pool, check.grpc),         "false", 0, 0, NULL, NULL, "Ask grpc.health.v1.Health/Check instead; SERVING passes. Needs protocol: http2 or auto."},
    {"service",      KEY_STRING, AT(gateway_pool, check.service),      "",   0, 127, NULL, NULL, "The service that grpc asks for; empty: the whole server."},
    {"interval", KEY_TIME,   AT(gateway_pool, check.interval), "2s", 50 * MS, HOUR, NULL, NULL, "Between two checks of a server."},
    {"timeout",  KEY_TIME,   AT(gateway_pool, check.timeout),  "1s", 10 * MS, HOUR, NULL, NULL, "A check without an answer by then has failed."},
    {"fall",     KEY_COUNT,  AT(gateway_pool, check.fall),     "3",  1, 100, NULL, NULL, "Failures in a row that take a server out; the very first check decides alone."},
    {"rise",     KEY_COUNT,  AT(gateway_pool, check.rise),     "2",  1, 100, NULL, NULL, "Passes in a row that bring it back."},
};
static const struct section check_section = SECTION("upstreams[].check", check_keys, gateway_pool, NULL);

static const struct key report_keys[] = {
    {"headers",    KEY_BOOL,   AT(gateway_pool, report.headers),    "false", 0, 0, NULL, NULL, "Ask each server for its load in a header of its answers (ORCA: endpoint-load-metrics; inferd, vLLM, Triton), and read it."},
    {"path",       KEY_STRING, AT(gateway_pool, report.path),       "",   0, 1023, NULL, NULL, "A metrics page to poll: vllm:*, sglang:* and inferd's names are understood. Empty: none."},
    {"port",       KEY_COUNT,  AT(gateway_pool, report.port),       "0",  0, 65535, NULL, NULL, "Where the page is, if not at the server's own port; plain HTTP is spoken there."},
    {"agent_port", KEY_COUNT,  AT(gateway_pool, report.agent_port), "0",  0, 65535, NULL, NULL, "Where a HAProxy agent answers each connection with a line: ready, drain, maint, down, loading, 75%, maxconn:30. 0: none."},
    {"max_queued", KEY_COUNT,  AT(gateway_pool, report.max_queued), "0",  0, 1000000, NULL, NULL, "A server that reports so many waiting is full: requests wait here instead (see `queue`). 0: only max_conns counts."},
    {"interval",   KEY_TIME,   AT(gateway_pool, report.interval),   "100ms", 10 * MS, HOUR, NULL, NULL, "Between two polls of a server."},
    {"timeout",    KEY_TIME,   AT(gateway_pool, report.timeout),    "1s", 10 * MS, HOUR, NULL, NULL, "For one poll."},
    {"max_age",    KEY_TIME,   AT(gateway_pool, report.max_age),    "200ms", 10 * MS, HOUR, NULL, NULL, "Older reports of load are ignored."},
};
static const struct section report_section = SECTION("upstreams[].report", report_keys, gateway_pool, NULL);

static const struct key llm_keys[] = {
    {"queue",   KEY_COUNT, AT(gateway_pool, llm.queue),   "2", 0, 1000, NULL, NULL, "Weight of the queue: tokens sent there from here, and what the server reports as waiting."},
    {"kv",      KEY_COUNT, AT(gateway_pool, llm.kv),      "2", 0, 1000, NULL, NULL, "Weight of the free share of its KV cache."},
    {"prefix",  KEY_COUNT, AT(gateway_pool, llm.prefix),  "3", 0, 1000, NULL, NULL, "Weight of the share of the prompt that it has seen."},
    {"adapter", KEY_COUNT, AT(gateway_pool, llm.adapter), "1", 0, 1000, NULL, NULL, "Weight of having the LoRA adapter that the request names as its model."},
};
static const struct section llm_section = SECTION("upstreams[].llm", llm_keys, gateway_pool, NULL);

static const struct key geo_keys[] = {
    {"file",  KEY_STRING, AT(gateway_pool, geo.file),  "", 0, 4095, NULL, NULL, "A database in MaxMind's format (.mmdb), read again when it is replaced. Empty: none."},
    {"path",  KEY_STRING, AT(gateway_pool, geo.path),  "continent.code", 1, 127, NULL, NULL, "Which text of a client's record counts, like country.iso_code."},
    {"zones", KEY_WORDS,  AT(gateway_pool, geo.zones), "", 0, 256, NULL, NULL, "The zone to prefer for each text, like \"EU=eu-west\"; clients of others prefer this process's own."},
};
static const struct section geo_section = SECTION("upstreams[].geo", geo_keys, gateway_pool, NULL);

static const struct key hedge_keys[] = {
    {"after",      KEY_TIME,  AT(gateway_pool, hedge.after),      "0", 0, HOUR, NULL, NULL, "A request of an idempotent route that is not streamed and has no answer by then is sent to a second server, too; the first whole answer counts. 0: see percentile."},
    {"percentile", KEY_COUNT, AT(gateway_pool, hedge.percentile), "0", 0, 99, NULL, NULL, "The same after this percentile of the pool's latest answers, but not before `after`. Both 0: no hedging."},
};
static const struct section hedge_section = SECTION("upstreams[].hedge", hedge_keys, gateway_pool, NULL);

static const struct key retry_keys[] = {
    {"attempts",       KEY_COUNT, AT(gateway_pool, retry.attempts),       "3",  1, 8, NULL, NULL, "In all, each on another server. 1: no retries."},
    {"on",             KEY_WORDS, AT(gateway_pool, retry.on),             "connect,reset,timeout,503", 0, 8, retry_words, NULL, "connect: no connection. reset: it broke before an answer began. timeout: see routes[].try_timeout. 502 503 504: such an answer. All but connect need an idempotent route."},
    {"budget_percent", KEY_COUNT, AT(gateway_pool, retry.budget_percent), "20", 1, 100, NULL, NULL, "Retries at once, as a share of the active requests."},
    {"buffer",         KEY_BYTES, AT(gateway_pool, retry.buffer),         "256KiB", 0, 256 * MIB, NULL, NULL, "Of a request's body that is kept for another try. A body that is announced within it is sent on once it is there; any other as it comes, and can't be sent again once more than this has left."},
    {"budget_least",   KEY_COUNT, AT(gateway_pool, retry.budget_least),   "3",  1, 10000, NULL, NULL, "But at least so many."},
};
static const struct section retry_section = SECTION("upstreams[].retry", retry_keys, gateway_pool, NULL);

static const struct key tls_keys[] = {
    {"ca",          KEY_STRING, AT(gateway_pool, tls.ca),          "", 0, 1023, NULL, NULL, "Speak TLS, and believe the authorities in this PEM file; `system`: those of the system. Empty: no TLS."},
    {"certificate", KEY_STRING, AT(gateway_pool, tls.certificate), "", 0, 1023, NULL, NULL, "PEM file of the certificate to show to servers that ask for one, with its chain."},
    {"key",         KEY_STRING, AT(gateway_pool, tls.key),         "", 0, 1023, NULL, NULL, "PEM file of its key, without a password; empty: it is in the certificate's file."},
    {"name",        KEY_STRING, AT(gateway_pool, tls.name),        "", 0, 253, NULL, NULL, "Whom servers must prove to be, a name or an address; empty: the host in their own address."},
};
static const struct section tls_section = SECTION("upstreams[].tls", tls_keys, gateway_pool, NULL);

static const struct key pool_keys[] = {
    {"name",             KEY_STRING, AT(gateway_pool, name),             NULL, 1, 63, NULL, NULL, "Routes name it. Not \"local\"."},
    {"balance",          KEY_ENUM,   AT(gateway_pool, balance),          "round_robin", 0, 0, balances, NULL, "See docs/guide/balancing.md for which to use when."},
    {"servers",          KEY_LIST,   AT(gateway_pool, servers),          "", 1, 1024, NULL, &server_section, "Addresses, or maps as below. May be left out where servers_file is given."},
    {"servers_file",     KEY_STRING, AT(gateway_pool, servers_file),     "", 0, 4095, NULL, NULL, "More servers from a YAML or JSON file, read again when it changes: a list as under `servers`, or Kubernetes EndpointSlices. One that can't be read, or is empty, leaves the servers as they were."},
    {"servers_port",     KEY_STRING, AT(gateway_pool, servers_port),     "", 0, 63, NULL, NULL, "Name of the EndpointSlice's port; empty: its first."},
    {"zone_header",      KEY_STRING, AT(gateway_pool, zone_header),      "", 0, 127, NULL, NULL, "A header that names the zone to prefer for a request, as a front that knows where clients are sets it; a request without it, or with a name that no server has, prefers this process's own (`zone`)."},
    {"hash_key",         KEY_ENUM,   AT(gateway_pool, hash_key),         "client", 0, 0, hash_keys, NULL, "What `hash` hashes."},
    {"hash_header",      KEY_STRING, AT(gateway_pool, hash_header),      "",   0, 127, NULL, NULL, "A header to hash instead; a request without it falls back to hash_key."},
    {"min_healthy",      KEY_COUNT,  AT(gateway_pool, min_healthy),      "1",  1, 1024, NULL, NULL, "Ejection never leaves fewer usable servers than this."},
    {"max_fails",        KEY_COUNT,  AT(gateway_pool, max_fails),        "5",  1, 1000, NULL, NULL, "Gateway failures in a row that eject a server."},
    {"eject_base",       KEY_TIME,   AT(gateway_pool, eject_base),       "30s", SEC, HOUR, NULL, NULL, "Length of the first ejection; the next one is twice as long, and so on."},
    {"eject_max",        KEY_TIME,   AT(gateway_pool, eject_max),        "300s", SEC, 24 * HOUR, NULL, NULL, "Its upper bound."},
    {"slow_start",       KEY_TIME,   AT(gateway_pool, slow_start),       "0",  0, HOUR, NULL, NULL, "A server that comes into service grows from a tenth of its weight to all of it in this time."},
    {"keepalive",        KEY_COUNT,  AT(gateway_pool, keepalive),        "64", 0, 4096, NULL, NULL, "Idle connections kept to each server, by each I/O thread."},
    {"keepalive_min",    KEY_COUNT,  AT(gateway_pool, keepalive_min),    "0",  0, 64, NULL, NULL, "Idle connections to each server that every I/O thread keeps ready, from its first request to it on: opened ahead, and not closed for their age. HTTP/2: 1 or more keeps the last one."},
    {"keepalive_timeout", KEY_TIME,  AT(gateway_pool, keepalive_timeout), "60s", 100 * MS, 24 * HOUR, NULL, NULL, "An idle connection older than this is closed."},
    {"ping_interval",    KEY_TIME,   AT(gateway_pool, ping_interval),    "0",  0, HOUR, NULL, NULL, "HTTP/2: a server that says nothing for so long while it works is asked with PING, and given up when as long again brings nothing; 0: never. gRPC servers take more than one in five minutes for an attack."},
    {"protocol",         KEY_ENUM,   AT(gateway_pool, protocol),         "http1", 0, 0, protocols, NULL, "What is spoken with the servers. http2 without TLS: with prior knowledge (h2c). auto: what ALPN agrees on; needs TLS."},
    {"tls",              KEY_MAP,    0,                                  NULL, 0, 0, NULL, &tls_section, "TLS to the servers."},
    {"connect_timeout",  KEY_TIME,   AT(gateway_pool, connect_timeout),  "1s", 10 * MS, HOUR, NULL, NULL, "For a connection to come about, the TLS handshake included."},
    {"resolve_interval", KEY_TIME,   AT(gateway_pool, resolve_interval), "30s", SEC, 24 * HOUR, NULL, NULL, "How often names are looked up again."},
    {"max_requests",     KEY_COUNT,  AT(gateway_pool, max_requests),     "0", 0, 1000000, NULL, NULL, "In flight on all servers of the pool together; more wait, as for max_conns. 0: no bound."},
    {"queue",            KEY_COUNT,  AT(gateway_pool, queue),            "256", 0, 1000000, NULL, NULL, "Requests that may wait while all servers are at max_conns."},
    {"queue_timeout",    KEY_TIME,   AT(gateway_pool, queue_timeout),    "5s", MS, HOUR, NULL, NULL, "How long they may."},
    {"check",            KEY_MAP,    0,                                  NULL, 0, 0, NULL, &check_section, "Active checks."},
    {"report",           KEY_MAP,    0,                                  NULL, 0, 0, NULL, &report_section, "What servers say of themselves."},
    {"llm",              KEY_MAP,    0,                                  NULL, 0, 0, NULL, &llm_section, "Weights of the llm policy."},
    {"geo",              KEY_MAP,    0,                                  NULL, 0, 0, NULL, &geo_section, "The zone to prefer by the client's address; zone_header goes before it."},
    {"hedge",            KEY_MAP,    0,                                  NULL, 0, 0, NULL, &hedge_section, "A second try beside a slow first one, within the retry budget."},
    {"retry",            KEY_MAP,    0,                                  NULL, 0, 0, NULL, &retry_section, "Retries."},
};
static const struct section pool_section = SECTION("upstreams[]", pool_keys, gateway_pool, NULL);

static const struct key route_keys[] = {
    {"host",           KEY_STRING, AT(gateway_route, host),           "", 0, 255, NULL, NULL, "The Host header without its port; \"*.example.com\" for any name below."},
    {"path",           KEY_STRING, AT(gateway_route, path),           "", 0, 1023, NULL, NULL, "The whole path."},
    {"path_prefix",    KEY_STRING, AT(gateway_route, path_prefix),    "", 0, 1023, NULL, NULL, "Its beginning."},
    {"methods",        KEY_WORDS,  AT(gateway_route, methods),        "", 0, 8, NULL, NULL, "GET, POST ..."},
    {"model",          KEY_STRING, AT(gateway_route, model),          "", 0, 128, NULL, NULL, "The model's name, from the path or the JSON body; \"llama-*\" for a beginning."},
    {"header",         KEY_STRING, AT(gateway_route, header),         "", 0, 255, NULL, NULL, "\"name\": it is there. \"name: value\": it has this value."},
    {"percent",        KEY_PERCENT, AT(gateway_route, percent),       "100", 0, 100, NULL, NULL, "Of the requests that match; the same request id always lands on the same side."},
    {"upstream",       KEY_STRING, AT(gateway_route, upstream),       NULL, 1, 63, NULL, NULL, "A pool's name, or local."},
    {"priority",       KEY_ENUM,   AT(gateway_route, priority),       "normal", 0, 0, priorities, NULL, "Who is first when requests wait for room; a full queue gives the places of less important ones away."},
    {"fallback",       KEY_STRING, AT(gateway_route, fallback),       "", 0, 63, NULL, NULL, "A pool for requests that `upstream` could not answer, before any byte of an answer was sent."},
    {"rewrite_model",  KEY_STRING, AT(gateway_route, rewrite_model),  "", 0, 128, NULL, NULL, "The name to send on instead."},
    {"timeout",        KEY_TIME,   AT(gateway_route, timeout),        "0", 0, 24 * HOUR, NULL, NULL, "For the beginning of the answer, retries included; 0: only what the client asks for."},
    {"try_timeout",    KEY_TIME,   AT(gateway_route, try_timeout),    "0", 0, 24 * HOUR, NULL, NULL, "For the beginning of the answer of one attempt; 0: none."},
    {"idle_timeout",   KEY_TIME,   AT(gateway_route, idle_timeout),   "5m", MS, 24 * HOUR, NULL, NULL, "Between two pieces of an answer."},
    {"max_body",       KEY_BYTES,  AT(gateway_route, max_body),       "10MiB", 0, 16384 * MIB, NULL, NULL, "Of a request."},
    {"idempotent",     KEY_BOOL,   AT(gateway_route, idempotent),     "true", 0, 0, NULL, NULL, "May be sent again although a server may have begun. Inference has no side effects; say false where it has."},
    {"websocket",      KEY_BOOL,   AT(gateway_route, websocket),      "false", 0, 0, NULL, NULL, "HTTP/1.1 requests may become WebSockets. Servers are asked in HTTP/1.1: the route's pools need protocol http1. idle_timeout is then the longest silence in both directions. What is said inside is not looked at."},
    {"set_headers",    KEY_WORDS,  AT(gateway_route, set_headers),    "", 0, 32, NULL, NULL, "\"name: value\", for the request that is sent on."},
    {"remove_headers", KEY_WORDS,  AT(gateway_route, remove_headers), "", 0, 32, NULL, NULL, "Names of headers not to send on."},
};
static const struct section route_section = SECTION("routes[]", route_keys, gateway_route, NULL);
/* clang-format on */

struct reader {
    const char *where;
    struct arena *arena;
    struct error *err;
};

static int no_memory(struct reader *r)
{
    return error_set(r->err, STATUS_NOMEM, "out of memory for the gateway's configuration");
}

static const char *accepts_words(const struct key *k, char *text, size_t cap)
{
    size_t n = (size_t)snprintf(text, cap, k->kind == KEY_ENUM ? "one of" : k->words ? "some of" : "a list of texts");
    for (size_t i = 0; k->words && k->words[i] && n < cap; i++)
        n += (size_t)snprintf(text + n, cap - n, " %s", k->words[i]);
    return text;
}

static const char *accepts(const struct key *k, char *text, size_t cap)
{
    struct option row = {.min = k->min, .max = k->max};
    switch (k->kind) {
    case KEY_COUNT:
        row.type = OPTION_COUNT;
        return option_accepts(&row, text, cap);
    case KEY_BYTES:
        row.type = OPTION_BYTES;
        return option_accepts(&row, text, cap);
    case KEY_TIME:
        row.type = OPTION_DURATION;
        return option_accepts(&row, text, cap);
    case KEY_BOOL:
        row.type = OPTION_BOOL;
        return option_accepts(&row, text, cap);
    case KEY_STRING:
        snprintf(text, cap, "a text of %llu to %llu characters", (unsigned long long)k->min, (unsigned long long)k->max);
        break;
    case KEY_PERCENT:
        snprintf(text, cap, "a number in 0..100");
        break;
    case KEY_ENUM:
    case KEY_WORDS:
        return accepts_words(k, text, cap);
    case KEY_MAP:
        snprintf(text, cap, "a map");
        break;
    case KEY_LIST:
        snprintf(text, cap, "a list of %llu to %llu entries", (unsigned long long)k->min, (unsigned long long)k->max);
        break;
    }
    return text;
}

static int bad(struct reader *r, const struct section *s, const struct key *k, const struct node *n, struct str v)
{
    char text[200];
    return node_error(r->err, r->where, n ? n->line : 0, STATUS_INVALID, "%s.%s: '%.*s' is not accepted; give %s", s->title,
                      k->name, STR_ARG(v), accepts(k, text, sizeof text));
}

static bool word_known(const struct key *k, struct str v)
{
    for (size_t i = 0; k->words && k->words[i]; i++)
        if (str_eqz(v, k->words[i]))
            return true;
    return !k->words && v.n > 0;
}

static int add_word(struct reader *r, const struct section *s, const struct key *k, const struct node *n, struct str v,
                    struct gateway_words *w)
{
    if (!word_known(k, v) || w->n >= k->max)
        return bad(r, s, k, n, v);
    const char *copy = arena_strdup(r->arena, v);
    if (!copy)
        return no_memory(r);
    w->v[w->n++] = copy;
    return 0;
}

/* A list, or "a,b". */
static int read_words(struct reader *r, const struct section *s, const struct key *k, const struct node *n, struct str text,
                      struct gateway_words *w)
{
    int rc = 0;
    *w = (struct gateway_words){.v = (const char **)arena_array(r->arena, k->max + 1, sizeof *w->v)};
    if (!w->v)
        return no_memory(r);
    if (n && n->kind == NODE_LIST) {
        for (const struct node *i = n->first; i && !rc; i = i->next)
            rc = i->kind == NODE_SCALAR ? add_word(r, s, k, i, i->text, w) : bad(r, s, k, i, STR("{...}"));
        return rc;
    }
    struct str part;
    while (!rc && text.n && str_cut(&text, ',', &part))
        rc = add_word(r, s, k, n, str_trim(part), w);
    return rc;
}

static bool read_number(const struct key *k, struct str v, uint64_t *out)
{
    bool ok = k->kind == KEY_TIME    ? str_to_duration_ns(v, out) || (str_to_u64(v, out) && *out == 0)
              : k->kind == KEY_BYTES ? str_to_bytes(v, out)
                                     : str_to_u64(v, out);
    return ok && *out >= k->min && *out <= k->max;
}

static int read_scalar(struct reader *r, const struct section *s, const struct key *k, const struct node *n, struct str v,
                       char *to)
{
    uint64_t number;
    double f;
    switch (k->kind) {
    case KEY_STRING: {
        const char *copy = v.n >= k->min && v.n <= k->max && !(v.n && memchr(v.p, 0, v.n)) ? arena_strdup(r->arena, v) : NULL;
        if (!copy)
            return bad(r, s, k, n, v);
        *(const char **)(void *)to = copy;
        return 0;
    }
    case KEY_COUNT:
    case KEY_BYTES:
    case KEY_TIME:
        if (!read_number(k, v, &number))
            return bad(r, s, k, n, v);
        if (k->kind == KEY_COUNT)
            *(uint32_t *)(void *)to = (uint32_t)number;
        else
            *(uint64_t *)(void *)to = number;
        return 0;
    case KEY_BOOL:
        if (!str_eqz(v, "true") && !str_eqz(v, "false"))
            return bad(r, s, k, n, v);
        *(bool *)to = str_eqz(v, "true");
        return 0;
    case KEY_PERCENT:
        if (!str_to_f64(v, &f) || f < 0 || f > 100)
            return bad(r, s, k, n, v);
        *(double *)(void *)to = f;
        return 0;
    case KEY_ENUM:
        for (int i = 0; k->words[i]; i++)
            if (str_eqz(v, k->words[i])) {
                *(int *)(void *)to = i;
                return 0;
            }
        return bad(r, s, k, n, v);
    case KEY_WORDS:
    case KEY_MAP:
    case KEY_LIST:
        break;
    }
    return bad(r, s, k, n, v);
}

static int read_map(struct reader *r, const struct section *s, const struct node *map, char *base);

/* Entries of a list of maps, into an array whose pointer and count lie at `to` (pointer, then size_t). */
static int read_list(struct reader *r, const struct section *s, const struct key *k, const struct node *n, char *to)
{
    if (!n || n->kind != NODE_LIST || n->n < k->min || n->n > k->max)
        return bad(r, s, k, n, n && n->kind == NODE_SCALAR ? n->text : STR("[...]"));
    char *array = arena_array(r->arena, n->n, k->inside->size);
    if (!array)
        return no_memory(r);
    *(char **)(void *)to = array;
    *(size_t *)(void *)(to + sizeof(char *)) = n->n;
    int rc = 0;
    for (const struct node *i = n->first; i && !rc; i = i->next, array += k->inside->size)
        rc = read_map(r, k->inside, i, array);
    return rc;
}

static int set_defaults(struct reader *r, const struct section *s, char *base)
{
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++) {
        const struct key *k = &s->keys[i];
        if (k->kind == KEY_MAP)
            rc = set_defaults(r, k->inside, base);
        else if (k->kind == KEY_WORDS)
            rc = read_words(r, s, k, NULL, str_of(k->initial), (void *)(base + k->offset));
        else if (k->initial && k->kind != KEY_LIST)
            rc = read_scalar(r, s, k, NULL, str_of(k->initial), base + k->offset);
    }
    return rc;
}

static const struct key *find_key(const struct section *s, struct str name)
{
    for (size_t i = 0; i < s->n; i++)
        if (str_eqz(name, s->keys[i].name))
            return &s->keys[i];
    return NULL;
}

static int read_key(struct reader *r, const struct section *s, const struct node *n, char *base)
{
    const struct key *k = find_key(s, n->key);
    if (!k) {
        char hint[160];
        struct suggest g;
        suggest_init(&g, n->key);
        for (size_t i = 0; i < s->n; i++)
            suggest_offer(&g, s->keys[i].name);
        return node_error(r->err, r->where, n->line, STATUS_INVALID, "%s has no key '%.*s'%s", s->title, STR_ARG(n->key),
                          suggest_text(&g, hint, sizeof hint));
    }
    if (k->kind == KEY_MAP) {
        if (n->kind != NODE_MAP)
            return bad(r, s, k, n, n->text);
        int rc = 0;
        for (const struct node *i = n->first; i && !rc; i = i->next)
            rc = read_key(r, k->inside, i, base);
        return rc;
    }
    if (k->kind == KEY_LIST)
        return read_list(r, s, k, n, base + k->offset);
    if (k->kind == KEY_WORDS && n->kind != NODE_MAP)
        return read_words(r, s, k, n, n->text, (void *)(base + k->offset));
    if (n->kind != NODE_SCALAR)
        return bad(r, s, k, n, n->kind == NODE_LIST ? STR("[...]") : STR("{...}"));
    return read_scalar(r, s, k, n, n->text, base + k->offset);
}

/* One entry of a list: its defaults, its keys, and that what has no default is there. */
static int read_map(struct reader *r, const struct section *s, const struct node *map, char *base)
{
    int rc = set_defaults(r, s, base);
    if (!rc && map->kind == NODE_SCALAR && s->bare) {
        const struct key *k = find_key(s, str_of(s->bare));
        return read_scalar(r, s, k, map, map->text, base + k->offset);
    }
    if (!rc && map->kind != NODE_MAP)
        return node_error(r->err, r->where, map->line, STATUS_INVALID, "%s must be a map", s->title);
    for (const struct node *n = map->first; n && !rc; n = n->next)
        rc = read_key(r, s, n, base);
    for (size_t i = 0; i < s->n && !rc; i++) {
        const struct key *k = &s->keys[i];
        bool needed = !k->initial && k->kind != KEY_MAP;
        if (needed && !node_get(map, k->name))
            rc = node_error(r->err, r->where, map->line, STATUS_INVALID, "%s needs '%s': %s", s->title, k->name, k->help);
    }
    return rc;
}

/* ---- rules over several keys ---- */

static const struct gateway_pool *find_pool(const struct gateway_config *c, const char *name)
{
    for (size_t i = 0; i < c->n_pools; i++)
        if (strcmp(c->pools[i].name, name) == 0)
            return &c->pools[i];
    return NULL;
}

static int check_tls(struct reader *r, const struct gateway_pool *p)
{
    const char *without = p->tls.certificate[0] ? "certificate" : p->tls.key[0] ? "key" : p->tls.name[0] ? "name" : NULL;
    if (!p->tls.ca[0] && without)
        return node_error(r->err, r->where, 0, STATUS_INVALID,
                          "upstreams[].tls.%s of pool '%s' needs tls.ca: a PEM file of authorities, or system", without,
                          p->name);
    if (p->tls.key[0] && !p->tls.certificate[0])
        return node_error(r->err, r->where, 0, STATUS_INVALID, "upstreams[].tls.key of pool '%s' needs tls.certificate",
                          p->name);
    if (!p->tls.ca[0] && strcmp(protocols[p->protocol], "auto") == 0)
        return node_error(r->err, r->where, 0, STATUS_INVALID,
                          "upstreams[].protocol of pool '%s': auto needs tls.ca; without TLS give http1 or http2", p->name);
    for (size_t i = 0; p->tls.ca[0] && !p->tls.name[0] && i < p->n_servers; i++)
        if (strncmp(p->servers[i].address, "unix:", 5) == 0)
            return node_error(r->err, r->where, 0, STATUS_INVALID,
                              "upstreams[].tls of pool '%s' needs tls.name: its server '%s' has no host to prove", p->name,
                              p->servers[i].address);
    return 0;
}

int gateway_servers_read(const struct node *list, const char *where, struct arena *arena, struct gateway_server **out,
                         size_t *n, struct error *err)
{
    static const struct key key = {.name = "list", .kind = KEY_LIST, .min = 0, .max = 1024, .inside = &server_section};
    static const struct section top = {.title = "servers_file"};
    struct reader r = {where, arena, err};
    struct {
        struct gateway_server *v;
        size_t n;
    } read = {0};
    int rc = read_list(&r, &top, &key, list, (char *)&read);
    *out = read.v;
    *n = read.n;
    return rc;
}

int gateway_server_init(struct arena *arena, const char *address, const char *zone, struct gateway_server *out)
{
    struct error err;
    struct reader r = {"servers_file", arena, &err};
    *out = (struct gateway_server){0};
    int rc = set_defaults(&r, &server_section, (char *)out);
    out->address = address;
    out->zone = zone;
    return rc;
}

static int check_path(struct reader *r, const char *key, const char *path)
{
    if (!path[0] || path[0] == '/')
        return 0;
    return node_error(r->err, r->where, 0, STATUS_INVALID,
                      "upstreams[].%s: '%s' is not accepted; give a path that begins with /", key, path);
}

/* HOST:PORT, [IPV6]:PORT, unix:/PATH, or a name of SRV records; whether a name exists is for the resolver to say. */
static bool is_server_address(const char *a)
{
    if (strncmp(a, "unix:", 5) == 0)
        return a[5] == '/' && a[6];
    const char *colon = strrchr(a, ':');
    size_t host = colon ? (size_t)(colon - a) : strlen(a);
    uint64_t port;
    for (size_t i = 0; i < host; i++)
        if (a[i] <= ' ' || a[i] >= 0x7f || a[i] == '/')
            return false;
    if (!colon)
        return a[0] == '_' && strstr(a, "._") && strchr(strstr(a, "._") + 2, '.');
    if (!host || !str_to_u64(str_of(colon + 1), &port) || !port || port > 65535)
        return false;
    return a[0] == '[' ? host > 2 && a[host - 1] == ']' : !memchr(a, ':', host);
}

static int check_addresses(struct reader *r, const struct gateway_pool *p)
{
    for (size_t i = 0; i < p->n_servers; i++)
        if (!is_server_address(p->servers[i].address))
            return node_error(
                r->err, r->where, 0, STATUS_INVALID,
                "upstreams[].servers of pool '%s': '%s' is no address; write HOST:PORT, [IPV6]:PORT, unix:/PATH or "
                "_service._protocol.NAME",
                p->name, p->servers[i].address);
    return 0;
}

static int check_pools(struct reader *r, const struct gateway_config *c)
{
    for (size_t i = 0; i < c->n_pools; i++) {
        const struct gateway_pool *p = &c->pools[i];
        int rc = check_tls(r, p);
        if (rc == 0)
            rc = check_path(r, "check.path", p->check.path);
        if (rc == 0)
            rc = check_path(r, "report.path", p->report.path);
        if (rc == 0)
            rc = check_addresses(r, p);
        if (rc)
            return rc;
        if (strcmp(p->name, "local") == 0)
            return node_error(r->err, r->where, 0, STATUS_INVALID,
                              "upstreams[].name: 'local' is this process; take another name");
        if ((p->check.body[0] || p->check.expect[0]) && !p->check.path[0])
            return node_error(r->err, r->where, 0, STATUS_INVALID,
                              "upstreams[].check of pool '%s': body and expect need the path that they belong to", p->name);
        if (p->check.grpc && (p->check.path[0] || strcmp(protocols[p->protocol], "http1") == 0))
            return node_error(r->err, r->where, 0, STATUS_INVALID,
                              "upstreams[].check.grpc of pool '%s' needs protocol http2 or auto, and no path beside it",
                              p->name);
        for (size_t k = 0; k < p->geo.zones.n; k++)
            if (!strchr(p->geo.zones.v[k], '='))
                return node_error(r->err, r->where, 0, STATUS_INVALID,
                                  "upstreams[].geo.zones of pool '%s': '%s' is not accepted; write VALUE=zone, like EU=eu-west",
                                  p->name, p->geo.zones.v[k]);
        if (!p->n_servers && !p->servers_file[0])
            return node_error(r->err, r->where, 0, STATUS_INVALID,
                              "upstreams[].servers: pool '%s' needs servers, or a servers_file", p->name);
        if (find_pool(c, p->name) != p)
            return node_error(r->err, r->where, 0, STATUS_INVALID, "upstreams[].name: '%s' is there twice", p->name);
    }
    return 0;
}

/* What frames a message or belongs to one connection: ours to write. */
static bool is_ours(struct str name)
{
    static const char *const ours[] = {
        "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"};
    for (size_t i = 0; i < COUNT_OF(ours); i++)
        if (str_ieqz(name, ours[i]))
            return true;
    return false;
}

static int check_fields(struct reader *r, size_t route, const struct gateway_route *t)
{
    for (size_t i = 0; i < t->set_headers.n; i++) {
        const char *text = t->set_headers.v[i], *colon = strchr(text, ':');
        struct str name = colon ? str_trim((struct str){text, (size_t)(colon - text)}) : (struct str){0};
        bool good = http1_is_token(name);
        for (const char *v = colon; good && *v; v++)
            good = ((unsigned char)*v >= ' ' || *v == '\t') && *v != 0x7f;
        if (!good)
            return node_error(
                r->err, r->where, 0, STATUS_INVALID,
                "routes[%zu].set_headers: '%s' is not accepted; write \"name: value\", without control characters", route,
                text);
        if (is_ours(name))
            return node_error(r->err, r->where, 0, STATUS_INVALID,
                              "routes[%zu].set_headers: '%.*s' belongs to the connection and is written by this server", route,
                              STR_ARG(name));
    }
    for (size_t i = 0; i < t->remove_headers.n; i++)
        if (!http1_is_token(str_of(t->remove_headers.v[i])))
            return node_error(r->err, r->where, 0, STATUS_INVALID,
                              "routes[%zu].remove_headers: '%s' is not accepted; write the name of a header", route,
                              t->remove_headers.v[i]);
    return 0;
}

/* A WebSocket needs a server of HTTP/1.1, wherever its route may send it. */
static int check_websocket(struct reader *r, const struct gateway_config *c, size_t i)
{
    const struct gateway_route *t = &c->routes[i];
    const char *names[] = {t->upstream, t->fallback};
    for (size_t k = 0; t->websocket && k < COUNT_OF(names); k++) {
        const struct gateway_pool *p = find_pool(c, names[k]);
        if (strcmp(names[k], "local") == 0)
            return node_error(
                r->err, r->where, 0, STATUS_INVALID,
                "routes[%zu].websocket: nothing in this process speaks WebSocket; name a pool as upstream, not local", i);
        if (p && strcmp(protocols[p->protocol], "http1") != 0)
            return node_error(
                r->err, r->where, 0, STATUS_INVALID,
                "routes[%zu].websocket: pool '%s' has protocol %s; WebSockets need http1: give them a pool of their own", i,
                p->name, protocols[p->protocol]);
    }
    return 0;
}

static int check_routes(struct reader *r, const struct gateway_config *c)
{
    for (size_t i = 0; i < c->n_routes; i++) {
        const struct gateway_route *t = &c->routes[i];
        const char *missing = strcmp(t->upstream, "local") != 0 && !find_pool(c, t->upstream) ? t->upstream
                              : t->fallback[0] && !find_pool(c, t->fallback)                  ? t->fallback
                                                                                              : NULL;
        if (missing)
            return node_error(r->err, r->where, 0, STATUS_INVALID, "routes[%zu] sends to '%s', which `upstreams` does not name",
                              i, missing);
        if (check_websocket(r, c, i))
            return STATUS_INVALID;
        if (t->path[0] && t->path[0] != '/')
            return node_error(r->err, r->where, 0, STATUS_INVALID, "routes[%zu].path: '%s' must begin with /", i, t->path);
        if (t->path_prefix[0] && t->path_prefix[0] != '/')
            return node_error(r->err, r->where, 0, STATUS_INVALID, "routes[%zu].path_prefix: '%s' must begin with /", i,
                              t->path_prefix);
        int rc = check_fields(r, i, t);
        if (rc)
            return rc;
    }
    return 0;
}

int gateway_config_read(const struct node *upstreams, const struct node *routes, const char *where, struct arena *arena,
                        struct gateway_config *out, struct error *err)
{
    static const struct key pools_key = {.name = "upstreams", .kind = KEY_LIST, .min = 1, .max = 256, .inside = &pool_section};
    static const struct key routes_key = {.name = "routes", .kind = KEY_LIST, .min = 1, .max = 4096, .inside = &route_section};
    static const struct section top = {.title = "inferd.yaml"};
    struct reader r = {where, arena, err};
    *out = (struct gateway_config){0};
    int rc = upstreams ? read_list(&r, &top, &pools_key, upstreams, (char *)&out->pools) : 0;
    if (!rc && routes)
        rc = read_list(&r, &top, &routes_key, routes, (char *)&out->routes);
    if (!rc)
        rc = check_pools(&r, out);
    return rc ? rc : check_routes(&r, out);
}

/* ---- copies ---- */

static bool copy_section(const struct section *s, const char *from, char *to, struct arena *a);

static bool copy_key(const struct key *k, const char *from, char *to, struct arena *a)
{
    if (k->kind == KEY_STRING) {
        const char *text = *(const char *const *)(const void *)from;
        return (*(const char **)(void *)to = arena_strdup(a, str_of(text))) != NULL;
    }
    if (k->kind == KEY_WORDS) {
        const struct gateway_words *w = (const void *)from;
        struct gateway_words *c = (void *)to;
        *c = (struct gateway_words){.v = (const char **)arena_array(a, w->n + 1, sizeof *c->v)};
        while (c->v && c->n < w->n && (c->v[c->n] = arena_strdup(a, str_of(w->v[c->n]))))
            c->n++;
        return c->v && c->n == w->n;
    }
    if (k->kind != KEY_LIST)
        return true; /* copied with its struct */
    const char *list = *(const char *const *)(const void *)from;
    size_t n = *(const size_t *)(const void *)(from + sizeof(char *));
    char *copy = arena_array(a, n, k->inside->size);
    *(char **)(void *)to = copy;
    bool ok = copy != NULL;
    for (size_t i = 0; i < n && ok; i++)
        ok = copy_section(k->inside, list + i * k->inside->size, copy + i * k->inside->size, a);
    return ok;
}

static bool copy_section(const struct section *s, const char *from, char *to, struct arena *a)
{
    bool ok = true;
    memcpy(to, from, s->size);
    for (size_t i = 0; i < s->n && ok; i++) {
        const struct key *k = &s->keys[i];
        if (k->kind != KEY_MAP) {
            ok = copy_key(k, from + k->offset, to + k->offset, a);
            continue;
        }
        for (size_t j = 0; j < k->inside->n && ok; j++)
            ok = copy_key(&k->inside->keys[j], from + k->inside->keys[j].offset, to + k->inside->keys[j].offset, a);
    }
    return ok;
}

int gateway_config_copy(const struct gateway_config *from, struct arena *arena, struct gateway_config *out)
{
    *out = (struct gateway_config){.n_pools = from->n_pools, .n_routes = from->n_routes};
    out->pools = arena_array(arena, from->n_pools, sizeof *out->pools);
    out->routes = arena_array(arena, from->n_routes, sizeof *out->routes);
    bool ok = out->pools && out->routes;
    for (size_t i = 0; i < from->n_pools && ok; i++)
        ok = copy_section(&pool_section, (const char *)&from->pools[i], (char *)&out->pools[i], arena);
    for (size_t i = 0; i < from->n_routes && ok; i++)
        ok = copy_section(&route_section, (const char *)&from->routes[i], (char *)&out->routes[i], arena);
    return ok ? 0 : STATUS_NOMEM;
}

/* ---- comparing ---- */

static bool same_words(const struct gateway_words *a, const struct gateway_words *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; i < a->n && same; i++)
        same = strcmp(a->v[i], b->v[i]) == 0;
    return same;
}

static bool same_keys(const struct section *s, const char *a, const char *b);

static bool same_key(const struct key *k, const void *a, const void *b)
{
    switch (k->kind) {
    case KEY_STRING:
        return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    case KEY_WORDS:
        return same_words(a, b);
    case KEY_COUNT:
        return *(const uint32_t *)a == *(const uint32_t *)b;
    case KEY_BYTES:
    case KEY_TIME:
        return *(const uint64_t *)a == *(const uint64_t *)b;
    case KEY_BOOL:
        return *(const bool *)a == *(const bool *)b;
    case KEY_PERCENT:
        return !(*(const double *)a < *(const double *)b || *(const double *)a > *(const double *)b);
    case KEY_ENUM:
        return *(const int *)a == *(const int *)b;
    case KEY_MAP:
        return same_keys(k->inside, a, b);
    case KEY_LIST:
        break;
    }
    return true;
}

/* A map's keys lie in the struct of the section that it is in: its offset is 0. */
static bool same_keys(const struct section *s, const char *a, const char *b)
{
    bool same = true;
    for (size_t i = 0; i < s->n && same; i++)
        same = same_key(&s->keys[i], a + s->keys[i].offset, b + s->keys[i].offset);
    return same;
}

bool gateway_pool_same(const struct gateway_pool *a, const struct gateway_pool *b)
{
    return same_keys(&pool_section, (const char *)a, (const char *)b);
}

/* ---- reference ---- */

static void render_section(struct buf *out, const struct section *s)
{
    buf_printf(out, "\n## `%s`\n\n| key | takes | default | what |\n| --- | --- | --- | --- |\n", s->title);
    for (size_t i = 0; i < s->n; i++) {
        const struct key *k = &s->keys[i];
        char text[200];
        buf_printf(out, "| `%s` | %s | %s | %s |\n", k->name, accepts(k, text, sizeof text),
                   k->initial           ? (k->initial[0] ? k->initial : "-")
                   : k->kind == KEY_MAP ? "-"
                                        : "must be given",
                   k->help);
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->keys[i].inside)
            render_section(out, s->keys[i].inside);
}

void gateway_config_render_markdown(struct buf *out)
{
    render_section(out, &pool_section);
    render_section(out, &route_section);
}
