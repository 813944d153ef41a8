/* config.c: `inferd config`: the options explained, the effective configuration, the reference page, and model configurations
 * converted to the JSON that Triton's clients see. */
#include <string.h>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/config_args.h"
#include "cli/model_file.h"
#include "conf/config.h"

static int print_all(struct buf *text)
{
    bool failed = text->failed || fwrite(text->p ? text->p : "", 1, text->n, stdout) != text->n || fflush(stdout) != 0;
    buf_release(text);
    return failed ? cli_fail("the output could not be written") : CLI_OK;
}

static int print_reference(void (*render)(struct buf *out))
{
    struct buf text;
    buf_init(&text);
    render(&text);
    return print_all(&text);
}

static int print_effective(const struct cli_config *args)
{
    struct config c;
    struct error err = {0};
    struct buf text;
    if (cli_config_load(args, NULL, &c, &err) < 0)
        return cli_refuse("%s", err.text);
    buf_init(&text);
    config_render_yaml(&c, &text);
    config_release(&c);
    return print_all(&text);
}

static int print_model(const char *path)
{
    struct error err = {0};
    struct buf out;
    buf_init(&out);
    if (cli_model_config_json(path, &out, &err) == 0) {
        buf_append_c(&out, '\n');
        return print_all(&out);
    }
    buf_release(&out);
    return cli_fail("%s", err.text);
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_config config = {0};
    struct cli_list arguments;
    bool markdown = false;
    const char *model = NULL;
    const struct cli_flag flags[] = {
        {.name = "markdown", .type = CLI_BOOL, .out = &markdown, .help = "Print docs/reference/config.md."},
        {.name = "model",
         .type = CLI_STRING,
         .out = &model,
         .value = "FILE",
         .help = "Print a model.yaml, config.pbtxt or config.json as Triton's JSON, as GET /v2/models/.../config gives it."},
    };
    const struct cli_spec spec = {.command = self, .flags = flags, .n_flags = COUNT_OF(flags), .config = &config};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            printf("usage: inferd config [--config FILE] [--OPTION=VALUE]...   the effective configuration as YAML\n"
                   "       inferd config --markdown                           the reference page\n"
                   "       inferd config --model FILE                         a model's configuration as Triton's JSON\n\n");
            return print_reference(config_render_help);
        }
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    if (model)
        return print_model(model);
    return markdown ? print_reference(config_render_markdown) : print_effective(&config);
}

const struct cli_command command_config = {
    .name = "config",
    .arguments = "",
    .summary = "Explain every option (--help), or print the effective configuration.",
    .details = "",
    .run = run,
};
