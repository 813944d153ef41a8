/* test_onnx_error.c: messages that ONNX Runtime 1.24 really gave, and what of them a client may see. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/onnx/onnx_priv.h"

static const struct {
    const char *message, *clean;
    bool blames;
} cases[] = {
    {"Non-zero status code returned while running Add node. Name:'' Status Message: "
     "/onnxruntime_src/onnxruntime/core/providers/cpu/math/element_wise_ops.h:540 void "
     "onnxruntime::BroadcastIterator::Init(ptrdiff_t, ptrdiff_t) axis == 1 || axis == largest was false. Attempting to "
     "broadcast an "
     "axis by a dimension other than 1. 3 by 5\n",
     "Non-zero status code returned while running Add node. Name:'' Status Message: Attempting to broadcast an axis by a "
     "dimension "
     "other than 1. 3 by 5",
     true},
    {"Non-zero status code returned while running Gather node. Name:'' Status Message: indices element out of data bounds, "
     "idx=7 must be "
     "within the inclusive range [-3,2]",
     "Non-zero status code returned while running Gather node. Name:'' Status Message: indices element out of data bounds, "
     "idx=7 must be "
     "within the inclusive range [-3,2]",
     true},
    {"Non-zero status code returned while running Cast node. Name:'' Status Message: stod",
     "Non-zero status code returned while running Cast node. Name:'' Status Message: stod", true},
    {"Load model from /srv/models/secret/1/model.onnx failed:Fatal error: nowhere:NoSuchOp(-1) is not a registered function/op",
     "Load model from failed:Fatal error: nowhere:NoSuchOp(-1) is not a registered function/op", false},
    {"buffer at 0x7f00deadbeef is gone", "buffer at is gone", false},
    {"Exiting due to terminate flag being set to true.", "Exiting due to terminate flag being set to true.", false},
    {"", "", false},
};

static void says_the_sentence_only(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char out[512];
        onnx__clean_message(cases[k].message, out, sizeof out);
        assert_string_equal(out, cases[k].clean);
        assert_int_equal(onnx__blames_input(cases[k].message), cases[k].blames);
    }
}

static void fits_every_size(void **state)
{
    (void)state;
    for (size_t cap = 1; cap < 200; cap++) {
        char *out = malloc(cap); /* its own block, so that ASan sees one byte too many */
        onnx__clean_message(cases[0].message, out, cap);
        assert_true(strlen(out) < cap);
        assert_memory_equal(out, cases[0].clean, strlen(out));
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_the_sentence_only), cmocka_unit_test(fits_every_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
