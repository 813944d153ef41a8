/* dial.c: connecting, the TLS handshake, and the two things about TLS that a socket's reader doesn't know: decrypted bytes that no
 * readiness announces (`more`: a task at the end of the iteration), and reads that wait for room to write. */
#include "net/dial.h"

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "os/file.h"

enum dial_state { DIAL_CLOSED, DIAL_CONNECTING, DIAL_SHAKING, DIAL_UP };

static void watch_ready(struct loop_fd *w, uint32_t events);

static void run_more(struct loop_task *t)
{
    struct dial *d = CONTAINER_OF(t, struct dial, more);
    d->more_queued = false;
    if (d->state == DIAL_UP && d->watch.interest & LOOP_READ)
        d->ready(d, LOOP_READ);
}

void dial_init(struct dial *d, struct loop *loop)
{
    *d = (struct dial){.loop = loop, .watch = {.fd = -1, .ready = watch_ready}, .more.run = run_more};
}

void dial_close(struct dial *d)
{
    if (d->state == DIAL_CLOSED)
        return;
    d->state = DIAL_CLOSED;
    if (d->tls)
        tls_conn_finish(d->tls);
    tls_conn_destroy(d->tls);
    d->tls = NULL;
    loop_fd_remove(d->loop, &d->watch);
    os_close(d->watch.fd);
    d->watch.fd = -1;
}

static void fail(struct dial *d, const struct error *err)
{
    dial_close(d);
    d->failed(d, err);
}

static void shake(struct dial *d)
{
    struct error err;
    int rc = tls_conn_handshake(d->tls, &err);
    if (rc == STATUS_AGAIN) {
        loop_fd_set(d->loop, &d->watch, tls_conn_wants_write(d->tls) ? LOOP_WRITE : LOOP_READ);
    } else if (rc) {
        d->tls_failed = true;
        d->tls_fault = tls_conn_fault(d->tls);
        fail(d, &err);
    } else {
        d->state = DIAL_UP;
        dial_want(d, LOOP_READ);
        d->connected(d);
    }
}

static void set_connected(struct dial *d)
{
    struct error err;
    if (!d->how) {
        d->state = DIAL_UP;
        loop_fd_set(d->loop, &d->watch, LOOP_READ);
        d->connected(d);
        return;
    }
    d->tls = tls_client_resume(d->how->client, d->watch.fd, d->how->host, d->how->resume);
    if (!d->tls) {
        error_set(&err, STATUS_NOMEM, "out of memory for TLS");
        fail(d, &err);
        return;
    }
    d->state = DIAL_SHAKING;
    shake(d);
}

void dial_start(struct dial *d, const struct os_addr *addr, const struct dial_tls *tls)
{
    struct error err;
    int fd;
    ASSERT(d->state == DIAL_CLOSED);
    d->tls_failed = d->refused = false;
    d->how = tls;
    int rc = os_sock_connect(addr, &fd, &err);
    if (rc && rc != STATUS_AGAIN) {
        d->failed(d, &err);
        return;
    }
    d->watch.fd = fd;
    if (loop_fd_add(d->loop, &d->watch, rc ? LOOP_WRITE : LOOP_READ, &err)) {
        os_close(fd);
        d->watch.fd = -1;
        d->failed(d, &err);
        return;
    }
    d->state = DIAL_CONNECTING;
    if (rc == 0)
        set_connected(d);
}

static void watch_ready(struct loop_fd *w, uint32_t events)
{
    struct dial *d = CONTAINER_OF(w, struct dial, watch);
    struct error err;
    switch ((enum dial_state)d->state) {
    case DIAL_CONNECTING:
        if (os_sock_connected_why(w->fd, &d->refused, &err))
            fail(d, &err);
        else if (events & LOOP_WRITE)
            set_connected(d);
        return;
    case DIAL_SHAKING:
        shake(d);
        return;
    case DIAL_UP:
        if (d->tls && events & LOOP_WRITE && tls_conn_wants_write(d->tls))
            events |= LOOP_READ;
        d->ready(d, events);
        return;
    case DIAL_CLOSED:
        return;
    }
}

ssize_t dial_read(struct dial *d, void *p, size_t n)
{
    return d->tls ? tls_conn_read(d->tls, p, n) : os_sock_read(d->watch.fd, p, n);
}

ssize_t dial_write(struct dial *d, const struct os_iov *v, size_t n)
{
    return d->tls ? tls_conn_write(d->tls, v, n) : os_sock_write(d->watch.fd, v, n);
}

void dial_shut(struct dial *d)
{
    if (d->tls)
        tls_conn_finish(d->tls);
    os_sock_shutdown(d->watch.fd);
}

void dial_want(struct dial *d, uint32_t interest)
{
    if (d->tls && interest & LOOP_READ && tls_conn_has_more(d->tls) && !d->more_queued) {
        d->more_queued = true;
        loop_defer(d->loop, &d->more);
    }
    if (d->tls && tls_conn_wants_write(d->tls))
        interest |= LOOP_WRITE;
    loop_fd_set(d->loop, &d->watch, interest);
}
