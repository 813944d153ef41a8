/* What a server tells the client commands: no metadata and no answer may crash; accepted outputs agree with their shapes. The first byte
 * says how much of the input is the JSON head of an answer. */
#include <stdint.h>
#include <stdlib.h>

#include "cli/kserve.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct kserve_answer answer;
    struct kserve_model model;
    struct error err;
    if (!size)
        return 0;
    struct str text = {(const char *)data + 1, size - 1};
    arena_init(&a, 4096, 16 << 20);
    size_t head = data[0] == 0 ? 0 : text.n > data[0] ? text.n - data[0] : 1;
    if (kserve_answer_parse(text, head, &a, &answer, &err) == 0) {
        for (size_t i = 0; i < answer.n_outputs; i++)
            if (tensor_check(&answer.outputs[i], &err) < 0)
                abort();
        kserve_answer_release(&answer);
    }
    if (kserve_model_parse(text, text, &a, &model, &err) == 0 &&
        (model.n_inputs > KSERVE_IO_MAX || model.n_outputs > KSERVE_IO_MAX))
        abort();
    arena_release(&a);
    return 0;
}
