/* Policies from YAML: no file may crash, and one that is read holds what it says: every tensor and text can be looked at by it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "edge/guard.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void use(const struct guard_set *s)
{
    static const uint8_t bytes[64] = {3, 0, 0, 0, 'a', 0xff, 1, 0, 0, 0, 0};
    const struct tensor tensors[] = {
        {.name = STR("X"), .dtype = DTYPE_FP32, .shape = {4, {1, 2, 2, 4}}, .data = slice_borrow(bytes, 64)},
        {.name = STR("Y"), .dtype = DTYPE_FP16, .shape = {1, {32}}, .data = slice_borrow(bytes, 64)},
        {.name = STR("Z"), .dtype = DTYPE_BYTES, .shape = {1, {2}}, .data = slice_borrow(bytes, 11)},
        {.name = STR("W"), .dtype = DTYPE_INT64, .shape = {0}, .data = slice_borrow(bytes, 8)}};
    const struct guard_who who = {STR("t"), STR("c"), STR("m"), STR("a"), STR("infer")};
    for (size_t i = 0; i < s->n_inputs; i++) {
        const struct guard_input *p = &s->inputs[i];
        for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++) {
            enum guard_check what = GUARD_CHECKS;
            struct error err = {0};
            int rc = guard_check_tensor(p, &tensors[k], NULL, &what, &err);
            check(rc == 0 || (rc == STATUS_INVALID && what < GUARD_CHECKS && err.text[0]));
            rc = guard_check_text(&p->text, STR("a\x01\xc2\x85 \xff"), "f", &what, &err);
            check(rc == 0 || rc == STATUS_INVALID);
            rc = guard_check_type(p, STR("a/b;c"), &what, &err);
            check(rc == 0 || rc == STATUS_MEDIA_TYPE);
        }
        guard_matches(&p->match, &who);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct guard_set *s = NULL;
    struct error err = {0};
    if (size > 8192)
        return 0;
    int rc = guard_set_parse((struct str){(const char *)data, size}, "guards", &s, &err);
    if (rc == 0)
        use(s);
    else
        check(!s && err.text[0]);
    guard_set_unref(s);
    return 0;
}
