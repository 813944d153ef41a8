/* server_quota.c: the quotas of a running server: their policies, and their budgets across restarts.
 *
 * Budgets are written to state_dir/quota.state within five seconds of a change, and at the end; a process that is killed loses at most
 * that much of the count, and gives back what its requests had reserved. A file that can't be used is moved aside, so that somebody can look
 * at it, and the server starts with budgets that are untouched. */
#include <stdio.h>

#include "base/status.h"
#include "cli/server_priv.h"
#include "cluster/redis.h"
#include "edge/quota_gate.h"
#include "edge/quota_state.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/file.h"

#define SAVE_NS         5000000000u
#define NS_PER_S        1000000000u
#define STATE_BYTES_MAX (256u << 20)
#define POLICY_BYTES    (4u << 20)
#define STATE_MODE      0600
#define MODELS_MAX      100000

static bool state_path(const struct server *s, char *out, size_t cap)
{
    const char *dir = server__state_dir(s);
    int n = dir ? snprintf(out, cap, "%s/quota.state", dir) : -1;
    return n > 0 && (size_t)n < cap;
}

/* A damaged file must neither stop the start nor be written over. */
static void move_aside(struct server *s, const char *path, const struct error *why)
{
    char aside[4096 + 16];
    struct error err = {0};
    snprintf(aside, sizeof aside, "%s.damaged", path);
    bool moved = os_file_rename(path, aside, &err) == 0;
    LOG(s->log, LOG_ERROR, "budgets_lost", LOG_S("file", path), LOG_S("reason", why->text),
        LOG_S("moved_to", moved ? aside : err.text), LOG_S("effect", "every budget begins untouched"));
}

static void load_state(struct server *s)
{
    char path[4096];
    struct error err = {0};
    struct str lines;
    struct buf text;
    if (!state_path(s, path, sizeof path))
        return;
    buf_init(&text);
    int rc = os_file_read(path, STATE_BYTES_MAX, &text, &err);
    if (rc == 0) {
        rc = quota_state_open(buf_str(&text), &lines, &err);
        if (rc == 0)
            rc = quota_gate_load(s->quota, lines, os_wall_ns() / NS_PER_S, &err);
        if (rc < 0)
            move_aside(s, path, &err);
    } else if (rc != STATUS_NOT_FOUND) {
        LOG(s->log, LOG_ERROR, "budgets_lost", LOG_S("file", path), LOG_S("reason", err.text));
    }
    buf_release(&text);
}

static void save(struct server *s, uint64_t now_ns)
{
    char path[4096];
    struct error err = {0};
    struct buf text;
    buf_init(&text);
    quota_state_begin(&text);
    if (quota_gate_tick(s->quota, now_ns, os_wall_ns() / NS_PER_S, &text) && state_path(s, path, sizeof path)) {
        quota_state_end(&text);
        int rc = text.failed ? error_set(&err, STATUS_NOMEM, "out of memory")
                             : os_file_write_atomic(path, text.p, text.n, STATE_MODE, &err);
        if (rc < 0) {
            quota_gate_mark_dirty(s->quota);
            LOG(s->log, LOG_ERROR, "budgets_not_saved", LOG_S("file", path), LOG_S("reason", err.text));
        }
    }
    buf_release(&text);
}

/* --- models that policies name --- */

struct lookup {
    const struct config *config;
    struct error *err;
    int rc;
};

/* "m", or "m.onnx" and the like. */
static bool is_named(struct str file, struct str model)
{
    return str_starts(file, model) && (file.n == model.n || file.p[model.n] == '.');
}

static struct str last_part(const char *path)
{
    struct str p = str_of(path);
    while (p.n > 1 && p.p[p.n - 1] == '/')
        p.n--;
    size_t at = p.n;
    while (at > 0 && p.p[at - 1] != '/')
        at--;
    return (struct str){p.p + at, p.n - at};
}

/* Is there such a thing in this repository, or is this it? The folder is read here: the registry scans it in the background, later. */
static bool holds(const char *root, struct str model)
{
    struct os_dir_list list = {0};
    bool found = is_named(last_part(root), model);
    int fd;
    if (found || os_dir_open(root, &fd, NULL) < 0)
        return found;
    bool listed = os_dir_list(fd, MODELS_MAX, &list, NULL) == 0;
    for (size_t i = 0; listed && !found && i < list.n; i++)
        found = is_named(str_of(list.entries[i].name), model);
    os_dir_list_release(&list);
    os_close(fd);
    return found;
}

bool cli_repository_holds(const struct config *c, struct str model)
{
    bool found = false;
    for (size_t i = 0; !found && i < c->repository.paths.n; i++)
        found = holds(c->repository.paths.v[i], model);
    return found;
}

static void look_up(void *ctx, const char *policy, struct str model)
{
    struct lookup *l = ctx;
    bool found = cli_repository_holds(l->config, model);
    if (!found && l->rc == 0)
        l->rc = error_set(l->err, STATUS_INVALID, "the policy \"%s\" names the model \"%.*s\", which is not in the repository",
                          policy, STR_ARG(model));
}

static int check_models(struct server *s, struct error *err)
{
    struct lookup l = {.config = s->first_config, .err = err};
    quota_gate_models(s->quota, look_up, &l);
    return l.rc;
}

/* --- Redis --- */

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int make_redis(struct server *s, struct error *err)
{
    const struct config *c = s->first_config;
    const struct redis_options o = {.url = c->redis.url,
                                    .password_file = or_null(c->redis.password_file),
                                    .ca_file = or_null(c->redis.ca),
                                    .deadline_ns = c->redis.deadline,
                                    .metrics = s->metrics,
                                    .log = s->log};
    if (!c->redis.url[0])
        return 0;
    int rc = redis_create(&o, &s->redis, err);
    return rc < 0 ? error_prefix(err, "redis.url") : 0;
}

static int make_gate(struct server *s, struct error *err)
{
    const struct config *c = s->first_config;
    const struct quota_gate_options o = {.metrics = s->metrics,
                                         .redis = s->redis,
                                         .share = c->quota.shared,
                                         .prefix = c->redis.prefix,
                                         .lease_ns = c->quota.lease,
                                         .replicas = c->quota.replicas,
                                         .log = s->log};
    struct buf text;
    buf_init(&text);
    int rc = os_file_read(c->quota.file, POLICY_BYTES, &text, err);
    if (rc == 0)
        rc = quota_gate_create(buf_str(&text), c->quota.file, &o, &s->quota, err);
    buf_release(&text);
    if (rc == 0)
        rc = check_models(s, err);
    return rc < 0 ? error_prefix(err, "quota.file") : 0;
}

int server__start_quota(struct server *s, struct error *err)
{
    if (!s->first_config->quota.file[0])
        return 0;
    int rc = make_redis(s, err);
    if (rc == 0)
        rc = make_gate(s, err);
    if (rc < 0)
        return rc;
    if (!server__state_dir(s))
        LOG(s->log, LOG_WARN, "budgets_end_with_the_process", LOG_S("hint", "set state_dir to keep them across restarts"));
    load_state(s);
    if (!s->redis)
        return 0;
    rc = redis_start(s->redis, err);
    if (rc == 0) /* a Redis that is there is used from the first request on; one that isn't is not waited for */
        quota_gate_wait_shared(s->quota, os_monotonic_ns() + 2 * s->first_config->redis.deadline);
    return rc;
}

void server__describe_quota(struct server *s, struct buf *out)
{
    if (!s->redis)
        return;
    buf_append_z(out, ",\"redis\":{");
    redis_describe(s->redis, out);
    buf_append_z(out, "},\"shared_quotas\":{");
    quota_gate_describe(s->quota, out);
    buf_append_c(out, '}');
}

void server__tick_quota(struct server *s, uint64_t now_ns)
{
    if (!s->quota || now_ns < s->quota_next_ns)
        return;
    s->quota_next_ns = now_ns + SAVE_NS;
    save(s, now_ns);
}

void server__stop_quota(struct server *s)
{
    if (!s->quota) {
        redis_destroy(s->redis);
        s->redis = NULL;
        return;
    }
    quota_gate_quiet(s->quota); /* what the last requests took is confirmed */
    save(s, os_monotonic_ns());
    redis_destroy(s->redis);
    s->redis = NULL;
    quota_gate_destroy(s->quota);
    s->quota = NULL;
}
