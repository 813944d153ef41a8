/* tls_context.c: the life of a context: the set in force, reloading, what ends soon. */
#include <openssl/crypto.h>

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "net/tls_priv.h"
#include "os/file.h"

#define LOOK_NS   1000000000u    /* at the files */
#define EXPIRY_NS 60000000000ull /* at what ends */
#define WARN_DAYS 30
#define LAST_DAYS 7

/* --- sets --- */

struct tls_set *tls__set_get(struct tls_context *c)
{
    os_mutex_lock(&c->lock);
    struct tls_set *s = c->set;
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    os_mutex_unlock(&c->lock);
    return s;
}

void tls__set_unref(struct tls_set *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < s->n; i++)
        SSL_CTX_free(s->ctx[i]);
    free(s);
}

/* --- files --- */

static void watch(struct tls_context *c, const char *path)
{
    if (path)
        c->files[c->n_files++].path = path;
}

/* Remember the files as they are now; true when one is another than before. */
static bool changed(struct tls_context *c)
{
    bool any = false;
    for (size_t i = 0; i < c->n_files; i++) {
        struct tls_file *f = &c->files[i];
        struct os_file_info info;
        if (os_file_info(f->path, &info, NULL) < 0)
            continue; /* between two renames, or gone: what is loaded stays */
        any |= info.size_bytes != f->size_bytes || info.mtime_ns != f->mtime_ns || info.inode != f->inode;
        f->size_bytes = info.size_bytes;
        f->mtime_ns = info.mtime_ns;
        f->inode = info.inode;
    }
    return any;
}

/* --- what ends soon --- */

static const char *name_of(const struct tls_context *c, size_t i)
{
    return i < c->o.n ? c->o.certificates[i] : c->o.crl;
}

/* Warn once below each of 30, 7 and 0 days. */
static void warn(struct tls_context *c, size_t i, double days)
{
    int level = days <= 0 ? 0 : days <= LAST_DAYS ? LAST_DAYS : days <= WARN_DAYS ? WARN_DAYS : WARN_DAYS + 1;
    int *warned = &c->warned[i < c->o.n ? i : TLS_CERTIFICATES_MAX];
    if (level > WARN_DAYS) {
        *warned = WARN_DAYS + 1;
        return;
    }
    if (level >= *warned)
        return;
    *warned = level;
    LOG(c->o.log, level == 0 ? LOG_ERROR : LOG_WARN, level == 0 ? "certificate_expired" : "certificate_expires_soon",
        LOG_S("file", name_of(c, i)), LOG_F("days_left", days), LOG_I("threshold_days", level));
}

static void look_at_expiry(struct tls_context *c)
{
    struct tls_set *s = tls__set_get(c);
    double days;
    for (size_t i = 0; i <= c->o.n; i++) {
        if (!tls__days_left(c, s, i, &days))
            continue;
        if (c->days_left)
            metric_set(metrics_series(c->days_left, (const char *const[]){name_of(c, i)}), days);
        warn(c, i, days);
    }
    tls__set_unref(s);
}

/* --- life --- */

static void make_metrics(struct tls_context *c)
{
    static const char *const outcomes[] = {
        [TLS_FULL] = "full", [TLS_RESUMED] = "resumed", [TLS_FAILED] = "failed", [TLS_TIMEOUT] = "timeout"};
    static const char *const file[] = {"file", NULL}, *const outcome[] = {"outcome", NULL};
    struct metrics *m = c->o.metrics;
    if (!m)
        return;
    c->days_left = metrics_family(m, METRIC_GAUGE, "inferd_tls_certificate_days_left",
                                  "Days until a certificate or revocation list ends; negative: it has.", file, NULL, 0);
    struct metric_family *f =
        metrics_family(m, METRIC_COUNTER, "inferd_tls_handshakes_total", "TLS handshakes, by outcome.", outcome, NULL, 0);
    for (int i = 0; f && i < TLS_OUTCOMES; i++)
        c->outcomes[i] = metrics_series(f, (const char *const[]){outcomes[i]});
}

static int check_options(const struct tls_options *o, struct error *err)
{
    if (o->n == 0 || o->n > TLS_CERTIFICATES_MAX)
        return error_set(err, STATUS_INVALID, "%zu certificates are given; 1 to %d are accepted", o->n, TLS_CERTIFICATES_MAX);
    if (o->n_keys && o->n_keys != o->n)
        return error_set(err, STATUS_INVALID,
                         "there are %zu certificates and %zu keys; give one key each, or none when the keys are in "
                         "the certificates' files",
                         o->n, o->n_keys);
    return 0;
}

int tls_context_create(const struct tls_options *o, struct tls_context **out, struct error *err)
{
    int rc = check_options(o, err);
    if (rc < 0)
        return rc;
    struct tls_context *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, STATUS_NOMEM, "out of memory for TLS");
    c->o = *o;
    os_mutex_init(&c->lock, RANK_LEAF);
    for (size_t i = 0; i < COUNT_OF(c->warned); i++)
        c->warned[i] = WARN_DAYS + 1;
    for (size_t i = 0; i < o->n; i++)
        watch(c, o->certificates[i]);
    for (size_t i = 0; i < o->n_keys; i++)
        watch(c, o->keys[i]);
    watch(c, o->client_ca);
    watch(c, o->crl);
    tls__tickets_init(c);
    changed(c);
    c->method = tls__make_method();
    rc = c->method ? tls__load(c, &c->set, err) : error_set(err, STATUS_NOMEM, "out of memory for TLS");
    if (rc < 0) {
        tls_context_destroy(c);
        return rc;
    }
    make_metrics(c);
    look_at_expiry(c);
    *out = c;
    return 0;
}

void tls_context_destroy(struct tls_context *c)
{
    if (!c)
        return;
    tls__set_unref(c->set);
    BIO_meth_free(c->method);
    OPENSSL_cleanse(c->tickets, sizeof c->tickets);
    os_mutex_release(&c->lock);
    free(c);
}

/* Read the files again, for connections that begin later. On an error everything stays as it is. One thread at a time; blocks on the disk. */
static int reload(struct tls_context *c, struct error *err)
{
    struct tls_set *fresh, *old;
    int rc = tls__load(c, &fresh, err);
    if (rc < 0)
        return rc;
    os_mutex_lock(&c->lock);
    old = c->set;
    c->set = fresh;
    os_mutex_unlock(&c->lock);
    tls__set_unref(old);
    LOG(c->o.log, LOG_INFO, "certificates_read", LOG_U("certificates", c->o.n));
    look_at_expiry(c);
    return 0;
}

void tls_context_tick(struct tls_context *c, uint64_t now_ns)
{
    struct error err = {0};
    if (!c->next_rotation_ns)
        c->next_rotation_ns = now_ns + c->o.ticket_rotation_ns;
    if (now_ns >= c->next_rotation_ns) {
        c->next_rotation_ns = now_ns + c->o.ticket_rotation_ns;
        tls__tickets_rotate(c);
    }
    if (now_ns >= c->next_expiry_ns) {
        c->next_expiry_ns = now_ns + EXPIRY_NS;
        look_at_expiry(c);
    }
    if (now_ns < c->next_look_ns)
        return;
    c->next_look_ns = now_ns + LOOK_NS;
    /* a failure is tried again: certificate and key are two files, replaced one after the other */
    if (!changed(c) && !c->failing)
        return;
    bool failed = reload(c, &err) < 0;
    if (failed && !c->failing)
        LOG(c->o.log, LOG_ERROR, "certificates_unusable", LOG_S("reason", err.text),
            LOG_S("effect", "the old ones stay in force"));
    c->failing = failed;
}
