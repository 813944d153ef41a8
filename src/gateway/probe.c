/* probe.c: active checks. One is a request on a connection of its own, closed afterwards: that a new connection can be made is part of what is
 * checked. Three kinds:
 *
 *   a GET of a path            2xx passes (readiness as inferd, KServe and Triton have it: /v2/health/ready, /v2/models/NAME/ready)
 *   a canary                   a POST with a body, a real inference: 2xx passes, and the answer holds the text that is expected
 *   gRPC                       grpc.health.v1.Health/Check, over HTTP/2: SERVING passes
 *
 * A check belongs to a pool's server by name; servers that left lose theirs at the next round. Everything here is the check thread's. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "wire/grpc_frame.h"

#define ANSWER_MAX  (256u << 10) /* of an answer that is looked into */
#define GRPC_PREFIX 5
#define SERVING     "\x08\x01" /* HealthCheckResponse{status: SERVING}: field 1, varint 1 */

struct server_check {
    struct attendant who;
    struct exchange x;
    struct arena arena;
    struct loop_timer timer; /* next check, or the end of this one */
    struct loop_task reap;
    struct http_header headers[2];
    struct exchange_request request;
    struct buf body, answer;
    size_t sent;
    bool running;
};

/* ---- one check ---- */

static void ended(struct server_check *c, bool passed)
{
    uint64_t now = loop_update_now(c->who.p->g->loop);
    c->running = false;
    exchange_drop(&c->x);
    os_mutex_lock(&c->who.p->lock);
    struct upstream *u = check__find(c->who.p, c->who.name);
    if (u)
        pool_checked(c->who.p->pool, u, passed, now);
    if (passed)
        live_wake_one(c->who.p);
    os_mutex_unlock(&c->who.p->lock);
    loop_timer_start(c->who.p->g->loop, &c->timer, now + c->who.p->o.check.interval);
}

static struct server_check *of(struct exchange *x)
{
    return CONTAINER_OF(x, struct server_check, x);
}

static void on_connected(struct exchange *x)
{
    exchange_send(x, &of(x)->request);
}

static void on_head(struct exchange *x)
{
    (void)x;
}

static bool looks_inside(const struct server_check *c)
{
    return c->who.p->o.check.grpc || c->who.p->o.check.expect[0];
}

static void on_body(struct exchange *x, struct str part)
{
    struct server_check *c = of(x);
    if (looks_inside(c)) /* the first ANSWER_MAX bytes of it, whatever pieces it comes in */
        buf_append(&c->answer, part.p, MIN_OF(part.n, ANSWER_MAX - c->answer.n));
}

/* Of the trailers, or of a head that is all there is. */
static bool grpc_ok(const struct exchange *x)
{
    struct str status = exchange_header(x, "grpc-status");
    for (size_t i = 0; i < x->n_trailers; i++)
        if (str_ieqz(x->trailers[i].name, "grpc-status"))
            status = x->trailers[i].value;
    return str_eqz(status, "0");
}

static bool passes(const struct server_check *c)
{
    const struct exchange *x = &c->x;
    const struct str answer = buf_str(&c->answer);
    const char *expect = c->who.p->o.check.expect;
    if (c->who.p->o.check.grpc) {
        static const char serving[] = "\0\0\0\0\2" SERVING;
        return x->status == 200 && grpc_ok(x) && answer.n == sizeof serving - 1 && memcmp(answer.p, serving, answer.n) == 0;
    }
    if (x->status / 100 != 2)
        return false;
    return !expect[0] || (answer.n && memmem(answer.p, answer.n, expect, strlen(expect)));
}

static void on_done(struct exchange *x)
{
    ended(of(x), passes(of(x)));
}

static void on_failed(struct exchange *x, const struct error *err)
{
    (void)err;
    if (of(x)->running)
        ended(of(x), false);
}

static struct str on_pending(struct exchange *x, bool *last)
{
    struct server_check *c = of(x);
    *last = true;
    return c->body.n ? (struct str){c->body.p + c->sent, c->body.n - c->sent} : (struct str){0};
}

static void on_taken(struct exchange *x, size_t n)
{
    of(x)->sent += n;
}

static const struct exchange_events events = {.connected = on_connected,
                                              .head = on_head,
                                              .body = on_body,
                                              .done = on_done,
                                              .failed = on_failed,
                                              .pending = on_pending,
                                              .taken = on_taken};

/* Over a connection of its own: that a new one comes about is part of what is checked. */
static void begin(struct server_check *c)
{
    c->running = true;
    c->sent = 0;
    buf_clear(&c->answer);
    arena_clear(&c->arena);
    loop_timer_start(c->who.p->g->loop, &c->timer, loop_now_ns(c->who.p->g->loop) + c->who.p->o.check.timeout);
    struct gateway_loop *home = peers_of_loop(c->who.p->g, c->who.p->g->loop);
    if (!home || exchange_take(&c->x, home, c->who.p->transport, str_of(c->who.name), str_of(c->who.host)))
        return; /* no memory: the timer says that it failed */
    exchange_connect(&c->x);
}

static void on_timer(struct loop_timer *t)
{
    struct server_check *c = CONTAINER_OF(t, struct server_check, timer);
    if (c->running) {
        ended(c, false);
        return;
    }
    begin(c);
}

/* ---- what is asked ---- */

/* HealthCheckRequest{service}: field 1, a text; a name of up to 127 characters has a length of one byte. */
static void write_grpc(struct server_check *c)
{
    const char *service = c->who.p->o.check.service;
    size_t n = strlen(service);
    uint8_t prefix[GRPC_PREFIX];
    grpc_prefix_write(prefix, false, n ? (uint32_t)n + 2 : 0);
    buf_append(&c->body, prefix, sizeof prefix);
    if (!n)
        return;
    buf_append_c(&c->body, '\n');
    buf_append_c(&c->body, (char)n);
    buf_append_z(&c->body, service);
}

static void write_request(struct server_check *c)
{
    const struct gateway_pool *o = &c->who.p->o;
    bool posts = o->check.grpc || o->check.body[0];
    if (o->check.grpc)
        write_grpc(c);
    else
        buf_append_z(&c->body, o->check.body);
    c->headers[0] = (struct http_header){STR("User-Agent"), str_of(c->who.p->g->via)};
    c->headers[1] =
        (struct http_header){STR("Content-Type"), o->check.grpc ? STR("application/grpc") : str_of(o->check.content_type)};
    c->request = (struct exchange_request){.method = posts ? STR("POST") : STR("GET"),
                                           .path = o->check.grpc ? STR("/grpc.health.v1.Health/Check") : str_of(o->check.path),
                                           .authority = c->who.host[0] ? str_of(c->who.host) : str_of(c->who.name),
                                           .headers = c->headers,
                                           .n_headers = posts ? 2 : 1,
                                           .body = posts ? EXCHANGE_LENGTH : EXCHANGE_NO_BODY,
                                           .length = c->body.n};
}

/* ---- which checks there are ---- */

static struct attendant *check_start(const struct attendant *who)
{
    struct server_check *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    struct loop *loop = who->p->g->loop;
    c->who = *who;
    arena_init(&c->arena, 1024, 1 << 20);
    buf_init(&c->body);
    buf_init(&c->answer);
    c->x = (struct exchange){.events = &events, .arena = &c->arena, .fresh = true};
    write_request(c);
    loop_timer_init(&c->timer, on_timer);
    loop_timer_start(loop, &c->timer, loop_now_ns(loop));
    return &c->who;
}

static void reap(struct loop_task *t)
{
    struct server_check *c = CONTAINER_OF(t, struct server_check, reap);
    arena_release(&c->arena);
    buf_release(&c->body);
    buf_release(&c->answer);
    free(c);
}

static void check_stop(struct attendant *a)
{
    struct server_check *c = CONTAINER_OF(a, struct server_check, who);
    struct loop *loop = a->p->g->loop;
    c->running = false;
    loop_timer_stop(loop, &c->timer);
    exchange_drop(&c->x);
    c->reap.run = reap;
    loop_defer(loop, &c->reap);
}

static const struct attendant_kind kind = {.start = check_start, .stop = check_stop};

void probe__tend(struct gateway_live *p)
{
    check__attend(p, &p->checks, &kind, p->o.check.path[0] || p->o.check.grpc);
}

void probe__stop(struct gateway_live *p)
{
    check__dismiss(&p->checks, &kind);
}
