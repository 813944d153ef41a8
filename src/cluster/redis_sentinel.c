/* redis_sentinel.c: who is the master? Asked of one sentinel after the other, in the thread that resolves names, which may wait: hiredis's
 * own blocking calls, each with a deadline. Whoever they name is asked for its role in the greeting (redis_conn.c): a sentinel that has not heard of
 * a failover yet names a master that is none any more. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "cluster/redis_priv.h"

#define ASK_US 300000 /* each: three of them within an attempt */

static redisReply *ask(redisContext *c, const struct redis_url *u)
{
    return redisCommand(c, "SENTINEL get-master-addr-by-name %s", u->master);
}

static redisReply *authenticate(redisContext *c, const struct redis_url *u)
{
    return u->user[0] ? redisCommand(c, "AUTH %s %s", u->user, u->password) : redisCommand(c, "AUTH %s", u->password);
}

static bool take(const redisReply *reply, char address[REDIS_ADDRESS_BYTES])
{
    if (!reply || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING)
        return false;
    const char *host = reply->element[0]->str;
    bool six = strchr(host, ':');
    int n = snprintf(address, REDIS_ADDRESS_BYTES, six ? "[%s]:%s" : "%s:%s", host, reply->element[1]->str);
    return n > 0 && n < REDIS_ADDRESS_BYTES;
}

/* What one of them says; false, and `err`: nothing. */
static bool ask_one(const struct redis_url *u, size_t i, char address[REDIS_ADDRESS_BYTES], struct error *err)
{
    const struct timeval within = {0, ASK_US};
    const char *host = u->sentinels[i].host;
    redisContext *c = redisConnectWithTimeout(host, u->sentinels[i].port, within);
    if (!c || c->err || redisSetTimeout(c, within) != REDIS_OK) {
        error_set(err, STATUS_UNAVAILABLE, "the sentinel %s can't be reached: %s", host, c ? c->errstr : "out of memory");
        redisFree(c);
        return false;
    }
    redisReply *reply = ask(c, u);
    if (reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOAUTH", 6) == 0 && u->password[0]) {
        freeReplyObject(reply);
        reply = authenticate(c, u);
        if (reply && reply->type != REDIS_REPLY_ERROR) {
            freeReplyObject(reply);
            reply = ask(c, u);
        }
    }
    bool known = take(reply, address);
    if (!known)
        error_set(err, STATUS_UNAVAILABLE, "the sentinel %s names no master \"%s\"%s%s", host, u->master,
                  reply && reply->type == REDIS_REPLY_ERROR ? ": " : "",
                  reply && reply->type == REDIS_REPLY_ERROR ? reply->str : "");
    if (reply)
        freeReplyObject(reply);
    redisFree(c);
    return known;
}

int redis__ask_sentinels(const struct redis_url *u, char address[REDIS_ADDRESS_BYTES], struct error *err)
{
    for (size_t i = 0; i < u->n_sentinels; i++)
        if (ask_one(u, i, address, err))
            return 0;
    return STATUS_UNAVAILABLE;
}
