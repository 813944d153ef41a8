/* redis_url.h: where a Redis is and as whom to talk to it.
 *
 *     redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]      rediss:// the same over TLS
 *     unix:/PATH[?db=DB]
 *
 * USER and PASSWORD are percent-decoded. Without USER the password is the server's one (or the ACL user "default"). Pure. */
#ifndef INFERD_CLUSTER_REDIS_URL_H
#define INFERD_CLUSTER_REDIS_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define REDIS_CREDENTIAL_BYTES 512
#define REDIS_DB_MAX           65535

struct redis_url {
    char address[300]; /* "HOST:PORT" or "unix:/PATH", as os_addr_resolve takes it; safe to show */
    char host[256];    /* as a certificate names it; empty for unix */
    bool tls, numeric; /* numeric: nothing has to be resolved */
    char user[REDIS_CREDENTIAL_BYTES], password[REDIS_CREDENTIAL_BYTES]; /* "": none */
    uint32_t db;
};

/* INVALID says what is accepted and never shows the credentials. */
int redis_url_parse(const char *text, struct redis_url *out, struct error *err) MUST_CHECK;

#endif
