"""test_kserve_http.py: the KServe v2 protocol over HTTP, read off the Open Inference Protocol and Triton's extensions; raw HTTP by
`requests`, so that every byte sent is the test's own."""
import json
import struct

import numpy as np
import pytest
import requests

from inferd_server import wait_equal

A = list(range(16))
B = [3] * 16


def body(**more):
    return {"inputs": [{"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", "data": A},
                       {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": B}], **more}


def one(name, datatype, shape, data, **more):
    return {"inputs": [{"name": name, "shape": shape, "datatype": datatype, "data": data}], **more}


def output(reply, name):
    return next(o for o in reply.json()["outputs"] if o["name"] == name)


# ---- what the server says about itself ----

def test_server_metadata(simple_server):
    r = requests.get(simple_server.url + "/v2")
    assert r.status_code == 200 and r.headers["content-type"] == "application/json"
    assert r.json()["name"] == "inferd"
    assert set(r.json()) == {"name", "version", "extensions"}
    assert "binary_tensor_data" in r.json()["extensions"]
    assert "model_repository" not in r.json()["extensions"]  # load and unload are off unless explicit


def test_health(simple_server):
    assert requests.get(simple_server.url + "/v2/health/live").status_code == 200
    assert requests.get(simple_server.url + "/v2/health/ready").status_code == 200
    verbose = requests.get(simple_server.url + "/v2/health/ready?verbose").json()
    assert verbose["ready"] is True
    assert {"simple", "text"} <= {m["model"] for m in verbose["models"] if m["state"] == "READY"}
    head = requests.head(simple_server.url + "/v2/health/ready")
    assert head.status_code == 200 and head.content == b""


def test_model_metadata(simple_server):
    r = requests.get(simple_server.url + "/v2/models/simple").json()
    assert r["name"] == "simple" and r["versions"] == ["1"]
    assert r["inputs"] == [{"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]},
                           {"name": "INPUT1", "datatype": "INT32", "shape": [-1, 16]}]
    assert [o["name"] for o in r["outputs"]] == ["OUTPUT0", "OUTPUT1"]
    versioned = requests.get(simple_server.url + "/v2/models/simple/versions/1").json()
    assert versioned == r


def test_model_ready_and_unknown(simple_server):
    assert requests.get(simple_server.url + "/v2/models/simple/ready").status_code == 200
    assert requests.get(simple_server.url + "/v2/models/simple/versions/1/ready").status_code == 200
    for path in ("/v2/models/nope", "/v2/models/nope/ready", "/v2/models/simple/versions/9", "/v2/models/simple/versions/v10",
                 "/v2/models/simple/versions/01", "/v2/models/nope/config", "/v2/models/nope/stats"):
        r = requests.get(simple_server.url + path)
        assert r.status_code == 404 and r.json()["error"], path


def test_model_config(simple_server):
    c = requests.get(simple_server.url + "/v2/models/simple/config").json()
    assert c["name"] == "simple" and c["max_batch_size"] > 1
    assert c["input"][0]["name"] == "INPUT0" and c["input"][0]["data_type"] == "TYPE_INT32"
    assert [int(d) for d in c["input"][0]["dims"]] == [16]
    assert c["output"][1]["name"] == "OUTPUT1"
    assert requests.get(simple_server.url + "/v2/models/unbatched/config").json()["max_batch_size"] == 0


def test_statistics_count_rows_and_executions(simple_server):
    def stats():
        s = requests.get(simple_server.url + "/v2/models/simple/stats").json()["model_stats"]
        assert len(s) == 1 and s[0]["name"] == "simple" and s[0]["version"] == "1"
        return s[0]
    before = stats()
    assert simple_server.infer("simple", body()).status_code == 200
    wait_equal(lambda: stats()["inference_stats"]["success"]["count"], before["inference_stats"]["success"]["count"] + 1)
    after = stats()
    assert after["inference_count"] == before["inference_count"] + 1
    assert after["execution_count"] == before["execution_count"] + 1
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]
    assert any(b["batch_size"] == 1 for b in after["batch_stats"])
    assert after["last_inference"] > 1_600_000_000_000
    every = requests.get(simple_server.url + "/v2/models/stats").json()["model_stats"]
    assert {"simple", "text", "real"} <= {s["name"] for s in every}


def test_index(simple_server):
    rows = requests.post(simple_server.url + "/v2/repository/index").json()
    assert {"name": "simple", "version": "1", "state": "READY"} in rows
    assert requests.post(simple_server.url + "/v2/repository/index", json={"ready": True}).status_code == 200
    r = requests.post(simple_server.url + "/v2/repository/index", json={"ready": "yes"})
    assert r.status_code == 400 and "ready" in r.json()["error"]


def test_load_is_off_unless_explicit(simple_server):
    r = requests.post(simple_server.url + "/v2/repository/models/simple/load")
    assert r.status_code == 409 and "explicit" in r.json()["error"]


def test_wrong_method_and_path(simple_server):
    assert requests.get(simple_server.url + "/v2/models/simple/infer").status_code == 405
    assert requests.delete(simple_server.url + "/v2").status_code == 405
    assert requests.get(simple_server.url + "/nothing").status_code == 404
    assert requests.get(simple_server.url + "/metrics").status_code == 404  # on its own listener


# ---- inference in JSON ----

def test_infer_flat_nested_id_and_request_id(simple_server):
    r = simple_server.infer("simple", body(id="my id"), headers={"x-request-id": "abc-1"})
    assert r.status_code == 200
    assert r.json()["model_name"] == "simple" and r.json()["model_version"] == "1" and r.json()["id"] == "my id"
    assert r.headers["x-request-id"] == "abc-1"
    assert output(r, "OUTPUT0") == {"name": "OUTPUT0", "datatype": "INT32", "shape": [1, 16],
                                    "data": [a + 3 for a in A]}
    assert output(r, "OUTPUT1")["data"] == [a - 3 for a in A]
    nested = body()
    nested["inputs"][0]["data"] = [A]
    assert output(simple_server.infer("simple", nested, version=1), "OUTPUT0")["data"] == [a + 3 for a in A]


def test_requested_outputs_keep_their_order(simple_server):
    r = simple_server.infer("simple", body(outputs=[{"name": "OUTPUT1"}]))
    assert [o["name"] for o in r.json()["outputs"]] == ["OUTPUT1"]
    r = simple_server.infer("simple", body(outputs=[{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]))
    assert [o["name"] for o in r.json()["outputs"]] == ["OUTPUT1", "OUTPUT0"]


def test_wide_integers_are_exact(simple_server):
    values = [2**63 - 1, -2**63, 2**53 + 1, 0]
    r = simple_server.infer("wide", one("X", "INT64", [1, 4], values))
    assert output(r, "Y")["data"] == values
    values = [2**64 - 1, 2**53 + 1, 0]
    assert output(simple_server.infer("unsigned", one("X", "UINT64", [1, 3], values)), "Y")["data"] == values


def test_every_small_dtype(simple_server):
    got = output(simple_server.infer("half", one("X", "FP16", [1, 3], [1.5, -2, 65504])), "Y")["data"]
    assert np.array(got, np.float16).tolist() == [1.5, -2, 65504]  # the shortest text that reads back as the same half
    assert output(simple_server.infer("brain", one("X", "BF16", [1, 2], [1.5, -3.0])), "Y")["data"] == [1.5, -3.0]
    assert output(simple_server.infer("flags", one("X", "BOOL", [1, 2], [True, False])), "Y")["data"] == [True, False]
    r = simple_server.infer("text", one("X", "BYTES", [1, 3], ["a", "", "\u00e9\u4e2d\U0001f600\u0000x"]))
    assert output(r, "Y")["data"] == ["a", "", "\u00e9\u4e2d\U0001f600\u0000x"]


def test_scalar_and_zero_sized(simple_server):
    r = simple_server.infer("scalar", one("X", "FP32", [], [2.5]))
    assert output(r, "Y")["shape"] == [] and output(r, "Y")["data"] == [2.5]
    r = simple_server.infer("real", one("X", "FP32", [1, 0], []))
    assert r.status_code == 200 and output(r, "Y") == {"name": "Y", "datatype": "FP32", "shape": [1, 0], "data": []}


def test_nan_is_refused_in_json_and_passes_in_binary(simple_server):
    raw = struct.pack("<2f", float("nan"), float("inf"))
    request = {"inputs": [{"name": "X", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}]}
    head = json.dumps(request).encode()
    url = simple_server.url + "/v2/models/real/infer"
    r = requests.post(url, data=head + raw, headers={"Inference-Header-Content-Length": str(len(head))})
    assert r.status_code == 400 and "Y" in r.json()["error"] and "binary" in r.json()["error"]
    request["parameters"] = {"binary_data_output": True}
    head = json.dumps(request).encode()
    r = requests.post(url, data=head + raw, headers={"Inference-Header-Content-Length": str(len(head))})
    assert r.status_code == 200
    at = int(r.headers["Inference-Header-Content-Length"])
    assert r.content[at:] == raw


def test_classification(simple_server):
    r = simple_server.infer("real", one("X", "FP32", [2, 3], [0.1, 0.7, 0.2, 5, 4, 6],
                                        outputs=[{"name": "Y", "parameters": {"classification": 2}}]))
    assert output(r, "Y")["datatype"] == "BYTES" and output(r, "Y")["shape"] == [2, 2]
    assert output(r, "Y")["data"] == ["0.700000:1", "0.200000:2", "6.000000:2", "5.000000:0"]


# ---- binary extension ----

def binary(server, model, request, tail, length=None, **headers):
    head = json.dumps(request).encode()
    headers = {"Inference-Header-Content-Length": str(len(head) if length is None else length), **headers}
    return requests.post(f"{server.url}/v2/models/{model}/infer", data=head + tail, headers=headers)


def test_binary_both_ways_matches_json(simple_server):
    a, b = np.arange(16, dtype=np.int32), np.full(16, 5, np.int32)
    request = {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "parameters": {"binary_data_size": 64}}
                          for n in ("INPUT0", "INPUT1")],
               "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}, {"name": "OUTPUT1"}]}
    r = binary(simple_server, "simple", request, a.tobytes() + b.tobytes())
    assert r.status_code == 200 and r.headers["content-type"] == "application/octet-stream"
    at = int(r.headers["Inference-Header-Content-Length"])
    head = json.loads(r.content[:at])
    assert head["outputs"][0]["parameters"]["binary_data_size"] == 64 and "data" not in head["outputs"][0]
    assert np.array_equal(np.frombuffer(r.content[at:], np.int32), a + b)
    assert head["outputs"][1]["data"] == (a - b).tolist()


def test_raw_request(simple_server):
    x = np.array([1, 2, 3], np.float32)
    url = simple_server.url + "/v2/models/unbatched/infer"
    r = requests.post(url, data=x.tobytes(), headers={"Inference-Header-Content-Length": "0"})
    at = int(r.headers["Inference-Header-Content-Length"])
    assert r.status_code == 200 and r.content[at:] == x.tobytes()
    r = requests.post(url, data=x.tobytes(), headers={"Inference-Header-Content-Length": "0", "Accept": "application/json"})
    assert r.status_code == 200 and output(r, "Y")["data"] == [1, 2, 3]
    r = requests.post(simple_server.url + "/v2/models/simple/infer", data=b"x" * 64,
                      headers={"Inference-Header-Content-Length": "0"})
    assert r.status_code == 400 and "one input" in r.json()["error"]


X = {"name": "X", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
TAIL = b"\0" * 16
BROKEN = {
    "header longer than the body": (dict(inputs=[X]), TAIL, 10_000),
    "header negative": (dict(inputs=[X]), TAIL, "-1"),
    "header beyond 64 bits": (dict(inputs=[X]), TAIL, 2**64),
    "header not a number": (dict(inputs=[X]), TAIL, "12x"),
    "size smaller than shape": (dict(inputs=[{**X, "parameters": {"binary_data_size": 12}}]), TAIL[:12], None),
    "size larger than shape": (dict(inputs=[{**X, "parameters": {"binary_data_size": 20}}]), TAIL + b"1234", None),
    "size beyond the tail": (dict(inputs=[X]), TAIL[:8], None),
    "bytes left over": (dict(inputs=[X]), TAIL + b"1234", None),
    "size negative": (dict(inputs=[{**X, "parameters": {"binary_data_size": -16}}]), TAIL, None),
    "size huge": (dict(inputs=[{**X, "parameters": {"binary_data_size": 2**63}}]), TAIL, None),
    "size and data": (dict(inputs=[{**X, "data": [1, 2, 3, 4]}]), TAIL, None),
    "negative dim": (dict(inputs=[{**X, "shape": [1, -4]}]), TAIL, None),
    "dims overflow": (dict(inputs=[{**X, "shape": [2**40, 2**40]}]), TAIL, None),
    "duplicate input": (dict(inputs=[X, X]), TAIL + TAIL, None),
    "duplicate output": (dict(inputs=[X], outputs=[{"name": "Y"}, {"name": "Y"}]), TAIL, None),
    "unknown output": (dict(inputs=[X], outputs=[{"name": "Z"}]), TAIL, None),
    "unknown input": (dict(inputs=[{**X, "name": "Q"}]), TAIL, None),
    "wrong dtype": (dict(inputs=[{**X, "datatype": "INT32"}]), TAIL, None),
    "unknown dtype": (dict(inputs=[{**X, "datatype": "FP31"}]), TAIL, None),
    "no inputs": (dict(inputs=[]), b"", None),
}


@pytest.mark.parametrize("case", BROKEN)
def test_malformed_binary_is_400_and_the_server_lives(simple_server, case):
    request, tail, length = BROKEN[case]
    r = binary(simple_server, "real", request, tail, length)
    assert r.status_code == 400, (case, r.text)
    assert len(r.json()["error"]) > 10
    simple_server.alive()


@pytest.mark.parametrize("tail", [b"\x05\0\0\0abc", b"\xff\xff\xff\xffabc", b"\x01\0\0", b"\x01\0\0\0a\x01\0\0\0b"])
def test_malformed_bytes_elements(simple_server, tail):
    request = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(tail)}}]}
    r = binary(simple_server, "text", request, tail)
    assert r.status_code == 400 and "X" in r.json()["error"]
    simple_server.alive()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"inputs":1}', '{"inputs":[1]}', '{"inputs":[{}]}',
                                  '{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[[1],[2,3]]}]}',
                                  '{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[1]}]}',
                                  '{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[1,"a"]}]}',
                                  '{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[1,NaN]}]}',
                                  '{"inputs":[{"name":"X","shape":[1,2],"datatype":"FP32","data":[1,1e999]}]}',
                                  '{"inputs":[{"name":"X","shape":"1","datatype":"FP32","data":[1]}]}', "[" * 5000])
def test_malformed_json_is_400_and_the_server_lives(simple_server, text):
    r = requests.post(simple_server.url + "/v2/models/real/infer", data=text)
    assert r.status_code == 400 and r.json()["error"]
    simple_server.alive()


def test_shape_errors_say_what_was_expected(simple_server):
    r = simple_server.infer("simple", {"inputs": [
        {"name": "INPUT0", "shape": [1, 15], "datatype": "INT32", "data": A[:15]},
        {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": B}]})
    text = r.json()["error"]
    assert r.status_code == 400 and '"INPUT0"' in text and "16" in text and "15" in text and "batch" in text
    r = simple_server.infer("simple", {"inputs": body()["inputs"][:1]})
    assert r.status_code == 400 and "INPUT1" in r.json()["error"]
    r = simple_server.infer("simple", {"inputs": [{**i, "shape": [4000, 16], "data": i["data"] * 4000} for i in body()["inputs"]]})
    assert r.status_code == 400 and "4000" in r.json()["error"]


def test_content_types(simple_server):
    url = simple_server.url + "/v2/models/simple/infer"
    text = json.dumps(body())
    assert requests.post(url, data=text, headers={"content-type": "multipart/form-data"}).status_code == 415
    assert requests.post(url, data=text, headers={"content-type": "application/x-www-form-urlencoded"}).status_code == 200
    assert requests.post(url, data=text, headers={"content-type": "application/json; charset=utf-8"}).status_code == 200


def test_compressed_bodies(simple_server):
    import gzip
    import zlib

    import zstandard
    url = simple_server.url + "/v2/models/simple/infer"
    text = json.dumps(body()).encode()
    for coding, data in (("gzip", gzip.compress(text)), ("deflate", zlib.compress(text)),
                         ("zstd", zstandard.ZstdCompressor().compress(text))):
        r = requests.post(url, data=data, headers={"content-encoding": coding})
        assert r.status_code == 200, (coding, r.text)
    assert requests.post(url, data=text, headers={"content-encoding": "br"}).status_code == 415
    assert requests.post(url, data=gzip.compress(text)[:-4], headers={"content-encoding": "gzip"}).status_code == 400
    bomb = gzip.compress(b"\0" * 64_000_000)
    assert requests.post(url, data=bomb, headers={"content-encoding": "gzip"}).status_code == 413
    simple_server.alive()


def test_large_strings(simple_server):
    long = "x" * (4 << 20)
    r = simple_server.infer("text", one("X", "BYTES", [1, 1], [long]))
    assert r.status_code == 200 and output(r, "Y")["data"] == [long]


def test_deadline_header_is_checked(simple_server):
    r = simple_server.infer("simple", body(), headers={"x-inferd-timeout-ms": "soon"})
    assert r.status_code == 400 and "x-inferd-timeout-ms" in r.json()["error"]
    assert simple_server.infer("simple", body(), headers={"x-inferd-timeout-ms": "10000"}).status_code == 200


def test_traceparent_and_metrics(simple_server):
    before = simple_server.metric("inferd_requests_total", model="simple", status="ok")
    r = simple_server.infer("simple", body(), headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    assert r.status_code == 200
    simple_server.wait_metric("inferd_requests_total", before + 1, model="simple", status="ok")
    simple_server.wait_metric("inferd_api_requests_total", lambda n: n >= 1, route="infer", code="200")
