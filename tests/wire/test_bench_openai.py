"""test_bench_openai.py: `inferd bench --openai` against scripted models whose times are known: what it reports must be those times."""
import json
import subprocess

import pytest

from inferd_server import BINARY, Server, write_fake


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "steady", "tokens = true\nanswer = abcdefghij\npiece_bytes = 1\npiece_us = 20000\nprefill_us = 100000\n")
    write_fake(root, "broken", "tokens = true\nfail_after = 1\npiece_us = 1000\nanswer = abcdefgh\n")
    with Server(root) as s:
        yield s


def bench(server, *args, expect=0):
    r = subprocess.run([BINARY, "bench", "--openai", "--url", server.url, "--json", *args], capture_output=True, text=True, timeout=60)
    assert r.returncode == expect, r.stderr
    return json.loads(r.stdout)


def test_times(server):
    """100 ms to the first token, 20 ms between the ten, and one for the end."""
    r = bench(server, "steady", "--requests=8", "--concurrency=4", "--prompt-words=5", "--max-tokens=50")
    assert (r["completed"], r["failed"], r["max_concurrency"]) == (8, 0, 4)
    assert r["median_ttft_ms"] >= 100 and r["median_itl_ms"] > 19  # from above only by the machine
    assert r["median_e2el_ms"] > 275 and r["median_tpot_ms"] > 16  # (e2e - ttft) / 10: the end is a token, too
    assert r["median_tpot_ms"] < r["median_e2el_ms"] / 10
    assert r["total_output_tokens"] == 88 and r["total_input_tokens"] > 8 * 5
    assert abs(r["output_throughput"] * r["duration"] - 88) < 1
    assert r["request_goodput"] == r["request_throughput"]


def test_chat_and_goodput(server):
    r = bench(server, "steady", "--chat", "--requests=4", "--concurrency=4", "--limit-ttft=50ms")
    assert r["completed"] == 4 and r["request_goodput"] == 0 and r["endpoint"] == "/v1/chat/completions"
    assert bench(server, "steady", "--chat", "--requests=4", "--concurrency=4", "--limit-ttft=2s", "--limit-tpot=1s")["request_goodput"] > 0


def test_open_loop(server):
    r = bench(server, "steady", "--requests=40", "--rate=40", "--arrival=constant")
    assert r["completed"] == 40 and 0.9 < r["duration"] and r["request_rate"] == 40
    assert bench(server, "steady", "--requests=20", "--rate=50")["completed"] == 20


def test_failures_are_counted(server):
    r = subprocess.run([BINARY, "bench", "--openai", "--url", server.url, "broken", "--requests=3"], capture_output=True, text=True)
    assert r.returncode == 1 and "failed 3" in r.stdout and "as its script says" in r.stderr  # though text came before
    r = subprocess.run([BINARY, "bench", "--openai", "--url", server.url, "nobody", "--requests=3"], capture_output=True, text=True)
    assert r.returncode == 1 and "failed 3" in r.stdout and "nobody" in r.stderr
    r = subprocess.run([BINARY, "bench", "--openai", "--url", "http://127.0.0.1:1", "x", "--requests=2000"], capture_output=True, text=True)
    assert r.returncode == 1 and "failed 2000" in r.stdout
    r = subprocess.run([BINARY, "bench", "--openai", "x", "--rate=1", "--concurrency=2"], capture_output=True, text=True)
    assert r.returncode == 2 and "open loop" in r.stderr
