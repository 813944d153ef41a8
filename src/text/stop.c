/* stop.c: see stop.h. A match can only begin in `held`: any byte that may begin one is never given. */
#include "text/stop.h"

#include <string.h>

#include "base/size.h"

bool stop_text_init(struct stop_text *s, const struct str *stops, size_t n_stops, size_t room)
{
    size_t longest = 0;
    *s = (struct stop_text){.stops = stops, .n_stops = n_stops};
    buf_init(&s->held);
    for (size_t i = 0; i < n_stops; i++)
        longest = MAX_OF(longest, stops[i].n);
    return buf_reserve(&s->held, room + longest + 4) != NULL;
}

void stop_text_release(struct stop_text *s)
{
    buf_release(&s->held);
}

/* Bytes that a character beginning with `lead` has; 0: it can't begin one. */
static size_t utf8_bytes(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
}

/* May `p[0..n)`, n >= 1, still become a valid character with more bytes? The second byte's range is RFC 3629's. */
static bool is_unfinished(const unsigned char *p, size_t n)
{
    size_t want = utf8_bytes(p[0]);
    if (n >= want)
        return false;
    unsigned char lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (n >= 2 && (p[1] < lo || p[1] > hi))
        return false;
    return n < 3 || (p[2] & 0xc0) == 0x80;
}

/* Append p[0..n) with every maximal broken stretch as one U+FFFD (Unicode 15, section 3.9). */
static void give(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n;) {
        size_t len = str_utf8_at(s, i);
        if (len) {
            buf_append(out, s.p + i, len);
            i += len;
            continue;
        }
        size_t bad = 1;
        while (i + bad < s.n && is_unfinished((const unsigned char *)s.p + i, bad) &&
               is_unfinished((const unsigned char *)s.p + i, bad + 1))
            bad++;
        buf_append_z(out, "\xef\xbf\xbd");
        i += bad;
    }
}

static void give_front(struct stop_text *s, size_t n, struct buf *out)
{
    give(out, (struct str){s->held.p, n});
    s->given += n;
    if (n)
        memmove(s->held.p, s->held.p + n, s->held.n - n);
    s->held.n -= n;
}

/* How many of the last bytes of `t` must wait. */
static size_t count_waiting(const struct stop_text *s, struct str t)
{
    size_t wait = 0;
    for (size_t k = 1; k <= 3 && k <= t.n; k++)
        if (is_unfinished((const unsigned char *)t.p + t.n - k, k))
            wait = k;
    for (size_t i = 0; i < s->n_stops; i++) {
        struct str stop = s->stops[i];
        size_t k = MIN_OF(stop.n - 1, t.n);
        while (k > wait && memcmp(t.p + t.n - k, stop.p, k) != 0)
            k--;
        wait = MAX_OF(wait, k);
    }
    return wait;
}

int stop_text_push(struct stop_text *s, struct str bytes, struct buf *out)
{
    buf_append_str(&s->held, bytes);
    if (s->held.failed || !s->held.n)
        return -1;
    struct str t = buf_str(&s->held);
    int found = -1;
    size_t at = t.n;
    for (size_t i = 0; i < s->n_stops; i++) {
        const char *hit = memmem(t.p, t.n, s->stops[i].p, s->stops[i].n);
        if (hit && (size_t)(hit - t.p) < at) {
            at = (size_t)(hit - t.p);
            found = (int)i;
        }
    }
    if (found >= 0) {
        give_front(s, at, out);
        buf_clear(&s->held);
        return found;
    }
    /* A character in front of a possible stop string may be unfinished only if it is broken: then it is given as U+FFFD. */
    give_front(s, t.n - count_waiting(s, t), out);
    return -1;
}

void stop_text_finish(struct stop_text *s, struct buf *out)
{
    give_front(s, s->held.n, out);
}
