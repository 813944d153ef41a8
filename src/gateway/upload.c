/* upload.c: a request's body on its way up. One that had to be seen whole (its model decides, its quota is asked for) or is small lies in one
 * piece and may be sent as often as wanted. Any other is passed on as it comes: what the server has not taken yet is kept, at most `keep` bytes and
 * a client's window; beyond that the client is not read. The first `keep` bytes (the pool's retry.buffer) stay, so that a body that ends within
 * them can be sent again; a longer one can't once its beginning has left.
 *
 *     0 ---------- base ------------ sent ------------- total            bytes of the body
 *        let go    |  kept: taken     |  kept: to be sent  |
 *
 * `told` is what the client was told that it may send more for: all within `keep`, and what is taken of the rest. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "gateway/gateway_priv.h"

#define MOVE_BYTES (256u << 10) /* taken bytes that are kept before the rest is moved to the front */

void upload_init(struct upload *u, struct slice whole)
{
    *u = (struct upload){.whole = whole, .total = whole.n, .ended = true};
    buf_init(&u->kept);
}

void upload_init_streamed(struct upload *u, uint64_t keep)
{
    *u = (struct upload){.streamed = true, .keep = keep};
    buf_init(&u->kept);
}

void upload_release(struct upload *u)
{
    slice_release(&u->whole);
    buf_release(&u->kept);
}

bool upload_can_rewind(const struct upload *u)
{
    return u->base == 0;
}

void upload_rewind(struct upload *u)
{
    ASSERT(upload_can_rewind(u));
    u->sent = 0;
}

struct str upload_pending(const struct upload *u, bool *last)
{
    *last = u->ended;
    const char *from = u->streamed ? u->kept.p : (const char *)u->whole.p;
    size_t n = (size_t)(u->total - u->sent);
    return n ? (struct str){from + (u->sent - u->base), n} : (struct str){0};
}

/* The client may send as much again as was dealt with since. */
static void tell(struct upload *u, struct http_request *r)
{
    uint64_t dealt = MAX_OF(MIN_OF(u->total, u->keep), u->sent);
    if (dealt <= u->told)
        return;
    size_t more = (size_t)(dealt - u->told);
    u->told = dealt;
    http_body_consumed(r, more);
}

static void let_go(struct upload *u)
{
    size_t taken = (size_t)(u->sent - u->base), left = (size_t)(u->total - u->sent);
    if (u->total <= u->keep || (left && taken < MOVE_BYTES))
        return;
    if (left)
        memmove(u->kept.p, u->kept.p + taken, left);
    u->kept.n = left;
    u->base = u->sent;
}

void upload_taken(struct upload *u, struct http_request *r, size_t n)
{
    u->sent += n;
    if (!u->streamed)
        return;
    let_go(u);
    tell(u, r);
}

int upload_add(struct upload *u, struct http_request *r, struct slice piece, bool last, uint64_t limit, struct error *err)
{
    size_t before = u->kept.cap;
    if (piece.n > limit - MIN_OF(limit, u->total))
        return error_set(err, STATUS_TOO_LARGE, "the body is larger than the %llu bytes that this route takes",
                         (unsigned long long)limit);
    buf_append(&u->kept, piece.p, piece.n);
    if (u->kept.failed)
        return error_set(err, STATUS_NOMEM, "out of memory for the request's body");
    u->total += piece.n;
    u->ended |= last;
    if (u->kept.cap > before) {
        int rc = http_body_charge(r, u->kept.cap, err);
        if (rc)
            return rc;
    }
    tell(u, r);
    return 0;
}
