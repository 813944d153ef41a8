"""test_load_tool.py: an OpenAI load tool, unmodified, against SmolLM2: NVIDIA's `aiperf` drives chat, completions and responses as streams, and reads
from them the times and token counts that it prints.

It brings 300 packages along, so neither ./dev deps nor CI installs it, and this is marked `soak`:

    python3 -m venv /tmp/aiperf && /tmp/aiperf/bin/pip install aiperf==0.13.0 gguf==0.19.0
    AIPERF=/tmp/aiperf/bin/aiperf ./dev test --soak

It counts tokens itself, with the model's tokenizer, which tests/tools/hf_folder.py takes from the GGUF file."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from inferd_server import ROOT, Server

AIPERF = os.environ.get("AIPERF") or shutil.which("aiperf")
MODEL = ROOT / "demo/models/smollm2"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900),
              pytest.mark.skipif(not AIPERF, reason="aiperf is not there (AIPERF names it)"),
              pytest.mark.skipif(not MODEL.is_dir(), reason="./dev deps demo was not run")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    (root / "smollm2/1").mkdir(parents=True)
    (root / "smollm2/1/model.gguf").symlink_to(MODEL / "1/model.gguf")
    (root / "smollm2/model.yaml").write_text("parameters:\n  kv_cache_bytes: 256MiB\n  context: 1024\n")
    with Server(root, args=["--repository.follow_symlinks=true"]) as s:
        yield s


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    python = pathlib.Path(AIPERF).parent / "python"
    subprocess.run([python, ROOT / "tests/tools/hf_folder.py", MODEL / "1/model.gguf", folder, "--tokenizer-only"], check=True)
    return folder


def profile(server, tokenizer, out, *args):
    """What it found for each request."""
    env = {**os.environ, "AIPERF_SERVICE_REGISTRATION_TIMEOUT": "300", "AIPERF_SERVICE_REGISTRATION_MAX_ATTEMPTS": "300"}  # a slow machine
    r = subprocess.run([AIPERF, "profile", "-m", "smollm2", "-u", server.url, "--streaming", "--tokenizer", tokenizer, "--concurrency", "2",
                        "--request-count", "6", "--isl", "64", "--osl", "16", "--ui", "none", "--no-gpu-telemetry", "--artifact-dir", out, *args],
                       capture_output=True, text=True, env=env)
    assert r.returncode == 0, r.stdout[-4000:] + r.stderr[-4000:]
    records = [json.loads(line) for line in (out / "profile_export.jsonl").read_text().splitlines()]
    assert [r.get("error") for r in records] == [None] * 6
    return [{name: m["value"] for name, m in r["metrics"].items()} for r in records]


@pytest.mark.parametrize("endpoint", ["chat", "completions", "responses"])
def test_streams(server, tokenizer, tmp_path, endpoint):
    """Every request succeeds, with as many tokens as were asked for. What it counts in the text may be less: sampled tokens aren't always those that
    the same text is cut into again. It reads the usage of a response only where that wasn't cut off, which these are."""
    for m in profile(server, tokenizer, tmp_path, "--endpoint-type", endpoint, "--extra-inputs", "ignore_eos:true"):
        assert 0 < m["time_to_first_token"] < m["request_latency"] and 8 <= m["output_sequence_length"] <= 16
        assert endpoint == "responses" or m["usage_completion_tokens"] == 16


def test_counts_of_the_server(server, tokenizer, tmp_path):
    """Its options for vLLM: waiting for the model, usage with every chunk, max_tokens by the old name."""
    for m in profile(server, tokenizer, tmp_path, "--endpoint-type", "chat", "--use-server-token-count", "--per-chunk-usage", "--use-legacy-max-tokens",
                     "--wait-for-model-timeout", "60", "--wait-for-model-mode", "both"):
        assert 1 <= m["output_sequence_length"] <= 16 and m["input_sequence_length"] > 64
