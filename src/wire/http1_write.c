/* http1_write.c: the writing half of http1.h: status lines, headers, chunk framing. */
#include "wire/http1.h"

#include <string.h>

#include "base/check.h"

const char *http1_reason(int status)
{
    switch (status) {
    case 101:
        return "Switching Protocols";
    case 100:
        return "Continue";
    case 200:
        return "OK";
    case 201:
        return "Created";
    case 202:
        return "Accepted";
    case 204:
        return "No Content";
    case 206:
        return "Partial Content";
    case 301:
        return "Moved Permanently";
    case 302:
        return "Found";
    case 304:
        return "Not Modified";
    case 307:
        return "Temporary Redirect";
    case 308:
        return "Permanent Redirect";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 406:
        return "Not Acceptable";
    case 408:
        return "Request Timeout";
    case 409:
        return "Conflict";
    case 411:
        return "Length Required";
    case 412:
        return "Precondition Failed";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 415:
        return "Unsupported Media Type";
    case 417:
        return "Expectation Failed";
    case 421:
        return "Misdirected Request";
    case 422:
        return "Unprocessable Content";
    case 426:
        return "Upgrade Required";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 499:
        return "Client Closed Request";
    case 500:
        return "Internal Server Error";
    case 501:
        return "Not Implemented";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Status";
    }
}

void http1_write_status(struct buf *out, int status)
{
    ASSERT(status >= 100 && status <= 999);
    buf_append(out, "HTTP/1.1 ", 9);
    buf_append_u64(out, (uint64_t)status);
    buf_append_c(out, ' ');
    buf_append_z(out, http1_reason(status));
    buf_append(out, "\r\n", 2);
}

/* Is a byte of the eight below 0x20, or 0x7f? (The two tests are Mycroft's; exact in whether there is one.) */
static bool has_control(const char *p)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t x, del;
    memcpy(&x, p, 8);
    del = x ^ ones * 0x7f;
    return (((x - ones * 0x20) & ~x) | ((del - ones) & ~del)) & ones * 0x80;
}

static bool is_field_value(struct str s)
{
    size_t i = 0;
    for (; i + 8 <= s.n && !has_control(s.p + i); i += 8)
        ;
    for (; i < s.n; i++) /* the rest; all of it behind a control character, since a tab may be there */
        if (((unsigned char)s.p[i] < 0x20 && s.p[i] != '\t') || s.p[i] == 0x7f)
            return false;
    return true;
}

bool http1_write_header(struct buf *out, struct str name, struct str value)
{
    if (!http1_is_token(name) || !is_field_value(value))
        return false;
    http1_put_header(out, name, value);
    return true;
}

void http1_put_header(struct buf *out, struct str name, struct str value)
{
    char *at = buf_reserve(out, name.n + value.n + 4); /* once, and not four times: heads are made of these */
    if (!at)
        return;
    memcpy(at, name.p, name.n);
    memcpy(at + name.n, ": ", 2);
    if (value.n)
        memcpy(at + name.n + 2, value.p, value.n);
    memcpy(at + name.n + 2 + value.n, "\r\n", 2);
    out->n += name.n + value.n + 4;
}

void http1_write_header_u64(struct buf *out, const char *name, uint64_t value)
{
    buf_append_z(out, name);
    buf_append(out, ": ", 2);
    buf_append_u64(out, value);
    buf_append(out, "\r\n", 2);
}

size_t http1_chunk_head(char out[HTTP1_CHUNK_HEAD_BYTES], size_t n)
{
    ASSERT(n > 0); /* a chunk of 0 bytes would end the body */
    char digits[16];
    size_t at = sizeof digits, len;
    for (; n; n >>= 4)
        digits[--at] = "0123456789abcdef"[n & 15];
    len = sizeof digits - at;
    memcpy(out, digits + at, len);
    memcpy(out + len, "\r\n", 2);
    return len + 2;
}

static void two_digits(char *to, uint64_t v)
{
    to[0] = (char)('0' + v / 10 % 10);
    to[1] = (char)('0' + v % 10);
}

/* Days to year, month, day: Howard Hinnant's civil_from_days, for days from 1970 on. */
static void civil_date(uint64_t days, uint64_t *year, unsigned *month, unsigned *day)
{
    uint64_t z = days + 719468, era = z / 146097, doe = z % 146097;
    uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    *day = (unsigned)(doy - (153 * mp + 2) / 5 + 1);
    *month = (unsigned)(mp < 10 ? mp + 3 : mp - 9);
    *year = yoe + era * 400 + (*month <= 2);
}

void http1_date(char out[30], uint64_t unix_s)
{
    static const char days[] = "ThuFriSatSunMonTueWed", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    uint64_t year, second = unix_s % 86400;
    unsigned month, day;
    civil_date(unix_s / 86400, &year, &month, &day);
    memcpy(out, "Ddd, 00 Mmm 0000 00:00:00 GMT", 30);
    memcpy(out, days + unix_s / 86400 % 7 * 3, 3);
    two_digits(out + 5, day);
    memcpy(out + 8, months + (month - 1) * 3, 3);
    two_digits(out + 12, year / 100);
    two_digits(out + 14, year);
    two_digits(out + 17, second / 3600);
    two_digits(out + 20, second / 60 % 60);
    two_digits(out + 23, second % 60);
}
