/* YAML and the server's configuration: no input may crash; an accepted file renders to one that gives the same configuration. */
#include <stdint.h>
#include <stdlib.h>

#include "conf/config.h"
#include "conf/yaml.h"

static const char *env(const char *name)
{
    return name[0] == 'H' ? "127.0.0.1" : NULL;
}

static void same_again(const struct config *c)
{
    struct config again;
    struct buf first = {0}, second = {0};
    struct error err;
    config_render_yaml(c, &first);
    if (config_init(&again, &err) < 0 || config_apply_yaml(&again, buf_str(&first), c->where, NULL, &err) < 0)
        abort();
    /* sources differ by now; only the values must not */
    struct config plain = *c;
    for (size_t i = 0; i < CONFIG_OPTIONS_MAX; i++)
        plain.source[i] = again.source[i] = CONFIG_DEFAULT;
    buf_clear(&first);
    config_render_yaml(&plain, &first);
    config_render_yaml(&again, &second);
    if (!str_eq(buf_str(&first), buf_str(&second)))
        abort();
    buf_release(&first);
    buf_release(&second);
    config_release(&again);
}

/* Bytes that are not UTF-8 can't be in a YAML file, so they can't be rendered into one either. */
static bool is_ascii(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i] >= 127 || data[i] == '\\')
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = {(const char *)data, size};
    struct arena a;
    struct node *root;
    struct config c;
    struct error err;
    arena_init(&a, 4096, 8 << 20);
    if (yaml_parse(text, "f", &a, &root, &err) == 0 && !root)
        abort();
    arena_release(&a);
    if (config_init(&c, &err) < 0)
        return 0;
    if (config_apply_yaml(&c, text, "f", env, &err) == 0) {
        int rc = config_check(&c, &err);
        (void)rc;
        if (is_ascii(data, size))
            same_again(&c);
    }
    config_release(&c);
    return 0;
}
