/* engines.h: the engines that this binary has. The one place that names concrete ones. */
#ifndef INFERD_CLI_ENGINES_H
#define INFERD_CLI_ENGINES_H

#include <stddef.h>

#include "engine/engine.h"

#define CLI_ENGINES_MAX 8

/* NULL-terminated, in the order in which a version folder is searched for their files. */
extern const struct engine_ops *const cli_engines[CLI_ENGINES_MAX];

/* Open every engine that has process state. `options` are rows of the server's config ("onnxruntime.library",
 * "compute.threads", ...); each engine takes those it knows. `state` is parallel to cli_engines, NULL where an engine has no
 * process state. Quick: engines look for their libraries at the first load, so a missing one fails loads, not the
 * server. On error nothing is left open. Main thread, once. */
int cli_engines_open(const struct engine_option *options, size_t n, struct logger *log, struct engine *state[CLI_ENGINES_MAX],
                     struct error *err) MUST_CHECK;
/* After every model is unloaded. Accepts NULL entries. */
void cli_engines_close(struct engine *state[CLI_ENGINES_MAX]);

#endif
