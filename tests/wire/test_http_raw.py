"""test_http_raw.py: HTTP/1.1 by raw sockets against the whole server: what smuggles is refused, every limit answers with its status and
is counted, slow and vanishing clients cost nothing, and descriptors running out is survived."""
import http.client
import os
import resource
import socket
import time
import zlib

import pytest
import requests

from inferd_server import SIMPLE, Server, wait_equal, wait_until, write_fake

HOST = b"Host: h\r\n"
POST = b"POST /v2/models/simple/infer HTTP/1.1\r\n" + HOST

# Names follow the classes of published request-smuggling work; status by RFC 9112.
SMUGGLING = {
    "cl.te": (400, POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG"),
    "te.cl": (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nGPOST / HTTP/1.1\r\n\r\n0\r\n\r\n"),
    "te.te": (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow\r\n\r\n0\r\n\r\n"),
    "te with a tab": (400, POST + b"Transfer-Encoding:\tx, chunked\r\n\r\n0\r\n\r\n"),
    "te in 1.0": (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "two lengths": (400, POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    "twice the same length": (400, POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    "a list of lengths": (400, POST + b"Content-Length: 5, 5\r\n\r\nhello"),
    "signed length": (400, POST + b"Content-Length: +5\r\n\r\nhello"),
    "hex length": (400, POST + b"Content-Length: 0x5\r\n\r\nhello"),
    "huge length": (400, POST + b"Content-Length: 99999999999999999999\r\n\r\n"),
    "bare LF after the request line": (400, b"GET / HTTP/1.1\n" + HOST + b"\r\n"),
    "bare LF after a header": (400, b"GET / HTTP/1.1\r\nHost: h\n\r\n"),
    "bare LF at the end": (400, b"GET / HTTP/1.1\r\n" + HOST + b"\n"),
    "bare CR in a value": (400, b"GET / HTTP/1.1\r\n" + HOST + b"X: a\rb\r\n\r\n"),
    "NUL in a value": (400, b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n"),
    "space before the colon": (400, POST + b"Content-Length : 5\r\n\r\nhello"),
    "folded line": (400, b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n"),
    "line without colon": (400, b"GET / HTTP/1.1\r\n" + HOST + b"oops\r\n\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "host differs from target": (400, b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n"),
    "chunk size with sign": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n"),
    "chunk size with 0x": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n"),
    "chunk size overflow": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\nx\r\n0\r\n\r\n"),
    "chunk line with bare LF": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n"),
    "CR in a chunk extension": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n1;a\rb\r\nx\r\n0\r\n\r\n"),
    "chunk longer than it says": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n"),
    "length in the trailer": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n"),
    "CONNECT": (501, b"CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n"),
    "HTTP/0.9": (505, b"GET /\r\n\r\n"),
    "TLS": (400, bytes.fromhex("16030100c8010000c40303")),
}

SMUGGLED = b"GET /v2/smuggled HTTP/1.1\r\n" + HOST + b"\r\n"


def connect(server):
    host, port = server.address.rsplit(":", 1)
    s = socket.create_connection((host, int(port)))
    s.settimeout(10)
    return s


def read_all(s):
    got = b""
    try:
        while chunk := s.recv(65536):
            got += chunk
    except ConnectionResetError:
        pass
    return got


def ask(server, data):
    with connect(server) as s:
        s.sendall(data)
        return read_all(s)


@pytest.mark.parametrize("name", SMUGGLING)
def test_what_smuggles_is_refused_and_the_connection_closed(simple_server, name):
    status, data = SMUGGLING[name]
    reply = ask(simple_server, data + SMUGGLED)
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply
    assert b"\r\nConnection: close\r\n" in reply
    assert reply.count(b"\r\nDate: ") == 1, "what stood behind the refused request was answered"
    simple_server.alive()


def test_pipelined_requests_are_answered_in_order(simple_server):
    reply = ask(simple_server, b"".join(b"GET %s HTTP/1.1\r\n%s%s\r\n" % (
        path, HOST, b"Connection: close\r\n" if i == 5 else b"") for i, path in enumerate(
            [b"/v2", b"/v2/nothing", b"/v2/models/simple", b"/v2/health/live", b"/v2/models/simple/config", b"/v2/health/ready"])))
    assert [int(part.split(b" ", 1)[0]) for part in reply.split(b"HTTP/1.1 ")[1:]] == [200, 404, 200, 200, 200, 200]
    assert reply.index(b'"extensions"') < reply.index(b'"error"') < reply.index(b'"versions"')


def test_python_http_client_waits_for_100_and_keeps_alive(simple_server):
    c = http.client.HTTPConnection(simple_server.address, timeout=10)
    for _ in range(3):
        c.request("GET", "/v2")
        assert c.getresponse().read()
    sock = c.sock
    c.putrequest("POST", "/v2/repository/index")
    c.putheader("Content-Length", "2")
    c.putheader("Expect", "100-continue")
    c.endheaders()
    assert sock.recv(25, socket.MSG_PEEK).startswith(b"HTTP/1.1 100")
    c.send(b"{}")
    r = c.getresponse()
    assert r.status == 200 and r.read() and c.sock is sock


LIMITS = ["--limits.max_connections=20", "--limits.max_header_bytes=2KiB", "--limits.max_headers=20", "--limits.max_url_bytes=256",
          "--limits.max_body_bytes=100KiB", "--limits.header_timeout=300ms", "--limits.body_timeout=300ms",
          "--limits.idle_timeout=700ms", "--limits.write_timeout=500ms"]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "large", "input = X INT32 [1]\noutput = Y INT32 [8388608] fill 1\nbatchable = false\n")  # 32 MiB
    with Server(root, args=LIMITS) as server:
        yield server


def hits(server, limit):
    return server.metric("inferd_http_limit_total", listener="http", limit=limit)


CASES = [
    ("url", 414, b"GET /" + b"a" * 400 + b" HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("headers", 431, b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"v" * 3000 + b"\r\n\r\n"),
    ("headers", 431, b"GET / HTTP/1.1\r\n" + HOST + b"X: v\r\n" * 30 + b"\r\n"),
    ("body", 413, POST + b"Content-Length: 200000\r\n\r\n" + b"x" * 200000),
    ("body", 413, POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"8000\r\n" + b"x" * 0x8000 + b"\r\n" + b"10000\r\n" + b"x" * 0x10000 + b"\r\n2000\r\n" + b"x" * 0x2000),
    ("inflate", 413, None),
    ("header_time", 408, b"GET / HTTP/1.1\r\nHos"),
    ("body_time", 408, POST + b"Content-Length: 10\r\n\r\nabc"),
]


@pytest.mark.parametrize("limit,status,data", CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_each_limit_has_its_status_and_is_counted(narrow, limit, status, data):
    if data is None:
        bomb = zlib.compress(b"\0" * 5_000_000, 9)
        data = POST + b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    before = hits(narrow, limit)
    reply = ask(narrow, data)
    assert reply.startswith(b"HTTP/1.1 %d " % status), reply[:200]
    assert b'{"error":' in reply
    wait_equal(lambda: hits(narrow, limit), before + 1)
    narrow.alive()


def test_unknown_coding_and_expectation(narrow):
    assert ask(narrow, POST + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx").startswith(b"HTTP/1.1 415 ")
    assert ask(narrow, POST + b"Expect: wonders\r\nContent-Length: 1\r\n\r\nx").startswith(b"HTTP/1.1 417 ")


def test_connections_past_the_limit_get_503_and_idle_ones_are_closed(narrow):
    open_ones = [connect(narrow) for _ in range(25)]
    try:
        refused = 0
        for s in open_ones:
            s.settimeout(0.1)
            try:
                head = s.recv(65536)
            except TimeoutError:
                continue
            if head.startswith(b"HTTP/1.1 503 "):
                assert b"Retry-After: " in head
                refused += 1
        assert refused >= 5
        wait_until(lambda: hits(narrow, "idle_time") >= 15)
    finally:
        for s in open_ones:
            s.close()
    narrow.alive()


def test_a_client_that_does_not_read_is_cut(narrow):
    """One answer larger than what the kernel buffers for a connection (at most 6 MiB here), so that no build needs long to fill it."""
    before = hits(narrow, "write_time")
    body = b'{"inputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}],"outputs":[{"name":"Y","parameters":{"binary_data":true}}]}'
    with connect(narrow) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"POST /v2/models/large/infer HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: hits(narrow, "write_time") > before)
    narrow.alive()


def test_idle_connections_are_cheap(repository):
    """DESIGN 8: at most 8 KiB each; here 1,000 that have been served, bench/idle_connections.py does 10,000."""
    write_fake(repository, "simple", SIMPLE)
    with Server(repository, args=["--limits.idle_timeout=60s"]) as server:
        warm = [connect(server) for _ in range(50)]
        request = b"GET /v2/models/simple HTTP/1.1\r\n" + HOST + b"\r\n"

        def serve(s):
            s.sendall(request)
            assert s.recv(65536).startswith(b"HTTP/1.1 200")

        for s in warm:
            serve(s)
        before = server.rss_bytes()
        more = [connect(server) for _ in range(1000)]
        for s in more:
            serve(s)
        each = (server.rss_bytes() - before) / len(more)
        for s in warm + more:
            s.close()
        sanitized = any(word in os.environ.get("INFERD_BINARY", "") for word in ("asan", "tsan", "ubsan"))
        assert each <= 8192 or sanitized, f"{each:.0f} bytes a connection"


def test_descriptors_run_out_and_come_back(repository):
    write_fake(repository, "simple", SIMPLE)
    with Server(repository, args=["--limits.idle_timeout=60s"]) as server:
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 10, hard))
        sockets = [connect(server) for _ in range(40)]
        time.sleep(0.5)
        assert server.process.poll() is None
        for s in sockets:
            s.close()
        deadline = time.monotonic() + 10
        while True:
            try:
                if requests.get(server.url + "/v2/health/live", timeout=1).status_code == 200:
                    break
            except requests.RequestException:
                pass
            assert time.monotonic() < deadline, "did not recover"
        wait_until(lambda: hits(server, "descriptors") >= 1)
