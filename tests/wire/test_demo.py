"""test_demo.py: the demo's real, trained models through the wire, as the curl lines of `./dev run` send them.

What is right comes from outside: the words on the photographed page, the transcript of the recording, the kinds of files whose
kind is known, and ONNX Runtime itself run on the same model file in this process.
"""
import re

import numpy as np
import pytest
import requests

from inferd_server import ROOT, Server

pytestmark = [pytest.mark.onnx, pytest.mark.skipif(not (ROOT / "demo/models/file_type").is_dir(), reason="./dev deps demo was not run")]
MEDIA = ROOT / "demo/media"
MODELS = ["file_kind", "file_type", "find_speech", "read_text", "smollm2", "text_detector", "text_direction", "text_recognizer", "voice_activity"]


@pytest.fixture(scope="module")
def demo():
    with Server(ROOT / "demo/models") as server:
        yield server


@pytest.fixture(scope="module")
def runtime():
    """ONNX Runtime on a demo model's own file: the answer that the server must give."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    sessions = {}

    def run(model, **inputs):
        if model not in sessions:
            sessions[model] = onnxruntime.InferenceSession(str(ROOT / f"demo/models/{model}/1/model.onnx"), options)
        return sessions[model].run(None, inputs)

    return run


def send_file(server, model, data):
    """What `curl --data-binary @file` with the two headers of the demo sends; {output name: data}."""
    r = requests.post(f"{server.url}/v2/models/{model}/infer", data=data,
                      headers={"Inference-Header-Content-Length": "0", "Accept": "application/json"})
    assert r.status_code == 200, r.text
    return {o["name"]: o["data"] for o in r.json()["outputs"]}


def test_every_model_is_ready(demo):
    index = requests.post(demo.url + "/v2/repository/index", json={}).json()
    assert sorted((row["name"], row["state"]) for row in index) == [(name, "READY") for name in MODELS]


@pytest.mark.parametrize("picture, text", [("heading.bmp", "Region-based segmentation"),
                                           ("line.bmp", "Let us first determine markers of the coins and the")])
def test_text_is_read_from_a_photograph(demo, picture, text):
    answer = send_file(demo, "read_text", (MEDIA / picture).read_bytes())
    assert answer["text"] == [text]
    assert 0.8 < answer["confidence"][0] <= 1


def test_speech_is_found_in_a_recording(demo):
    # 2.99 s of one sentence; the reader begins and ends within it.
    answer = send_file(demo, "find_speech", (MEDIA / "speech.wav").read_bytes())
    m = re.fullmatch(r"speech from ([\d.]+) s to ([\d.]+) s \((\d+) % of 3\.0 s\)", answer["answer"][0])
    assert m, answer
    assert float(m[1]) < 0.6 and 2.4 < float(m[2]) <= 3.0 and int(m[3]) > 70


def test_no_speech_in_silence(demo):
    answer = send_file(demo, "find_speech", bytes(44 + 2 * 16000))
    assert answer["answer"] == ["no speech in 1.0 s"]


@pytest.mark.parametrize("path, kind", [("CMakeLists.txt", "cmake"), ("tests/wire/test_demo.py", "python"), ("src/cli/main.c", "c"),
                                        ("demo/media/page.png", "png"), ("demo/media/heading.bmp", "bmp"), ("demo/media/speech.wav", "wav"),
                                        ("CMakePresets.json", "json"), ("demo/models/file_kind/1/model.onnx", "onnx")])
def test_kinds_of_files(demo, path, kind):
    answer = send_file(demo, "file_type", (ROOT / path).read_bytes())
    assert answer["type"] == [kind] and answer["probability"][0] > 0.5


def test_classification_names_the_label(demo):
    """The plain network with Triton's classification parameter: the same answer from the labels file."""
    head = (ROOT / "CMakeLists.txt").read_bytes().lstrip()
    tail = (ROOT / "CMakeLists.txt").read_bytes()[-4096:].rstrip()
    tokens = list(head[:1024]) + list(tail[-1024:])
    r = demo.infer("file_kind", {"inputs": [{"name": "bytes", "shape": [1, 2048], "datatype": "INT32", "data": tokens}],
                                 "outputs": [{"name": "target_label", "parameters": {"classification": 2}}]})
    assert r.status_code == 200, r.text
    first = r.json()["outputs"][0]["data"][0].split(":")
    assert first[2] == "cmake" and float(first[0]) > 0.9


CASES = {
    "text_direction": lambda rng: {"x": rng.random((2, 3, 48, 192), np.float32)},
    "text_recognizer": lambda rng: {"x": rng.random((1, 3, 48, 320), np.float32)},
    "text_detector": lambda rng: {"x": rng.random((1, 3, 96, 160), np.float32)},
    "file_kind": lambda rng: {"bytes": rng.integers(0, 257, (3, 2048), np.int32)},
    "voice_activity": lambda rng: {"input": rng.random((1, 576), np.float32) - np.float32(0.5), "state": np.zeros((2, 1, 128), np.float32),
                                   "sr": np.array(16000, np.int64)},
}


@pytest.mark.parametrize("model", sorted(CASES))
@pytest.mark.parametrize("binary", [False, True])
def test_same_answer_as_the_runtime(demo, runtime, model, binary):
    import tritonclient.http as triton
    from tritonclient.utils import np_to_triton_dtype

    inputs = CASES[model](np.random.default_rng(7))
    want = runtime(model, **inputs)
    with triton.InferenceServerClient(demo.address) as client:
        given = []
        for name, array in inputs.items():
            given.append(triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
            given[-1].set_data_from_numpy(array, binary_data=binary)
        names = [o["name"] for o in client.get_model_metadata(model)["outputs"]]
        reply = client.infer(model, given, outputs=[triton.InferRequestedOutput(n, binary_data=binary) for n in names])
        for name, expected in zip(names, want):
            # A model may be batched and run on other threads than here: the sums differ in their last bits.
            np.testing.assert_allclose(reply.as_numpy(name), expected, rtol=1e-4, atol=1e-5)
