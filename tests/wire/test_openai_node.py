"""test_openai_node.py: OpenAI's official Node client (openai_client.mjs): chat, streams, tools and the client's own tool loop, structured output,
embeddings, responses, errors. Scripted models say what the last message says, the encoder's vectors are numpy's."""
import json
import shutil
import subprocess

import numpy as np
import pytest

from inferd_server import ROOT, Server, write_fake
from test_openai_embeddings import DATA, cosine, expected

NODE_MODULES = ROOT / ".deps/node/node_modules"
TEXT = "naïve 日本語 👍🏽 <b>\n"
pytestmark = pytest.mark.skipif(not shutil.which("node") or not (NODE_MODULES / "openai").is_dir(), reason="node or its openai package is not there")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "plain", "tokens = true\npiece_bytes = 5\nconstrain = true\n")
    write_fake(root, "hermes", "tokens = true\npiece_bytes = 3\nchat_template = {{ '<tool_call>' }}\n")
    write_fake(root, "strict", "tokens = true\n")  # can be held to no form, and says so
    (root / "bert/1").mkdir(parents=True)
    shutil.copy(DATA / "bert.gguf", root / "bert/1/model.gguf")
    (root / "bert/model.yaml").write_text("parameters:\n  pooling: mean\n")
    place = tmp_path_factory.mktemp("client")
    (place / "node_modules").symlink_to(NODE_MODULES)
    shutil.copy(ROOT / "tests/wire/openai_client.mjs", place)
    ids = json.dumps({"ids": [ids for ids, _ in expected()]})
    with Server(root) as server:
        r = subprocess.run(["node", "openai_client.mjs", server.url, ids], cwd=place, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_chat(said):
    assert said["whole"] == [TEXT, TEXT] and said["streamed"] == TEXT and said["completion"] == TEXT and said["response"] == TEXT
    assert said["gathered"] == [TEXT, "stop"] and said["aborted"] is True and said["logprobs"].startswith("abc")
    assert said["usage"]["total_tokens"] == said["usage"]["prompt_tokens"] + said["usage"]["completion_tokens"]


def test_tools(said):
    for how in ("call", "streamedCall"):
        finish, content, function = said[how]
        assert (finish, content, function["name"]) == ("tool_calls", "Let me look.", "get_weather")
        assert json.loads(function["arguments"]) == {"city": "São Paulo {x}"}
    asked, content, _ = said["loop"]
    assert asked == [{"city": "São Paulo {x}"}] and "sunny in São Paulo {x}" in content
    assert said["required"][0] == "tool_calls" and json.loads(said["required"][1]["arguments"]) == {"city": "Oslo"}


def test_structured(said):
    assert said["parsed"] == {"name": "Ada", "age": 36}
    assert said["unusable"]["status"] == 400 and said["unusable"]["param"] == "response_format"


def test_responses(said):
    assert said["events"][0] == "response.created" and said["events"][-1] == "response.completed" and "response.output_text.delta" in said["events"]


def test_embeddings(said):
    assert len(said["vectors"]) == len(list(expected()))
    for got, floats, (_, want) in zip(said["vectors"], said["floats"], expected(), strict=True):
        assert cosine(np.array(got), want) > 0.9999 and np.array_equal(np.float32(got), np.float32(floats))


def test_models_and_errors(said):
    assert said["models"] == ["bert", "hermes", "plain", "strict"]
    errors = said["errors"]
    assert (errors["range"]["bad"], errors["range"]["param"]) == (True, "temperature")
    assert (errors["stream"]["bad"], errors["stream"]["param"]) == (True, "top_p")
    assert (errors["model"]["missing"], errors["model"]["code"]) == (True, "model_not_found")
    assert errors["encoder"]["bad"] is True
