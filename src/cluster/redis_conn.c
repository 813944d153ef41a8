/* redis_conn.c: the connection of redis.h: resolving, connecting, TLS, the greeting, bytes in and out.
 *
 *     connect ──> (a name: a thread resolves it) ──> next address ──> (TLS) ──> greeting: AUTH, SELECT, SCRIPT LOAD ... ──> PING ──> up
 *        ^                                                                                                                    │
 *        └───────────────────── retry timer, 100 ms to 2 s, a quarter of it at random <─────────────────── lose <─────────────┘
 *
 * All of it has ATTEMPT_NS; the PING alone the deadline of a call, so that a Redis too far away for it is never used rather than used and
 * given up over and over. */
#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "cluster/redis_priv.h"
#include "net/tls.h"
#include "obs/metrics.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/random.h"

#define ATTEMPT_NS      1000000000u
#define BACKOFF_MIN_NS  100000000u
#define BACKOFF_MAX_NS  2000000000u
#define REPLY_BYTES_MAX (1u << 20)
#define PASSWORD_BYTES  4096

/* ---- the end of a connection ---- */

static void close_socket(struct redis *r)
{
    tls_conn_destroy(r->tls);
    r->tls = NULL;
    if (r->watched)
        loop_fd_remove(r->loop, &r->watch);
    r->watched = false;
    if (r->fd >= 0)
        os_close(r->fd);
    r->fd = -1;
    if (r->reader)
        redisReaderFree(r->reader);
    r->reader = NULL;
    r->out.n = r->out_at = 0;
}

void redis__lose(struct redis *r, const char *reason)
{
    char text[REDIS_REASON_BYTES];
    bool was_up = r->state == REDIS_UP;
    size_t n = MIN_OF(strlen(reason), sizeof text - 1);
    memcpy(text, reason, n);
    text[n] = 0;
    bool news = was_up || strcmp(r->reason, text) != 0; /* this thread alone writes it */
    redis__set_state(r, REDIS_DOWN, text);
    r->reset = NULL;
    r->misses = 0;
    close_socket(r);
    if (!was_up)
        metric_inc(r->m_failures);
    if (atomic_load(&r->stopping)) {
        loop_timer_stop(r->loop, &r->retry);
    } else {
        r->backoff_ns =
            was_up ? BACKOFF_MIN_NS : MIN_OF(MAX_OF(r->backoff_ns * 2, (uint64_t)BACKOFF_MIN_NS), (uint64_t)BACKOFF_MAX_NS);
        loop_timer_start(r->loop, &r->retry, loop_update_now(r->loop) + r->backoff_ns - os_random_u64() % (r->backoff_ns / 4));
        if (news)
            LOG(r->o.log, LOG_WARN, "redis_down", LOG_S("address", r->told_address), LOG_S("reason", text));
    }
    redis__fail_all(r);
    for (size_t i = 0; was_up && i < r->n_users; i++)
        if (r->users[i]->down)
            r->users[i]->down(r->users[i]);
}

static void lose_err(struct redis *r, const struct error *err)
{
    redis__lose(r, err->text);
}

/* ---- bytes ---- */

static void want(struct redis *r)
{
    bool write = r->out_at < r->out.n || (r->tls && tls_conn_wants_write(r->tls));
    loop_fd_set(r->loop, &r->watch, LOOP_READ | (write ? LOOP_WRITE : 0));
}

static bool write_out(struct redis *r)
{
    while (r->out_at < r->out.n) {
        struct os_iov v = {r->out.p + r->out_at, r->out.n - r->out_at};
        ssize_t n = r->tls ? tls_conn_write(r->tls, &v, 1) : os_sock_write(r->fd, &v, 1);
        if (n == STATUS_AGAIN)
            break;
        if (n < 0) {
            redis__lose(r, "the connection broke");
            return false;
        }
        r->out_at += (size_t)n;
    }
    if (r->out_at == r->out.n)
        r->out.n = r->out_at = 0;
    want(r);
    return true;
}

static void flush(struct loop_task *t)
{
    struct redis *r = CONTAINER_OF(t, struct redis, flush);
    r->flushing = false;
    if (r->reset && r->fd >= 0)
        redis__lose(r, r->reset);
    else if (r->state >= REDIS_GREETING)
        write_out(r);
}

void redis__flush_later(struct redis *r)
{
    if (r->flushing)
        return;
    r->flushing = true;
    r->flush.run = flush;
    loop_defer(r->loop, &r->flush);
}

static bool on_greeting(struct redis *r, const struct redisReply *reply, struct error *err);

/* Every whole reply that is there. False: lost. */
static bool take_replies(struct redis *r)
{
    struct error err = {0};
    void *reply;
    for (;;) {
        if (redisReaderGetReply(r->reader, &reply) != REDIS_OK) {
            error_set(&err, STATUS_UNAVAILABLE, "it does not speak Redis: %s", r->reader->errstr);
            lose_err(r, &err);
            return false;
        }
        if (!reply)
            break;
        bool ok = r->state == REDIS_UP ? redis__on_reply(r, reply, &err) : on_greeting(r, reply, &err);
        freeReplyObject(reply);
        if (!ok) {
            lose_err(r, &err);
            return false;
        }
    }
    if (r->reader->len - r->reader->pos <= REPLY_BYTES_MAX)
        return true;
    redis__lose(r, "it sends an answer that is too long");
    return false;
}

static void read_in(struct redis *r)
{
    for (;;) {
        ssize_t n = r->tls ? tls_conn_read(r->tls, r->in, sizeof r->in) : os_sock_read(r->fd, r->in, sizeof r->in);
        if (n == STATUS_AGAIN)
            break;
        if (n <= 0) {
            redis__lose(r, n == 0 ? "it closed the connection" : "the connection broke");
            return;
        }
        if (redisReaderFeed(r->reader, r->in, (size_t)n) != REDIS_OK) {
            redis__lose(r, "out of memory");
            return;
        }
        if (!take_replies(r))
            return;
        if ((size_t)n < sizeof r->in && !(r->tls && tls_conn_has_more(r->tls)))
            break;
    }
    want(r);
}

/* ---- the greeting ---- */

/* The password: of the file, which may have changed, else the URL's. */
static int read_password(struct redis *r, struct error *err)
{
    struct buf text;
    if (!r->o.password_file)
        return 0;
    buf_init(&text);
    int rc = os_file_read(r->o.password_file, PASSWORD_BYTES, &text, err);
    if (rc == 0) {
        struct str rest = buf_str(&text), line = {0};
        str_cut(&rest, '\n', &line);
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        if (line.n >= sizeof r->url.password)
            rc = error_set(err, STATUS_INVALID, "the password in redis.password_file is longer than %zu bytes",
                           sizeof r->url.password - 1);
        else {
            memcpy(r->url.password, line.p ? line.p : "", line.n);
            r->url.password[line.n] = 0;
        }
    } else {
        error_prefix(err, "redis.password_file");
    }
    buf_release(&text);
    return rc;
}

static void greet(struct redis *r)
{
    struct error err = {0};
    struct buf *b = &r->out;
    r->greeted = r->n_greeting = r->role_at = 0;
    r->ping_ns = 0;
    redis__set_state(r, REDIS_GREETING, NULL);
    if (read_password(r, &err) < 0) {
        lose_err(r, &err);
        return;
    }
    if (r->url.password[0]) {
        redis__head(b, r->url.user[0] ? 3 : 2);
        redis_arg(b, STR("AUTH"));
        if (r->url.user[0])
            redis_arg(b, str_of(r->url.user));
        redis_arg(b, str_of(r->url.password));
        r->n_greeting++;
    }
    if (r->url.n_sentinels) {
        redis__head(b, 1);
        redis_arg(b, STR("ROLE"));
        r->role_at = ++r->n_greeting;
    }
    if (r->url.db) {
        redis__head(b, 2);
        redis_arg(b, STR("SELECT"));
        redis_arg_u64(b, r->url.db);
        r->n_greeting++;
    }
    r->n_loads = redis__put_scripts(r);
    r->n_greeting += (unsigned)r->n_loads;
    if (!r->n_greeting) { /* something to be answered */
        redis__head(b, 1);
        redis_arg(b, STR("PING"));
        r->n_greeting++;
    }
    write_out(r);
}

static void come_up(struct redis *r)
{
    loop_timer_stop(r->loop, &r->retry);
    r->backoff_ns = 0;
    redis__set_state(r, REDIS_UP, NULL);
    metric_inc(r->m_connects);
    LOG(r->o.log, LOG_INFO, "redis_up", LOG_S("address", r->told_address),
        LOG_F("round_trip_ms", (double)(loop_update_now(r->loop) - r->ping_ns) / 1e6));
    for (size_t i = 0; i < r->n_users; i++)
        if (r->users[i]->up)
            r->users[i]->up(r->users[i]);
}

static bool is_master(const struct redisReply *role)
{
    return role->type == REDIS_REPLY_ARRAY && role->elements > 0 && role->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(role->element[0]->str, "master") == 0;
}

/* Replies in the order of greet(), then the PING's, which is timed. */
static bool on_greeting(struct redis *r, const struct redisReply *reply, struct error *err)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        error_set(err, STATUS_UNAVAILABLE, "it refuses us: %s", reply->str);
        return false;
    }
    if (r->greeted++ >= r->n_greeting) {
        uint64_t took_ns = loop_update_now(r->loop) - r->ping_ns;
        if (took_ns > r->o.deadline_ns) {
            error_set(err, STATUS_UNAVAILABLE, "it answers later than redis.deadline allows");
            return false;
        }
        come_up(r);
        return true;
    }
    if (r->greeted == r->role_at && !is_master(reply)) {
        error_set(err, STATUS_UNAVAILABLE, "%s is named as the master, and is none", r->at);
        return false;
    }
    if (r->greeted > r->n_greeting - r->n_loads &&
        !redis__take_sha(r, r->greeted - 1 - (r->n_greeting - (unsigned)r->n_loads), reply, err))
        return false;
    if (r->greeted == r->n_greeting) {
        r->n_loads = 0;
        r->ping_ns = loop_update_now(r->loop);
        redis__head(&r->out, 1);
        redis_arg(&r->out, STR("PING"));
        redis__flush_later(r);
    }
    return true;
}

/* ---- connecting ---- */

static void next_address(struct redis *r, struct error *err);

static void shake(struct redis *r)
{
    struct error err = {0};
    int rc = tls_conn_handshake(r->tls, &err);
    if (rc == 0)
        greet(r);
    else if (rc == STATUS_AGAIN)
        want(r);
    else
        lose_err(r, &err);
}

static void connected(struct redis *r)
{
    r->reader = redisReaderCreate();
    if (!r->reader) {
        redis__lose(r, "out of memory");
        return;
    }
    if (!r->trust) {
        greet(r);
        return;
    }
    redis__set_state(r, REDIS_HANDSHAKE, NULL);
    r->tls = tls_client_connect(r->trust, r->fd, r->url.host);
    if (r->tls)
        shake(r);
    else
        redis__lose(r, "out of memory");
}

static void ready(struct loop_fd *w, uint32_t events)
{
    struct redis *r = CONTAINER_OF(w, struct redis, watch);
    struct error err = {0};
    if (r->state == REDIS_CONNECTING) {
        if (os_sock_connected(r->fd, &err) == 0)
            connected(r);
        else
            next_address(r, &err);
        return;
    }
    if (r->state == REDIS_HANDSHAKE) {
        shake(r);
        return;
    }
    if ((events & LOOP_WRITE) && !write_out(r))
        return;
    if (events & (LOOP_READ | LOOP_HANGUP))
        read_in(r);
}

/* The addresses that are left, one after the other. `err`: why the one before failed; there is one the first time. */
static void next_address(struct redis *r, struct error *err)
{
    int rc;
    while (r->at_address < r->n_addresses) {
        close_socket(r);
        rc = os_sock_connect(&r->addresses[r->at_address++], &r->fd, err);
        if (rc != 0 && rc != STATUS_AGAIN)
            continue;
        bool done = rc == 0;
        redis__set_state(r, REDIS_CONNECTING, NULL);
        r->watch = (struct loop_fd){.fd = r->fd, .ready = ready};
        rc = loop_fd_add(r->loop, &r->watch, LOOP_READ | LOOP_WRITE, err);
        if (rc < 0)
            break;
        r->watched = true;
        if (done)
            connected(r);
        return;
    }
    lose_err(r, err);
}

static void on_attempt_over(struct loop_timer *t)
{
    struct redis *r = CONTAINER_OF(t, struct redis, retry);
    if (r->state == REDIS_DOWN)
        redis__connect(r);
    else if (r->state != REDIS_UP)
        redis__lose(r, r->state == REDIS_RESOLVING ? "its name is not resolved in time" : "it does not answer");
}

static void resolve(void *arg)
{
    struct redis *r = arg;
    r->found_err = (struct error){0};
    r->found_rc = r->url.n_sentinels ? redis__ask_sentinels(&r->url, r->at, &r->found_err) : 0;
    if (r->found_rc == 0)
        r->found_rc = os_addr_resolve(r->at, r->found, REDIS_ADDRESSES_MAX, &r->n_found, &r->found_err);
    loop_post(r->loop, &r->resolved);
}

static void on_resolved(struct loop_task *t)
{
    struct redis *r = CONTAINER_OF(t, struct redis, resolved);
    os_thread_join(&r->resolver);
    r->resolving = false;
    if (r->state != REDIS_RESOLVING || atomic_load(&r->stopping))
        return;
    if (r->found_rc < 0) {
        lose_err(r, &r->found_err);
        return;
    }
    redis__tell_address(r, r->at);
    memcpy(r->addresses, r->found, sizeof r->found);
    r->n_addresses = r->n_found;
    next_address(r, &r->found_err);
}

void redis__resolver_end(struct redis *r)
{
    if (r->resolving)
        os_thread_join(&r->resolver);
    r->resolving = false;
}

void redis__connect(struct redis *r)
{
    struct error err = {0};
    int rc = 0;
    r->at_address = 0;
    r->retry.fire = on_attempt_over;
    loop_timer_start(r->loop, &r->retry, loop_update_now(r->loop) + ATTEMPT_NS);
    redis__set_state(r, REDIS_RESOLVING, NULL);
    bool moved = r->moved[0] && !r->resolving;
    if (r->url.numeric && !moved) {
        redis__tell_address(r, r->url.address);
        rc = os_addr_resolve(r->url.address, r->addresses, REDIS_ADDRESSES_MAX, &r->n_addresses, &err);
        if (rc == 0)
            next_address(r, &err);
    } else if (!r->resolving) {
        rc = r->url.n_sentinels ? read_password(r, &err) : 0; /* they may want it, too */
        memcpy(r->at, moved ? r->moved : r->url.address, sizeof r->at);
        r->moved[0] = 0; /* once: when it isn't there, the first one knows better */
    }
    if (rc == 0 && (moved || !r->url.numeric) && !r->resolving) {
        r->resolved.run = on_resolved;
        r->resolving = true;
        rc = os_thread_start(&r->resolver, "redis-name", resolve, r, &err);
        r->resolving = rc == 0;
    }
    if (rc < 0)
        lose_err(r, &err);
}
