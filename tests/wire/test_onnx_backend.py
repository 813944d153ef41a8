"""test_onnx_backend.py: every case of the ONNX backend test data through the wire, in JSON, in binary and over gRPC.

Whatever ONNX Runtime itself gets right must be right here; the others are in onnx_backend_exceptions.txt with reasons. JSON, binary and gRPC
answers of one request must agree bit for bit, whatever the expected value.
"""
import json

import grpc
import numpy as np
import pytest
import requests
from tritonclient.grpc import service_pb2, service_pb2_grpc

import onnx_backend
from inferd_server import Server, wait_until

pytestmark = [pytest.mark.onnx, pytest.mark.timeout(600)]
CASES = onnx_backend.cases()
EXCEPTIONS = onnx_backend.exceptions()
SERVED = [name for name in CASES if name not in EXCEPTIONS]
DTYPES = {v: k for k, v in onnx_backend.KSERVE.items()}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server with all of them. max_batch_size 0: these models are no batch models, whatever their dims are called."""
    root = tmp_path_factory.mktemp("onnx")
    for name in SERVED:
        version = root / name / "1"
        version.mkdir(parents=True)
        for file in CASES[name].iterdir():
            if file.is_file():
                (version / file.name).write_bytes(file.read_bytes())
        (root / name / "model.yaml").write_text("max_batch_size: 0\n")
    with Server(root, wait=None) as s:
        s.wait_ready(400)
        with grpc.insecure_channel(s.grpc_address, options=[("grpc.max_receive_message_length", -1)]) as channel:
            s.stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            yield s


def to_bytes(array):
    if array.dtype != object:
        return np.ascontiguousarray(array).tobytes()
    words = [w.encode() for w in array.ravel()]
    return b"".join(len(w).to_bytes(4, "little") + w for w in words)


def from_bytes(raw, datatype, shape):
    if datatype != "BYTES":
        return np.frombuffer(raw, np.dtype(DTYPES[datatype])).reshape(shape)
    words, at = [], 0
    while at < len(raw):
        n = int.from_bytes(raw[at:at + 4], "little")
        words.append(raw[at + 4:at + 4 + n].decode())
        at += 4 + n
    return np.array(words, object).reshape(shape)


def head_of(name, array):
    return {"name": name, "datatype": onnx_backend.KSERVE[str(array.dtype)], "shape": list(array.shape)}


def binary_infer(url, inputs):
    tails = [to_bytes(a) for a in inputs.values()]
    head = json.dumps({"inputs": [{**head_of(n, a), "parameters": {"binary_data_size": len(t)}}
                                  for (n, a), t in zip(inputs.items(), tails)],
                       "parameters": {"binary_data_output": True}}).encode()
    r = requests.post(url, data=head + b"".join(tails), headers={"Inference-Header-Content-Length": str(len(head))})
    assert r.status_code == 200, r.text
    at = int(r.headers["Inference-Header-Content-Length"])
    outputs = {}
    body = r.content
    for o in json.loads(body[:at])["outputs"]:
        n = o["parameters"]["binary_data_size"]
        outputs[o["name"]] = from_bytes(body[at:at + n], o["datatype"], o["shape"])
        at += n
    assert at == len(body)
    return outputs


def grpc_infer(server, name, inputs):
    tensors = [service_pb2.ModelInferRequest.InferInputTensor(**head_of(n, a)) for n, a in inputs.items()]
    r = server.stub.ModelInfer(service_pb2.ModelInferRequest(model_name=name, inputs=tensors, raw_input_contents=[to_bytes(a) for a in inputs.values()]))
    return {o.name: from_bytes(raw, o.datatype, o.shape) for o, raw in zip(r.outputs, r.raw_output_contents)}


def finite(arrays):
    return all(a.dtype.kind != "f" or np.isfinite(a).all() for a in arrays)


def json_infer(url, inputs):
    body = {"inputs": [{**head_of(n, a), "data": a.ravel().tolist()} for n, a in inputs.items()]}
    return requests.post(url, json=body)


@pytest.mark.parametrize("name", SERVED)
def test_case(server, name):
    url = f"{server.url}/v2/models/{name}/infer"
    for inputs, expected in onnx_backend.data_sets(CASES[name]):
        got = binary_infer(url, inputs)
        for output, want in expected.items():
            assert onnx_backend.same(got[output], want), f"{output}: got {got[output]!r}, expected {want!r}"
        for output, array in grpc_infer(server, name, inputs).items():
            assert same_again(array, got[output]), output
        if not finite(inputs.values()):
            continue  # JSON has no NaN to send
        r = json_infer(url, inputs)
        if not finite(got.values()):
            assert r.status_code == 400 and "binary" in r.json()["error"], r.text
            continue
        assert r.status_code == 200, r.text
        for o in r.json()["outputs"]:
            array = got[o["name"]]
            again = np.array(o["data"], dtype=array.dtype).reshape(o["shape"])
            assert same_again(again, array), o["name"]


def same_again(a, b):
    if b.dtype == object:
        return a.tolist() == b.tolist()
    return a.tobytes() == b.tobytes() or deterministic_enough(a, b)


def deterministic_enough(a, b):
    """Two runs of one model may differ in the last bits where the runtime splits a sum over threads."""
    return a.shape == b.shape and a.dtype.kind == "f" and np.allclose(a, b, rtol=1e-5, atol=1e-7)


def test_what_is_left_out_is_refused_by_name(tmp_path_factory):
    """Models with sequence or optional inputs don't load, and the reason says which tensor and why."""
    names = [n for n, why in EXCEPTIONS.items() if why.startswith("not tensors")][:4]
    root = tmp_path_factory.mktemp("refused")
    for name in names:
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.onnx").write_bytes((CASES[name] / "model.onnx").read_bytes())
    with Server(root, wait=None) as s:
        def refusals():
            rows = requests.post(s.url + "/v2/repository/index").json()
            found = {r["name"]: r["reason"] for r in rows if r["state"] == "UNAVAILABLE" and r.get("reason")}
            return found if len(found) == len(names) else None

        reasons = wait_until(refusals, 60)
        for name in names:
            tensor = EXCEPTIONS[name].split(": ")[1].split(" ")[0]
            assert tensor in reasons[name] and ("sequence" in reasons[name] or "optional" in reasons[name]), reasons[name]
        s.alive()
