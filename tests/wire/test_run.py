"""test_run.py: `inferd run FILE`: one model, served under its file's name, and a line that says how to talk to it."""
import os
import re
import shutil
import signal
import subprocess

import pytest
import requests

from inferd_server import BINARY, ROOT, write_fake

DATA = ROOT / "tests/data/llm"
QUIET = ["--http.listen=127.0.0.1:0", "--grpc.listen=", "--metrics.listen=", "--admin.listen=", "--log.level=error"]


def start(path, *args):
    return subprocess.Popen([BINARY, "run", str(path), *QUIET, *args], stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})


def read_until(process, pattern):
    seen = ""
    for line in process.stderr:
        seen += line
        if m := re.search(pattern, seen):
            return m
    raise AssertionError(f"ended with {process.wait()}: {seen}")


def stop(process):
    process.send_signal(signal.SIGTERM)
    process.stderr.read()
    assert process.wait(30) == 0


def test_language_model(tmp_path):
    path = tmp_path / "Tiny-Model.F32.gguf"
    shutil.copy(DATA / "llama.gguf", path)
    p = start(path, f"--state_dir={tmp_path}/state")
    m = read_until(p, r"(\S+) is served on http://(\S+)/v1 \(context: (\d+) tokens\)")
    name, address, context = m.group(1), m.group(2), int(m.group(3))
    models = requests.get(f"http://{address}/v1/models").json()["data"]
    assert [(x["id"], x["max_model_len"]) for x in models] == [(name, context)] and name == "Tiny-Model.F32"
    r = requests.post(f"http://{address}/v1/completions", json={"model": name, "prompt": [3, 4], "max_tokens": 2})
    assert r.status_code == 200, r.text
    stop(p)


def test_batch_model(tmp_path):
    folder = write_fake(tmp_path, "numbers", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n").parent
    p = start(folder, f"--state_dir={tmp_path}/state")
    assert read_until(p, r"(\S+) is served on http://\S+/v2/models/numbers").group(1) == "numbers"
    stop(p)


@pytest.mark.parametrize("args, status", [([], 2), (["missing.gguf"], 1), (["a", "b"], 2), (["x.gguf", "--nonsense"], 2)])
def test_mistakes(tmp_path, args, status):
    r = subprocess.run([BINARY, "run", *args, *(QUIET if args else [])], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert r.returncode == status and r.stderr


def unusable(tmp_path, what):
    """The argument, and what the reason has to name."""
    if what == "a truncated GGUF":
        path = tmp_path / "cut.gguf"
        path.write_bytes((DATA / "llama.gguf").read_bytes()[:5000])
    elif what == "no GGUF in .gguf":
        path = tmp_path / "broken.gguf"
        path.write_bytes(b"GGUF" + b"\xff" * 100)
    elif what == "a text file":
        path = tmp_path / "notes.txt"
        path.write_text("hello\n")
    elif what == "text in .onnx":
        path = tmp_path / "notes.onnx"
        path.write_text("hello\n")
    elif what == "an empty folder":
        path = tmp_path / "empty"
        path.mkdir()
    else:
        path = tmp_path / "missing.gguf"
    return path


@pytest.mark.parametrize("mode", ["none", "poll"])
@pytest.mark.parametrize("what, reason", [
    ("a truncated GGUF", r'the model "cut" can\'t be served: .'), ("no GGUF in .gguf", r'the model "broken" can\'t be served: .'),
    ("a text file", r'the model "notes" can\'t be served: .'), ("text in .onnx", r'the model "notes" can\'t be served: .'),
    ("an empty folder", "there is no model in this folder"), ("a missing file", r"missing\.gguf")])
def test_what_cannot_be_served_ends_with_the_reason(tmp_path, what, reason, mode):
    path = unusable(tmp_path, what)
    r = subprocess.run([BINARY, "run", str(path), *QUIET, f"--state_dir={tmp_path}/state", f"--repository.mode={mode}",
                        "--repository.poll_settle=200ms"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1, r.stderr
    last = r.stderr.strip().splitlines()[-1]
    assert re.search(reason, last) and "is served on" not in r.stderr, r.stderr


def test_a_new_file_that_is_polled_is_awaited(tmp_path):
    """With polling, a file that was just written waits until it has settled: that is no failure."""
    folder = write_fake(tmp_path, "numbers", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n").parent
    p = start(folder, f"--state_dir={tmp_path}/state", "--repository.mode=poll", "--repository.poll_settle=1s")
    read_until(p, r"(\S+) is served on http://\S+/v2/models/numbers")
    stop(p)


def test_serve_stays_without_the_model(tmp_path):
    """`serve` keeps the other policy: what is broken may be mended while it runs."""
    path = unusable(tmp_path, "a truncated GGUF")
    p = subprocess.Popen([BINARY, "serve", str(path), *QUIET[:-1], "--log.level=info", f"--state_dir={tmp_path}/state"],
                         stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
    read_until(p, r"\bserving\b.*ready")
    stop(p)
