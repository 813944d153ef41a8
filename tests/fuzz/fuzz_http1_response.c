/* HTTP/1 answers, as a client reads them: no crash, and the same outcome whole and cut. The first byte chooses the cut, and
 * whether the request was a HEAD. */
#include <stdint.h>
#include <stdlib.h>

#include "base/size.h"
#include "wire/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* A hash of everything that the reader gave. */
static uint64_t read_all(const char *p, size_t n, size_t step, bool head)
{
    static const struct http1_limits limits = {.max_head_bytes = 2000, .max_headers = 20, .max_url_bytes = 200};
    struct arena a;
    struct http1_parser parser;
    uint64_t hash = 1469598103934665603u;
    size_t at = 0, end = MIN_OF(step, n);
    enum http1_event e;
    arena_init(&a, 512, 1 << 20);
    http1_init_response(&parser, &a, &limits, head);
    for (;;) {
        struct str part;
        size_t used;
        e = http1_read(&parser, p + at, end - at, &used, &part);
        check(used <= end - at);
        at += used;
        if (e == HTTP1_HEAD)
            hash ^= (uint64_t)parser.status * 31 + parser.n_headers;
        if (e == HTTP1_BODY)
            for (size_t i = 0; i < part.n; i++)
                hash = (hash ^ (unsigned char)part.p[i]) * 1099511628211u;
        if (e == HTTP1_END || e == HTTP1_ERROR)
            break;
        if (e != HTTP1_MORE)
            continue;
        if (end == n) {
            e = http1_eof(&parser);
            break;
        }
        end = MIN_OF(end + step, n);
    }
    if (e == HTTP1_ERROR)
        hash = (uint64_t)parser.error_status;
    arena_release(&a);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 20000)
        return 0;
    const char *p = (const char *)data + 1;
    bool head = data[0] & 128;
    check(read_all(p, size - 1, SIZE_MAX / 2, head) == read_all(p, size - 1, 1 + data[0] % 61, head));
    return 0;
}
