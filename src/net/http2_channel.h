/* http2_channel.h: a client's HTTP/2 connection on a loop: the bytes of a wire/http2_client.h over a dial.h. The calls, and what is heard of them,
 * are the owner's, who uses the session directly and then says http2_channel_flush_soon.
 *
 * Loop-owned; a callback of the session's must not destroy it (loop_defer). */
#ifndef INFERD_NET_HTTP2_CHANNEL_H
#define INFERD_NET_HTTP2_CHANNEL_H

#include "net/dial.h"
#include "wire/http2_client.h"

struct http2_channel {
    struct dial *dial; /* borrowed; its ready() and user are ours from now on */
    struct http2_client *session;
    void *user; /* given to `over` */
    /* The connection is over, and closed: calls that are left get no events any more. */
    void (*over)(struct http2_channel *ch, const struct error *err);
    /* private */
    uint8_t *rest; /* written by nobody yet */
    size_t rest_at, rest_n;
    struct loop_task flush;
    struct loop_timer timer;
    uint64_t ping_ns, heard_ns;              /* after so long without a word, ask; when the last came */
    bool flush_queued, closed, pinged, busy; /* busy: the session is at work, and can't be asked for output */
};

/* On a dial that is connected. `events` get `user`. `ping_ns`: while calls are under way and nothing comes for so long, ask with PING, and give the
 * connection up when as long again brings nothing; 0: never. STATUS_NOMEM. */
int http2_channel_create(struct dial *dial, const struct http2_client_events *events, void *user, uint64_t ping_ns,
                         struct http2_channel **out, struct error *err) MUST_CHECK;
/* Closed, or its dial closed by the owner. NULL is accepted. */
void http2_channel_destroy(struct http2_channel *ch);
/* Say goodbye as far as the socket takes it, and close the dial; `over` is not called. Idempotent. */
void http2_channel_close(struct http2_channel *ch);
/* Write what the session has to say at the end of the iteration. */
void http2_channel_flush_soon(struct http2_channel *ch);

#endif
