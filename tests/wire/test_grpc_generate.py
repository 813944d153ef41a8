"""test_grpc_generate.py: language models over gRPC, as Triton's vLLM backend has them, by tritonclient: the scripted model answers with its prompt."""
import json
import queue

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from inferd_server import SIMPLE, Server, write_fake
from test_grpc import A, triton_inputs


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "parrot", "tokens = true\npiece_bytes = 3\n")
    write_fake(root, "broken", "tokens = true\npiece_bytes = 1\nfail_after = 2\n")
    write_fake(root, "endless", "tokens = true\npiece_bytes = 1\npiece_us = 20000\n")
    write_fake(root, "simple", SIMPLE)
    with Server(root) as s:
        yield s


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.grpc_address) as c:
        yield c


def inputs(text, sampling=None, **flags):
    values = [("text_input", "BYTES", np.array([text.encode() if isinstance(text, str) else text], dtype=object))]
    if sampling is not None:
        values.append(("sampling_parameters", "BYTES", np.array([(sampling if isinstance(sampling, str) else json.dumps(sampling)).encode()], dtype=object)))
    values += [(name, "BOOL", np.array([on])) for name, on in flags.items()]
    out = []
    for name, kind, value in values:
        out.append(triton.InferInput(name, [1], kind))
        out[-1].set_data_from_numpy(value)
    return out


def text_of(result, name="text_output"):
    return result.as_numpy(name)[0].decode()


def stream(client, calls):
    """All answers to (model, inputs, id), as (result, error), until the server has ended the stream."""
    got = queue.Queue()
    client.start_stream(lambda result, error: got.put((result, error)))
    for model, given, request_id in calls:
        client.async_stream_infer(model, given, request_id=request_id)
    client.stop_stream()  # half-closes, then waits for the end
    return list(got.queue)


def test_whole_answer(client):
    r = client.infer("parrot", inputs("client input", {"max_tokens": 30}), request_id="42")
    assert text_of(r) == "client input" and r.get_response().id == "42" and r.get_response().model_name == "parrot"
    assert [o.name for o in r.get_response().outputs] == ["text_output"]
    r = client.infer("parrot", inputs("as a tensor", {"max_tokens": 1}, return_finish_reason=True, return_num_input_tokens=True, return_num_output_tokens=True))
    assert (text_of(r), text_of(r, "finish_reason")) == ("as ", "length")
    assert (r.as_numpy("num_input_tokens")[0], r.as_numpy("num_output_tokens")[0]) == (11, 1)
    r = client.infer("parrot", inputs("ab", exclude_input_in_output=False), outputs=[triton.InferRequestedOutput("text_output")])
    assert text_of(r) == "abab"
    assert text_of(client.infer("parrot", inputs("compressed, too " * 20, {"max_tokens": 500}), compression_algorithm="gzip")) == "compressed, too " * 20


def test_streamed_answer(client):
    got = stream(client, [("parrot", inputs("grüße an alle", {"max_tokens": 50}, stream=True, return_finish_reason=True, return_num_output_tokens=True), "7")])
    assert all(error is None and r.get_response().id == "7" for r, error in got) and len(got) > 3
    assert "".join(text_of(r) for r, _ in got) == "grüße an alle"
    final = [r.get_response().parameters["triton_final_response"].bool_param for r, _ in got]
    assert final == [False] * (len(got) - 1) + [True]
    assert [text_of(r, "finish_reason") for r, _ in got] == [""] * (len(got) - 1) + ["stop"]
    assert sum(int(r.as_numpy("num_output_tokens")[0]) for r, _ in got) == 6  # 15 bytes in pieces of 3, and the end


def test_many_in_one_stream_beside_tensors_and_errors(client):
    calls = [("parrot", inputs(f"text number {i}", {"max_tokens": 50}, stream=i % 2 == 0), str(i)) for i in range(20)]
    calls[5:5] = [("simple", triton_inputs(INPUT0=A, INPUT1=A), "tensors"), ("parrot", inputs("x", {"temperature": -1}, stream=True), "bad"),
                  ("broken", inputs("abcdef", {"max_tokens": 50}, stream=True), "broken"), ("nobody", inputs("x"), "nobody")]
    texts, tensors, errors = {}, 0, []
    for result, error in stream(client, calls):
        if error:
            errors.append(str(error))
        elif result.get_response().id == "tensors":
            tensors += (result.as_numpy("OUTPUT0") == 2 * A).all()
        else:
            texts[result.get_response().id] = texts.get(result.get_response().id, "") + text_of(result)
    assert texts.pop("broken") == "ab" and tensors == 1
    assert texts == {str(i): f"text number {i}" for i in range(20)}
    assert len(errors) == 3
    for wanted in ("temperature", "as its script says", "nobody"):
        assert any(wanted in e for e in errors), errors


@pytest.mark.parametrize("given, named", [
    (lambda: inputs("x", {"temperature": -1}), "temperature"), (lambda: inputs("x", {"n": 2}), "n is 2"), (lambda: inputs("x", "{"), "sampling_parameters"),
    (lambda: inputs("x", "[1]"), "sampling_parameters is"), (lambda: inputs("x", {"max_tokens": "x"}), "max_tokens"),
    (lambda: inputs("x", stream=True), "ModelStreamInfer"), (lambda: inputs("x", other=True), 'unknown input "other"'),
    (lambda: inputs("x", text_output=True), "unknown input"), (lambda: inputs("x")[:0], "text_input"), (lambda: inputs("x" * 5000), "context length"),
    (lambda: inputs(b"\xff\xfe"), "UTF-8"), (lambda: inputs("x", {"response_format": {"type": "json_schema"}}), "json_schema"),
])
def test_bad_requests(server, client, given, named):
    with pytest.raises(InferenceServerException) as e:
        client.infer("parrot", given())
    assert named in str(e.value) and e.value.status() == "StatusCode.INVALID_ARGUMENT", e.value
    server.alive()


def test_wrong_shapes_and_outputs(client):
    two = triton.InferInput("text_input", [2], "BYTES")
    two.set_data_from_numpy(np.array([b"a", b"b"], dtype=object))
    number = triton.InferInput("stream", [1], "INT32")
    number.set_data_from_numpy(np.array([1], dtype=np.int32))
    for given, named in (([two], "text_input"), (inputs("x") + [number], "stream")):
        with pytest.raises(InferenceServerException, match=named):
            client.infer("parrot", given)
    with pytest.raises(InferenceServerException, match='unknown output "logits"'):
        client.infer("parrot", inputs("x"), outputs=[triton.InferRequestedOutput("logits")])
    got = stream(client, [("parrot", inputs("x", stream=True, exclude_input_in_output=False), "1")])
    assert len(got) == 1 and "exclude_input_in_output" in str(got[0][1])


def test_a_failure_ends_the_stream_where_that_is_asked_for(server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answers = stub.ModelStreamInfer(iter([request("broken", "abcdef", stream=True)]), metadata=[("triton_grpc_error", "true")])
        with pytest.raises(grpc.RpcError) as e:
            for a in answers:
                assert not a.error_message
        assert e.value.code() == grpc.StatusCode.INTERNAL and "as its script says" in e.value.details()


def request(model, text, **flags):
    r = pb.ModelInferRequest(model_name=model, id="1")
    for i in inputs(text, {"max_tokens": 1000}, **flags):
        r.inputs.append(i._get_tensor())
        r.raw_input_contents.append(i._get_content())
    return r


def test_cancelled_streams_and_calls_leave_nothing(server, client):
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for i in range(5):
            answers = stub.ModelStreamInfer(iter([request("endless", "x" * 900, stream=True) for _ in range(4)]))
            assert next(answers).infer_response.model_name == "endless"
            answers.cancel()
            with pytest.raises(grpc.RpcError):
                stub.ModelInfer(request("endless", "y" * 900), timeout=0.1)
        with pytest.raises(grpc.RpcError) as e:
            for _ in stub.ModelStreamInfer(iter([request("endless", "z" * 900, stream=True)]), timeout=0.3):
                pass
        assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert text_of(client.infer("parrot", inputs("still here"))) == "still here"
    server.alive()


def test_metadata_and_config(server, client):
    m = client.get_model_metadata("parrot")
    assert [(i.name, i.datatype, list(i.shape)) for i in m.inputs][:3] == [("text_input", "BYTES", [1]), ("stream", "BOOL", [1]), ("sampling_parameters", "BYTES", [1])]
    assert [(o.name, o.datatype) for o in m.outputs] == [("text_output", "BYTES"), ("finish_reason", "BYTES"), ("num_input_tokens", "UINT32"), ("num_output_tokens", "UINT32")]
    assert client.get_model_config("parrot").config.model_transaction_policy.decoupled
    assert not client.get_model_config("simple").config.model_transaction_policy.decoupled
    with triton_http.InferenceServerClient(server.address) as http:
        assert http.get_model_metadata("parrot")["inputs"][0] == {"name": "text_input", "datatype": "BYTES", "shape": [1]}
        assert http.get_model_config("parrot")["model_transaction_policy"] == {"decoupled": True}
        with pytest.raises(InferenceServerException, match="generates text"):
            http.infer("parrot", [text_over_http("x")])


def text_over_http(text):
    i = triton_http.InferInput("text_input", [1], "BYTES")
    i.set_data_from_numpy(np.array([text], dtype=object))
    return i
