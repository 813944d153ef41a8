/* dial.h: a connection that we make, on a loop: TCP or unix, plain or TLS, up to the point where bytes flow. What they mean is the owner's
 * (http_channel, http2_channel).
 *
 *     CLOSED --start--> CONNECTING --(TLS: SHAKING)--> UP        any --failure--> CLOSED: failed()       close: quietly
 *
 * Loop-owned, embedded in its owner, one thread. Callbacks may close it and start it again; its memory must outlive the iteration in which
 * it is closed when it speaks TLS (loop_defer). */
#ifndef INFERD_NET_DIAL_H
#define INFERD_NET_DIAL_H

#include "net/loop.h"
#include "net/tls.h"
#include "os/sock.h"

/* How to speak TLS with a server; NULL where one is taken: plain. Borrowed from start to close. */
struct dial_tls {
    struct tls_client *client;
    const char *host; /* a name or an address: whom the server must prove to be */
    struct tls_resume *resume;
};

struct dial {
    /* set by the owner */
    struct loop *loop;
    void *user;
    void (*connected)(struct dial *d);
    void (*failed)(struct dial *d,
                   const struct error *err);        /* no connection came about; closed by then. d->tls_failed: it was TLS */
    void (*ready)(struct dial *d, uint32_t events); /* UP: as loop_fd.ready */
    /* read-only */
    bool tls_failed, refused; /* refused: nobody listens there */
    enum tls_fault tls_fault; /* tls_failed: why */
    struct tls_conn *tls;     /* NULL: plain, or closed */
    /* private */
    struct loop_fd watch;
    struct loop_task more;
    const struct dial_tls *how;
    uint8_t state;
    bool more_queued;
};

void dial_init(struct dial *d, struct loop *loop);
/* Begin; then connected() or failed(), maybe from within this call. */
void dial_start(struct dial *d, const struct os_addr *addr, const struct dial_tls *tls);
/* Says goodbye where TLS has a way; idempotent. */
void dial_close(struct dial *d);

/* UP only. As os_sock_read and os_sock_write. */
ssize_t dial_read(struct dial *d, void *p, size_t n);
ssize_t dial_write(struct dial *d, const struct os_iov *v, size_t n);
/* No more will be written: the peer reads the end; reading goes on. */
void dial_shut(struct dial *d);
/* What ready() is wanted for (LOOP_READ ...). Over TLS also sees to bytes that are decrypted already, and to what TLS has to write. */
void dial_want(struct dial *d, uint32_t interest);

#endif
