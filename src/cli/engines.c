/* engines.c: the table of engines.
 *
 * engine/llm is not in it: it generates text and is tested, but no protocol of this binary reaches its token face yet, and a model
 * that loads and can't be asked would be worse than one that is refused. It is listed together with the endpoints that serve it. */
#include "cli/engines.h"

#include "engine/fake/fake.h"
#include "engine/onnx/onnx.h"

const struct engine_ops *const cli_engines[CLI_ENGINES_MAX] = {&engine_onnx, &engine_fake, NULL};

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
