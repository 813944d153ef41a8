"""Writes the small ONNX models of the unit tests: python tests/data/make_models.py tests/data/models

The files are committed, so that the tests need no Python; run this again after a change here. Needs the `onnx` package."""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "models")
FLOAT, I32, I64, STR = T.FLOAT, T.INT32, T.INT64, T.STRING


def vi(name, elem, shape):
    return h.make_tensor_value_info(name, elem, shape)


def save(name, nodes, inputs, outputs, inits=(), opset=17, doc="", ir=8, domains=(), check=True, folder=None):
    graph = h.make_graph(nodes, name, inputs, outputs, list(inits))
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset), *domains], producer_name="inferd tests", doc_string=doc)
    model.ir_version = ir
    if check:
        onnx.checker.check_model(model)
    path = os.path.join(OUT, folder or name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString())
    return path


def const(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def simple():
    """Triton's `simple`, batched."""
    save("simple", [h.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]), h.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"])],
         [vi("INPUT0", I32, ["batch", 16]), vi("INPUT1", I32, ["batch", 16])],
         [vi("OUTPUT0", I32, ["batch", 16]), vi("OUTPUT1", I32, ["batch", 16])], doc="sum and difference")


def zoo():
    """Every datatype of the protocol through Identity."""
    types = [T.BOOL, T.UINT8, T.UINT16, T.UINT32, T.UINT64, T.INT8, T.INT16, T.INT32, T.INT64, T.FLOAT16, T.FLOAT, T.DOUBLE, T.BFLOAT16, T.STRING]
    names = [T.DataType.Name(t) for t in types]
    save("zoo", [h.make_node("Identity", ["in_" + n], ["out_" + n]) for n in names],
         [vi("in_" + n, t, ["n", 2]) for n, t in zip(names, types)], [vi("out_" + n, t, ["n", 2]) for n, t in zip(names, types)])


def shapes():
    """A scalar, a tensor of any rank, an output that is an input, an output that is an initializer, a zero-sized dim."""
    save("scalar", [h.make_node("Mul", ["a", "b"], ["c"])], [vi("a", FLOAT, []), vi("b", FLOAT, [])], [vi("c", FLOAT, [])])
    save("pass", [h.make_node("Neg", ["x"], ["y"])], [vi("x", FLOAT, ["n", 2])],
         [vi("x", FLOAT, ["n", 2]), vi("y", FLOAT, ["n", 2]), vi("w", FLOAT, [3])], [const("w", np.float32([1, 2, 3]))], check=False)
    save("nonzero", [h.make_node("NonZero", ["x"], ["y"])], [vi("x", FLOAT, ["n"])], [vi("y", I64, [1, "found"])])
    save("length", [h.make_node("ReduceSum", ["x", "axis"], ["s"], keepdims=0)], [vi("x", FLOAT, ["batch", "length"])],
         [vi("s", FLOAT, ["length"])], [const("axis", np.int64([0]))])
    save("static", [h.make_node("Relu", ["x"], ["y"])], [vi("x", FLOAT, [2, 3])], [vi("y", FLOAT, [2, 3])])


def failing():
    """Broadcasting fails in the kernel when the lengths differ."""
    save("broadcast", [h.make_node("Add", ["a", "b"], ["c"])], [vi("a", FLOAT, ["n"]), vi("b", FLOAT, ["m"])], [vi("c", FLOAT, ["k"])])
    save("gather", [h.make_node("Gather", ["table", "i"], ["y"])], [vi("i", I64, ["n"])], [vi("y", FLOAT, ["n"])],
         [const("table", np.float32([10, 20, 30]))])
    save("cast", [h.make_node("Cast", ["s"], ["y"], to=FLOAT)], [vi("s", STR, ["n"])], [vi("y", FLOAT, ["n"])])


def slow():
    """A loop as long as the input says: for cancelling."""
    body = h.make_graph([h.make_node("Identity", ["c_in"], ["c_out"]), h.make_node("Tanh", ["v_in"], ["v_out"])], "body",
                        [vi("iter", I64, []), vi("c_in", T.BOOL, []), vi("v_in", FLOAT, ["n"])], [vi("c_out", T.BOOL, []), vi("v_out", FLOAT, ["n"])])
    save("slow", [h.make_node("Loop", ["trips", "", "x"], ["y"], body=body)], [vi("trips", I64, []), vi("x", FLOAT, ["n"])],
         [vi("y", FLOAT, ["n"])])


def optional():
    """An initializer that is also a graph input: may be left out, then the default holds."""
    save("optional", [h.make_node("Add", ["x", "bias"], ["y"])], [vi("x", FLOAT, ["n", 2]), vi("bias", FLOAT, [2])], [vi("y", FLOAT, ["n", 2])],
         [const("bias", np.float32([10, 20]))])


def external_tensor(name, location, array, **more):
    t = T()
    t.name, t.data_type, t.data_location = name, FLOAT, T.EXTERNAL
    t.dims.extend(array.shape)
    for key, value in {"location": location, **more}.items():
        entry = t.external_data.add()
        entry.key, entry.value = key, str(value)
    return t


def external():
    """Weights in other files: one that is right, and ones that reach for what isn't theirs."""
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    io = [vi("x", FLOAT, ["n", 2])], [vi("y", FLOAT, ["n", 3])]
    nodes = [h.make_node("MatMul", ["x", "w"], ["y"])]
    path = save("external", nodes, *io, [external_tensor("w", "data/weights.bin", w, offset=8, length=24)], check=False)
    os.makedirs(os.path.join(path, "data"), exist_ok=True)
    with open(os.path.join(path, "data", "weights.bin"), "wb") as f:
        f.write(b"\xff" * 8 + w.tobytes())
    for name, location in {"up": "../external/data/weights.bin", "absolute": "/etc/hostname", "memory": "*/_ORT_MEM_ADDR_/*",
                           "missing": "nothing.bin", "link": "link.bin"}.items():
        path = save("external_" + name, nodes, *io, [external_tensor("w", location, w, offset=0, length=24)], check=False)
    link = os.path.join(path, "link.bin")
    if not os.path.islink(link):
        os.symlink("../external/data/weights.bin", link)
    # The same inside a Constant node and inside a branch.
    path = save("external_attribute", [h.make_node("Constant", [], ["w"], value=external_tensor("", "../external/data/weights.bin", w, length=24)),
                                       *nodes], *io, check=False)
    branch = [h.make_graph([h.make_node("MatMul", ["x", "w" + b], ["y" + b])], b, [], [vi("y" + b, FLOAT, ["n", 3])],
                           [external_tensor("w" + b, "../external/data/weights.bin", w, length=24)]) for b in ("then", "else")]
    save("external_branch", [h.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])],
         [vi("c", T.BOOL, []), *io[0]], io[1], check=False)
    inside = [h.make_graph([h.make_node("MatMul", ["x", "w" + b], ["y" + b])], b, [], [vi("y" + b, FLOAT, ["n", 3])],
                           [external_tensor("w" + b, "weights.bin", w, offset=0, length=24)]) for b in ("then", "else")]
    path = save("external_branch_inside", [h.make_node("If", ["c"], ["y"], then_branch=inside[0], else_branch=inside[1])],
                [vi("c", T.BOOL, []), *io[0]], io[1], check=False)
    with open(os.path.join(path, "weights.bin"), "wb") as f:
        f.write(w.tobytes())


def refused():
    """What the protocol has no word for."""
    seq = h.make_tensor_sequence_value_info("words", FLOAT, ["n"])
    save("sequence", [h.make_node("ConcatFromSequence", ["words"], ["y"], axis=0)], [seq], [vi("y", FLOAT, ["n"])])
    zip_map = h.make_value_info("scores", h.make_sequence_type_proto(h.make_map_type_proto(I64, h.make_tensor_type_proto(FLOAT, []))))
    save("map", [h.make_node("ZipMap", ["x"], ["scores"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])], [vi("x", FLOAT, ["n", 2])], [zip_map],
         domains=[h.make_opsetid("ai.onnx.ml", 3)], check=False)
    maybe = h.make_value_info("maybe", h.make_optional_type_proto(h.make_tensor_type_proto(FLOAT, ["n"])))
    save("maybe", [h.make_node("OptionalGetElement", ["maybe"], ["y"])], [maybe], [vi("y", FLOAT, ["n"])], opset=18)
    save("complex", [h.make_node("Identity", ["x"], ["y"])], [vi("x", T.COMPLEX64, ["n"])], [vi("y", T.COMPLEX64, ["n"])])
    save("float8", [h.make_node("Cast", ["x"], ["y"], to=T.FLOAT8E4M3FN)], [vi("x", FLOAT, ["n"])], [vi("y", T.FLOAT8E4M3FN, ["n"])], opset=19, ir=9)
    save("int4", [h.make_node("Cast", ["x"], ["y"], to=T.INT4)], [vi("x", FLOAT, ["n"])], [vi("y", T.INT4, ["n"])], opset=21, ir=10)
    save("unknown_op", [h.make_node("NoSuchOp", ["x"], ["y"], domain="nowhere")], [vi("x", FLOAT, ["n"])], [vi("y", FLOAT, ["n"])],
         domains=[h.make_opsetid("nowhere", 1)], check=False)


def folded(name, shape, scale):
    """Nodes that the optimiser folds into pseudo-random weights: a large tensor from a small file."""
    n, start = int(np.prod(shape)), 1000 * sum(map(ord, name))  # so that equal shapes aren't one tensor to the optimiser
    return [h.make_node("Constant", [], [name + "_0"], value=const("", np.int64(start))), h.make_node("Constant", [], [name + "_n"], value=const("", np.int64(start + n))),
            h.make_node("Constant", [], [name + "_1"], value=const("", np.int64(1))), h.make_node("Range", [name + "_0", name + "_n", name + "_1"], [name + "_i"]),
            h.make_node("Cast", [name + "_i"], [name + "_f"], to=FLOAT), h.make_node("Sin", [name + "_f"], [name + "_s"]),
            h.make_node("Constant", [], [name + "_scale"], value=const("", np.float32(scale))), h.make_node("Mul", [name + "_s", name + "_scale"], [name + "_m"]),
            h.make_node("Constant", [], [name + "_shape"], value=const("", np.int64(shape))), h.make_node("Reshape", [name + "_m", name + "_shape"], [name])]


def work():
    """About a millisecond of convolutions on one core at batch 1, and a multilayer perceptron of 4 MB: for measuring."""
    nodes, at, channels = [], "x", 3
    for i, out in enumerate((32, 32, 64)):
        nodes += folded(f"w{i}", (out, channels, 3, 3), 0.1)
        nodes += [h.make_node("Conv", [at, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1], strides=[2, 2] if i else [1, 1]), h.make_node("Relu", [f"c{i}"], [f"r{i}"])]
        at, channels = f"r{i}", out
    nodes += [h.make_node("GlobalAveragePool", [at], ["g"]), h.make_node("Flatten", ["g"], ["y"])]
    save("conv", nodes, [vi("x", FLOAT, ["batch", 3, 56, 56])], [vi("y", FLOAT, ["batch", 64])])
    nodes, at = [], "x"
    for i in range(4):
        nodes += folded(f"w{i}", (512, 512), 0.05)
        nodes += [h.make_node("MatMul", [at, f"w{i}"], [f"m{i}"]), h.make_node("Tanh", [f"m{i}"], [f"t{i}" if i < 3 else "y"])]
        at = f"t{i}"
    save("mlp", nodes, [vi("x", FLOAT, ["batch", 512])], [vi("y", FLOAT, ["batch", 512])])


for make in (simple, zoo, shapes, failing, slow, optional, external, refused, work):
    make()
