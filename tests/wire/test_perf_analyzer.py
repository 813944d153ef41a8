"""test_perf_analyzer.py: Triton's own load generator, unmodified, against the server."""
import json
import re
import shutil
import subprocess

import pytest

from inferd_server import ROOT, Server, write_fake

TOOL = shutil.which("perf_analyzer") or str(ROOT / ".deps/bin/perf_analyzer")
pytestmark = pytest.mark.skipif(not shutil.which(TOOL), reason="perf_analyzer is not there (./dev deps test, x86-64 only)")


@pytest.mark.parametrize("options", [[], ["--async"], ["--input-tensor-format", "json", "--output-tensor-format", "json"]],
                         ids=["sync", "async", "json"])
def test_measures_without_an_error(simple_server, options):
    r = subprocess.run([TOOL, "-m", "simple", "-u", simple_server.address, "-i", "http", "-b", "2", "--concurrency-range", "2",
                        "--measurement-mode", "count_windows", "--measurement-request-count", "200", "--max-trials", "12",
                        "-s", "999", *options], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stdout + r.stderr
    throughput = float(re.search(r"Throughput: ([\d.]+) infer/sec", r.stdout).group(1))
    assert throughput > 0
    # It reads the server's own statistics too, and prints them when they make sense to it.
    assert re.search(r"Inference count: \d+", r.stdout), r.stdout
    assert "Failed" not in r.stdout + r.stderr
    simple_server.alive()


def test_openai_service(tmp_path):
    """Its OpenAI mode, which genai-perf drives: streamed chats, each answer whole and its chunks timed."""
    write_fake(tmp_path / "models", "parrot", "tokens = true\npiece_bytes = 4\npiece_us = 2000\n")
    text = "Hello there, world"
    (tmp_path / "in.json").write_text(json.dumps({"data": [{"payload": [{"model": "parrot", "stream": True, "messages": [
        {"role": "user", "content": text}]}]}]}))
    with Server(tmp_path / "models") as server:
        r = subprocess.run([TOOL, "-m", "parrot", "--service-kind", "openai", "--endpoint", "v1/chat/completions", "-u", server.address, "-i", "http",
                            "--input-data", tmp_path / "in.json", "--request-count", "40", "--concurrency-range", "4", "--async",
                            "--profile-export-file", tmp_path / "out.json"], capture_output=True, text=True, timeout=120)
        assert r.returncode == 0, r.stdout + r.stderr
        server.alive()
    done = json.loads((tmp_path / "out.json").read_text())["experiments"][0]["requests"]
    assert len(done) == 40
    for one in done:
        stream = "".join(o["response"] for o in one["response_outputs"])
        chunks = [json.loads(b[6:]) for b in stream.split("\n\n") if b.startswith("data: {")]
        assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == text
        assert len(one["response_timestamps"]) >= 5 and one["response_timestamps"][-1] - one["response_timestamps"][0] > 6e6
