"""test_gateway_guard.py: input policies over what the gateway sends on: content type, size and nesting; what can't be looked at there is refused when the
configuration is read, or asked for, and never let through unseen."""
import json
import subprocess

import grpc
import pytest
import requests
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc as rpc_pb

from gateway_upstream import Upstream, answer
from inferd_server import BINARY
from raw_socket import ask as raw_ask
from test_gateway import gateway, pool, text_of

POLICIES = """
inputs:
- {name: form, match: {model: "far*"}, content_types: [application/json], max_body: 2KiB, json_depth: 5}
- {name: seen, match: {model: "watched"}, mode: flag, json_depth: 3}
- {name: near, match: {model: "*"}, forwarded: false, tensors: [{finite: true}]}
outputs:
- {name: pii, match: {model: "*"}, forwarded: false, rules: [{builtin: card}]}
"""
ROUTES = [{"path_prefix": "/v2/models", "upstream": "p"}, {"path_prefix": "/v1", "upstream": "p"}, {"path_prefix": "/ws", "upstream": "p"},
          {"path_prefix": "/inference.", "upstream": "p"}]


@pytest.fixture(scope="module")
def upstream():
    with Upstream(answer(b'{"ok": true}')) as u:
        yield u


@pytest.fixture(scope="module")
def world(tmp_path_factory, upstream):
    folder = tmp_path_factory.mktemp("guarded")
    guards = folder / "guards.yaml"
    guards.write_text(POLICIES)
    with gateway(folder, text_of([pool([upstream])], ROUTES), f"--guard.file={guards}") as g:
        g.guards = guards
        yield g


def post(g, path, body, content_type="application/json", **headers):
    return requests.post(g.url + path, data=body, timeout=30, headers={"content-type": content_type, **headers})


def nested(depth):
    return "[" * depth + "]" * depth


def refused(world, upstream, status, words, path, body, *args, **headers):
    before = len(upstream.requests)
    r = post(world, path, body, *args, **headers)
    assert r.status_code == status and words in r.text, r.text
    assert len(upstream.requests) == before
    return r


def test_a_body_that_is_within_passes_as_it_came(world, upstream):
    for path, body in (("/v2/models/far/infer", b'{"inputs": [[1]], "s": "[[[[[[[[["}'), ("/v1/chat/completions", b'{"model": "far-chat", "messages": []}')):
        assert post(world, path, body).json() == {"ok": True}
        assert upstream.requests[-1].body == body


@pytest.mark.parametrize("path,model", [("/v2/models/far/infer", None), ("/v1/completions", "far-too")])
def test_type_size_and_nesting(world, upstream, path, model):
    named = f'{{"model": "{model}", "x": %s}}' if model else '{"x": %s}'
    refused(world, upstream, 415, "application/json", path, named % 1, "text/plain")
    refused(world, upstream, 400, "nested 6 deep; accepted for this model: at most 5", path, named % nested(5))
    assert post(world, path, named % nested(4)).status_code == 200
    refused(world, upstream, 413, "", path, named % ('"' + "a" * 2100 + '"'))
    assert post(world, path, named % ('"' + "a" * 1900 + '"')).status_code == 200
    world.wait_metric("inferd_guard_findings_total", lambda n: n >= 1, policy="form", check="json_depth")


def test_a_large_body_is_not_read_at_all(world, upstream):
    head = "POST /v2/models/far/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\nExpect: 100-continue\r\n\r\n"
    assert raw_ask(world, head.encode()).status == 413


def test_what_is_packed_is_measured_unpacked(world, upstream):
    import gzip
    body = gzip.compress(b'{"x": "' + b"a" * 5000 + b'"}')
    assert len(body) < 2048
    refused(world, upstream, 413, "", "/v2/models/far/infer", body, **{"content-encoding": "gzip"})
    refused(world, upstream, 400, "nested", "/v2/models/far/infer", gzip.compress(('{"x": %s}' % nested(9)).encode()), **{"content-encoding": "gzip"})


def test_binary_tensors_are_no_json(world, upstream):
    head = b'{"inputs": []}'
    body = head + b"[" * 20
    r = post(world, "/v2/models/watched/infer", body, "application/octet-stream", **{"inference-header-content-length": str(len(head))})
    assert r.status_code == 200 and "x-inferd-guard" not in r.headers
    r = post(world, "/v2/models/watched/infer", body.replace(b"[]", nested(9).encode()), "application/octet-stream",
             **{"inference-header-content-length": str(len(head) + 16)})
    assert r.status_code == 200 and r.headers["x-inferd-guard"] == "seen"


def test_other_models_are_not_touched(world, upstream):
    assert post(world, "/v2/models/other/infer", '{"x": %s}' % nested(50), "text/plain").status_code == 200
    assert post(world, "/v1/completions", json.dumps({"model": "other", "x": "a" * 5000})).status_code == 200


def test_what_passes_unseen_is_refused(world, upstream):
    before = len(upstream.requests)
    with grpc.insecure_channel(world.address) as channel:
        with pytest.raises(grpc.RpcError) as e:
            rpc_pb.GRPCInferenceServiceStub(channel).ModelInfer(pb.ModelInferRequest(model_name="far"), timeout=10)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED and '"form"' in e.value.details()
    ask = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    assert raw_ask(world, ask.encode()).status == 501
    assert len(upstream.requests) == before


@pytest.mark.parametrize("policies,model,words", [
    ("outputs: [{name: o, match: {model: 'm*'}, rules: [{builtin: card}]}]", "", 'output policy "o" looks at answers'),
    ("outputs: [{name: o, match: {model: 'x,mo*'}, rules: [{builtin: card}]}]", "model-*", "routes[0]"),
    ("inputs: [{name: i, match: {model: model-7}, tensors: [{finite: true}]}]", "model-*", 'input policy "i" has tensors'),
    ("inputs: [{name: i, deny: [{builtin: card}]}]", "one", "forwarded: false"),
    ("inputs: [{name: i, match: {model: '?ne'}, text: {max_chars: 5}}]", "one", 'sends on to "p"'),
    ("outputs: [{name: o, match: {model: 'm*'}, rules: [{builtin: card}]}]", "none", None),
    ("outputs: [{name: o, match: {model: 'model'}, rules: [{builtin: card}]}]", "model-*", None),
    ("outputs: [{name: o, forwarded: false, rules: [{builtin: card}]}]", "", None),
    ("inputs: [{name: i, json_depth: 3, max_body: 1MB, content_types: application/json}]", "", None),
])
def test_what_cannot_be_done_is_said_by_check(tmp_path, policies, model, words):
    guards, config = tmp_path / "guards.yaml", tmp_path / "inferd.yaml"
    guards.write_text(policies)
    config.write_text(text_of([pool(["127.0.0.1:9"])], [{"model": model, "path_prefix": "/", "upstream": "p"}]) + f"guard: {{file: {guards}}}\n")
    out = subprocess.run([BINARY, "check", f"--config={config}"], capture_output=True, text=True, timeout=30)
    assert (out.returncode == 0) == (words is None), out.stderr
    assert words is None or words in out.stderr


def test_a_reload_that_cannot_be_done_changes_nothing(world, upstream):
    world.guards.write_text(POLICIES.replace("forwarded: false, rules", "rules"))
    r = requests.post(world.admin_url + "/admin/reload", timeout=30)
    assert r.status_code == 400 and 'output policy "pii" looks at answers' in r.json()["error"]
    refused(world, upstream, 415, "", "/v2/models/far/infer", "{}", "text/plain")
    world.guards.write_text(POLICIES)
    assert requests.post(world.admin_url + "/admin/reload", timeout=30).status_code == 200
