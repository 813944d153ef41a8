"""test_gateway_bodies.py: request bodies on their way up: as they come, with back-pressure both ways, sent again as far as they are kept, answered early."""
import gzip
import hashlib
import os
import socket
import threading
import time

import pytest
import requests

from gateway_h2 import H2Upstream, reply
from http2_raw import Http2
from gateway_upstream import Upstream, answer
from inferd_server import wait_until
from raw_socket import address
from test_gateway import gateway, pool, text_of

ROUTE = {"path_prefix": "/", "upstream": "p", "max_body": "64MiB"}


def as_it_comes(behave):
    """An upstream that answers before it has read the body, which is the behaviour's to read."""
    return Upstream(behave, whole=False)


def swallow(connection, request):
    for _ in request.pieces():
        pass


def start(tmp_path, u, *args, route=(), **more):
    servers = u if isinstance(u, list) else [u]
    return gateway(tmp_path, text_of([pool(servers, **more)], [{**ROUTE, **dict(route)}]), "--http.threads=1", *args)


def client(g, head):
    s = socket.create_connection(address(g), timeout=10)
    s.sendall(head)
    return s


def until(s, what, data=b""):
    while what not in data:
        more = s.recv(65536)
        assert more, data
        data += more
    return data


def test_pieces_are_passed_on_as_they_come(tmp_path):
    """Each chunk reaches the server before the next is sent, and its answer the client before the body's end: both directions at once."""
    def echo(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in request.pieces():
            connection.sendall(b"%x\r\n[%s]\r\n" % (len(chunk) + 2, chunk))
        connection.sendall(b"0\r\n\r\n")

    with as_it_comes(echo) as u, start(tmp_path, u) as g:
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n") as s:
            for i in range(5):
                s.sendall(b"3\r\nab%d\r\n" % i)
                until(s, b"[ab%d]" % i)
            s.sendall(b"0\r\nx-t: 1\r\n\r\n")
            until(s, b"0\r\n\r\n")
            assert s.recv(1) == b""  # the reply had overtaken the request: the connection ends
        assert [u.requests[0].get(name) for name in ("transfer-encoding", "content-length", "trailer")] == [["chunked"], [], []]


@pytest.mark.parametrize("kind", ["h1", "h2"])
def test_large_bodies_are_not_held(tmp_path, kind):
    """64 MB up, over each protocol out: they arrive whole, and the gateway stays small."""
    digest = {}

    def digest_it(connection, request):
        h = hashlib.sha256()
        for piece in request.pieces():
            h.update(piece)
        digest["sum"] = h.digest()
        answer(b"ok")(connection, request)

    def digest_stream(connection, stream):
        digest["sum"] = hashlib.sha256(stream.body).digest()
        reply(b"ok")(connection, stream)

    data = os.urandom(1 << 20) * (64 if kind == "h1" else 8)
    with (as_it_comes(digest_it) if kind == "h1" else H2Upstream(digest_stream)) as u:
        with start(tmp_path, u, protocol="http2" if kind == "h2" else "http1") as g:
            before = g.rss_bytes()
            r = requests.post(g.url + "/x", data=data)
            assert (r.status_code, r.text) == (200, "ok")
            assert digest["sum"] == hashlib.sha256(data).digest()
            assert g.rss_bytes() - before < 16 << 20
            with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % ((64 << 20) + 1)) as s:
                assert until(s, b"\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_server_that_does_not_read_stops_the_client(tmp_path):
    """Back-pressure: what the server doesn't take stays with the client; when the client leaves, the server sees it."""
    go = threading.Event()

    def stall(connection, request):
        go.wait(20)
        swallow(connection, request)

    with as_it_comes(stall) as u, start(tmp_path, u, route={"try_timeout": "30s"}) as g:
        before = g.rss_bytes()
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (64 << 20)) as s:
            s.settimeout(0.5)
            sent = 0
            try:
                while sent < 64 << 20:
                    sent += s.send(b"x" * 65536)
            except TimeoutError:
                pass
            assert sent < 32 << 20 and g.rss_bytes() - before < 8 << 20
        go.set()  # its end is behind what nobody has read
        g.wait_metric("inferd_upstream_requests_total", 1, outcome="cancelled")
        assert u.closed.acquire(timeout=5)


def test_a_body_past_the_limit(tmp_path):
    """Announced: before anything is sent on. In chunks: when it passes the limit, as 413, and the server is left alone."""
    with as_it_comes(swallow) as u, start(tmp_path, u, route={"max_body": "1MiB"}) as g:
        assert requests.post(g.url + "/x", data=b"x" * (1 << 20) + b"x").status_code == 413
        assert u.requests == []
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n") as s:
            for _ in range(16):
                s.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            s.sendall(b"1\r\nx\r\n")
            assert until(s, b"\r\n\r\n").startswith(b"HTTP/1.1 413 ")
        assert u.closed.acquire(timeout=5)
    with as_it_comes(swallow) as u, start(tmp_path, u, route={"max_body": "10KiB"}) as g, Http2(g) as c:
        head, stream = c.head("POST", "/x", end=False)
        c.send(head, c.data(stream, b"x" * 10240), c.data(stream, b"x"))
        assert c.answer(stream)[0] == 413


def test_early_answers(tmp_path):
    """An answer while the body is still coming reaches the client at once; the connection ends behind it."""
    def refuse(connection, request):
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        connection.shutdown(socket.SHUT_WR)
        swallow(connection, request)

    with as_it_comes(refuse) as u, start(tmp_path, u) as g:
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 1000) as s:
            data = until(s, b"no")
            assert data.startswith(b"HTTP/1.1 401 ") and b"Connection: close" in data
        with Http2(g) as c:
            head, stream = c.head("POST", "/x", end=False)
            c.send(head, c.data(stream, b"x" * 1000))
            assert c.answer(stream) == (401, b"no")
        g.wait_metric("inferd_upstream_requests_total", 2, outcome="ok")


def test_expect_continue(tmp_path):
    """100 comes from the gateway, when it has a use for the body; a refusal comes instead of it; upstreams are not asked."""
    with Upstream(answer(b"ok")) as u, start(tmp_path, u) as g:
        for n in (10, 1_000_000):
            with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n" % n) as s:
                assert until(s, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                s.sendall(b"x" * n)
                assert until(s, b"ok").startswith(b"HTTP/1.1 200 ")
            assert len(u.requests[-1].body) == n and u.requests[-1].get("expect") == []
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n") as s:
            assert until(s, b"\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_what_is_kept_is_sent_again(tmp_path):
    """A server that dies in the middle: a body within retry.buffer goes to the other one, a longer one is a 502, counted as not replayable. A server that
    can't be connected to costs no body at all."""
    dies_at = 50_000

    def die(connection, request):
        left = dies_at
        for piece in request.pieces():
            left -= len(piece)
            if left <= 0:
                return "close"
        return "close"

    def body(n):
        return iter([b"x" * 1000] * (n // 1000))

    with as_it_comes(die) as bad, Upstream(answer(b"good")) as good:
        with socket.create_server(("127.0.0.1", 0)) as s:
            nobody = "127.0.0.1:%d" % s.getsockname()[1]
        with start(tmp_path, [bad, good], max_fails=1000, retry={"buffer": "100KiB"}) as g:
            for _ in range(4):
                assert requests.post(g.url + "/x", data=body(90_000)).text == "good"
            dies_at = 700_000
            statuses = [requests.post(g.url + "/x", data=body(1_000_000)).status_code for _ in range(4)]
            assert sorted(statuses) == [200, 200, 502, 502]
            g.wait_metric("inferd_upstream_unreplayable_total", 2)
        with start(tmp_path, [nobody, good], max_fails=1000, retry={"buffer": "0"}) as g:
            for _ in range(4):
                assert requests.post(g.url + "/x", data=body(1_000_000)).text == "good"
        assert all(len(r.body) in (90_000, 1_000_000) for r in good.requests)


def test_encodings_pass(tmp_path):
    """A streamed body keeps its Content-Encoding, since nobody here has undone it; a collected one arrives as what it was."""
    plain = os.urandom(600_000)
    packed = gzip.compress(plain)
    with Upstream(answer(b"ok")) as u, start(tmp_path, u) as g:
        requests.post(g.url + "/x", data=packed, headers={"Content-Encoding": "gzip"})
        assert u.requests[0].body == packed and u.requests[0].get("content-encoding") == ["gzip"]
        requests.post(g.url + "/x", data=gzip.compress(b"small"), headers={"Content-Encoding": "gzip"})
        assert u.requests[1].body == b"small" and u.requests[1].get("content-encoding") == []


def test_a_slow_client_is_not_the_servers_fault(tmp_path):
    """try_timeout does not count while the body is still coming."""
    def behave(connection, request):
        swallow(connection, request)
        answer(b"ok")(connection, request)

    with as_it_comes(behave) as u, start(tmp_path, u, route={"try_timeout": "200ms"}) as g:
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n") as s:
            time.sleep(0.6)
            s.sendall(b"0\r\n\r\n")
            assert until(s, b"ok").startswith(b"HTTP/1.1 200 ")


def test_broken_off_bodies(tmp_path):
    """A client that leaves, or sends nonsense, in the middle of its body: the server sees a cut connection, never a whole request; nonsense
    is answered with what is wrong, and the end."""
    whole = []

    def behave(connection, request):
        swallow(connection, request)
        whole.append(1)

    with as_it_comes(behave) as u, start(tmp_path, u) as g:
        for end in (b"", b"zz\r\n"):
            s = client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            wait_until(lambda: len(u.requests) == 1 + (end != b""))
            s.sendall(end)
            if end:
                said = until(s, b"}")
                assert said.startswith(b"HTTP/1.1 400 ") and b"the chunked body is malformed" in said, said
                assert s.recv(100) == b""
            s.close()
            assert u.closed.acquire(timeout=5)
        assert whole == []
        g.alive()
