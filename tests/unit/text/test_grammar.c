/* Grammars by hand: what each kind accepts and refuses, how a state goes on and ends, limits, bombs. Expected answers follow from the formats'
 * definitions (llama.cpp's GBNF, ECMA-262, JSON Schema 2020-12, RFC 8259); test_grammar_cases.c has those of other implementations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/status.h"
#include "os/clock.h"
#include "text/grammar_rig.h"

static struct tokenizer *tokenizer;
static struct grammar_vocab *vocab;

static struct grammar *compile(enum grammar_kind kind, const char *source)
{
    struct grammar *g = NULL;
    struct error err = {0};
    if (grammar_compile(vocab, kind, str_of(source), NULL, &g, &err) < 0)
        fail_msg("%s: %s", source, err.text);
    return g;
}

static void accepts(enum grammar_kind kind, const char *source, const char *const *yes, const char *const *no)
{
    struct grammar *g = compile(kind, source);
    for (; *yes; yes++)
        if (!rig_accepts(g, str_of(*yes)))
            fail_msg("%s\nrefuses %s", source, *yes);
    for (; *no; no++)
        if (rig_accepts(g, str_of(*no)))
            fail_msg("%s\naccepts %s", source, *no);
    grammar_unref(g);
}
#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NOTHING   ((const char *const[]){NULL})

static void refused(enum grammar_kind kind, const char *source, int status, const char *words)
{
    struct grammar *g = NULL;
    struct error err = {0};
    int rc = grammar_compile(vocab, kind, str_of(source), NULL, &g, &err);
    if (rc == 0 || rc != status || err.code != rc || !strstr(err.text, words))
        fail_msg("%.200s\ngave %d '%s', not %d with '%s'", source, rc, err.text, status, words);
}

/* ---- GBNF ---- */

static void test_gbnf(void **state)
{
    accepts(GRAMMAR_GBNF, "root ::= \"a\"", LIST("a"), LIST("", "aa", "b"));
    accepts(GRAMMAR_GBNF, "root ::= \"a\" | ", LIST("a", ""), LIST("b"));
    accepts(GRAMMAR_GBNF, "root ::= [^a-c\\n]+ # comment\n", LIST("d", "\xc3\xa9x"), LIST("a", "x\n", "\xc3"));
    accepts(GRAMMAR_GBNF, "root ::= . \"\\x41\" \"\\u00e9\" \"\\U0001F600\" \"\\\"\\\\\\[\\]\\t\"",
            LIST("\xe2\x82\xac"
                 "A\xc3\xa9\xf0\x9f\x98\x80\"\\[]\t"),
            LIST("A\xc3\xa9"));
    accepts(GRAMMAR_GBNF, "root ::= \"ab\"* (\"c\" | \"d\"){2,3} [e]?\n", LIST("cc", "ababcdce"), LIST("abc", "aabcc", "cccc"));
    accepts(GRAMMAR_GBNF, "root ::= x{2,} y{3} z{0}\n\nx ::= \"x\"\ny ::= \"y\"\r\nz ::= \"z\"", LIST("xxyyy", "xxxxyyy"),
            LIST("xyyy", "xxyy"));
    accepts(GRAMMAR_GBNF, "root ::= (\n  \"a\" |\n  \"b\"\n) |\n  \"c\"", LIST("a", "b", "c"), LIST("ab"));
    accepts(GRAMMAR_GBNF, "root ::= \"\"", LIST(""), LIST("a"));
    accepts(GRAMMAR_GBNF, "root ::= list\nlist ::= \"[\" (list (\",\" list)*)? \"]\"", LIST("[]", "[[],[[]]]"),
            LIST("[", "[,]", "[]]"));
    /* quantifiers take the whole literal; what can be empty may be repeated without end */
    accepts(GRAMMAR_GBNF, "root ::= (\"a\"* \"b\"?)* \"c\"", LIST("c", "abaac"), LIST("ab"));
    accepts(GRAMMAR_GBNF, "root ::= (\"a\"?){3,5} \"c\"", LIST("c", "aaaaac", "ac"), LIST("aaaaaac"));
    /* an alternative that could never end is cut off, so no walk gets stuck in it */
    accepts(GRAMMAR_GBNF, "root ::= \"a\" | \"b\" x\nx ::= \"c\" x", LIST("a"), LIST("b", "bc"));
    refused(GRAMMAR_GBNF, "x ::= \"a\"", STATUS_INVALID, "no rule named root");
    refused(GRAMMAR_GBNF, "root ::= x", STATUS_INVALID, "rule that is defined");
    refused(GRAMMAR_GBNF, "root ::= \"a", STATUS_INVALID, "line 1");
    refused(GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"", STATUS_INVALID, "not been defined before");
    refused(GRAMMAR_GBNF, "root ::= (\"a\"", STATUS_INVALID, "expected )");
    refused(GRAMMAR_GBNF, "root ::= \"a\")", STATUS_INVALID, "end of the rule");
    refused(GRAMMAR_GBNF, "root ::= [b-a]", STATUS_INVALID, "low to high");
    refused(GRAMMAR_GBNF, "root ::= \"\\q\"", STATUS_INVALID, "escape");
    refused(GRAMMAR_GBNF, "root ::= *", STATUS_INVALID, "to repeat");
    refused(GRAMMAR_GBNF, "root ::= \"a\"{3,2}", STATUS_INVALID, "m <= n");
    refused(GRAMMAR_GBNF, "root ::= <tool>", STATUS_INVALID, "tokens can't be named");
    refused(GRAMMAR_GBNF, "root ::= root \"a\" | \"b\"", STATUS_INVALID, "root begins with itself");
    refused(GRAMMAR_GBNF, "root ::= \"x\"? y\ny ::= \"z\"* root", STATUS_INVALID, "begins with itself");
    refused(GRAMMAR_GBNF, "root ::= \"a\" root", STATUS_INVALID, "no text can ever match");
    refused(GRAMMAR_GBNF, "", STATUS_INVALID, "root");
    (void)state;
}

/* llama.cpp's own example grammars (grammars/README.md there describes them), written anew from what they describe. */
static void test_gbnf_examples(void **state)
{
    accepts(
        GRAMMAR_GBNF,
        "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | \"(\" ws expr \")\" ws\n"
        "ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n",
        LIST("a +1 = 2\n", "((x)) *(y1-3)=z\nb=c\n"), LIST("a + = 2\n", "1=2", "(a=b\n"));
    accepts(GRAMMAR_GBNF,
            "root ::= \"1. \" move \" \" move \"\\n\" ([1-9] [0-9]? \". \" move \" \" move \"\\n\")+\n"
            "move ::= (pawn | nonpawn | castle) [+#]?\nnonpawn ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
            "pawn ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBKQR])?\ncastle ::= \"O-O\" \"-O\"?\n",
            LIST("1. e4 e5\n2. Nf3 Nc6\n", "1. e4 d5\n2. exd5 Qxd5\n3. O-O O-O-O+\n"),
            LIST("1. e4 e5\n", "1. e9 e5\n2. a3 a4\n"));
    accepts(GRAMMAR_GBNF,
            "root ::= item+\n\n# Excludes various line break characters\nitem ::= \"- \" "
            "[^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n",
            LIST("- a\n- b c\n"), LIST("- \n", "-a\n", "- a", "- a\xe2\x80\xa8\n"));
    accepts(GRAMMAR_GBNF,
            "root ::= jp-char+ ([ \\t\\n] jp-char+)*\njp-char ::= hiragana | katakana | cjk\nhiragana ::= "
            "[\xe3\x81\x81-\xe3\x82\x9f]\n"
            "katakana ::= [\xe3\x82\xa1-\xe3\x83\xbf]\ncjk ::= [\xe4\xb8\x80-\xe9\xbf\xbf]\n",
            LIST("\xe6\x97\xa5\xe6\x9c\xac \xe3\x81\x82\xe3\x82\xa2"), LIST("a", " \xe6\x97\xa5", "\xe6\x97"));
    (void)state;
}

/* ---- regular expressions ---- */

static void test_regex(void **state)
{
    accepts(GRAMMAR_REGEX, "^[^@\\s]+@[a-z]+\\.(com|org)$", LIST("a.b@cd.org", "\xc3\xa9@x.com"),
            LIST("a@b.net", "a b@c.com", "a@b.comx"));
    accepts(GRAMMAR_REGEX, "(?:ab|c){1,1000000000}|x{0}y", LIST("ab", "cccab", "y"), LIST("", "a", "xy"));
    accepts(GRAMMAR_REGEX, "(?<year>\\d{4})-(?P<m>0[1-9]|1[0-2])", LIST("2024-12"), LIST("2024-13", "24-01"));
    accepts(GRAMMAR_REGEX, "[\\w.-]+[\\]^-][\\x41\\u{1F600}\\ud83d\\ude01]", LIST("a-]A", "._^\xf0\x9f\x98\x81"),
            LIST("]A", "a-]B"));
    accepts(GRAMMAR_REGEX, "", LIST(""), LIST("a"));
    accepts(GRAMMAR_REGEX, "^a$|^b$|c", LIST("a", "b", "c"), LIST("ab"));
    accepts(GRAMMAR_REGEX, "a+?b*?c??", LIST("a", "aabbc"), LIST("b"));
    accepts(GRAMMAR_REGEX, ".", LIST("x", "\t", "\xf0\x9f\x98\x80"), LIST("\n", "\r", "xx", "\xf0\x9f"));
    accepts(GRAMMAR_REGEX, "((a*)*b)*", LIST("", "b", "aab", "abab"), LIST("a", "ba"));
    static const char *const bad[][2] = {
        {"foo**", "quantifier on a quantifier"},
        {"a++", "quantifier on a quantifier"},
        {"[", "without its ]"},
        {"[b-a]", "lower to a higher"},
        {"(a", "without its )"},
        {"a)", "without its ("},
        {"*a", "nothing to repeat"},
        {"a|*", "nothing to repeat"},
        {"(?=a)", "no lookaround"},
        {"(?<=a)b", "no lookaround"},
        {"(?i)a", "no lookaround, flags"},
        {"\\bfoo", "word boundaries"},
        {"(a)\\1", "back references"},
        {"\\p{L}", "Unicode properties"},
        {"^a\\!$", "unknown or malformed escape"},
        {"a{2,1}", "m <= n"},
        {"a{", "\\{"},
        {"a\\", "backslash at the end"},
        {"(^a)", "outermost"},
        {"a$b", "outermost"},
        {"[[:alpha:]]", "POSIX"},
        {"\\u12", "malformed"},
        {"[^\\s\\S]", "no character"},
        {"\xff", "not UTF-8"},
        {"\\q", "unknown"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        refused(GRAMMAR_REGEX, bad[i][0], STATUS_INVALID, bad[i][1]);
    (void)state;
}

/* ---- choices, JSON ---- */

static void test_choice(void **state)
{
    accepts(GRAMMAR_CHOICE, "[\"yes\", \"no\", \"nope\", \"no\", \"\", \"\\u00e9\"]", LIST("yes", "no", "nope", "", "\xc3\xa9"),
            LIST("n", "yesno"));
    refused(GRAMMAR_CHOICE, "[]", STATUS_INVALID, "at least one");
    refused(GRAMMAR_CHOICE, "[1]", STATUS_INVALID, "choice 0 is not a string");
    refused(GRAMMAR_CHOICE, "{}", STATUS_INVALID, "array");
    refused(GRAMMAR_CHOICE, "[\"a\"", STATUS_INVALID, "array of strings");
    (void)state;
}

static void test_json(void **state)
{
    accepts(GRAMMAR_JSON, "",
            LIST("{}", "{\"a\":[1,-2.5e+3,true,null,\"\\u00e9\\n\\ud83d\\ude00\"],\"b\": {\n  \"c\": \"x\"\n}}"),
            LIST("[]", "{\"a\":01}", "{\"a\":1,}", "{a:1}", "{\"a\":\"\x01\"}", "{\"a\":\"\\ud83d\"}", "{\"a\":1", "{} ",
                 "{\"a\":\"\xff\"}", "{\"a\":1e}"));
    accepts(GRAMMAR_JSON, "value", LIST("[]", "1", "\"x\"", "null", "-0", "[[[]]]"), LIST("", "+1", ".5", "nul", "[,]"));
    refused(GRAMMAR_JSON, "array", STATUS_INVALID, "object (the default) or value");
    (void)state;
}

/* ---- JSON Schema ---- */

static void test_schema_refusals(void **state)
{
    static const char *const bad[][2] = {
        {"{\"type\":\"object\",\"patternProperties\":{}}", "'patternProperties'"},
        {"{\"not\":{}}", "'not'"},
        {"{\"if\":{},\"then\":{}}", "'if'"},
        {"{\"type\":\"array\",\"contains\":{}}", "'contains'"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "'uniqueItems'"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"dependentRequired\":{}}}}", "'dependentRequired' at #/properties/a"},
        {"{\"type\":\"string\",\"pattern\":\"^a\\\\!$\"}", "'pattern'"},
        {"{\"type\":\"string\",\"pattern\":\"[\"}", "'pattern'"},
        {"{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":3}", "put the length into the pattern"},
        {"{\"type\":\"string\",\"pattern\":\"^(a|bcd)?[e-f]{2}$\",\"minLength\":3}", "'minLength'"},
        {"{\"type\":\"string\",\"pattern\":\"^(a|bcd)?[e-f]{2}$\",\"maxLength\":4}", "'maxLength'"},
        {"{\"type\":\"string\",\"format\":\"color\"}", "'color' is not supported; supported: date"},
        {"{\"type\":\"strin\"}", "'strin' is none of"},
        {"{\"type\":5}", "'type'"},
        {"{\"type\":\"integer\",\"multipleOf\":0}", "'multipleOf'"},
        {"{\"type\":\"number\",\"multipleOf\":0.3}", "'multipleOf'"},
        {"{\"type\":\"integer\",\"minimum\":1e30}", "18 digits"},
        {"{\"type\":\"string\",\"minLength\":-1}", "whole number from 0"},
        {"{\"type\":\"string\",\"maxLength\":1.5}", "whole number from 0"},
        {"{\"$ref\":\"http://example.com/x\"}", "only references within the schema"},
        {"{\"$ref\":\"#/$defs/nowhere\"}", "leads nowhere"},
        {"{\"$ref\":\"#\"}", "refers to itself"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}}}",
         "refers to itself"},
        {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "begins with itself"},
        {"{\"anyOf\":[{\"allOf\":[{\"$ref\":\"#/$defs/"
         "a\"}]}],\"$defs\":{\"a\":{\"oneOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}}}",
         ""},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text can ever match"},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"string\",\"maxLength\":3}]}", "branches 0 and 1"},
        {"{\"enum\":[]}", "no text can ever match"},
        {"{\"enum\":[1,2],\"minimum\":2}", "together with enum"},
        {"{\"type\":\"string\",\"enum\":[1]}", "no text can ever match"},
        {"{\"anyOf\":[]}", "at least one"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", "no text can ever match"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"a\":{}}}", "occurs twice"},
        {"{\"type\":\"object\",\"properties\":{\"a\":1}}", "#/properties/a: a schema must be an object"},
        {"{\"type\":\"object\",\"minProperties\":3}", "'minProperties'"},
        {"[1]", "a schema must be an object"},
        {"false", "no text can ever match"},
        {"{\"type\":", "not valid JSON"},
        {"{\"typo\":1}", "'typo'"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        refused(GRAMMAR_JSON_SCHEMA, bad[i][0], STATUS_INVALID, bad[i][1]);
    (void)state;
}

static void test_schema(void **state)
{
    accepts(GRAMMAR_JSON_SCHEMA,
            "{\"title\":\"t\",\"x-order\":1,\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"description\":"
            "\"d\"},"
            "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":130},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":["
            "\"a\",\"b\"]},\"maxItems\":2}},"
            "\"required\":[\"name\",\"age\"],\"additionalProperties\":false}",
            LIST("{\"name\":\"x\",\"age\":0}", "{\"name\": \"\", \"age\": 130, \"tags\": [\"a\", \"b\"]}",
                 "{\n  \"name\": \"q\",\n  \"age\": 7\n}"),
            LIST("{\"age\":0,\"name\":\"x\"}", "{\"name\":\"x\"}", "{\"name\":\"x\",\"age\":131}",
                 "{\"name\":\"x\",\"age\":-1}", "{\"name\":\"x\",\"age\":1,}",
                 "{\"name\":\"x\",\"age\":1,\"tags\":[\"a\",\"b\",\"a\"]}", "{\"name\":\"x\",\"age\":1,\"more\":1}",
                 "{\"name\":\"x\",\"age\":01}"));
    /* additional members differ from the declared ones, which may be left out */
    accepts(GRAMMAR_JSON_SCHEMA,
            "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"},\"a\":{\"type\":\"null\"}},"
            "\"additionalProperties\":{\"type\":\"boolean\"}}",
            LIST("{}", "{\"a\":null,\"abc\":true}", "{\"b\":true}", "{\"ab\":null,\"\":false}"),
            LIST("{\"a\":true}", "{\"ab\":true}", "{\"c\":null}"));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"type\":[\"string\",\"null\"],\"nullable\":true,\"minLength\":2,\"maxLength\":2}",
            LIST("null", "\"ab\"", "\"\\n\xc3\xa9\"", "\"\\ud83d\\ude00x\""), LIST("\"a\"", "\"abc\"", "1"));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"const\":{\"a\":[1,\"x\"],\"b\":{}}}",
            LIST("{\"a\":[1,\"x\"],\"b\":{}}", "{\"a\": [1, \"x\"], \"b\": {}}"), LIST("{\"b\":{},\"a\":[1,\"x\"]}"));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"type\":\"number\",\"minimum\":-0.5,\"exclusiveMaximum\":1}",
            LIST("0", "0.999", "-0.5", "-0.25", "0.0"), LIST("1", "-0.51", "-1", "1.0", "-0.500001", "5e-1"));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"exclusiveMinimum\":true,\"minimum\":98,\"maximum\":1002}",
            LIST("99", "1002", "500"), LIST("98", "1003", "9", "10000"));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":-21}", LIST("0", "7", "-21", "700000007"),
            LIST("8", "-28", "-0", "700000008"));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"b\"}", LIST("\"b\"", "\"a\\\"b\\n\""),
            LIST("\"a\"", "\"\\u0062\""));
    accepts(GRAMMAR_JSON_SCHEMA,
            "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"minItems\":1,\"items\":{"
            "\"const\":0}}",
            LIST("[null]", "[null, true]", "[null,false,0,0]"), LIST("[]", "[true]", "[null,0]", "[null,true,1]"));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"$defs\":{\"a/b%~\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/a~1b%25~0\"}", LIST("null"),
            LIST("1"));
    accepts(GRAMMAR_JSON_SCHEMA,
            "{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{"
            "\"properties\":{\"a\":{\"minimum\":5}}}]}",
            LIST("{\"a\":5}"), LIST("{\"a\":4}", "{}"));
    accepts(GRAMMAR_JSON_SCHEMA,
            "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},{\"type\":"
            "\"object\",\"properties\":{\"k\":"
            "{\"enum\":[\"b\",\"c\"]}},\"required\":[\"k\"]},{\"type\":\"integer\"}]}",
            LIST("{\"k\":\"a\"}", "{\"k\":\"c\"}", "5"), LIST("{\"k\":\"d\"}", "{}", "\"a\""));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^(a|bcd)?[e-f]{2}$\",\"minLength\":2,\"maxLength\":5}",
            LIST("\"ee\"", "\"bcdef\""), LIST("\"e\""));
    accepts(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}",
            LIST("\"https://a.b/c?d#e\""), LIST("\"x\""));
    accepts(GRAMMAR_JSON_SCHEMA, "true", LIST("1", "{\"a\": []}"), LIST("x"));
    (void)state;
}

/* ---- states ---- */

static int32_t piece(const char *text)
{
    for (size_t i = 0; i < COUNT_OF(rig_pieces); i++)
        if (strcmp(rig_pieces[i], text) == 0)
            return (int32_t)(RIG_FIRST + i);
    fail();
    return -1;
}

static void test_state(void **state)
{
    struct grammar *g = compile(GRAMMAR_GBNF, "root ::= \"a\" | \"abc\"");
    struct grammar_state *s = NULL, *t = NULL;
    assert_int_equal(1, grammar_shortest_tok(g));
    assert_int_equal(0, grammar_state_create(g, &s, NULL));
    assert_false(grammar_can_end(s));
    assert_false(grammar_allows(s, RIG_EOS));
    assert_false(grammar_accept(s, RIG_EOS));
    assert_false(grammar_allows(s, RIG_CONTROL));
    assert_false(grammar_allows(s, -1));
    assert_false(grammar_allows(s, INT32_MAX));
    assert_int_equal(4, rig_check_mask(s)); /* the byte a, the pieces a, ab, abc */
    assert_true(grammar_accept(s, 'a'));
    assert_int_equal(0, grammar_state_copy(s, &t, NULL));
    assert_true(grammar_can_end(s));
    assert_false(grammar_must_end(s));
    assert_int_equal(2, rig_check_mask(s)); /* b and bc */
    assert_true(grammar_accept(s, piece("bc")));
    assert_true(grammar_must_end(s));
    assert_int_equal(0, rig_check_mask(s));
    assert_false(grammar_accept(s, 'a'));
    assert_true(grammar_accept(s, RIG_EOS));
    assert_true(grammar_must_end(s));
    assert_true(grammar_allows(s, RIG_EOS));
    assert_int_equal(2, rig_check_mask(t)); /* the copy stayed behind */
    assert_true(grammar_accept(t, 'b'));
    assert_false(grammar_can_end(t));
    grammar_unref(g); /* states hold it */
    grammar_state_destroy(s);
    assert_true(grammar_accept(t, 'c'));
    grammar_state_destroy(t);
    (void)state;
}

/* A vocabulary without some bytes: what needs them is refused when it can be told. */
static void test_missing_bytes(void **state)
{
    static const struct str tokens[] = {STR("a"), STR("b"), STR("ab"), STR("</s>")};
    static const int32_t types[] = {TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_CONTROL};
    static const float scores[] = {0, -1, -2, -3};
    struct tokenizer_spec spec = {
        .model = TOKENIZER_SPM, .tokens = tokens, .types = types, .scores = scores, .n_tokens = 4, .eos = 3};
    struct tokenizer *t = NULL;
    struct grammar_vocab *v = NULL;
    struct grammar *g = NULL;
    struct error err = {0};
    spec.bos = spec.eot = spec.eom = spec.unk = spec.sep = spec.pad = spec.cls = spec.mask = TOKEN_NONE;
    assert_int_equal(0, tokenizer_create(&spec, &t, &err));
    assert_int_equal(0, grammar_vocab_create(t, 4, &v, NULL));
    assert_int_equal(STATUS_INVALID, grammar_compile(v, GRAMMAR_REGEX, STR("a{3}c|ax+"), NULL, &g, &err));
    assert_non_null(strstr(err.text, "vocabulary"));
    assert_int_equal(0, grammar_compile(v, GRAMMAR_REGEX, STR("a{3}c|abb"), NULL, &g, &err));
    assert_int_equal(2, grammar_shortest_tok(g)); /* ab b */
    grammar_unref(g);
    grammar_vocab_destroy(v);
    tokenizer_destroy(t);
    (void)state;
}

/* Tokens of equal bytes are allowed together; ids that the tokenizer lacks never are. */
static void test_vocabulary(void **state)
{
    struct grammar_vocab *wide = NULL;
    struct grammar *g = NULL;
    struct grammar_state *s = NULL;
    uint32_t n = (uint32_t)tokenizer_size(tokenizer);
    assert_int_equal(0, grammar_vocab_create(tokenizer, n + 100, &wide, NULL));
    assert_int_equal(0, grammar_compile(wide, GRAMMAR_JSON_SCHEMA, STR("{\"type\":\"string\"}"), NULL, &g, NULL));
    assert_int_equal(0, grammar_state_create(g, &s, NULL));
    assert_true(grammar_accept(s, '"'));
    const uint64_t *m = grammar_mask(s);
    for (uint32_t id = n; id < n + 100; id++)
        assert_false(m[id / 64] >> (id % 64) & 1);
    assert_true(m['a' / 64] >> ('a' % 64) & 1);
    int32_t twin = piece("a");
    assert_true(m[twin / 64] >> (twin % 64) & 1);
    rig_check_mask(s);
    grammar_state_destroy(s);
    grammar_unref(g);
    grammar_vocab_destroy(wide);
    (void)state;
}

/* Counts far from both bounds share a mask, near them they don't: every state of a long string is right. */
static void test_counts(void **state)
{
    struct grammar *g = compile(GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":40,\"maxLength\":90}");
    struct grammar_state *s = NULL;
    assert_int_equal(0, grammar_state_create(g, &s, NULL));
    assert_true(grammar_accept(s, '"'));
    for (int i = 0; i <= 90; i++) {
        rig_check_mask(s);
        assert_int_equal(i >= 40, grammar_allows(s, '"'));
        assert_int_equal(i + 8 <= 90, grammar_allows(s, piece("aaaaaaaa")));
        assert_int_equal(i < 90, grammar_accept(s, 'x'));
    }
    assert_true(g->run.n_masks < 60);
    grammar_state_destroy(s);
    grammar_unref(g);
    g = compile(GRAMMAR_REGEX, "(ab?){1000000000}c|d");
    assert_true(rig_accepts(g, STR("d")));
    assert_false(rig_accepts(g, STR("ababc")));
    grammar_unref(g);
    (void)state;
}

/* What is remembered is dropped when it is too much; living states don't notice. */
static void test_collect(void **state)
{
    struct grammar *g = compile(GRAMMAR_JSON, "value");
    struct grammar_state *s = NULL, *t = NULL;
    assert_int_equal(0, grammar_state_create(g, &s, NULL));
    for (int i = 0; i < 50; i++)
        assert_true(grammar_accept(s, '['));
    assert_int_equal(0, grammar_state_copy(s, &t, NULL));
    assert_true(grammar_accept(t, '7'));
    uint32_t *const configs[] = {&g->start, &s->config, &t->config};
    uint32_t before = g->run.n_configs;
    uint32_t dist = grun_dist(&g->run, t->config);
    assert_true(grun_collect(&g->run, configs, 3));
    s->shown = t->shown = CFG_UNKNOWN;
    assert_true(g->run.n_configs < before);
    assert_int_equal(4, g->run.n_configs); /* dead, and the three */
    assert_int_equal(dist, grun_dist(&g->run, t->config));
    rig_check_mask(s);
    for (int i = 0; i < 50; i++)
        assert_true(grammar_accept(t, ']'));
    assert_true(grammar_must_end(t));
    assert_false(grammar_must_end(s));
    grammar_state_destroy(s);
    grammar_state_destroy(t);
    grammar_unref(g);
    (void)state;
}

static void test_shortest(void **state)
{
    static const struct {
        enum grammar_kind kind;
        const char *source;
        uint32_t tok;
    } rows[] = {
        {GRAMMAR_REGEX, "", 0},
        {GRAMMAR_REGEX, "q{5}", 5},
        {GRAMMAR_REGEX, "aaaaaaaa|qw", 1},                  /* more bytes, fewer tokens */
        {GRAMMAR_JSON, "", 2},                              /* { } */
        {GRAMMAR_CHOICE, "[\"Hello World!\",\"quit\"]", 4}, /* q u i t; Hello, a space, World, ! */
        {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"red\"]}},\"required\":[\"name\"]}",
         5}, /* { "name": "  red "} */
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct grammar *g = compile(rows[i].kind, rows[i].source);
        assert_int_equal(rows[i].tok, grammar_shortest_tok(g));
        grammar_unref(g);
    }
    struct grammar *g = compile(GRAMMAR_REGEX, "q{100000}"); /* a bound */
    assert_true(grammar_shortest_tok(g) > 1000 && grammar_shortest_tok(g) <= 100000);
    grammar_unref(g);
    (void)state;
}

/* ---- limits ---- */

static char *repeated(const char *before, const char *what, size_t n, const char *after)
{
    struct buf b;
    buf_init(&b);
    buf_append_z(&b, before);
    for (size_t i = 0; i < n; i++)
        buf_append_z(&b, what);
    buf_append_z(&b, after);
    buf_append_c(&b, 0);
    return b.p;
}

static void bomb(enum grammar_kind kind, char *source, const char *words)
{
    struct grammar *g = NULL;
    struct error err = {0};
    uint64_t begin = os_monotonic_ns();
    int rc = grammar_compile(vocab, kind, str_of(source), NULL, &g, &err);
    assert_true(rc == STATUS_INVALID || rc == STATUS_EXHAUSTED);
    if (!strstr(err.text, words))
        fail_msg("%.60s: %s", source, err.text);
    assert_true(os_monotonic_ns() - begin < 10000000000u);
    free(source);
}

static void test_bombs(void **state)
{
    bomb(GRAMMAR_GBNF, repeated("root ::= ", "(", 60000, ""), "nested more than 64");
    bomb(GRAMMAR_REGEX, repeated("", "(", 60000, ""), "nested more than 64");
    bomb(GRAMMAR_REGEX, repeated("", "(a", 60000, ""), "nested more than 64");
    bomb(GRAMMAR_JSON_SCHEMA, repeated("", "{\"items\":", 60000, ""), "nested too deeply");
    bomb(GRAMMAR_JSON_SCHEMA, repeated("", "[", 60000, ""), "nested too deeply");
    bomb(GRAMMAR_CHOICE, repeated("", "[", 60000, ""), "array of strings");
    bomb(GRAMMAR_REGEX, repeated("", "(x{9}){9}", 100000, ""), "too large");
    bomb(GRAMMAR_REGEX, repeated("", "(((", 1, "x{1000000}){1000000}){1000000}){1000000}"), "longer than");
    bomb(GRAMMAR_JSON_SCHEMA, repeated("{\"type\":\"object\",\"properties\":{\"", "n", 5000, "\":{}}}"),
         "name has more than 1024 bytes");
    bomb(GRAMMAR_GBNF, repeated("root ::= \"a\" (x \"c\"", " | x \"c\"", 2000, ")\nx ::= [a-z] x? \"b\""),
         "more than 1024 ways");
    bomb(GRAMMAR_REGEX, repeated("", "a", 2 << 20, ""), "at most 1048576");
    (void)state;
}

/* Ambiguity is bounded in a state, and costs no one anything beyond: dead ends where it is too much, never a wrong text. */
static void test_ambiguity(void **state)
{
    static const char *const sources[] = {"(a|b|ab)*(a|ba)(a|b){200}", "(((a*)*)*)*b", "(a?){500}a{500}",
                                          "((a|aa){1,500}){1,500}"};
    for (size_t i = 0; i < COUNT_OF(sources); i++) {
        struct grammar *g = compile(GRAMMAR_REGEX, sources[i]);
        struct rand r;
        struct buf text;
        rand_init(&r, i);
        buf_init(&text);
        uint64_t begin = os_monotonic_ns();
        assert_true(rig_walk(g, &r, 10, false, &text));
        assert_true(os_monotonic_ns() - begin < 20000000000u);
        assert_true(rig_accepts(g, buf_str(&text)));
        buf_release(&text);
        grammar_unref(g);
    }
    struct grammar *g = compile(GRAMMAR_GBNF, "root ::= s\ns ::= \"a\" s s? | \"b\"");
    assert_true(rig_accepts(g, STR("aaabb")));
    assert_true(rig_accepts(g, STR("aabbabb")) == rig_accepts(g, STR("aabbabb")));
    grammar_unref(g);
    (void)state;
}

/* Issue 3's figure: a 200-value enum in a 4-level schema compiles in less than 100 ms (also without optimisation). */
static void test_compile_time(void **state)
{
    struct buf b;
    buf_init(&b);
    buf_append_z(&b, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
                     "\"properties\":{\"b\":{\"type\":\"object\","
                     "\"properties\":{\"c\":{\"enum\":[");
    for (int i = 0; i < 200; i++)
        buf_printf(&b, "%s\"value number %d\"", i ? "," : "", i * i);
    buf_append_z(&b, "]}},\"required\":[\"c\"]}},\"required\":[\"b\"]}}},\"required\":[\"a\"]}");
    uint64_t begin = os_monotonic_ns();
    struct grammar *g = compile(GRAMMAR_JSON_SCHEMA, buf_z(&b));
    assert_true(os_monotonic_ns() - begin < 100000000u);
    assert_true(rig_accepts(g, STR("{\"a\":[{\"b\":{\"c\":\"value number 39601\"}}]}")));
    assert_false(rig_accepts(g, STR("{\"a\":[{\"b\":{\"c\":\"value number 3\"}}]}")));
    grammar_unref(g);
    buf_release(&b);
    (void)state;
}

static int setup(void **state)
{
    tokenizer = rig_tokenizer(0);
    (void)state;
    return grammar_vocab_create(tokenizer, (uint32_t)tokenizer_size(tokenizer), &vocab, NULL);
}

static int teardown(void **state)
{
    grammar_vocab_destroy(vocab);
    tokenizer_destroy(tokenizer);
    (void)state;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gbnf),
        cmocka_unit_test(test_gbnf_examples),
        cmocka_unit_test(test_regex),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_schema),
        cmocka_unit_test(test_schema_refusals),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_missing_bytes),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_collect),
        cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(test_compile_time),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
