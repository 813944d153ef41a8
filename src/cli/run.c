/* run.c: `inferd run model.gguf`: one model file, served at once, with a line that says how to talk to it. The server is serve's; only
 * the words differ. */
#include "cli/commands.h"
#include "cli/serve.h"
#include "engine/engine.h"
#include "model/registry.h"

static void say_token_model(const struct cli_style *style, const char *address, struct str name, size_t context)
{
    fprintf(stderr, "\n%s%.*s%s is served on http://%s/v1 (context: %zu tokens). In another terminal:\n\n", style->bold,
            STR_ARG(name), style->off, address, context);
    fprintf(stderr, "  inferd chat --url http://%s\n", address);
    fprintf(stderr,
            "  curl -sN http://%s/v1/chat/completions -d '{\"model\":\"%.*s\",\"stream\":true,\"messages\":[{\"role\":\"user\","
            "\"content\":\"Hello\"}]}'\n\n",
            address, STR_ARG(name));
}

static void say_serving(void *ctx, const char *address, struct model_version *v)
{
    struct cli_style style = cli_style(stderr);
    (void)ctx;
    const struct engine_contract *k = model_version_contract(v);
    struct str name = model_version_model(v);
    if (k->face == ENGINE_TOKEN)
        say_token_model(&style, address, name, k->context_tokens);
    else
        fprintf(stderr, "\n%s%.*s%s is served on http://%s/v2/models/%.*s. What it takes: curl -s http://%s/v2/models/%.*s\n\n",
                style.bold, STR_ARG(name), style.off, address, STR_ARG(name), address, STR_ARG(name));
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    return cli_serve(self, argc, argv, 1, 1, say_serving);
}

const struct cli_command command_run = {
    .name = "run",
    .arguments = "MODEL.gguf|MODEL.onnx|FOLDER",
    .summary = "Serve one model file and say how to talk to it.",
    .details =
        "The model is called as its file without the extension. A language model is served over OpenAI's API with its "
        "own context\n"
        "length, or as much of it as the memory for its KV cache holds; an ONNX model over KServe's. A model that can't be\n"
        "loaded ends the command with exit code 1. Every option of\n"
        "`inferd config --help` is a flag here too.\n",
    .run = run,
};
