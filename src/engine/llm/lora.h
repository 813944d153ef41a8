/* lora.h: an adapter as the forward pass wants it: the pairs of lora_desc.h packed once, then only read; and the adapters of one model by name.
 *
 * y += scale * B (A x) for some of a layer's matrices, in f32. Requests of several adapters and of none share a step: each column carries
 * its own adapter, and what a column without one computes is the same bits as if there were no adapters at all.
 *
 * The set is guarded by its owner's lock (engine_model.lock). An adapter lives from its load until it is unloaded *and* the last request
 * that uses it has ended; it counts against the set's limits until then. Its id is never given twice, so it salts the prefix cache. */
#ifndef INFERD_ENGINE_LLM_LORA_H
#define INFERD_ENGINE_LLM_LORA_H

#include "engine/llm/file/lora_desc.h"
#include "engine/llm/kernels/kernels.h"

enum lora_target { LORA_Q, LORA_K, LORA_V, LORA_O, LORA_GATE, LORA_UP, LORA_DOWN, LORA_TARGETS };

/* a: rank x in, b: out x rank; a.rows == 0: this matrix isn't adapted. */
struct lora_matrix {
    struct matrix a, b;
    float scale;
};

struct lora_layer {
    struct lora_matrix m[LORA_TARGETS];
};

/* Immutable once created, but for `users` and `loaded` (the set's). */
struct lora_adapter {
    char name[129];
    uint64_t id; /* never 0, never reused within a set */
    uint32_t n_layer, max_rank;
    struct lora_layer *layers; /* [n_layer] */
    uint8_t *packed;
    size_t packed_bytes, bytes;
    uint32_t users;       /* requests that hold it */
    bool loading, loaded; /* neither: unloaded, draining */
};

/* Bytes that lora_adapter_create will take. False on overflow. */
bool lora_adapter_bytes(const struct lora_desc *d, size_t *bytes);
/* Pack `d` into `a` (zeroed but for its name and id), on this thread. NOMEM. */
int lora_adapter_fill(struct lora_adapter *a, const struct lora_desc *d, const struct kernels *k, struct error *err) MUST_CHECK;
void lora_adapter_destroy(struct lora_adapter *a); /* NULL accepted */

/* ---- the adapters of one model ---- */

#define LORA_ADAPTERS_MAX 64

struct lora_set {
    struct lora_adapter *v[LORA_ADAPTERS_MAX]; /* loaded, being loaded, or draining; NULL: free */
    uint32_t max_n;
    uint64_t max_bytes, bytes, next_id;
};

/* Take a slot for `name`. INVALID: a name that isn't 1 to 128 characters without control characters; CONFLICT: it is there already;
 * EXHAUSTED: all slots are taken (text has the numbers); NOMEM. The adapter belongs to the set. */
int lora_set_reserve(struct lora_set *s, struct str name, struct lora_adapter **out, struct error *err) MUST_CHECK;
/* Count `bytes` for `a`. EXHAUSTED with both numbers when the budget doesn't hold them. */
int lora_set_charge(struct lora_set *s, struct lora_adapter *a, size_t bytes, struct error *err) MUST_CHECK;
/* The loaded adapter of that name; NULL when there is none. */
struct lora_adapter *lora_set_find(const struct lora_set *s, struct str name);
/* Take `a` out of the set; the caller destroys it (outside the lock). */
void lora_set_remove(struct lora_set *s, struct lora_adapter *a);
/* How many are loaded, and how many are draining. */
void lora_set_count(const struct lora_set *s, uint32_t *loaded, uint32_t *draining);

#endif
