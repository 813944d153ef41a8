/* quantize.h: a GGUF file's weights in other types: what `inferd quantize` does, without the files.
 *
 * The keys are copied, the tensors converted a chunk of rows at a time by a team of threads and handed to the caller in the file's order,
 * so memory stays at a few MiB whatever the model's size. Blocks are ggml's reference quantisers' (kernels.h, quant_row). */
#ifndef INFERD_ENGINE_LLM_FILE_QUANTIZE_H
#define INFERD_ENGINE_LLM_FILE_QUANTIZE_H

#include "engine/llm/file/gguf.h"
#include "engine/llm/file/quant_mix.h"

struct quantize_options {
    enum quant_mix mix;
    bool allow_requantize; /* convert tensors that are quantised already: worse than from the original */
    uint32_t threads;      /* 0: what quota and affinity allow */
    /* Receives the new file from its first byte to its last. A negative code ends the work. */
    int (*write)(void *ctx, const void *p, size_t n, struct error *err);
    /* (optional) called before each tensor. */
    void (*progress)(void *ctx, size_t index, const struct gguf_tensor *t, enum weight_type to);
    void *ctx;
};

struct quantize_report {
    uint64_t bytes_before, bytes_after;       /* of tensor data */
    uint32_t n_converted, n_kept, n_fallback; /* fallback: among the converted, rows that the mix's type doesn't divide */
};

/* Blocks for as long as it takes. INVALID: a tensor holds NaN or infinity; an adapter or a part of a split model; UNIMPLEMENTED:
 * quantised already and not allowed; what `write` returned; NOMEM. */
int quantize_gguf(const struct gguf *g, const struct quantize_options *o, struct quantize_report *report,
                  struct error *err) MUST_CHECK;

#endif
