/* desc_priv.h: for siblings only: how a model description is put together from either kind of file.
 *
 * Both readers (desc_gguf.c, hf_*.c) do the same three things: list the file's tensors under their own names, fill the
 * hparams, and fill the tokenizer spec. Everything after that is shared: arch.c knows the architectures as one table of facts and one
 * table of weights (role, shape, both spellings), binds each role to a tensor, checks its shape, and refuses a tensor that nobody asked
 * for: a weight that the forward pass would ignore is a wrong model, not a detail. */
#ifndef INFERD_ENGINE_LLM_FILE_DESC_PRIV_H
#define INFERD_ENGINE_LLM_FILE_DESC_PRIV_H

#include "base/map.h"
#include "engine/llm/file/gguf.h"
#include "engine/llm/file/model_desc.h"
#include "engine/engine.h"
#include "os/blob.h"
#include "os/file.h"

enum desc_arch { DESC_LLAMA, DESC_QWEN2, DESC_QWEN3, DESC_GEMMA2, DESC_GEMMA3, DESC_PHI3, DESC_BERT, DESC_ARCH_COUNT };

/* Which file's names and conventions apply. */
enum desc_naming { DESC_NAMES_GGUF, DESC_NAMES_HF };

#define DESC_MAPS_MAX 1024 /* files of a sharded model */

/* The mapped files of a description; model_desc.maps points to one. A file that is sealed or signed lies in memory instead: then its map
 * shows what blobs[] holds. */
struct desc_maps {
    const struct engine_files *files; /* while the description is opened; NULL: all files are plain */
    struct os_map v[DESC_MAPS_MAX];
    struct os_blob blobs[DESC_MAPS_MAX];
    size_t n;
};

/* One stored tensor, whatever the format; dims as in GGUF (dims[0] is the row length). */
struct desc_tensor {
    struct str name;
    enum weight_type type;
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_MAX];
    const uint8_t *data;
    size_t bytes;
    bool used;
};

struct desc_tensors {
    struct desc_tensor *v;
    size_t n;
    struct map by_name; /* released by desc__tensors_release */
    enum desc_naming naming;
};

/* Make the name index of `t` (v and n set). INVALID: a name occurs twice; NOMEM. */
int desc__tensors_index(struct desc_tensors *t, struct error *err) MUST_CHECK;
void desc__tensors_release(struct desc_tensors *t);
/* The tensor `name`, marked as used; NULL when absent. */
struct desc_tensor *desc__tensor(struct desc_tensors *t, const char *name);

/* "llama" -> DESC_LLAMA; UNIMPLEMENTED with the list of the known. */
int desc__arch_of(struct str name, enum desc_arch *out, struct error *err) MUST_CHECK;
/* Set what the architecture alone decides (norm kind, activation, rope layout for the naming, pooling, ...). */
void desc__arch_defaults(enum desc_arch arch, enum desc_naming naming, struct llm_hparams *h);
/* Gemma's scale of q.k and of the embeddings, local layers by period, the window's meaning: what follows from sizes. Call once the
 * sizes are in `h`; checks every field's range and names the one that is off. */
int desc__hparams_finish(enum desc_arch arch, struct model_desc *d, uint32_t window_period, struct error *err) MUST_CHECK;
/* Bind every role to its tensor. INVALID: missing, wrong shape, not expected. Sets weight_bytes, n_vocab, tied_output. */
int desc__bind(enum desc_arch arch, struct model_desc *d, struct desc_tensors *t, struct error *err) MUST_CHECK;
/* Copy `n` frequency divisors to the arena, checking that each is finite and positive. */
int desc__rope_factors(struct model_desc *d, const struct desc_tensor *t, const float **out, struct error *err) MUST_CHECK;

/* The two readers. `d` is zeroed with an arena and maps; on failure the caller releases it. */
int desc__read_gguf(const struct os_map *map, struct model_desc *d, struct error *err) MUST_CHECK;
int desc__gguf_tokenizer(const struct gguf *g, struct model_desc *d, struct error *err) MUST_CHECK;
int desc__read_folder(int dir_fd, struct model_desc *d, struct error *err) MUST_CHECK;

/* Map `name` beneath `dir_fd` and remember it in `maps`. */
int desc__map_file(int dir_fd, const char *name, struct desc_maps *maps, struct os_map *out, struct error *err) MUST_CHECK;
void desc__maps_release(struct desc_maps *maps); /* unmaps and frees; NULL accepted */

/* List the tensors of a parsed GGUF file under their names, in `a`. */
int desc__list_gguf(const struct gguf *g, struct arena *a, struct desc_tensors *t, struct error *err) MUST_CHECK;

/* What both tokenizer readers share: make end-of-generation ids and turn tokens out of the texts that chat models use, where the file
 * did not say; control-looking ones become control tokens. `types` may be written. */
int desc__tokenizer_finish(struct model_desc *d, int32_t *types, struct error *err) MUST_CHECK;

#endif
