/* model_rig.h: model files made by a test: the tiny llama eight times as wide, with random weights, so that its rows are multiples of 256, quantised
 * to any mix. */
#ifndef TEST_MODEL_RIG_H
#define TEST_MODEL_RIG_H

#include <math.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/llm/file/gguf_write.h"
#include "engine/llm/file/quantize.h"
#include "engine_rig.h"

#define WIDER 8

static inline bool model_rig_is_size(struct str key)
{
    static const char *const sizes[] = {"llama.embedding_length", "llama.feed_forward_length", "llama.rope.dimension_count",
                                        "llama.attention.key_length", "llama.attention.value_length"};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        if (str_eqz(key, sizes[i]))
            return true;
    return false;
}

/* Uniform with the deviation 1 / sqrt(row), so that activations keep their size; vectors (norms, rope factors) are 1. */
static inline void model_rig_tensor(struct buf *out, const struct gguf_writer *w, uint32_t n_dims, const uint64_t *dims,
                                    size_t bytes, uint32_t *seed)
{
    float scale = sqrtf(12.0f / (float)dims[0]);
    for (uint64_t i = 0; i < dims[0] * (n_dims > 1 ? dims[1] : 1); i++) {
        *seed = *seed * 1664525u + 1013904223u;
        float x = n_dims > 1 ? ((float)(*seed >> 8) / 16777216.0f - 0.5f) * scale : 1;
        buf_append(out, &x, sizeof x);
    }
    static const char zeros[64];
    buf_append(out, zeros, gguf_writer_pad_bytes(w, bytes));
}

/* The wide llama in F32. */
static inline void model_rig_wide(struct buf *out, uint32_t context)
{
    struct buf in, data;
    struct arena arena;
    struct gguf g;
    struct gguf_writer w;
    struct error err = {0};
    uint32_t seed = 77;
    buf_init(&in);
    buf_init(&data);
    arena_init(&arena, 1 << 14, 0);
    gguf_writer_init(&w, 32);
    assert_int_equal(0, os_file_read(TEST_DATA "/llm/llama.gguf", 1 << 24, &in, &err));
    assert_int_equal(0, gguf_parse((const uint8_t *)in.p, in.n, &arena, &g, &err));
    for (size_t i = 0; i < g.n_kv; i++) {
        struct gguf_kv kv = g.kv[i];
        kv.u = model_rig_is_size(kv.key) ? kv.u * WIDER : str_eqz(kv.key, "llama.context_length") ? context : kv.u;
        gguf_writer_kv(&w, kv.type == GGUF_U32 ? &kv : &g.kv[i]);
    }
    for (size_t i = 0; i < g.n_tensors; i++) {
        const struct gguf_tensor *t = &g.tensors[i];
        uint64_t dims[2] = {t->dims[0] * WIDER, t->dims[1] == 300 || t->n_dims < 2 ? t->dims[1] : t->dims[1] * WIDER};
        size_t bytes;
        assert_int_equal(0, gguf_writer_tensor(&w, t->name, WEIGHT_F32, t->n_dims, dims, &bytes, &err));
        model_rig_tensor(&data, &w, t->n_dims, dims, bytes, &seed);
    }
    assert_int_equal(0, gguf_writer_header(&w, out, &err));
    buf_append(out, data.p, data.n);
    gguf_writer_release(&w);
    gguf_release(&g);
    arena_release(&arena);
    buf_release(&in);
    buf_release(&data);
}

static inline int model_rig_collect(void *ctx, const void *p, size_t n, struct error *err)
{
    (void)err;
    buf_append(ctx, p, n);
    return 0;
}

/* Write <dir>/<as>: the wide llama in this mix. */
static inline void model_rig_write(const char *dir, const char *as, enum quant_mix mix, uint32_t context)
{
    struct buf wide, small;
    struct arena arena;
    struct gguf g;
    struct error err = {0};
    struct quantize_report report;
    char path[512];
    buf_init(&wide);
    buf_init(&small);
    arena_init(&arena, 1 << 14, 0);
    model_rig_wide(&wide, context);
    assert_int_equal(0, gguf_parse((const uint8_t *)wide.p, wide.n, &arena, &g, &err));
    struct quantize_options o = {.mix = mix, .threads = 1, .write = model_rig_collect, .ctx = &small};
    assert_int_equal(0, quantize_gguf(&g, &o, &report, &err));
    assert_int_equal(0, report.n_fallback);
    snprintf(path, sizeof path, "%s/%s", dir, as);
    assert_int_equal(0, os_file_write_atomic(path, small.p, small.n, 0644, &err));
    gguf_release(&g);
    arena_release(&arena);
    buf_release(&wide);
    buf_release(&small);
}

#endif
