/* lora_rig.h: adapters made by a test: a GGUF file with random halves for some of a llama's matrices. */
#ifndef TEST_LORA_RIG_H
#define TEST_LORA_RIG_H

#include <stdio.h>
#include <unistd.h>

#include "engine/llm/file/gguf_write.h"
#include "engine/llm/file/model_desc.h"
#include "engine/llm/kernels/kernels.h"
#include "engine_rig.h"

/* The matrices of one layer by their names in an adapter. */
struct lora_rig_target {
    const char *name;
    uint64_t in, out;
};

static inline size_t lora_rig_targets(const struct llm_hparams *h, struct lora_rig_target t[7])
{
    const uint64_t e = h->n_embd, q = h->n_head * h->head_dim_k, k = h->n_head_kv * h->head_dim_k;
    const struct lora_rig_target all[7] = {{"attn_q", e, q},        {"attn_k", e, k},         {"attn_v", e, k},
                                           {"attn_output", q, e},   {"ffn_gate", e, h->n_ff}, {"ffn_up", e, h->n_ff},
                                           {"ffn_down", h->n_ff, e}};
    memcpy(t, all, sizeof all);
    return 7;
}

static inline void lora_rig_values(float *x, size_t n, uint32_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        x[i] = ((float)(*seed >> 8) / 16777216.0f - 0.5f) * 0.6f;
    }
}

/* Write `dir`/`file`: rank and alpha as given, halves of `type` (rows must be whole blocks of it). */
static inline void lora_rig_write(const char *dir, const char *file, const struct llm_hparams *h, uint32_t rank, float alpha,
                                  enum weight_type type, uint32_t seed)
{
    struct gguf_writer w;
    struct buf head, data;
    struct error err = {0};
    struct lora_rig_target t[7];
    size_t n = lora_rig_targets(h, t);
    gguf_writer_init(&w, 32);
    buf_init(&head);
    buf_init(&data);
    gguf_writer_str(&w, "general.type", STR("adapter"));
    gguf_writer_str(&w, "general.architecture", str_of(h->arch));
    gguf_writer_str(&w, "adapter.type", STR("lora"));
    gguf_writer_f32(&w, "adapter.lora.alpha", alpha);
    for (uint32_t i = 0; i < h->n_layer * n * 2; i++) {
        const struct lora_rig_target *at = &t[i / 2 % n];
        uint64_t dims[2] = {i % 2 ? rank : at->in, i % 2 ? at->out : rank};
        char name[96];
        size_t bytes;
        snprintf(name, sizeof name, "blk.%u.%s.weight.lora_%s", i / 2 / (uint32_t)n, at->name, i % 2 ? "b" : "a");
        assert_int_equal(0, gguf_writer_tensor(&w, str_of(name), type, 2, dims, &bytes, &err));
        float *x = malloc(dims[0] * dims[1] * sizeof *x);
        lora_rig_values(x, dims[0] * dims[1], &seed);
        uint8_t *to = calloc(1, bytes + 32);
        for (uint64_t r = 0; r < dims[1]; r++)
            assert_true(quant_row(type, x + r * dims[0], dims[0], to + r * (bytes / dims[1])));
        buf_append(&data, to, bytes + gguf_writer_pad_bytes(&w, bytes));
        free(x);
        free(to);
    }
    char path[512];
    assert_int_equal(0, gguf_writer_header(&w, &head, &err));
    buf_append(&head, data.p, data.n);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    assert_int_equal(0, os_file_write_atomic(path, head.p, head.n, 0644, &err));
    buf_release(&head);
    buf_release(&data);
    gguf_writer_release(&w);
}

static inline struct model_desc *lora_rig_desc(const char *file)
{
    struct model_desc *d = NULL;
    struct error err = {0};
    int fd = -1;
    char path[512];
    const char *slash = strrchr(file, '/');
    snprintf(path, sizeof path, TEST_DATA "/llm/%.*s", slash ? (int)(slash - file) : 0, file);
    assert_int_equal(0, os_dir_open(path, &fd, &err));
    assert_int_equal(0, model_desc_open(fd, slash ? slash + 1 : file, &d, &err));
    os_close(fd);
    return d;
}

#endif
