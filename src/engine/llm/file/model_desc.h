/* model_desc.h: one description of a language model, whatever file it came from: GGUF or a Hugging Face folder.
 *
 * Facts (hparams), weights (views into mapped files, by role, not by the file's spelling), and text (tokenizer spec, chat template).
 * Architectures are data: what differs between them is a field here, so that the forward pass has switches and no names.
 * Everything is checked when the description is made: a tensor of a wrong shape or a missing one is an error that names it. The
 * views live until model_desc_release unmaps the files. One thread builds; immutable afterwards. */
#ifndef INFERD_ENGINE_LLM_FILE_MODEL_DESC_H
#define INFERD_ENGINE_LLM_FILE_MODEL_DESC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "engine/llm/file/quant_mix.h"
#include "engine/llm/file/weight_type.h"
#include "text/tokenizer.h"

enum llm_norm { LLM_NORM_RMS, LLM_NORM_LAYER };
enum llm_rope {
    LLM_ROPE_NONE,
    LLM_ROPE_INTERLEAVED /* pairs (2i, 2i+1), llama in GGUF */,
    LLM_ROPE_HALF /* pairs (i, i+d/2), neox */
};
enum llm_rope_scaling { LLM_SCALING_NONE, LLM_SCALING_LINEAR, LLM_SCALING_YARN, LLM_SCALING_LLAMA3, LLM_SCALING_LONGROPE };
enum llm_activation { LLM_ACT_SILU, LLM_ACT_GELU_TANH, LLM_ACT_GELU_ERF };
enum llm_pooling {
    LLM_POOL_NONE,
    LLM_POOL_MEAN,
    LLM_POOL_CLS,
    LLM_POOL_LAST,
    LLM_POOL_RANK /* a classifier on CLS gives one score of a pair of texts */
};

struct llm_hparams {
    char arch[32]; /* "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "bert" */
    uint32_t n_vocab, n_ctx_train, n_embd, n_layer, n_head, n_head_kv, n_ff, head_dim_k, head_dim_v, n_rot;
    enum llm_norm norm;
    float norm_eps;
    bool causal;        /* false: encoder */
    bool parallel_gate; /* gated FFN: down(act(gate) * up); false: down(act(up)) */
    bool norm_plus_one; /* the file's norm weights lack gemma's +1 (Hugging Face); GGUF has it folded in */
    bool post_norms;    /* gemma2/3: norms after attention and after ffn, before the residual add */
    bool
        norm_after; /* bert: post-LN: the norms behind the residual adds are attn_post_norm and ffn_post_norm; no others in a layer */
    bool qk_norm;     /* per-head RMS norm of q and k before rope */
    bool tied_output; /* output matrix is the token embedding */
    enum llm_activation activation;
    float embd_scale;                  /* multiplies token embeddings; 1 if none */
    float attn_scale;                  /* multiplies q.k; usually 1/sqrt(head_dim_k) */
    float attn_softcap, logit_softcap; /* 0: none */
    enum llm_rope rope;
    /* local: for sliding-window layers (gemma3), which are not scaled either; equal to rope_base otherwise */
    float rope_base, rope_base_local;
    enum llm_rope_scaling scaling;
    /* scaling_attn_factor multiplies cos and sin as it stands (YaRN's 0.1 ln(factor) + 1 is in it); 1 if none. LLAMA3: rope_factors says
     * it all, the factor is unused. */
    float scaling_factor, scaling_attn_factor, yarn_beta_fast, yarn_beta_slow;
    uint32_t scaling_ctx_orig;
    const float *rope_factors;      /* [n_rot/2] divisors of the frequencies (llama3, longrope short), or NULL */
    const float *rope_factors_long; /* longrope beyond ctx_orig, or NULL */
    uint32_t window;                /* a local layer's query sees the keys at a distance < window; 0: no layer is local */
    const bool *layer_is_local;     /* [n_layer] layer uses the window; NULL: none */
    enum llm_pooling pooling;
    bool embd_normalize;
    bool embd_cut;          /* trained so that the first values of an embedding are one */
    uint32_t n_token_types; /* bert */
};

/* One stored matrix or vector. rows x cols; cols is the row length (the input dimension). A vector is 1 x cols. data NULL: absent.
 * `data` has no alignment that can be relied on (GGUF allows 8, safetensors none): read it by memcpy or unaligned loads. With a tied
 * output, model_desc.output is the same view as token_embd. */
struct llm_weight {
    enum weight_type type;
    uint32_t rows, cols;
    const uint8_t *data;
    size_t bytes;
};

struct llm_layer_desc {
    struct llm_weight attn_norm, attn_norm_b, wq, wk, wv, wqkv /* fused, then wq..wv are views into it */, bq, bk, bv, wo, bo,
        q_norm, k_norm, attn_post_norm, attn_post_norm_b, ffn_norm, ffn_norm_b, gate, up, down, up_b, down_b, ffn_post_norm,
        ffn_post_norm_b;
};

struct engine_files; /* engine/engine.h */

struct model_desc {
    struct llm_hparams h;
    struct llm_weight token_embd, token_types, pos_embd, embd_norm, embd_norm_b, output_norm, output_norm_b, output, output_b;
    struct llm_weight pooler, pooler_b, classifier, classifier_b; /* LLM_POOL_RANK: classifier(tanh(pooler(CLS))) */
    struct llm_layer_desc *layers;                                /* [h.n_layer] */
    struct tokenizer_spec tokenizer;
    struct str chat_template, chat_template_tools; /* Jinja source; empty: none */
    struct str name;                               /* general.name; empty for a folder */
    /* generation_config defaults; NAN / 0 where not given */
    float temperature, top_p, min_p, repetition_penalty;
    int32_t top_k;
    uint64_t weight_bytes; /* sum over all tensors as stored */
    bool quantize;         /* set by who opened it: matrices in F32, F16 and BF16 are packed as `mix` says */
    enum quant_mix mix;
    struct arena arena;
    void *maps; /* the mapped files; file/'s own */
};

/* Open a GGUF file, or a folder in Hugging Face's layout (config.json + safetensors + tokenizer.json), below `dir_fd`. `file`: the
 * GGUF's name, or "." for the folder itself. UNIMPLEMENTED: unknown architecture (the text lists the known) or tensor type;
 * INVALID: what is wrong and in which field; NOMEM; IO. */
int model_desc_open(int dir_fd, const char *file, struct model_desc **out, struct error *err) MUST_CHECK;
/* The same with files that may be sealed or signed. `files` (NULL: none are) is used during the call only. */
int model_desc_open_files(const struct engine_files *files, int dir_fd, const char *file, struct model_desc **out,
                          struct error *err) MUST_CHECK;
void model_desc_release(struct model_desc *d); /* NULL accepted */
/* Bytes of files that lie in memory, since they were sealed or signed. */
uint64_t model_desc_held_bytes(const struct model_desc *d);
/* Give the pages of the weight data back to the kernel once they are repacked (they can be read again on demand). */
void model_desc_drop_pages(struct model_desc *d);

/* Names of the architectures that are supported, for messages and docs; NULL-terminated. */
extern const char *const LLM_ARCHITECTURES[];

#endif
