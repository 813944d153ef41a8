/* Unicode's own examples (Annex 15, figures 3 to 6), BERT's rules, hostile character maps, bytes that are no text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "text/normal.h"

static void gives(struct normal_step step, const char *text, const char *want)
{
    struct buf b;
    struct error err = {0};
    buf_init(&b);
    assert_int_equal(0, normal_check(&step, &err));
    normal_apply(&step, 1, str_of(text), &b);
    if (b.failed || !str_eqz(buf_str(&b), want))
        fail_msg("kind %d: \"%s\" became \"%.*s\"", (int)step.kind, text, STR_ARG(buf_str(&b)));
    buf_release(&b);
}

#define STEP(k) ((struct normal_step){.kind = (k)})

static void forms(void **state)
{
    (void)state;
    /* U+212B, U+2126; U+1E9B U+0323 (the long s with two dots) has four different forms */
    gives(STEP(NORMAL_NFC), "\xe2\x84\xab\xe2\x84\xa6", "\xc3\x85\xce\xa9");
    gives(STEP(NORMAL_NFD), "\xe2\x84\xab", "A\xcc\x8a");
    gives(STEP(NORMAL_NFC), "\xe1\xba\x9b\xcc\xa3", "\xe1\xba\x9b\xcc\xa3");
    gives(STEP(NORMAL_NFD), "\xe1\xba\x9b\xcc\xa3", "\xc5\xbf\xcc\xa3\xcc\x87");
    gives(STEP(NORMAL_NFKC), "\xe1\xba\x9b\xcc\xa3", "\xe1\xb9\xa9");
    gives(STEP(NORMAL_NFKD), "\xe1\xba\x9b\xcc\xa3", "s\xcc\xa3\xcc\x87");
    gives(STEP(NORMAL_NFKC), "\xef\xac\x81 2\xe2\x81\xb5", "fi 25");
    gives(STEP(NORMAL_NFC),
          "e\xcc\x81\xff"
          "e\xcc\x81\xc3",
          "\xc3\xa9\xff\xc3\xa9\xc3"); /* what is no UTF-8 stays */
    gives(STEP(NORMAL_NFC), "", "");
}

static void bert(void **state)
{
    (void)state;
    gives(STEP(NORMAL_BERT_CLEAN),
          "a\tb\x01"
          "c\r\n\xc2\xa0"
          "d\xe2\x80\x8b\xef\xbf\xbd\xffz",
          "a bc   dz");
    gives(STEP(NORMAL_BERT_CJK),
          "a\xe6\x97\xa5\xe6\x9c\xac"
          "b\xe3\x81\x82",
          "a \xe6\x97\xa5  \xe6\x9c\xac b\xe3\x81\x82");
    gives(STEP(NORMAL_STRIP_ACCENTS), "e\xcc\x81\xc3\xa9", "e\xc3\xa9");
    gives(STEP(NORMAL_LOWERCASE), "AB\xc3\x84\xc4\xb0", "ab\xc3\xa4i\xcc\x87");
}

static void rewriting(void **state)
{
    (void)state;
    gives((struct normal_step){.kind = NORMAL_REPLACE, .a = STR("aa"), .b = STR("b")}, "aaaxaa", "baxb");
    gives((struct normal_step){.kind = NORMAL_REPLACE_RUNS, .b = STR("_")}, " a  b   ", " a_b_");
    gives((struct normal_step){.kind = NORMAL_STRIP, .left = true},
          " \xe3\x80\x80"
          "a ",
          "a ");
    gives((struct normal_step){.kind = NORMAL_STRIP, .right = true}, " a \xe3\x80\x80", " a");
    gives(STEP(NORMAL_SQUEEZE), "  a   b ", "a b");
    gives((struct normal_step){.kind = NORMAL_PREPEND, .a = STR("_")}, "a", "_a");
    gives((struct normal_step){.kind = NORMAL_PREPEND, .a = STR("_")}, "", "");
}

/* A double array by hand: "a" -> "xy". Unit 0 has offset 0x61 ^ 1 so that 'a' leads to unit 1; that has a leaf at 1 ^ 2 = 3. */
static void charsmap(void **state)
{
    char map[4 + 4 * 4 + 4] = {0};
    const uint32_t units[] = {16, (0x61u ^ 1) << 10, 2u << 10 | 1u << 8 | 0x61, 0, 1u << 31 | 1};
    struct error err = {0};
    (void)state;
    memcpy(map, units, sizeof units);
    memcpy(map + sizeof units, "\0xy", 4);
    struct normal_step step = {.kind = NORMAL_CHARSMAP, .a = {map, sizeof map}};
    gives(step, "bab\xff", "bxyb\xef\xbf\xbd");
    step.a.n -= 1; /* the texts have no end */
    assert_int_equal(STATUS_INVALID, normal_check(&step, &err));
    step.a.n = 19; /* the trie has not either */
    assert_int_equal(STATUS_INVALID, normal_check(&step, &err));
    step.a.n = 0;
    assert_int_equal(STATUS_INVALID, normal_check(&step, &err));
    /* offsets that lead out of the trie, and a text beyond the end: no replacement */
    const uint32_t wild[] = {16, 0x3fffffu << 10 | 1u << 9, 0xffffffffu, 0xffffffffu, 0xffffffffu};
    memcpy(map, wild, sizeof wild);
    step.a.n = sizeof map;
    gives(step, "bab", "bab");
    const uint32_t far[] = {16, (0x61u ^ 1) << 10, 2u << 10 | 1u << 8 | 0x61, 0, 0x7fffffff};
    memcpy(map, far, sizeof far);
    gives(step, "bab", "bab");
    step = (struct normal_step){.kind = NORMAL_REPLACE, .b = STR("x")};
    assert_int_equal(STATUS_INVALID, normal_check(&step, &err));
}

static void one_behind_the_other(void **state)
{
    const struct normal_step steps[] = {STEP(NORMAL_NFD), STEP(NORMAL_STRIP_ACCENTS), STEP(NORMAL_LOWERCASE)};
    struct buf b;
    (void)state;
    buf_init(&b);
    normal_apply(steps, 3, STR("\xc3\x89T\xc3\x89 \xc5\xbd"), &b);
    assert_true(str_eqz(buf_str(&b), "ete z"));
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forms), cmocka_unit_test(bert), cmocka_unit_test(rewriting),
                                       cmocka_unit_test(charsmap), cmocka_unit_test(one_behind_the_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
