/* Buffers, slabs, slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <yyjson.h>

#include "base/buf.h"
#include "base/rand.h"
#include "os/thread.h"

static void appends(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    assert_string_equal(buf_z(&b), "");
    buf_append_z(&b, "a");
    buf_append_c(&b, 'b');
    buf_append_str(&b, STR("cd"));
    buf_append(&b, NULL, 0);
    buf_append_str(&b, (struct str){0});
    buf_append_u64(&b, 0);
    buf_append_u64(&b, UINT64_MAX);
    buf_append_i64(&b, INT64_MIN);
    buf_append_i64(&b, -1);
    buf_append_i64(&b, INT64_MAX);
    buf_printf(&b, "<%s>", "");
    assert_string_equal(buf_z(&b), "abcd018446744073709551615-9223372036854775808-19223372036854775807<>");
    assert_int_equal(b.n, strlen(b.p)); /* the terminator is not counted */
    buf_clear(&b);
    assert_int_equal(b.n, 0);
    assert_non_null(b.p); /* keeps its memory */
    buf_release(&b);
    assert_null(b.p);
}

static void grows_to_any_size(void **state)
{
    (void)state;
    struct buf b = {0};
    for (int i = 0; i < 100000; i++)
        buf_append(&b, &i, sizeof i);
    assert_int_equal(b.n, 400000);
    for (int i = 0; i < 100000; i++)
        assert_memory_equal(b.p + 4 * i, &i, sizeof i);
    char big[5000];
    memset(big, 'z', sizeof big);
    buf_printf(&b, "%.*s", (int)sizeof big, big);
    assert_int_equal(b.n, 405000);
    buf_release(&b);
}

static void a_failure_sticks_until_clear(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_append_z(&b, "kept");
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    buf_append_z(&b, "lost");
    buf_append_u64(&b, 1);
    buf_printf(&b, "lost");
    assert_null(buf_reserve(&b, 1));
    assert_int_equal(b.n, 4);
    assert_string_equal(buf_z(&b), "");
    buf_clear(&b);
    buf_append_z(&b, "again");
    assert_string_equal(buf_z(&b), "again");
    buf_release(&b);
}

static void quoted(struct str in, const char *want)
{
    struct buf b = {0};
    buf_append_json_str(&b, in);
    assert_string_equal(buf_z(&b), want);
    buf_release(&b);
}

static void json_strings(void **state)
{
    (void)state;
    quoted((struct str){0}, "\"\"");
    quoted(STR("plain"), "\"plain\"");
    quoted(STR("\"\\/\b\f\n\r\t\x01\x1f"), "\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\\u0001\\u001f\"");
    quoted((struct str){"a\0b", 3}, "\"a\\u0000b\"");
    quoted(STR("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    quoted(STR("a\xff\xc3"), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
    quoted(STR("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* a surrogate */
}

/* Random bytes always give a document that a JSON parser accepts, and valid text comes back unchanged. */
static void json_strings_parse(void **state)
{
    (void)state;
    struct rand r;
    rand_init(&r, 5);
    for (int round = 0; round < 3000; round++) {
        char bytes[64];
        size_t n = rand_below(&r, sizeof bytes);
        bool ascii = round & 1;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)rand_below(&r, ascii ? 128 : 256);
        struct buf b = {0};
        buf_append_json_str(&b, (struct str){bytes, n});
        yyjson_doc *doc = yyjson_read(b.p, b.n, 0);
        assert_non_null(doc);
        if (ascii) {
            assert_int_equal(yyjson_get_len(yyjson_doc_get_root(doc)), n);
            assert_memory_equal(yyjson_get_str(yyjson_doc_get_root(doc)), bytes, n);
        }
        yyjson_doc_free(doc);
        buf_release(&b);
    }
}

static int freed;
static void count_free(struct slab *s)
{
    freed++;
    free(s->data);
    free(s);
}

static void slabs_are_counted(void **state)
{
    (void)state;
    struct slab *s = slab_create(100);
    assert_int_equal((uintptr_t)s->data % 64, 0);
    assert_int_equal(s->cap, 100);
    memset(s->data, 1, 100);
    struct slice a = slice_of(s, 10, 20), b = slice_borrow("xyz", 3);
    assert_ptr_equal(a.p, s->data + 10);
    slab_unref(s);
    assert_int_equal(a.p[19], 1); /* the slice keeps it alive */
    slice_release(&a);
    assert_null(a.owner);
    slice_release(&a); /* idempotent */
    slice_release(&b); /* borrowed: frees nothing */
    slab_unref(NULL);
    assert_null(slab_create(SIZE_MAX));
    assert_null(slab_create(SIZE_MAX - 64));
    struct slab *own = calloc(1, sizeof *own);
    own->data = malloc(10);
    own->free_fn = count_free;
    atomic_init(&own->refs, 1);
    slab_ref(own);
    slab_unref(own);
    assert_int_equal(freed, 0);
    slab_unref(own);
    assert_int_equal(freed, 1);
    struct slab *empty = slab_create(0);
    assert_non_null(empty);
    slab_unref(empty);
}

/* References dropped by many threads: freed once, after everyone's writes (a data race or double free fails under the sanitizers). */
static void hold_and_drop(void *arg)
{
    struct slab *s = arg;
    for (int i = 0; i < 20000; i++) {
        struct slice v = slice_of(s, 0, 1);
        slice_release(&v);
    }
    slab_unref(s);
}

static void slabs_cross_threads(void **state)
{
    (void)state;
    struct os_thread t[4];
    struct slab *s = slab_create(64);
    memset(s->data, 0, 64);
    for (int i = 0; i < 4; i++)
        assert_int_equal(os_thread_start(&t[i], "slab", hold_and_drop, slab_ref(s), NULL), 0);
    slab_unref(s);
    for (int i = 0; i < 4; i++)
        os_thread_join(&t[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends),
        cmocka_unit_test(grows_to_any_size),
        cmocka_unit_test(a_failure_sticks_until_clear),
        cmocka_unit_test(json_strings),
        cmocka_unit_test(json_strings_parse),
        cmocka_unit_test(slabs_are_counted),
        cmocka_unit_test(slabs_cross_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
