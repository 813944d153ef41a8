/* hf_priv.h: for hf_*.c only: the parts of reading a Hugging Face folder. */
#ifndef INFERD_ENGINE_LLM_FILE_HF_PRIV_H
#define INFERD_ENGINE_LLM_FILE_HF_PRIV_H

#include "engine/llm/file/desc_priv.h"
#include "wire/json.h"

struct hf_config {
    enum desc_arch arch;
    bool tied; /* the output matrix is the embedding, whatever is stored */
};

/* config.json -> d->h. INVALID or UNIMPLEMENTED with the key. */
int hf__read_config(yyjson_val *root, struct hf_config *out, struct model_desc *d, struct error *err) MUST_CHECK;
/* generation_config.json -> sampling defaults and ends of generation; after the tokenizer. */
int hf__read_generation(yyjson_val *root, struct model_desc *d, struct error *err) MUST_CHECK;
/* eos_token_id, a number or a list, added to the tokenizer's ends of generation. */
int hf__read_eos(yyjson_val *root, struct model_desc *d, struct error *err) MUST_CHECK;

/* Add the tensors of a mapped safetensors file to `t`, whose capacity is *cap; dims in GGUF's order. What checkpoints carry and no
 * forward pass reads (buffers that follow from the configuration, heads of pre-training) is left out. */
int hf__list_safetensors(const struct os_map *map, struct arena *a, struct desc_tensors *t, size_t *cap,
                         struct error *err) MUST_CHECK;
/* modules.json of sentence-transformers, where there is one -> d->h.pooling, d->h.embd_normalize. */
int hf__read_pooling(int dir_fd, struct model_desc *d, struct error *err) MUST_CHECK;
/* Parse the JSON file `name`; with JSON_OPTIONAL an absent one is fine (j->doc stays NULL). */
int hf__read_json(const struct desc_maps *maps, int dir_fd, const char *name, enum json_need need, struct json *j,
                  struct error *err) MUST_CHECK;

/* tokenizer.json (and tokenizer_config.json, NULL when absent) -> d->tokenizer, d->chat_template. Strings are copied to d->arena. */
int hf__read_tokenizer(yyjson_val *root, yyjson_val *config, struct model_desc *d, struct error *err) MUST_CHECK;
/* "normalizer" -> d->tokenizer.normal; d->tokenizer.model is set. */
int hf__read_normalizer(yyjson_val *obj, struct model_desc *d, struct error *err) MUST_CHECK;
/* "pre_tokenizer" of a model that cuts words: Metaspace, WhitespaceSplit, BertPreTokenizer; others are refused by name. */
int hf__read_pre_words(yyjson_val *pre, struct tokenizer_spec *s, struct error *err) MUST_CHECK;
/* The pre-tokeniser of a byte-level BPE: its name as GGUF files have it. */
int hf__pre_name(yyjson_val *pre_tokenizer, struct str *out, struct error *err) MUST_CHECK;

#endif
