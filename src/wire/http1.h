/* http1.h: HTTP/1.1 and 1.0 messages, bytes in and events out, for servers and clients. No I/O.
 *
 * One parser reads one message. Feed it what has come; it takes what it needs and says what happened:
 *
 *     HTTP1_HEAD -> (HTTP1_BODY ...) -> HTTP1_END          or HTTP1_ERROR at any point, or HTTP1_MORE: feed the next bytes
 *
 * Bytes behind the message stay the caller's (the next pipelined message: call http1_init again). The result does not depend on
 * how the bytes were cut. It is strict on purpose, because leniency in one of two readers of a connection is what smuggling
 * lives on: every line ends in CRLF and no other CR or LF is accepted anywhere in the framing; no whitespace around names, no
 * folded lines; a message has either one Content-Length of digits, or one Transfer-Encoding that is exactly "chunked" (1.1
 * only), or neither. What is refused carries the HTTP status to answer with; the connection can't be used after it.
 *
 * Memory: head bytes and header table live in the caller's arena, bounded by the limits. Body bytes are never copied here:
 * HTTP1_BODY hands out a part of the input. Single thread. */
#ifndef INFERD_WIRE_HTTP1_H
#define INFERD_WIRE_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "wire/url.h"

struct http_header {
    struct str name, value; /* name as sent, compare case-insensitively; value trimmed */
};

struct http1_limits {
    uint32_t max_head_bytes; /* header lines and trailers, without the request line: 431 */
    uint32_t max_headers;    /* 431 */
    uint32_t max_url_bytes;  /* 414 */
};

enum http1_event { HTTP1_MORE, HTTP1_HEAD, HTTP1_BODY, HTTP1_END, HTTP1_ERROR };

enum http1_body { HTTP1_NO_BODY, HTTP1_LENGTH, HTTP1_CHUNKED, HTTP1_UNTIL_EOF };

struct http1_parser {
    /* valid from HTTP1_HEAD on, until the arena is cleared */
    struct str method;     /* request */
    struct str target;     /* request, as sent */
    struct url_target url; /* request */
    int status;            /* response */
    struct str reason;     /* response */
    struct http_header *headers;
    uint32_t n_headers;
    uint8_t minor; /* HTTP/1.minor: 0 or 1 */
    enum http1_body body;
    uint64_t content_length; /* HTTP1_LENGTH: announced */
    bool keep_alive;         /* what the sender of this message asks for */
    bool expect_continue;    /* request: waits for 100 before it sends the body */
    /* after HTTP1_ERROR */
    int error_status;       /* HTTP status to answer: 400, 414, 417, 431, 501, 505 */
    const char *error_text; /* constant, a sentence */
    /* private */
    struct arena *arena;
    const struct http1_limits *limits;
    char *head;
    uint32_t head_n, head_cap, line_at, scan_at, first_line_n, lines;
    uint64_t left;                     /* body bytes of this length, or of this chunk, still to come */
    uint64_t chunk_bytes, frame_bytes; /* of all chunks: data, and framing around it */
    uint32_t line_n;                   /* chunked: bytes of the current framing line, or of all trailers */
    uint8_t state, chunk_digits, trailers, skipped;
    char trailer_name[18]; /* as far as it fits */
    bool response, no_body;
};

/* Start on a new message. `arena` and `limits` are borrowed until the message ends. */
void http1_init_request(struct http1_parser *p, struct arena *arena, const struct http1_limits *limits);
/* `head_request`: the answer to a HEAD, whose head announces a body that does not come. 1xx answers are messages of their own:
 * HEAD, then END; start again for the final one. */
void http1_init_response(struct http1_parser *p, struct arena *arena, const struct http1_limits *limits, bool head_request);

/* Take bytes. `*used` of `n` were consumed. HTTP1_BODY: `*body` is a non-empty part of `data`. HTTP1_MORE consumed everything.
 * n may be 0: HTTP1_MORE, or HTTP1_END of a message without body. Call again with the rest after every other event; after
 * HTTP1_END and HTTP1_ERROR only init may follow. */
enum http1_event http1_read(struct http1_parser *p, const char *data, size_t n, size_t *used, struct str *body);
/* The connection ended. HTTP1_END when that completes the message (HTTP1_UNTIL_EOF), HTTP1_ERROR otherwise. */
enum http1_event http1_eof(struct http1_parser *p);
/* Nothing of the message has come yet (empty lines in front of a request do not count). */
bool http1_idle(const struct http1_parser *p);

/* HTTP1_LENGTH only, behind HTTP1_HEAD: how many body bytes are still to come, so that the caller may read them from the socket
 * to where they belong, and then account for them. `n` <= http1_body_left(). When nothing is left, http1_read gives END. */
uint64_t http1_body_left(const struct http1_parser *p);
void http1_body_taken(struct http1_parser *p, uint64_t n);

/* True when `list` ("a, b;q=1") holds `token`, compared without case and without parameters. */
bool http1_list_has(struct str list, const char *token);
/* RFC 9110 token, which header names and methods are. */
bool http1_is_token(struct str s);

/* --- writing --- */

/* The registered phrase ("Not Found"); "Status" for codes that have none. Never NULL. */
const char *http1_reason(int status);
/* "HTTP/1.1 404 Not Found\r\n". */
void http1_write_status(struct buf *out, int status);
/* "Name: value\r\n". False, and nothing written, when the name is no token or the value holds a control character other than a
 * tab: what a client sent must not be able to end a header. */
bool http1_write_header(struct buf *out, struct str name, struct str value);
/* The same, unchecked: for names and values that nobody outside has a say in. */
void http1_put_header(struct buf *out, struct str name, struct str value);
/* "Name: 123\r\n" for a constant, valid name. */
void http1_write_header_u64(struct buf *out, const char *name, uint64_t value);

/* "Sun, 06 Nov 1994 08:49:37 GMT" and a NUL (RFC 9110 IMF-fixdate), 30 bytes, for seconds since 1970 up to the year 9999. */
void http1_date(char out[30], uint64_t unix_s);

#define HTTP1_CHUNK_HEAD_BYTES 20
/* The line in front of a chunk of `n` > 0 bytes ("1f\r\n", not terminated); returns its length. "\r\n" follows the chunk, and
 * HTTP1_LAST_CHUNK ends the body. */
size_t http1_chunk_head(char out[HTTP1_CHUNK_HEAD_BYTES], size_t n);
#define HTTP1_LAST_CHUNK "0\r\n\r\n"

#endif
