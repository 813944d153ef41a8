/* Engines' texts are merged so that each family stands once, with all its samples (the text format's rule). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "api/api_priv.h"

static void test_merge(void **state)
{
    const struct str texts[] = {
        STR("# TYPE a counter\na{m=\"1\"} 1\n# TYPE b gauge\nb{m=\"1\"} 2\nb{m=\"1\",k=\"x\"} 3\n"),
        {0},
        STR("# TYPE b gauge\nb{m=\"2\"} 4\n# TYPE a counter\na{m=\"2\"} 5\n# TYPE c gauge\nc{m=\"2\"} 6\n"),
    };
    struct buf out;
    buf_init(&out);
    api__merge_metrics(texts, 3, &out);
    assert_string_equal("# TYPE a counter\na{m=\"1\"} 1\na{m=\"2\"} 5\n"
                        "# TYPE b gauge\nb{m=\"1\"} 2\nb{m=\"1\",k=\"x\"} 3\nb{m=\"2\"} 4\n"
                        "# TYPE c gauge\nc{m=\"2\"} 6\n",
                        buf_z(&out));
    buf_clear(&out);
    api__merge_metrics(texts, 0, &out);
    assert_int_equal(0, out.n);
    buf_release(&out);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_merge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
