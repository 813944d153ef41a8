/* safetensors.h: reading a safetensors file that lies in memory.
 *
 * Layout: u64 header length n, n bytes of JSON { "name": { "dtype": "BF16", "shape": [..], "data_offsets": [begin, end] }, ...,
 * "__metadata__": {..} }, then the data, which offsets count from. As the reference reader does, we ask for data that is
 * covered from its first byte to its last without gap or overlap. Every length and offset is checked before it is used.
 * Pure; any thread. */
#ifndef INFERD_ENGINE_LLM_FILE_SAFETENSORS_H
#define INFERD_ENGINE_LLM_FILE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

#define SAFETENSORS_DIMS_MAX 8

struct safetensors_tensor {
    struct str name, dtype; /* in the arena */
    uint32_t n_dims;
    uint64_t shape[SAFETENSORS_DIMS_MAX]; /* outermost first */
    const uint8_t *data;                  /* into the file; any alignment */
    size_t bytes;
};

struct safetensors {
    struct safetensors_tensor *v; /* by place in the file */
    size_t n;
};

/* Parse `n` bytes at `p`; tables go to `a`, nothing else to release. INVALID with the tensor and the field; NOMEM. */
int safetensors_parse(const uint8_t *p, size_t n, struct arena *a, struct safetensors *out, struct error *err) MUST_CHECK;

#endif
