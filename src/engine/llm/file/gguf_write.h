/* gguf_write.h: composing a GGUF file (version 3): the header in memory, the tensors' data written by the caller behind it.
 *
 * Order of use: keys, then tensors, then gguf_writer_header; then, tensor after tensor, the data, each padded with zeros to a multiple of
 * the alignment (gguf_writer_pad_bytes). Offsets are known when a tensor is added, so nothing is ever sought back to and a file larger
 * than memory can be streamed. A failed allocation shows up once, in gguf_writer_header. One thread. */
#ifndef INFERD_ENGINE_LLM_FILE_GGUF_WRITE_H
#define INFERD_ENGINE_LLM_FILE_GGUF_WRITE_H

#include "base/buf.h"
#include "engine/llm/file/gguf.h"

struct gguf_writer {
    struct buf kvs, tensors;
    uint64_t n_kv, n_tensors, data_bytes; /* data_bytes: padded */
    size_t alignment;
};

/* `alignment`: a power of two, what the readers of the keys will find in general.alignment (32 when that key is not written). */
void gguf_writer_init(struct gguf_writer *w, size_t alignment);
void gguf_writer_release(struct gguf_writer *w);

/* Copy a key/value of a parsed file, of any type. */
void gguf_writer_kv(struct gguf_writer *w, const struct gguf_kv *kv);
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float v);
void gguf_writer_str(struct gguf_writer *w, const char *key, struct str v);

/* Describe the next tensor. *bytes: the length of its data without padding. INVALID: rows aren't whole blocks of the type, or a size
 * overflows. */
int gguf_writer_tensor(struct gguf_writer *w, struct str name, enum weight_type type, uint32_t n_dims, const uint64_t *dims,
                       size_t *bytes, struct error *err) MUST_CHECK;
static inline size_t gguf_writer_pad_bytes(const struct gguf_writer *w, size_t bytes)
{
    return (w->alignment - bytes % w->alignment) % w->alignment;
}

/* Append everything in front of the data to `out`, padding included. NOMEM. */
int gguf_writer_header(const struct gguf_writer *w, struct buf *out, struct error *err) MUST_CHECK;

#endif
