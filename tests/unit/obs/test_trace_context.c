/* Cases from the W3C Trace Context recommendation (section 3.2 and its test suite's list of invalid headers). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "obs/trace_context.h"

#define GOOD "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

static void the_standards_example(void **state)
{
    (void)state;
    struct trace_context t;
    char text[TRACEPARENT_BYTES + 1];
    static const uint8_t id[16] = {0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6,
                                   0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36};
    static const uint8_t span[8] = {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7};
    assert_true(trace_context_parse(STR(GOOD), &t));
    assert_memory_equal(t.trace_id, id, 16);
    assert_memory_equal(t.span_id, span, 8);
    assert_int_equal(t.flags, 1);
    trace_context_format(&t, text);
    assert_string_equal(text, GOOD);
}

static void later_versions(void **state)
{
    (void)state;
    struct trace_context t;
    assert_true(trace_context_parse(STR("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), &t));
    assert_true(trace_context_parse(STR("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes-later"), &t));
    assert_true(trace_context_parse(STR("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-"), &t));
    assert_false(trace_context_parse(STR("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what"), &t));
}

static void refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-010",
        "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra", /* version 00 has exactly 55 */
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
        " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ".0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    };
    struct trace_context t = {.flags = 77};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(trace_context_parse(str_of(bad[i]), &t));
    for (size_t n = 0; n < TRACEPARENT_BYTES; n++)
        assert_false(trace_context_parse((struct str){GOOD, n}, &t));
    for (size_t i = 0; i < TRACEPARENT_BYTES; i++) { /* any single wrong byte */
        char text[] = GOOD;
        text[i] = 'z';
        assert_false(trace_context_parse(str_of(text), &t));
    }
    assert_int_equal(t.flags, 77);
}

static void children(void **state)
{
    (void)state;
    struct trace_context t, child, zero;
    assert_true(trace_context_parse(STR("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff"), &t));
    trace_context_child(&t, 0x0123456789abcdef, &child);
    assert_memory_equal(child.trace_id, t.trace_id, 16);
    assert_memory_not_equal(child.span_id, t.span_id, 8);
    assert_int_equal(child.flags, 1); /* unknown flags are not passed on */
    trace_context_child(&t, 0, &child);
    char text[TRACEPARENT_BYTES + 1];
    trace_context_format(&child, text);
    assert_true(trace_context_parse(str_of(text), &child)); /* never an all-zero id */
    trace_context_start(&zero, (const uint64_t[]){0, 0, 0}, true);
    trace_context_format(&zero, text);
    assert_true(trace_context_parse(str_of(text), &child));
    assert_int_equal(child.flags, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_standards_example),
        cmocka_unit_test(later_versions),
        cmocka_unit_test(refuses),
        cmocka_unit_test(children),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
