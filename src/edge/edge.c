/* edge.c: see edge.h. The table of keys is replaced whole; a lookup holds the lock only while it finds the entry and takes a
 * reference, hashing included (some 200 ns), so that a table can't go away under it. */
#include "edge/edge.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/status.h"
#include "edge/jwt.h"
#include "edge/keys.h"
#include "obs/metrics.h"
#include "os/random.h"
#include "os/thread.h"

/* Tokens come again and again, and verifying one costs 30 to 100 us: the last ones are remembered by their hash. */
#define TOKEN_SLOTS 2048

struct token_slot {
    uint8_t hash[32];
    struct edge_identity *who; /* NULL: empty */
};

struct edge {
    struct os_mutex lock; /* guards keys, issuer_keys, slots */
    struct key_table keys;
    const struct jwt_rules *rules; /* NULL: no tokens */
    struct jwks *issuer_keys;      /* NULL: not known yet */
    struct token_slot *slots;      /* [TOKEN_SLOTS] when tokens are taken */
    _Atomic bool misses_key;
    bool closed;
    struct metric *verdicts[EDGE_VERDICTS];
};

static const char *const verdict_names[EDGE_VERDICTS] = {
    [EDGE_OPEN] = "open",
    [EDGE_ALLOWED] = "allowed",
    [EDGE_NO_CREDENTIALS] = "no_credentials",
    [EDGE_BAD_CREDENTIALS] = "bad_credentials",
    [EDGE_EXPIRED] = "expired",
    [EDGE_NO_SCOPE] = "no_scope",
    [EDGE_HIDDEN_MODEL] = "hidden_model",
    [EDGE_OVER_QUOTA] = "over_quota",
    [EDGE_BAD_INPUT] = "refused_input",
    [EDGE_BAD_OUTPUT] = "refused_output",
};

const char *edge_verdict_name(enum edge_verdict v)
{
    return verdict_names[v];
}

static void clear_slots(struct edge *e)
{
    for (size_t i = 0; e->slots && i < TOKEN_SLOTS; i++) {
        edge_identity_unref(e->slots[i].who);
        e->slots[i].who = NULL;
    }
}

struct edge *edge_create(const struct edge_options *o)
{
    static const char *const labels[] = {"verdict", NULL};
    struct edge *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    os_mutex_init(&e->lock, RANK_LEAF);
    e->closed = o->keys || o->tokens;
    e->rules = o->tokens;
    e->slots = o->tokens ? calloc(TOKEN_SLOTS, sizeof *e->slots) : NULL;
    if (o->tokens && !e->slots) {
        edge_destroy(e);
        return NULL;
    }
    if (!o->metrics || !e->closed)
        return e;
    struct metric_family *f = metrics_family(o->metrics, METRIC_COUNTER, "inferd_auth_total",
                                             "Decisions of the authorisation point, by verdict.", labels, NULL, 0);
    for (int v = EDGE_ALLOWED; f && v < EDGE_OVER_QUOTA; v++)
        e->verdicts[v] = metrics_series(f, (const char *const[]){verdict_names[v]});
    return e;
}

void edge_destroy(struct edge *e)
{
    if (!e)
        return;
    key_table_release(&e->keys);
    clear_slots(e);
    free(e->slots);
    jwks_unref(e->issuer_keys);
    os_mutex_release(&e->lock);
    free(e);
}

bool edge_is_closed(const struct edge *e)
{
    return e->closed;
}

int edge_set_keys(struct edge *e, struct str text, const char *where, size_t *n, struct error *err)
{
    struct key_table fresh, old;
    int rc = key_table_parse(text, where, os_random_u64(), &fresh, err);
    if (rc < 0)
        return rc;
    *n = fresh.n;
    os_mutex_lock(&e->lock);
    old = e->keys;
    e->keys = fresh;
    os_mutex_unlock(&e->lock);
    key_table_release(&old);
    return 0;
}

int edge_set_issuer_keys(struct edge *e, struct str text, const char *where, size_t *n, struct error *err)
{
    struct jwks *fresh, *old;
    int rc = jwks_parse(text, where, &fresh, err);
    if (rc < 0)
        return rc;
    *n = jwks_count(fresh);
    os_mutex_lock(&e->lock);
    old = e->issuer_keys;
    e->issuer_keys = fresh;
    clear_slots(e);
    os_mutex_unlock(&e->lock);
    atomic_store(&e->misses_key, false);
    jwks_unref(old);
    return 0;
}

bool edge_misses_key(struct edge *e, bool clear)
{
    return clear ? atomic_exchange(&e->misses_key, false) : atomic_load(&e->misses_key);
}

/* --- who is it --- */

/* A verified token from before, else the keys to verify this one with (a reference, NULL: there are none). */
static struct edge_identity *recall(struct edge *e, const uint8_t hash[32], struct jwks **keys)
{
    struct token_slot *s = &e->slots[(hash[0] | (size_t)hash[1] << 8) % TOKEN_SLOTS];
    struct edge_identity *who = NULL;
    os_mutex_lock(&e->lock);
    if (s->who && memcmp(s->hash, hash, 32) == 0)
        who = edge_identity_ref(s->who);
    *keys = !who && e->issuer_keys ? jwks_ref(e->issuer_keys) : NULL;
    os_mutex_unlock(&e->lock);
    return who;
}

/* ... unless the keys have changed meanwhile. */
static void remember(struct edge *e, const uint8_t hash[32], const struct jwks *keys, struct edge_identity *who)
{
    struct token_slot *s = &e->slots[(hash[0] | (size_t)hash[1] << 8) % TOKEN_SLOTS];
    struct edge_identity *old = NULL;
    os_mutex_lock(&e->lock);
    if (e->issuer_keys == keys) {
        old = s->who;
        memcpy(s->hash, hash, 32);
        s->who = edge_identity_ref(who);
    }
    os_mutex_unlock(&e->lock);
    edge_identity_unref(old);
}

static int find_token(struct edge *e, struct str token, uint64_t now_s, struct edge_identity **who, struct error *err)
{
    struct sha256 h;
    uint8_t hash[32];
    struct jwks *keys;
    sha256_init(&h);
    sha256_add(&h, token.p, token.n);
    sha256_finish(&h, hash);
    *who = recall(e, hash, &keys);
    if (*who)
        return 0;
    if (!keys)
        return error_set(err, STATUS_UNAVAILABLE,
                         "tokens can't be verified yet: the issuer's keys are not known; try again later");
    int rc = jwt_verify(keys, e->rules, token, now_s, who, err);
    if (rc == 0)
        remember(e, hash, keys, *who);
    else if (rc == STATUS_NOT_FOUND)
        atomic_store_explicit(&e->misses_key, true, memory_order_relaxed);
    jwks_unref(keys);
    return rc;
}

static struct edge_identity *find_key(struct edge *e, struct str key)
{
    os_mutex_lock(&e->lock);
    const struct key_entry *k = key_table_check(&e->keys, key);
    struct edge_identity *who = k ? edge_identity_ref(k->identity) : NULL;
    os_mutex_unlock(&e->lock);
    return who;
}

static struct edge_identity *find_certificate(struct edge *e, const struct edge_credentials *c)
{
    const struct key_entry *k = NULL;
    os_mutex_lock(&e->lock);
    for (size_t i = 0; !k && i < c->n_certificate; i++)
        k = key_table_certificate(&e->keys, c->certificate[i]);
    struct edge_identity *who = k ? edge_identity_ref(k->identity) : NULL;
    os_mutex_unlock(&e->lock);
    return who;
}

/* The token of "Bearer TOKEN"; .p == NULL when it is another scheme. */
static struct str bearer(struct str authorization)
{
    const struct str scheme = STR("Bearer ");
    if (authorization.n <= scheme.n || !str_ieq((struct str){authorization.p, scheme.n}, scheme))
        return (struct str){0};
    return str_trim((struct str){authorization.p + scheme.n, authorization.n - scheme.n});
}

#define HOW "send a key or token as `Authorization: Bearer KEY` or `x-api-key: KEY`"

static int refuse(enum edge_verdict *verdict, enum edge_verdict why, struct error *err, const char *text)
{
    *verdict = why;
    return error_set(err, STATUS_UNAUTHENTICATED, "%s", text);
}

static int identify(struct edge *e, const struct edge_credentials *c, uint64_t now_s, struct edge_identity **who,
                    enum edge_verdict *verdict, struct error *err)
{
    struct str key = c->api_key;
    if (c->repeated)
        return refuse(verdict, EDGE_BAD_CREDENTIALS, err,
                      "credentials are there more than once; send one Authorization or "
                      "x-api-key header");
    if (c->authorization.p) {
        struct str token = bearer(c->authorization);
        if (!token.n)
            return refuse(verdict, EDGE_BAD_CREDENTIALS, err, "the Authorization header is not understood; " HOW);
        if (key.p && !str_eq(key, token))
            return refuse(verdict, EDGE_BAD_CREDENTIALS, err,
                          "Authorization and x-api-key are both there and differ; send one of them");
        key = token;
    }
    if (key.p && e->rules && jwt_looks_like(key)) {
        int rc = find_token(e, key, now_s, who, err);
        *verdict = EDGE_BAD_CREDENTIALS;
        return rc == STATUS_NOT_FOUND ? STATUS_UNAUTHENTICATED : rc;
    }
    *who = key.p ? find_key(e, key) : find_certificate(e, c);
    if (*who)
        return 0;
    if (key.p)
        return refuse(verdict, EDGE_BAD_CREDENTIALS, err, "the API key is not valid here; it is mistyped or was revoked");
    return refuse(verdict, EDGE_NO_CREDENTIALS, err, "credentials are needed; " HOW);
}

/* --- may he --- */

static int judge(const struct edge_ask *ask, const struct edge_identity *who, enum edge_verdict *verdict, struct error *err)
{
    struct buf scope;
    if (who->expires_s && ask->now_s >= who->expires_s)
        return refuse(verdict, EDGE_EXPIRED, err, "these credentials have expired; ask for new ones");
    if (ask->model.n && !edge_sees_model(who, ask->model)) {
        *verdict = EDGE_HIDDEN_MODEL;
        return error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\"", STR_ARG(ask->model));
    }
    if (ask->need.scope && (who->scopes & ask->need.scope) == ask->need.scope &&
        !(ask->need.every_model && !edge_sees_every_model(who))) {
        *verdict = EDGE_ALLOWED;
        return 0;
    }
    *verdict = EDGE_NO_SCOPE;
    if (ask->need.scope && (who->scopes & ask->need.scope))
        return error_set(err, STATUS_FORBIDDEN, "this answer is about every model, and these credentials are for some only");
    buf_init(&scope);
    edge_scopes_render(ask->need.scope, &scope);
    int rc = error_set(err, STATUS_FORBIDDEN, "these credentials are valid but lack the scope \"%s\"", buf_z(&scope));
    buf_release(&scope);
    return rc;
}

/* An open route asks for nothing, but may tell more to somebody it knows. */
static void recognise(struct edge *e, const struct edge_ask *ask, struct edge_identity **who)
{
    const struct edge_credentials *c = &ask->credentials;
    enum edge_verdict ignored;
    if (!c->authorization.p && !c->api_key.p && !c->n_certificate)
        return;
    if (identify(e, c, ask->now_s, who, &ignored, NULL) == 0 && !((*who)->expires_s && ask->now_s >= (*who)->expires_s))
        return;
    edge_identity_unref(*who);
    *who = NULL;
}

int edge_authorise(struct edge *e, const struct edge_ask *ask, struct edge_identity **who, enum edge_verdict *verdict,
                   struct error *err)
{
    *who = NULL;
    *verdict = EDGE_OPEN;
    if (!e->closed)
        return 0;
    if (ask->need.open) {
        recognise(e, ask, who);
        return 0;
    }
    int rc = identify(e, &ask->credentials, ask->now_s, who, verdict, err);
    if (rc == 0)
        rc = judge(ask, *who, verdict, err);
    metric_inc(e->verdicts[*verdict]);
    return rc;
}

int edge_authorise_model(struct edge *e, const struct edge_identity *who, struct str model, enum edge_verdict *verdict,
                         struct error *err)
{
    if (!e->closed || !who || edge_sees_model(who, model))
        return 0;
    *verdict = EDGE_HIDDEN_MODEL;
    metric_inc(e->verdicts[EDGE_HIDDEN_MODEL]);
    return error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\"", STR_ARG(model));
}
