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
from gateway_upstream import Request, Upstream, answer
from raw_socket import address
from test_gateway import gateway, pool, text_of, total
from test_gateway_h2 import wait_for

ROUTE = {"path_prefix": "/", "upstream": "p", "max_body": "64MiB"}


class Raw:
    """An upstream that is given the connection and the head, and reads the rest itself."""

    def __init__(self, behave):
        self.behave, self.heads, self.seen, self.ended = behave, [], [], threading.Semaphore(0)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        data = b""
        with connection:
            try:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
                head, rest = data.split(b"\r\n\r\n", 1)
                self.heads.append(head.decode().lower())
                self.behave(self, connection, rest)
            except OSError:
                pass
            finally:
                self.ended.release()


def more_of(connection):
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("cut off")
    return data


def read_chunks(connection, data):
    """The chunks of a body, as they come."""
    while True:
        while b"\r\n" not in data:
            data += more_of(connection)
        line, data = data.split(b"\r\n", 1)
        n = int(line, 16)
        while len(data) < n + 2:
            data += more_of(connection)
        yield data[:n]
        assert data[n:n + 2] == b"\r\n"
        data = data[n + 2:]
        if n == 0:
            return


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
    def echo(u, connection, rest):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for chunk in read_chunks(connection, rest):
            if chunk:
                connection.sendall(b"%x\r\n[%s]\r\n" % (len(chunk) + 2, chunk))
        connection.sendall(b"0\r\n\r\n")

    with Raw(echo) as u, start(tmp_path, u) as g:
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n") as s:
            for i in range(5):
                s.sendall(b"3\r\nab%d\r\n" % i)
                until(s, b"[ab%d]" % i)
            s.sendall(b"0\r\nx-t: 1\r\n\r\n")
            until(s, b"0\r\n\r\n")
            assert s.recv(1) == b""  # the reply had overtaken the request: the connection ends
        assert "transfer-encoding: chunked" in u.heads[0] and "content-length" not in u.heads[0] and "trailer" not in u.heads[0]


@pytest.mark.parametrize("kind", ["h1", "h2"])
def test_large_bodies_are_not_held(tmp_path, kind):
    """64 MB up, over each protocol out: they arrive whole, and the gateway stays small."""
    digest = {}

    def swallow(u, connection, rest):
        h, left = hashlib.sha256(rest), (64 << 20) - len(rest)
        while left:
            data = connection.recv(1 << 20)
            h.update(data)
            left -= len(data)
        digest["sum"] = h.digest()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def swallow2(connection, stream):
        digest["sum"] = hashlib.sha256(stream.body).digest()
        reply(b"ok")(connection, stream)

    data = os.urandom(1 << 20) * (64 if kind == "h1" else 8)
    with (Raw(swallow) if kind == "h1" else H2Upstream(swallow2)) as u:
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

    def stall(u, connection, rest):
        go.wait(20)
        while connection.recv(1 << 20):
            pass

    with Raw(stall) as u, start(tmp_path, u, route={"try_timeout": "30s"}) as g:
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
        wait_for(lambda: total(g, "inferd_upstream_requests_total", outcome="cancelled") == 1)
        assert u.ended.acquire(timeout=5)


def test_a_body_past_the_limit(tmp_path):
    """Announced: before anything is sent on. In chunks: when it passes the limit, as 413, and the server is left alone."""
    def swallow(u, connection, rest):
        while connection.recv(1 << 20):
            pass

    with Raw(swallow) as u, start(tmp_path, u, route={"max_body": "1MiB"}) as g:
        assert requests.post(g.url + "/x", data=b"x" * (1 << 20) + b"x").status_code == 413
        assert u.heads == []
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n") as s:
            for _ in range(16):
                s.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            s.sendall(b"1\r\nx\r\n")
            assert until(s, b"\r\n\r\n").startswith(b"HTTP/1.1 413 ")
        assert u.ended.acquire(timeout=5)
    with Raw(swallow) as u, start(tmp_path, u, route={"max_body": "10KiB"}) as g, Http2(g) as c:
        head, stream = c.head("POST", "/x", end=False)
        c.send(head, c.data(stream, b"x" * 10240), c.data(stream, b"x"))
        assert c.answer(stream)[0] == 413


def test_early_answers(tmp_path):
    """An answer while the body is still coming reaches the client at once; the connection ends behind it."""
    def refuse(u, connection, rest):
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    with Raw(refuse) as u, start(tmp_path, u) as g:
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n" + b"x" * 1000) as s:
            data = until(s, b"no")
            assert data.startswith(b"HTTP/1.1 401 ") and b"Connection: close" in data
        with Http2(g) as c:
            head, stream = c.head("POST", "/x", end=False)
            c.send(head, c.data(stream, b"x" * 1000))
            assert c.answer(stream) == (401, b"no")
        assert total(g, "inferd_upstream_requests_total", outcome="ok") == 2


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
    def die(u, connection, rest):
        got = len(rest)
        while got < u.dies_at:
            got += len(more_of(connection))

    def body(n):
        return iter([b"x" * 1000] * (n // 1000))

    with Raw(die) as bad, Upstream(answer(b"good")) as good:
        with socket.create_server(("127.0.0.1", 0)) as s:
            nobody = "127.0.0.1:%d" % s.getsockname()[1]
        good._read = lambda connection, data: chunked_request(connection, data)
        with start(tmp_path, [bad, good], max_fails=1000, retry={"buffer": "100KiB"}) as g:
            bad.dies_at = 50_000
            for _ in range(4):
                assert requests.post(g.url + "/x", data=body(90_000)).text == "good"
            bad.dies_at = 700_000
            statuses = [requests.post(g.url + "/x", data=body(1_000_000)).status_code for _ in range(4)]
            assert sorted(statuses) == [200, 200, 502, 502]
            assert total(g, "inferd_upstream_unreplayable_total") == 2
        with start(tmp_path, [nobody, good], max_fails=1000, retry={"buffer": "0"}) as g:
            for _ in range(4):
                assert requests.post(g.url + "/x", data=body(1_000_000)).text == "good"
        assert all(r.body in (90_000, 1_000_000) for r in good.requests)


def chunked_request(connection, data):
    """Upstream._read for a request in chunks; its body is the number of bytes."""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None, b""
        data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    return Request(head, sum(map(len, read_chunks(connection, rest)))), b""


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
    def behave(u, connection, rest):
        list(read_chunks(connection, rest))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with Raw(behave) as u, start(tmp_path, u, route={"try_timeout": "200ms"}) as g:
        with client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n") as s:
            time.sleep(0.6)
            s.sendall(b"0\r\n\r\n")
            assert until(s, b"ok").startswith(b"HTTP/1.1 200 ")


def test_broken_off_bodies(tmp_path):
    """A client that leaves, or sends nonsense, in the middle of its body: the server sees a cut connection, never a whole request; nonsense
    is answered with what is wrong, and the end."""
    whole = []

    def behave(u, connection, rest):
        for chunk in read_chunks(connection, rest):
            if not chunk:
                whole.append(1)
    with Raw(behave) as u, start(tmp_path, u) as g:
        for end in (b"", b"zz\r\n"):
            s = client(g, b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            wait_for(lambda: len(u.heads) == 1 + (end != b""))
            s.sendall(end)
            if end:
                said = until(s, b"}")
                assert said.startswith(b"HTTP/1.1 400 ") and b"the chunked body is malformed" in said, said
                assert s.recv(100) == b""
            s.close()
            assert u.ended.acquire(timeout=5)
        assert whole == []
        g.alive()
