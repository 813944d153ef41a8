/* server_overload.c: the rules of overload of a running server: read at start, and again at a reload when their text has changed (the gate keeps
 * the rules that requests refer to). */
#include "base/status.h"
#include "cli/server_priv.h"
#include "edge/limit_gate.h"
#include "os/file.h"

#define RULES_BYTES (4u << 20)

struct lookup {
    const struct config *config;
    struct str missing; /* the first */
};

static void look_up(void *ctx, struct str model)
{
    struct lookup *l = ctx;
    if (!l->missing.n && !cli_repository_holds(l->config, model))
        l->missing = model;
}

/* A rule about a model that isn't there says nothing, and a fallback that isn't there is found out when it is needed: both are mistakes. */
static int check_models(const struct server *s, struct str text, const char *path, struct error *err)
{
    struct limit_policy p;
    struct arena arena;
    struct lookup l = {.config = s->first_config};
    arena_init(&arena, 4096, 16 << 20);
    int rc = limit_policy_parse(text, path, &arena, &p, err);
    if (rc == 0)
        limit_policy_each_name(&p, look_up, &l);
    if (l.missing.n)
        rc = error_set(err, STATUS_INVALID, "%s names the model \"%.*s\", which is not in the repository", path,
                       STR_ARG(l.missing));
    arena_release(&arena);
    return rc;
}

static int read_rules(const struct server *s, struct buf *text, struct error *err)
{
    const char *path = s->first_config->overload.file;
    buf_init(text);
    int rc = os_file_read(path, RULES_BYTES, text, err);
    return rc ? rc : check_models(s, buf_str(text), path, err);
}

int server__start_overload(struct server *s, struct error *err)
{
    const char *path = s->first_config->overload.file;
    struct buf text;
    if (!path[0])
        return 0;
    int rc = read_rules(s, &text, err);
    if (rc == 0)
        rc = limit_gate_create(buf_str(&text), path, s->metrics, s->log, &s->limits, err);
    buf_release(&text);
    return rc < 0 ? error_prefix(err, "overload.file") : 0;
}

int server__reload_overload(struct server *s, struct error *err)
{
    const char *path = s->first_config->overload.file;
    struct buf text;
    if (!s->limits)
        return 0;
    int rc = read_rules(s, &text, err);
    if (rc == 0)
        rc = limit_gate_replace(s->limits, buf_str(&text), path, err);
    buf_release(&text);
    return rc < 0 ? error_prefix(err, "overload.file") : 0;
}

void server__stop_overload(struct server *s)
{
    limit_gate_destroy(s->limits);
    s->limits = NULL;
}
