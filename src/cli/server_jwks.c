/* server_jwks.c: where the token issuer's keys come from: a file that is watched, or a URL that a thread of its own asks.
 *
 * The thread looks ten times a second whether it is due (edge/jwt.h: jwks_due); a request that brings an unknown key only sets a flag. So
 * no request ever waits for the issuer, and a flood of tokens with random key ids costs one fetch in 30 s. A failed fetch changes nothing. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cli/server_priv.h"
#include "edge/edge.h"
#include "edge/jwt.h"
#include "net/http_client.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/wake.h"

#define LOOK_NS    100000000u
#define FILE_NS    1000000000u
#define TIMEOUT_NS 10000000000u

struct jwks_fetcher {
    struct server *server;
    struct os_thread thread;
    struct os_wake wake;
    _Atomic bool stop;
    bool started, failed;
    uint64_t last_ns;
    struct metric *fetches, *failures;
    /* of a file, for the control thread */
    bool is_file;
    uint64_t next_ns, size_bytes, mtime_ns, inode;
};

static bool is_url(const char *keys)
{
    return strncmp(keys, "http://", 7) == 0 || strncmp(keys, "https://", 8) == 0;
}

static int install(struct server *s, struct str text, struct error *err)
{
    size_t n = 0;
    int rc = edge_set_issuer_keys(s->edge, text, s->first_config->jwt.keys, &n, err);
    if (rc == 0)
        LOG(s->log, LOG_INFO, "issuer_keys_read", LOG_U("keys", n));
    return rc;
}

static void tell_failure(struct jwks_fetcher *f, int rc, const struct error *err)
{
    if (rc < 0 && !f->failed)
        LOG(f->server->log, LOG_ERROR, "issuer_keys_unusable", LOG_S("reason", err->text),
            LOG_S("effect", "the old keys stay in force"));
    f->failed = rc < 0;
    metric_inc(rc < 0 ? f->failures : f->fetches);
}

/* --- a URL --- */

static int get(struct http_client *c, struct server *s, const char *path, struct error *err)
{
    const struct http_header accept = {STR("Accept"), STR("application/json")};
    const struct http_client_request r = {.method = "GET", .path = path, .headers = &accept, .n_headers = 1};
    struct http_client_answer a;
    int rc = http_client_call(c, &r, &a, err);
    if (rc == 0 && a.status != 200)
        rc = error_set(err, STATUS_UNAVAILABLE, "%s answers %d", s->first_config->jwt.keys, a.status);
    return rc == 0 ? install(s, a.body, err) : rc;
}

static int fetch(struct server *s, struct error *err)
{
    const struct config *c = s->first_config;
    const struct http_client_options o = {
        .timeout_ns = TIMEOUT_NS, .max_body_bytes = JWKS_BYTES_MAX, .ca_file = c->jwt.ca[0] ? c->jwt.ca : NULL};
    const char *slash = strchr(strstr(c->jwt.keys, "://") + 3, '/');
    struct http_client *client;
    char base[512];
    size_t n = slash ? (size_t)(slash - c->jwt.keys) : strlen(c->jwt.keys);
    if (n >= sizeof base)
        return error_set(err, STATUS_INVALID, "jwt.keys: the host is too long");
    memcpy(base, c->jwt.keys, n);
    base[n] = 0;
    int rc = http_client_create(base, &o, &client, err);
    if (rc < 0)
        return rc;
    rc = get(client, s, slash ? slash : "/", err);
    http_client_destroy(client);
    return rc;
}

static void run(void *arg)
{
    struct jwks_fetcher *f = arg;
    struct server *s = f->server;
    while (!atomic_load(&f->stop)) {
        struct error err = {0};
        uint64_t now = os_monotonic_ns();
        if (jwks_due(f->last_ns, f->failed, edge_misses_key(s->edge, false), s->first_config->jwt.refresh, now)) {
            f->last_ns = now;
            edge_misses_key(s->edge, true);
            tell_failure(f, fetch(s, &err), &err);
        }
        os_wake_wait(&f->wake, os_monotonic_ns() + LOOK_NS);
    }
}

/* --- a file --- */

static int read_keys(struct server *s, struct error *err)
{
    struct buf text;
    buf_init(&text);
    int rc = os_file_read(s->first_config->jwt.keys, JWKS_BYTES_MAX, &text, err);
    if (rc == 0)
        rc = install(s, buf_str(&text), err);
    buf_release(&text);
    return rc;
}

static bool changed(struct jwks_fetcher *f)
{
    struct os_file_info info;
    if (os_file_info(f->server->first_config->jwt.keys, &info, NULL) < 0)
        return false;
    bool same = info.size_bytes == f->size_bytes && info.mtime_ns == f->mtime_ns && info.inode == f->inode;
    f->size_bytes = info.size_bytes;
    f->mtime_ns = info.mtime_ns;
    f->inode = info.inode;
    return !same;
}

void server__tick_jwks(struct server *s, uint64_t now_ns)
{
    struct jwks_fetcher *f = s->fetcher;
    struct error err = {0};
    if (!f || !f->is_file || now_ns < f->next_ns)
        return;
    f->next_ns = now_ns + FILE_NS;
    if (changed(f))
        tell_failure(f, read_keys(s, &err), &err);
}

/* --- life --- */

static void make_metrics(struct jwks_fetcher *f, struct metrics *m)
{
    static const char *const labels[] = {"result", NULL};
    struct metric_family *family = metrics_family(m, METRIC_COUNTER, "inferd_issuer_key_reads_total",
                                                  "Reads of the token issuer's keys.", labels, NULL, 0);
    if (!family)
        return;
    f->fetches = metrics_series(family, (const char *const[]){"ok"});
    f->failures = metrics_series(family, (const char *const[]){"failed"});
}

int server__start_jwks(struct server *s, struct error *err)
{
    struct jwks_fetcher *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    f->server = s;
    f->wake.fd = -1;
    s->fetcher = f;
    make_metrics(f, s->metrics);
    f->is_file = !is_url(s->first_config->jwt.keys);
    if (f->is_file) {
        changed(f);
        int rc = read_keys(s, err);
        return rc < 0 ? error_prefix(err, "jwt.keys") : 0;
    }
    int rc = os_wake_init(&f->wake, err);
    if (rc == 0)
        rc = os_thread_start(&f->thread, "issuer-keys", run, f, err);
    f->started = rc == 0;
    return rc;
}

void server__stop_jwks(struct server *s)
{
    struct jwks_fetcher *f = s->fetcher;
    if (!f)
        return;
    atomic_store(&f->stop, true);
    if (f->started) {
        os_wake_signal(&f->wake);
        os_thread_join(&f->thread);
    }
    os_wake_release(&f->wake);
    free(f);
    s->fetcher = NULL;
}
