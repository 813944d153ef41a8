/* infer_proto_priv.h: for the infer_proto*.c files only. */
#ifndef INFERD_TENSOR_INFER_PROTO_PRIV_H
#define INFERD_TENSOR_INFER_PROTO_PRIV_H

#include "tensor/infer_proto.h"
#include "wire/protobuf.h"

/* infer_proto_contents.c: the typed contents (an InferTensorContents message) into t->data; t has name, dtype and shape. Parts that
 * need memory take it off *bytes_left. `owner` is the message's, for runs that stay where they are. */
int infer_proto__contents(struct tensor *t, struct str contents, struct slab *owner, size_t *bytes_left,
                          struct error *err) MUST_CHECK;

#endif
