/* line_server.c: see the header. */
#include "net/line_server.h"

#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "net/loop.h"
#include "os/file.h"
#include "os/sock.h"
#include "os/thread.h"

#define AT_ONCE  64           /* connections of an iteration */
#define PAUSE_NS 100000000ull /* without descriptors */

struct place {
    struct loop_fd watch;
    struct line_server *s;
    struct os_addr addr;
    char text[OS_ADDR_TEXT_BYTES];
};

struct line_server {
    struct line_server_options o;
    struct loop *loop;
    struct loop_timer pause;
    struct os_thread thread;
    struct buf line;
    bool runs;
    size_t n;
    struct place places[];
};

static void listen_again(struct loop_timer *t)
{
    struct line_server *s = CONTAINER_OF(t, struct line_server, pause);
    for (size_t i = 0; i < s->n; i++)
        loop_fd_set(s->loop, &s->places[i].watch, LOOP_READ | LOOP_NO_RDHUP);
}

static void pause_all(struct line_server *s)
{
    for (size_t i = 0; i < s->n; i++)
        loop_fd_set(s->loop, &s->places[i].watch, LOOP_NO_RDHUP);
    loop_timer_start(s->loop, &s->pause, loop_now_ns(s->loop) + PAUSE_NS);
}

/* What the client may have sent is read once: a connection that is closed with something unread is reset, and the line may be lost. */
static void tell(struct line_server *s, int fd)
{
    char unread[256];
    buf_clear(&s->line);
    s->o.say(s->o.ctx, &s->line);
    if (!s->line.failed && s->line.n) {
        struct os_iov v = {s->line.p, s->line.n};
        if (os_sock_write(fd, &v, 1) == (ssize_t)s->line.n)
            os_sock_shutdown(fd);
        if (os_sock_read(fd, unread, sizeof unread) < 0)
            unread[0] = 0;
    }
    os_close(fd);
}

static void on_ready(struct loop_fd *w, uint32_t events)
{
    struct place *p = CONTAINER_OF(w, struct place, watch);
    (void)events;
    for (int i = 0; i < AT_ONCE; i++) {
        struct os_addr peer;
        int fd = os_sock_accept(w->fd, &peer);
        if (fd >= 0)
            tell(p->s, fd);
        else if (fd == STATUS_EXHAUSTED)
            pause_all(p->s);
        if (fd == STATUS_AGAIN || fd == STATUS_EXHAUSTED)
            return;
    }
}

static int open_place(struct line_server *s, struct place *p, const char *address, struct error *err)
{
    p->s = s;
    p->watch = (struct loop_fd){.fd = -1, .ready = on_ready};
    int rc = os_addr_parse(address, &p->addr, err);
    if (rc == 0)
        rc = os_sock_listen(&p->addr, false, 0600, &p->watch.fd, err);
    if (rc == 0 && !os_addr_is_unix(&p->addr))
        rc = os_sock_local(p->watch.fd, &p->addr, err);
    if (rc == 0)
        rc = loop_fd_add(s->loop, &p->watch, LOOP_READ | LOOP_NO_RDHUP, err);
    if (rc == 0)
        os_addr_text(&p->addr, p->text);
    return rc;
}

static void run(void *arg)
{
    struct line_server *s = arg;
    loop_run(s->loop);
}

int line_server_start(const struct line_server_options *o, struct line_server **out, struct error *err)
{
    struct line_server *s = calloc(1, sizeof *s + o->n_listen * sizeof s->places[0]);
    if (!s)
        return error_set(err, STATUS_NOMEM, "out of memory for a listener");
    s->o = *o;
    buf_init(&s->line);
    loop_timer_init(&s->pause, listen_again);
    int rc = loop_create(&s->loop, err);
    for (size_t i = 0; i < o->n_listen && rc == 0; i++, s->n++)
        rc = open_place(s, &s->places[i], o->listen[i], err);
    if (rc == 0)
        rc = os_thread_start(&s->thread, o->name, run, s, err);
    s->runs = rc == 0;
    if (rc) {
        line_server_stop(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *line_server_address(const struct line_server *s, size_t i)
{
    return s->places[i].text;
}

void line_server_stop(struct line_server *s)
{
    if (!s)
        return;
    if (s->runs) {
        loop_stop(s->loop);
        os_thread_join(&s->thread);
    }
    for (size_t i = 0; i < s->n; i++) {
        struct place *p = &s->places[i];
        if (p->watch.fd >= 0 && p->text[0])
            loop_fd_remove(s->loop, &p->watch);
        if (p->watch.fd >= 0 && os_addr_is_unix(&p->addr))
            os_sock_unlink(&p->addr);
        os_close(p->watch.fd);
    }
    if (s->loop)
        loop_destroy(s->loop);
    buf_release(&s->line);
    free(s);
}
