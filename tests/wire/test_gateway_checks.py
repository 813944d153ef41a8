"""test_gateway_checks.py: active checks: KServe readiness of a model, a canary inference, gRPC health; what passes and what doesn't."""
import json
import re
import subprocess
import time

import pytest
import requests

from gateway_upstream import Upstream, answer, silent
from inferd_server import BINARY, ROOT, SIMPLE, Server, wait_until, write_fake
from test_gateway import BODY, SUM, gateway, pool, text_of
from test_gateway_reports import state

ROUTE = [{"path_prefix": "/v2/models", "upstream": "p"}]
FAST = {"interval": "50ms", "timeout": "500ms", "fall": 2, "rise": 2}


@pytest.fixture(scope="module")
def replica(tmp_path_factory):
    root = tmp_path_factory.mktemp("replica")
    write_fake(root, "simple", SIMPLE)
    with Server(root, args=["--repository.mode=explicit", "--repository.load=simple"]) as s:
        yield s


def is_up(g, address):
    return state(g, address)["state"] == "ready" and requests.get(g.url + "/v2/models/simple/ready").status_code == 200


def is_down(g, address):
    return state(g, address)["state"] == "down" and requests.get(g.url + "/v2/models/simple/ready").status_code == 503


@pytest.mark.parametrize("check", [
    {"path": "/v2/models/simple/ready"},
    {"path": "/v2/models/simple/infer", "body": json.dumps(BODY), "expect": '"data":[%s]' % ",".join(map(str, SUM))},
], ids=["kserve_ready", "canary"])
def test_a_model_that_is_unloaded_takes_its_server_out(tmp_path, replica, check):
    with gateway(tmp_path, text_of([pool([replica], check={**check, **FAST})], ROUTE)) as g:
        wait_until(lambda: is_up(g, replica.address))
        assert requests.post(replica.url + "/v2/repository/models/simple/unload").status_code == 200
        try:
            wait_until(lambda: is_down(g, replica.address))
        finally:
            assert requests.post(replica.url + "/v2/repository/models/simple/load").status_code == 200
        wait_until(lambda: is_up(g, replica.address))


def test_a_canary_looks_at_the_answer(tmp_path):
    """Health may say yes while inference is wrong, an error, or silent: only a right answer passes; it is a POST with the body."""
    with Upstream(answer(b'{"sum": 42}')) as u:
        check = {"path": "/infer", "body": '{"a": 40, "b": 2}', "content_type": "application/x-json", "expect": '"sum": 42', **FAST}
        with gateway(tmp_path, text_of([pool([u], check=check)], [{"path": "/x", "upstream": "p"}])) as g:
            wait_until(lambda: state(g, u.address)["state"] == "ready" and u.requests)
            sent = u.requests[0]
            assert (sent.method, sent.target, sent.body) == ("POST", "/infer", b'{"a": 40, "b": 2}')
            assert sent.get("content-type") == ["application/x-json"]
            for bad in (answer(b'{"sum": 41}'), answer(b'{"sum": 42}', "500 Oops"), silent(1), answer(b"x" * (300 << 10) + b'"sum": 42')):
                u.behave = bad
                wait_until(lambda: state(g, u.address)["state"] == "down")
                u.behave = answer(b'{"sum": 42}')
                wait_until(lambda: state(g, u.address)["state"] == "ready")


def test_grpc_health(tmp_path, replica):
    """inferd's own health service over h2c: the server, a model, and one that it doesn't know."""
    for service, want in (("", "ready"), ("inference.GRPCInferenceService", "ready"), ("nobody", "down")):
        check = {"grpc": True, "service": service, **FAST}
        with gateway(tmp_path, text_of([pool([replica], protocol="http2", check=check)], ROUTE)) as g:
            wait_until(lambda: state(g, replica.address)["state"] == want)
            time.sleep(0.3)
            assert state(g, replica.address)["state"] == want, service


@pytest.mark.parametrize("check, says", [({"grpc": True}, "needs protocol http2 or auto"), ({"body": "{}"}, "need the path"),
                                         ({"path": "/x", "content_type": ""}, "content_type")])
def test_checks_that_make_no_sense(tmp_path, check, says):
    (tmp_path / "c.yaml").write_text(text_of([pool(["127.0.0.1:1"], check=check)], ROUTE))
    done = subprocess.run([BINARY, "check", f"--config={tmp_path}/c.yaml"], capture_output=True, text=True)
    assert done.returncode != 0 and says in done.stderr + done.stdout


GUIDES = [("docs/guide/" + name, i) for name, n in (("balancing.md", 2), ("deploying-gateways.md", 4)) for i in range(n)]


@pytest.mark.parametrize("guide, i", GUIDES)
def test_the_guides_files(tmp_path, guide, i):
    """Every whole configuration in the guides is accepted as it stands."""
    blocks = [b for b in re.findall(r"```yaml\n(.*?)```", (ROOT / guide).read_text(), re.S) if "routes:" in b]
    assert len(blocks) == len([g for g in GUIDES if g[0] == guide])
    (tmp_path / "c.yaml").write_text(blocks[i])
    done = subprocess.run([BINARY, "check", f"--config={tmp_path}/c.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
