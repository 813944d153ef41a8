/* test_quota_script.c: the script of shared quotas, in a real Redis, against the local quota as an oracle: the same random requests under the
 * same clock of our own must get the same answers, figure by figure. Skipped where there is no Redis. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "base/arena.h"
#include "base/rand.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/quota.h"
#include "edge/quota_script.h"

#define PROGRAM "/usr/bin/redis-check-rdb" /* Debian's redis-tools has the server under this name */
#define US      1000ull                    /* in ns */
#define S       1000000000ull
#define NOON    (20000 * 86400ull + 43200)

static const char yaml[] =
    "policies:\n"
    "- {name: key, per: key, requests_per_second: 3, requests_per_second_burst: 7, requests_per_day: 90}\n"
    "- {name: rows, per: key, rows_per_second: 11, tokens_per_minute: 700, tokens_per_minute_burst: 1500}\n"
    "- {name: tenant, per: tenant, concurrent: 5, tokens_per_day: 30000, tokens_per_month: 200000}\n"
    "- {name: all, requests_per_month: 1500, rows_per_second: 40}\n";

struct rig {
    pid_t pid;
    char folder[64], socket[96];
    redisContext *c;
    struct arena arena;
    struct quota_policy *policies;
    size_t n;
    struct quota *q;
    uint64_t now_us; /* since 1970 */
};

static redisReply *run(struct rig *r, int argc, const char **argv)
{
    redisReply *reply = redisCommandArgv(r->c, argc, argv, NULL);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s", reply->str);
    return reply;
}

static int open_rig(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    struct error err = {0};
    *state = r;
    if (access(PROGRAM, X_OK) != 0)
        return 0;
    snprintf(r->folder, sizeof r->folder, "/tmp/inferd-redis-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->socket, sizeof r->socket, "%s/s", r->folder);
    r->pid = fork();
    if (r->pid == 0) {
        (void)!freopen("/dev/null", "w", stdout);
        execl(PROGRAM, "redis-server", "--port", "0", "--unixsocket", r->socket, "--save", "", "--dir", r->folder,
              (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && (!r->c || r->c->err); i++) {
        usleep(5000);
        if (r->c)
            redisFree(r->c);
        r->c = redisConnectUnix(r->socket);
    }
    assert_true(r->c && !r->c->err);
    arena_init(&r->arena, 4096, 0);
    assert_int_equal(quota_policies_parse(str_of(yaml), "q", &r->arena, &r->policies, &r->n, &err), 0);
    return 0;
}

static int close_rig(void **state)
{
    struct rig *r = *state;
    if (r->pid) {
        redisFree(r->c);
        kill(r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
        unlink(r->socket);
        rmdir(r->folder);
        arena_release(&r->arena);
    }
    free(r);
    return 0;
}

static void begin(struct rig *r, uint64_t now_us)
{
    if (!r->pid)
        skip();
    r->now_us = now_us;
    r->q = quota_create(&(struct quota_options){.policies = r->policies, .n_policies = r->n, .seed = 3});
    freeReplyObject(run(r, 1, (const char *[]){"FLUSHALL"}));
}

/* One call of the script. */
struct call {
    const char *argv[64];
    int n;
    char text[64][160];
};

static void arg(struct call *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void arg(struct call *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->text[c->n], sizeof c->text[0], fmt, ap);
    va_end(ap);
    c->argv[c->n] = c->text[c->n];
    c->n++;
}

static void put_spec(struct call *c, const struct quota_policy *p)
{
    char out[160] = "";
    size_t n = 0;
    for (int u = 0; u < QUOTA_UNITS; u++)
        if (p->limit[u])
            n += (size_t)snprintf(out + n, sizeof out - n, "%d:%llu:%llu,", u, (unsigned long long)p->limit[u],
                                  (unsigned long long)(p->burst[u] ? p->burst[u] : p->limit[u]));
    arg(c, "%s", out);
}

static void start(struct call *c, const struct rig *r, const char *owner, unsigned key, const char *op)
{
    *c = (struct call){0};
    c->argv[c->n++] = "EVAL";
    c->argv[c->n++] = QUOTA_SCRIPT;
    arg(c, "%d", key == UINT32_MAX ? 2 : 6);
    arg(c, "{t}:o:%s", owner);
    arg(c, "{t}:owners");
    if (key != UINT32_MAX) {
        arg(c, "{t}:m:key:%u", key);
        arg(c, "{t}:m:rows:%u", key);
        arg(c, "{t}:m:tenant:%u", key % 2);
        arg(c, "{t}:m:all");
    }
    arg(c, "%s", op);
    arg(c, "%llu", (unsigned long long)r->now_us);
}

static redisReply *finish(struct call *c, struct rig *r, bool with_specs)
{
    for (size_t i = 0; with_specs && i < r->n; i++)
        put_spec(c, &r->policies[i]);
    return run(r, c->n, c->argv);
}

static void hello(struct rig *r, const char *owner, unsigned epoch, uint64_t lease_us, long long want, long long known)
{
    struct call c;
    start(&c, r, owner, UINT32_MAX, "hello");
    arg(&c, "%u", epoch);
    arg(&c, "%llu", (unsigned long long)lease_us);
    redisReply *reply = finish(&c, r, false);
    assert_int_equal(reply->element[0]->integer, want);
    if (want == 0)
        assert_int_equal(reply->element[1]->integer, known);
    freeReplyObject(reply);
}

static redisReply *take(struct rig *r, const char *owner, const char *op, unsigned key, unsigned serial, uint64_t rows,
                        uint64_t tokens)
{
    struct call c;
    start(&c, r, owner, key, op);
    arg(&c, "1");
    arg(&c, "%u", serial);
    arg(&c, "%llu", (unsigned long long)rows);
    arg(&c, "%llu", (unsigned long long)tokens);
    return finish(&c, r, true);
}

static void set(struct rig *r, const char *owner, unsigned key, unsigned serial, unsigned seq, bool made, uint64_t requests,
                uint64_t rows, uint64_t tokens, uint64_t made_rows)
{
    struct call c;
    start(&c, r, owner, key, "set");
    arg(&c, "1");
    arg(&c, "%u", serial);
    arg(&c, "%u", seq);
    arg(&c, "%d", made);
    arg(&c, "%llu", (unsigned long long)made_rows);
    arg(&c, "%llu", (unsigned long long)requests);
    arg(&c, "%llu", (unsigned long long)rows);
    arg(&c, "%llu", (unsigned long long)tokens);
    redisReply *reply = finish(&c, r, true);
    assert_int_equal(reply->element[0]->integer, 0);
    freeReplyObject(reply);
}

static void same(const struct rig *r, const redisReply *reply, int rc, const struct quota_verdict *v, int step)
{
    long long x[6];
    for (int i = 0; i < 6; i++)
        x[i] = reply->element[i]->integer;
    const struct quota_policy *p = &r->policies[x[1]];
    /* the local calendar has seconds */
    for (int i = 4; i < 6 && quota_unit_is_budget(v->unit); i++)
        x[i] = (x[i] + 999999) / 1000000 * 1000000;
    const long long want[] = {rc < 0, v->unit, (long long)v->remaining, (long long)((v->reset_ns + US - 1) / US),
                              (long long)((v->wait_ns + US - 1) / US)};
    const long long got[] = {x[0], x[2], x[3], x[4], x[5]};
    for (size_t i = 0; i < COUNT_OF(want); i++)
        if (got[i] != want[i] || strcmp(p->name, v->policy) != 0 || p->limit[x[2]] != v->limit)
            fail_msg("step %d, figure %zu: %lld of %s, and %lld of %s here", step, i, got[i], p->name, want[i], v->policy);
}

struct running {
    uint64_t id, rows, tokens;
    unsigned key, serial;
};

static void test_same_verdicts(void **state)
{
    struct rig *r = *state;
    struct rand rand;
    struct running live[16] = {0};
    unsigned serial = 0, seq = 0, refused = 0, passed = 0;
    begin(r, NOON * 1000000 + 250000);
    rand_init(&rand, 11);
    hello(r, "a", 1, 1ull << 50, 0, 0);
    for (int step = 0; step < 6000; step++) {
        uint64_t x = rand_u64(&rand);
        /* mostly milliseconds, now and then minutes; some hours, so that days and months end */
        r->now_us += x % 1000 < 900 ? x % 200000 : x % 1000 < 985 ? x % 60000000 : x % 40000000000ull;
        uint64_t now_ns = r->now_us * US, now_s = r->now_us / 1000000, rows = rand_u64(&rand) % 8,
                 tokens = rand_u64(&rand) % 400;
        struct running *l = &live[rand_u64(&rand) % COUNT_OF(live)];
        struct quota_verdict v;
        if (!l->id) {
            char key[8], tenant[8];
            l->key = (unsigned)(rand_u64(&rand) % 5);
            snprintf(key, sizeof key, "%u", l->key);
            snprintf(tenant, sizeof tenant, "%u", l->key % 2);
            const struct quota_ask a = {.key = str_of(key),
                                        .tenant = str_of(tenant),
                                        .runs = true,
                                        .rows = rows,
                                        .tokens = tokens,
                                        .now_ns = now_ns,
                                        .now_s = now_s};
            int rc = quota_reserve(r->q, &a, &l->id, &v);
            l->serial = ++serial;
            l->rows = rows;
            l->tokens = tokens;
            redisReply *reply = take(r, "a", "take", l->key, l->serial, rows, tokens);
            same(r, reply, rc, &v, step);
            freeReplyObject(reply);
            refused += rc < 0, passed += rc == 0;
        } else if (x % 4 == 0) {
            int rc = quota_more(r->q, l->id, rows, tokens, now_ns, now_s, &v);
            redisReply *reply = take(r, "a", "more", l->key, l->serial, rows, tokens);
            same(r, reply, rc, &v, step);
            freeReplyObject(reply);
            l->rows += rc == 0 ? rows : 0;
            l->tokens += rc == 0 ? tokens : 0;
        } else if (x % 4 == 1) {
            quota_refund(r->q, l->id, now_ns, now_s);
            set(r, "a", l->key, l->serial, ++seq, true, 0, 0, 0, l->rows);
            l->id = 0;
        } else {
            uint64_t really = x % 8 < 4 ? l->tokens : tokens * 2; /* all of it, or less, or more */
            quota_settle(r->q, l->id, really, now_ns, now_s);
            set(r, "a", l->key, l->serial, ++seq, true, 1, l->rows, really, l->rows);
            l->id = 0;
        }
    }
    if (refused < 200 || passed < 200)
        fail_msg("%u refused, %u passed: the mix tells nothing", refused, passed);
    quota_destroy(r->q);
}

static long long field(struct rig *r, const char *key, const char *name)
{
    redisReply *reply = run(r, 3, (const char *[]){"HGET", key, name});
    long long v = reply->type == REDIS_REPLY_STRING ? atoll(reply->str) : -1;
    freeReplyObject(reply);
    return v;
}

static void test_once_and_in_order(void **state)
{
    struct rig *r = *state;
    begin(r, NOON * 1000000);
    quota_destroy(r->q);
    hello(r, "a", 1, 10000000, 0, 0);
    freeReplyObject(take(r, "a", "take", 0, 1, 2, 100));
    assert_int_equal(field(r, "{t}:m:tenant:0", "u5"), 100);
    set(r, "a", 0, 1, 5, true, 1, 2, 70, 2);
    set(r, "a", 0, 1, 5, true, 1, 2, 70, 2); /* said again: it was heard */
    set(r, "a", 0, 9, 4, false, 1, 2, 70, 2);
    assert_int_equal(field(r, "{t}:m:tenant:0", "u5"), 70);
    assert_int_equal(field(r, "{t}:m:key:0", "u4"), 1);
    assert_int_equal(field(r, "{t}:m:tenant:0", "c"), 0);
    set(r, "a", 0, 10, 6, false, 1, 2, 5, 0); /* one that never came here: all of it */
    assert_int_equal(field(r, "{t}:m:key:0", "u4"), 2);
    /* a new connection: what the old one still sends is not done */
    hello(r, "a", 2, 10000000, 0, 1);
    redisReply *old = take(r, "a", "take", 0, 11, 0, 0);
    assert_int_equal(old->element[0]->integer, -1);
    freeReplyObject(old);
    hello(r, "a", 1, 10000000, -1, 0);
    assert_int_equal(field(r, "{t}:m:key:0", "u4"), 2);
}

/* What was admitted elsewhere: budgets of windows that run, none that are over, each told once. */
static void test_debts(void **state)
{
    struct rig *r = *state;
    begin(r, NOON * 1000000);
    quota_destroy(r->q);
    hello(r, "a", 1, 10000000, 0, 0);
    freeReplyObject(take(r, "a", "take", 0, 1, 0, 100));
    for (unsigned seq = 1; seq <= 3; seq++) {
        struct call c;
        start(&c, r, "a", 0, "add");
        arg(&c, "1");
        arg(&c, "%u", seq < 3 ? 1 : 2);
        arg(&c, "4:20000:7,"); /* key's requests of NOON's day */
        arg(&c, "%s", "");
        arg(&c, "%s", seq < 3 ? "5:20000:30," : "5:19999:1000,"); /* tenant's tokens; at last of the day before */
        arg(&c, "%s", "");
        redisReply *reply = finish(&c, r, false);
        assert_int_equal(reply->element[0]->integer, 0);
        freeReplyObject(reply);
    }
    assert_int_equal(field(r, "{t}:m:key:0", "u4"), 1 + 7 + 7);
    assert_int_equal(field(r, "{t}:m:tenant:0", "u5"), 100 + 30);
}

static void test_a_lease_that_ends(void **state)
{
    struct rig *r = *state;
    begin(r, NOON * 1000000);
    quota_destroy(r->q);
    hello(r, "a", 1, 10000000, 0, 0);
    hello(r, "b", 1, 1000000000, 0, 0);
    for (unsigned i = 1; i <= 3; i++)
        freeReplyObject(take(r, "a", "take", 0, i, 1, 50));
    assert_int_equal(field(r, "{t}:m:tenant:0", "c"), 3);
    r->now_us += 9999999;
    freeReplyObject(take(r, "b", "take", 1, 1, 0, 0));
    assert_int_equal(field(r, "{t}:m:tenant:0", "c"), 3);
    r->now_us += 2;
    freeReplyObject(take(r, "b", "take", 1, 2, 0, 0)); /* any call of anybody */
    assert_int_equal(field(r, "{t}:m:tenant:0", "c"), 0);
    assert_int_equal(field(r, "{t}:m:tenant:0", "u5"), 0);
    assert_int_equal(field(r, "{t}:m:key:0", "u4"), 3); /* they were requests all the same */
    /* it was only slow: it comes back and says what they took, the third in doubt whether it was ever here */
    hello(r, "a", 2, 10000000, 0, 1);
    struct call c;
    for (unsigned i = 1; i <= 3; i++) {
        start(&c, r, "a", 0, "set");
        arg(&c, "2");
        arg(&c, "%u", i);
        arg(&c, "%u", i);
        arg(&c, "%d", i != 3);
        arg(&c, "1"), arg(&c, "1"), arg(&c, "1"), arg(&c, "40");
        freeReplyObject(finish(&c, r, true));
    }
    assert_int_equal(field(r, "{t}:m:tenant:0", "u5"), 120);
    assert_int_equal(field(r, "{t}:m:key:0", "u4"), 3);
    assert_int_equal(field(r, "{t}:m:tenant:0", "c"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_verdicts, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_once_and_in_order, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_debts, open_rig, close_rig),
        cmocka_unit_test_setup_teardown(test_a_lease_that_ends, open_rig, close_rig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
