/* test_quantize.c: the mix rules against what llama.cpp chose for the same models (tests/tools/quantize_oracle.py compares whole files,
 * byte by byte, where its library is at hand), and the new file: readable, complete, refused where it can't be right. */
#include <math.h>
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
#include "engine/llm/file/gguf_build.h"
#include "engine/llm/file/gguf_write.h"
#include "engine/llm/file/quantize.h"

static struct error err;
static struct arena arena;

/* ---- rules ---- */

static enum weight_type pick(enum quant_mix mix, const char *name, uint64_t cols)
{
    const struct quant_model m = {8, 8, 2, false};
    return quant_mix_type(mix, &m, str_of(name), 2, cols, WEIGHT_F16);
}

/* llama.cpp's choice for a llama of 8 layers, 8 heads and 2 key/value heads, layer by layer. */
static void mixes_by_layer(void **state)
{
    (void)state;
    static const struct {
        enum quant_mix mix;
        const char *what, *types; /* one digit a layer: K-quant of that many bits */
    } rows[] = {
        {MIX_Q4_K_M, "attn_v", "64464466"},      {MIX_Q4_K_M, "ffn_down", "64464466"}, {MIX_Q4_K_M, "attn_k", "44444444"},
        {MIX_Q4_K_S, "attn_v", "55554444"},      {MIX_Q4_K_S, "ffn_down", "54444444"}, {MIX_Q5_K_M, "attn_v", "65565566"},
        {MIX_Q5_K_S, "attn_v", "55555555"},      {MIX_Q3_K_M, "attn_v", "55444444"},   {MIX_Q3_K_M, "ffn_down", "44444444"},
        {MIX_Q3_K_M, "attn_output", "44444444"}, {MIX_Q3_K_L, "ffn_down", "55555555"}, {MIX_Q3_K_L, "attn_output", "55555555"},
        {MIX_Q3_K_S, "attn_v", "33333333"},      {MIX_Q2_K, "attn_v", "44444444"},     {MIX_Q2_K, "ffn_down", "33333333"},
        {MIX_Q2_K, "attn_output", "33333333"},   {MIX_Q2_K, "ffn_up", "22222222"},     {MIX_Q6_K, "attn_v", "66666666"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (uint32_t layer = 0; layer < 8; layer++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%u.%s.weight", layer, rows[i].what);
            uint32_t want = WEIGHT_Q2_K + (uint32_t)(rows[i].types[layer] - '2');
            if (pick(rows[i].mix, name, 512) != want)
                fail_msg("%s %s", quant_mix_name(rows[i].mix), name);
        }
}

static void other_rules(void **state)
{
    (void)state;
    const struct quant_model tied = {2, 4, 4, true};
    assert_int_equal(pick(MIX_Q4_K_M, "output.weight", 256), WEIGHT_Q6_K);
    assert_int_equal(pick(MIX_Q4_0, "output.weight", 256), WEIGHT_Q6_K);
    assert_int_equal(pick(MIX_Q8_0, "output.weight", 256), WEIGHT_Q8_0);
    assert_int_equal(pick(MIX_Q4_K_M, "output.weight", 64), WEIGHT_Q8_0);
    assert_int_equal(pick(MIX_Q4_K_M, "token_embd.weight", 256), WEIGHT_Q4_K);
    assert_int_equal(quant_mix_type(MIX_Q4_K_M, &tied, STR("token_embd.weight"), 2, 256, WEIGHT_F16), WEIGHT_Q6_K);
    assert_int_equal(pick(MIX_Q4_K_M, "blk.0.attn_qkv.weight", 256), WEIGHT_Q6_K); /* as attn_v, which is in it */
    assert_int_equal(pick(MIX_Q4_K_M, "blk.1.attn_qkv.weight", 256), WEIGHT_Q4_K);
    assert_int_equal(pick(MIX_Q3_K_M, "blk.1.attn_qkv.weight", 256), WEIGHT_Q5_K);
    /* rows that 256 doesn't divide, then rows that 32 doesn't */
    assert_int_equal(pick(MIX_Q4_K_S, "blk.7.ffn_up.weight", 288), WEIGHT_Q5_0);
    assert_int_equal(pick(MIX_Q5_K_S, "blk.7.ffn_up.weight", 288), WEIGHT_Q5_1);
    assert_int_equal(pick(MIX_Q6_K, "blk.7.ffn_up.weight", 288), WEIGHT_Q8_0);
    assert_int_equal(pick(MIX_Q6_K, "blk.7.ffn_up.weight", 40), WEIGHT_F16);
    assert_int_equal(pick(MIX_Q4_0, "blk.7.ffn_up.weight", 40), WEIGHT_F16);
    /* never touched */
    assert_int_equal(pick(MIX_Q4_0, "blk.0.attn_norm.weight", 256), WEIGHT_F16);
    assert_int_equal(pick(MIX_Q4_0, "position_embd.weight", 256), WEIGHT_F16);
    assert_int_equal(pick(MIX_Q4_0, "token_types.weight", 256), WEIGHT_F16);
    assert_int_equal(pick(MIX_Q4_0, "blk.0.attn_q.bias", 256), WEIGHT_F16);
    assert_int_equal(quant_mix_type(MIX_Q4_0, &tied, STR("rope_freqs.weight"), 1, 256, WEIGHT_F32), WEIGHT_F32);
    assert_int_equal(pick(MIX_F32, "blk.0.attn_q.weight", 40), WEIGHT_F32);
}

static void names(void **state)
{
    (void)state;
    enum quant_mix m;
    for (uint32_t i = 0; i < MIX_COUNT; i++) {
        assert_true(quant_mix_parse(str_of(quant_mix_name((enum quant_mix)i)), &m) && m == i);
        assert_non_null(strstr(quant_mix_known(), quant_mix_name((enum quant_mix)i)));
    }
    assert_true(quant_mix_parse(STR("Q4_K"), &m) && m == MIX_Q4_K_M);
    assert_false(quant_mix_parse(STR("q4"), &m));
    assert_false(quant_mix_parse(STR(""), &m));
    assert_int_equal(quant_mix_file_type(MIX_Q4_K_M), 15); /* llama.h: LLAMA_FTYPE_MOSTLY_Q4_K_M */
    assert_int_equal(quant_mix_file_type(MIX_BF16), 32);
}

/* ---- files ---- */

static int collect(void *ctx, const void *p, size_t n, struct error *e)
{
    (void)e;
    buf_append(ctx, p, n);
    return 0;
}

static int full_disk(void *ctx, const void *p, size_t n, struct error *e)
{
    size_t *left = ctx;
    (void)p;
    if (n > *left)
        return error_set(e, STATUS_IO, "full");
    *left -= n;
    return 0;
}

static int convert(const struct buf *in, enum quant_mix mix, bool again, struct buf *out, struct quantize_report *report)
{
    struct gguf g;
    struct quantize_options o = {.mix = mix, .allow_requantize = again, .threads = 2, .write = collect, .ctx = out};
    assert_int_equal(gguf_parse((const uint8_t *)in->p, in->n, &arena, &g, &err), 0);
    buf_clear(out);
    int rc = quantize_gguf(&g, &o, report, &err);
    gguf_release(&g);
    return rc;
}

static void read_model(const char *name, struct buf *out)
{
    char path[512], *p;
    snprintf(path, sizeof path, "%s/llm/%s.gguf", TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    buf_init(out);
    p = buf_reserve(out, 1 << 20);
    assert_non_null(p);
    out->n = fread(p, 1, 1 << 20, f);
    fclose(f);
}

static float f16_value(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    int exp = h >> 10 & 31, man = h & 1023;
    float f = exp ? ldexpf((float)(1024 + man), exp - 25) : ldexpf((float)man, -24);
    return h & 0x8000 ? -f : f;
}

static void whole_models(void **state)
{
    (void)state;
    struct buf in, out;
    struct gguf g, h;
    struct quantize_report r;
    read_model("llama", &in);
    buf_init(&out);
    assert_int_equal(convert(&in, MIX_F32, false, &out, &r), 0);
    assert_int_equal(gguf_parse((const uint8_t *)in.p, in.n, &arena, &g, &err), 0);
    assert_int_equal(gguf_parse((const uint8_t *)out.p, out.n, &arena, &h, &err), 0);
    assert_int_equal(h.n_tensors, g.n_tensors);
    for (size_t i = 0; i < g.n_tensors; i++) {
        const struct gguf_tensor *a = &g.tensors[i], *b = &h.tensors[i];
        assert_true(str_eq(a->name, b->name));
        assert_int_equal(b->type, WEIGHT_F32);
        assert_memory_equal(a->dims, b->dims, sizeof a->dims);
        if (a->type == WEIGHT_F32) {
            assert_memory_equal(a->data, b->data, a->bytes);
            continue;
        }
        for (size_t k = 0; k < a->bytes / 2; k++) {
            float f;
            memcpy(&f, b->data + 4 * k, 4);
            assert_true(f == f16_value(a->data + 2 * k));
        }
    }
    /* every key but the two that describe the types is copied as it was */
    uint64_t type = 99, version = 0;
    assert_true(gguf_get_u64(&h, "general.file_type", &type) && type == 0);
    assert_true(gguf_get_u64(&h, "general.quantization_version", &version) && version == 2);
    for (size_t i = 0; i < g.n_kv; i++) {
        char key[128];
        snprintf(key, sizeof key, "%.*s", STR_ARG(g.kv[i].key));
        const struct gguf_kv *kv = gguf_kv(&h, key);
        assert_non_null(kv);
        assert_int_equal(kv->type, g.kv[i].type);
        if (kv->type == GGUF_ARRAY) {
            assert_int_equal(kv->a.n, g.kv[i].a.n);
            assert_memory_equal(kv->a.data, g.kv[i].a.data, kv->a.bytes);
        } else if (kv->type == GGUF_STRING) {
            assert_true(str_eq(kv->s, g.kv[i].s));
        } else {
            assert_int_equal(kv->u, g.kv[i].u);
        }
    }
    gguf_release(&g);
    gguf_release(&h);
    /* and back: the same values in the same type */
    struct buf back;
    buf_init(&back);
    assert_int_equal(convert(&out, MIX_F16, false, &back, &r), 0);
    assert_int_equal(gguf_parse((const uint8_t *)in.p, in.n, &arena, &g, &err), 0);
    assert_int_equal(gguf_parse((const uint8_t *)back.p, back.n, &arena, &h, &err), 0);
    for (size_t i = 0; i < g.n_tensors; i++)
        assert_memory_equal(g.tensors[i].data, h.tensors[i].data, g.tensors[i].bytes);
    gguf_release(&g);
    gguf_release(&h);
    buf_release(&back);
    buf_release(&in);
    buf_release(&out);
}

static void counts_and_fallbacks(void **state)
{
    (void)state;
    struct buf in, out;
    struct gguf h;
    struct quantize_report r;
    read_model("llama", &in); /* rows of 32: no K-quant fits */
    buf_init(&out);
    assert_int_equal(convert(&in, MIX_Q4_K_S, false, &out, &r), 0);
    assert_int_equal(r.n_converted, 16); /* 7 matrices in each of 2 layers, the embedding and the output */
    assert_int_equal(r.n_fallback, 16);
    assert_int_equal(r.n_kept, 6); /* 5 norms, the rope factors */
    assert_int_equal(gguf_parse((const uint8_t *)out.p, out.n, &arena, &h, &err), 0);
    uint64_t sum = 0;
    for (size_t i = 0; i < h.n_tensors; i++)
        sum += h.tensors[i].bytes;
    assert_int_equal(sum, r.bytes_after);
    assert_int_equal(gguf_tensor(&h, STR("blk.1.ffn_up.weight"))->type, WEIGHT_Q5_0);
    assert_int_equal(gguf_tensor(&h, STR("output.weight"))->type, WEIGHT_Q8_0);
    gguf_release(&h);
    buf_release(&in);
    buf_release(&out);
}

static void what_is_refused(void **state)
{
    (void)state;
    struct buf in, q, out;
    struct quantize_report r;
    struct gguf g;
    read_model("llama", &in);
    buf_init(&q), buf_init(&out);
    assert_int_equal(convert(&in, MIX_Q8_0, false, &q, &r), 0);
    assert_int_equal(convert(&q, MIX_Q4_0, false, &out, &r), STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "is Q8_0 already"));
    assert_int_equal(convert(&q, MIX_Q4_0, true, &out, &r), 0);
    assert_int_equal(convert(&q, MIX_Q8_0, false, &out, &r), 0); /* nothing to convert */
    assert_int_equal(r.n_converted, 0);

    assert_int_equal(gguf_parse((const uint8_t *)in.p, in.n, &arena, &g, &err), 0);
    const struct gguf_tensor *t = gguf_tensor(&g, STR("blk.1.ffn_up.weight"));
    assert_int_equal(t->type, WEIGHT_F16);
    size_t at = (size_t)(t->data - (const uint8_t *)in.p);
    size_t left = 1000;
    struct quantize_options o = {.mix = MIX_Q8_0, .threads = 1, .write = full_disk, .ctx = &left};
    assert_int_equal(quantize_gguf(&g, &o, &r, &err), STATUS_IO);
    gguf_release(&g);
    in.p[at + 10] = 0, in.p[at + 11] = 0x7c; /* +infinity in F16 */
    assert_int_equal(convert(&in, MIX_Q8_0, false, &out, &r), STATUS_INVALID);
    assert_non_null(strstr(err.text, "\"blk.1.ffn_up.weight\" holds a value that is not a finite number"));
    buf_release(&in), buf_release(&q), buf_release(&out);

    FILE *f = fopen(TEST_DATA "/llm/llama-lora.gguf", "rb");
    assert_non_null(f);
    buf_init(&in), buf_init(&out);
    in.n = fread(buf_reserve(&in, 1 << 20), 1, 1 << 20, f);
    fclose(f);
    assert_int_equal(convert(&in, MIX_Q8_0, false, &out, &r), STATUS_INVALID);
    assert_non_null(strstr(err.text, "\"adapter\", not a model"));
    buf_release(&in), buf_release(&out);
}

/* The writer's bytes are those of the hand-made file (gguf_build.h). */
static void writer_draws_the_layout(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct buf hand, out;
    size_t bytes;
    const uint64_t dims[] = {64, 3}, one[] = {5};
    buf_init(&hand), buf_init(&out);
    put_header(&hand, 3, 2, 2);
    put_kv_str(&hand, "general.architecture", "llama");
    put_kv_u32(&hand, "general.alignment", 64);
    put_tensor(&hand, "a", 2, dims, WEIGHT_Q4_0, 0);
    put_tensor(&hand, "b", 1, one, WEIGHT_F32, 128);
    put_pad(&hand, 64);
    gguf_writer_init(&w, 64);
    gguf_writer_str(&w, "general.architecture", STR("llama"));
    gguf_writer_u32(&w, "general.alignment", 64);
    assert_int_equal(gguf_writer_tensor(&w, STR("a"), WEIGHT_Q4_0, 2, dims, &bytes, &err), 0);
    assert_int_equal(bytes, 108);
    assert_int_equal(gguf_writer_pad_bytes(&w, bytes), 20);
    assert_int_equal(gguf_writer_tensor(&w, STR("b"), WEIGHT_F32, 1, one, &bytes, &err), 0);
    assert_int_equal(gguf_writer_header(&w, &out, &err), 0);
    assert_int_equal(out.n, hand.n);
    assert_memory_equal(out.p, hand.p, hand.n);
    assert_int_equal(gguf_writer_tensor(&w, STR("c"), WEIGHT_Q4_K, 2, dims, &bytes, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "rows of 64 values can't be stored as Q4_K"));
    gguf_writer_release(&w);
    buf_release(&hand), buf_release(&out);
}

static int setup(void **state)
{
    (void)state;
    arena_init(&arena, 1 << 16, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_release(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixes_by_layer),
        cmocka_unit_test(other_rules),
        cmocka_unit_test(names),
        cmocka_unit_test(whole_models),
        cmocka_unit_test(counts_and_fallbacks),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(writer_draws_the_layout),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
