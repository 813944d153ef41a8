"""test_sandbox.py: sandbox.files: a server that has given up the files it doesn't need serves as before, and reaches nothing else.

What is denied is shown by a link out of the repository that the operator allowed (repository.follow_symlinks): without the sandbox its model loads.
"""
import ctypes
import os
import shutil
import subprocess

import pytest
import requests

from certificates import Authority
from inferd_server import BINARY, ROOT, SIMPLE, Server, wait_until, write_fake
from test_tls import Secure

LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 1
needs_landlock = pytest.mark.skipif(not LANDLOCK, reason="this kernel has no Landlock")
SANDBOX = ["--sandbox.files=require"]
INPUT = {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for n in ("INPUT0", "INPUT1")]}


def status_field(server, name):
    for line in open(f"/proc/{server.process.pid}/status"):
        if line.startswith(name + ":"):
            return line.split()[1]


@pytest.fixture
def models(tmp_path):
    root, outside = tmp_path / "models", tmp_path / "outside"
    write_fake(root, "simple", SIMPLE)
    write_fake(outside, "linked", SIMPLE)
    (root / "linked").symlink_to(outside / "linked")
    shutil.copytree(ROOT / "tests/data/models/external", root / "external/1", symlinks=True)
    shutil.copytree(ROOT / "tests/data/llm/qwen2", root / "words/1")
    return root


def ready(server, model):
    return requests.get(f"{server.url}/v2/models/{model}/ready").status_code == 200


@needs_landlock
def test_only_what_is_named_is_reached(models, tmp_path):
    args = ["--repository.follow_symlinks", "--repository.strict_readiness=false", f"--onnxruntime.cache_dir={tmp_path}/cache",
            f"--access_log.file={tmp_path}/logs/access.log"]
    (tmp_path / "logs").mkdir()
    with Server(models, args=args) as s:
        assert all(ready(s, m) for m in ("simple", "linked", "external", "words"))
        assert status_field(s, "NoNewPrivs") == "0"
    with Server(models, args=[*args, *SANDBOX]) as s:
        s.wait_records("files_sandboxed")
        assert status_field(s, "NoNewPrivs") == "1"
        assert all(ready(s, m) for m in ("simple", "external", "words")) and not ready(s, "linked")
        assert s.infer("simple", INPUT).json()["outputs"][0]["data"] == [2] * 16
        answer = requests.post(s.url + "/v1/completions", json={"model": "words", "prompt": "a", "max_tokens": 2})
        assert answer.status_code == 200
        # rotation makes a new file; the crash folder and the state stay writable
        os.rename(tmp_path / "logs/access.log", tmp_path / "logs/access.1")
        s.process.send_signal(10)
        wait_until(lambda: requests.get(s.url + "/v2") and (tmp_path / "logs/access.log").exists())
    with Server(models, args=[*args, *SANDBOX, f"--sandbox.read={tmp_path}/outside"]) as s:
        assert ready(s, "linked")


@needs_landlock
def test_models_and_certificates_are_followed(tmp_path):
    """What changes while serving: a new model, a repository link that is turned, a certificate renewed by rename."""
    first, second = tmp_path / "store/rev1", tmp_path / "store/rev2"
    write_fake(first, "one", SIMPLE)
    write_fake(second, "two", SIMPLE)
    (tmp_path / "store/current").symlink_to("rev1")
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("a", "DNS:a.test")
    args = [*SANDBOX, "--repository.mode=poll", "--repository.poll_interval=100ms", "--repository.poll_settle=0s", f"--tls.certificates={cert}", f"--tls.keys={key}"]
    with Secure(tmp_path / "store/current", args=args) as s:
        def there(model):
            return requests.get(f"{s.admin_url}/v2/models/{model}/ready").status_code == 200 or any(r["model"] == model for r in s.records("model_ready"))

        (tmp_path / "store/next").symlink_to("rev2")
        os.rename(tmp_path / "store/next", tmp_path / "store/current")
        new_cert, new_key = authority.issue("b", "DNS:b.test")
        os.rename(new_key, key)
        os.rename(new_cert, cert)
        wait_until(lambda: there("two") and s.records("certificates_read"))


def test_a_kernel_without_it(tmp_path):
    """seccomp can't be set from here, so the kernel's answer is tried as it is: require starts exactly where there is Landlock."""
    write_fake(tmp_path, "simple", SIMPLE)
    done = subprocess.run([BINARY, "serve", str(tmp_path), "--sandbox.files=perhaps"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "off, try or require" in done.stderr.replace(", or", " or"), done.stderr
    with Server(tmp_path, args=["--sandbox.files=try"]) as s:
        s.wait_records("files_sandboxed" if LANDLOCK else "sandbox_unavailable")
        assert not s.records("sandbox_unavailable" if LANDLOCK else "files_sandboxed")
