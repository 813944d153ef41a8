#!/usr/bin/env python3
"""Writes tests/unit/tensor/infer_proto_vectors.h: inference requests as Google's protobuf encodes them from Triton's own schema.

    .venv/bin/python tests/unit/tensor/make_infer_proto.py

The header is committed; this only needs to run again when a test wants other messages.
"""
import os
import struct

from tritonclient.grpc import service_pb2 as pb

OUT = os.path.join(os.path.dirname(__file__), "infer_proto_vectors.h")


def request(**kw):
    return pb.ModelInferRequest(model_name="add", **kw)


def tensor(name, datatype, shape, **contents):
    t = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    if contents:
        t.contents.CopyFrom(pb.InferTensorContents(**contents))
    return t


def raw():
    r = request(model_version="3", id="call-7", inputs=[tensor("A", "INT32", [1, 4]), tensor("B", "BYTES", [2])],
                outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="SUM")],
                raw_input_contents=[struct.pack("<4i", 1, -2, 3, 1 << 30), b"\2\0\0\0hi\0\0\0\0"])
    r.parameters["priority"].uint64_param = 2
    r.parameters["timeout"].int64_param = 1500
    r.parameters["note"].string_param = "x"
    r.parameters["ratio"].double_param = 0.5
    r.parameters["deep"].bool_param = True
    r.outputs[0].parameters["classification"].int64_param = 3
    return r


VECTORS = {
    "raw": raw(),
    "typed_bool": request(inputs=[tensor("A", "BOOL", [3], bool_contents=[True, False, True])]),
    "typed_int8": request(inputs=[tensor("A", "INT8", [3], int_contents=[-128, 127, -1])]),
    "typed_int16": request(inputs=[tensor("A", "INT16", [2], int_contents=[-32768, 32767])]),
    "typed_int32": request(inputs=[tensor("A", "INT32", [2], int_contents=[-2147483648, 2147483647])]),
    "typed_int64": request(inputs=[tensor("A", "INT64", [2], int64_contents=[-(1 << 63), (1 << 63) - 1])]),
    "typed_uint8": request(inputs=[tensor("A", "UINT8", [2], uint_contents=[0, 255])]),
    "typed_uint16": request(inputs=[tensor("A", "UINT16", [2], uint_contents=[1, 65535])]),
    "typed_uint32": request(inputs=[tensor("A", "UINT32", [2], uint_contents=[7, 4294967295])]),
    "typed_uint64": request(inputs=[tensor("A", "UINT64", [2], uint64_contents=[0, (1 << 64) - 1])]),
    "typed_fp32": request(inputs=[tensor("A", "FP32", [2, 1], fp32_contents=[1.5, -0.25])]),
    "typed_fp64": request(inputs=[tensor("A", "FP64", [2], fp64_contents=[1e300, -2.5])]),
    "typed_bytes": request(inputs=[tensor("A", "BYTES", [3], bytes_contents=[b"a", b"", b"\xff\x00z"])]),
    "typed_empty": request(inputs=[tensor("A", "FP32", [0, 5])]),
    "int8_out_of_range": request(inputs=[tensor("A", "INT8", [1], int_contents=[128])]),
    "uint16_out_of_range": request(inputs=[tensor("A", "UINT16", [1], uint_contents=[65536])]),
    "wrong_field": request(inputs=[tensor("A", "INT32", [1], fp32_contents=[1])]),
    "fp16_typed": request(inputs=[tensor("A", "FP16", [1], fp32_contents=[1])]),
    "too_few": request(inputs=[tensor("A", "INT32", [3], int_contents=[1, 2])]),
    "huge_shape": request(inputs=[tensor("A", "INT32", [1 << 40, 1 << 40], int_contents=[1])]),
    "big_shape": request(inputs=[tensor("A", "INT32", [1 << 40], int_contents=[1])]),
    "mixed": request(inputs=[tensor("A", "INT32", [1]), tensor("B", "INT32", [1], int_contents=[1])],
                     raw_input_contents=[b"1234", b"1234"]),
    "raw_count": request(inputs=[tensor("A", "INT32", [1]), tensor("B", "INT32", [1])], raw_input_contents=[b"1234"]),
    "raw_size": request(inputs=[tensor("A", "INT32", [2])], raw_input_contents=[b"1234"]),
    "raw_bool": request(inputs=[tensor("A", "BOOL", [1])], raw_input_contents=[b"\2"]),
    "twice_input": request(inputs=[tensor("A", "INT32", [1]), tensor("A", "INT32", [1])], raw_input_contents=[b"1234", b"1234"]),
    "no_name": request(inputs=[tensor("", "INT32", [1])], raw_input_contents=[b"1234"]),
    "no_datatype": request(inputs=[tensor("A", "", [1])], raw_input_contents=[b"1234"]),
    "bad_datatype": request(inputs=[tensor("A", "FLOAT", [1])], raw_input_contents=[b"1234"]),
    "negative_dim": request(inputs=[tensor("A", "INT32", [-1])], raw_input_contents=[b"1234"]),
    "rank_17": request(inputs=[tensor("A", "INT32", [1] * 17)], raw_input_contents=[b"1234"]),
    "inputs_65": request(inputs=[tensor(f"A{i}", "INT32", [1]) for i in range(65)]),
    "twice_output": request(inputs=[tensor("A", "INT32", [1])], raw_input_contents=[b"1234"],
                            outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="S")] * 2),
    "sequence": request(inputs=[tensor("A", "INT32", [1])], raw_input_contents=[b"1234"],
                        parameters={"sequence_id": pb.InferParameter(int64_param=5)}),
    "sequence_zero": request(inputs=[tensor("A", "INT32", [1])], raw_input_contents=[b"1234"],
                             parameters={"sequence_id": pb.InferParameter(int64_param=0)}),
    "shared_memory": request(inputs=[pb.ModelInferRequest.InferInputTensor(
        name="A", datatype="INT32", shape=[1], parameters={"shared_memory_region": pb.InferParameter(string_param="r")})]),
    "params_65": request(parameters={f"p{i}": pb.InferParameter(bool_param=True) for i in range(65)}),
    "final_response": request(inputs=[tensor("A", "INT32", [1])], raw_input_contents=[b"1234"], parameters={
        "triton_enable_empty_final_response": pb.InferParameter(bool_param=True), "kept": pb.InferParameter(bool_param=True)}),
    "valueless": request(inputs=[tensor("A", "INT32", [1])], raw_input_contents=[b"1234"],
                         parameters={"x": pb.InferParameter()}),
    "uint64_over": request(inputs=[tensor("A", "INT32", [1])], raw_input_contents=[b"1234"],
                           parameters={"x": pb.InferParameter(uint64_param=1 << 63)}),
    "priority_wrong": request(inputs=[tensor("A", "INT32", [1])], raw_input_contents=[b"1234"],
                              parameters={"priority": pb.InferParameter(string_param="high")}),
}

REPLY = pb.ModelInferResponse(model_name="add", model_version="3", id="call-7")
REPLY.parameters["triton_final_response"].bool_param = False
for name, datatype, shape in (("SMALL", "INT32", [1, -1 + 3]), ("LARGE", "UINT8", [3000]), ("NONE", "FP32", [0])):
    REPLY.outputs.add(name=name, datatype=datatype, shape=shape)
REPLY.raw_output_contents.extend([struct.pack("<2i", 5, -5), bytes(i % 251 for i in range(3000)), b""])


def array(name, data):
    rows = [", ".join(f"0x{b:02x}" for b in data[i:i + 20]) for i in range(0, len(data), 20)]
    return f"static const uint8_t {name}[] = {{\n    " + ",\n    ".join(rows) + "};\n"


def main():
    text = "/* Made by make_infer_proto.py. */\n#ifndef INFER_PROTO_VECTORS_H\n#define INFER_PROTO_VECTORS_H\n\n#include <stdint.h>\n\n"
    for name, message in VECTORS.items():
        text += array("v_" + name, message.SerializeToString(deterministic=True))
    text += array("v_reply", REPLY.SerializeToString(deterministic=True))
    text += "\n#endif\n"
    with open(OUT, "w") as f:
        f.write("/* clang-format off */\n" + text)


main()
