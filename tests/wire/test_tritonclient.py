"""test_tritonclient.py: NVIDIA's own Python client, unmodified: sync and asyncio, every call it has that inferd advertises."""
import asyncio

import numpy as np
import pytest
import tritonclient.http as http
import tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException

from inferd_server import SIMPLE, Server, write_fake

A = np.arange(16, dtype=np.int32).reshape(1, 16)
B = np.full((1, 16), 7, np.int32)


def inputs(module, binary):
    made = [module.InferInput("INPUT0", [1, 16], "INT32"), module.InferInput("INPUT1", [1, 16], "INT32")]
    made[0].set_data_from_numpy(A, binary_data=binary)
    made[1].set_data_from_numpy(B, binary_data=binary)
    return made


@pytest.fixture
def client(simple_server):
    with http.InferenceServerClient(simple_server.address) as c:
        yield c


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("request_compression, response_compression", [(None, None), ("gzip", None), ("deflate", None)])
def test_infer(client, binary_in, binary_out, request_compression, response_compression):
    outputs = [http.InferRequestedOutput("OUTPUT0", binary_data=binary_out),
               http.InferRequestedOutput("OUTPUT1", binary_data=not binary_out)]
    r = client.infer("simple", inputs(http, binary_in), outputs=outputs, request_id="7", priority=0, timeout=30_000_000,
                     request_compression_algorithm=request_compression, response_compression_algorithm=response_compression)
    assert np.array_equal(r.as_numpy("OUTPUT0"), A + B) and np.array_equal(r.as_numpy("OUTPUT1"), A - B)
    assert r.get_response()["id"] == "7"


def test_no_outputs_named_and_version(client):
    r = client.infer("simple", inputs(http, True), model_version="1")
    assert np.array_equal(r.as_numpy("OUTPUT0"), A + B)


def test_async_infer_on_threads(client):
    pending = [client.async_infer("simple", inputs(http, True)) for _ in range(16)]
    for p in pending:
        assert np.array_equal(p.get_result().as_numpy("OUTPUT1"), A - B)


def test_strings(client):
    words = np.array([["a", "\u4e2d", ""]], dtype=object)
    i = http.InferInput("X", [1, 3], "BYTES")
    for binary in (True, False):
        i.set_data_from_numpy(words, binary_data=binary)
        got = client.infer("text", [i], outputs=[http.InferRequestedOutput("Y", binary_data=binary)]).as_numpy("Y")
        assert [g.decode() if isinstance(g, bytes) else g for g in got.ravel()] == ["a", "\u4e2d", ""]


def test_fp16_and_bf16(client):
    x = np.array([[1.5, -2.25]], np.float16)
    i = http.InferInput("X", [1, 2], "FP16")
    i.set_data_from_numpy(x)
    assert np.array_equal(client.infer("half", [i]).as_numpy("Y"), x)


def test_class_count(client):
    x = np.array([[0.25, 0.5, 0.125]], np.float32)
    i = http.InferInput("X", [1, 3], "FP32")
    i.set_data_from_numpy(x)
    r = client.infer("real", [i], outputs=[http.InferRequestedOutput("Y", class_count=1)])
    assert r.as_numpy("Y").tolist() == [[b"0.500000:1"]]


def test_questions(client):
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("simple")
    assert not client.is_model_ready("nope")
    assert client.get_server_metadata()["name"] == "inferd"
    assert client.get_model_metadata("simple")["inputs"][0]["datatype"] == "INT32"
    assert client.get_model_config("simple")["name"] == "simple"
    assert client.get_inference_statistics("simple")["model_stats"][0]["name"] == "simple"
    assert client.get_inference_statistics()["model_stats"]
    assert any(m["name"] == "simple" for m in client.get_model_repository_index())


def test_errors_carry_our_text(client):
    with pytest.raises(InferenceServerException) as e:
        client.infer("nope", inputs(http, True))
    assert "nope" in str(e.value)
    with pytest.raises(InferenceServerException) as e:
        client.infer("simple", inputs(http, True)[:1])
    assert "INPUT1" in str(e.value)


def test_asyncio_client(simple_server):
    async def run():
        async with aio.InferenceServerClient(simple_server.address) as c:
            assert await c.is_server_ready()
            results = await asyncio.gather(*[c.infer("simple", inputs(aio, True)) for _ in range(32)])
            for r in results:
                assert np.array_equal(r.as_numpy("OUTPUT0"), A + B)
    asyncio.run(run())


def test_load_and_unload(repository):
    write_fake(repository, "simple", SIMPLE)
    write_fake(repository, "other", SIMPLE)
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=simple"]) as server:
        with http.InferenceServerClient(server.address) as c:
            assert c.is_model_ready("simple") and not c.is_model_ready("other")
            assert "model_repository" in c.get_server_metadata()["extensions"]
            c.load_model("other")
            assert c.is_model_ready("other")
            assert np.array_equal(c.infer("other", inputs(http, True)).as_numpy("OUTPUT0"), A + B)
            c.unload_model("other")
            assert not c.is_model_ready("other")
            with pytest.raises(InferenceServerException):
                c.load_model("missing")
            with pytest.raises(InferenceServerException) as e:
                c.load_model("other", files={"file:1/model.fake": b"x"}, config="{}")
            assert "file:1/model.fake" in str(e.value)
