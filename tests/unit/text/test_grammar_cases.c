/* Regular expressions and schemas with texts that Python's `re` and `jsonschema` accept or refuse (made by tests/tools/grammar_oracle.py): the same
 * here, byte by byte; and walks through the masks of a vocabulary whose tokens cross all borders end in texts that are accepted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "text/grammar_rig.h"
#include "wire/json.h"

static void check_texts(struct grammar *g, yyjson_val *texts, bool want, const char *line)
{
    size_t i, n;
    yyjson_val *e;
    yyjson_arr_foreach(texts, i, n, e) if (rig_accepts(g, json_str(e)) != want)
        fail_msg("%s\n%s is %s", line, yyjson_get_str(e), want ? "refused" : "accepted");
}

static void check_line(struct grammar_vocab *v, const char *line, size_t len, uint64_t seed)
{
    struct json j;
    struct error err = {0};
    struct grammar *g = NULL;
    struct rand r;
    enum grammar_kind kind;
    assert_int_equal(0, json_parse(&j, (struct str){line, len}, NULL, &err));
    assert_true(grammar_kind_of(json_str(yyjson_obj_get(j.root, "kind")), &kind));
    if (grammar_compile(v, kind, json_str(yyjson_obj_get(j.root, "source")), NULL, &g, &err) < 0)
        fail_msg("%s\n%s", line, err.text);
    check_texts(g, yyjson_obj_get(j.root, "yes"), true, line);
    check_texts(g, yyjson_obj_get(j.root, "no"), false, line);
    rand_init(&r, seed);
    struct buf text;
    buf_init(&text);
    assert_true(rig_walk(g, &r, 12, true, &text));
    if (!rig_accepts(g, buf_str(&text)))
        fail_msg("%s\nthe walk %s is refused", line, buf_z(&text));
    buf_release(&text);
    grammar_unref(g);
    json_release(&j);
}

static void test_cases(void **state)
{
    FILE *f = fopen(TEST_DATA "/text/grammar_cases.jsonl", "r");
    struct tokenizer *t = rig_tokenizer(0);
    struct grammar_vocab *v = NULL;
    char *line = NULL;
    size_t cap = 0, n_lines = 0;
    ssize_t n;
    assert_non_null(f);
    assert_int_equal(0, grammar_vocab_create(t, (uint32_t)tokenizer_size(t), &v, NULL));
    while ((n = getline(&line, &cap, f)) > 0)
        check_line(v, line, (size_t)n, ++n_lines);
    assert_true(n_lines > 200);
    free(line);
    fclose(f);
    grammar_vocab_destroy(v);
    tokenizer_destroy(t);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
