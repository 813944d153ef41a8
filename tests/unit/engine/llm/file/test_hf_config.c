/* test_hf_config.c: config.json in the spellings of published models; expected values computed by hand from transformers' formulas
 * (modeling_rope_utils, the configuration classes' defaults). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine/llm/file/hf_priv.h"

static struct model_desc d;
static struct hf_config c;
static struct error err;

#define BASE                                                                                                                   \
    "\"hidden_size\":64,\"num_hidden_layers\":6,\"intermediate_size\":128,\"num_attention_heads\":8,\"num_key_value_heads\":"  \
    "4,"                                                                                                                       \
    "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5"

static int config(const char *type, const char *rest)
{
    char text[2048];
    struct json j;
    snprintf(text, sizeof text, "{\"model_type\":\"%s\"," BASE "%s%s}", type, *rest ? "," : "", rest);
    arena_release(&d.arena);
    d = (struct model_desc){0};
    arena_init(&d.arena, 4096, 0);
    err = (struct error){0};
    assert_int_equal(json_parse(&j, str_of(text), NULL, &err), 0);
    int rc = hf__read_config(j.root, &c, &d, &err);
    assert_int_equal(rc, err.code);
    json_release(&j);
    return rc;
}

static void reads(const char *type, const char *rest)
{
    if (config(type, rest) < 0)
        fail_msg("%s: %s", rest, err.text);
}

static void refused(const char *type, const char *rest, int code, const char *text)
{
    if (config(type, rest) != code || !strstr(err.text, text))
        fail_msg("%s: %d \"%s\"; expected %d \"%s\"", rest, err.code, err.text, code, text);
}

static void defaults(void **state)
{
    (void)state;
    reads("llama", "\"head_dim\":null,\"rope_scaling\":null");
    assert_int_equal(d.h.head_dim_k, 8);
    assert_float_equal(d.h.rope_base, 10000, 0);
    assert_int_equal(d.h.scaling, LLM_SCALING_NONE);
    assert_int_equal(d.h.rope, LLM_ROPE_HALF);
    assert_int_equal(d.h.window, 0);
    assert_false(c.tied);
    reads("llama", "\"head_dim\":16,\"tie_word_embeddings\":true,\"rope_theta\":500000.0");
    assert_int_equal(d.h.head_dim_k, 16);
    assert_int_equal(d.h.n_rot, 16);
    assert_true(c.tied);
    reads("phi3", "\"partial_rotary_factor\":0.5");
    assert_int_equal(d.h.n_rot, 4);
    reads("gemma2", "");
    assert_true(c.tied && d.h.norm_plus_one);
    assert_int_equal(d.h.head_dim_k, 256);
    assert_float_equal(d.h.attn_scale, 1.0 / 16, 1e-9);
    reads("gemma2", "\"query_pre_attn_scalar\":144");
    assert_float_equal(d.h.attn_scale, 1.0 / 12, 1e-8);
}

static void scalings(void **state)
{
    (void)state;
    reads("llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}");
    assert_int_equal(d.h.scaling, LLM_SCALING_LINEAR);
    assert_float_equal(d.h.scaling_factor, 4, 0);
    assert_float_equal(d.h.scaling_attn_factor, 1, 0);
    /* YaRN: 0.1 ln 4 + 1 */
    reads("qwen2", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":2048}");
    assert_int_equal(d.h.scaling, LLM_SCALING_YARN);
    assert_int_equal(d.h.scaling_ctx_orig, 2048);
    assert_float_equal(d.h.scaling_attn_factor, 1.1386294, 1e-6);
    assert_float_equal(d.h.yarn_beta_fast, 32, 0);
    reads("qwen2",
          "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"attention_factor\":0.5,\"beta_fast\":16,\"beta_slow\":2}");
    assert_float_equal(d.h.scaling_attn_factor, 0.5, 0);
    assert_float_equal(d.h.yarn_beta_fast, 16, 0);
    assert_float_equal(d.h.yarn_beta_slow, 2, 0);
    assert_int_equal(d.h.scaling_ctx_orig, 8192);
    /* mscale 0.7 over mscale_all_dim 1, factor e^10: (0.07 * 10 + 1) / (0.1 * 10 + 1) */
    reads("qwen2", "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":22026.465794806718,\"mscale\":0.7,\"mscale_all_dim\":1.0}");
    assert_float_equal(d.h.scaling_attn_factor, 0.85, 1e-5);
    /* longrope: factor 8192 / 1024 = 8, sqrt(1 + ln 8 / ln 1024) = sqrt(1.3) */
    reads("phi3", "\"original_max_position_embeddings\":1024,\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1.5,2,2.5],"
                  "\"long_factor\":[4,5,6,7]}");
    assert_int_equal(d.h.scaling, LLM_SCALING_LONGROPE);
    assert_float_equal(d.h.scaling_attn_factor, sqrt(1.3), 1e-6);
    assert_int_equal(d.h.scaling_ctx_orig, 1024);
    assert_float_equal(d.h.rope_factors[1], 1.5, 0);
    assert_float_equal(d.h.rope_factors_long[3], 7, 0);
    /* llama 3.1's: base 500000, 4 pairs: wavelengths 6.28, 167, 4443, 118141; 8192/4 = 2048 stays, 8192/1 is slowed, between blended */
    reads("llama", "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
                   "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}");
    double wave = 2 * M_PI * sqrt(500000), blend = (8192 / wave - 1) / 3;
    assert_float_equal(d.h.rope_factors[0], 1, 0);
    assert_float_equal(d.h.rope_factors[1], 1, 0);
    assert_float_equal(d.h.rope_factors[2], 1 / ((1 - blend) / 8 + blend), 1e-5);
    assert_float_equal(d.h.rope_factors[3], 8, 0);
}

static void rope_parameters(void **state)
{
    (void)state;
    reads("llama", "\"rope_parameters\":{\"rope_theta\":1e6,\"rope_type\":\"linear\",\"factor\":2.0}");
    assert_float_equal(d.h.rope_base, 1e6, 0);
    assert_int_equal(d.h.scaling, LLM_SCALING_LINEAR);
    reads("gemma3_text", "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8.0,\"rope_theta\":2e6},"
                         "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":5000.0}}");
    assert_float_equal(d.h.rope_base, 2e6, 0);
    assert_float_equal(d.h.rope_base_local, 5000, 0);
    assert_float_equal(d.h.scaling_factor, 8, 0);
    reads("gemma3_text", "");
    assert_float_equal(d.h.rope_base, 1e6, 0);
    assert_float_equal(d.h.rope_base_local, 1e4, 0);
}

static bool locals(const char *want)
{
    for (uint32_t i = 0; i < 6; i++)
        if (!d.h.layer_is_local || d.h.layer_is_local[i] != (want[i] == 'L'))
            return false;
    return true;
}

static void windows(void **state)
{
    (void)state;
    reads("mistral", "\"sliding_window\":null");
    assert_int_equal(d.h.window, 0);
    reads("mistral", ""); /* its default */
    assert_int_equal(d.h.window, 4096);
    assert_true(locals("LLLLLL"));
    reads("mistral", "\"sliding_window\":16384"); /* beyond the context: nothing is ever out of sight */
    assert_int_equal(d.h.window, 0);
    reads("qwen2", "\"sliding_window\":1024,\"use_sliding_window\":false");
    assert_int_equal(d.h.window, 0);
    reads("qwen2", "\"sliding_window\":1024,\"use_sliding_window\":true,\"max_window_layers\":4");
    assert_true(locals("GGGGLL"));
    reads("gemma2", "");
    assert_int_equal(d.h.window, 4096);
    assert_true(locals("LGLGLG"));
    reads("gemma3_text", "\"sliding_window\":512,\"sliding_window_pattern\":3");
    assert_true(locals("LLGLLG"));
    reads("gemma3_text",
          "\"sliding_window\":512,\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\","
          "\"full_attention\",\"full_attention\",\"sliding_attention\"]");
    assert_true(locals("GLLGGL"));
    refused("gemma3_text", "\"layer_types\":[\"full_attention\"]", STATUS_INVALID, "one entry a layer");
    refused("qwen3", "\"use_sliding_window\":true,\"sliding_window\":64,\"layer_types\":[1,2,3,4,5,6]", STATUS_UNIMPLEMENTED,
            "may only hold");
}

static void wrong_values(void **state)
{
    (void)state;
    const int bad = STATUS_INVALID, no = STATUS_UNIMPLEMENTED;
    refused("gpt2", "", no, "\"gpt2\" is not supported; supported: llama, mistral");
    refused("llama", "\"rope_theta\":\"x\"", bad, "rope_theta");
    refused("llama", "\"rope_theta\":0", bad, "rope base is 0");
    refused("llama", "\"head_dim\":-8", bad, "head_dim");
    refused("llama", "\"head_dim\":7", bad, "even number");
    refused("llama", "\"head_dim\":1e3", bad, "head_dim");
    refused("llama", "\"rope_scaling\":7", bad, "rope_scaling");
    refused("llama", "\"rope_scaling\":{\"type\":\"linear\"}", bad, "factor");
    refused("llama", "\"rope_scaling\":{\"type\":\"linear\",\"factor\":-2}", bad, "rope scaling factor is -2");
    refused("llama", "\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2}", no,
            "\"ntk\" is not supported; supported: default, linear");
    refused("phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1],\"long_factor\":[1,1,1,1]}", bad,
            "expected 4");
    refused("phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,0],\"long_factor\":[1,1,1,1]}", bad,
            "above 0 at 3");
    refused("phi3", "\"partial_rotary_factor\":1.5", bad, "partial_rotary_factor");
    refused("gemma2", "\"query_pre_attn_scalar\":0", bad, "query_pre_attn_scalar");
    refused("llama", "\"sliding_window\":99999999999", bad, "sliding_window");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults), cmocka_unit_test(scalings),
                                       cmocka_unit_test(rope_parameters), cmocka_unit_test(windows),
                                       cmocka_unit_test(wrong_values)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_release(&d.arena);
    return rc;
}
