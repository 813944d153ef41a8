/* scan.h: what an ONNX file says about itself, read without ONNX Runtime.
 *
 * A bounded walk over the protobuf bytes of a ModelProto (onnx.proto, IR versions 3 to 13): nothing is decoded that isn't asked
 * for, every length is checked, nesting is limited. It answers what must be known *before* a file is handed to the runtime:
 * which other files it wants to open, what its inputs and outputs are, how large its weights are. Pure: bytes in, struct out.
 * The runtime's own reading stays the authority on whether a model is valid. */
#ifndef INFERD_ENGINE_ONNX_SCAN_H
#define INFERD_ENGINE_ONNX_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "tensor/tensor.h"

enum onnx_kind {
    ONNX_KIND_NONE,
    ONNX_KIND_TENSOR,
    ONNX_KIND_SEQUENCE,
    ONNX_KIND_MAP,
    ONNX_KIND_OPTIONAL,
    ONNX_KIND_SPARSE,
    ONNX_KIND_OPAQUE
};

struct onnx_value {
    struct onnx_value *next;
    struct str name;
    enum onnx_kind kind;
    int32_t elem_type; /* TensorProto.DataType, kind TENSOR */
    bool has_shape;
    size_t rank;                  /* may exceed TENSOR_RANK_MAX: then `dim` holds the first ones only */
    int64_t dim[TENSOR_RANK_MAX]; /* -1: dynamic */
    struct str dim_names[TENSOR_RANK_MAX];
};

struct onnx_pair { /* opset import: domain and version; metadata: key and value; external file: its location */
    struct onnx_pair *next;
    struct str key, value;
    int64_t number;
};

/* Strings point into the scanned bytes; lists are in file order and live in the arena. */
struct onnx_scan {
    int64_t ir_version, model_version;
    struct str producer, producer_version, domain, doc, graph_name;
    struct onnx_pair *opsets, *metadata;
    struct onnx_pair *external; /* distinct `location` values of external data, wherever in the file they are */
    size_t n_external;
    struct str external_inside; /* one of them that a tensor elsewhere than in the main graph's list names; empty: none */
    struct onnx_value *inputs, *outputs; /* of the main graph; inputs include initializers in old files */
    size_t n_inputs, n_outputs;
    size_t n_nodes;             /* in all graphs and functions */
    uint64_t initializer_bytes; /* data of every tensor stored in the file itself */
    bool compiled_context;      /* holds an EPContext node: a blob compiled for one device */
};

/* Scan `bytes`. INVALID: not an ONNX protobuf, or past a bound (names which); NOMEM: the arena's limit. */
int onnx_scan(struct str bytes, struct arena *a, struct onnx_scan *out, struct error *err) MUST_CHECK;

/* TensorProto.DataType -> ours; DTYPE_INVALID for what KServe has no name for. Same numbers as ONNX Runtime's. */
enum dtype onnx_dtype(int32_t elem_type);
/* "FLOAT8E4M3FN", "COMPLEX64", ...; "type 99" is "an unknown type". For messages. */
const char *onnx_type_name(int32_t elem_type);

/* Refuse what inferd can't serve, naming the input or output: sequences, maps, optionals, sparse tensors, types without a KServe
 * name, more than TENSOR_RANK_MAX dims, compiled contexts. UNIMPLEMENTED. */
int onnx_scan_check(const struct onnx_scan *s, struct error *err) MUST_CHECK;

#endif
