"""test_pull.py: `inferd pull` against a local hub: whole, broken off, damaged, hostile."""
import hashlib
import http.server
import json
import os
import subprocess
import threading

import pytest

from inferd_server import BINARY, ROOT, Server

GGUF = (ROOT / "tests/data/llm/llama.gguf").read_bytes()


class Hub(http.server.ThreadingHTTPServer):
    """Serves files of repositories as a hub does. `cut`: close the connection after so many bytes, as often as it says."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cut, self.requests, self.token, self.no_ranges, self.listing, self.other = {}, [], [], None, False, None, None
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server_port

    def add(self, path, data, said=None):
        self.files[path] = (data, hashlib.sha256(data if said is None else said).hexdigest())


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for h in headers:
            self.send_header(*h)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        hub = self.server
        hub.requests.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
        if hub.token and self.headers.get("Authorization") != "Bearer " + hub.token and not self.path.startswith("/cdn/"):
            return self.answer(401, b"no")
        if self.path.startswith("/api/models/org/repo/revision/"):
            rows = [{"rfilename": p, "size": len(d), "lfs": {"sha256": s, "size": len(d)}} for p, (d, s) in hub.files.items()]
            return self.answer(200, json.dumps(hub.listing or {"sha": "c0ffee", "siblings": rows}).encode())
        prefix = "/org/repo/resolve/c0ffee/"
        if hub.other and self.path.startswith(prefix):
            return self.answer(302, b"", [("Location", hub.other + "/cdn/" + self.path[len(prefix):])])
        name = self.path[5:] if self.path.startswith("/cdn/") else self.path[len(prefix):]
        if name not in hub.files:
            return self.answer(404, b"not here")
        data, _ = hub.files[name]
        begin = 0
        if self.headers.get("Range") and not hub.no_ranges:
            begin = int(self.headers["Range"].split("=")[1].split("-")[0])
            if begin >= len(data):
                return self.answer(416, b"")
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        end = begin + hub.cut.pop(0) if hub.cut else len(data)
        self.wfile.write(data[begin:end])
        if end < len(data):
            self.close_connection = True


@pytest.fixture
def hub():
    h = Hub()
    yield h
    h.shutdown()


def pull(hub, folder, *args, token=None, expect=0):
    env = {**os.environ, "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:1", "no_proxy": "*"}
    env.pop("HF_TOKEN", None)
    if token:
        env["HF_TOKEN"] = token
    r = subprocess.run([BINARY, "pull", "--to", str(folder), *args], env=env, capture_output=True, text=True, timeout=60)
    assert r.returncode == expect, r.stderr
    return r.stderr


def test_whole_and_served(hub, tmp_path):
    hub.add("tiny.gguf", GGUF)
    hub.add("README.md", b"x")
    assert "is ready" in pull(hub, tmp_path, "org/repo")
    assert (tmp_path / "repo/1/model.gguf").read_bytes() == GGUF and len(list((tmp_path / "repo/1").iterdir())) == 1
    n = len(hub.requests)
    assert "up to date" in pull(hub, tmp_path, "org/repo") and len(hub.requests) == n + 1  # the list alone
    with Server(tmp_path) as s:
        import requests
        r = requests.post(s.url + "/v1/completions", json={"model": "repo", "prompt": [3, 4], "max_tokens": 2})
        assert r.status_code == 200, r.text


def test_broken_off(hub, tmp_path):
    hub.add("tiny.gguf", GGUF)
    hub.cut = [1000, 5, 70000]
    pull(hub, tmp_path, "org/repo", "--name", "mine")
    assert (tmp_path / "mine/1/model.gguf").read_bytes() == GGUF
    assert [r[1] for r in hub.requests[1:]] == [None, "bytes=1000-", "bytes=1005-", "bytes=71005-"]


def test_goes_on_at_the_next_call(hub, tmp_path):
    hub.add("tiny.gguf", GGUF)
    hub.cut = [5000] + [0] * 10
    assert "breaks off" in pull(hub, tmp_path, "org/repo", expect=1)
    assert not (tmp_path / "repo/1/model.gguf").exists()
    hub.cut = []
    pull(hub, tmp_path, "org/repo")
    assert hub.requests[-1][1] == "bytes=5000-" and (tmp_path / "repo/1/model.gguf").read_bytes() == GGUF


def test_hub_without_ranges(hub, tmp_path):
    hub.add("tiny.gguf", GGUF)
    hub.cut, hub.no_ranges = [5000], True
    pull(hub, tmp_path, "org/repo")
    assert (tmp_path / "repo/1/model.gguf").read_bytes() == GGUF


def test_damaged(hub, tmp_path):
    hub.add("tiny.gguf", GGUF, said=GGUF[:-1] + b"!")
    assert "SHA-256" in pull(hub, tmp_path, "org/repo", expect=1)
    assert list((tmp_path / "repo/1").iterdir()) == []  # no part that would be gone on with


def test_another_content_is_not_gone_on_with(hub, tmp_path):
    hub.add("tiny.gguf", GGUF)
    hub.cut = [5000] + [0] * 10
    pull(hub, tmp_path, "org/repo", expect=1)
    other = b"GGUF" + bytes(range(256)) * 100
    hub.add("tiny.gguf", other)
    hub.cut = []
    pull(hub, tmp_path, "org/repo")
    assert (tmp_path / "repo/1/model.gguf").read_bytes() == other


def test_choice(hub, tmp_path):
    for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-Q4_K_S.gguf"):
        hub.add(name, name.encode())
    pull(hub, tmp_path, "org/repo")
    assert (tmp_path / "repo/1/model.gguf").read_bytes() == b"m-Q4_K_M.gguf"
    pull(hub, tmp_path, "org/repo", "q8_0")
    assert (tmp_path / "repo/1/model.gguf").read_bytes() == b"m-Q8_0.gguf"
    assert "m-Q8_0.gguf" in pull(hub, tmp_path, "org/repo", "Q5_K_M", expect=1)
    del hub.files["m-Q4_K_M.gguf"]
    assert "several" in pull(hub, tmp_path, "org/repo", expect=1)


def test_folder(hub, tmp_path):
    wanted = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"abc", "1_Pooling/config.json": b"{}"}
    for name, data in {**wanted, "pytorch_model.bin": b"no", "onnx/model.onnx": b"no", "README.md": b"no"}.items():
        hub.add(name, data)
    pull(hub, tmp_path, "org/repo")
    root = tmp_path / "repo/1"
    assert {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()} == wanted


def test_token_and_redirect(hub, tmp_path):
    """The token goes to the hub and not to the host that it redirects to."""
    cdn = Hub()
    cdn.add("tiny.gguf", GGUF)
    hub.add("tiny.gguf", GGUF)
    hub.token, hub.other = "secret", cdn.url.replace("127.0.0.1", "localhost")
    assert "HF_TOKEN" in pull(hub, tmp_path, "org/repo", expect=1)
    pull(hub, tmp_path, "org/repo", token="secret")
    assert (tmp_path / "repo/1/model.gguf").read_bytes() == GGUF
    assert cdn.requests and all(auth is None for _, _, auth in cdn.requests)
    cdn.shutdown()


@pytest.mark.parametrize("path", ["../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "a//b.gguf", "", "a\nb.gguf"])
def test_hostile_names(hub, tmp_path, path):
    hub.listing = {"sha": "c0ffee", "siblings": [{"rfilename": path, "size": 3}]}
    assert "can't be a file" in pull(hub, tmp_path / "in", "org/repo", expect=1)
    assert not (tmp_path / "evil.gguf").exists()


@pytest.mark.parametrize("listing", [[], {"siblings": 3}, {"siblings": []}, {"siblings": [3]}])
def test_hostile_listings(hub, tmp_path, listing):
    hub.listing = listing or [1]
    pull(hub, tmp_path, "org/repo", expect=1)


def test_errors(hub, tmp_path):
    assert "no org/none" in pull(hub, tmp_path, "org/none", expect=1)
    assert pull(None, tmp_path, "org/repo", expect=1)
    for bad in ("", "/abs", "a/../b", "a b", "a?b", "a/b/c", "a/", "http://hub/a/b"):
        assert f"'{bad}' is not a repository of a hub; give OWNER/NAME" in pull(hub, tmp_path, bad, expect=2)
    assert "--revision: 'a b'" in pull(hub, tmp_path, "org/repo", "--revision", "a b", expect=2)
