/* engines.c: the table of engines. */
#include "cli/engines.h"

#include "engine/fake/fake.h"
#include "engine/llm/llm.h"
#include "engine/onnx/onnx.h"

const struct engine_ops *const cli_engines[CLI_ENGINES_MAX] = {&engine_onnx, &engine_llm, &engine_fake, NULL};

int cli_engines_open(const struct engine_option *options, size_t n, struct logger *log, struct engine *state[CLI_ENGINES_MAX],
                     struct error *err)
{
    for (size_t i = 0; i < CLI_ENGINES_MAX; i++)
        state[i] = NULL;
    for (size_t i = 0; cli_engines[i]; i++) {
        int rc = cli_engines[i]->open ? cli_engines[i]->open(options, n, log, &state[i], err) : 0;
        if (rc) {
            cli_engines_close(state);
            return rc;
        }
    }
    return 0;
}

void cli_engines_close(struct engine *state[CLI_ENGINES_MAX])
{
    for (size_t i = 0; i < CLI_ENGINES_MAX && cli_engines[i]; i++) {
        if (state[i])
            cli_engines[i]->close(state[i]);
        state[i] = NULL;
    }
}
