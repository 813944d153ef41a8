"""test_gateway_h2.py: HTTP/2 to upstreams: over h2c and ALPN, many requests on a connection, what a server may do on it, and all pairs of protocols."""
import concurrent.futures
import hashlib
import os
import socket
import ssl
import subprocess
import threading
import time

import hpack
import httpx
import pytest
import requests

from certificates import Authority
from gateway_h2 import H2Upstream, reply
from gateway_upstream import Upstream, answer
from inferd_server import SIMPLE, Server, wait_until as wait_for, write_fake
from test_gateway import BODY, SUM, gateway, pool, text_of, wait_idle

ROUTE = [{"path_prefix": "/", "upstream": "p", "max_body": "64MiB"}]
REFUSED, CANCEL = 7, 8


def start(tmp_path, u, *args, route=(), **more):
    servers = u if isinstance(u, list) else [u]
    return gateway(tmp_path, text_of([pool(servers, **{"protocol": "http2", **more})], [{**ROUTE[0], **dict(route)}]), "--http.threads=1", *args)


@pytest.fixture(scope="module")
def replica(tmp_path_factory):
    root = tmp_path_factory.mktemp("replica")
    write_fake(root, "simple", SIMPLE)
    with Server(root) as s:
        yield s


def test_every_pair_of_protocols(tmp_path, replica):
    """h1 and h2 in, h1 and h2 out, to a real replica: the same answers, on few connections."""
    pools = [pool([replica], "one"), pool([replica], "two", protocol="http2")]
    routes = [{"header": "x-out: 1", "upstream": "one"}, {"header": "x-out: 2", "upstream": "two"}]
    with gateway(tmp_path, text_of(pools, routes), "--http.threads=1") as g:
        for http2 in (False, True):
            with httpx.Client(http1=not http2, http2=http2) as client:
                for out in ("1", "2"):
                    for _ in range(5):
                        r = client.post(g.url + "/v2/models/simple/infer", json=BODY, headers={"x-out": out})
                        assert (r.status_code, r.http_version) == (200, "HTTP/2" if http2 else "HTTP/1.1")
                        assert r.json()["outputs"][0]["data"] == SUM
        replica.wait_metric("inferd_http2_connections", 1, listener="http")
        for p in ("one", "two"):
            g.wait_metric("inferd_upstream_requests_total", 10, pool=p, outcome="ok")


def test_alpn(tmp_path):
    """auto takes HTTP/2 where the server has it and HTTP/1.1 where it has not; http2 insists."""
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("ip", "IP:127.0.0.1")

    def context(*protocols):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        c.load_cert_chain(*map(str, pair))
        if protocols:
            c.set_alpn_protocols(list(protocols))
        return c

    with H2Upstream(reply(b'"two"'), tls=context("h2", "http/1.1")) as two, Upstream(answer(b'"one"'), tls=context("http/1.1")) as one, \
            Upstream(answer(b'"none"'), tls=context()) as none:
        tls = {"ca": str(authority.ca)}
        pools = [pool([u], n, protocol=p, tls=tls) for u, n, p in ((two, "a", "auto"), (one, "b", "auto"), (none, "c", "auto"),
                                                                   (two, "d", "http2"), (one, "e", "http2"))]
        with gateway(tmp_path, text_of(pools, [{"path": "/" + n, "upstream": n} for n in "abcde"]), "--http.threads=1") as g:
            for n, want in (("a", "two"), ("b", "one"), ("c", "none"), ("d", "two")):
                for _ in range(3):
                    assert requests.post(f"{g.url}/{n}", data=b"x").json() == want, n
            assert requests.get(g.url + "/e").status_code == 502
            assert len(two.all) == 2 and two.requests[0].get(":scheme") == ["https"]


def test_many_at_once_share_a_connection(tmp_path):
    """64 at once: one connection, at most as many as the server allows; with a bound of 10, more connections rather than waiting."""
    def slow(connection, stream):
        time.sleep(0.1)
        reply(stream.body)(connection, stream)

    for most, connections in ((0, range(1, 2)), (10, range(2, 8))):
        with H2Upstream(slow, max_streams=most) as u, start(tmp_path, u) as g:
            assert requests.post(g.url + "/w", data=b"w").content == b"w"  # its SETTINGS are known from here on
            with concurrent.futures.ThreadPoolExecutor(64) as many:
                bodies = [b"%d" % i for i in range(64)]
                assert list(many.map(lambda b: requests.post(g.url + "/x", data=b).content, bodies)) == bodies
            assert len(u.all) in connections
            assert all(s.ended and not s.reset for s in u.requests)


def test_what_is_sent(tmp_path):
    """Names in lower case, pseudo-headers, no field of one hop, the body's length, Via."""
    with H2Upstream(reply(b"{}", fields=[("x-back", "1")])) as u, start(tmp_path, u) as g:
        r = requests.post(g.url + "/p?a=1&b=%20", data=b"body", headers={"X-Keep": "K", "TE": "trailers", "Connection": "x-drop, keep-alive", "X-Drop": "1"})
        assert r.status_code == 200 and r.headers["x-back"] == "1"
        s = u.requests[0]
        assert s.body == b"body" and s.get("content-length") == ["4"]
        assert s.fields[:4] == [(":method", "POST"), (":scheme", "http"), (":authority", g.address), (":path", "/p?a=1&b=%20")]
        for name in ("connection", "te", "x-drop", "host", "transfer-encoding", "keep-alive"):
            assert s.get(name) == [], name
        assert s.get("x-keep") == ["K"] and s.get("x-forwarded-for") == ["127.0.0.1"] and s.get("via")[0].startswith("1.1 inferd-")


def test_large_bodies_and_both_windows(tmp_path):
    """32 MB there and back through windows of 64 KiB and 256 KiB, from both kinds of client."""
    def echo(connection, stream):
        connection.head(stream, 200, [("content-type", "x/y")])
        connection.data(stream, stream.body, end=True)

    data = os.urandom(1 << 20) * 8
    with H2Upstream(echo) as u, start(tmp_path, u) as g:
        assert hashlib.sha256(requests.post(g.url + "/x", data=data).content).digest() == hashlib.sha256(data).digest()
        with httpx.Client(http1=False, http2=True, timeout=60) as client:
            assert client.post(g.url + "/x", content=data).content == data
        assert len(u.all) == 1


def test_a_slow_reader_stops_its_own_stream_only(tmp_path):
    sent = {"n": 0}

    def behave(connection, stream):
        if stream.get(":path") == ["/endless"]:
            connection.head(stream, 200, [])
            while connection.data(stream, b"x" * 16384):
                sent["n"] += 16384
        else:
            reply(b"other")(connection, stream)

    with H2Upstream(behave) as u, start(tmp_path, u) as g:
        host, port = g.address.split(":")
        with socket.create_connection((host, int(port))) as s:
            s.sendall(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
            s.recv(1000)
            last = -1
            while sent["n"] != last:
                last = sent["n"]
                assert requests.get(g.url + "/other").content == b"other"
                time.sleep(0.4)
            assert sent["n"] < 32 << 20 and len(u.all) == 1
        assert u.cancelled.acquire(timeout=10)
        assert u.resets[-1][1] == CANCEL
        assert requests.get(g.url + "/other").content == b"other" and len(u.all) == 1


def test_goaway_and_refused_streams_are_tried_elsewhere(tmp_path):
    """What the server says it has not begun is tried again, even where the route is not idempotent; what it had begun is not."""
    def refuse(connection, stream):
        connection.rst(stream, REFUSED)

    def go(connection, stream):
        connection.goaway(0)

    def cut(connection, stream):
        connection.rst(stream, 2)

    with H2Upstream(reply(b'"good"')) as good, H2Upstream(refuse) as bad:
        with start(tmp_path, [good, bad], max_fails=1000, route={"idempotent": False}) as g:
            for behave in (refuse, go):
                bad.behave = behave
                assert [requests.post(g.url + "/x", data=b"1").text for _ in range(6)] == ['"good"'] * 6
            assert len(bad.requests) == 3 + 2 * 3  # who leaves is asked once more, over another connection
            bad.behave = cut
            statuses = sorted(requests.post(g.url + "/x", data=b"1").status_code for _ in range(6))
            assert statuses == [200] * 3 + [502] * 3


def test_goaway_of_the_only_server(tmp_path):
    """A server that ends a connection before it began on a request gets it again over another one: no retry, no failure, no other server needed.
    One that does so again and again is broken."""
    left = []

    def go(connection, stream):
        left.append(connection)
        connection.goaway(0)

    def go_once(connection, stream):
        (reply(b'"good"') if left else go)(connection, stream)

    with H2Upstream(go_once) as u, start(tmp_path, u, max_fails=1000, route={"idempotent": False}) as g:
        for _ in range(3):
            left.clear()
            assert requests.post(g.url + "/x", data=b"1").text == '"good"'
            assert len(left) == 1
        g.wait_metric("inferd_upstream_retries_total", 0)
        g.wait_metric("inferd_upstream_requests_total", 3, outcome="ok")
        g.wait_metric("inferd_upstream_requests_total", 0, outcome="gateway_failure")
        left.clear()
        u.behave = go
        assert requests.post(g.url + "/x", data=b"1").status_code == 502
        assert 2 <= len(left) <= 4


def test_goaway_lets_what_runs_finish(tmp_path):
    """A graceful end: streams up to the last id are answered, later requests go over another connection, nobody sees anything."""
    said, over = threading.Event(), threading.Event()

    def behave(connection, stream):
        if stream.get(":path") == ["/slow"]:
            # by hand: h2 takes and gives nothing behind a GOAWAY of its own
            connection.socket.sendall(b"\x00\x00\x08\x07" + bytes(5) + stream.number.to_bytes(4, "big") + bytes(4))
            said.set()
            over.wait(20)
            reply(b"slow")(connection, stream)
        else:
            reply(b"fast")(connection, stream)

    with H2Upstream(behave) as u, start(tmp_path, u) as g, concurrent.futures.ThreadPoolExecutor(1) as one:
        slow = one.submit(lambda: requests.get(g.url + "/slow"))
        assert said.wait(20)
        assert requests.get(g.url + "/fast").text == "fast"
        over.set()
        assert (slow.result().status_code, slow.result().text) == (200, "slow")
        assert len(u.all) == 2
        g.wait_metric("inferd_upstream_retries_total", 0)


@pytest.mark.parametrize("phase", ["before_head", "streaming", "uploading"])
def test_a_client_that_leaves_resets_its_stream(tmp_path, phase):
    """RST_STREAM CANCEL, and the connection goes on for others."""
    def behave(connection, stream):
        if phase == "streaming":
            connection.head(stream, 200, [])
            while connection.data(stream, b"x" * 10):
                time.sleep(0.01)

    with H2Upstream(behave) as u, start(tmp_path, u) as g:
        host, port = g.address.split(":")
        if phase == "uploading":
            u.early, u.consume = True, False
        with socket.create_connection((host, int(port))) as s:
            if phase == "uploading":
                s.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 300000)
            else:
                s.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_for(lambda: u.requests)
            if phase == "streaming":
                assert s.recv(100)
        assert u.cancelled.acquire(timeout=5)
        assert u.resets == [(1, CANCEL)]
        g.wait_metric("inferd_upstream_requests_total", 1, outcome="cancelled")
        wait_idle(g)
        u.behave, u.early, u.consume = reply(b"next"), False, True
        assert requests.get(g.url + "/x").text == "next" and len(u.all) == 1


def test_what_a_server_may_not_do(tmp_path):
    """Too large a head, a body of another length, a cut in the middle, garbage: 502 before an answer has begun, a cut after; the gateway lives."""
    def large(connection, stream):
        connection.head(stream, 200, [("x-%d" % i, "y" * 900) for i in range(100)], end=True)

    def many(connection, stream):
        connection.head(stream, 200, [("x-%d" % i, "") for i in range(250)], end=True)

    def garbage(connection, stream):
        connection.socket.sendall(b"\x00\x00\x04\x77\xff\x00\x00\x00\x01HTTP/1.1 200 OK\r\n\r\n")

    def longer(connection, stream):
        connection.head(stream, 200, [("content-length", "5")])
        connection.data(stream, b"x" * 10, end=True)

    def close(connection, stream):
        connection.socket.shutdown(socket.SHUT_RDWR)

    with H2Upstream(reply()) as u, start(tmp_path, u, max_fails=1000, retry={"attempts": 1}) as g:
        for behave in (large, many, garbage, close, longer):
            u.behave = behave
            assert requests.get(g.url + "/x").status_code == 502, behave.__name__
        u.behave = reply(b"fine", fields=[("x-%d" % i, "y" * 500) for i in range(50)])
        assert requests.get(g.url + "/x").text == "fine"

        def half(connection, stream):
            connection.head(stream, 200, [("content-type", "text/event-stream")])
            connection.data(stream, b"data: 1\n\n")
            time.sleep(0.05)
            connection.rst(stream, 2)
        u.behave = half
        text = requests.get(g.url + "/x").text
        assert text.startswith("data: 1\n\nevent: error\ndata: {") and "upstream_broken" in text
        g.alive()


def test_interim_answers_and_trailers(tmp_path):
    """1xx are passed over; trailers reach clients of HTTP/2."""
    def behave(connection, stream):
        with connection.lock:
            connection.h2.send_headers(stream.number, [(":status", "103"), ("link", "x")])
        connection.head(stream, 200, [("content-type", "a/b")])
        connection.data(stream, b"body")
        connection.trailers(stream, [("x-trailer", "t")])

    with H2Upstream(behave) as u, start(tmp_path, u) as g:
        assert requests.get(g.url + "/x").text == "body"
        out = subprocess.run(["curl", "-sS", "-i", "--http2-prior-knowledge", g.url + "/x"], capture_output=True, text=True)
        assert "body" in out.stdout and "x-trailer: t" in out.stdout and "103" not in out.stdout


def test_answers_that_are_only_a_head(tmp_path):
    """204 and 304, whose stream ends with the head, later, or with trailers; a status that is none is 502."""
    def late(connection, stream):
        connection.head(stream, status)
        connection.data(stream, b"", end=True)

    def trailers(connection, stream):
        connection.head(stream, status)
        connection.trailers(stream, [("x-trailer", "t")])

    def odd(connection, stream):
        with connection.lock:
            block = hpack.Encoder().encode([(":status", "000")])
            connection.socket.sendall(len(block).to_bytes(3, "big") + b"\x01\x05" + stream.number.to_bytes(4, "big") + block)

    with H2Upstream(reply()) as u, start(tmp_path, u, max_fails=1000, retry={"attempts": 1}) as g:
        for status in (204, 304):
            for u.behave in (late, trailers):
                for version in ("--http1.1", "--http2-prior-knowledge"):
                    out = subprocess.run(["curl", "-sS", "-i", version, g.url + "/x"], capture_output=True, text=True)
                    assert out.returncode == 0 and out.stdout.split()[1] == str(status) and "content-length" not in out.stdout.lower()
        u.behave = odd
        assert requests.get(g.url + "/x").status_code == 502
        g.alive()


def test_silence_is_asked_about(tmp_path):
    """ping_interval: a server that answers PINGs may think as long as it likes; one that is dead is given up."""
    def slow(connection, stream):
        time.sleep(1.5)
        reply(b"thought")(connection, stream)

    with H2Upstream(slow) as u, start(tmp_path, u, ping_interval="500ms", retry={"attempts": 1}) as g:
        assert requests.get(g.url + "/x").text == "thought"
        u.behave = lambda c, s: c.lock.acquire()  # its reader hangs from now on
        begin = time.monotonic()
        assert requests.get(g.url + "/x", timeout=10).status_code == 502
        assert time.monotonic() - begin < 5


def test_checks_speak_http2(tmp_path):
    def behave(connection, stream):
        ready = stream.get(":path") != ["/ready"] or ok["ok"]
        reply(b"it", 200 if ready else 503)(connection, stream)

    ok = {"ok": False}
    with H2Upstream(behave) as u, start(tmp_path, u, check={"path": "/ready", "interval": "50ms", "rise": 1, "fall": 1}) as g:
        wait_for(lambda: requests.get(g.url + "/x").status_code == 503)
        ok["ok"] = True
        wait_for(lambda: requests.get(g.url + "/x").status_code == 200)


def test_an_idle_connection_says_goodbye(tmp_path):
    with H2Upstream(reply(b"it")) as u, start(tmp_path, u, keepalive_timeout="200ms") as g:
        assert [requests.get(g.url + "/x").text for _ in range(3)] == ["it"] * 3
        assert len(u.all) == 1 and u.closed.acquire(timeout=5)
        assert requests.get(g.url + "/x").text == "it" and len(u.all) == 2
