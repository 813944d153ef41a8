/* The model's name out of gRPC messages, at every cut. Messages are written by hand from protobuf's encoding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "wire/grpc_peek.h"

#define BYTES(literal) literal, sizeof literal - 1
#define ECHO                                                                                                                   \
    "\x0a\x04"                                                                                                                 \
    "echo"
#define OTHER                                                                                                                  \
    "\x12\x03"                                                                                                                 \
    "abc" /* field 2, text */ "\x18\x96\x01" /* field 3, 150 */ "\x25"                                                         \
    "abcd" /* field 4, fixed32 */ "\x29"                                                                                       \
    "abcdefgh"
#define OTHER_N 5 + 3 + 5 + 9
#define MSG(n)  "\0\0\0\0" n

static const struct {
    const char *data;
    size_t n;
    const char *name; /* NULL: not known yet */
    int rc;
    const char *words;
} cases[] = {
    {BYTES(MSG("\x06") ECHO), "echo", 0, NULL},
    {BYTES(MSG("\x1c") OTHER ECHO), "echo", 0, NULL},
    {BYTES(MSG("\x1c") ECHO OTHER MSG("\x06") ECHO), "echo", 0, NULL},
    {BYTES(MSG("\0")), "", 0, NULL},
    {BYTES(MSG("\x02") "\x0a\0"), "", 0, NULL},
    {BYTES(MSG("\x16") OTHER), "", 0, NULL},
    {BYTES(MSG("\x06") "\x0a\x04"
                       "ech"),
     NULL, 0, NULL},
    {BYTES("\0\0\0"), NULL, 0, NULL},
    {BYTES(MSG("\x0c") ECHO ECHO), "echo", STATUS_INVALID, "names its model twice"},
    {BYTES(MSG("\x06") ECHO MSG("\x06") "\x0a\x04"
                                        "echt"),
     "echo", STATUS_INVALID, "another model than the first one did, \"echo\""},
    {BYTES(MSG("\x06") ECHO MSG("\x05") "\x0a\x03"
                                        "ech"),
     "echo", STATUS_INVALID, "another model than the first one did"},
    {BYTES(MSG("\x06") ECHO MSG("\0")), "echo", STATUS_INVALID, "names no model"},
    {BYTES(MSG("\x05") "\x0a\x04"
                       "ech"),
     NULL, STATUS_INVALID, "a field is longer than the message"},
    {BYTES(MSG("\x01") "\x0a"), NULL, STATUS_INVALID, "a field is longer than the message"},
    {BYTES(MSG("\x02") "\x0b\x01"), NULL, STATUS_INVALID, "wire type 3"},
    {BYTES("\1\0\0\0\x06" ECHO), NULL, STATUS_UNIMPLEMENTED, "send it uncompressed"},
    {BYTES("\2\0\0\0\x06" ECHO), NULL, STATUS_INVALID, "a flag byte of 2"},
    {BYTES(MSG("\x20") "\x0a\xac\x02"), NULL, STATUS_INVALID, "a field is longer than the message"},
    {BYTES("\0\0\0\x02\0\x0a\xac\x02"), NULL, STATUS_INVALID, "has 300 bytes"},
    {BYTES(MSG("\x20") "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), NULL, STATUS_INVALID, "a number is too long"},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (size_t step = 1; step <= cases[i].n; step++) {
            struct grpc_peek p;
            struct error err = {0};
            int rc = 0;
            grpc_peek_init(&p);
            for (size_t at = 0; at < cases[i].n && !rc; at += step)
                rc = grpc_peek_feed(&p, (const uint8_t *)cases[i].data + at, MIN_OF(step, cases[i].n - at), &err);
            if (rc != cases[i].rc || (rc && !strstr(err.text, cases[i].words)))
                fail_msg("case %zu, step %zu: %d %s", i, step, rc, err.text);
            assert_int_equal(p.known, cases[i].name != NULL);
            if (cases[i].name)
                assert_string_equal(p.name, cases[i].name);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
