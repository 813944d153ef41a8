/* hedge.c: a second server is asked the same while the first one keeps silent, and the first whole answer is the answer.
 *
 * Only what may be done twice (an idempotent route), is not streamed, and is known whole; once a request; after a fixed time or the pool's
 * percentile; within the retry budget; only while another server has room at once. The hedge's answer is collected (HEDGE_BYTES at most)
 * beside the first try's, so that nothing is spliced: who is complete first, wins, and the other is cancelled, which counts as neither good nor
 * bad for its server. When the first try fails while the hedge runs, the hedge is the next try. An answer that came too late is never looked at.
 *
 * Each of the two has its pick, done exactly once; the client gets one reply. */
#include <string.h>

#include "base/status.h"
#include "gateway/gateway_priv.h"

#define HEDGE_BYTES (1u << 20)

struct hedge {
    struct forward *f;
    struct exchange x;
    struct exchange_request request;
    struct pick pick;
    struct buf answer;
    size_t body_sent;
    struct loop_timer timer; /* when to begin; then the end of connecting, then of this try */
    uint64_t until_ns;
    bool running;
};

static struct hedge *of(struct exchange *x)
{
    return CONTAINER_OF(x, struct hedge, x);
}

/* The hedge is over, whoever won. */
static void finish(struct hedge *h, enum pick_outcome outcome, struct metric *as)
{
    struct forward *f = h->f;
    exchange_drop(&h->x);
    loop_timer_stop(f->home->loop, &h->timer);
    buf_release(&h->answer);
    if (!h->running)
        return;
    h->running = false;
    metric_inc(as);
    os_mutex_lock(&f->p->lock);
    retry_end(&f->p->budget);
    os_mutex_unlock(&f->p->lock);
    live_done(f->p, &h->pick, outcome, loop_update_now(f->home->loop));
}

void hedge__drop(struct forward *f)
{
    if (f->hedge)
        finish(f->hedge, PICK_CANCELLED, f->p->hedges[HEDGE_LOST]);
}

bool hedge__takes_over(struct forward *f)
{
    if (!f->hedge || !f->hedge->running)
        return false;
    f->phase = FORWARD_SENT; /* its own try is over; what comes next is the hedge's */
    forward__arm(f, f->deadline_ns);
    return true;
}

/* It came to nothing. When the first try has, too, that was the last of them that ran. */
static void failed(struct hedge *h, enum pick_outcome outcome, const char *why)
{
    struct forward *f = h->f;
    if (f->ask.n_tried < PICK_TRIED_MAX)
        f->ask.tried[f->ask.n_tried++] = h->pick.upstream;
    finish(h, outcome, f->p->hedges[HEDGE_FAILED]);
    if (!f->picked)
        forward__lost(f, why);
}

/* ---- what the second server says ---- */

static void send_now(struct hedge *h)
{
    h->body_sent = 0;
    if (h->until_ns != UINT64_MAX)
        loop_timer_start(h->f->home->loop, &h->timer, h->until_ns);
    exchange_send(&h->x, &h->request);
}

static void on_connected(struct exchange *x)
{
    send_now(of(x));
}

static void on_head(struct exchange *x)
{
    struct hedge *h = of(x);
    if (x->status >= 500) /* the first one may still do better */
        failed(h, forward__outcome(x->status), "503");
    else if (x->answer_body == HTTP1_LENGTH && x->content_length > HEDGE_BYTES)
        failed(h, PICK_CANCELLED, "503");
}

static void on_body(struct exchange *x, struct str part)
{
    struct hedge *h = of(x);
    if (h->answer.n + part.n > HEDGE_BYTES)
        failed(h, PICK_CANCELLED, "503");
    else
        buf_append_str(&h->answer, part);
}

static void on_done(struct exchange *x)
{
    struct hedge *h = of(x);
    struct forward *f = h->f;
    /* the first try's exchange makes room for this answer: from here on all goes as if it had come there */
    forward__yield(f);
    f->x.status = x->status;
    f->x.headers = x->headers;
    f->x.n_headers = x->n_headers;
    f->x.answer_body = x->answer_body;
    f->x.content_length = x->content_length;
    f->x.trailers = x->trailers;
    f->x.n_trailers = x->n_trailers;
    struct buf was = f->answer;
    f->answer = h->answer;
    h->answer = was;
    f->phase = FORWARD_BUFFERING;
    answer__end(f);
    finish(h, PICK_OK, f->p->hedges[HEDGE_WON]);
    forward__end(f, PICK_CANCELLED);
}

static void on_failed(struct exchange *x, const struct error *err)
{
    (void)err;
    bool stale = x->reused && !x->heard; /* as in forward.c: says nothing about the server */
    failed(of(x), stale ? PICK_CANCELLED : PICK_GATEWAY_FAILURE, x->connecting ? "connect" : "reset");
}

static struct str on_pending(struct exchange *x, bool *last)
{
    const struct hedge *h = of(x);
    *last = true;
    return (struct str){(const char *)h->f->up.whole.p + h->body_sent, h->f->up.whole.n - h->body_sent};
}

static void on_taken(struct exchange *x, size_t n)
{
    of(x)->body_sent += n;
}

static const struct exchange_events events = {
    .connected = on_connected,
    .head = on_head,
    .body = on_body,
    .done = on_done,
    .failed = on_failed,
    .pending = on_pending,
    .taken = on_taken,
};

/* ---- the beginning ---- */

/* Another server that has room now, and a share of the budget. */
static bool choose(struct hedge *h, uint64_t now)
{
    struct forward *f = h->f;
    struct pick_request ask = f->ask;
    struct error err;
    if (ask.n_tried >= PICK_TRIED_MAX)
        return false;
    ask.tried[ask.n_tried++] = f->pick.upstream;
    os_mutex_lock(&f->p->lock);
    bool yes = !f->p->waits.n && retry_begin(&f->p->budget);
    if (yes && pool_pick(f->p->pool, &ask, now, &h->pick, &err) < 0) {
        retry_end(&f->p->budget);
        yes = false;
    }
    os_mutex_unlock(&f->p->lock);
    return yes;
}

/* The same request, written for the other server. */
static int write_request(struct hedge *h, uint64_t now, struct error *err)
{
    struct forward *f = h->f;
    struct exchange_request request = f->request;
    struct pick pick = f->pick;
    f->pick = h->pick;
    int rc = headers__request(f, now, err);
    h->request = f->request;
    f->request = request;
    f->pick = pick;
    return rc;
}

static void begin(struct hedge *h, uint64_t now)
{
    struct forward *f = h->f;
    struct error err;
    if (!choose(h, now))
        return;
    h->running = true;
    metric_inc(f->p->hedges[HEDGE_STARTED]);
    if (write_request(h, now, &err) < 0 ||
        exchange_take(&h->x, f->home, f->p->transport, upstream_name(h->pick.upstream), upstream_host(h->pick.upstream))) {
        finish(h, PICK_CANCELLED, f->p->hedges[HEDGE_FAILED]);
        return;
    }
    h->until_ns = MIN_OF(f->target.route->try_timeout ? now + f->target.route->try_timeout : UINT64_MAX, f->deadline_ns);
    if (!h->x.connecting) {
        send_now(h);
        return;
    }
    loop_timer_start(f->home->loop, &h->timer, MIN_OF(h->until_ns, now + f->p->o.connect_timeout));
    exchange_connect(&h->x);
}

static void on_timer(struct loop_timer *t)
{
    struct hedge *h = CONTAINER_OF(t, struct hedge, timer);
    uint64_t now = loop_now_ns(h->f->home->loop);
    if (h->running && h->x.connecting)
        failed(h, PICK_GATEWAY_FAILURE, "connect");
    else if (h->running)
        failed(h, PICK_TIMEOUT, "timeout");
    else if (h->f->phase == FORWARD_SENT || h->f->phase == FORWARD_CONNECTING)
        begin(h, now);
}

void hedge__arm(struct forward *f, uint64_t now)
{
    const struct gateway_pool *o = &f->p->o;
    uint64_t after = o->hedge.after;
    if (f->hedge || !(o->hedge.after || o->hedge.percentile) || !f->target.route->idempotent || f->hints.stream ||
        f->up.streamed || f->upgrade || f->tries != 1)
        return;
    if (o->hedge.percentile) {
        os_mutex_lock(&f->p->lock);
        uint64_t known = delay_percentile_ns(&f->p->delay, o->hedge.percentile);
        os_mutex_unlock(&f->p->lock);
        after = MAX_OF(after, known);
    }
    struct hedge *h = after ? ARENA_NEW(f->r->arena, struct hedge) : NULL;
    if (!h)
        return; /* nothing known yet, or no memory: the request goes on without */
    *h = (struct hedge){.f = f, .x.events = &events, .x.arena = f->r->arena};
    buf_init(&h->answer);
    loop_timer_init(&h->timer, on_timer);
    f->hedge = h;
    loop_timer_start(f->home->loop, &h->timer, now + after);
}
