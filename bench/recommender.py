"""recommender.py: a recommender of the usual shape, written out as ONNX: what a feed or shop ranks candidates with.

300 categorical and bucketed features, each an embedding table (1,000 x 8) with a small tower of its own; pairwise interactions of the towers'
outputs (factorisation machine); 4 experts and 3 task gates over the concatenation (multi-gate mixture of experts, Ma et al. 2018).
Random weights: speed doesn't depend on them. Many small operators: one row costs almost what a hundred do, which is why such
models are batched in production.
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FEATURES, ROWS, WIDTH, EXPERTS, TASKS, HIDDEN = 300, 1_000, 8, 4, 3, 32


class Graph:
    def __init__(self):
        self.rng, self.nodes, self.weights, self.n = np.random.default_rng(7), [], [], 0

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        array = (self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def const(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind, *inputs, **attributes):
        self.n += 1
        name = f"t{self.n}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def dense(self, x, n_in, n_out, relu=True):
        x = self.op("Gemm", x, self.weight(n_in, n_out), self.weight(n_out))
        return self.op("Relu", x) if relu else x


def recommender():
    g = Graph()
    towers = []
    for f in range(FEATURES):
        index = g.op("Gather", "ids", g.const(np.array(f, np.int64)), axis=1)
        x = g.op("Gather", g.weight(ROWS, WIDTH), index, axis=0)
        x = g.dense(g.dense(x, WIDTH, WIDTH), WIDTH, WIDTH)
        towers.append(x)
    wide = g.op("Concat", *towers, axis=1)
    total = g.op("Sum", *towers)
    squares = g.op("Sum", *[g.op("Mul", t, t) for t in towers])
    fm = g.op("Sub", g.op("Mul", total, total), squares)  # 2 x the sum of pairwise products
    x, n = g.op("Concat", wide, fm, axis=1), FEATURES * WIDTH + WIDTH
    experts = [g.op("Unsqueeze", g.dense(g.dense(x, n, HIDDEN), HIDDEN, HIDDEN), g.const(np.array([1], np.int64))) for _ in range(EXPERTS)]
    stacked = g.op("Concat", *experts, axis=1)  # [batch, experts, hidden]
    outputs = []
    for task in range(TASKS):
        gate = g.op("Softmax", g.dense(x, n, EXPERTS, relu=False), axis=1)
        mixed = g.op("MatMul", g.op("Unsqueeze", gate, g.const(np.array([1], np.int64))), stacked)
        mixed = g.op("Squeeze", mixed, g.const(np.array([1], np.int64)))
        outputs.append(g.op("Sigmoid", g.dense(g.dense(mixed, HIDDEN, 32), 32, 1, relu=False)))
    g.nodes.append(helper.make_node("Concat", outputs, ["scores"], axis=1))
    graph = helper.make_graph(g.nodes, "recommender", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", FEATURES])],
                              [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", TASKS])], g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(repository, max_batch=256):
    folder = pathlib.Path(repository) / "recommender" / "1"
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(recommender(), folder / "model.onnx")
    (folder.parent / "model.yaml").write_text(f"max_batch_size: {max_batch}\n")
    return folder / "model.onnx"


if __name__ == "__main__":
    print(write(sys.argv[1]))
