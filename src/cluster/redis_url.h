/* redis_url.h: where a Redis is and as whom to talk to it.
 *
 *     redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]      rediss:// the same over TLS
 *     unix:/PATH[?db=DB]
 *     redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/MASTER[/DB]     whoever these sentinels say is MASTER
 *
 * USER and PASSWORD are percent-decoded. Without USER the password is the server's one (or the ACL user "default"). Pure. */
#ifndef INFERD_CLUSTER_REDIS_URL_H
#define INFERD_CLUSTER_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define REDIS_CREDENTIAL_BYTES 512
#define REDIS_DB_MAX           65535

#define REDIS_SENTINELS_MAX 8
#define REDIS_ADDRESS_BYTES 300

struct redis_url {
    /* "HOST:PORT" or "unix:/PATH", as os_addr_resolve takes it; safe to show. Of a master: "sentinel/MASTER" */
    char address[REDIS_ADDRESS_BYTES];
    char host[256];                                                      /* as a certificate names it; empty for unix */
    bool tls, numeric;                                                   /* numeric: nothing has to be resolved */
    char user[REDIS_CREDENTIAL_BYTES], password[REDIS_CREDENTIAL_BYTES]; /* "": none */
    uint32_t db;
    struct {
        char host[256];
        uint16_t port;
    } sentinels[REDIS_SENTINELS_MAX];
    size_t n_sentinels; /* 0: the address is the Redis's own */
    char master[128];
};

/* INVALID says what is accepted and never shows the credentials. */
int redis_url_parse(const char *text, struct redis_url *out, struct error *err) MUST_CHECK;

#endif
