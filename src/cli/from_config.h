/* from_config.h: the parts of a server, as the configuration asks for them: the one place that knows which option goes where. */
#ifndef INFERD_CLI_FROM_CONFIG_H
#define INFERD_CLI_FROM_CONFIG_H

#include "base/log.h"
#include "cli/engines.h"
#include "conf/config.h"
#include "model/registry.h"
#include "net/http.h"

/* `configured`, or for 0 what the CPU quota of this process allows. Reads the cgroup. */
uint32_t cli_threads(uint32_t configured);

/* All limits of one HTTP server. */
void cli_http_limits(const struct config *c, struct http_limits *out);

/* Everything but engine_state, metrics and log, which are left NULL. Strings are borrowed from `c`. */
void cli_registry_options(const struct config *c, struct registry_options *out);

/* cli_engines_open with every row of the configuration as text. `state` as there. */
int cli_open_engines(const struct config *c, struct logger *log, struct engine *state[CLI_ENGINES_MAX],
                     struct error *err) MUST_CHECK;

#endif
