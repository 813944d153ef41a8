/* gguf.h: reading a GGUF file (versions 2 and 3, little-endian) that lies in memory.
 *
 * Layout: header { magic "GGUF", u32 version, u64 n_tensors, u64 n_kv }, n_kv key/values { string key, u32 type, value },
 * n_tensors descriptions { string name, u32 n_dims, u64 dims[], u32 type, u64 offset }, padding to `general.alignment`
 * (32), then the data; offsets count from there. A string is u64 length + bytes. An array is u32 element type, u64 count,
 * elements. Source: the GGUF specification in ggml's docs.
 *
 * Every count, length and offset is checked against the file before it is used; a hostile file is refused with the name of the
 * field. Strings and tensor data are views into the file: it must stay mapped while the struct is used. Pure; any thread. */
#ifndef INFERD_ENGINE_LLM_FILE_GGUF_H
#define INFERD_ENGINE_LLM_FILE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "engine/llm/file/weight_type.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT,
};

#define GGUF_DIMS_MAX 4

struct gguf_array {
    enum gguf_type type; /* of the elements; never GGUF_ARRAY (nested arrays are refused) */
    uint64_t n;
    const uint8_t *data; /* unaligned, little-endian */
    size_t bytes;
};

struct gguf_kv {
    struct str key;
    enum gguf_type type;
    union {
        uint64_t u; /* U8..U64, BOOL */
        int64_t i;  /* I8..I64 */
        double f;   /* F32, F64 */
        struct str s;
        struct gguf_array a;
    };
};

struct gguf_tensor {
    struct str name;
    enum weight_type type;
    uint32_t n_dims;
    uint64_t dims[GGUF_DIMS_MAX]; /* dims[0] is the row length (fastest); unused ones are 1 */
    const uint8_t *data;
    size_t bytes;
};

struct gguf {
    uint32_t version;
    size_t alignment;
    struct gguf_kv *kv;
    size_t n_kv;
    struct gguf_tensor *tensors;
    size_t n_tensors;
    struct map kv_by_key, tensor_by_name;
};

/* Parse `n` bytes at `p`. Tables are allocated in `a`; call gguf_release for the maps. STATUS_INVALID with the field; NOMEM. */
int gguf_parse(const uint8_t *p, size_t n, struct arena *a, struct gguf *out, struct error *err) MUST_CHECK;
void gguf_release(struct gguf *g);

/* By name; NULL when the file has none of that name. Borrowed from `g`. */
const struct gguf_tensor *gguf_tensor(const struct gguf *g, struct str name);
const struct gguf_kv *gguf_kv(const struct gguf *g, const char *key);

/* Typed lookups: true and *out set when the key is there with a fitting type and range; any integer type fits u64 when not
 * negative, any number fits f64. A key of another type reads as absent: callers that require it say so. */
bool gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out);
bool gguf_get_i64(const struct gguf *g, const char *key, int64_t *out);
bool gguf_get_f64(const struct gguf *g, const char *key, double *out);
bool gguf_get_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_get_str(const struct gguf *g, const char *key, struct str *out);
bool gguf_get_array(const struct gguf *g, const char *key, struct gguf_array *out);

/* Walk a string array: `*at` starts at 0 and is a byte position; false at the end. */
bool gguf_array_next_str(const struct gguf_array *a, size_t *at, struct str *out);
/* Element `i` of a numeric or bool array as i64 / f64; i < n. */
int64_t gguf_array_i64(const struct gguf_array *a, uint64_t i);
double gguf_array_f64(const struct gguf_array *a, uint64_t i);

#endif
