/* status.h: what can go wrong, as one closed set of codes, and how each code looks from outside.
 *
 * Every fallible function of inferd returns `int`: STATUS_OK (0) or one of these negative codes. The one table in
 * status.c maps a code to its HTTP status, its gRPC status and its name; no other place decides that. */
#ifndef INFERD_BASE_STATUS_H
#define INFERD_BASE_STATUS_H

enum status {
    STATUS_OK = 0,
    STATUS_AGAIN = -1,              /* parsers and non-blocking calls: more input or a later try is needed; not an error */
    STATUS_INVALID = -2,            /* the caller's fault: the request or the file is malformed (400) */
    STATUS_UNAUTHENTICATED = -3,    /* no or unusable credentials (401) */
    STATUS_FORBIDDEN = -4,          /* known caller, not allowed (403) */
    STATUS_NOT_FOUND = -5,          /* unknown model, version, route, file (404) */
    STATUS_METHOD = -6,             /* route exists, method does not (405) */
    STATUS_TIMEOUT = -7,            /* the client was too slow to send (408) */
    STATUS_CONFLICT = -8,           /* the object is in a state that forbids this (409) */
    STATUS_TOO_LARGE = -9,          /* body over its limit, compressed or not (413) */
    STATUS_URI_TOO_LONG = -10,      /* 414 */
    STATUS_MEDIA_TYPE = -11,        /* unsupported content type or encoding (415) */
    STATUS_EXPECTATION = -12,       /* unknown Expect (417) */
    STATUS_EXHAUSTED = -13,         /* a queue, quota or limit is full: try later (429) */
    STATUS_HEADERS_TOO_LARGE = -14, /* 431 */
    STATUS_CANCELLED = -15,         /* the client went away or asked to stop (counted as 499) */
    STATUS_INTERNAL = -16,          /* our bug or a library's failure (500) */
    STATUS_UNIMPLEMENTED = -17,     /* a feature that inferd does not have (501) */
    STATUS_UNAVAILABLE = -18,       /* not ready, loading, draining, dependency down (503) */
    STATUS_DEADLINE = -19,          /* the request's deadline passed or cannot be met (504) */
    STATUS_NOMEM = -20,             /* no memory for this request (503) */
    STATUS_IO = -21,                /* a system call failed; the text says which and why (500) */
    STATUS_UPSTREAM = -22,          /* a server behind this one failed: no connection, a broken or a malformed answer (502) */
    STATUS_LOOP = -23,              /* a request came back to a gateway that had sent it on (508) */
    STATUS_MISDIRECTED = -24,       /* the host asked for is another certificate's than the connection's (421) */
};
#define STATUS_COUNT 25

/* The HTTP status code for `status` (200 for STATUS_OK; 500 for a code outside the set). Any thread. */
int status_http(int status);

/* The code whose HTTP status this is (503: UNAVAILABLE); STATUS_INTERNAL when none has it. Any thread. */
int status_from_http(int http);

/* The gRPC status code (0..16) for `status`. Any thread. */
int status_grpc(int status);

/* A short constant lower_snake name: metrics label and log value ("invalid", "deadline"). Never NULL. */
const char *status_name(int status);

#endif
