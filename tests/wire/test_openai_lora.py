"""test_openai_lora.py: LoRA adapters through the API: loaded on the admin listener, asked by name, listed, unloaded; vLLM's metric names.

The models are the small random ones of tests/data/llm, with an adapter in both formats; that adapted weights equal merged ones is shown in
tests/unit/engine/llm. Here: who gets which, and that nobody else notices.
"""
import concurrent.futures
import shutil

import openai
import pytest
import requests

from inferd_server import ROOT, Server

DATA = ROOT / "tests/data/llm"
PROMPT = {"prompt": [5, 9, 17, 30, 12], "max_tokens": 12, "temperature": 0, "logprobs": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    adapters = tmp_path_factory.mktemp("adapters")
    (root / "llama/1").mkdir(parents=True)
    shutil.copy(DATA / "llama.gguf", root / "llama/1/model.gguf")
    shutil.copy(DATA / "llama-lora.gguf", adapters / "tuned.gguf")
    shutil.copytree(DATA / "llama-lora", adapters / "folder")
    (adapters / "broken.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    (adapters.parent / "outside.gguf").write_bytes((DATA / "llama-lora.gguf").read_bytes())
    with Server(root, args=[f"--llm.adapter_path={adapters}", "--metrics.compat=vllm"]) as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def load(server, **body):
    return requests.post(server.admin_url + "/v1/load_lora_adapter", json=body)


def unload(server, name):
    return requests.post(server.admin_url + "/v1/unload_lora_adapter", json={"lora_name": name})


def answer(client, model):
    choice = client.completions.create(model=model, **PROMPT).choices[0]
    return choice.text, tuple(choice.logprobs.token_logprobs)


def test_adapters(server, client):
    base = answer(client, "llama")
    assert load(server, lora_name="tuned", lora_path="tuned.gguf").json()["model"] == "llama"
    assert load(server, lora_name="folder", lora_path="folder", model="llama").status_code == 200
    assert {(m.id, getattr(m, "parent", None)) for m in client.models.list()} == {("llama", None), ("tuned", "llama"), ("folder", "llama")}
    tuned = answer(client, "tuned")
    assert tuned != base and answer(client, "folder") != base and answer(client, "llama") == base
    with concurrent.futures.ThreadPoolExecutor(12) as pool:  # several in one batch: each as alone
        got = list(pool.map(lambda m: (m, answer(client, m)), ["llama", "tuned"] * 12))
    assert all(a == (base if m == "llama" else tuned) for m, a in got)
    r = client.completions.create(model="tuned", **PROMPT)
    server.wait_metric("inferd_llm_adapter_loaded", 1, model="llama", adapter="tuned")
    assert r.model == "tuned"
    assert unload(server, "tuned").status_code == 200 and unload(server, "folder").status_code == 200
    with pytest.raises(openai.NotFoundError):
        answer(client, "tuned")
    assert unload(server, "tuned").status_code == 404
    assert load(server, lora_name="tuned", lora_path="tuned.gguf").status_code == 200 and answer(client, "tuned") == tuned
    assert unload(server, "tuned").status_code == 200


@pytest.mark.parametrize("body, status, param", [
    ({"lora_name": "x", "lora_path": "../outside.gguf"}, 400, "lora_path"), ({"lora_name": "x", "lora_path": "/etc/passwd"}, 400, "lora_path"),
    ({"lora_name": "x", "lora_path": "missing.gguf"}, 404, "lora_path"), ({"lora_name": "x", "lora_path": "broken.gguf"}, 400, "lora_path"),
    ({"lora_name": "llama", "lora_path": "tuned.gguf"}, 409, "lora_name"), ({"lora_path": "tuned.gguf"}, 400, "lora_name"),
    ({"lora_name": "a b", "lora_path": "tuned.gguf"}, 400, "lora_name"), ({"lora_name": "x"}, 400, "lora_path"),
    ({"lora_name": "x", "lora_path": "tuned.gguf", "model": "nobody"}, 404, "model"),
])
def test_refused(server, body, status, param):
    r = load(server, **body)
    assert r.json()["error"]["param"] == param, r.text
    assert r.status_code == status or (status == 400 and r.status_code == 403)
    assert "pytest" not in r.json()["error"]["message"]  # the client's own words at most, no path of the server
    server.alive()


def test_only_on_the_admin_listener(server):
    assert requests.post(server.url + "/v1/load_lora_adapter", json={"lora_name": "x", "lora_path": "tuned.gguf"}).status_code == 404


def test_vllm_metrics(server, client):
    client.completions.create(model="llama", **PROMPT)
    have = server.metrics()
    model = frozenset({("model_name", "llama")})
    assert have[("vllm:num_requests_running", model)] == 0 and have[("vllm:num_requests_waiting", model)] == 0
    assert have[("vllm:generation_tokens_total", model)] == server.metric("inferd_llm_generated_tokens_total", model="llama") > 0
    assert have[("vllm:request_success_total", model | {("finished_reason", "length")})] > 0
    assert 0 <= have[("vllm:kv_cache_usage_perc", model)] <= 1
    assert have[("vllm:time_to_first_token_seconds_count", model)] > 0 and have[("vllm:e2e_request_latency_seconds_sum", model)] > 0
    assert have[("vllm:inter_token_latency_seconds_bucket", model | {("le", "+Inf")})] > 0
    server.wait_metric("vllm:cache_config_info", 1, block_size="32")
    assert have[("vllm:spec_decode_num_draft_tokens_total", model)] == server.metric("inferd_llm_speculation_draft_tokens_total", model="llama")
