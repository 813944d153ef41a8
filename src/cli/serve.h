/* serve.h: what `serve` and `run` have in common: from a command line to a server that runs until it is told to stop. */
#ifndef INFERD_CLI_SERVE_H
#define INFERD_CLI_SERVE_H

#include "cli/cli.h"

struct model_version;

/* Parse with at least `least` and at most `most` model paths, load the configuration, serve. `serving` as in server_options (cli/server.h), may be
 * NULL: then models may fail. Once in a process; blocks. Returns an exit code. */
int cli_serve(const struct cli_command *self, int argc, char **argv, size_t least, size_t most,
              void (*serving)(void *ctx, const char *address, struct model_version *model));

#endif
