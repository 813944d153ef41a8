/* infer_proto.h: the messages of a KServe v2 inference over gRPC: inference.ModelInferRequest decoded where it lies, and
 * inference.ModelInferResponse made around the engine's own buffers. proto/inference.proto is the schema.
 *
 * A tensor in `raw_input_contents` is a slice of the received message: nothing is copied before it enters a batch. Typed
 * `contents` are converted once, straight into the tensor's memory; a packed run of floats is a slice, too.
 *
 * Decided where the protocol leaves it open, like the JSON codec (infer_json.h) wherever both can say it:
 *   - raw and typed contents in one request are refused, whichever input has which; there are as many raw contents as inputs, in
 *     their order;
 *   - FP16 and BF16 have no typed field and come raw only;
 *   - the typed field must be the dtype's own; an INT8, INT16, UINT8 or UINT16 element out of the dtype's range is refused;
 *   - a tensor whose `contents` come twice, two inputs, outputs or parameters of one name are refused; other scalar fields that come
 *     twice count as they last came, and unknown fields are passed over, as protobuf says;
 *   - reserved parameters are those of the JSON codec: priority, timeout (microseconds), classification; sequence_* and
 *     shared_memory_* are refused by name.
 * Every refusal is STATUS_INVALID with one sentence that names the input, what was expected and what came. */
#ifndef INFERD_TENSOR_INFER_PROTO_H
#define INFERD_TENSOR_INFER_PROTO_H

#include "tensor/infer_json.h"

struct infer_proto {
    struct str model_name, model_version; /* version empty: none given */
    struct infer_json request;            /* `binary` members have no meaning here */
};

/* Decode one message. Raw inputs hold a reference to message.owner (when it is NULL they borrow); converted ones own slabs.
 * Everything else is in the arena `a` or points into the message: both must outlive `out`. Each input has passed tensor_check.
 * `limits` (may be NULL) bounds the memory that typed contents may take. STATUS_INVALID, STATUS_TOO_LARGE, STATUS_NOMEM; on error
 * out->request holds nothing, but the model's name, version and the id may be set (for the log and the reply). Pure; any thread. */
int infer_proto_decode(struct slice message, struct arena *a, const struct infer_json_limits *limits, struct infer_proto *out,
                       struct error *err) MUST_CHECK;
void infer_proto_release(struct infer_proto *m);

struct infer_proto_reply {
    struct str model_name, model_version, id;
    const struct infer_param *params;
    size_t n_params;
    const struct tensor *const *outputs; /* [n_outputs] */
    size_t n_outputs;
    size_t copy_bytes; /* outputs of more bytes than this go by reference; SIZE_MAX: all are copied */
};

/* What is copied rather than sent as a piece of its own: the piece costs more. */
#define INFER_PROTO_COPY_BYTES 2048

/* Append the message to slices[0..*n_slices), which has room for 1 + 2 * n_outputs, with references of the caller's own: the text
 * parts, and between them the outputs' bytes, by reference when they are more than copy_bytes. `front` bytes before the
 * message are left for the caller, who finds them at *head[0..front): the prefix of a frame, or the key of a message around it.
 * *message_bytes is the message's length without them. STATUS_NOMEM, STATUS_TOO_LARGE: more than 2 GiB, which no protobuf reader
 * takes. On error nothing is held. Pure; any thread. */
int infer_proto_encode(const struct infer_proto_reply *r, size_t front, struct slice *slices, size_t *n_slices, uint8_t **head,
                       size_t *message_bytes, struct error *err) MUST_CHECK;

#endif
