"""test_gateway_reports.py: what replicas say of themselves, and what the gateway makes of it: load in ORCA headers, on vLLM's metrics page, an
agent's line, and inferd's own word as a replica."""
import json
import re
import shutil
import signal
import socket
import threading
import time

import requests

from gateway_upstream import Upstream, answer
from inferd_server import ROOT, SIMPLE, Server, wait_equal, wait_until as wait_for, write_fake
from test_gateway import BODY, gateway, pool, status, text_of, total


class Agent:
    """HAProxy's agent protocol: a line for each connection."""

    def __init__(self, line):
        self.line = line
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            with c:
                c.sendall(self.line)

    def close(self):
        self.listener.close()


def state(g, address, name="p"):
    return {s["address"]: s for s in status(g, name)["servers"]}[address]


def test_a_replica_tells_its_load(tmp_path):
    """vLLM's way of asking: a request header; text and JSON; nobody who doesn't ask gets it. A token model's cache is in it."""
    (tmp_path / "m/llama/1").mkdir(parents=True)
    shutil.copy(ROOT / "tests/data/llm/llama.gguf", tmp_path / "m/llama/1/model.gguf")
    with Server(tmp_path / "m", args=["--shutdown.grace=1s"]) as s:
        assert "endpoint-load-metrics" not in requests.get(s.url + "/v2").headers
        text = requests.get(s.url + "/v2", headers={"endpoint-load-metrics-format": "text"}).headers["endpoint-load-metrics"]
        assert re.fullmatch(r"TEXT named_metrics.num_requests_waiting=0, named_metrics.kv_cache_usage_perc=0\.\d+, "
                            r"named_metrics.draining=0", text)
        said = requests.get(s.url + "/v2", headers={"endpoint-load-metrics-format": "json"}).headers["endpoint-load-metrics"]
        assert json.loads(said.removeprefix("JSON "))["named_metrics"]["draining"] == 0
        s.process.send_signal(signal.SIGTERM)
        wait_for(lambda: requests.get(s.url + "/v2/health/ready").status_code == 503)
        text = requests.get(s.url + "/v2", headers={"endpoint-load-metrics-format": "text"}).headers["endpoint-load-metrics"]
        assert text.endswith("named_metrics.draining=1")
        s.process.wait(20)  # a second SIGTERM would force it


def test_load_in_headers_steers_the_llm_policy(tmp_path):
    """The replica that says it has a queue and a full cache gets nothing while its word is fresh; clients don't see the header."""
    def says(name, waiting, kv):
        return answer(name, headers=[("endpoint-load-metrics",
                                      f"TEXT named_metrics.kv_cache_usage_perc={kv}, named_metrics.num_requests_waiting={waiting}")])

    with Upstream(says(b'"busy"', 20, 0.95)) as busy, Upstream(says(b'"idle"', 0, 0.1)) as idle:
        text = text_of([pool([busy, idle], balance="llm", report={"headers": True, "max_age": "1m"})],
                       [{"path": "/v1/completions", "upstream": "p"}])
        with gateway(tmp_path, text, "--http.threads=1") as g:
            def ask():
                return requests.post(g.url + "/v1/completions", json={"model": "m", "prompt": str(time.monotonic()), "max_tokens": 1},
                                     headers={"endpoint-load-metrics-format": "json"})

            for _ in range(4):  # each has been heard
                ask()
            seen = [ask() for _ in range(10)]
            assert [r.json() for r in seen] == ["idle"] * 10
            assert "endpoint-load-metrics" not in seen[0].headers
            assert idle.requests[-1].get("endpoint-load-metrics-format") == ["text"]
            wait_equal(lambda: [state(g, busy.address).get(name) for name in ("queued", "kv_use")], [20, 0.95])
            g.wait_metric("inferd_upstream_report_failures_total", 0)
            idle.behave = answer(b'"idle"', headers=[("endpoint-load-metrics", "TEXT what=ever=it is")])
            ask()
            g.wait_metric("inferd_upstream_report_failures_total", 1)


def test_a_metrics_page_is_polled(tmp_path):
    """vLLM's page every 30 ms: load and loaded adapters are known without a request; the adapter draws its requests."""
    def serve(name, waiting, adapters):
        page = (f'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{model_name="m"}} {waiting}\n'
                f'vllm:kv_cache_usage_perc{{model_name="m"}} 0.5\n'
                f'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="{adapters}",waiting_lora_adapters=""}} 1.7e9\n').encode()

        def behave(connection, request):
            answer(page if request.target == "/metrics" else name)(connection, request)
        return behave

    def inferences(u):
        return [r for r in u.requests if r.target != "/metrics"]

    with Upstream(serve(b'"a"', 3, "tone")) as a, Upstream(serve(b'"b"', 3, "sql")) as b:
        text = text_of([pool([a, b], balance="llm", report={"path": "/metrics", "interval": "30ms", "max_age": "30s"})],
                       [{"path": "/v1/completions", "upstream": "p"}])
        with gateway(tmp_path, text, "--http.threads=1") as g:  # an answer is counted before the next request is read
            wait_for(lambda: all("queued" in state(g, u.address) for u in (a, b)))
            assert inferences(a) == inferences(b) == []
            for model, want in (("sql", "b"), ("tone", "a")):
                got = [requests.post(g.url + "/v1/completions", json={"model": model, "prompt": "p"}).json() for _ in range(6)]
                assert got == [want] * 6, model
            a.behave = serve(b'"a"', 0, "tone")
            b.behave = serve(b'"b"', 9, "sql")
            wait_for(lambda: state(g, b.address)["queued"] == 9 and state(g, a.address)["queued"] == 0)
            assert [requests.post(g.url + "/v1/completions", json={"model": "other", "prompt": str(i)}).json() for i in range(6)] == ["a"] * 6
            assert a.connections + b.connections < 20  # polls keep their connection
            a.behave = answer(b"no metrics here")
            wait_for(lambda: total(g, "inferd_upstream_report_failures_total") > 0)


def test_an_agent_drains_a_replica(tmp_path):
    """"drain": what runs there ends well, nothing new begins; "ready": back. A silent agent changes nothing."""
    release = threading.Event()

    def slow(connection, request):
        if request.target == "/slow":
            release.wait(20)
        answer(b'"a"')(connection, request)

    agent = Agent(b"ready\n")
    with Upstream(slow) as a:
        text = text_of([pool([a], report={"agent_port": agent.port, "interval": "30ms"})], [{"path_prefix": "/", "upstream": "p"}])
        with gateway(tmp_path, text) as g:
            assert requests.get(g.url + "/x").status_code == 200
            answered = []
            t = threading.Thread(target=lambda: answered.append(requests.get(g.url + "/slow")))
            t.start()
            wait_for(lambda: any(r.target == "/slow" for r in a.requests))
            agent.line = b"drain\n"
            wait_for(lambda: state(g, a.address)["state"] == "draining")
            reply = requests.get(g.url + "/x")
            assert reply.status_code == 503 and reply.headers["Retry-After"]
            release.set()
            t.join()
            assert answered[0].status_code == 200
            agent.line = b"50% ready\n"
            wait_for(lambda: state(g, a.address)["state"] == "ready")
            wait_equal(lambda: state(g, a.address)["share"], 0.5)
            assert requests.get(g.url + "/x").status_code == 200
            agent.close()
            wait_for(lambda: total(g, "inferd_upstream_report_failures_total") > 0)
            assert requests.get(g.url + "/x").status_code == 200


def test_a_replica_that_stops_is_drained_before_it_leaves(tmp_path, repository):
    """SIGTERM with a grace: its answers say that it drains, the gateway looks away at once, and no request fails. No checks are needed."""
    write_fake(repository, "simple", SIMPLE)
    with Server(repository) as a:
        b = Server(repository, args=["--shutdown.grace=1s"])
        text = text_of([pool([a, b], report={"headers": True})], [{"path_prefix": "/v2/models", "upstream": "p"}])
        with gateway(tmp_path, text) as g:
            for _ in range(6):
                assert g.infer("simple", BODY).status_code == 200
            b.process.send_signal(signal.SIGTERM)
            wait_for(lambda: g.infer("simple", BODY).status_code == 200 and state(g, b.address)["state"] == "draining")
            sent = total(g, "inferd_upstream_requests_total", upstream=b.address)
            deadline = time.monotonic() + 20
            while b.process.poll() is None and time.monotonic() < deadline:
                assert g.infer("simple", BODY).status_code == 200
            b.stop()
            g.wait_metric("inferd_upstream_requests_total", sent, upstream=b.address)
            g.wait_metric("inferd_upstream_retries_total", 0)
