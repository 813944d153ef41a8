"""test_generate.py: Triton's generate extension, as its documentation shows it, over a scripted model that answers with its prompt."""
import json

import pytest
import requests

from inferd_server import Server, write_fake


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "parrot", "tokens = true\npiece_bytes = 3\n")
    write_fake(root, "broken", "tokens = true\npiece_bytes = 1\nfail_after = 2\n")
    write_fake(root, "numbers", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n")
    with Server(root) as s:
        yield s


def generate(server, body, model="parrot", verb="generate", version=None):
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/" + verb
    return requests.post(server.url + path, data=body if isinstance(body, (str, bytes)) else json.dumps(body))


def events(r):
    assert r.status_code == 200 and r.headers["Content-Type"].startswith("text/event-stream"), r.text
    return [json.loads(block[6:]) for block in r.text.split("\n\n") if block.startswith("data: ")]


def test_generate(server):
    r = generate(server, {"id": "42", "text_input": "client input", "parameters": {"stream": False, "max_tokens": 30}}).json()
    assert (r["id"], r["model_name"], r["model_version"], r["text_output"]) == ("42", "parrot", "1", "client input")
    assert r["details"] == {"finish_reason": "stop", "prompt_tokens": 12, "cached_tokens": 0, "generated_tokens": 5}
    assert generate(server, {"text_input": ["as a tensor"], "max_tokens": 1}, version="1").json()["text_output"] == "as "
    assert "id" not in generate(server, {"text_input": "x"}).json()


def test_generate_stream(server):
    parts = events(generate(server, {"id": "7", "text_input": "grüße an alle", "parameters": {"logprobs": 0}}, verb="generate_stream"))
    assert "".join(p["text_output"] for p in parts) == "grüße an alle" and len(parts) > 3
    assert all(p["id"] == "7" and p["model_name"] == "parrot" for p in parts)
    assert [p["details"]["finish_reason"] for p in parts if "details" in p] == ["stop"]


@pytest.mark.parametrize("body, status, named", [
    ("{}", 400, "text_input"), ('{"text_input": 1}', 400, "text_input"), ('{"text_input": ["a", "b"]}', 400, "text_input"),
    ('{"text_input": "a", "text_input": "b"}', 400, "text_input"), ("[]", 400, "object"), ("", 400, "body"),
    ('{"text_input": "a", "parameters": {"temperature": -1}}', 400, "temperature"), ('{"text_input": "a", "parameters": 3}', 400, "parameters"),
    ('{"text_input": "a", "parameters": {"n": 2}}', 400, "n is 2"), ('{"text_input": "a", "max_tokens": "x"}', 400, "max_tokens"),
    ('{"text_input": "%s"}' % ("x" * 5000), 400, "context length"),
])
@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_bad_requests(server, body, status, named, verb):
    r = generate(server, body, verb=verb)
    assert r.status_code == status and named in r.json()["error"], r.text
    server.alive()


def test_other_models(server):
    assert generate(server, {"text_input": "x"}, model="nobody").status_code == 404
    assert "takes tensors" in generate(server, {"text_input": "x"}, model="numbers").json()["error"]
    assert "generate" in requests.get(server.url + "/v2").json()["extensions"]


def test_failure(server):
    r = generate(server, {"text_input": "abcdef"}, model="broken")
    assert r.status_code == 500 and "as its script says" in r.json()["error"]
    parts = events(generate(server, {"text_input": "abcdef"}, model="broken", verb="generate_stream"))
    assert "as its script says" in parts[-1]["error"] and [p["text_output"] for p in parts[:-1]] == ["a", "b"]
