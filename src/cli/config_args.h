/* config_args.h: the server's configuration from a command line: --config FILE and every option as a flag.
 *
 * Kept after the start, so that a reload can build the configuration again from the same sources. */
#ifndef INFERD_CLI_CONFIG_ARGS_H
#define INFERD_CLI_CONFIG_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

struct config;
struct cli_list;

#define CLI_CONFIG_FLAGS_MAX 256

struct cli_config {
    const char *file; /* --config; NULL: none */
    struct cli_config_flag {
        struct str name, value; /* borrowed from argv */
    } flags[CLI_CONFIG_FLAGS_MAX];
    size_t n_flags;
};

/* Is `name` an option of the server or one of its short flags? *boolean: it may stand without a value. */
bool cli_config_knows(struct str name, bool *boolean);
/* Remember a flag. EXHAUSTED past CLI_CONFIG_FLAGS_MAX. */
int cli_config_add(struct cli_config *a, struct str name, struct str value, struct error *err) MUST_CHECK;

/* Defaults, then the file, then the flags, then `paths` (repository arguments; may be NULL) over repository.paths, then the checks
 * of the whole. On success the caller releases `out` with config_release; on failure there is nothing to release. Blocks on the
 * file. May be called again (reload) from any one thread. */
int cli_config_load(const struct cli_config *a, const struct cli_list *paths, struct config *out, struct error *err) MUST_CHECK;

#endif
