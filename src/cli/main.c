/* main.c: only dispatches to a subcommand. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "conf/suggest.h"
#include "os/process.h"

static const struct cli_command *const commands[] = {
    &command_serve,  &command_run,   &command_chat,   &command_pull,     &command_check,
    &command_models, &command_infer, &command_bench,  &command_quantize, &command_keys,
    &command_seal,   &command_sign,  &command_config, &command_export,   &command_version,
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static int print_help(FILE *f)
{
    struct cli_style style = cli_style(f);
    fprintf(f, "%sinferd%s serves machine-learning models.\n\n%susage:%s inferd COMMAND [options]\n\n", style.bold, style.off,
            style.bold, style.off);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %s%-8s%s  %s\n", style.cyan, commands[i]->name, style.off, commands[i]->summary);
    fprintf(f, "  %s%-8s%s  %s\n\n", style.cyan, "help", style.off,
            "Print this text, or that of a command: inferd help COMMAND.");
    fprintf(f, "Start with: inferd serve ./models\nExit codes: 0 done, 1 failed, 2 the command line is wrong.\n");
    return CLI_OK;
}

static const struct cli_command *find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    return NULL;
}

static int unknown(const char *name)
{
    struct suggest s;
    char hint[96];
    suggest_init(&s, str_of(name));
    for (size_t i = 0; i < N_COMMANDS; i++)
        suggest_offer(&s, commands[i]->name);
    cli_fail("there is no command '%s'%s", name, suggest_text(&s, hint, sizeof hint));
    fprintf(stderr, "See: inferd help\n");
    return CLI_USAGE;
}

/* Output that a full disk or a closed descriptor swallowed is no success. */
static int ended(int code)
{
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    return code == CLI_OK && lost ? cli_fail("the output could not be written") : code;
}

int main(int argc, char **argv)
{
    os_stdio_open();
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc < 3)
        return ended(print_help(stdout));
    if (strcmp(name, "--version") == 0)
        name = "version";
    const struct cli_command *command = find(help ? argv[2] : name);
    if (!command)
        return unknown(help ? argv[2] : name);
    if (help)
        return ended(command->run(command, 2, (char *[]){argv[2], (char[]){"--help"}, NULL}));
    return ended(command->run(command, argc - 1, argv + 1));
}
