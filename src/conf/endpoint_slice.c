/* endpoint_slice.c: what kind of list a file holds is told by its outermost node: a list, or a map with `kind`. */
#include "conf/endpoint_slice.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/yaml.h"

#define SERVERS_MAX 1024

struct slice_reader {
    const char *where, *port;
    struct arena *arena;
    struct error *err;
    struct gateway_server *list; /* [SERVERS_MAX] */
    size_t n;
};

static bool is_kind(const struct node *n, const char *kind)
{
    const struct node *k = node_get(n, "kind");
    return k && k->kind == NODE_SCALAR && str_eqz(k->text, kind);
}

/* A condition that isn't there, or null, means yes for `ready`. */
static bool is_ready(const struct node *endpoint)
{
    const struct node *ready = node_get(node_get(endpoint, "conditions"), "ready");
    return !ready || node_is_null(ready) || str_eqz(ready->text, "true");
}

static int wrong(struct slice_reader *r, const struct node *n, const char *what)
{
    return node_error(r->err, r->where, n ? n->line : 0, STATUS_INVALID, "%s", what);
}

/* The port to connect to: 0 and an error when there is none of the name. */
static int find_port(struct slice_reader *r, const struct node *slice, uint64_t *out)
{
    const struct node *ports = node_get(slice, "ports");
    for (const struct node *p = ports && ports->kind == NODE_LIST ? ports->first : NULL; p; p = p->next) {
        const struct node *name = node_get(p, "name"), *port = node_get(p, "port");
        if (r->port[0] && !(name && name->kind == NODE_SCALAR && str_eqz(name->text, r->port)))
            continue;
        if (!port || port->kind != NODE_SCALAR || !str_to_u64(port->text, out) || !*out || *out > 65535)
            return wrong(r, p, "a port of an EndpointSlice is a number in 1..65535");
        return 0;
    }
    return node_error(r->err, r->where, slice->line, STATUS_INVALID,
                      r->port[0] ? "the EndpointSlice has no port '%s'%s" : "%s%s",
                      r->port[0] ? r->port : "the EndpointSlice has no ports", r->port[0] ? " (servers_port)" : "");
}

static int add_address(struct slice_reader *r, const struct node *a, uint64_t port, const char *zone)
{
    char text[300];
    if (a->kind != NODE_SCALAR || !a->text.n || a->text.n > 255)
        return wrong(r, a, "an address of an endpoint is a text of 1 to 255 characters");
    if (r->n == SERVERS_MAX)
        return wrong(r, a, "the file has more than 1024 servers");
    bool v6 = memchr(a->text.p, ':', a->text.n) != NULL;
    snprintf(text, sizeof text, v6 ? "[%.*s]:%u" : "%.*s:%u", STR_ARG(a->text), (unsigned)port);
    struct gateway_server *s = &r->list[r->n];
    const char *address = arena_strdup(r->arena, str_of(text));
    if (!address || gateway_server_init(r->arena, address, zone, s) < 0)
        return error_set(r->err, STATUS_NOMEM, "out of memory for the servers in %s", r->where);
    r->n++;
    return 0;
}

static int read_endpoint(struct slice_reader *r, const struct node *e, uint64_t port)
{
    const struct node *addresses = node_get(e, "addresses"), *zone = node_get(e, "zone");
    const char *name = "";
    if (!addresses || addresses->kind != NODE_LIST || !addresses->n)
        return wrong(r, e, "an endpoint needs 'addresses': a list of texts");
    if (!is_ready(e))
        return 0;
    if (zone && !node_is_null(zone)) {
        if (zone->kind != NODE_SCALAR || zone->text.n > 63)
            return wrong(r, zone, "an endpoint's zone is a text of at most 63 characters");
        name = arena_strdup(r->arena, zone->text);
    }
    if (!name)
        return error_set(r->err, STATUS_NOMEM, "out of memory for the servers in %s", r->where);
    /* its addresses are the same endpoint, and consumers are to use the first (the API's own words) */
    return add_address(r, addresses->first, port, name);
}

static int read_slice(struct slice_reader *r, const struct node *slice)
{
    const struct node *endpoints = node_get(slice, "endpoints");
    uint64_t port;
    if (!is_kind(slice, "EndpointSlice"))
        return wrong(r, slice, "the file is neither a list of servers nor an EndpointSlice, nor a List of them");
    if (!endpoints || node_is_null(endpoints) || !endpoints->n)
        return 0;
    if (endpoints->kind != NODE_LIST)
        return wrong(r, endpoints, "'endpoints' must be a list");
    int rc = find_port(r, slice, &port);
    for (const struct node *e = endpoints->first; e && !rc; e = e->next)
        rc = read_endpoint(r, e, port);
    return rc;
}

int endpoint_file_read(struct str text, const char *where, const char *port, struct arena *arena, struct gateway_server **out,
                       size_t *n, struct error *err)
{
    struct slice_reader r = {.where = where, .port = port, .arena = arena, .err = err};
    struct node *root;
    int rc = yaml_parse(text, where, arena, &root, err);
    if (rc)
        return rc;
    if (root->kind == NODE_LIST)
        return gateway_servers_read(root, where, arena, out, n, err);
    r.list = arena_array(arena, SERVERS_MAX, sizeof *r.list);
    if (!r.list)
        return error_set(err, STATUS_NOMEM, "out of memory for the servers in %s", where);
    if (is_kind(root, "List") || is_kind(root, "EndpointSliceList")) {
        const struct node *items = node_get(root, "items");
        for (const struct node *i = items ? items->first : NULL; i && !rc; i = i->next)
            rc = read_slice(&r, i);
    } else {
        rc = read_slice(&r, root);
    }
    *out = r.list;
    *n = r.n;
    return rc;
}
