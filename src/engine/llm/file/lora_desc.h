/* lora_desc.h: one description of a LoRA adapter, whatever file it came from: a GGUF adapter or a PEFT folder
 * (adapter_config.json + adapter_model.safetensors).
 *
 * An adapter adds scale * B (A x) to the output of some of a layer's matrices. What the files call fused (phi3's qkv, gate_up) is given
 * here as parts that share A, so that the forward pass knows one kind. The rows of B for q and k follow the base model's rope layout,
 * whichever the adapter's file used. Everything is checked against the base; an adapter for a matrix that can't be adapted here (embedding,
 * output, norms), DoRA and activated adapters are refused by name. One thread builds; immutable afterwards. */
#ifndef INFERD_ENGINE_LLM_FILE_LORA_DESC_H
#define INFERD_ENGINE_LLM_FILE_LORA_DESC_H

#include "engine/llm/file/model_desc.h"

/* a: rank x in, b: out x rank. data NULL in both: the matrix isn't adapted. `scale` is alpha / rank (rsLoRA: alpha / sqrt(rank)). */
struct lora_pair {
    struct llm_weight a, b;
    float scale;
};

struct lora_layer_desc {
    struct lora_pair q, k, v, o, gate, up, down;
};

struct lora_desc {
    struct lora_layer_desc *layers; /* [n_layer of the base] */
    uint32_t n_layer, max_rank;
    uint64_t weight_bytes;
    struct str name; /* general.name of a GGUF adapter; may be empty */
    struct arena arena;
    void *maps; /* the mapped files; file/'s own */
};

/* Open a GGUF adapter `file` beneath `dir_fd`, or the PEFT folder itself ("."), for the model `base`, which is only read here.
 * UNIMPLEMENTED, INVALID: with the field or tensor; NOT_FOUND, IO, NOMEM. */
int lora_desc_open(int dir_fd, const char *file, const struct model_desc *base, struct lora_desc **out,
                   struct error *err) MUST_CHECK;
void lora_desc_release(struct lora_desc *d); /* NULL accepted */

#endif
