"""load_beside.py: what loading and unloading a large model does to another model's latency, in the same server.

Budget (issue 2, section 4): p99 of a served model while another is loaded again and again <= 1.5 x its p99 alone. The server has one
core, the load tool the other: the loads compete for the server's own core, which is the hardest case.
"""
import threading

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from common import *

need("wrk")
ROUNDS, PORT, SECONDS = 5, 18450, 4


def mlp(path, width, layers):
    """relu(x W) repeated: a model of layers x width x width weights."""
    rng = numpy.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for i in range(layers):
        weights.append(numpy_helper.from_array(rng.standard_normal((width, width), dtype=numpy.float32) / width ** 0.5, f"w{i}"))
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]), helper.make_node("Relu", [f"m{i}"], [f"r{i}"])]
        last = f"r{i}"
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    io = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", width]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "mlp", io[:1], io[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True)
    onnx.save(model, path)


def control(model, what):
    url = f"http://127.0.0.1:{PORT + 3}/v2/repository/models/{model}/{what}?wait"
    urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=120).read()


def reloading(stop, counter):
    while not stop.is_set():
        control("large", "load")
        control("large", "unload")
        counter.append(1)


with tempfile.TemporaryDirectory() as folder:
    repository = pathlib.Path(folder)
    mlp(repository / "small" / "1" / "model.onnx", 512, 4)
    mlp(repository / "large" / "1" / "model.onnx", 2048, 12)  # 200 MB
    body, headers = binary_request([("x", "FP32", [1, 512], floats(512))])
    script = wrk_script("/v2/models/small/infer", body, headers)
    with inferd(repository, PORT, "--repository.mode=explicit", "--repository.load=small",
                f"--admin.listen=127.0.0.1:{PORT + 3}") as server:
        loads = []

        def alone():
            return wrk(PORT, script, 4, SECONDS)

        def beside():
            stop = threading.Event()
            thread = threading.Thread(target=reloading, args=(stop, loads))
            thread.start()
            result = wrk(PORT, script, 4, SECONDS)
            stop.set()
            thread.join()
            return result

        a, b = alternate(ROUNDS, alone, beside)
        errors = sum(r["errors"] for r in a + b)
        report("load_beside p99 while another model loads / alone", median(b, "p99_us") / median(a, "p99_us"), 1.5, "at most",
               f"{median(b, 'p99_us') / 1e3:.2f} ms and {median(a, 'p99_us') / 1e3:.2f} ms, {len(loads)} loads of 200 MB, {errors} errors")
        report("load_beside p50 while another model loads / alone", median(b, "p50_us") / median(a, "p50_us"), 1.5, "at most")
