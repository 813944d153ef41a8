"""test_gateway_queue.py: requests that wait at the gateway because every server is full: whose turn it is, who gives way, who is told no early."""
import socket
import threading
import time

import requests

from gateway_upstream import Upstream, answer
from inferd_server import wait_until
from test_auth_keys import make
from test_gateway import gateway, pool, status, text_of


class Gate:
    """A server that answers one request for each permit, in the order in which they came."""

    def __init__(self):
        self.permits = threading.Semaphore(0)

    def __call__(self, connection, request):
        self.permits.acquire(timeout=20)
        answer()(connection, request)


class Crowd:
    """Requests that wait, each in a thread of its own; `order`: as they were answered."""

    def __init__(self, g):
        self.g, self.threads, self.order, self.replies = g, [], [], {}

    def ask(self, name, path="/x", **headers):
        def run():
            self.replies[name] = requests.get(self.g.url + path, headers=headers, timeout=60)
            self.order.append(name)

        t = threading.Thread(target=run)
        t.start()
        self.threads.append(t)

    def waiting(self, n):
        wait_until(lambda: status(self.g)["waiting"] == n)

    def end(self):
        for t in self.threads:
            t.join(30)


def full_server(u, **more):
    return pool([{"address": u.address, "max_conns": 1}], **more)


def test_the_important_first_and_the_unimportant_give_way(tmp_path):
    """A queue of three: core before normal before low; when it is full, low ones go, with 429 and Retry-After."""
    gate = Gate()
    routes = [{"path": "/" + c, "upstream": "p", "priority": c} for c in ("core", "low")] + [{"path": "/x", "upstream": "p"}]
    with Upstream(gate) as u, gateway(tmp_path, text_of([full_server(u, queue=3)], routes)) as g:
        crowd = Crowd(g)
        crowd.ask("running")
        wait_until(lambda: u.requests)
        for i, path in enumerate(("/low", "/low", "/x")):
            crowd.ask(path + str(i), path)
            crowd.waiting(i + 1)
        crowd.ask("/core", "/core")
        wait_until(lambda: crowd.order == ["/low1"])
        gone = crowd.replies["/low1"]
        assert gone.status_code == 429 and int(gone.headers["Retry-After"]) >= 1
        assert requests.get(g.url + "/low").status_code == 429  # nobody gives way to it
        for n in range(4):
            gate.permits.release()
            wait_until(lambda: len(crowd.order) == n + 2)
        crowd.end()
        assert crowd.order == ["/low1", "running", "/core", "/x2", "/low0"]
        assert [r.status_code for r in crowd.replies.values()].count(200) == 4
        g.wait_metric("inferd_upstream_queue_evicted_total", 1)
        g.wait_metric("inferd_upstream_queue_refused_total", 1)
        g.wait_metric("inferd_upstream_queue_seconds_count", 3)


def test_tenants_take_turns(tmp_path):
    """One tenant's ten requests wait; another's first is answered after one more of them, not after ten."""
    keys = tmp_path / "keys"
    a, b = make(keys, "a", "-t", "one"), make(keys, "b", "-t", "two")
    gate = Gate()
    with Upstream(gate) as u, gateway(tmp_path, text_of([full_server(u)], [{"path": "/x", "upstream": "p"}]),
                                      f"--auth.keys_file={keys}", "--auth.open=live,ready,metrics,admin_status") as g:
        crowd = Crowd(g)
        crowd.ask("running", **{"x-api-key": a})
        wait_until(lambda: u.requests)
        for i in range(6):
            crowd.ask(f"a{i}", **{"x-api-key": a})
            crowd.waiting(i + 1)
        crowd.ask("b", **{"x-api-key": b})
        crowd.waiting(7)
        for n in range(8):
            gate.permits.release()
            wait_until(lambda: len(crowd.order) == n + 1)
        crowd.end()
        assert crowd.order.index("b") <= 2, crowd.order
        assert [x for x in crowd.order if x != "b"] == ["running"] + [f"a{i}" for i in range(6)]


def test_who_leaves_or_has_no_time_does_not_wait(tmp_path):
    """A client that leaves frees its place at once; a deadline ends the wait with 504, the queue's time with 429; who can't be served in time
    is told so at once."""
    gate = Gate()
    with Upstream(gate) as u, gateway(tmp_path, text_of([full_server(u, queue=3, queue_timeout="1s")],
                                                        [{"path": "/x", "upstream": "p"}])) as g:
        crowd = Crowd(g)
        crowd.ask("running")
        wait_until(lambda: u.requests)
        host, port = g.address.split(":")
        with socket.create_connection((host, int(port))) as s:
            s.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            crowd.waiting(1)
        crowd.waiting(0)
        start = time.monotonic()
        assert requests.get(g.url + "/x", headers={"x-inferd-timeout-ms": "200"}).status_code == 504
        assert 0.19 < time.monotonic() - start < 0.9
        start = time.monotonic()
        late = requests.get(g.url + "/x")
        assert late.status_code == 429 and late.headers["Retry-After"] and 0.99 < time.monotonic() - start < 3
        assert len(u.requests) == 1
        # one answer each 0.2 s: the queue's pace is known, and three more take 0.8 s: 100 ms are not enough
        for i in range(3):
            crowd.ask(f"w{i}")
            crowd.waiting(i + 1)
        gate.permits.release()
        for i in range(2):
            time.sleep(0.2)
            gate.permits.release()
            wait_until(lambda: len(crowd.order) == i + 2)
        crowd.ask("w3")
        crowd.waiting(1)
        start = time.monotonic()
        early = requests.get(g.url + "/x", headers={"x-inferd-timeout-ms": "40"})
        assert early.status_code == 429 and "than can be served in its time" in early.text
        assert time.monotonic() - start < 0.9  # it did not wait out the queue's second
        for _ in range(3):
            gate.permits.release()
        crowd.end()
        assert all(r.status_code == 200 for r in crowd.replies.values())
