/* check.c: `inferd check`: the configuration and every model, read and judged as `serve` would, without serving. */
#include "base/size.h"
#include "cli/commands.h"
#include "cli/config_args.h"
#include "cli/edge_check.h"
#include "cli/from_config.h"
#include "obs/log_sink.h"

static int check_models(const struct config *c, struct logger *log)
{
    struct engine *engines[CLI_ENGINES_MAX];
    struct registry_options options;
    struct error err = {0};
    struct buf out;
    if (cli_open_engines(c, log, engines, &err) < 0)
        return cli_fail("%s", err.text);
    cli_registry_options(c, &options);
    options.engine_state = engines;
    options.log = log;
    if (seal_policy_check(&options.seal, &err) < 0) {
        cli_engines_close(engines);
        return cli_refuse("%s", err.text);
    }
    buf_init(&out);
    int rc = registry_check(&options, &out, &err);
    fwrite(out.p ? out.p : "", 1, out.n, stdout);
    bool written = fflush(stdout) == 0 && !out.failed;
    buf_release(&out);
    cli_engines_close(engines);
    if (rc < 0)
        return cli_fail("%s", err.text);
    return written ? CLI_OK : cli_fail("the output could not be written");
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_config args = {0};
    struct cli_list paths;
    struct config c;
    struct error err = {0};
    struct log_sink *sink;
    bool verbose = false;
    const struct cli_flag flags[] = {
        {.name = "verbose", .letter = 'v', .type = CLI_BOOL, .out = &verbose, .help = "Show what engines log while they load."},
    };
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .config = &args, .max_arguments = CLI_LIST_MAX};
    int code = cli_parse(&spec, argc, argv, &paths);
    if (code != CLI_GO)
        return code;
    if (cli_config_load(&args, &paths, &c, &err) < 0)
        return cli_refuse("%s", err.text);
    const struct log_sink_options log = {.level = verbose ? LOG_DEBUG : LOG_ERROR};
    if (!c.repository.paths.n && !c.gateway.n_routes)
        code = cli_usage_error(self, "there is no model repository: name one as argument or in repository.paths");
    else if (log_sink_create(&log, &sink, &err) < 0)
        code = cli_fail("%s", err.text);
    else {
        if (cli_edge_check(&c, log_sink_logger(sink), &err) < 0)
            code = cli_refuse("%s", err.text);
        else
            code = c.repository.paths.n ? check_models(&c, log_sink_logger(sink)) : CLI_OK;
        if (code == CLI_OK && c.gateway.n_routes)
            printf("gateway: %zu pools, %zu routes\n", c.gateway.n_pools, c.gateway.n_routes);
        log_sink_destroy(sink);
    }
    config_release(&c);
    return code;
}

const struct cli_command command_check = {
    .name = "check",
    .arguments = "[REPOSITORY|MODEL]...",
    .summary = "Say what would be served, and each model's contract and policy, or what is wrong.",
    .details = "Reads the configuration, the files of keys, quotas and certificates that it names, and loads each\n"
               "model as `serve` would, but serves nothing. Exit code 1 when a\n"
               "model would not be served, 2 when the configuration is wrong.",
    .run = run,
};
