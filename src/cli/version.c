/* version.c: `inferd version`. */
#include "cli/commands.h"
#include "os/crash.h"

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_list arguments;
    const struct cli_spec spec = {.command = self};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    printf("inferd %s (build %s)\n", INFERD_VERSION, os_build_id());
    return CLI_OK;
}

const struct cli_command command_version = {
    .name = "version",
    .arguments = "",
    .summary = "Print the version and the build id.",
    .details = "",
    .run = run,
};
