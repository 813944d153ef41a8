/* report.c: what servers say of themselves. A header of an answer costs nothing and is as fresh as the traffic; a metrics page or an agent's
 * line is polled on the check thread, so that a server without traffic is known too. Reading is route/report.h's, what follows from it the
 * pool's.
 *
 * A page is asked for as the pool's requests are (TLS, HTTP/2), or plainly where it is on a port of its own, over a connection that is kept; an agent
 * answers each connection with a line and closes it. A poll that fails is counted and says nothing: the load that was reported ages out by
 * itself, and whether a server is there at all is for checks and requests to find. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "os/file.h"
#include "route/report.h"

#define PAGE_BYTES_MAX (4u << 20)
#define LINE_BYTES_MAX 256

struct server_poll {
    struct attendant who;
    struct loop_timer timer; /* next poll, or the end of this one */
    struct loop_task reap;
    char address[OS_ADDR_TEXT_BYTES]; /* that is asked */
    struct os_addr addr;              /* the same */
    bool agent, running;
    struct buf text; /* what has come of the page or the line */
    /* a page's */
    struct exchange x;
    struct arena arena;
    struct http_header headers[2];
    struct exchange_request request;
    /* an agent's */
    struct loop_fd watch;
};

static void apply(struct gateway_live *p, struct upstream *u, const struct upstream_report *r, uint64_t now)
{
    if (u)
        pool_reported(p->pool, u, r, now);
    if ((r->has_says && r->says == UPSTREAM_READY) || r->has_load)
        live_wake_one(p);
}

void report__head(struct forward *f)
{
    struct upstream_report r;
    struct error err;
    struct str value = f->p->o.report.headers ? exchange_header(&f->x, "endpoint-load-metrics") : (struct str){0};
    if (!value.p)
        return;
    if (report_read_header(value, &r, &err) < 0) {
        metric_inc(f->p->report_failures);
        return;
    }
    os_mutex_lock(&f->p->lock);
    apply(f->p, f->pick.upstream, &r, loop_now_ns(f->home->loop));
    os_mutex_unlock(&f->p->lock);
}

/* ---- one poll ---- */

static void close_agent(struct server_poll *s)
{
    if (s->watch.fd < 0)
        return;
    loop_fd_remove(s->who.p->g->loop, &s->watch);
    os_close(s->watch.fd);
    s->watch.fd = -1;
}

static void ended(struct server_poll *s, bool answered)
{
    struct loop *loop = s->who.p->g->loop;
    uint64_t now = loop_update_now(loop);
    struct upstream_report r;
    struct error err;
    int rc = !answered  ? STATUS_UNAVAILABLE
             : s->agent ? report_read_agent(buf_str(&s->text), &r, &err)
                        : report_read_metrics(buf_str(&s->text), &r, &err);
    s->running = false;
    close_agent(s);
    exchange_drop(&s->x); /* nothing where it is over */
    if (rc < 0) {
        metric_inc(s->who.p->report_failures);
    } else {
        os_mutex_lock(&s->who.p->lock);
        apply(s->who.p, check__find(s->who.p, s->who.name), &r, now);
        os_mutex_unlock(&s->who.p->lock);
    }
    loop_timer_start(loop, &s->timer, now + s->who.p->o.report.interval);
}

static struct server_poll *of(struct exchange *x)
{
    return CONTAINER_OF(x, struct server_poll, x);
}

static void on_connected(struct exchange *x)
{
    exchange_send(x, &of(x)->request);
}

static void on_head(struct exchange *x)
{
    (void)x;
}

static void on_body(struct exchange *x, struct str part)
{
    struct server_poll *s = of(x);
    if (s->text.n + part.n > PAGE_BYTES_MAX)
        ended(s, false);
    else
        buf_append_str(&s->text, part);
}

static void on_done(struct exchange *x)
{
    struct server_poll *s = of(x);
    ended(s, x->status == 200 && !s->text.failed);
}

static void on_failed(struct exchange *x, const struct error *err)
{
    (void)err;
    if (of(x)->running)
        ended(of(x), false);
}

static struct str on_pending(struct exchange *x, bool *last)
{
    (void)x;
    *last = true;
    return (struct str){0};
}

static void on_taken(struct exchange *x, size_t n)
{
    (void)x, (void)n;
}

static const struct exchange_events events = {.connected = on_connected,
                                              .head = on_head,
                                              .body = on_body,
                                              .done = on_done,
                                              .failed = on_failed,
                                              .pending = on_pending,
                                              .taken = on_taken};

static void ask_page(struct server_poll *s)
{
    struct gateway_live *p = s->who.p;
    struct gateway_loop *home = peers_of_loop(p->g, p->g->loop);
    arena_clear(&s->arena);
    if (!home || exchange_take(&s->x, home, p->plain ? p->plain : p->transport, str_of(s->address), str_of(s->who.host)))
        return; /* no memory: the timer says that it failed */
    if (s->x.connecting)
        exchange_connect(&s->x);
    else
        exchange_send(&s->x, &s->request);
}

static void on_agent(struct loop_fd *w, uint32_t what)
{
    struct server_poll *s = CONTAINER_OF(w, struct server_poll, watch);
    char part[LINE_BYTES_MAX];
    ssize_t n = os_sock_read(w->fd, part, sizeof part);
    (void)what;
    if (n == STATUS_AGAIN)
        return;
    if (n > 0)
        buf_append(&s->text, part, (size_t)n);
    bool line = s->text.n && memchr(s->text.p, '\n', s->text.n);
    if (n <= 0 || line || s->text.n >= LINE_BYTES_MAX)
        ended(s, !s->text.failed && s->text.n > 0);
}

static void ask_agent(struct server_poll *s)
{
    struct error err;
    int fd;
    int rc = os_sock_connect(&s->addr, &fd, &err);
    if (rc < 0 && rc != STATUS_AGAIN) {
        ended(s, false);
        return;
    }
    s->watch = (struct loop_fd){.fd = fd, .ready = on_agent};
    if (loop_fd_add(s->who.p->g->loop, &s->watch, LOOP_READ, &err) < 0) {
        os_close(fd);
        s->watch.fd = -1;
        ended(s, false);
    }
}

static void on_timer(struct loop_timer *t)
{
    struct server_poll *s = CONTAINER_OF(t, struct server_poll, timer);
    if (s->running) {
        ended(s, false);
        return;
    }
    s->running = true;
    buf_clear(&s->text);
    loop_timer_start(s->who.p->g->loop, &s->timer, loop_now_ns(s->who.p->g->loop) + s->who.p->o.report.timeout);
    if (s->agent)
        ask_agent(s);
    else
        ask_page(s);
}

/* ---- which polls there are ---- */

static struct attendant *poll_start(const struct attendant *who, bool agent)
{
    struct server_poll *s = calloc(1, sizeof *s);
    struct gateway_live *p = who->p;
    uint32_t port = agent ? p->o.report.agent_port : p->o.report.port;
    struct error err;
    if (!s || os_addr_parse(who->name, &s->addr, &err) < 0) {
        free(s);
        return NULL;
    }
    s->who = *who;
    if (port)
        os_addr_set_port(&s->addr, (uint16_t)port);
    os_addr_text(&s->addr, s->address);
    s->agent = agent;
    s->watch.fd = -1;
    buf_init(&s->text);
    arena_init(&s->arena, 4096, 1 << 20);
    s->x = (struct exchange){.events = &events, .arena = &s->arena};
    s->headers[0] = (struct http_header){STR("User-Agent"), str_of(p->g->via)};
    s->headers[1] = (struct http_header){STR("Accept"), STR("text/plain")};
    s->request = (struct exchange_request){.method = STR("GET"),
                                           .path = str_of(p->o.report.path),
                                           .authority = str_of(s->who.host[0] ? s->who.host : s->address),
                                           .headers = s->headers,
                                           .n_headers = COUNT_OF(s->headers)};
    loop_timer_init(&s->timer, on_timer);
    loop_timer_start(p->g->loop, &s->timer, loop_now_ns(p->g->loop));
    return &s->who;
}

static struct attendant *page_start(const struct attendant *who)
{
    return poll_start(who, false);
}

static struct attendant *agent_start(const struct attendant *who)
{
    return poll_start(who, true);
}

static void reap(struct loop_task *t)
{
    struct server_poll *s = CONTAINER_OF(t, struct server_poll, reap);
    arena_release(&s->arena);
    buf_release(&s->text);
    free(s);
}

static void poll_stop(struct attendant *a)
{
    struct server_poll *s = CONTAINER_OF(a, struct server_poll, who);
    struct loop *loop = a->p->g->loop;
    s->running = false;
    loop_timer_stop(loop, &s->timer);
    exchange_drop(&s->x);
    close_agent(s);
    s->reap.run = reap;
    loop_defer(loop, &s->reap);
}

static const struct attendant_kind page = {.start = page_start, .stop = poll_stop},
                                   agent = {.start = agent_start, .stop = poll_stop};

void report__tend(struct gateway_live *p)
{
    check__attend(p, &p->pages, &page, p->o.report.path[0]);
    check__attend(p, &p->agents, &agent, p->o.report.agent_port);
}

void report__stop(struct gateway_live *p)
{
    check__dismiss(&p->pages, &page);
    check__dismiss(&p->agents, &agent);
}
