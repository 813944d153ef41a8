/* commands.h: the subcommands, one file each; main.c only dispatches over this table. */
#ifndef INFERD_CLI_COMMANDS_H
#define INFERD_CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct cli_command command_serve, command_check, command_models, command_infer, command_bench, command_config,
    command_quantize, command_keys, command_version, command_run, command_seal, command_sign, command_chat, command_pull,
    command_export;

#endif
