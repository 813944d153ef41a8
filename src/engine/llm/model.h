/* model.h: the weights of one language model as the forward pass wants them: packed once, then only read.
 *
 * config (llm_hparams), weights (this) and state (forward.h) are three structs, as in llama2.c. Every matrix is repacked strip by
 * strip by a team of threads; norms and biases become f32. Rows of an untied token embedding stay in the mapped file. Immutable after
 * llm_model_create; any thread may read. */
#ifndef INFERD_ENGINE_LLM_MODEL_H
#define INFERD_ENGINE_LLM_MODEL_H

#include "base/arena.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/llm/file/model_desc.h"
#include "engine/llm/kernels/kernels.h"
#include "engine/llm/team.h"

/* One transformer block. A matrix with rows == 0 is absent; vectors are NULL where absent. */
struct llm_layer {
    float *attn_norm, *attn_norm_b; /* [n_embd] */
    struct matrix wq, wk, wv; /* [n_head * head_dim_k, n_embd], [n_head_kv * head_dim_k, ..], [n_head_kv * head_dim_v, ..] */
    float *bq, *bk, *bv;
    float *q_norm, *k_norm; /* [head_dim_k] */
    struct matrix wo;       /* [n_embd, n_head * head_dim_v] */
    float *bo;
    float *attn_post_norm, *attn_post_norm_b; /* [n_embd] */
    float *ffn_norm, *ffn_norm_b;             /* [n_embd] */
    struct matrix gate, up, down;             /* [n_ff, n_embd] x 2, [n_embd, n_ff] */
    float *up_b, *down_b;
    float *ffn_post_norm, *ffn_post_norm_b; /* [n_embd] */
    bool local;                             /* uses the sliding window and the local rope base */
};

struct llm_model {
    const struct kernels *k;
    const struct llm_hparams *h; /* in desc */
    struct model_desc *desc;     /* owned: maps, tokenizer spec, template */
    struct llm_layer *layers;    /* [n_layer] */
    struct matrix output;        /* [n_vocab, n_embd]; of a tied model also the token embedding */
    float *output_b;
    float *output_norm, *output_norm_b, *embd_norm, *embd_norm_b;
    float *token_types; /* [n_token_types][n_embd]: a row is added to every token (bert), or NULL */
    float *pooler, *pooler_b, *classifier, *classifier_b; /* [n_embd][n_embd], [n_embd], [n_embd], [1]: models that rank */
    bool tied;
    uint8_t *packed;            /* one mapping */
    size_t packed_bytes, bytes; /* bytes: everything that this model holds */
    struct arena arena;
};

/* Bytes that llm_model_create will take for `d`, without the mapped file. False on overflow. */
bool llm_model_bytes(const struct model_desc *d, size_t *packed, size_t *other);

/* Pack `d` with the team's threads. Takes over `d` on success; on failure the caller keeps it. INVALID: a matrix whose shape can't be
 * packed is named; NOMEM. Logs progress about every second ("weights_packed"). Blocks. */
int llm_model_create(struct model_desc *d, const struct kernels *k, struct team *team, struct logger *log, const char *name,
                     struct llm_model **out, struct error *err) MUST_CHECK;
void llm_model_destroy(struct llm_model *m); /* NULL accepted */

/* The embedding of `id` times embd_scale into x[n_embd], and that of token type `type` where the model has types. */
void llm_model_embed(const struct llm_model *m, int32_t id, uint32_t type, float *x);
/* Add the embedding of position `pos` where the model has such a table; tmp[n_embd] is scratch. */
void llm_model_add_position(const struct llm_model *m, uint32_t pos, float *x, float *tmp);

#endif
