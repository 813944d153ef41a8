/* Decimal <-> binary. Expected values: exact fractions in Python and numpy's shortest forms (tests/data/tensor, made by
 * make_data.py), and the C library's strtod, strtof and printf on random numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/json_number.h"
#include "tensor/tensor.h"

static uint64_t random_state = 88172645463325252ull;
static uint64_t rnd(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t bits64(double v)
{
    uint64_t u;
    memcpy(&u, &v, 8);
    return u;
}

static uint32_t bits32(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}

static struct json_decimal scan(const char *text)
{
    struct json_decimal d;
    const char *end = text + strlen(text);
    if (json_decimal_scan(text, end, &d) != end)
        fail_msg("not read as a number: %.80s", text);
    return d;
}

static void hard_decimals_round_once(void **state)
{
    (void)state;
    FILE *f = fopen(TEST_DATA "/tensor/decimals.txt", "r");
    assert_non_null(f);
    char *line = NULL;
    size_t cap = 0, n = 0;
    while (getline(&line, &cap, f) > 0) {
        char *text = line, *at = line + strcspn(line, " ");
        uint64_t want[4];
        *at++ = 0;
        for (int i = 0; i < 4; i++)
            want[i] = strtoull(at, &at, 16);
        struct json_decimal d = scan(text);
        if (bits64(json_decimal_f64(&d)) != want[0] || bits32(json_decimal_f32(&d)) != want[1] ||
            json_decimal_f16(&d) != want[2] || json_decimal_bf16(&d) != want[3])
            fail_msg("%s: got %llx %x %x %x", text, (unsigned long long)bits64(json_decimal_f64(&d)),
                     bits32(json_decimal_f32(&d)), json_decimal_f16(&d), json_decimal_bf16(&d));
        n++;
    }
    free(line);
    fclose(f);
    assert_true(n > 1000);
}

static void random_decimals_agree_with_strtod(void **state)
{
    (void)state;
    long rounds = getenv("JSON_NUMBER_ROUNDS") ? atol(getenv("JSON_NUMBER_ROUNDS")) : 300000;
    for (long i = 0; i < rounds; i++) {
        char text[64];
        double v;
        uint64_t u = rnd();
        memcpy(&v, &u, 8);
        switch (i % 4) {
        case 0: /* any double, 17 digits */
            if (!isfinite(v))
                continue;
            snprintf(text, sizeof text, "%.16e", v);
            break;
        case 1: /* digits of any length around 1 */
            snprintf(text, sizeof text, "%.*f", (int)(rnd() % 22), (double)(int64_t)(u >> 20) * 0x1p-30);
            break;
        case 2: /* 19 and 20 digits with an exponent */
            snprintf(text, sizeof text, "%llu%de%d", (unsigned long long)u, (int)(rnd() % 10), (int)(rnd() % 660) - 345);
            break;
        default: /* a float widened, as numpy's tolist writes it */
            snprintf(text, sizeof text, "%.17g", (double)((float)(u >> 40) * 0x1p-24f));
        }
        struct json_decimal d = scan(text);
        if (bits64(json_decimal_f64(&d)) != bits64(strtod(text, NULL)) ||
            bits32(json_decimal_f32(&d)) != bits32(strtof(text, NULL)))
            fail_msg("%s: got %a %a", text, json_decimal_f64(&d), (double)json_decimal_f32(&d));
    }
}

static void the_grammar_is_jsons(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "-",   "+1",   ".5",  "1.", "01",  "-01", "00",
                                      "1e", "1e+", "1.e5", "NaN", "e5", "--1", "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct json_decimal d;
        const char *end = bad[i] + strlen(bad[i]);
        assert_false(json_decimal_scan(bad[i], end, &d) == end);
    }
    static const char *const good[] = {"0", "-0", "0e0", "0.0e-0", "1E5", "1e+05", "10", "-12345678901234567890.5"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        scan(good[i]);
    /* Cut anywhere, a number never reads past its end (the sanitizers watch the allocation). */
    static const char text[] = "-123456789.123456789123456789e-123";
    for (size_t n = 0; n < sizeof text; n++) {
        char *copy = malloc(n ? n : 1);
        memcpy(copy, text, n);
        struct json_decimal d;
        const char *next = json_decimal_scan(copy, copy + n, &d);
        assert_true(!next || next <= copy + n);
        free(copy);
    }
}

/* "digits exponent" of a decimal text, trailing zeros gone. */
#define CANONICAL 80
static void canonical(const char *text, size_t n, char *out)
{
    char digits[64];
    size_t k = 0;
    int exp = 0, point = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] >= '0' && text[i] <= '9') {
            if (k || text[i] != '0')
                digits[k++] = text[i];
            exp -= point;
        } else if (text[i] == '.') {
            point = 1;
        } else if (text[i] == 'e' || text[i] == 'E') {
            exp += atoi(text + i + 1);
            break;
        }
    }
    for (; k > 1 && digits[k - 1] == '0'; k--)
        exp++;
    digits[k] = 0;
    snprintf(out, CANONICAL, "%s %d", digits, exp);
}

static void shortest_forms_are_numpys(void **state)
{
    (void)state;
    FILE *f = fopen(TEST_DATA "/tensor/shortest.txt", "r");
    assert_non_null(f);
    char got[CANONICAL], text[JSON_FLOAT_TEXT + 1], *line = NULL;
    size_t cap = 0;
    int n = 0;
    while (getline(&line, &cap, f) > 0) { /* "f32 3dcccccd 1 -1": type, bits, digits, exponent */
        char *want;
        uint64_t u = strtoull(line + 4, &want, 16);
        uint32_t u32 = (uint32_t)u;
        double v;
        float s;
        memcpy(&v, &u, 8);
        memcpy(&s, &u32, 4);
        line[strcspn(line, "\n")] = 0;
        size_t len = line[1] == '6'   ? json_write_f64(v, text)
                     : line[1] == '3' ? json_write_f32(s, text)
                                      : json_write_f16((uint16_t)u, text);
        text[len] = 0;
        canonical(text, len, got);
        if (strcmp(got, want + 1) != 0)
            fail_msg("%s: got %s", line, text);
        n++;
    }
    free(line);
    fclose(f);
    assert_true(n > 2000);
}

static void written_numbers_read_back_and_none_is_shorter(void **state)
{
    (void)state;
    long rounds = getenv("JSON_NUMBER_ROUNDS") ? atol(getenv("JSON_NUMBER_ROUNDS")) : 100000;
    for (long i = 0; i < rounds; i++) {
        char text[JSON_FLOAT_TEXT + 1], shorter[64], got[CANONICAL];
        uint64_t u = rnd();
        double v;
        memcpy(&v, &u, 8);
        if (isfinite(v)) {
            size_t n = json_write_f64(v, text);
            assert_true(n <= JSON_FLOAT_TEXT);
            text[n] = 0;
            assert_int_equal(bits64(strtod(text, NULL)), u);
        }
        float s;
        uint32_t w = (uint32_t)(u >> 32);
        memcpy(&s, &w, 4);
        if (!isfinite(s) || s == 0)
            continue;
        size_t n = json_write_f32(s, text);
        assert_true(n <= JSON_FLOAT_TEXT);
        text[n] = 0;
        assert_int_equal(bits32(strtof(text, NULL)), w);
        canonical(text, n, got);
        size_t digits = strcspn(got, " ");
        if (digits < 2)
            continue;
        snprintf(shorter, sizeof shorter, "%.*e", (int)digits - 2, (double)s);
        if (bits32(strtof(shorter, NULL)) == w)
            fail_msg("%s is longer than %s", text, shorter);
    }
}

static void every_half_reads_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        char text[JSON_FLOAT_TEXT + 1];
        if ((h & 0x7c00) != 0x7c00) {
            size_t n = json_write_f16((uint16_t)h, text);
            text[n] = 0;
            struct json_decimal d = scan(text);
            assert_int_equal(json_decimal_f16(&d), h);
            /* The C library agrees that this decimal is nearest to this half: five digits are far from any double tie. */
            assert_int_equal(f32_to_f16(strtof(text, NULL)), h);
        }
        if ((h & 0x7f80) != 0x7f80) {
            size_t n = json_write_bf16((uint16_t)h, text);
            text[n] = 0;
            struct json_decimal d = scan(text);
            assert_int_equal(json_decimal_bf16(&d), h);
            assert_int_equal(f32_to_bf16(strtof(text, NULL)), h);
            char got[CANONICAL];
            canonical(text, n, got);
            assert_true(strcspn(got, " ") <= 4); /* eight significand bits never need a fifth digit */
        }
    }
}

static void forms_are_as_documented(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } t[] = {{0, "0.0"},           {-0.0, "-0.0"},
             {1, "1.0"},           {-1.5, "-1.5"},
             {100, "100.0"},       {1e15, "1000000000000000.0"},
             {1e16, "1e16"},       {1e-5, "0.00001"},
             {1e-6, "1e-6"},       {0.1, "0.1"},
             {1.25e-7, "1.25e-7"}, {123456.789, "123456.789"},
             {5e-324, "5e-324"},   {1.7976931348623157e308, "1.7976931348623157e308"}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        char text[JSON_FLOAT_TEXT + 1];
        text[json_write_f64(t[i].v, text)] = 0;
        assert_string_equal(text, t[i].text);
    }
    char text[24];
    text[json_write_u64(UINT64_MAX, text)] = 0;
    assert_string_equal(text, "18446744073709551615");
    text[json_write_i64(INT64_MIN, text)] = 0;
    assert_string_equal(text, "-9223372036854775808");
    for (uint64_t v = 1; v < UINT64_MAX / 11; v *= 10)
        for (int k = -1; k <= 1; k++) {
            char want[24];
            snprintf(want, sizeof want, "%llu", (unsigned long long)(v + (uint64_t)k));
            text[json_write_u64(v + (uint64_t)k, text)] = 0;
            assert_string_equal(text, want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hard_decimals_round_once),
        cmocka_unit_test(random_decimals_agree_with_strtod),
        cmocka_unit_test(the_grammar_is_jsons),
        cmocka_unit_test(shortest_forms_are_numpys),
        cmocka_unit_test(written_numbers_read_back_and_none_is_shorter),
        cmocka_unit_test(every_half_reads_back),
        cmocka_unit_test(forms_are_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
