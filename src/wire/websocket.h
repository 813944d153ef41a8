/* websocket.h: what somebody in the middle has to know of WebSockets (RFC 6455): whether a request's headers ask for one, whether they do so properly, and
 * where in a stream of bytes one frame ends and the next begins, so that a Close can be put between two. What frames hold is nobody's business here.
 * Pure; one thread at a time. */
#ifndef INFERD_WIRE_WEBSOCKET_H
#define INFERD_WIRE_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/http1.h"

#define WEBSOCKET_VERSION      "13"
#define WEBSOCKET_KEY_CHARS    24 /* base64 of 16 bytes */
#define WEBSOCKET_ACCEPT_CHARS 28 /* base64 of a SHA-1 */
/* What is appended to the key before it is hashed (RFC 6455, 1.3). */
#define WEBSOCKET_GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

#define WEBSOCKET_GOING_AWAY 1001u /* RFC 6455, 7.4.1 */

/* `Upgrade` holds "websocket" and `Connection` "upgrade". */
bool websocket_is_upgrade(const struct http_header *headers, size_t n);
/* The rest of the client's side (4.2.1): one key of 16 bytes, one version that is 13. INVALID names what is wrong. */
int websocket_check_request(const struct http_header *headers, size_t n, struct error *err) MUST_CHECK;
/* First header with this name; *times how often it is there. .p == NULL: it isn't. */
struct str websocket_header(const struct http_header *headers, size_t n, const char *name, size_t *times);

/* One direction of a connection. Zeroed at first. */
struct websocket_frames {
    uint64_t left;    /* bytes of the current frame's payload still to come */
    uint8_t head_n;   /* bytes of its head that are in */
    uint8_t head[10]; /* without the mask */
    uint8_t need;     /* of the head, as far as is known */
    bool closing;     /* a Close frame has been begun */
    bool lost;        /* this is no WebSocket framing */
};
void websocket_frames_take(struct websocket_frames *f, const void *data, size_t n);
/* May a Close be put here? Not inside a frame, not behind another Close, not where the framing is not understood. */
bool websocket_frames_may_close(const struct websocket_frames *f);

#define WEBSOCKET_CLOSE_BYTES 8
/* A Close frame with a code; as a client it is masked with `mask`. Returns its bytes. */
size_t websocket_write_close(uint8_t out[WEBSOCKET_CLOSE_BYTES], unsigned code, bool client, uint32_t mask);

#endif
