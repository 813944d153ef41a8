/* test_hf_tokenizer.c: tokenizer.json in its spellings over the years, written by hand after the files of published models; expected values
 * from what transformers makes of them. Whole files of the `tokenizers` package are read in test_model_desc.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"
#include "text/normal.h"

static struct model_desc d;
static struct error err;

static int read_both(const char *tokenizer, const char *config)
{
    struct json t, c = {0};
    arena_release(&d.arena);
    d = (struct model_desc){0};
    arena_init(&d.arena, 4096, 0);
    err = (struct error){0};
    assert_int_equal(json_parse(&t, str_of(tokenizer), NULL, &err), 0);
    if (config)
        assert_int_equal(json_parse(&c, str_of(config), NULL, &err), 0);
    int rc = hf__read_tokenizer(t.root, c.root, &d, &err);
    assert_int_equal(rc, err.code);
    json_release(&t);
    json_release(&c);
    return rc;
}

static void reads(const char *tokenizer, const char *config)
{
    if (read_both(tokenizer, config) < 0)
        fail_msg("%s", err.text);
}

static void refused(const char *tokenizer, const char *text)
{
    if (read_both(tokenizer, NULL) >= 0 || !strstr(err.text, text))
        fail_msg("\"%s\"; expected \"%s\"", err.text, text);
}

static bool token_is(size_t id, const char *text, enum token_type type)
{
    return id < d.tokenizer.n_tokens && str_eqz(d.tokenizer.tokens[id], text) && d.tokenizer.types[id] == (int32_t)type;
}

#define BYTES(pre) "\"pre_tokenizer\":" pre ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":"
#define GPT2       "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true}"

static void merges_in_both_spellings(void **state)
{
    (void)state;
    reads("{" BYTES(GPT2) "[\"a b\"]}}", NULL);
    assert_int_equal(d.tokenizer.model, TOKENIZER_BPE);
    assert_true(str_eqz(d.tokenizer.pre, "gpt-2"));
    assert_int_equal(d.tokenizer.n_merges, 1);
    assert_true(str_eqz(d.tokenizer.merges[0], "a b"));
    assert_null(d.tokenizer.scores);
    assert_int_equal(d.tokenizer.bos, TOKEN_NONE);
    reads("{" BYTES(GPT2) "[[\"a\",\"b\"]]}}", NULL);
    assert_true(str_eqz(d.tokenizer.merges[0], "a b"));
    refused("{" BYTES(GPT2) "[\"ab\"]}}", "merges must be pairs");
    refused("{" BYTES(GPT2) "[[\"a\"]]}}", "merges must be pairs");
    refused("{" BYTES(GPT2) "[7]}}", "merges must be pairs");
    refused("{" BYTES(GPT2) "{}}}", "merges is missing");
}

#define SPLIT(regex) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SEQ(parts)   "{\"type\":\"Sequence\",\"pretokenizers\":[" parts "]}"
#define BARE         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}"
#define L3TAIL       "|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
/* DeepSeek Coder's; the line breaks are characters in the expression */
#define NEWLINES      "[\\r\\n]"
#define CODER_LETTERS "\\\\s?\\\\p{L}+"
#define CODER_PUNCT   "\\\\s?\\\\p{P}+"
#define CODER_CJK     "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
#define DIGITS        "{\"type\":\"Digits\",\"individual_digits\":true}"
#define L3            "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+" L3TAIL

static void pre_tokenizers_by_name(void **state)
{
    (void)state;
    reads("{" BYTES(SEQ(SPLIT(L3) "," BARE)) "[\"a b\"],\"ignore_merges\":true}}", NULL);
    assert_true(str_eqz(d.tokenizer.pre, "llama-bpe") && d.tokenizer.ignore_merges);
    reads("{" BYTES(SEQ("{\"type\":\"Digits\",\"individual_digits\":true}," GPT2)) "[\"a b\"]}}", NULL);
    assert_true(str_eqz(d.tokenizer.pre, "smollm") && !d.tokenizer.ignore_merges);
    reads("{" BYTES(SEQ(SPLIT(NEWLINES) "," SPLIT(CODER_LETTERS) "," SPLIT(CODER_PUNCT) "," SPLIT(
              CODER_CJK) "," DIGITS "," BARE)) "[\"a b\"]}}",
          NULL);
    assert_true(str_eqz(d.tokenizer.pre, "deepseek-coder"));
    refused("{" BYTES(SEQ(SPLIT(NEWLINES) "," SPLIT(CODER_PUNCT) "," BARE)) "[\"a b\"]}}",
            "pattern \"\\s?\\p{P}+\" is not a known one");
    refused("{" BYTES(SEQ(SPLIT(NEWLINES) "," SPLIT(CODER_LETTERS) "," BARE)) "[\"a b\"]}}", "combination");
    refused("{" BYTES(SEQ(SPLIT("ByteLevel") "," BARE)) "[\"a b\"]}}", "pattern \"ByteLevel\"");
    refused("{" BYTES(SEQ("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" L3
                          "\"},\"behavior\":\"MergedWithNext\",\"invert\":false}," BARE)) "[\"a b\"]}}",
            "behavior \"MergedWithNext\"");
    refused("{" BYTES(SEQ(SPLIT("\\\\d+") "," BARE)) "[\"a b\"]}}", "pattern \"\\d+\" is not a known one");
    refused("{" BYTES(SEQ(SPLIT(L3) "," GPT2)) "[\"a b\"]}}", "combination");
    refused("{" BYTES(BARE) "[\"a b\"]}}", "combination");
    refused("{" BYTES(SEQ("{\"type\":\"Punctuation\"}," GPT2)) "[\"a b\"]}}", "\"Punctuation\" is not supported");
}

static void sentencepiece_bpe(void **state)
{
    (void)state;
    const char *text =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},"
        "\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},{\"id\":2,\"content\":\"</s>\",\"special\":true},"
        "{\"id\":9,\"content\":\"[TOOL]\",\"special\":false}],\"post_processor\":{\"type\":\"TemplateProcessing\","
        "\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]},"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</"
        "s>\":2,"
        "\"<0x0A>\":3,\"a\":4,\"b\":5,\"ab\":6,\"aba\":7},\"merges\":[\"a b\",\"ab a\"]}}";
    reads(text, "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"pad_token\":null}");
    assert_int_equal(d.tokenizer.model, TOKENIZER_SPM);
    assert_true(token_is(0, "<unk>", TOKEN_UNKNOWN) && token_is(1, "<s>", TOKEN_CONTROL) && token_is(3, "<0x0A>", TOKEN_BYTE));
    assert_true(token_is(8, "[PAD8]", TOKEN_UNUSED) && token_is(9, "[TOOL]", TOKEN_USER_DEFINED) &&
                token_is(7, "aba", TOKEN_NORMAL));
    assert_true(d.tokenizer.scores[6] == 0 && d.tokenizer.scores[7] == -1);
    assert_true(d.tokenizer.scores[6] > d.tokenizer.scores[7] && d.tokenizer.scores[7] > d.tokenizer.scores[4]);
    assert_true(d.tokenizer.add_bos && !d.tokenizer.add_eos && d.tokenizer.add_space_prefix);
    assert_int_equal(d.tokenizer.bos, 1);
    assert_int_equal(d.tokenizer.eos, 2);
    assert_int_equal(d.tokenizer.unk, 0);
    assert_int_equal(d.tokenizer.pad, TOKEN_NONE);
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "a piece that is not in the vocabulary");
}

static void unigram(void **state)
{
    (void)state;
    /* "AAEC/w==" is 00 01 02 ff */
    const char *text =
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAEC/"
        "w==\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\","
        "\"replacement\":\"\xe2\x96\x81\",\"add_prefix_space\":true}]},\"post_processor\":{\"type\":\"RobertaProcessing\","
        "\"sep\":[\"</s>\",2],\"cls\":[\"<s>\",0]},\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":2,\"content\":\"</s>\",\"special\":true}],\"model\":{\"type\":\"Unigram\",\"unk_id\":3,\"vocab\":"
        "[[\"<s>\",0],[\"<pad>\",0.0],[\"</s>\",0],[\"<unk>\",0],[\"\xe2\x96\x81the\",-3.5]]}}";
    reads(text, NULL);
    assert_int_equal(d.tokenizer.model, TOKENIZER_UNIGRAM);
    assert_int_equal(d.tokenizer.n_tokens, 5);
    assert_true(d.tokenizer.scores[4] == -3.5f);
    assert_true(token_is(3, "<unk>", TOKEN_UNKNOWN) && token_is(4, "\xe2\x96\x81the", TOKEN_NORMAL));
    assert_int_equal(d.tokenizer.n_normal, 2);
    assert_int_equal(d.tokenizer.normal[0].kind, NORMAL_CHARSMAP);
    assert_int_equal(d.tokenizer.normal[0].a.n, 4);
    assert_memory_equal(d.tokenizer.normal[0].a.p, "\0\1\2\xff", 4);
    assert_int_equal(d.tokenizer.normal[1].kind, NORMAL_REPLACE_RUNS);
    assert_true(str_eqz(d.tokenizer.normal[1].b, " "));
    assert_true(d.tokenizer.add_bos && d.tokenizer.add_eos && d.tokenizer.add_space_prefix && d.tokenizer.split_words);
    assert_int_equal(d.tokenizer.bos, 0);
    assert_int_equal(d.tokenizer.eos, 2);
    refused("{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", "unk_id");
    refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "[piece, score]");
    refused("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A-B\"},\"model\":{\"type\":\"Unigram\","
            "\"vocab\":[[\"a\",0]]}}",
            "not base64");
    refused("{\"normalizer\":{\"type\":\"NFKQ\"},\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
            "\"NFKQ\" is not supported");
    refused("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"\"},"
            "\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
            "the pattern \"a+\"");
    refused("{\"pre_tokenizer\":{\"type\":\"Digits\"},\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
            "\"Digits\" is not supported");
}

static void wordpiece(void **state)
{
    (void)state;
    const char *text =
        "{\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":false,\"strip_accents\":null},"
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\","
        "2],\"cls\":[\"[CLS]\",1]},"
        "\"added_tokens\":[{\"id\":1,\"content\":\"[CLS]\",\"special\":true},{\"id\":2,\"content\":\"[SEP]\",\"special\":true}]"
        ","
        "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"Cat\":3,"
        "\"##s\":4,\"##\":5}}}";
    reads(text, NULL);
    assert_true(token_is(1, "[CLS]", TOKEN_CONTROL) && token_is(3,
                                                                "\xe2\x96\x81"
                                                                "Cat",
                                                                TOKEN_NORMAL));
    assert_true(token_is(4, "s", TOKEN_NORMAL) && token_is(5, "\xe2\x96\x81##", TOKEN_NORMAL));
    assert_int_equal(d.tokenizer.n_normal, 2);
    assert_int_equal(d.tokenizer.normal[0].kind, NORMAL_BERT_CLEAN);
    assert_int_equal(d.tokenizer.normal[1].kind, NORMAL_BERT_CJK);
    assert_true(d.tokenizer.add_bos && d.tokenizer.add_eos);
    assert_int_equal(d.tokenizer.cls, 1);
    assert_int_equal(d.tokenizer.sep, 2);
    assert_int_equal(d.tokenizer.unk, 0);
    refused("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0}}}", "BertPreTokenizer");
    refused("{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0}}}",
            "\"Whitespace\" is not supported");
    refused("{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0},"
            "\"max_input_chars_per_word\":0}}",
            "max_input_chars_per_word");
}

static void templates_and_ends(void **state)
{
    (void)state;
    const char *text = "{\"added_tokens\":[{\"id\":3,\"content\":\"<|eot_id|>\",\"special\":true},{\"id\":4,\"content\":\"<|"
                       "eom_id|>\",\"special\":true},"
                       "{\"id\":5,\"content\":\"<|end_of_text|>\",\"special\":true}]," BYTES(GPT2) "[\"a b\"]}}";
    reads(text, "{\"eos_token\":\"<|end_of_text|>\",\"add_bos_token\":true,\"chat_template\":[{\"name\":\"default\","
                "\"template\":\"one\"},"
                "{\"name\":\"tool_use\",\"template\":\"two\"},{\"name\":\"rag\",\"template\":\"three\"}]}");
    assert_true(str_eqz(d.chat_template, "one") && str_eqz(d.chat_template_tools, "two"));
    assert_int_equal(d.tokenizer.eot, 3);
    assert_int_equal(d.tokenizer.eom, 4);
    assert_int_equal(d.tokenizer.eos, 5);
    assert_int_equal(d.tokenizer.n_eog, 3);
    assert_true(d.tokenizer.add_bos);
    reads(text, "{\"chat_template\":\"only\"}");
    assert_true(str_eqz(d.chat_template, "only") && d.chat_template_tools.n == 0);
}

static void hostile(void **state)
{
    (void)state;
    refused("{}", "\"model\" is missing");
    refused("[]", "\"model\" is missing");
    refused("{\"model\":{}}", "supported: BPE, Unigram, WordPiece");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "1 to 16777216 tokens");
    refused("{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", "1 to 16777216 tokens");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "whole numbers");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"x\"},\"merges\":[]}}", "whole numbers");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":18446744073709551615},\"merges\":[]}}", "tokens");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":16777215},\"merges\":[]}}", "far beyond");
    refused("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "given to two tokens");
    refused("{\"added_tokens\":[{\"id\":0}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
            "\"id\" and \"content\"");
    refused("{\"added_tokens\":[{\"id\":0,\"content\":\"b\"}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
            "given to two tokens");
    refused("{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"b\"},\"model\":{\"type\":"
            "\"BPE\",\"vocab\":{\"a\":0},"
            "\"merges\":[]}}",
            "the pattern \"a*\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merges_in_both_spellings),
                                       cmocka_unit_test(pre_tokenizers_by_name),
                                       cmocka_unit_test(sentencepiece_bpe),
                                       cmocka_unit_test(unigram),
                                       cmocka_unit_test(wordpiece),
                                       cmocka_unit_test(templates_and_ends),
                                       cmocka_unit_test(hostile)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_release(&d.arena);
    return rc;
}
