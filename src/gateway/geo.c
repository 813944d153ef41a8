/* geo.c: where a client is, by a file in MaxMind's format, and which zone is preferred for it. The file is mapped, so the whole of a large one costs
 * what is looked at; one that is replaced (by a rename, as geoipupdate does) is taken in its turn by the resolver thread, and one that can't be
 * read leaves the old one in place. A look-up is a walk of at most 128 steps, under the pool's lock. */
#include <maxminddb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"

#define PATH_PARTS 8
#define TEXT_BYTES 128

struct geo {
    MMDB_s db;
    char path[TEXT_BYTES];
    const char *parts[PATH_PARTS + 1]; /* into path; NULL-terminated */
};

int geo__open(const struct gateway_pool *o, struct geo **out, struct error *err)
{
    struct geo *g = calloc(1, sizeof *g);
    size_t n = 0;
    *out = NULL;
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for %s", o->geo.file);
    int rc = MMDB_open(o->geo.file, MMDB_MODE_MMAP, &g->db);
    if (rc != MMDB_SUCCESS) {
        free(g);
        return error_set(err, STATUS_INVALID, "geo.file of pool \"%s\": %s: %s", o->name, o->geo.file, MMDB_strerror(rc));
    }
    snprintf(g->path, sizeof g->path, "%s", o->geo.path);
    for (char *part = g->path; part && n < PATH_PARTS;) {
        char *dot = strchr(part, '.');
        g->parts[n++] = part;
        if (dot)
            *dot++ = 0;
        part = dot;
    }
    *out = g;
    return 0;
}

void geo__close(struct geo *g)
{
    if (!g)
        return;
    MMDB_close(&g->db);
    free(g);
}

/* The text at the path in the record of `address`; empty when there is none. Borrowed from the file. */
static struct str find(struct geo *g, struct str address)
{
    char text[64];
    int bad_address, rc;
    MMDB_entry_data_s data;
    snprintf(text, sizeof text, "%.*s", STR_ARG(address));
    MMDB_lookup_result_s r = MMDB_lookup_string(&g->db, text, &bad_address, &rc);
    if (bad_address || rc != MMDB_SUCCESS || !r.found_entry)
        return (struct str){0};
    rc = MMDB_aget_value(&r.entry, &data, g->parts);
    if (rc != MMDB_SUCCESS || !data.has_data || data.type != MMDB_DATA_TYPE_UTF8_STRING)
        return (struct str){0};
    return (struct str){data.utf8_string, data.data_size};
}

/* "VALUE=zone" of the list. */
static struct str zone_of(const struct gateway_words *zones, struct str value)
{
    for (size_t i = 0; value.n && i < zones->n; i++) {
        const char *eq = strchr(zones->v[i], '=');
        if (eq && str_ieq(value, (struct str){zones->v[i], (size_t)(eq - zones->v[i])}))
            return str_of(eq + 1);
    }
    return (struct str){0};
}

uint32_t geo__zone(struct gateway_live *p, struct str address)
{
    os_mutex_lock(&p->lock);
    struct str zone = p->geo ? zone_of(&p->o.geo.zones, find(p->geo, address)) : (struct str){0};
    os_mutex_unlock(&p->lock);
    return gateway__find_zone(p->g, zone); /* in the pool's own memory */
}

void geo__refresh(struct gateway_live *p)
{
    struct geo *fresh;
    struct error err;
    if (geo__open(&p->o, &fresh, &err) < 0) {
        LOG(p->g->o.log, LOG_WARN, "geo_file_unusable", LOG_S("pool", p->o.name), LOG_S("reason", err.text));
        metric_inc(p->lookup_failures);
        return;
    }
    os_mutex_lock(&p->lock);
    struct geo *old = p->geo;
    p->geo = fresh;
    os_mutex_unlock(&p->lock);
    geo__close(old);
}
