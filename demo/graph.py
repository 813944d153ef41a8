"""graph.py: a small writer of ONNX graphs, enough to put file parsing in front of a trained model and words behind it.

A `Graph` starts empty or from a loaded model; each method adds one node and returns the name of its output. Constants
may be given as Python numbers or lists (int64), or numpy arrays.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20  # StringConcat
STRING, INT64, FLOAT, UINT8, BOOL = (TensorProto.STRING, TensorProto.INT64, TensorProto.FLOAT, TensorProto.UINT8,
                                     TensorProto.BOOL)


class Graph:
    def __init__(self, prefix=""):
        self.nodes, self.initializers, self.count, self.prefix = [], [], 0, prefix

    def fresh(self, what):
        self.count += 1
        return f"{self.prefix}{what}_{self.count}"

    def const(self, value):
        if isinstance(value, str):
            return value  # already a name
        name = self.fresh("const")
        array = np.asarray(value, dtype=np.int64) if isinstance(value, (int, list)) else value
        if array.dtype == object:
            tensor = helper.make_tensor(name, STRING, array.shape, [s.encode() for s in array.ravel()])
        else:
            tensor = numpy_helper.from_array(np.ascontiguousarray(array), name)
        self.initializers.append(tensor)
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [self.fresh(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, [self.const(i) for i in inputs], names, **attributes))
        return names[0] if outputs == 1 else names

    def words(self, *texts):
        return self.const(np.array(texts, dtype=object))

    def cast(self, x, to):
        return self.op("Cast", x, to=to)

    def slice(self, x, start, end, axis=0, step=1):
        """x[start:end:step] along one axis; start and end are names of 1-element tensors or numbers."""
        return self.op("Slice", x, *[[v] if isinstance(v, int) else v for v in (start, end, axis, step)])

    def length(self, x, axis):
        """The size of one axis, as a 1-element tensor."""
        return self.slice(self.op("Shape", x), axis, axis + 1)

    def number_at(self, data, offset, size):
        """The little-endian unsigned number of `size` bytes at `offset` of a UINT8 vector, as a 1-element tensor."""
        digits = self.cast(self.slice(data, offset, offset + size), INT64)
        return self.op("ReduceSum", self.op("Mul", digits, [256**i for i in range(size)]), [0], keepdims=1)

    def join(self, *parts):
        """The strings of one-element tensors, one after the other."""
        out = parts[0]
        for part in parts[1:]:
            out = self.op("StringConcat", out, part)
        return out

    def include(self, model, bindings):
        """All of another model's graph, its inputs bound to names of this graph; returns the names of its outputs."""
        model = onnx.version_converter.convert_version(model, OPSET)
        tag = self.fresh("net") + "/"
        g = model.graph
        rename = {i.name: bindings[i.name] for i in g.input if i.name in bindings}

        def name_of(n):
            return n if not n else rename.get(n, tag + n)

        for initializer in g.initializer:
            initializer.name = name_of(initializer.name)
            self.initializers.append(initializer)
        for node in g.node:
            if any(a.HasField("g") for a in node.attribute):
                raise ValueError(f"{node.op_type} holds a sub-graph, which include() does not rename")
            node.input[:] = [name_of(n) for n in node.input]
            node.output[:] = [name_of(n) for n in node.output]
            node.name = ""
            self.nodes.append(node)
        return [name_of(o.name) for o in g.output]

    def model(self, inputs, outputs, doc):
        """inputs, outputs: [(public name, element type, dims)], an output as (public name, type, dims, name here)."""
        for name, _, _, here in outputs:
            self.nodes.append(helper.make_node("Identity", [here], [name]))
        graph = helper.make_graph(self.nodes, "inferd_demo", [helper.make_tensor_value_info(n, t, d) for n, t, d in inputs],
                                  [helper.make_tensor_value_info(n, t, d) for n, t, d, _ in outputs], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, doc_string=doc)
        onnx.checker.check_model(model)
        return model
