/* table.h: which route of the configuration a request takes: the first that matches, in the order of the file. Pure. */
#ifndef INFERD_ROUTE_TABLE_H
#define INFERD_ROUTE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "conf/gateway_config.h"
#include "wire/http1.h"

struct table_query {
    struct str host; /* with or without a port */
    struct str path; /* as sent, without the query */
    struct str method, model;
    bool model_known; /* false: only what is certain without it counts */
    const struct http_header *headers;
    size_t n_headers;
    uint64_t sticky; /* hash of what must land on the same side each time */
};

enum table_answer {
    TABLE_NONE,  /* no route matches */
    TABLE_ROUTE, /* *out */
    TABLE_MODEL, /* depends on the model, which is not known yet */
};

enum table_answer table_match(const struct gateway_config *c, const struct table_query *q, const struct gateway_route **out);

#endif
