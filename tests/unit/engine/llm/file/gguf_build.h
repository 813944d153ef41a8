/* gguf_build.h: GGUF files made by hand, byte by byte as the specification draws them; for tests. */
#ifndef INFERD_TESTS_GGUF_BUILD_H
#define INFERD_TESTS_GGUF_BUILD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/llm/file/gguf.h"

static inline void put_u32(struct buf *b, uint32_t v)
{
    buf_append(b, &v, 4);
}
static inline void put_u64(struct buf *b, uint64_t v)
{
    buf_append(b, &v, 8);
}
static inline void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    buf_append_z(b, s);
}
static inline void put_header(struct buf *b, uint32_t version, uint64_t tensors, uint64_t kvs)
{
    buf_append_z(b, "GGUF");
    put_u32(b, version);
    put_u64(b, tensors);
    put_u64(b, kvs);
}
static inline void put_kv_u32(struct buf *b, const char *key, uint32_t v)
{
    put_str(b, key);
    put_u32(b, GGUF_U32);
    put_u32(b, v);
}
static inline void put_kv_str(struct buf *b, const char *key, const char *v)
{
    put_str(b, key);
    put_u32(b, GGUF_STRING);
    put_str(b, v);
}
static inline void put_tensor(struct buf *b, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                              uint64_t offset)
{
    put_str(b, name);
    put_u32(b, n_dims);
    buf_append(b, dims, n_dims * sizeof *dims);
    put_u32(b, type);
    put_u64(b, offset);
}
static inline void put_zeros(struct buf *b, size_t n)
{
    while (n--)
        buf_append_c(b, 0);
}
static inline void put_pad(struct buf *b, size_t align)
{
    while (b->n % align)
        buf_append_c(b, 0);
}

#endif
