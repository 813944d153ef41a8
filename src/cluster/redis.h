/* redis.h: one connection to a Redis, shared by all threads of a process and by whatever it is used for: quotas now, locks of scheduled jobs and
 * load reports next. A call never waits longer than the deadline, whatever the Redis does.
 *
 *     redis_create ── redis_attach (each user: its scripts, what to do when it is up) ── redis_start ── redis_send … ── redis_destroy
 *
 * One thread owns the socket. Calls of all threads are posted to it, sent together in one write, and answered in order (Redis pipelines).
 * Users' callbacks run on that thread and must not block; they usually post on.
 *
 * States: DOWN (waiting to try again, 100 ms to 2 s apart) -> CONNECTING -> GREETING (credentials, database, scripts, then a PING that must be
 * answered within the deadline) -> UP. The breaker is the way back: a call's deadline passes and not a word has come since it was sent; or three
 * calls in a row get no answer in time, or an error of the server as a whole (LOADING, READONLY, OOM, NOAUTH, ...): the connection is
 * closed. While it isn't UP no call is taken: redis_send says so at once and the caller does without. So a Redis that hangs costs the
 * calls that are under way one deadline, and nobody afterwards; and no caller's request is ever the probe.
 *
 * What was sent and not answered may still be done by the Redis, also after the connection is gone. Users whose calls aren't idempotent number
 * them (edge/quota_redis.lua shows how: an epoch a connection, a sequence number a call).
 *
 * Replies are hiredis's (struct redisReply); its reader parses them. The socket, time and TLS are ours (net/loop, net/tls): hiredis 0.14, which
 * Debian 12 has, knows neither TLS nor deadlines. */
#ifndef INFERD_CLUSTER_REDIS_H
#define INFERD_CLUSTER_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "net/loop.h"

struct redis;
struct redisReply;
struct metrics;

#define REDIS_USERS_MAX 4

struct redis_options {
    const char *url;           /* redis_url.h; copied */
    const char *password_file; /* its first line is the password; read at each connect. NULL: the URL's */
    const char *ca_file;       /* of rediss://. NULL: the system's authorities */
    uint64_t deadline_ns;      /* of a call; 0: 50 ms */
    struct metrics *metrics;   /* may be NULL */
    struct logger *log;
};

/* A Lua script: loaded with each connection, called by its digest. A Redis that has lost it (SCRIPT FLUSH, restart) gets it again, and the calls that
 * it refused are repeated in their order. */
struct redis_script {
    const char *text; /* lives as long as the client */
    char sha[41];     /* the client's: as the Redis named it */
};

/* Somebody who uses the connection; embedded, outlives the client. All callbacks on the client's thread, each may be NULL. */
struct redis_user {
    struct redis_script *script;
    void (*up)(struct redis_user *u);   /* the connection is new: nothing of the one before is under way any more */
    void (*down)(struct redis_user *u); /* it is gone, all its calls are done */
};

/* One call; embedded. It, and `args`, belong to the client from redis_send until `done`. */
struct redis_call {
    /* the caller's */
    struct redis_script *script; /* EVALSHA with it; NULL: `args` is the whole command */
    struct str args;             /* as redis_arg wrote them: for a script the number of keys, keys, arguments */
    uint32_t n_args;
    bool patient; /* no deadline: done with the connection at the latest */
    /* 0: `reply` is valid during the call. DEADLINE, UNAVAILABLE (the connection is gone or never was; it may or may not have been executed),
     * INTERNAL (the Redis answered with an error: `reply` is that). */
    void (*done)(struct redis_call *c, int status, const struct redisReply *reply);
    /* the client's */
    struct loop_task task;
    struct list link;
    uint64_t sent_ns, due_ns, slot;
    bool queued;
};

/* Append one argument in Redis's form. */
void redis_arg(struct buf *b, struct str s);
void redis_arg_u64(struct buf *b, uint64_t v);

/* Check the URL, make the client; connects to nothing yet. INVALID, NOMEM. */
int redis_create(const struct redis_options *o, struct redis **out, struct error *err) MUST_CHECK;
/* Before redis_start; at most REDIS_USERS_MAX. */
void redis_attach(struct redis *r, struct redis_user *u);
/* Start the thread; whether a Redis is there is not waited for. IO, NOMEM. */
int redis_start(struct redis *r, struct error *err) MUST_CHECK;
/* Ends all calls (UNAVAILABLE) and the thread; blocks for that, and for a name that is being resolved. NULL is accepted. */
void redis_destroy(struct redis *r);

/* Any thread, never blocks. False: it isn't up; `done` won't be called. True: `done` will be, once. Calls of one thread, or under one lock, are
 * sent in order. */
bool redis_send(struct redis *r, struct redis_call *c) MUST_CHECK;

/* Client's thread only. Its loop, for timers; begin anew with another connection once what is being done is over. */
struct loop *redis_loop(struct redis *r);
void redis_reset(struct redis *r, const char *reason);

/* Its state as JSON members: "state":"up","address":"...","since_s":3,"reason":"..." Any thread. */
void redis_describe(struct redis *r, struct buf *out);

/* Element `i` of an array of integers; false: the reply is something else. */
bool redis_reply_i64(const struct redisReply *reply, size_t i, int64_t *out);

#endif
