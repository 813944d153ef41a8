/* identity.h: who is asking: what an API key, a client certificate or a token says about its holder, once it has been verified.
 *
 * Immutable and refcounted: the table or cache that made it holds one reference, each request under way one more, so a key that is
 * revoked goes away when its last request is answered. Any thread. */
#ifndef INFERD_EDGE_IDENTITY_H
#define INFERD_EDGE_IDENTITY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

/* What a holder may do; none includes another. */
enum edge_scope {
    EDGE_INFER = 1, /* run models */
    EDGE_READ = 2,  /* metadata, statistics, the index, metrics */
    EDGE_ADMIN = 4, /* load, unload, the admin listener */
};

enum edge_kind { EDGE_KEY, EDGE_CERTIFICATE, EDGE_TOKEN };

struct edge_identity {
    _Atomic uint32_t refs;
    enum edge_kind kind;
    unsigned scopes;    /* of enum edge_scope */
    uint64_t expires_s; /* since 1970; 0: never */
    const char *id;     /* of the key; the subject of a token or certificate */
    const char *name;   /* for people */
    const char *tenant; /* never empty */
    const char *models; /* a pattern, see edge_pattern_match */
    const char *quota;  /* quota class, never empty */
};

/* What to make one of. Strings are copied; an empty tenant or class becomes "default", an empty pattern "*". */
struct edge_identity_spec {
    enum edge_kind kind;
    unsigned scopes;
    uint64_t expires_s;
    struct str id, name, tenant, models, quota;
};

/* With one reference; NULL when out of memory. */
struct edge_identity *edge_identity_create(const struct edge_identity_spec *s);
struct edge_identity *edge_identity_ref(struct edge_identity *i);
void edge_identity_unref(struct edge_identity *i); /* NULL is accepted */

/* May it know of this model at all? */
bool edge_sees_model(const struct edge_identity *i, struct str model);
/* May it know of every model, whatever its name? */
bool edge_sees_every_model(const struct edge_identity *i);

/* "infer,read" or "infer read" into bits. INVALID names the word; empty is INVALID, too. */
int edge_scopes_parse(struct str text, unsigned *out, struct error *err) MUST_CHECK;
/* "infer,read" appended. */
void edge_scopes_render(unsigned scopes, struct buf *out);

/* Is a pattern well-formed: names with * (any characters) and ? (one), separated by commas, 256 bytes at most? */
bool edge_pattern_valid(struct str pattern);
/* Does one of the comma-separated parts match the whole name? Linear in pattern times name. */
bool edge_pattern_match(struct str pattern, struct str name);

/* Tenants, key names and quota classes: 1 to 64 of A-Z a-z 0-9 . _ - @ : / */
bool edge_label_valid(struct str label);

#endif
