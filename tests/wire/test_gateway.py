"""test_gateway.py: requests that other servers answer: routes, balancing, failure, streams, what is sent on and what is not.

Replicas are real inferd processes where their answers matter, and gateway_upstream.py where their failures do.
"""
import concurrent.futures
import json
import os
import signal
import socket
import threading
import time

import pytest
import requests

from gateway_upstream import Received, Upstream, answer, events, raw, reset, silent
from inferd_server import SIMPLE, Server, wait_equal, wait_until, write_fake

BODY = {"inputs": [{"name": n, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for n in ("INPUT0", "INPUT1")]}
SUM = [2 * i for i in range(16)]


def gateway(tmp_path, text, *args):
    config = tmp_path / "gateway.yaml"
    config.write_text(text)
    return Server(args=(f"--config={config}", *args))


def pool(servers, name="p", **more):
    """A pool's entry in YAML's flow style, which JSON is."""
    return json.dumps({"name": name, "servers": [s if isinstance(s, (str, dict)) else s.address for s in servers], **more})


def text_of(pools, routes):
    return "upstreams:\n" + "".join(f"  - {p}\n" for p in pools) + "routes:\n" + "".join(f"  - {json.dumps(r)}\n" for r in routes)


def total(server, name, **labels):
    return server.metric(name, **labels)


def status(g, name="p"):
    """What the admin listener says of a pool."""
    return requests.get(g.admin_url + "/admin/status").json()["upstreams"][name]


def wait_idle(g):
    """Until nothing of the pool "p" is under way, waits or is between two tries."""
    def idle():
        p = status(g)
        return p["active"] == p["waiting"] == p["retrying"] == 0 and all(s["in_flight"] == 0 for s in p["servers"])

    wait_until(idle, what="the pool is idle")


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    root = tmp_path_factory.mktemp("replica")
    write_fake(root, "simple", SIMPLE)
    with Server(root) as a, Server(root) as b:
        yield a, b


def test_infer_through_the_gateway(tmp_path, replicas):
    """KServe through the gateway is answered by both replicas in turn; what it doesn't route is its own."""
    with gateway(tmp_path, text_of([pool(replicas)], [{"path_prefix": "/v2/models/simple", "upstream": "p"}])) as g:
        for _ in range(20):
            reply = g.infer("simple", BODY)
            assert reply.status_code == 200
            assert reply.json()["outputs"][0]["data"] == SUM
        for replica in replicas:
            g.wait_metric("inferd_upstream_requests_total", 10, upstream=replica.address, outcome="ok")
        assert requests.get(g.url + "/v2").json()["name"] == "inferd"
        assert g.infer("other", BODY).status_code == 404
        assert requests.get(g.url + "/v2/health/live").status_code == 200


def test_a_model_in_the_body(tmp_path):
    """The model's name decides, from JSON, also at the body's end, and for paths that only the upstream knows."""
    with Upstream(answer(b'"a"')) as a, Upstream(answer(b'"b"')) as b:
        routes = [{"model": "llama-*", "upstream": "a"}, {"model": "mistral", "upstream": "b", "rewrite_model": "mistral-7b"}]
        with gateway(tmp_path, text_of([pool([a], "a"), pool([b], "b")], routes)) as g:
            def ask(body, path="/v1/chat/completions"):
                return requests.post(g.url + path, data=json.dumps(body), headers={"Content-Type": "application/json"})

            assert ask({"messages": [{"role": "user", "content": "x" * 100000}], "model": "llama-3"}).json() == "a"
            assert ask({"model": "mistral", "max_tokens": 5}).json() == "b"
            assert json.loads(b.requests[-1].body) == {"model": "mistral-7b", "max_tokens": 5}
            assert ask({"model": "llama-3"}, "/v1/something/new").json() == "a"
            unknown = ask({"model": "gpt"})
            assert unknown.status_code == 404 and "gpt" in unknown.json()["error"]["message"]
            assert ask({"model": "gpt"}, "/v1/something/new").status_code == 404
            twice = requests.post(g.url + "/v1/chat/completions", data='{"model":"llama-3","model":"mistral"}')
            assert twice.status_code == 400 and 'is there twice; send it once' in twice.text


def test_a_large_body_that_turns_out_to_be_ours(tmp_path):
    """While the body decides, it may be as large as the route or our own endpoint allows, whichever is more."""
    with Upstream(answer()) as u:
        with gateway(tmp_path, text_of([pool([u])], [{"model": "llama", "upstream": "p", "max_body": "1MiB"}])) as g:
            body = {"messages": [{"role": "user", "content": "x" * (2 << 20)}], "model": "gpt"}
            assert requests.post(g.url + "/v1/chat/completions", json=body).status_code == 404
            assert requests.post(g.url + "/v1/chat/completions", json={**body, "model": "llama"}).status_code == 413
            assert u.requests == []


def test_what_is_sent_on(tmp_path):
    """Hop-by-hop and forged headers end here; ours are written; bodies arrive as they were."""
    with Upstream(answer(b"{}", headers=[("X-Back", "1"), ("Connection", "keep-alive, x-secret"), ("X-Secret", "s"), ("Server", "u")])) as u:
        route = {"path_prefix": "/p", "upstream": "p", "set_headers": ["x-set: yes"], "remove_headers": ["x-remove"]}
        with gateway(tmp_path, text_of([pool([u])], [route])) as g:
            reply = requests.post(g.url + "/p?a=1&b=%20", data=b"\x00\xff", headers={
                "Connection": "x-drop", "X-Drop": "1", "TE": "trailers", "Proxy-Authorization": "p", "X-Forwarded-For": "6.6.6.6",
                "X-Forwarded-Host": "evil", "Forwarded": "for=6.6.6.6", "X-Inferd-Internal": "1", "X-Remove": "1", "X-Set": "no",
                "X-Keep": "k", "X-Request-Id": "id-1"})
            assert reply.status_code == 200 and reply.headers["X-Back"] == "1"
            assert "X-Secret" not in reply.headers and reply.headers.get("Server") != "u"
            sent = u.requests[0]
            assert (sent.method, sent.target, sent.body) == ("POST", "/p?a=1&b=%20", b"\x00\xff")
            for name in ("x-drop", "te", "proxy-authorization", "forwarded", "x-inferd-internal", "x-remove", "connection"):
                assert sent.get(name) == [], name
            assert sent.get("x-forwarded-for") == ["127.0.0.1"] and sent.get("x-forwarded-proto") == ["http"]
            assert sent.get("x-forwarded-host") == [g.address] and sent.get("host") == [g.address]
            assert sent.get("x-set") == ["yes"] and sent.get("x-keep") == ["k"] and sent.get("x-request-id") == ["id-1"]
            assert sent.get("via")[0].startswith("1.1 inferd-")


def test_a_loop_is_found(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    with gateway(tmp_path, text_of([pool([f"127.0.0.1:{port}"])], [{"path_prefix": "/p", "upstream": "p"}]),
                 f"--http.listen=127.0.0.1:{port}") as g:
        assert requests.get(f"http://127.0.0.1:{port}/p").status_code == 508
        assert g.process.poll() is None


def test_events_are_forwarded_as_they_come(tmp_path):
    """Each of 20 events is at the client before the next is sent (issue 5: none is held back), and the end is [DONE]."""
    received = Received()
    with Upstream(events(20, received.wait)) as u, gateway(tmp_path, text_of([pool([u])], [{"path": "/s", "upstream": "p"}])) as g:
        lines = []
        with requests.get(g.url + "/s", stream=True) as reply:
            assert reply.headers["Content-Type"] == "text/event-stream"
            for line in reply.iter_lines(chunk_size=1):
                if line:
                    lines.append(line.decode())
                    received.said()
        assert lines == [f"data: {i}" for i in range(20)] + ["data: [DONE]"]


def test_a_broken_stream_says_so(tmp_path):
    """After the first byte nothing is spliced: an error event in-band, and no [DONE]. Other formats are cut."""
    with Upstream(events(3, 0.01, end=False)) as u, gateway(tmp_path, text_of([pool([u])], [{"path": "/s", "upstream": "p"}])) as g:
        lines = [line.decode() for line in requests.get(g.url + "/s", stream=True).iter_lines() if line]
        assert lines[:3] == ["data: 0", "data: 1", "data: 2"]
        assert lines[3] == "event: error"
        assert json.loads(lines[4].removeprefix("data: "))["error"]["code"] == "upstream_broken"
        assert len(lines) == 5 and len(u.requests) == 1
        u.behave = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 200000)
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            requests.get(g.url + "/s", stream=True).content


@pytest.mark.parametrize("phase", ["before_head", "streaming"])
def test_a_client_that_leaves_cancels_upstream(tmp_path, phase):
    behave = silent() if phase == "before_head" else events(1000, 0.02)
    with Upstream(behave) as u, gateway(tmp_path, text_of([pool([u])], [{"path": "/s", "upstream": "p"}])) as g:
        host, port = g.address.split(":")
        with socket.create_connection((host, int(port))) as s:
            s.sendall(b"GET /s HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: u.requests)
            if phase == "streaming":
                assert s.recv(100)
            left = time.monotonic()
        assert u.closed.acquire(timeout=5)
        assert u.closed_at[0] - left < 2
        g.wait_metric("inferd_upstream_requests_total", 1, outcome="cancelled")
        wait_idle(g)


def test_failures_are_tried_elsewhere(tmp_path):
    """No connection, a reset, garbage and 503 before an answer: each goes to the other server; the client sees 200."""
    with Upstream(answer(b'"good"')) as good, Upstream(reset) as bad:
        with socket.create_server(("127.0.0.1", 0)) as s:
            nobody = "127.0.0.1:%d" % s.getsockname()[1]
        text = text_of([pool([good, bad], "r", max_fails=1000), pool([good, nobody], "n", max_fails=1000)],
                       [{"path": "/r", "upstream": "r"}, {"path": "/n", "upstream": "n"}])
        with gateway(tmp_path, text) as g:
            for behave in (reset, raw(b"nonsense\r\n\r\n"), answer(status="503 Service Unavailable")):
                bad.behave = behave
                for _ in range(4):
                    reply = requests.post(g.url + "/r", data=b"x")
                    assert (reply.status_code, reply.text) == (200, '"good"')
            for _ in range(4):
                assert requests.post(g.url + "/n", data=b"x").status_code == 200
            g.wait_metric("inferd_upstream_retries_total", 6, pool="r")
            g.wait_metric("inferd_upstream_requests_total", 2, outcome="gateway_failure", pool="n")


def test_not_idempotent_is_sent_once(tmp_path):
    with Upstream(answer()) as good, Upstream(reset) as bad:
        text = text_of([pool([good, bad], max_fails=1000)], [{"path": "/r", "upstream": "p", "idempotent": False}])
        with gateway(tmp_path, text) as g:
            statuses = sorted(requests.post(g.url + "/r", data=b"x").status_code for _ in range(10))
            assert statuses == [200] * 5 + [502] * 5
            assert len(good.requests) == 5 and len(bad.requests) == 5


def closes_reused(connections):
    """Answers the first request of a connection, and closes at the second: what a request meets that leaves as the server closes. `connections`: seen."""
    def behave(connection, request):
        if connection in connections:
            return "close"
        connections.add(connection)
        return answer()(connection, request)
    return behave


def test_a_kept_connection_that_closes_is_no_failure(tmp_path):
    """A single server, which may fail once, and no retries: every request is answered, over a new connection, and no failure is counted. One that
    must not be sent twice isn't."""
    with Upstream(closes_reused(set())) as up:
        routes = [{"path": "/r", "upstream": "p"}, {"path": "/n", "upstream": "n", "idempotent": False}]
        pools = [pool([up], name, max_fails=1, retry={"attempts": 1}) for name in "pn"]
        with gateway(tmp_path, text_of(pools, routes)) as g, requests.Session() as client:
            for i in range(4):
                assert client.post(g.url + "/r", data=f"{i}").status_code == 200
            # 0 | 1 again 1 | 2 again 2 | 3 again 3: each new connection is kept, and closes at its second request
            assert [r.body for r in up.requests] == [b"0", b"1", b"1", b"2", b"2", b"3", b"3"]
            assert up.connections == 4
            g.wait_metric("inferd_upstream_requests_total", 4, pool="p", outcome="ok")
            g.wait_metric("inferd_upstream_requests_total", 0, pool="p", outcome="gateway_failure")
            g.wait_metric("inferd_upstream_retries_total", 0, pool="p")
            assert client.post(g.url + "/n", data=b"once").status_code == 200
            assert client.post(g.url + "/n", data=b"twice").status_code == 502
            assert [r.body for r in up.requests[7:]] == [b"once", b"twice"]


def test_a_new_connection_that_closes_is_a_failure(tmp_path):
    """After the kept one the new one closes as well: one 502, two connections, one failure counted."""
    with Upstream(closes_reused(set())) as up:
        text = text_of([pool([up], retry={"attempts": 1})], [{"path": "/r", "upstream": "p"}])
        with gateway(tmp_path, text) as g, requests.Session() as client:
            assert client.post(g.url + "/r", data=b"x").status_code == 200
            up.behave = reset
            assert client.post(g.url + "/r", data=b"x").status_code == 502
            assert len(up.requests) == 3 and up.connections == 2
            g.wait_metric("inferd_upstream_requests_total", 1, pool="p", outcome="gateway_failure")


def test_a_dead_replica_is_ejected(tmp_path, repository):
    """kill -9: nobody sees it, and after five failures in a row nothing is sent there."""
    write_fake(repository, "simple", SIMPLE)
    with Server(repository) as a:
        b = Server(repository)
        text = text_of([pool([a, b])], [{"path_prefix": "/v2/models", "upstream": "p"}])
        with gateway(tmp_path, text) as g:
            for _ in range(10):
                assert g.infer("simple", BODY).status_code == 200
            b.process.kill()
            b.process.wait()
            for _ in range(40):
                assert g.infer("simple", BODY).status_code == 200
            g.wait_metric("inferd_upstream_requests_total", 5, upstream=b.address, outcome="gateway_failure")
            wait_equal(lambda: {s["address"]: s["state"] for s in status(g)["servers"]}, {a.address: "ready", b.address: "ejected"})


def test_a_stopped_replica_costs_one_try_timeout(tmp_path, repository):
    """SIGSTOP: what is in flight waits for one try; from then on it is suspect and avoided, until a check passes."""
    write_fake(repository, "simple", SIMPLE)
    with Server(repository) as a, Server(repository) as b:
        text = text_of([pool([a, b], check={"path": "/v2/health/ready", "interval": "200ms", "timeout": "200ms", "fall": 100})],
                       [{"path_prefix": "/v2/models", "upstream": "p", "try_timeout": "500ms"}])
        with gateway(tmp_path, text) as g:
            for _ in range(4):
                assert g.infer("simple", BODY).status_code == 200
            os.kill(b.process.pid, signal.SIGSTOP)
            try:
                slow = 0
                for _ in range(20):
                    start = time.monotonic()
                    assert g.infer("simple", BODY).status_code == 200
                    slow += time.monotonic() - start > 0.4
                assert slow == 1
            finally:
                os.kill(b.process.pid, signal.SIGCONT)
            before = total(g, "inferd_upstream_requests_total", upstream=b.address, outcome="ok")
            deadline = time.monotonic() + 10
            while total(g, "inferd_upstream_requests_total", upstream=b.address, outcome="ok") <= before:
                assert time.monotonic() < deadline, "it never came back"
                assert g.infer("simple", BODY).status_code == 200


def test_checks_and_backup(tmp_path):
    """A server whose check fails gets nothing; with all primaries gone the backup answers; then they come back."""
    ready = {"ok": True}

    def main(connection, request):
        status = "200 OK" if ready["ok"] or request.target != "/ready" else "503 Service Unavailable"
        answer(b'"main"', status)(connection, request)

    with Upstream(main) as m, Upstream(answer(b'"backup"')) as b:
        text = text_of([pool([m, {"address": b.address, "backup": True}],
                             check={"path": "/ready", "interval": "50ms", "timeout": "500ms"})], [{"path": "/x", "upstream": "p"}])
        with gateway(tmp_path, text) as g:
            assert requests.get(g.url + "/x").json() == "main"
            for ok, want in ((False, "backup"), (True, "main")):
                ready["ok"] = ok
                wait_equal(lambda: requests.get(g.url + "/x").json(), want)
                assert all(requests.get(g.url + "/x").json() == want for _ in range(20))


def test_max_conns_queue(tmp_path):
    """Two at once, the others wait in order and are answered; past the queue's bound it is 429; past its time as well."""
    def slow(connection, request):
        time.sleep(0.2)
        answer()(connection, request)

    with Upstream(slow) as u:
        text = text_of([pool([{"address": u.address, "max_conns": 2}], queue=4)], [{"path": "/x", "upstream": "p"}])
        with gateway(tmp_path, text) as g, concurrent.futures.ThreadPoolExecutor(12) as many:
            statuses = [f.result() for f in [many.submit(lambda: requests.get(g.url + "/x").status_code) for _ in range(12)]]
            assert statuses.count(200) >= 6 and statuses.count(200) + statuses.count(429) == 12
            g.wait_metric("inferd_upstream_queue_refused_total", statuses.count(429))
            assert requests.get(g.url + "/x").status_code == 200


def test_deadlines_travel_as_what_is_left(tmp_path):
    with Upstream(silent()) as u, gateway(tmp_path, text_of([pool([u])], [{"path": "/x", "upstream": "p"}])) as g:
        start = time.monotonic()
        reply = requests.get(g.url + "/x", headers={"x-inferd-timeout-ms": "300"})
        assert reply.status_code == 504 and 0.29 < time.monotonic() - start < 2
        assert 1 <= int(u.requests[0].get("x-inferd-timeout-ms")[0]) <= 300


def test_fallback_pool(tmp_path):
    with Upstream(reset) as a, Upstream(answer(b'"other"')) as b:
        text = text_of([pool([a], "a", max_fails=1000), pool([b], "b")], [{"path": "/x", "upstream": "a", "fallback": "b"}])
        with gateway(tmp_path, text) as g:
            assert [requests.get(g.url + "/x").json() for _ in range(3)] == ["other"] * 3


def test_large_bodies_both_ways(tmp_path):
    """64 MB there and back, more than any buffer; the answer is not held: memory stays far below it."""
    size = 64 << 20

    def echo(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(request.body))
        connection.sendall(request.body)

    with Upstream(echo) as u:
        text = text_of([pool([u])], [{"path": "/x", "upstream": "p", "max_body": "64MiB"}])
        with gateway(tmp_path, text) as g:
            data = os.urandom(1 << 20) * 64
            assert requests.post(g.url + "/x", data=data).content == data
            too_large = requests.post(g.url + "/x", data=b"x" * (size + 1))
            assert too_large.status_code == 413


def test_a_slow_reader_stops_its_upstream(tmp_path):
    """The gateway reads no faster than its client: an endless answer stalls at the socket buffers instead of filling memory."""
    sent = {"n": 0}

    def endless(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(4096):
            connection.sendall(piece)
            sent["n"] += 65536

    with Upstream(endless) as u, gateway(tmp_path, text_of([pool([u])], [{"path": "/x", "upstream": "p"}])) as g:
        host, port = g.address.split(":")
        with socket.create_connection((host, int(port))) as s:
            s.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            s.recv(1000)
            last = -1
            while sent["n"] != last:
                last = sent["n"]
                time.sleep(0.5)
            assert sent["n"] < 64 << 20
        assert u.closed.acquire(timeout=10)


def test_reload_swaps_pools_and_drops_nothing(tmp_path):
    """SIGHUP while requests run: no request fails, and afterwards all go to the new server."""
    def slow(name):
        def behave(connection, request):
            time.sleep(0.01)
            answer(name)(connection, request)
        return behave

    with Upstream(slow(b'"a"')) as a, Upstream(slow(b'"b"')) as b:
        routes = [{"path": "/x", "upstream": "p"}]
        with gateway(tmp_path, text_of([pool([a])], routes)) as g:
            seen, stop = [], threading.Event()

            def ask():
                session = requests.Session()
                while not stop.is_set():
                    seen.append(session.get(g.url + "/x"))

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for t in threads:
                t.start()
            wait_until(lambda: len(seen) >= 4)
            (tmp_path / "gateway.yaml").write_text(text_of([pool([b])], routes))
            g.process.send_signal(signal.SIGHUP)
            g.wait_records("reloaded")
            wait_until(lambda: seen[-1].json() == "b")
            stop.set()
            for t in threads:
                t.join()
            assert all(r.status_code == 200 for r in seen)
            assert seen[0].json() == "a" and seen[-1].json() == "b"
            (tmp_path / "gateway.yaml").write_text(text_of([pool([b])], [{"path": "/x", "upstream": "nobody"}]))
            reply = requests.post(g.admin_url + "/admin/reload")
            assert reply.status_code == 400 and "'nobody', which `upstreams` does not name" in reply.text
            assert requests.get(g.url + "/x").json() == "b"


def test_keep_alive_and_a_server_that_closes_it(tmp_path):
    """Connections are used again; one that the server closed while it idled costs nobody an error."""
    with Upstream(answer()) as u, gateway(tmp_path, text_of([pool([u])], [{"path": "/x", "upstream": "p"}]), "--http.threads=1") as g:
        for _ in range(10):
            assert requests.post(g.url + "/x", data=b"1").status_code == 200
        assert u.connections == 1

        def once(connection, request):
            answer(headers=[("Connection", "close")] if len(u.requests) % 2 else ())(connection, request)
            return "close"
        u.behave = once
        for _ in range(20):
            assert requests.post(g.url + "/x", data=b"1").status_code == 200
            time.sleep(0.005)


def test_what_left_is_gone_from_the_metrics(tmp_path):
    """A pool that a reload took away while it worked, and a server that left another, are not shown for ever as they were."""
    gauges = ("inferd_upstream_in_flight", "inferd_upstream_usable", "inferd_upstream_waiting", "inferd_upstream_lookup_stale")

    def shown(name):
        return {(labels["pool"], labels.get("upstream")): v for (n, l), v in g.metrics().items() if n == name for labels in [dict(l)]}

    def held(connection, request):
        go_on.wait(30)
        answer()(connection, request)

    go_on, replies = threading.Event(), []
    with Upstream(held) as a, Upstream(answer()) as b, Upstream(answer()) as c:
        config = [pool([a], "one"), pool([b, c], "two")], [{"path": "/one", "upstream": "one"}, {"path": "/two", "upstream": "two"}]
        with gateway(tmp_path, text_of(*config)) as g:
            slow = threading.Thread(target=lambda: replies.append(requests.post(g.url + "/one", data=b"x").status_code))
            slow.start()
            wait_equal(lambda: shown("inferd_upstream_in_flight").get(("one", a.address)), 1)
            assert shown("inferd_upstream_usable") == {("one", a.address): 1, ("two", b.address): 1, ("two", c.address): 1}
            assert shown("inferd_upstream_waiting") == {("one", None): 0, ("two", None): 0} == shown("inferd_upstream_lookup_stale")
            (tmp_path / "gateway.yaml").write_text(text_of([pool([c], "two")], [config[1][1]]))
            assert requests.post(g.admin_url + "/admin/reload").status_code == 200
            for name in gauges:
                wait_equal(lambda: set(shown(name)), {("two", None if name.endswith(("waiting", "stale")) else c.address)})
            go_on.set()
            slow.join()
            assert replies == [200]


def test_connections_of_a_pool_that_is_gone_close(tmp_path):
    """Whatever its keepalive_timeout was: a server taken out of the configuration is let go, not held for a day."""
    with Upstream(answer()) as u, Upstream(answer()) as other:
        with gateway(tmp_path, text_of([pool([u], keepalive_timeout="24h", keepalive_min=1)], [{"path": "/x", "upstream": "p"}])) as g:
            assert requests.get(g.url + "/x").status_code == 200
            assert not u.closed.acquire(timeout=1.5)  # kept
            (tmp_path / "gateway.yaml").write_text(text_of([pool([other])], [{"path": "/x", "upstream": "p"}]))
            assert requests.post(g.admin_url + "/admin/reload").status_code == 200
            assert u.closed.acquire(timeout=20)
