"""test_grpc.py: KServe v2 over gRPC as its own clients see it: tritonclient (sync) and raw grpcio stubs made from the health and reflection
packages' and Triton's own schema. Values are computed here or asked of the HTTP face, which has its own tests."""
import concurrent.futures as futures
import json
import time

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from inferd_server import SIMPLE, Server, wait_until, write_fake

A = np.arange(16, dtype=np.int32).reshape(1, 16)
ECHO = "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] copy X\n"


def triton_inputs(**arrays):
    made = []
    for name, value in arrays.items():
        t = triton.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
        t.set_data_from_numpy(value)
        made.append(t)
    return made


def tensor(name, datatype, shape, **contents):
    t = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    if contents:
        t.contents.CopyFrom(pb.InferTensorContents(**contents))
    return t


def echo_request(model, *values, **more):
    return pb.ModelInferRequest(model_name=model, inputs=[tensor("X", "INT32", [len(values), 1], int_contents=values)], **more)


@pytest.fixture(scope="module")
def client(simple_server):
    with triton.InferenceServerClient(simple_server.grpc_address) as c:
        yield c


@pytest.fixture(scope="module")
def stub(simple_server):
    with grpc.insecure_channel(simple_server.grpc_address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def refused(call, code, *words):
    with pytest.raises(grpc.RpcError) as e:
        call()
    assert e.value.code() == code, (e.value.code(), e.value.details())
    for w in words:
        assert w in e.value.details(), e.value.details()
    return e.value


# ---- what the server and its models are ----

def test_health_and_metadata(client, simple_server):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("simple")
    assert client.is_model_ready("simple", "1")
    assert not client.is_model_ready("no-such") and not client.is_model_ready("simple", "7")
    assert client.get_server_metadata(as_json=True) == requests.get(simple_server.url + "/v2").json()
    got = client.get_model_metadata("simple")
    want = requests.get(simple_server.url + "/v2/models/simple").json()
    assert got.name == want["name"] and list(got.versions) == want["versions"] and got.platform == want["platform"]
    for mine, theirs in ((got.inputs, want["inputs"]), (got.outputs, want["outputs"])):
        assert [(t.name, t.datatype, list(t.shape)) for t in mine] == [(t["name"], t["datatype"], t["shape"]) for t in theirs]


@pytest.mark.parametrize("config", [
    "", "max_batch_size: 8\n",
    "version_policy: {all: {}}\n", "version_policy: {specific: {versions: [1]}}\n",
    "max_batch_size: 16\ndynamic_batching: {preferred_batch_size: [4, 8], max_queue_delay_microseconds: 100, priority_levels: 3, "
    "default_priority_level: 2, default_queue_policy: {timeout_action: DELAY, max_queue_size: 7}, "
    "priority_queue_policy: {1: {allow_timeout_override: true}}}\ninstance_group: {count: 2}\n",
    "max_batch_size: 4\nmodel_warmup: [{name: w, batch_size: 2, count: 3, inputs: {INPUT0: {data_type: TYPE_INT32, dims: [16], "
    "zero_data: true}, INPUT1: {data_type: TYPE_INT32, dims: [16], random_data: true}}}]\nresponse_cache: {enable: true}\n"
    "parameters: {note: 'x'}\n",
])
def test_model_config_is_the_one_that_http_gives(repository, config):
    """Both answers as protobuf's own JSON of Triton's message: each field has its place and its value."""
    write_fake(repository, "simple", SIMPLE, config=config or None)
    with Server(repository) as server, triton.InferenceServerClient(server.grpc_address) as c:
        got = c.get_model_config("simple").config
        want = type(got)()
        json_format.ParseDict(requests.get(server.url + "/v2/models/simple/config").json(), want)
        assert got == want


def test_statistics(client, simple_server):
    client.infer("simple", triton_inputs(INPUT0=A, INPUT1=A))
    got = client.get_inference_statistics("simple", "1", as_json=True)["model_stats"]
    want = requests.get(simple_server.url + "/v2/models/simple/versions/1/stats").json()["model_stats"]
    assert len(got) == 1 and got[0]["name"] == "simple" and got[0]["version"] == "1"
    for key in ("inference_count", "execution_count", "last_inference"):
        assert int(got[0][key]) == want[0][key]
    for phase, d in want[0]["inference_stats"].items():
        mine = got[0]["inference_stats"].get(phase, {})
        assert int(mine.get("count", 0)) == d["count"] and int(mine.get("ns", 0)) == d["ns"], phase
    assert [int(b["batch_size"]) for b in got[0]["batch_stats"]] == [b["batch_size"] for b in want[0]["batch_stats"]]
    everything = client.get_inference_statistics().model_stats
    assert {m.name for m in everything} == {m["name"] for m in requests.get(simple_server.url + "/v2/models/stats").json()["model_stats"]}


def test_repository_index(client, simple_server):
    got = client.get_model_repository_index(as_json=True)["models"]
    want = requests.post(simple_server.url + "/v2/repository/index").json()
    assert sorted(got, key=lambda m: m["name"]) == sorted(want, key=lambda m: m["name"])


def test_load_and_unload(repository):
    write_fake(repository, "simple", SIMPLE)
    with Server(repository, args=["--repository.mode=explicit"]) as server, triton.InferenceServerClient(server.grpc_address) as c:
        assert "model_repository" in c.get_server_metadata().extensions
        assert not c.is_model_ready("simple")
        c.load_model("simple", config=json.dumps({"max_batch_size": 3}))
        assert c.is_model_ready("simple") and c.get_model_config("simple").config.max_batch_size == 3
        c.unload_model("simple")
        assert not c.is_model_ready("simple")
        for call, word in ((lambda: c.load_model("no-such"), "NOT_FOUND"), (lambda: c.load_model("simple", config="{"), "INVALID"),
                           (lambda: c.load_model("simple", files={"file:1/model.onnx": b"x"}, config="{}"), "not accepted over the API")):
            with pytest.raises(InferenceServerException) as e:
                call()
            assert word in str(e.value)
    with Server(repository) as server, triton.InferenceServerClient(server.grpc_address) as c:
        with pytest.raises(InferenceServerException) as e:
            c.unload_model("simple")
        assert "FAILED_PRECONDITION" in str(e.value)


# ---- inference ----

def test_raw_tensors(client):
    outputs = [triton.InferRequestedOutput("OUTPUT1"), triton.InferRequestedOutput("OUTPUT0")]
    r = client.infer("simple", triton_inputs(INPUT0=A + 7, INPUT1=A), request_id="id-1", outputs=outputs, model_version="1")
    assert (r.as_numpy("OUTPUT0") == 2 * A + 7).all() and (r.as_numpy("OUTPUT1") == np.full((1, 16), 7)).all()
    reply = r.get_response()
    assert reply.id == "id-1" and reply.model_name == "simple" and reply.model_version == "1"
    assert [o.name for o in reply.outputs] == ["OUTPUT1", "OUTPUT0"]  # as asked
    r = client.infer("simple", triton_inputs(INPUT0=A, INPUT1=A), outputs=[triton.InferRequestedOutput("OUTPUT0")])
    assert r.as_numpy("OUTPUT1") is None


@pytest.mark.parametrize("model,array", [
    ("wide", np.array([[-(1 << 63), (1 << 63) - 1, 0]], np.int64)), ("unsigned", np.array([[0, (1 << 64) - 1]], np.uint64)),
    ("real", np.array([[1.5, np.nan, -np.inf, 3e38]], np.float32)), ("half", np.array([[1.5, np.inf, -2]], np.float16)),
    ("flags", np.array([[True, False, True]])), ("text", np.array([[b"caf\xc3\xa9", b"", b"\xff\x00"]], object)),
    ("wide", np.zeros((2, 0), np.int64)),
])
def test_dtypes_raw(client, model, array):
    got = client.infer(model, triton_inputs(X=array)).as_numpy("Y")
    assert got.dtype == array.dtype and got.shape == array.shape
    assert got.tobytes() == array.tobytes() if array.dtype != object else (got == array).all()


@pytest.mark.parametrize("model,datatype,field,values,raw", [
    ("flags", "BOOL", "bool_contents", [True, False], b"\1\0"), ("wide", "INT64", "int64_contents", [-5, 1 << 62], None),
    ("unsigned", "UINT64", "uint64_contents", [0, (1 << 64) - 1], None), ("real", "FP32", "fp32_contents", [1.5, -0.25], None),
    ("text", "BYTES", "bytes_contents", [b"a", b"\xff"], b"\1\0\0\0a\1\0\0\0\xff"),
])
def test_dtypes_typed(stub, model, datatype, field, values, raw):
    r = stub.ModelInfer(pb.ModelInferRequest(model_name=model, inputs=[tensor("X", datatype, [1, len(values)], **{field: values})]))
    if raw is None:
        raw = np.array(values, {"INT64": np.int64, "UINT64": np.uint64, "FP32": np.float32}[datatype]).tobytes()
    assert list(r.raw_output_contents) == [raw] and not r.outputs[0].HasField("contents")
    assert list(r.outputs[0].shape) == [1, len(values)] and r.outputs[0].datatype == datatype


def test_classification(client):
    x = np.array([[0.25, 4, -1, 4]], np.float32)
    r = client.infer("real", triton_inputs(X=x), outputs=[triton.InferRequestedOutput("Y", class_count=3)])
    assert [w.decode() for w in r.as_numpy("Y").ravel()] == ["4.000000:1", "4.000000:3", "0.250000:0"]


def test_large_tensors_both_ways(client):
    """More than any window and any slab: 12 MB."""
    x = np.random.default_rng(1).integers(-9, 9, (3, 500_000)).astype(np.int64)
    got = client.infer("wide", triton_inputs(X=x)).as_numpy("Y")
    assert (got == x).all()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression_both_ways(simple_server, algorithm):
    x = np.random.default_rng(2).integers(0, 9, (1, 200_000)).astype(np.int64)
    with triton.InferenceServerClient(simple_server.grpc_address) as c:
        assert (c.infer("wide", triton_inputs(X=x), compression_algorithm=algorithm).as_numpy("Y") == x).all()
        assert (c.infer("simple", triton_inputs(INPUT0=A, INPUT1=A), compression_algorithm=algorithm).as_numpy("OUTPUT0") == 2 * A).all()


def test_x_request_id_comes_back(stub):
    _, call = stub.ServerLive.with_call(pb.ServerLiveRequest(), metadata=[("x-request-id", "abc-1")])
    assert dict(call.initial_metadata())["x-request-id"] == "abc-1"


# ---- what is refused, and how ----

REFUSED = {
    "unknown model": (pb.ModelInferRequest(model_name="no-such"), grpc.StatusCode.NOT_FOUND, ["no-such"]),
    "unknown version": (pb.ModelInferRequest(model_name="simple", model_version="9"), grpc.StatusCode.NOT_FOUND, ["9"]),
    "output name with control characters": (echo_request("wide", 1, outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="a\0b\n\u00e9")]),
                                            grpc.StatusCode.INVALID_ARGUMENT, [r"a\x00b\n" + "\u00e9"]),
    "impossible name": (pb.ModelInferRequest(model_name="../etc"), grpc.StatusCode.NOT_FOUND, ["model name"]),
    "no name": (pb.ModelInferRequest(), grpc.StatusCode.INVALID_ARGUMENT, ["model_name"]),
    "missing input": (pb.ModelInferRequest(model_name="simple", inputs=[tensor("INPUT0", "INT32", [1, 16])], raw_input_contents=[bytes(64)]),
                      grpc.StatusCode.INVALID_ARGUMENT, ["INPUT1"]),
    "unknown output": (echo_request("wide", 1, outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="Z")]),
                       grpc.StatusCode.INVALID_ARGUMENT, ["Z"]),
    "wrong dtype": (echo_request("real", 1), grpc.StatusCode.INVALID_ARGUMENT, ["X", "FP32", "INT32"]),
    "mixed contents": (pb.ModelInferRequest(model_name="simple", inputs=[tensor("INPUT0", "INT32", [1, 16]),
                                                                         tensor("INPUT1", "INT32", [1, 16], int_contents=range(16))],
                                            raw_input_contents=[bytes(64), bytes(64)]),
                       grpc.StatusCode.INVALID_ARGUMENT, ["INPUT1", "raw_input_contents"]),
    "sequence": (echo_request("wide", 1, parameters={"sequence_id": pb.InferParameter(int64_param=3)}),
                 grpc.StatusCode.INVALID_ARGUMENT, ["sequence_id"]),
    "shared memory": (pb.ModelInferRequest(model_name="wide", inputs=[pb.ModelInferRequest.InferInputTensor(
        name="X", datatype="INT64", shape=[1, 1], parameters={"shared_memory_region": pb.InferParameter(string_param="r")})]),
        grpc.StatusCode.INVALID_ARGUMENT, ["shared_memory_region"]),
    "priority": (echo_request("wide", 1, parameters={"priority": pb.InferParameter(string_param="high")}),
                 grpc.StatusCode.INVALID_ARGUMENT, ["priority"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(stub, simple_server, name):
    request, code, words = REFUSED[name]
    refused(lambda: stub.ModelInfer(request), code, *words)
    simple_server.alive()


def test_messages_are_percent_encoded(stub):
    """grpcio decodes them; what comes out is what the model's name was, and no header was injected."""
    e = refused(lambda: stub.ModelInfer(pb.ModelInferRequest(model_name="real", inputs=[tensor("caf\u00e9\r\nx: 50%", "FP32", [1, 1],
                                                                                              fp32_contents=[1])])),
                grpc.StatusCode.INVALID_ARGUMENT)
    assert "caf\u00e9" in e.details() and "50%" in e.details()


def test_unknown_methods(simple_server):
    with grpc.insecure_channel(simple_server.grpc_address) as channel:
        for path in ("/inference.GRPCInferenceService/NoSuch", "/no.Service/Method", "/inference.GRPCInferenceService",
                     "/inference.GRPCInferenceService/ModelInfer/x", "/v2/health/live"):
            refused(lambda: channel.unary_unary(path)(b""), grpc.StatusCode.UNIMPLEMENTED)
        # Triton's that inferd has not
        s = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        refused(lambda: s.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest()), grpc.StatusCode.UNIMPLEMENTED)
        refused(lambda: s.LogSettings(pb.LogSettingsRequest()), grpc.StatusCode.UNIMPLEMENTED)


def test_message_size_limits(repository):
    write_fake(repository, "wide", "input = X INT64 [-1,n]\noutput = Y INT64 [-1,n] copy X\n")
    with Server(repository, args=["--limits.max_body_bytes=64KiB"]) as server:
        with grpc.insecure_channel(server.grpc_address) as channel:
            s = service_pb2_grpc.GRPCInferenceServiceStub(channel)

            def ask(n, **kw):
                return s.ModelInfer(pb.ModelInferRequest(model_name="wide", inputs=[tensor("X", "INT64", [1, n])],
                                                         raw_input_contents=[bytes(8 * n)]), **kw)

            assert len(ask(8000).raw_output_contents[0]) == 64000
            refused(lambda: ask(9000), grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than")
            # decompressed it is as large, however small it comes
            refused(lambda: ask(9000, compression=grpc.Compression.Gzip), grpc.StatusCode.RESOURCE_EXHAUSTED)
            assert len(ask(8000, compression=grpc.Compression.Gzip).raw_output_contents[0]) == 64000
            calls = iter([pb.ModelInferRequest(model_name="wide", inputs=[tensor("X", "INT64", [1, 9000])], raw_input_contents=[bytes(72000)])])
            refused(lambda: list(s.ModelStreamInfer(calls)), grpc.StatusCode.RESOURCE_EXHAUSTED, "72")
        server.alive()


# ---- deadlines and cancellation ----

@pytest.fixture
def slow(repository):
    write_fake(repository, "slow", ECHO + "base_us = 1000000\n", config="max_batch_size: 1\n")
    with Server(repository) as server, grpc.insecure_channel(server.grpc_address) as channel:
        server.stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        yield server


def in_flight(server):
    return requests.get(server.admin_url + "/admin/status").json()["in_flight"]


def test_deadlines(slow):
    first = slow.stub.ModelInfer.future(echo_request("slow", 1))
    wait_until(lambda: in_flight(slow) == 1, what="first runs")
    # by metadata, so that grpcio's own clock doesn't end the call before the server does
    e = refused(lambda: slow.stub.ModelInfer(echo_request("slow", 2), metadata=[("x-inferd-timeout-ms", "150")]),
                grpc.StatusCode.DEADLINE_EXCEEDED)
    assert e.details() and not first.done()
    refused(lambda: slow.stub.ModelInfer(echo_request("slow", 2), timeout=0.15), grpc.StatusCode.DEADLINE_EXCEEDED)
    refused(lambda: slow.stub.ModelInfer(echo_request("slow", 2, parameters={"timeout": pb.InferParameter(int64_param=100_000)})),
            grpc.StatusCode.DEADLINE_EXCEEDED)
    assert first.result().raw_output_contents[0] == b"\1\0\0\0"
    # grpcio cancels at its own deadline, which may come before the server's
    wait_until(lambda: slow.metric("inferd_deadline_total", model="slow") in (2, 3), what="counted")
    slow.wait_metric("inferd_requests_total", 1, model="slow", protocol="grpc", status="ok")


def test_grpc_timeout_itself_is_a_deadline(slow):
    """grpcio doesn't let it be set without a clock of its own, so it is sent by hand."""
    from http2_raw import Http2

    first = slow.stub.ModelInfer.future(echo_request("slow", 1))
    wait_until(lambda: in_flight(slow) == 1, what="first runs")
    message = echo_request("slow", 2).SerializeToString()
    with Http2(slow) as c:
        for value, code in (("120m", "4"), ("1x", "3"), ("123456789S", "3"), ("0S", "4")):
            head, stream = c.head("POST", "/inference.GRPCInferenceService/ModelInfer", end=False,
                                  extra=[("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", value)])
            start = time.monotonic()
            c.send(head, c.data(stream, b"\0" + len(message).to_bytes(4, "big") + message, end=True))
            fields = c.wait(lambda f: f.stream_id == stream).fields
            assert fields[":status"] == "200" and fields["grpc-status"] == code, (value, fields)
            assert time.monotonic() - start < 0.9
    first.result()


def test_cancelled_while_queued_and_while_running(slow):
    first = slow.stub.ModelInfer.future(echo_request("slow", 1))
    wait_until(lambda: in_flight(slow) == 1, what="first runs")
    second = slow.stub.ModelInfer.future(echo_request("slow", 2))
    wait_until(lambda: in_flight(slow) == 2, what="second waits")
    second.cancel()
    wait_until(lambda: in_flight(slow) == 1, what="the queued one is gone")
    first.cancel()
    wait_until(lambda: in_flight(slow) == 0, what="the running one is stopped")
    wait_until(lambda: slow.metric("inferd_api_requests_total", protocol="grpc", route="grpc_model_infer", code="1") == 2, what="neither ended by itself")
    assert slow.stub.ModelInfer(echo_request("slow", 3)).raw_output_contents[0] == b"\3\0\0\0"


def test_full_queue_is_resource_exhausted(repository):
    write_fake(repository, "slow", ECHO + "base_us = 300000\n", config="max_batch_size: 1\nmax_queue_rows: 2\n")
    with Server(repository) as server, grpc.insecure_channel(server.grpc_address) as channel:
        s = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        calls = [s.ModelInfer.future(echo_request("slow", i)) for i in range(12)]
        codes = [c.code() for c in calls]
        full = [c for c in calls if c.code() == grpc.StatusCode.RESOURCE_EXHAUSTED]
        assert full and codes.count(grpc.StatusCode.OK) >= 2 and len(full) + codes.count(grpc.StatusCode.OK) == 12
        assert int(dict(full[0].trailing_metadata())["grpc-retry-pushback-ms"]) >= 1000


# ---- one port, many protocols; what is counted and logged ----

def test_both_ports_take_both_protocols(simple_server):
    with triton.InferenceServerClient(simple_server.address) as c:  # the HTTP port
        assert (c.infer("simple", triton_inputs(INPUT0=A, INPUT1=A)).as_numpy("OUTPUT0") == 2 * A).all()
    assert requests.get(f"http://{simple_server.grpc_address}/v2/health/ready").status_code == 200


def test_over_http1_it_is_no_grpc(simple_server):
    r = requests.post(simple_server.url + "/inference.GRPCInferenceService/ModelInfer", data=b"\0\0\0\0\0",
                      headers={"content-type": "application/grpc"})
    assert r.status_code == 404


def test_counted_and_logged_as_grpc(repository, tmp_path):
    write_fake(repository, "simple", SIMPLE)
    log = tmp_path / "access"
    with Server(repository, args=[f"--access_log.file={log}", "--access_log.format=json"]) as server:
        with triton.InferenceServerClient(server.grpc_address) as c:
            c.infer("simple", triton_inputs(INPUT0=A, INPUT1=A), headers={"x-request-id": "r-1"})
            with pytest.raises(InferenceServerException):
                c.infer("nothing", triton_inputs(INPUT0=A), headers={"x-request-id": "r-2"})
            with pytest.raises(InferenceServerException):
                c.get_log_settings()
            done = []
            c.start_stream(lambda result, error: done.append(error), headers={"x-request-id": "r-3"})
            c.async_stream_infer("simple", triton_inputs(INPUT0=A, INPUT1=A))
            c.stop_stream()
            assert done == [None]
        count = lambda route, code: server.metric("inferd_api_requests_total", protocol="grpc", route=route, code=code)
        wait_until(lambda: count("grpc_model_infer", "0") == 1 and count("grpc_model_infer", "5") == 1 and count("grpc_none", "12") == 1)
        server.wait_metric("inferd_requests_total", 2, model="simple", protocol="grpc", status="ok")
        wait_until(lambda: log.exists() and log.read_text().count("\n") >= 4, what="four lines")
    lines = {l.get("id"): l for l in map(json.loads, log.read_text().splitlines()) if l["protocol"] == "grpc"}
    assert len(lines) == 4
    ok, bad, stream = lines["r-1"], lines["r-2"], lines["r-3"]
    assert (stream["path"], stream["status"], stream["model"]) == ("/inference.GRPCInferenceService/ModelStreamInfer", 200, "simple")
    assert (ok["path"], ok["status"], ok["model"], ok["version"]) == ("/inference.GRPCInferenceService/ModelInfer", 200, "simple", "1")
    assert bad["status"] == 404 and bad["error"] == "not_found"


# ---- health ----

def test_health_check(simple_server):
    with grpc.insecure_channel(simple_server.grpc_address) as channel:
        h = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in ("", "inference.GRPCInferenceService", "grpc.health.v1.Health", "simple"):
            assert h.Check(health_pb2.HealthCheckRequest(service=service)).status == serving, service
        refused(lambda: h.Check(health_pb2.HealthCheckRequest(service="no.such")), grpc.StatusCode.NOT_FOUND)


def test_health_watch(repository):
    write_fake(repository, "simple", SIMPLE)
    R = health_pb2.HealthCheckResponse
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=simple"]) as server:
        with grpc.insecure_channel(server.grpc_address) as channel, triton.InferenceServerClient(server.grpc_address) as c:
            h = health_pb2_grpc.HealthStub(channel)
            model = h.Watch(health_pb2.HealthCheckRequest(service="simple"))
            assert next(model).status == R.SERVING
            c.unload_model("simple")
            assert next(model).status in (R.NOT_SERVING, R.SERVICE_UNKNOWN)
            c.load_model("simple")
            while (status := next(model).status) != R.SERVING:
                assert status in (R.NOT_SERVING, R.SERVICE_UNKNOWN)
            assert next(h.Watch(health_pb2.HealthCheckRequest(service="no.such"))).status == R.SERVICE_UNKNOWN
            limited = h.Watch(health_pb2.HealthCheckRequest(), timeout=0.5)
            assert next(limited).status == R.SERVING
            refused(lambda: next(limited), grpc.StatusCode.DEADLINE_EXCEEDED)
            model.cancel()


def test_stopping_ends_watches_and_finishes_calls(repository):
    write_fake(repository, "slow", ECHO + "base_us = 600000\n")
    server = Server(repository, args=["--shutdown.grace=700ms"])
    with server, grpc.insecure_channel(server.grpc_address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        idle = stub.ModelStreamInfer(iter_forever())
        running = stub.ModelInfer.future(echo_request("slow", 4))
        wait_until(lambda: in_flight(server) == 1, what="it runs")
        with futures.ThreadPoolExecutor() as pool:
            start = time.monotonic()
            stopped = pool.submit(server.stop)
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            assert running.result().raw_output_contents[0] == b"\4\0\0\0"
            refused(lambda: next(watch), grpc.StatusCode.UNAVAILABLE, "stopping")
            refused(lambda: next(idle), grpc.StatusCode.UNAVAILABLE, "stopping")
            stopped.result()
            assert time.monotonic() - start < 10  # the default drain timeout is 30 s


def iter_forever():
    while True:
        time.sleep(0.2)
        if False:
            yield


# ---- every call x every key ----

def test_auth_on_every_method(tmp_path):
    from test_auth_keys import make, routes

    for m in ("simple", "secret"):
        write_fake(tmp_path / "models", m, SIMPLE)
    file = tmp_path / "keys"
    k = {scope: make(file, scope, "-s", scope) for scope in ("infer", "read", "admin")}
    some = make(file, "some", "-s", "infer,read,admin", "-m", "simple")
    rows = [r for r in routes() if r["LISTENERS"] == "grpc"]
    assert len(rows) == 16
    infer = pb.ModelInferRequest(model_name="simple", inputs=[tensor(n, "INT32", [1, 16], int_contents=range(16)) for n in ("INPUT0", "INPUT1")])
    named = pb.ModelReadyRequest(name="simple").SerializeToString()
    bodies = {"grpc_model_infer": infer.SerializeToString(), "grpc_model_stream_infer": infer.SerializeToString(),
              "grpc_repository_load": pb.RepositoryModelLoadRequest(model_name="simple").SerializeToString(),
              "grpc_repository_unload": pb.RepositoryModelUnloadRequest(model_name="simple").SerializeToString()}
    public = ("grpc_server_live", "grpc_server_ready", "grpc_health_check", "grpc_health_watch")
    with Server(tmp_path / "models", args=[f"--auth.keys_file={file}"]) as server, grpc.insecure_channel(server.grpc_address) as channel:
        def ask(row, key, body=None):
            body = bodies.get(row["ROUTE"], b"" if row["ROUTE"] in public or "index" in row["ROUTE"] or "stats" in row["ROUTE"] or
                              "server" in row["ROUTE"] else named) if body is None else body
            metadata = [("authorization", "Bearer " + key)] if key else []
            stream = row["ROUTE"] in ("grpc_model_stream_infer", "grpc_health_watch", "grpc_reflection")
            method = (channel.stream_stream if stream else channel.unary_unary)(row["PATH"])
            try:
                if stream:
                    call = method(iter([body]), metadata=metadata)
                    next(call, None)
                    call.cancel()
                    return grpc.StatusCode.OK
                method(body, metadata=metadata)
                return grpc.StatusCode.OK
            except grpc.RpcError as e:
                return e.code()

        denied = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
        for row in rows:
            for key in (None, "x", k["read"][:-1] + "!"):
                want = (grpc.StatusCode.OK,) if row["ROUTE"] in public else (grpc.StatusCode.UNAUTHENTICATED,)
                assert ask(row, key) in want, (row, key)
            for scope, key in k.items():
                got = ask(row, key)
                if row["ROUTE"] not in public and scope != row["SCOPE"]:
                    assert got == grpc.StatusCode.PERMISSION_DENIED, (row, scope)
                else:
                    assert got not in denied, (row, scope)
        # a hidden model is no model
        s = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        metadata = [("authorization", "Bearer " + some)]
        for call in (lambda m: s.ModelInfer(pb.ModelInferRequest(model_name=m), metadata=metadata),
                     lambda m: s.ModelMetadata(pb.ModelMetadataRequest(name=m), metadata=metadata),
                     lambda m: s.ModelConfig(pb.ModelConfigRequest(name=m), metadata=metadata),
                     lambda m: s.ModelStatistics(pb.ModelStatisticsRequest(name=m), metadata=metadata),
                     lambda m: s.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name=m), metadata=metadata)):
            hidden = refused(lambda: call("secret"), grpc.StatusCode.NOT_FOUND)
            absent = refused(lambda: call("no-such"), grpc.StatusCode.NOT_FOUND)
            assert hidden.details().replace("secret", "M") == absent.details().replace("no-such", "M")
        assert not s.ModelReady(pb.ModelReadyRequest(name="secret"), metadata=metadata).ready
        assert {m.name for m in s.RepositoryIndex(pb.RepositoryIndexRequest(), metadata=metadata).models} == {"simple"}
        assert {m.name for m in s.ModelStatistics(pb.ModelStatisticsRequest(), metadata=metadata).model_stats} == {"simple"}
        stream = s.ModelStreamInfer(iter([pb.ModelInferRequest(model_name="secret", id="7")]), metadata=metadata)
        answer = next(stream)
        assert "secret" in answer.error_message and answer.infer_response.id == "7"
        # nobody is told which models there are
        refused(lambda: health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="simple")), grpc.StatusCode.NOT_FOUND)


# ---- TLS ----

def test_over_tls_with_a_client_certificate(tmp_path):
    from certificates import Authority
    from test_tls import start

    write_fake(tmp_path / "models", "simple", SIMPLE)
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("server", "DNS:localhost,IP:127.0.0.1")
    client = authority.issue("client", "URI:spiffe://test/client", usage="clientAuth")
    with start(tmp_path / "models", [pair], f"--tls.client_ca={authority.ca}", "--tls.client_auth=required") as server:
        for address in (server.grpc_address, server.address):
            with triton.InferenceServerClient(address, ssl=True, root_certificates=str(authority.ca), private_key=str(client[1]),
                                              certificate_chain=str(client[0])) as c:
                assert (c.infer("simple", triton_inputs(INPUT0=A, INPUT1=A)).as_numpy("OUTPUT0") == 2 * A).all()
        nobody = grpc.secure_channel(server.grpc_address, grpc.ssl_channel_credentials(authority.ca.read_bytes()))
        with nobody, pytest.raises(grpc.RpcError) as e:
            service_pb2_grpc.GRPCInferenceServiceStub(nobody).ServerLive(pb.ServerLiveRequest(), timeout=5)
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE
