/* Server-sent events: the streams and their events are the examples of the WHATWG HTML standard, section 9.2.6, and hand-made ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "wire/sse.h"

static void note(void *ctx, struct str name, struct str data)
{
    struct buf *all = ctx;
    buf_append_c(all, '[');
    buf_append_str(all, name);
    buf_append_c(all, '|');
    buf_append_str(all, data);
    buf_append_c(all, ']');
}

/* However the bytes are cut, the same events come. */
static void assert_events(const char *stream, const char *want)
{
    size_t n = strlen(stream);
    for (size_t cut = 0; cut <= n; cut++) {
        struct sse_reader r = {0};
        struct buf all;
        buf_init(&all);
        sse_reader_push(&r, (struct str){stream, cut}, note, &all);
        sse_reader_push(&r, (struct str){stream + cut, n - cut}, note, &all);
        assert_false(r.failed);
        assert_string_equal(buf_z(&all), want);
        sse_reader_release(&r);
        buf_release(&all);
    }
}

static void test_standard_examples(void **state)
{
    (void)state;
    assert_events("data: YHOO\ndata: +2\ndata: 10\n\n", "[|YHOO\n+2\n10]");
    assert_events(": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
                  "[|first event][|second event][| third event]");
    assert_events("data\n\ndata\ndata\n\ndata:", "[|][|\n]");
    assert_events("data:test\n\ndata: test\n\n", "[|test][|test]");
}

static void test_names_and_line_ends(void **state)
{
    (void)state;
    assert_events("event: add\r\ndata: 7\r\n\r\nevent: x\rdata: 8\r\r", "[add|7][x|8]");
    assert_events("event: lost\n\ndata: y\n\n", "[|y]");
    assert_events("unknown: z\ndata: a\n", "");
}

static void test_written_is_read(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out);
    sse_comment(&out, "waiting");
    sse_write(&out, NULL, STR("{\"a\":1}"));
    sse_write(&out, "done", STR("two\nlines\r\nand a third\rfourth"));
    sse_begin(&out, "e");
    buf_append_z(&out, "{}");
    sse_end(&out);
    assert_string_equal(buf_z(&out), ": waiting\n\ndata: {\"a\":1}\n\nevent: done\ndata: two\ndata: lines\ndata: and a third\n"
                                     "data: fourth\n\nevent: e\ndata: {}\n\n");
    assert_events(buf_z(&out), "[|{\"a\":1}][done|two\nlines\nand a third\nfourth][e|{}]");
    buf_release(&out);
}

static void test_too_long(void **state)
{
    (void)state;
    struct sse_reader r = {0};
    struct buf all;
    char *text = malloc(SSE_EVENT_BYTES_MAX + 2);
    assert_non_null(text);
    memset(text, 'a', SSE_EVENT_BYTES_MAX + 2);
    buf_init(&all);
    sse_reader_push(&r, (struct str){text, SSE_EVENT_BYTES_MAX + 2}, note, &all);
    assert_true(r.failed);
    sse_reader_push(&r, STR("\n\ndata: x\n\n"), note, &all);
    assert_int_equal(all.n, 0);
    sse_reader_release(&r);
    buf_release(&all);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standard_examples),
        cmocka_unit_test(test_names_and_line_ends),
        cmocka_unit_test(test_written_is_read),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
