/* server.h: one running inferd: everything that `serve` puts together, from listeners to shutdown.
 *
 * There is one `struct server` in a process; it owns the logger, metrics, engines, registry, protocols and listeners, in that order
 * of construction, and takes them down in the reverse. Threads: the main thread runs server_run and waits for signals; a control
 * thread ticks the registry; the rest belong to net/ and model/. */
#ifndef INFERD_CLI_SERVER_H
#define INFERD_CLI_SERVER_H

#include "base/error.h"
#include "conf/config.h"

struct model_version;

struct server_options {
    struct config *config; /* checked; the server takes it over and releases it */
    /* Build the configuration again from the same file and flags (reload). `fresh` is uninitialised. */
    int (*rebuild)(void *ctx, struct config *fresh, struct error *err);
    /* The server is for one model: called once when it serves; when it can't, server_run ends with the reason. `model` is the first that
     * serves. Control thread. (optional: models may come and fail, the server stays) */
    void (*serving)(void *ctx, const char *address, struct model_version *model);
    void *ctx;
};

/* Serve until told to stop. Returns 0 after a clean shutdown; negative with `err` when the start failed, the one model can't be
 * served (`serving`), or the drain was cut short by a second signal or the deadline. Main thread; blocks. */
int server_run(const struct server_options *o, struct error *err) MUST_CHECK;

#endif
