/* chaos_server.h: for clients that do everything wrong: handlers that answer now, later, from another thread, in pieces, or not fully, and
 * the frame of such a test. The server must neither lose count nor leak; fixed seeds; the sanitizers and the pairing of on_headers and
 * on_complete are the judges. */
#ifndef TESTS_CHAOS_SERVER_H
#define TESTS_CHAOS_SERVER_H

#include "net_util.h"

#include <pthread.h>

#include "base/rand.h"
#include "os/thread.h"

enum { CLIENTS = 6, WORKERS = 2 };

static struct http_server *server;
static _Atomic uint64_t begun, completed, gone, answered_well;

/* --- handlers --- */

/* A request that is answered from the helper thread, by way of its loop. */
struct later {
    struct loop_task task;
    struct http_request *r;
    struct later *next;
    int kind;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;
static struct later *waiting;
static bool helper_ends;

static void text(struct http_request *r, int status, const char *z)
{
    struct slice body = slice_borrow(z, strlen(z));
    http_reply(r, status, "text/plain", NULL, 0, &body, 1);
}

static void finish_later(struct loop_task *t)
{
    struct later *l = CONTAINER_OF(t, struct later, task);
    struct http_request *r = l->r;
    int kind = l->kind;
    free(l);
    if (kind == 0) {
        text(r, 200, "later");
    } else if (kind == 1) {
        struct slab *s = slab_create(20000);
        memset(s->data, 'x', 20000);
        struct slice body = {s->data, 20000, s};
        http_reply(r, 200, "text/plain", NULL, 0, &body, 1);
    } else {
        http_hold(r); /* outlive the reply */
        http_reply_error(r, 429, "busy", 1);
        http_release(r);
    }
}

static void *helper(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!waiting && !helper_ends)
            pthread_cond_wait(&some, &lock);
        struct later *l = waiting;
        waiting = NULL;
        if (!l)
            break;
        pthread_mutex_unlock(&lock);
        os_sleep_ns(200000);
        while (l) {
            struct later *next = l->next;
            loop_post(l->r->loop, &l->task);
            l = next;
        }
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void answer_later(struct http_request *r, int kind)
{
    struct later *l = calloc(1, sizeof *l);
    *l = (struct later){.task = {.run = finish_later}, .r = r, .kind = kind};
    pthread_mutex_lock(&lock);
    l->next = waiting;
    waiting = l;
    pthread_cond_signal(&some);
    pthread_mutex_unlock(&lock);
}

static void stream_more(struct http_request *r)
{
    static const char piece[5000] = {[0 ... 4999] = 'p'};
    size_t *left = r->user;
    while (*left) {
        --*left;
        if (!http_stream_write(r, slice_borrow(piece, sizeof piece)))
            return;
    }
    http_stream_end(r);
}

static void on_gone(struct http_request *r)
{
    gone++;
    if ((str_eqz(r->path, "/stream") || str_starts(r->path, STR("/pieces"))) && r->reply_status)
        http_stream_end(r);
}

/* /pieces...: an echo of what comes; by the last letter: at once, window given back late, ends early, aborts, keeps everything */
static void take_piece(struct http_request *r, struct slice piece, bool last)
{
    char kind = r->path.p[r->path.n - 1];
    uint64_t *seen = r->user;
    struct slab *s = slab_create(piece.n + 1);
    memset(s->data, 'e', piece.n + 1);
    *seen += piece.n;
    if (kind != 'k')
        http_body_consumed(r, piece.n);
    if (kind == 'x' && *seen > 1000) {
        slab_unref(s);
        http_stream_abort(r);
        return;
    }
    http_stream_write(r, (struct slice){s->data, piece.n + 1, s});
    if (last || (kind == 'e' && *seen > 1000))
        http_stream_end_trailers(r, &(struct http_header){STR("t"), STR("v")}, 1);
}

static int on_headers(void *ctx, struct http_request *r, struct error *err)
{
    (void)ctx;
    begun++;
    r->on_gone = on_gone;
    if (str_starts(r->path, STR("/pieces"))) {
        r->on_body = take_piece;
        r->user = arena_zalloc(r->arena, sizeof(uint64_t));
        r->body_unhurried = r->path.p[r->path.n - 1] != 'k';
    }
    return str_eqz(r->path, "/no") ? error_set(err, STATUS_FORBIDDEN, "no") : 0;
}

static void on_request(void *ctx, struct http_request *r)
{
    (void)ctx;
    if (str_eqz(r->path, "/now")) {
        text(r, 200, "now");
    } else if (r->on_body) {
        http_stream_begin(r, 200, "text/plain", NULL, 0, NULL);
    } else if (str_eqz(r->path, "/stream")) {
        size_t *left = arena_alloc(r->arena, sizeof *left);
        *left = 1 + r->received_ns % 200;
        r->user = left;
        http_stream_begin(r, 200, "text/plain", NULL, 0, stream_more);
        stream_more(r);
    } else if (str_eqz(r->path, "/abort")) {
        http_stream_begin(r, 200, "text/plain", NULL, 0, NULL);
        http_stream_abort(r);
    } else {
        answer_later(r, r->path.n > 1 ? r->path.p[1] % 3 : 0);
    }
}

static void on_complete(void *ctx, struct http_request *r, uint64_t now_ns)
{
    (void)ctx;
    (void)now_ns;
    completed++;
    answered_well += r->reply_status == 200;
}

/* --- clients --- */

/* Read a little, without waiting. */
static void sip(int fd, struct rand *rand)
{
    char in[30000];
    for (uint64_t k = rand_below(rand, 4); k-- > 0;)
        if (recv(fd, in, sizeof in, MSG_DONTWAIT) == 0)
            return;
}

static void end_badly(int fd, struct rand *rand)
{
    struct linger reset = {1, 0};
    char in[30000];
    switch (rand_below(rand, 4)) {
    case 0: /* RST */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        break;
    case 1: /* half-close, and read everything */
        shutdown(fd, SHUT_WR);
        while (wait_readable(fd, 200) && recv(fd, in, sizeof in, 0) > 0)
            ;
        break;
    case 2: /* read for a while */
        while (wait_readable(fd, 3) && recv(fd, in, sizeof in, 0) > 0)
            ;
        break;
    default:
        break;
    }
    close(fd);
}

struct chaos {
    void (*one_round)(const char *address, struct rand *rand);
    int rounds; /* of each client */
};

static struct chaos chaos;

static void *client(void *arg)
{
    struct rand rand;
    rand_init(&rand, (uint64_t)(uintptr_t)arg);
    for (int i = 0; i < chaos.rounds; i++)
        chaos.one_round(http_server_address(server, 0), &rand);
    return NULL;
}

/* `limits`: what differs from the defaults is the caller's. */
static void run_chaos(struct chaos with, const struct http_limits *limits)
{
    struct error err;
    chaos = with;
    pthread_t helper_thread, clients[CLIENTS];
    struct metrics *m = metrics_create();
    struct http_server_options o = {.listen = (const char *const[]){"127.0.0.1:0"},
                                    .n_listen = 1,
                                    .threads = WORKERS,
                                    .name = "t",
                                    .metrics = m,
                                    .handler = {on_headers, on_request, NULL, on_complete, NULL}};
    o.limits = *limits;
    assert_int_equal(http_server_start(&o, &server, &err), 0);
    pthread_create(&helper_thread, NULL, helper, NULL);
    for (size_t i = 0; i < CLIENTS; i++)
        pthread_create(&clients[i], NULL, client, (void *)(uintptr_t)(i + 1));
    for (size_t i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    WAIT_FOR(http_server_connections(server) == 0);
    WAIT_FOR(begun == completed);
    print_message("%d begun, %d answered, %d gone\n", (int)begun, (int)answered_well, (int)gone);
    /* how many of a client that breaks off are read before it does is the scheduler's to say: a few a hundred rounds to several a round */
    assert_true(begun > (uint64_t)(CLIENTS * chaos.rounds / 10) && answered_well > begun / 10 && gone > 10);
    assert_int_equal(counter(m, "inferd_http_connections{listener=\"t\"} "), 0);
    http_server_stop(server);
    pthread_mutex_lock(&lock);
    helper_ends = true;
    pthread_cond_signal(&some);
    pthread_mutex_unlock(&lock);
    pthread_join(helper_thread, NULL);
    metrics_destroy(m);
}

#endif
