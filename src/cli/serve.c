/* serve.c: `inferd serve`: the server. Flags are the server's options (config_args.h); what runs is server.c. */
#include <stdlib.h>

#include "base/status.h"
#include "cli/commands.h"
#include "cli/config_args.h"
#include "cli/serve.h"
#include "cli/server.h"

struct sources {
    struct cli_config config;
    struct cli_list paths;
};

/* Reload: the same file, flags and paths again. */
static int rebuild(void *ctx, struct config *fresh, struct error *err)
{
    const struct sources *s = ctx;
    return cli_config_load(&s->config, &s->paths, fresh, err);
}

int cli_serve(const struct cli_command *self, int argc, char **argv, size_t least, size_t most,
              void (*serving)(void *ctx, const char *address, struct model_version *model))
{
    static struct sources sources; /* Exception: too large for the stack, and there is one server in a process */
    const struct cli_spec spec = {.command = self, .config = &sources.config, .min_arguments = least, .max_arguments = most};
    struct error err = {0};
    int code = cli_parse(&spec, argc, argv, &sources.paths);
    if (code != CLI_GO)
        return code;
    struct config *config = calloc(1, sizeof *config);
    if (!config)
        return cli_fail("out of memory while starting");
    if (cli_config_load(&sources.config, &sources.paths, config, &err) < 0) {
        free(config);
        return cli_refuse("%s", err.text);
    }
    const struct server_options o = {.config = config, .rebuild = rebuild, .serving = serving, .ctx = &sources};
    return server_run(&o, &err) < 0 ? cli_fail("%s", err.text) : CLI_OK;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    return cli_serve(self, argc, argv, 0, CLI_LIST_MAX, NULL);
}

const struct cli_command command_serve = {
    .name = "serve",
    .arguments = "[REPOSITORY|MODEL]...",
    .summary = "Serve the models of repositories, model folders or model files.",
    .details =
        "Each argument is a model repository (name/version/model.onnx below it), one model's folder, or a model file.\n"
        "Every option of `inferd config --help` is a flag here too. SIGTERM drains and stops, a second one stops at once;\n"
        "SIGHUP reads the configuration again; SIGUSR1 reopens the log files.\n",
    .run = run,
};
