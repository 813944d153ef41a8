/* HTTP/1 requests. The first byte chooses how the rest is cut; whole and cut must agree, and what our reader accepts, llhttp in
 * its strict mode must accept as well, with the same body. */
#include <llhttp.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/size.h"
#include "wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct http1_limits LIMITS = {.max_head_bytes = 2000, .max_headers = 20, .max_url_bytes = 200};

struct outcome {
    struct buf body;
    enum http1_event end;
    int status;
    size_t used;
};

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void read_all(const char *p, size_t n, size_t step, struct outcome *o)
{
    struct arena a;
    struct http1_parser parser;
    size_t at = 0, end = MIN_OF(step, n);
    arena_init(&a, 512, 1 << 20);
    buf_init(&o->body);
    http1_init_request(&parser, &a, &LIMITS);
    for (;;) {
        struct str part;
        size_t used;
        o->end = http1_read(&parser, p + at, end - at, &used, &part);
        check(used <= end - at);
        at += used;
        if (o->end == HTTP1_BODY) {
            check(part.n > 0);
            buf_append_str(&o->body, part);
        } else if (o->end == HTTP1_MORE) {
            check(at == end);
            if (end == n)
                break;
            end = MIN_OF(end + step, n);
        } else if (o->end != HTTP1_HEAD) {
            break;
        }
    }
    o->status = o->end == HTTP1_ERROR ? parser.error_status : 0;
    o->used = at;
    arena_release(&a);
}

static int on_body(llhttp_t *l, const char *at, size_t n)
{
    buf_append(l->data, at, n);
    return 0;
}

static int on_complete(llhttp_t *l)
{
    (void)l;
    return HPE_PAUSED;
}

static int on_headers(llhttp_t *l)
{
    l->upgrade = 0;
    return 0;
}

/* Our reader took `n` bytes as one message. */
static void compare(const char *p, size_t n, const struct outcome *o)
{
    llhttp_settings_t s = {.on_body = on_body, .on_message_complete = on_complete, .on_headers_complete = on_headers};
    llhttp_t l;
    struct buf body;
    buf_init(&body);
    llhttp_init(&l, HTTP_REQUEST, &s);
    l.data = &body;
    check(llhttp_execute(&l, p, n) == HPE_PAUSED);
    check(body.n == o->body.n && (body.n == 0 || memcmp(body.p, o->body.p, body.n) == 0));
    buf_release(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 20000)
        return 0;
    struct outcome whole, cut;
    const char *p = (const char *)data + 1;
    read_all(p, size - 1, SIZE_MAX / 2, &whole);
    read_all(p, size - 1, 1 + data[0] % 61, &cut);
    check(whole.end == cut.end && whole.status == cut.status);
    if (whole.end != HTTP1_ERROR) {
        check(whole.body.n == cut.body.n && (whole.body.n == 0 || memcmp(whole.body.p, cut.body.p, whole.body.n) == 0));
        check(whole.used == cut.used);
    }
    if (whole.end == HTTP1_END)
        compare(p, whole.used, &whole);
    buf_release(&whole.body);
    buf_release(&cut.body);
    return 0;
}
