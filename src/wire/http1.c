/* http1.c: the parser of http1.h.
 *
 * The head is read in two passes. The first is ours: bytes are copied into the arena up to the empty line, and on the way each
 * line is checked for what no strict reader may accept (a CR or LF that is not part of CRLF, NUL) and for the limits. The
 * second is llhttp, once over the complete head, in its strict mode (no lenient flag is ever set), for the grammar of the request
 * line and the fields. Then our rules about the meaning of the fields. Because llhttp sees whole heads only, the outcome can't
 * depend on how the bytes arrived; because two readers must agree on where the head ends, the tolerance of one is caught by the
 * other.
 *
 * Body framing is ours: a count for Content-Length, and below a chunk reader that accepts RFC 9112's grammar and nothing else.
 *
 *   START --first byte--> HEAD --empty line--> (NO_BODY: FINISH) | LENGTH | CHUNK_SIZE | EOF_BODY
 *   CHUNK_SIZE [CHUNK_EXT] CHUNK_LF -> CHUNK_DATA -> DATA_CR -> DATA_LF -> CHUNK_SIZE ...
 *                                   -> (size 0) TRAILER <-> TRAILER_LF -> END_LF -> END
 *
 * Rejected: llhttp for the body as well. It hides where framing begins and ends, and the rules on extensions, digits and trailers
 * would have to be checked behind it; the reader below is shorter than that check. The fuzz target compares it with llhttp. */
#include "wire/http1.h"

#include <llhttp.h>

#include "base/check.h"
#include "base/size.h"

enum state {
    ST_START,
    ST_HEAD,
    ST_HEAD_DONE, /* HTTP1_HEAD is given, the body's state is chosen */
    ST_FINISH,
    ST_LENGTH,
    ST_EOF_BODY,
    ST_CHUNK_SIZE,
    ST_CHUNK_EXT,
    ST_CHUNK_LF,
    ST_CHUNK_DATA,
    ST_DATA_CR,
    ST_DATA_LF,
    ST_TRAILER,
    ST_TRAILER_LF,
    ST_END_LF,
    ST_DONE,
    ST_FAILED,
};

#define EMPTY_LINES_MAX    4  /* in front of a request: RFC 9112 2.2 asks for one */
#define REQUEST_LINE_SLACK 40 /* longest method, two spaces, version, CRLF */
#define STATUS_LINE_MAX    1024
#define CHUNK_LINE_MAX     256 /* size, extensions */
#define CHUNK_DIGITS_MAX   15
#define CHUNKS_MAX         (INT64_MAX / 16) /* of all chunks; nobody sends an exabyte */
#define FRAME_FREE_BYTES   65536            /* chunk framing may exceed 16 times the data by this much */

static enum http1_event fail(struct http1_parser *p, int status, const char *text)
{
    p->state = ST_FAILED;
    p->error_status = status;
    p->error_text = text;
    return HTTP1_ERROR;
}

void http1_init_request(struct http1_parser *p, struct arena *arena, const struct http1_limits *limits)
{
    *p = (struct http1_parser){.arena = arena, .limits = limits};
}

void http1_init_response(struct http1_parser *p, struct arena *arena, const struct http1_limits *limits, bool head_request)
{
    *p = (struct http1_parser){.arena = arena, .limits = limits, .response = true, .no_body = head_request};
}

bool http1_idle(const struct http1_parser *p)
{
    return p->state == ST_START;
}

/* tchar of RFC 9110, 5.6.2. A load a character: every name that is written passes here. */
static const uint8_t is_tchar[256] = {
    [0x20] = 0, 1, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, /* ! # $ % & ' * + - . */
    [0x30] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, /* 0 to 9 */
    [0x40] = 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* A to O */
    [0x50] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, /* P to Z ^ _ */
    [0x60] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* ` a to o */
    [0x70] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, /* p to z | ~ */
};

bool http1_is_token(struct str s)
{
    unsigned good = 1;
    for (size_t i = 0; i < s.n; i++)
        good &= is_tchar[(unsigned char)s.p[i]];
    return s.n > 0 && good;
}

bool http1_list_has(struct str list, const char *token)
{
    struct str part;
    while (str_cut(&list, ',', &part)) {
        struct str name;
        str_cut(&part, ';', &name);
        if (str_ieqz(str_trim(name), token))
            return true;
    }
    return false;
}

/* --- second pass: llhttp over the complete head --- */

static int on_method(llhttp_t *l, const char *at, size_t n)
{
    ((struct http1_parser *)l->data)->method = (struct str){at, n};
    return 0;
}

static int on_url(llhttp_t *l, const char *at, size_t n)
{
    ((struct http1_parser *)l->data)->target = (struct str){at, n};
    return 0;
}

static int on_status(llhttp_t *l, const char *at, size_t n)
{
    ((struct http1_parser *)l->data)->reason = (struct str){at, n};
    return 0;
}

static int on_field(llhttp_t *l, const char *at, size_t n)
{
    struct http1_parser *p = l->data;
    if (p->n_headers >= p->lines)
        return HPE_USER; /* more fields than lines: the readers disagree */
    p->headers[p->n_headers++] = (struct http_header){{at, n}, {at + n, 0}};
    return 0;
}

static int on_value(llhttp_t *l, const char *at, size_t n)
{
    struct http1_parser *p = l->data;
    struct http_header *h = &p->headers[p->n_headers - 1];
    if (h->value.n)
        return HPE_USER; /* a second span for one field: nothing that we accept has one */
    h->value = str_trim((struct str){at, n});
    return 0;
}

static int on_complete(llhttp_t *l)
{
    l->upgrade = 0; /* we speak no other protocol; the message is an ordinary one (RFC 9110 7.8) */
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_method = on_method,
    .on_url = on_url,
    .on_status = on_status,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_complete,
};

static bool names_a_method(const struct http1_parser *p)
{
    struct str rest = {p->head, p->first_line_n}, word;
    str_cut(&rest, ' ', &word);
    return rest.p && http1_is_token(word);
}

/* The request line ends in " HTTP/d.d". */
static bool names_a_version(const struct http1_parser *p)
{
    const char *v = p->head + p->first_line_n - 11;
    return p->first_line_n > 11 && memcmp(v, " HTTP/", 6) == 0 && v[6] >= '0' && v[6] <= '9' && v[7] == '.' && v[8] >= '0' &&
           v[8] <= '9';
}

static enum http1_event grammar_error(struct http1_parser *p, const llhttp_t *l, int code)
{
    switch (code) {
    case HPE_INVALID_METHOD:
        if (!names_a_method(p))
            return fail(p, 400, "the request line is malformed");
        return fail(p, 501, "the request's method is not one that this server knows");
    case HPE_INVALID_VERSION:
        if (!p->response && !names_a_version(p))
            return fail(p, 400, "the request line is malformed");
        /* fallthrough */
    case HPE_PAUSED_H2_UPGRADE:
        return fail(p, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    case HPE_INVALID_URL:
        return fail(p, 400, "the request target is malformed");
    case HPE_INVALID_CONTENT_LENGTH:
        return fail(p, 400, "the Content-Length is not one plain number");
    case HPE_UNEXPECTED_CONTENT_LENGTH:
    case HPE_INVALID_TRANSFER_ENCODING:
        return fail(p, 400, "a message has one Content-Length or one 'Transfer-Encoding: chunked', not both, not twice");
    default:
        return fail(p, 400,
                    l->type == HTTP_REQUEST ? "the request line or a header line is malformed"
                                            : "the status line or a header line is malformed");
    }
}

static enum http1_event check_framing(struct http1_parser *p);
static enum http1_event check_request(struct http1_parser *p);

static enum http1_event parse_head(struct http1_parser *p)
{
    llhttp_t l;
    p->headers = arena_array(p->arena, p->lines, sizeof *p->headers);
    if (!p->headers)
        return fail(p, 503, "out of memory for the request's headers");
    llhttp_init(&l, p->response ? HTTP_RESPONSE : HTTP_REQUEST, &settings);
    l.data = p;
    int code = (int)llhttp_execute(&l, p->head, p->head_n);
    if (str_eqz(p->method, "PRI"))
        code = HPE_PAUSED_H2_UPGRADE; /* the preface of HTTP/2, of which llhttp would wait to see more */
    if (code != HPE_PAUSED)
        return grammar_error(p, &l, code == HPE_OK ? HPE_INTERNAL : code);
    /* llhttp pauses on the LF of the empty line or behind it */
    size_t at = (size_t)(llhttp_get_error_pos(&l) - p->head);
    if (at + 1 < p->head_n || p->n_headers + 1 != p->lines)
        return fail(p, 400, "a header line is malformed");
    if (l.http_major != 1 || l.http_minor > 1)
        return fail(p, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    p->minor = l.http_minor;
    if (p->response && l.status_code < 100)
        return fail(p, 400, "a status begins at 100");
    p->status = p->response ? l.status_code : 0;
    enum http1_event e = check_framing(p);
    if (e == HTTP1_HEAD && !p->response)
        e = check_request(p);
    return e;
}

/* --- our rules on what the fields mean --- */

/* `lengths` Content-Length fields, the last of them `length`; `codings` Transfer-Encoding fields. RFC 9112 6. */
static enum http1_event choose_body(struct http1_parser *p, uint32_t lengths, struct str length, uint32_t codings,
                                    struct str coding)
{
    if (lengths > 1 || codings > 1 || (lengths && codings))
        return fail(p, 400, "a message has one Content-Length or one 'Transfer-Encoding: chunked', not both, not twice");
    if (codings && (p->minor == 0 || !str_ieqz(coding, "chunked")))
        return fail(p, 400, "the only Transfer-Encoding accepted is exactly 'chunked', in HTTP/1.1");
    if (lengths && (!str_to_u64(length, &p->content_length) || p->content_length > INT64_MAX))
        return fail(p, 400, "the Content-Length is not one plain number");
    bool bodiless = p->response && (p->no_body || p->status / 100 == 1 || p->status == 204 || p->status == 304);
    if (bodiless)
        p->body = HTTP1_NO_BODY;
    else if (codings)
        p->body = HTTP1_CHUNKED;
    else if (lengths)
        p->body = p->content_length ? HTTP1_LENGTH : HTTP1_NO_BODY;
    else
        p->body = p->response ? HTTP1_UNTIL_EOF : HTTP1_NO_BODY;
    p->left = p->body == HTTP1_LENGTH ? p->content_length : 0;
    return HTTP1_HEAD;
}

static enum http1_event check_framing(struct http1_parser *p)
{
    uint32_t lengths = 0, codings = 0;
    struct str length = {0}, coding = {0};
    bool close = false, keep = false;
    for (uint32_t i = 0; i < p->n_headers; i++) {
        struct http_header *h = &p->headers[i];
        switch (h->name.n) {
        case 14:
            if (str_ieqz(h->name, "content-length"))
                lengths++, length = h->value;
            break;
        case 17:
            if (str_ieqz(h->name, "transfer-encoding"))
                codings++, coding = h->value;
            break;
        case 10:
            if (str_ieqz(h->name, "connection")) {
                close |= http1_list_has(h->value, "close");
                keep |= http1_list_has(h->value, "keep-alive");
            }
            break;
        default:
            break;
        }
    }
    p->keep_alive = !close && (p->minor == 1 || keep);
    enum http1_event e = choose_body(p, lengths, length, codings, coding);
    if (p->body == HTTP1_UNTIL_EOF)
        p->keep_alive = false;
    return e;
}

static enum http1_event check_host(struct http1_parser *p, uint32_t hosts, struct str host)
{
    if (hosts > 1 || (hosts == 0 && p->minor == 1))
        return fail(p, 400, "an HTTP/1.1 request has exactly one Host header");
    if (hosts && !url_is_authority(host))
        return fail(p, 400, "the Host header is not a host name, an address or host:port");
    if (hosts && p->url.authority.p && !str_ieq(host, p->url.authority))
        return fail(p, 400, "the Host header and the request target name different hosts");
    return HTTP1_HEAD;
}

static enum http1_event check_request(struct http1_parser *p)
{
    uint32_t hosts = 0;
    struct str host = {0};
    if (p->first_line_n != p->method.n + p->target.n + sizeof "  HTTP/1.1\r\n" - 1)
        return fail(p, 400, "the request line is not exactly 'METHOD target HTTP/1.x'");
    if (p->target.n > p->limits->max_url_bytes)
        return fail(p, 414, "the request target is too long");
    if (str_eqz(p->method, "CONNECT"))
        return fail(p, 501, "CONNECT is not served here");
    struct error err;
    if (url_parse_target(p->target, &p->url, &err))
        return fail(p, 400, "the request target is malformed");
    if (p->url.path.p[0] == '*' && !str_eqz(p->method, "OPTIONS"))
        return fail(p, 400, "the request target '*' is for OPTIONS only");
    for (uint32_t i = 0; i < p->n_headers; i++) {
        struct http_header *h = &p->headers[i];
        if (h->name.n == 4 && str_ieqz(h->name, "host")) {
            hosts++, host = h->value;
        } else if (h->name.n == 6 && str_ieqz(h->name, "expect") && p->minor == 1) {
            if (!str_ieqz(h->value, "100-continue"))
                return fail(p, 417, "the only expectation that can be met is '100-continue'");
            p->expect_continue = p->body != HTTP1_NO_BODY;
        }
    }
    return check_host(p, hosts, host);
}

/* --- first pass: lines --- */

static bool head_reserve(struct http1_parser *p, size_t more)
{
    if (p->head_cap - p->head_n >= more)
        return true;
    size_t cap = MAX_OF((size_t)p->head_cap * 2, MAX_OF(p->head_n + more, (size_t)512));
    char *bigger = arena_alloc(p->arena, cap);
    if (!bigger)
        return false;
    if (p->head_n)
        memcpy(bigger, p->head, p->head_n);
    p->head = bigger;
    p->head_cap = (uint32_t)cap;
    return true;
}

/* Bytes that the head may still take before a limit is hit. The first line has its own limit. */
static size_t head_allowance(const struct http1_parser *p)
{
    size_t first = p->response ? STATUS_LINE_MAX : (size_t)p->limits->max_url_bytes + REQUEST_LINE_SLACK;
    if (p->lines == 0)
        return first - p->head_n;
    return p->first_line_n + (size_t)p->limits->max_head_bytes - p->head_n;
}

static enum http1_event head_too_large(struct http1_parser *p)
{
    if (p->lines)
        return fail(p, 431, "the header section is too large");
    return p->response ? fail(p, 400, "the status line is too long") : fail(p, 414, "the request target is too long");
}

/* The line that ends in the LF at `lf`: CRLF discipline, NUL, count. Sets *empty. False: failed. */
static bool check_line(struct http1_parser *p, const char *lf, bool *empty)
{
    const char *line = p->head + p->line_at;
    size_t n = (size_t)(lf - line);
    if (memchr(line, '\r', n) != lf - 1 || n == 0) {
        fail(p, 400, "a line of the head does not end in CRLF, or holds a bare CR");
        return false;
    }
    if (memchr(line, 0, n)) {
        fail(p, 400, "the head holds a NUL byte");
        return false;
    }
    *empty = n == 1;
    p->line_at = p->scan_at = (uint32_t)(lf + 1 - p->head);
    if (p->lines == 0)
        p->first_line_n = p->line_at;
    if (*empty)
        return true;
    if (p->lines > p->limits->max_headers) {
        fail(p, 431, "the request has too many headers");
        return false;
    }
    p->lines++;
    return true;
}

/* Empty lines in front of a request. Returns the bytes skipped; p->skipped counts their bytes, odd in the middle of one. */
static size_t skip_empty_lines(struct http1_parser *p, const char *data, size_t n)
{
    size_t i = 0;
    while (i < n && p->skipped < 2 * EMPTY_LINES_MAX && data[i] == (p->skipped % 2 ? '\n' : '\r')) {
        p->skipped++;
        i++;
    }
    return i;
}

static enum http1_event begin(struct http1_parser *p, const char *data, size_t n, size_t *used)
{
    *used = p->response ? 0 : skip_empty_lines(p, data, n);
    if (*used == n)
        return HTTP1_MORE;
    unsigned char c = (unsigned char)data[*used];
    if (p->skipped % 2)
        return fail(p, 400, "a CR in front of the request is not followed by LF");
    if (c < 'A' || c > 'Z')
        return fail(p, 400, p->response ? "the answer is not HTTP" : "this is not an HTTP request");
    p->state = ST_HEAD;
    return HTTP1_MORE;
}

static enum http1_event read_head(struct http1_parser *p, const char *data, size_t n, size_t *used)
{
    *used = 0;
    while (*used < n) {
        size_t allowed = head_allowance(p), take = MIN_OF(n - *used, allowed);
        if (take == 0)
            return head_too_large(p);
        /* not beyond the line's end: the bytes behind the head are not ours, and the allowance changes with the line */
        const char *lf = memchr(data + *used, '\n', take);
        if (lf)
            take = (size_t)(lf + 1 - (data + *used));
        if (!head_reserve(p, take + (lf ? MIN_OF(n - *used - take, (size_t)512) : 0)))
            return fail(p, 503, "out of memory for the request's headers");
        memcpy(p->head + p->head_n, data + *used, take);
        p->head_n += (uint32_t)take;
        *used += take;
        bool empty = false;
        if (!lf)
            continue;
        if (!check_line(p, p->head + p->head_n - 1, &empty))
            return HTTP1_ERROR;
        if (empty) {
            p->state = ST_HEAD_DONE;
            return parse_head(p);
        }
    }
    return HTTP1_MORE;
}

/* --- body --- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum http1_event bad_chunk(struct http1_parser *p)
{
    return fail(p, 400, "the chunked body is malformed");
}

static bool is_token_byte(char c)
{
    return http1_is_token((struct str){&c, 1});
}

/* HTAB, SP, visible, obs-text: what a quoted string holds. */
static bool is_text_byte(char c)
{
    return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

enum ext { EXT_NAME_START, EXT_NAME, EXT_VALUE_START, EXT_VALUE, EXT_QUOTED, EXT_PAIR, EXT_QUOTED_END };

/* A byte of a chunk's extensions: ";name", ";name=token", ";name="quoted"" (RFC 9112 7.1.1, without the optional spaces). */
static bool chunk_ext_byte(struct http1_parser *p, char c)
{
    switch ((enum ext)p->trailers) {
    case EXT_NAME_START:
        p->trailers = EXT_NAME;
        return is_token_byte(c);
    case EXT_NAME:
        p->trailers = c == '=' ? EXT_VALUE_START : c == ';' ? EXT_NAME_START : EXT_NAME;
        return c == '=' || c == ';' || is_token_byte(c);
    case EXT_VALUE_START:
        p->trailers = c == '"' ? EXT_QUOTED : EXT_VALUE;
        return c == '"' || is_token_byte(c);
    case EXT_VALUE:
        p->trailers = c == ';' ? EXT_NAME_START : EXT_VALUE;
        return c == ';' || is_token_byte(c);
    case EXT_QUOTED:
        p->trailers = c == '"' ? EXT_QUOTED_END : c == '\\' ? EXT_PAIR : EXT_QUOTED;
        return is_text_byte(c);
    case EXT_PAIR:
        p->trailers = EXT_QUOTED;
        return is_text_byte(c);
    case EXT_QUOTED_END:
        p->trailers = EXT_NAME_START;
        return c == ';';
    }
    return false;
}

static bool chunk_ext_may_end(const struct http1_parser *p)
{
    return p->trailers == EXT_NAME || p->trailers == EXT_VALUE || p->trailers == EXT_QUOTED_END;
}

/* A byte of the line that carries a chunk's size. `trailers` holds the state of the extensions. */
static enum http1_event chunk_line_byte(struct http1_parser *p, char c)
{
    int digit = p->state == ST_CHUNK_SIZE ? hex_digit(c) : -1;
    if (++p->line_n > CHUNK_LINE_MAX)
        return fail(p, 400, "a chunk's size line is too long");
    if (digit >= 0 && p->chunk_digits < CHUNK_DIGITS_MAX) {
        p->left = p->left << 4 | (unsigned)digit;
        p->chunk_digits++;
    } else if (p->chunk_digits == 0) {
        return bad_chunk(p);
    } else if (c == '\r' && (p->state == ST_CHUNK_SIZE || chunk_ext_may_end(p))) {
        p->state = ST_CHUNK_LF;
        p->trailers = 0;
    } else if (p->state == ST_CHUNK_SIZE) {
        p->state = ST_CHUNK_EXT;
        return c == ';' ? HTTP1_MORE : bad_chunk(p);
    } else if (!chunk_ext_byte(p, c)) {
        return bad_chunk(p);
    }
    return HTTP1_MORE;
}

static enum http1_event chunk_begins(struct http1_parser *p)
{
    p->frame_bytes += p->line_n + 3;
    p->chunk_bytes += p->left; /* both below 2^60 */
    if (p->chunk_bytes > CHUNKS_MAX || p->frame_bytes > FRAME_FREE_BYTES + 16 * p->chunk_bytes)
        return fail(p, 400, "the chunked body is more framing than data");
    p->state = p->left ? ST_CHUNK_DATA : ST_TRAILER;
    p->line_n = 0;
    p->head_n = 0; /* reused below: bytes of the current trailer line */
    return HTTP1_MORE;
}

static bool is_framing_trailer(const struct http1_parser *p)
{
    struct str name = {p->trailer_name, p->head_n};
    return name.n <= sizeof p->trailer_name && (str_ieqz(name, "content-length") || str_ieqz(name, "transfer-encoding"));
}

/* A byte of the trailer section. Trailers are checked like headers, bounded like headers, and dropped. `head_n` counts the bytes
 * of the line, `chunk_digits` is 1 while its name is read, 2 behind the colon. */
static enum http1_event trailer_byte(struct http1_parser *p, char c)
{
    if (++p->line_n > p->limits->max_head_bytes)
        return fail(p, 400, "the trailer section is too large");
    if (p->head_n == 0) {
        if (c == '\r') {
            p->state = ST_END_LF;
            return HTTP1_MORE;
        }
        if (p->trailers == MIN_OF(p->limits->max_headers, (uint32_t)UINT8_MAX))
            return fail(p, 400, "the trailer section has too many lines");
        p->trailers++;
        p->chunk_digits = 1;
    }
    if (p->chunk_digits == 1) {
        if (c == ':' && p->head_n > 0) {
            p->chunk_digits = 2;
            if (is_framing_trailer(p))
                return fail(p, 400, "a trailer must not say where the body ends");
        } else if (!is_token_byte(c)) {
            return fail(p, 400, "a trailer line is malformed");
        } else if (p->head_n < sizeof p->trailer_name) {
            p->trailer_name[p->head_n] = c;
        }
    } else if (c == '\r') {
        p->state = ST_TRAILER_LF;
    } else if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f) {
        return fail(p, 400, "a trailer line is malformed");
    }
    p->head_n++;
    return HTTP1_MORE;
}

static enum http1_event chunk_byte(struct http1_parser *p, char c)
{
    switch (p->state) {
    case ST_CHUNK_SIZE:
    case ST_CHUNK_EXT:
        return chunk_line_byte(p, c);
    case ST_CHUNK_LF:
        return c == '\n' ? chunk_begins(p) : bad_chunk(p);
    case ST_DATA_CR:
        p->state = ST_DATA_LF;
        return c == '\r' ? HTTP1_MORE : bad_chunk(p);
    case ST_DATA_LF:
        p->state = ST_CHUNK_SIZE;
        p->chunk_digits = 0;
        return c == '\n' ? HTTP1_MORE : bad_chunk(p);
    case ST_TRAILER:
        return trailer_byte(p, c);
    case ST_TRAILER_LF:
        p->state = ST_TRAILER;
        p->head_n = 0;
        return c == '\n' ? HTTP1_MORE : bad_chunk(p);
    default:
        ASSERT(p->state == ST_END_LF);
        if (c != '\n')
            return bad_chunk(p);
        p->state = ST_DONE;
        return HTTP1_END;
    }
}

static enum http1_event take_data(struct http1_parser *p, const char *data, size_t n, size_t *used, struct str *body)
{
    size_t take = (size_t)MIN_OF((uint64_t)n, p->left);
    *body = (struct str){data, take};
    *used += take;
    p->left -= take;
    return HTTP1_BODY;
}

static enum http1_event read_chunks(struct http1_parser *p, const char *data, size_t n, size_t *used, struct str *body)
{
    *used = 0;
    while (*used < n) {
        if (p->state == ST_CHUNK_DATA) {
            take_data(p, data + *used, n - *used, used, body);
            if (p->left == 0)
                p->state = ST_DATA_CR;
            return HTTP1_BODY;
        }
        enum http1_event e = chunk_byte(p, data[(*used)++]);
        if (e != HTTP1_MORE)
            return e;
    }
    return HTTP1_MORE;
}

static void enter_body(struct http1_parser *p)
{
    static const uint8_t next[] = {[HTTP1_NO_BODY] = ST_FINISH,
                                   [HTTP1_LENGTH] = ST_LENGTH,
                                   [HTTP1_CHUNKED] = ST_CHUNK_SIZE,
                                   [HTTP1_UNTIL_EOF] = ST_EOF_BODY};
    p->state = next[p->body];
}

enum http1_event http1_read(struct http1_parser *p, const char *data, size_t n, size_t *used, struct str *body)
{
    enum http1_event e;
    size_t more = 0;
    *used = 0;
    switch (p->state) {
    case ST_START:
        e = begin(p, data, n, used);
        if (e == HTTP1_ERROR || *used == n)
            return e;
        e = read_head(p, data + *used, n - *used, &more);
        *used += more;
        break;
    case ST_HEAD:
        e = read_head(p, data, n, used);
        break;
    case ST_LENGTH:
        if (p->left) {
            e = n ? take_data(p, data, n, used, body) : HTTP1_MORE;
            break;
        }
        /* fallthrough */
    case ST_FINISH:
        p->state = ST_DONE;
        return HTTP1_END;
    case ST_EOF_BODY:
        *used = n;
        *body = (struct str){data, n};
        return n ? HTTP1_BODY : HTTP1_MORE;
    default:
        ASSERT(p->state != ST_DONE && p->state != ST_FAILED && p->state != ST_HEAD_DONE);
        return read_chunks(p, data, n, used, body);
    }
    if (e == HTTP1_HEAD)
        enter_body(p);
    return e;
}

enum http1_event http1_eof(struct http1_parser *p)
{
    if (p->state == ST_EOF_BODY || p->state == ST_FINISH || (p->state == ST_LENGTH && p->left == 0)) {
        p->state = ST_DONE;
        return HTTP1_END;
    }
    return fail(p, 400, "the connection ended in the middle of a message");
}

uint64_t http1_body_left(const struct http1_parser *p)
{
    return p->state == ST_LENGTH ? p->left : 0;
}

void http1_body_taken(struct http1_parser *p, uint64_t n)
{
    ASSERT(p->state == ST_LENGTH && n <= p->left);
    p->left -= n;
}
