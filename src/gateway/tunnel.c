/* tunnel.c: WebSockets (RFC 6455) where a route lets them through: the handshake is a request like any other, tried, refused or passed to the
 * fallback as one; behind a proper 101 the two connections are a pair of byte streams until both have ended.
 *
 *     client's bytes -> f->up (at most 512 KiB) -> server          server's bytes -> the reply's stream (256 KiB) -> client
 *
 * Whoever does not take stops the other from being read. A side's end goes on as an end of that side; the tunnel is over when both have. It is also
 * over when nothing has moved for the route's idle_timeout; for ENDING_QUIET_NS once a side has ended, which may mean that its process is gone; and
 * for DRAIN_QUIET_NS once this server is about to stop. That is said in-band (Close, 1001), where the stream of frames that has passed is between
 * two: that is all that is known of what is inside.
 *
 * The answer's Sec-WebSocket-Accept is verified, so that nothing but a server that understood the handshake gets a tunnel. */
#include <openssl/evp.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"
#include "os/clock.h"
#include "os/random.h"
#include "wire/websocket.h"

#define NS_PER_S        1000000000ull
#define DRAIN_QUIET_NS  NS_PER_S
#define ENDING_QUIET_NS (5 * NS_PER_S)
#define SHA1_BYTES      20

struct tunnel {
    struct websocket_frames from_client, from_server;
    uint64_t handshake_ns; /* what the pool learns as the answer's latency */
    bool server_ended, client_ended, draining;
    enum tunnel_result result; /* should it end now */
};

/* ---- the handshake ---- */

bool gateway_asks_upgrade(const struct http_request *r)
{
    if (r->version != 11 || r->method != HTTP_GET || !http_header_get(r, "upgrade").p)
        return false;
    struct str length = http_header_get(r, "content-length");
    return websocket_is_upgrade(r->headers, r->n_headers) && (!length.p || str_eqz(length, "0")) &&
           !http_header_get(r, "transfer-encoding").p;
}

int gateway_offer_upgrade(const struct gateway_target *target, struct http_request *r, struct error *err)
{
    static const struct http_header version = {{"Sec-WebSocket-Version", 21}, {WEBSOCKET_VERSION, 2}};
    if (!target->route || !target->route->websocket || !gateway_asks_upgrade(r))
        return 0;
    int rc = http_tunnel_offer(r, err);
    if (!rc)
        rc = websocket_check_request(r->headers, r->n_headers, err);
    if (rc == STATUS_INVALID) { /* RFC 6455, 4.4 */
        struct http_header *all = arena_array(r->arena, r->n_reply_headers + 1, sizeof *all);
        if (all && r->n_reply_headers)
            memcpy(all, r->reply_headers, r->n_reply_headers * sizeof *all);
        if (all) {
            all[r->n_reply_headers++] = version;
            r->reply_headers = all;
        }
    }
    return rc;
}

/* What a server that understood answers to this key (RFC 6455, 4.2.2). */
static bool accept_of(struct str key, char out[WEBSOCKET_ACCEPT_CHARS + 1])
{
    char text[WEBSOCKET_KEY_CHARS + sizeof WEBSOCKET_GUID];
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (key.n != WEBSOCKET_KEY_CHARS)
        return false;
    memcpy(text, key.p, key.n);
    memcpy(text + key.n, WEBSOCKET_GUID, sizeof WEBSOCKET_GUID - 1);
    bool ok = EVP_Digest(text, key.n + sizeof WEBSOCKET_GUID - 1, hash, &n, EVP_sha1(), NULL) == 1 && n == SHA1_BYTES;
    return ok && EVP_EncodeBlock((unsigned char *)out, hash, SHA1_BYTES) == WEBSOCKET_ACCEPT_CHARS;
}

bool tunnel__is_accepted(const struct forward *f)
{
    const struct exchange *x = &f->x;
    char want[WEBSOCKET_ACCEPT_CHARS + 1];
    size_t times;
    struct str said = websocket_header(x->headers, x->n_headers, "sec-websocket-accept", &times);
    return times == 1 && websocket_is_upgrade(x->headers, x->n_headers) &&
           accept_of(http_header_get(f->r, "sec-websocket-key"), want) && str_eqz(said, want);
}

/* ---- its life ---- */

/* Something moved. */
static void rearm(struct forward *f)
{
    const struct tunnel *t = f->tunnel;
    uint64_t quiet = f->target.route->idle_timeout;
    if (t->client_ended || t->server_ended)
        quiet = MIN_OF(quiet, ENDING_QUIET_NS);
    if (t->draining)
        quiet = MIN_OF(quiet, DRAIN_QUIET_NS);
    forward__arm(f, loop_now_ns(f->home->loop) + quiet);
}

void tunnel__count(struct forward *f)
{
    struct gateway_live *p = f->p;
    metric_adjust(p->tunnels, -1);
    metric_inc(p->tunnels_ended[f->tunnel->result]);
    f->pick.at_ns = os_monotonic_ns() - f->tunnel->handshake_ns;
}

static void finish(struct forward *f, enum tunnel_result result)
{
    f->tunnel->result = result;
    http_stream_end(f->r);
    forward__end(f, PICK_OK);
}

/* Both sides have ended, and the server has all of the client's. */
static void look(struct forward *f)
{
    if (f->phase == FORWARD_TUNNEL && f->tunnel->server_ended && f->tunnel->client_ended && f->up.sent == f->up.total)
        finish(f, TUNNEL_ENDED);
}

/* The client gets what had come, and no Close: to a WebSocket that is an abnormal end (1006). */
static void cut(struct forward *f, enum pick_outcome outcome)
{
    f->tunnel->result = TUNNEL_BROKEN;
    http_stream_end(f->r);
    forward__end(f, outcome);
}

void tunnel__broke(struct forward *f)
{
    cut(f, PICK_GATEWAY_FAILURE);
}

static void on_writable(struct http_request *r)
{
    struct forward *f = r->taker;
    if (f->phase != FORWARD_TUNNEL || !f->blocked)
        return;
    f->blocked = false;
    exchange_pause(&f->x, false);
    rearm(f);
}

/* The client has sent something, or its end. */
static void on_input(struct http_request *r, struct slice piece, bool last)
{
    struct forward *f = r->taker;
    struct error err;
    if (f->phase != FORWARD_TUNNEL || r->gone) {
        http_body_consumed(r, piece.n);
        return;
    }
    websocket_frames_take(&f->tunnel->from_client, piece.p, piece.n);
    metric_add(f->p->tunnel_bytes[TUNNEL_UP], piece.n);
    if (upload_add(&f->up, r, piece, last, UINT64_MAX, &err)) {
        cut(f, PICK_CANCELLED); /* no memory */
        return;
    }
    f->tunnel->client_ended |= last;
    rearm(f);
    exchange_more(&f->x);
    look(f);
}

void tunnel__take(struct forward *f, struct str part)
{
    struct slab *s = slab_create(part.n);
    if (!s) {
        cut(f, PICK_CANCELLED);
        return;
    }
    memcpy(s->data, part.p, part.n);
    s->n = part.n;
    websocket_frames_take(&f->tunnel->from_server, part.p, part.n);
    metric_add(f->p->tunnel_bytes[TUNNEL_DOWN], part.n);
    struct slice piece = slice_of(s, 0, part.n);
    slab_unref(s);
    rearm(f);
    if (!http_stream_write(f->r, piece)) {
        f->blocked = true;
        exchange_pause(&f->x, true);
    }
}

void tunnel__taken(struct forward *f)
{
    rearm(f);
    look(f);
}

void tunnel__ended(struct forward *f)
{
    f->tunnel->server_ended = true;
    http_tunnel_shut(f->r);
    rearm(f);
    look(f);
}

/* Tell both, where that is possible; the rest is the connections' end. */
static void say_goodbye(struct forward *f)
{
    uint8_t close[WEBSOCKET_CLOSE_BYTES];
    struct tunnel *t = f->tunnel;
    struct error err;
    if (!t->client_ended && websocket_frames_may_close(&t->from_client)) {
        size_t n = websocket_write_close(close, WEBSOCKET_GOING_AWAY, true, (uint32_t)os_random_u64());
        struct slice piece = slice_borrow(close, n);
        f->up.told += n; /* it was not the client who sent it */
        if (!upload_add(&f->up, f->r, piece, true, UINT64_MAX, &err))
            exchange_more(&f->x);
    }
    if (f->phase != FORWARD_TUNNEL || t->server_ended || !websocket_frames_may_close(&t->from_server))
        return;
    uint8_t *copy = arena_alloc(f->r->arena, sizeof close);
    if (copy)
        http_stream_write(f->r, slice_borrow(copy, websocket_write_close(copy, WEBSOCKET_GOING_AWAY, false, 0)));
}

void tunnel__silent(struct forward *f)
{
    say_goodbye(f);
    const struct tunnel *t = f->tunnel;
    if (f->phase == FORWARD_TUNNEL)
        finish(f, t->client_ended   ? TUNNEL_CLIENT_LEFT
                  : t->server_ended ? TUNNEL_ENDED
                  : t->draining     ? TUNNEL_DRAINED
                                    : TUNNEL_IDLE);
}

static void on_drain(struct http_request *r)
{
    struct forward *f = r->taker;
    if (f->phase != FORWARD_TUNNEL || f->tunnel->draining)
        return;
    f->tunnel->draining = true;
    rearm(f);
}

static const struct http_tunnel_events events = {.writable = on_writable, .input = on_input, .drain = on_drain};

bool tunnel__begin(struct forward *f)
{
    size_t n;
    const char *type;
    struct http_header *headers = headers__answer(f, &n, &type);
    f->tunnel = headers ? ARENA_NEW(f->r->arena, struct tunnel) : NULL;
    if (!f->tunnel)
        return false;
    uint64_t now = os_monotonic_ns();
    f->tunnel->handshake_ns = now > f->pick.at_ns ? now - f->pick.at_ns : 0;
    f->tunnel->result = TUNNEL_CLIENT_LEFT;
    f->phase = FORWARD_TUNNEL;
    upload_release(&f->up);
    upload_init_streamed(&f->up, 0);
    metric_adjust(f->p->tunnels, 1);
    rearm(f);
    http_tunnel_begin(f->r, STR("websocket"), headers, n, &events);
    return true;
}
