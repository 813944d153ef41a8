/* limits.h: the limits that the tests' servers have, which are those of docs/reference/config.md but for the number of connections. */
#ifndef TESTS_NET_LIMITS_H
#define TESTS_NET_LIMITS_H

#include "net/http.h"

static inline void default_limits(struct http_limits *l)
{
    *l = (struct http_limits){
        .max_connections = 10000,
        .max_header_bytes = 32 << 10,
        .max_headers = 100,
        .max_url_bytes = 8 << 10,
        .max_body_bytes = 64ull << 20,
        .max_inflate_ratio = 100,
        .max_pipeline = 16,
        .max_requests = 0,
        .header_timeout_ns = 10000 * 1000000ull,
        .body_timeout_ns = 30000 * 1000000ull,
        .idle_timeout_ns = 75000 * 1000000ull,
        .write_timeout_ns = 30000 * 1000000ull,
        .handshake_timeout_ns = 10000 * 1000000ull,
        .min_body_rate = 1024,
        .max_body_memory = 1ull << 30,
        .http2_max_streams = 128,
        .http2_window_bytes = 1 << 20,
        .http2_table_bytes = 4 << 10,
        .http2_max_continuations = 8,
        .http2_glitches = 500,
        .http2_glitch_rate = 50,
        .max_tunnels = 4096,
    };
}

#endif
