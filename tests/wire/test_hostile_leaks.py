"""test_hostile_leaks.py: what a stranger can write into logs (nothing that reads as a line of its own) and read out of errors (no paths, no addresses),
and what he can reach when nobody configured anything.
"""
import json
import re
import shutil

import pytest
import requests

from inferd_server import ROOT, SIMPLE, Server, wait_until, write_fake
from raw_socket import Reader, connect, infer_request, request

FORGED = b'forged\x1b[31m"}\x7f\xff{"event":"forged"}'


@pytest.mark.parametrize("format", ["json", "text"])
def test_nobody_forges_a_line(tmp_path, format):
    write_fake(tmp_path / "models", "simple", SIMPLE)
    log = tmp_path / "access.log"
    with Server(tmp_path / "models", args=[f"--access_log.file={log}", f"--access_log.format={format}", "--log.level=debug"]) as s:
        documents = [
            request(target="/v2/models/a%0d%0aforged=1%0a%7b%22event%22:%22forged%22%7d/ready"),
            request(target="/v2?x=%0aforged"),
            request(headers=[("User-Agent", FORGED.decode("latin-1"))]).replace(b"\x7f", b""),
            request(headers=[("X-Request-Id", "a b\tforged")]),
            request(headers=[("traceparent", "00-forged-forged-01")]),
            infer_request("simple", {"id": "\n{\"event\":\"forged\"}", "inputs": []}),
            infer_request("sim%E2%80%AEple", {}),
        ]
        answered = 0
        for document in documents:
            with connect(s) as c:
                c.sendall(document)
                answered += Reader(c).answer().status > 0
        assert answered == len(documents)
        wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 3)
    lines = log.read_bytes().split(b"\n")
    assert lines.pop() == b"" and 3 <= len(lines) <= len(documents) + 100  # the fixture's own probes are in it, too
    assert any(b"forged" in line for line in lines)  # it is logged, as what it is
    for line in lines:
        assert all(0x20 <= b < 0x7f or b >= 0x80 for b in line), line
        assert not re.match(rb'\s*(forged|\{"event")', line), line
        if format == "json":
            assert json.loads(line).get("event") != "forged"
    for line in s.log_lines:
        assert json.loads(line)["event"] != "forged"


def test_errors_hold_no_paths_and_no_addresses(tmp_path):
    root = tmp_path / "models-of-somebody"
    write_fake(root, "simple", SIMPLE)
    for name in ("external_missing", "external_up", "external_absolute", "external_link", "external_memory"):
        shutil.copytree(ROOT / "tests/data/models" / name, root / name / "1", symlinks=True)
    (root / "garbage/1").mkdir(parents=True)
    (root / "garbage/1/model.onnx").write_bytes(bytes(range(256)) * 40)
    (root / "words/1").mkdir(parents=True)
    (root / "words/1/model.gguf").write_bytes(b"GGUF" + bytes(100))
    (root / "badconfig/1").mkdir(parents=True)
    (root / "badconfig/model.yaml").write_text("max_batch_size: [")
    (root / "sealed/1").mkdir(parents=True)
    (root / "sealed/1/model.onnx").write_bytes(b"INFDSEAL" + bytes(200))
    with Server(root, args=["--repository.strict_readiness=false"]) as s:
        texts = [requests.get(s.url + "/v2/health/ready?verbose").text]
        models = [m for m in ("external_missing", "external_up", "external_absolute", "external_link", "external_memory", "garbage", "words", "badconfig", "sealed")]
        index = requests.post(s.url + "/v2/repository/index", json={})
        assert index.status_code == 200 and len([m for m in index.json() if m.get("reason")]) >= len(models) - 1, index.text
        texts.append(index.text)
        for model in [*models, "simple", "..", "%2e%2e%2fetc%2fpasswd", "a" * 300]:
            for path in (f"/v2/models/{model}", f"/v2/models/{model}/ready", f"/v2/models/{model}/config", f"/v2/models/{model}/versions/9"):
                texts.append(requests.get(s.url + path).text)
            texts.append(requests.post(f"{s.url}/v2/models/{model}/infer", json={"inputs": [{"name": "X", "shape": [1 << 62], "datatype": "FP32", "data": []}]}).text)
            texts.append(requests.post(s.url + "/v1/completions", json={"model": model, "prompt": "x"}).text)
        for text in texts:
            text = text.replace("/etc/passwd", "")  # of the external_absolute model's own words, where they are shown
            assert str(tmp_path) not in text and "models-of-somebody" not in text, text
            assert not re.search(r"0x[0-9a-f]{6,}|/proc/|/work/|\.c:\d+", text), text


def test_out_of_the_box_only_this_machine_reaches_it():
    """The defaults, from the generated page whose freshness ./dev lint checks."""
    page = (ROOT / "docs/reference/config.md").read_text()
    defaults = {name: value for name, value in re.findall(r"^\| `(\w+\.listen)` \| ([^|]*) \|", page, re.M)}
    assert set(defaults) == {"http.listen", "grpc.listen", "metrics.listen", "admin.listen", "agent.listen"}
    for name, value in defaults.items():
        assert re.fullmatch(r"`127\.0\.0\.1:\d+`", value.strip()) or (name, value.strip()) in (("admin.listen", "empty"), ("agent.listen", "empty")), (name, value)
