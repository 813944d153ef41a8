/* redis_priv.h: for cluster/redis*.c only: the client, its connection, what is under way. */
#ifndef INFERD_CLUSTER_REDIS_PRIV_H
#define INFERD_CLUSTER_REDIS_PRIV_H

#include <stdatomic.h>

#include "cluster/redis.h"
#include "cluster/redis_url.h"
#include "os/sock.h"
#include "os/thread.h"

struct redisReader;
struct tls_client;
struct tls_conn;
struct metric;
struct metric_histogram;

enum redis_state { REDIS_DOWN, REDIS_RESOLVING, REDIS_CONNECTING, REDIS_HANDSHAKE, REDIS_GREETING, REDIS_UP };

#define REDIS_ADDRESSES_MAX 8
#define REDIS_REASON_BYTES  256
#define REDIS_IN_BYTES      16384

/* Replies come in the order of calls; a call that was given up leaves its place empty. */
struct redis_ring {
    struct redis_call **at; /* [cap] */
    uint64_t head, tail;    /* tail - head are under way */
    size_t cap;             /* power of two */
};

struct redis {
    struct redis_options o;
    struct redis_url url;
    struct loop *loop;
    struct os_thread thread;
    bool started;
    _Atomic bool up, stopping;

    /* the client's thread */
    enum redis_state state;
    int fd;
    struct loop_fd watch;
    bool watched;
    struct tls_client *trust;
    struct tls_conn *tls;
    struct redisReader *reader;
    struct buf out;
    size_t out_at;
    struct redis_ring ring;
    struct list timed;               /* calls with a deadline, sent or held, the earliest first */
    struct list held;                /* calls that wait while scripts are loaded again; then sent in order */
    bool reloading;                  /* scripts are being loaded again */
    size_t n_loads;                  /* replies to that which are still to come; they follow all others */
    unsigned greeted;                /* replies to the greeting so far */
    unsigned n_greeting;             /* ... and how many there will be, without the PING */
    unsigned role_at;                /* which of them says what role it has; 0: it isn't asked */
    char moved[REDIS_ADDRESS_BYTES]; /* a cluster says that our keys are there; "": nothing was said */
    uint64_t ping_ns;
    uint64_t heard_ns; /* the last answer */
    unsigned misses;   /* calls in a row without a proper answer in time */
    struct loop_timer due, retry;
    struct loop_task flush, stop;
    bool flushing;
    uint64_t backoff_ns, attempt_until_ns;
    const char *reset; /* reason */
    struct os_addr addresses[REDIS_ADDRESSES_MAX];
    size_t n_addresses, at_address;
    struct redis_user *users[REDIS_USERS_MAX];
    size_t n_users;
    char in[REDIS_IN_BYTES];

    /* a name is resolved by a thread of its own */
    struct os_thread resolver;
    bool resolving;
    struct loop_task resolved;
    char at[REDIS_ADDRESS_BYTES]; /* what is resolved: the URL's, the master's, or where our keys have moved to */
    struct os_addr found[REDIS_ADDRESSES_MAX];
    size_t n_found;
    int found_rc;
    struct error found_err;

    struct os_mutex lock; /* guards what redis_describe tells */
    enum redis_state told_state;
    uint64_t since_ns;
    char reason[REDIS_REASON_BYTES];
    char told_address[REDIS_ADDRESS_BYTES];

    struct metric *m_up, *m_connects, *m_failures, *m_ok, *m_error, *m_timeout, *m_lost;
    struct metric_histogram *m_round_trip;
};

/* redis_conn.c */
void redis__connect(struct redis *r);
/* Close, tell everybody, try again later. */
void redis__lose(struct redis *r, const char *reason);
/* Write what is waiting, at the end of the iteration. */
void redis__flush_later(struct redis *r);
void redis__resolver_end(struct redis *r);

/* redis_sentinel.c: "HOST:PORT" of the master that the sentinels of `u` name; blocks, up to 0.6 s for each of them that doesn't answer. UNAVAILABLE. */
int redis__ask_sentinels(const struct redis_url *u, char address[REDIS_ADDRESS_BYTES], struct error *err) MUST_CHECK;

/* redis.c: a reply has come; false: the connection is lost over it. */
bool redis__on_reply(struct redis *r, const struct redisReply *reply, struct error *err);
void redis__fail_all(struct redis *r);
void redis__set_state(struct redis *r, enum redis_state state, const char *reason);
/* What the connection goes to; shorter than REDIS_ADDRESS_BYTES. */
void redis__tell_address(struct redis *r, const char *address);
/* The digest of the `i`th script is in. */
bool redis__take_sha(struct redis *r, size_t i, const struct redisReply *reply, struct error *err);
/* Append "SCRIPT LOAD" of each user's script. How many. */
size_t redis__put_scripts(struct redis *r);
void redis__head(struct buf *b, size_t n_args);

#endif
