"""Quotas over the wire: what is counted, what the refusal says, and what survives."""
import signal
import subprocess
import threading
import time

import pytest
import requests

from inferd_server import BINARY, SIMPLE, Server, wait_until, write_fake
from test_auth_keys import BODY, make

PARROT = "tokens = true\n"


@pytest.fixture
def world(tmp_path):
    root = tmp_path / "models"
    for name in ("simple", "other"):
        write_fake(root, name, SIMPLE)
    write_fake(root, "parrot", PARROT)
    write_fake(root, "slow", "tokens = true\npiece_bytes = 1\npiece_us = 50000\nmax_running = 64\n")

    class World:
        keys = tmp_path / "keys"
        state = tmp_path / "state"

        def serve(self, policies, *args):
            path = tmp_path / "quotas.yaml"
            path.write_text(policies)
            self.state.mkdir(exist_ok=True)
            return Server(root, args=[f"--quota.file={path}", f"--auth.keys_file={self.keys}", f"--state_dir={self.state}",
                                       "--auth.open=live,ready,metrics", *args])

    w = World()
    w.a, w.b = make(w.keys, "a", "-t", "one", "--class", "gold"), make(w.keys, "b", "-t", "two")
    return w


def infer(server, key, model="simple", body=BODY):
    return requests.post(f"{server.url}/v2/models/{model}/infer", json=body, headers={"x-api-key": key}, timeout=60)


def chat(server, key, max_tokens, model="parrot", text="hello", **more):
    return requests.post(f"{server.url}/v1/chat/completions", headers={"Authorization": "Bearer " + key}, timeout=60, **more,
                         json={"model": model, "max_tokens": max_tokens, "messages": [{"role": "user", "content": text}],
                               "stream": bool(more)})


def test_rate(world):
    with world.serve("policies: [{name: calm, per: key, requests_per_second: 1, requests_per_second_burst: 3}]") as server:
        answers = [infer(server, world.a) for _ in range(4)]
        assert [r.status_code for r in answers] == [200, 200, 200, 429]
        h = answers[0].headers
        assert (h["x-ratelimit-policy"], h["x-ratelimit-unit"], h["x-ratelimit-limit"], h["x-ratelimit-remaining"],
                h["x-ratelimit-cost"]) == ("calm", "requests_per_second", "1", "2", "1")
        refused = answers[3]
        assert refused.headers["x-ratelimit-kind"] == "rate" and refused.headers["Retry-After"] == "1"
        assert refused.headers["x-ratelimit-remaining"] == "0" and int(refused.headers["x-ratelimit-reset"]) in (2, 3)
        assert "rate limit of 1 requests_per_second" in refused.json()["error"] and "calm" in refused.json()["error"]
        assert infer(server, world.b).status_code == 200  # another key, another count
        # what is asked for no credentials, or runs no model, is not counted
        assert requests.get(server.url + "/v2/health/live").status_code == 200
        assert requests.get(server.url + "/v2/models/simple", headers={"x-api-key": world.a}).status_code == 200
        time.sleep(1.1)
        assert infer(server, world.a).status_code == 200
        server.wait_metric("inferd_quota_refused_total", 1, limit="requests_per_second")
        wait_until(lambda: "over_quota" in (world.state / "audit.log").read_text())


def test_rows(world):
    with world.serve("policies: [{name: rows, per: tenant, rows_per_second: 4, requests_per_day: 100}]") as server:
        def rows(n):
            return {"inputs": [{**t, "shape": [n, 16], "data": t["data"] * n} for t in BODY["inputs"]]}

        assert infer(server, world.a, body=rows(3)).status_code == 200
        assert infer(server, world.a, body=rows(3)).status_code == 429
        never = infer(server, world.a, body=rows(5))
        assert never.status_code == 429 and "Retry-After" not in never.headers and "make it smaller" in never.json()["error"]
        assert infer(server, world.b, body=rows(4)).status_code == 200
        # the refused ones were not counted as requests
        day = infer(server, world.a, body=rows(1))
        assert day.status_code == 200 or day.headers["x-ratelimit-unit"] == "rows_per_second"


def test_classes_and_models(world):
    policies = """
policies:
- {name: gold, per: key, match: {class: gold, model: simple}, requests_per_day: 2}
- {name: rest, per: key, match: {class: default}, requests_per_day: 1}
- {name: reads, per: key, match: {route: model_metadata}, requests_per_day: 1}
"""
    with world.serve(policies) as server:
        assert [infer(server, world.a).status_code for _ in range(3)] == [200, 200, 429]
        assert infer(server, world.a, "other").status_code == 200
        assert [infer(server, world.b).status_code for _ in range(2)] == [200, 429]
        read = [requests.get(server.url + "/v2/models/simple", headers={"x-api-key": world.a}).status_code for _ in range(2)]
        assert read == [200, 429]


def test_a_flood_is_refused_before_its_body(world):
    import socket

    with world.serve("policies: [{name: p, requests_per_day: 1}]") as server:
        infer(server, world.a)
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as s:
            s.sendall(f"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nx-api-key: {world.a}\r\nContent-Length: 1000000\r\n"
                      "Expect: 100-continue\r\n\r\n".encode())
            answer = s.recv(65536)
        assert answer.startswith(b"HTTP/1.1 429") and answer.lower().count(b"retry-after") == 1


def test_tokens_are_reserved_and_settled(world):
    with world.serve("policies: [{name: t, per: tenant, match: {model: 'parrot,slow'}, tokens_per_day: 1000}]") as server:
        first = chat(server, world.a, 100)
        assert first.status_code == 200
        usage = first.json()["usage"]["total_tokens"]
        assert usage < 100
        over = chat(server, world.a, 1000)
        assert over.status_code == 429 and over.json()["error"]["code"] == "insufficient_quota"
        assert over.headers["x-ratelimit-kind"] == "budget"
        assert int(over.headers["x-ratelimit-remaining"]) == 1000 - usage  # what was reserved and not used came back
        fits = chat(server, world.a, 1000 - usage - 100)
        assert fits.status_code == 200
        assert int(fits.headers["x-ratelimit-cost"]) > 1000 - usage - 100
        # a hundred at once with room for one (litellm#34732)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(chat(server, world.b, 600, "slow", text="abcdefghij" * 3).status_code))
                   for _ in range(30)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert answers.count(200) == 1 and answers.count(429) == 29


def test_a_client_that_leaves_pays_for_what_was_produced(world):
    with world.serve("policies: [{name: t, per: tenant, match: {model: 'parrot,slow'}, tokens_per_day: 1000}]") as server:
        with chat(server, world.a, 400, "slow", text="x" * 200, stream=True) as r:
            it = r.iter_lines()
            for _ in range(8):
                next(it)

        def left():
            r = chat(server, world.a, 1000)
            return int(r.headers["x-ratelimit-remaining"])

        wait_until(lambda: left() > 600)  # the reservation is gone
        assert left() < 1000  # but not all of it came back


def test_concurrency(world):
    with world.serve("policies: [{name: c, per: key, concurrent: 2}]") as server:
        streams = [chat(server, world.a, 100, "slow", text="y" * 60, stream=True) for _ in range(2)]
        assert [s.status_code for s in streams] == [200, 200]
        assert infer(server, world.a).status_code == 429
        assert infer(server, world.b).status_code == 200
        streams[0].close()
        wait_until(lambda: infer(server, world.a).status_code == 200)
        streams[1].close()


def test_budgets_survive(world):
    policies = "policies: [{name: d, per: key, requests_per_day: 5, tokens_per_month: 6000}]"
    with world.serve(policies) as server:
        assert [infer(server, world.a).status_code for _ in range(3)] == [200] * 3
    server = world.serve(policies)
    assert [infer(server, world.a).status_code for _ in range(3)] == [200, 200, 429]
    assert infer(server, world.b).status_code == 200
    # killed with a reservation: what it held is back, what was used is not
    held = chat(server, world.b, 3500, "slow", text="z" * 200, stream=True)
    assert held.status_code == 200
    assert chat(server, world.b, 3000).status_code == 429
    file, now = world.state / "quota.state", time.time()
    wait_until(lambda: file.stat().st_mtime > now)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    held.close()
    server.stop(expect=None)
    with world.serve(policies) as server:
        assert infer(server, world.a).status_code == 429
        assert chat(server, world.b, 3000).status_code == 200
    # one digit changed by hand: the file is put aside and said to be, the server starts
    damaged = file.read_text().replace("requests_per_day\t", "requests_per_day\t1", 1)
    file.write_text(damaged)
    with world.serve(policies) as server:
        lost = server.wait_records("budgets_lost")[0]
        assert "checksum" in lost["reason"] and (world.state / "quota.state.damaged").read_text() == damaged
        assert infer(server, world.a).status_code == 200
    assert file.read_text().startswith("inferd-quota 1\n")


def test_without_keys_an_address_is_the_key(world, tmp_path):
    path = tmp_path / "q"
    path.write_text("policies: [{name: p, per: key, requests_per_day: 2}]")
    with Server(tmp_path / "models", args=[f"--quota.file={path}"]) as server:
        status = [requests.post(f"{server.url}/v2/models/simple/infer", json=BODY).status_code for _ in range(3)]
        assert status == [200, 200, 429]  # three connections, three ports, one address


@pytest.mark.parametrize("policies, words", [
    ("policies: [{name: p, match: {model: simpel}, concurrent: 1}]", "simpel"), ("policies: [{name: p}]", "limits nothing"),
    ("policies: [{name: p, concurent: 1}]", "concurent"), ("x: 1", "policies")])
def test_mistakes_stop_the_start(world, tmp_path, policies, words):
    path = tmp_path / "q"
    path.write_text(policies)
    done = subprocess.run([BINARY, "serve", str(tmp_path / "models"), "--http.listen=127.0.0.1:0", "--metrics.listen=",
                           f"--quota.file={path}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_grpc(world):
    grpcclient = pytest.importorskip("tritonclient.grpc")
    import numpy as np

    with world.serve("policies: [{name: p, per: key, requests_per_day: 2, rows_per_second: 2}]") as server:
        client = grpcclient.InferenceServerClient(server.address)

        def call(rows):
            inputs = [grpcclient.InferInput(n, [rows, 16], "INT32") for n in ("INPUT0", "INPUT1")]
            for i in inputs:
                i.set_data_from_numpy(np.zeros([rows, 16], np.int32))
            try:
                client.infer("simple", inputs, headers={"authorization": "Bearer " + world.a})
                return "ok"
            except grpcclient.InferenceServerException as e:
                return e.status()

        assert [call(3), call(1), call(1), call(1)] == ["StatusCode.RESOURCE_EXHAUSTED", "ok", "ok", "StatusCode.RESOURCE_EXHAUSTED"]
        client.close()
