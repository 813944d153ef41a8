/* Model configurations: the first byte chooses the format. No input may crash; what is accepted renders to JSON that is accepted
 * and renders to the same JSON. */
#include <stdint.h>
#include <stdlib.h>

#include "conf/model_config.h"

static int read_as(int format, struct str text, struct arena *a, struct model_config *c, struct error *err)
{
    model_config_init(c);
    if (format == 0)
        return model_config_from_yaml(text, "f", a, c, err);
    return format == 1 ? model_config_from_pbtxt(text, "f", a, c, err) : model_config_from_json(text, "f", a, c, err);
}

/* JSON replaces what isn't UTF-8, and one axis of several is rendered: such inputs needn't come back the same. */
static bool round_trips(const struct model_config *c, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((uint8_t)text.p[i] >= 127 || text.p[i] == '\\')
            return false;
    for (size_t i = 0; i < c->n_inputs; i++)
        if (c->inputs[i].n_padding > 1)
            return false;
    for (size_t i = 0; i < c->n_outputs; i++)
        if (c->outputs[i].cut_axis[0] > 0 && c->outputs[i].cut_axis[1] > 0)
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct model_config c, again;
    struct error err;
    struct buf first = {0}, second = {0};
    if (!size)
        return 0;
    struct str text = {(const char *)data + 1, size - 1};
    arena_init(&a, 16384, 32 << 20);
    if (read_as(data[0] % 3, text, &a, &c, &err) == 0) {
        model_config_render_json(&c, false, &first);
        int rc = read_as(2, buf_str(&first), &a, &again, &err);
        if (round_trips(&c, text)) {
            if (rc < 0)
                abort();
            model_config_render_json(&again, false, &second);
            if (!str_eq(buf_str(&first), buf_str(&second)))
                abort();
        }
    }
    buf_release(&first);
    buf_release(&second);
    arena_release(&a);
    return 0;
}
