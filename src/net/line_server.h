/* line_server.h: tells whoever connects a line and hangs up: HAProxy's agent-check, and nothing that needs a request.
 *
 * One thread with a loop of its own. A connection lives as long as its line takes to be handed to the kernel, which has room for it; so
 * nothing is kept for any of them, and there is nothing to limit. */
#ifndef INFERD_NET_LINE_SERVER_H
#define INFERD_NET_LINE_SERVER_H

#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

struct line_server;

struct line_server_options {
    const char *const *listen; /* [n_listen] HOST:PORT or unix:/path; port 0: a free one */
    size_t n_listen;
    const char *name; /* of the thread */
    /* The line, with its end, appended to `line`; on the server's thread, for each connection. Nothing appended: it is hung up on. */
    void (*say)(void *ctx, struct buf *line);
    void *ctx;
};

/* STATUS_CONFLICT: somebody listens there. */
int line_server_start(const struct line_server_options *o, struct line_server **out, struct error *err) MUST_CHECK;
/* Where it listens, with the port that it got. */
const char *line_server_address(const struct line_server *s, size_t i);
void line_server_stop(struct line_server *s); /* `say` is not called any more; NULL is accepted */

#endif
