/* server_guard.c: the input and output policies of a running server: from guard.file at the start, and again at a reload. */
#include "base/status.h"
#include "cli/server_priv.h"
#include "edge/guard_gate.h"
#include "os/file.h"

#define GUARD_FILE_BYTES (4u << 20)

int server__reload_guard(struct server *s, const struct config *c, struct error *err)
{
    const char *path = c->guard.file;
    struct buf text;
    buf_init(&text);
    int rc = path[0] ? os_file_read(path, GUARD_FILE_BYTES, &text, err) : 0;
    if (rc == 0)
        rc = guard_gate_load(s->guard, buf_str(&text), path, &c->gateway, err);
    buf_release(&text);
    return rc < 0 ? error_prefix(err, "guard.file") : 0;
}

int server__start_guard(struct server *s, struct error *err)
{
    const struct guard_gate_options o = {.metrics = s->metrics, .log = s->log, .folder = server__state_dir(s)};
    s->guard = guard_gate_create(&o);
    if (!s->guard)
        return error_set(err, STATUS_NOMEM, "out of memory while starting");
    return server__reload_guard(s, s->first_config, err);
}

void server__stop_guard(struct server *s)
{
    guard_gate_destroy(s->guard);
    s->guard = NULL;
}
