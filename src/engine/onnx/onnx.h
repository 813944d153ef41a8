/* onnx.h: ONNX models on ONNX Runtime, whose library is loaded at run time. Options and limits are in README.md. */
#ifndef INFERD_ENGINE_ONNX_ONNX_H
#define INFERD_ENGINE_ONNX_ONNX_H

#include "engine/engine.h"

extern const struct engine_ops engine_onnx; /* name "onnxruntime", file "model.onnx" */

#endif
