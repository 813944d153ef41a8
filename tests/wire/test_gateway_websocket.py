"""test_gateway_websocket.py: WebSockets through the gateway: real clients and servers (websockets, aiohttp) where things go well, sockets and threads where
they don't."""
import asyncio
import base64
import hashlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import aiohttp
import pytest
import requests
from websockets.asyncio.client import connect as aconnect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

from certificates import Authority
from gateway_upstream import Upstream, answer, raw, silent
from http2_raw import Http2
from inferd_server import Server, wait_until as wait_for
from raw_socket import address, reset
from test_auth_keys import make
from test_gateway import gateway, pool, text_of

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455, 1.3
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
ASK = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Key", KEY), ("Sec-WebSocket-Version", "13")]
HELLO = bytes.fromhex("810548656c6c6f")  # RFC 6455, 5.7
MASKED_HELLO = bytes.fromhex("818537fa213d7f9f4d5158")
CLOSE_1001 = bytes.fromhex("880203e9")


def accept(key):
    return base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()


def switch(connection, request, extra="", rest=b""):
    connection.sendall((f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        f"Sec-WebSocket-Accept: {accept(request.get('sec-websocket-key')[0])}\r\n{extra}\r\n").encode() + rest)


def echo(connection, request):
    """Bytes back as they are; its side ends when the other's has."""
    switch(connection, request)
    while data := connection.recv(1 << 16):
        connection.sendall(data)
    return "close"


def ask(headers=ASK, path="/raw", method="GET", version="HTTP/1.1"):
    return f"{method} {path} {version}\r\nHost: x\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in headers).encode() + b"\r\n"


def until_end(s):
    data = b""
    try:
        while part := s.recv(1 << 16):
            data += part
    except ConnectionResetError:
        data += b"<reset>"
    return data


def talk(g, data, timeout=10):
    """Everything that comes back until the connection ends."""
    with socket.create_connection(address(g), timeout=timeout) as s:
        s.sendall(data)
        return until_end(s)


def head_of(s):
    data = b""
    while b"\r\n\r\n" not in data:
        part = s.recv(1 << 16)
        assert part, data
        data += part
    head, rest = data.split(b"\r\n\r\n", 1)
    return head.decode(), rest


def opened(g, path="/raw", early=b""):
    """A tunnel by hand: (socket, what came behind the 101)."""
    s = socket.create_connection(address(g), timeout=10)
    s.sendall(ask(path=path) + early)
    head, rest = head_of(s)
    assert head.startswith("HTTP/1.1 101 ") and f"sec-websocket-accept: {ACCEPT.lower()}" in head.lower(), head
    return s, rest


def ended(g, result, pool=None):
    return g.metric("inferd_upstream_tunnels_total", result=result, **({"pool": pool} if pool else {}))


def handle(ws):
    path = ws.request.path
    try:
        if path.startswith("/flood"):
            for _ in range(60):
                ws.send(b"f" * (1 << 20))
        for message in ws:
            if path.startswith("/sink"):
                time.sleep(3600)
            ws.send(message)
    except ConnectionClosed:
        pass


class Echo:
    """A real WebSocket server; /flood sends 60 MB as fast as it can, /sink never reads on."""

    def __init__(self, tls=None):
        self.server = serve(handle, "127.0.0.1", 0, max_size=None, max_queue=1, compression=None, ssl=tls, select_subprotocol=lambda _, offered: offered[0] if offered else None,
                            ping_interval=None)
        self.address = "127.0.0.1:%d" % self.server.socket.getsockname()[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One gateway: /echo, /flood, /sink to a real server, /raw to a scripted one, /pair to that and a good one."""
    log = tmp_path_factory.mktemp("log") / "access.log"
    with Upstream(echo) as odd, Upstream(echo) as good:
        real = Echo()
        pools = [pool([real], "real"), pool([odd], "odd", max_fails=1000), pool([odd, good], "pair", max_fails=1000),
                 pool([{"address": odd.address, "max_conns": 1}], "one", queue_timeout="100ms")]
        routes = [{"path_prefix": f"/{p}", "upstream": "real", "websocket": True, "idle_timeout": "2s"} for p in ("echo", "flood", "sink")]
        routes = [{"model": "llama-*", "upstream": "real"}] + routes  # undecided for who may have a body
        routes += [{"path": "/" + path, "upstream": name, "websocket": True, "idle_timeout": "2s", "try_timeout": "1s"}
                   for path, name in (("raw", "odd"), ("pair", "pair"), ("one", "one"))]
        routes += [{"path": "/quiet", "upstream": "odd", "websocket": True, "idle_timeout": "300ms"}, {"path": "/plain", "upstream": "odd"}]
        with gateway(tmp_path_factory.mktemp("g"), text_of(pools, routes), f"--access_log.file={log}", "--access_log.format=json") as g:
            g.odd, g.good, g.access = odd, good, log
            yield g


@pytest.fixture(autouse=True)
def as_ever(request):
    """Each test begins with echoing servers, and leaves no tunnel open."""
    yield
    if "world" in request.fixturenames:
        g = request.getfixturevalue("world")
        g.odd.behave = g.good.behave = echo
        gauges = {"inferd_http_tunnels", "inferd_upstream_tunnels", "inferd_upstream_in_flight"}
        wait_for(lambda: not any(v for (name, _), v in g.metrics().items() if name in gauges))


def client(g, path="/echo", **more):
    return connect(f"ws://{g.address}{path}", max_size=None, **{"compression": None, **more})


def test_messages_of_all_sizes(world):
    """Text and bytes, empty to 1 MB and beyond, in order, with and without compression."""
    for compression in (None, "deflate"):
        with client(world, compression=compression) as c:
            for message in ("", "hi", "ü" * 1000, b"", b"\x00" * 125, b"x" * 126, b"y" * 65536, os.urandom(1 << 20), b"z" * (5 << 20)):
                c.send(message)
                assert c.recv(timeout=20) == message
            for i in range(200):
                c.send(str(i))
            assert [c.recv(timeout=10) for _ in range(200)] == [str(i) for i in range(200)]
            assert c.ping().wait(5)
        assert (c.close_code, c.close_reason) == (1000, "")


def test_another_client(world):
    """aiohttp, with fragments and a close code of its own."""
    async def run():
        async with aiohttp.ClientSession() as session, session.ws_connect(f"ws://{world.address}/echo", max_msg_size=0) as ws:
            await ws.send_bytes(b"a" * (1 << 20))
            assert (await ws.receive_bytes()) == b"a" * (1 << 20)
            await ws.close(code=4321, message=b"bye")
            return ws.close_code
    assert asyncio.run(run()) == 4321


def test_what_is_asked_and_answered(world):
    """The handshake is written anew: ours is the Connection header, the key goes on, sub-protocols are the server's choice; nothing of one hop passes."""
    with client(world, subprotocols=["one"]) as c:
        assert c.subprotocol == "one"
    world.odd.behave = lambda s, r: switch(s, r, "Sec-WebSocket-Protocol: v1\r\nX-Back: 1\r\nConnection: x-secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\n") or "close"
    headers = [("Upgrade", "h2c, WebSocket"), ("Connection", "keep-alive, Upgrade, x-drop"), *ASK[2:], ("X-Drop", "1"), ("X-Keep", "1"),
               ("Origin", "http://a.test"), ("Sec-WebSocket-Protocol", "v1"), ("Content-Length", "0")]
    before = len(world.odd.requests)
    reply = talk(world, ask(headers)).decode()
    sent = world.odd.requests[before]
    assert (sent.get("upgrade"), sent.get("connection"), sent.get("sec-websocket-key")) == (["websocket"], ["Upgrade"], [KEY])
    assert sent.get("x-drop") == [] and sent.get("x-keep") == ["1"] and sent.get("origin") == ["http://a.test"]
    assert sent.get("content-length") == [] and sent.get("x-forwarded-for") == ["127.0.0.1"] and sent.get("via")[0].startswith("1.1 inferd-")
    lines = reply.split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    assert {"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: v1", "X-Back: 1", f"Sec-WebSocket-Accept: {ACCEPT}"} <= set(lines)
    assert "x-secret" not in reply.lower() and "keep-alive" not in reply.lower() and "content-length" not in reply.lower()


def test_bytes_pass_as_they_are(world):
    """Before the 101 was seen, in the same segment as the 101, byte by byte, and frames that are none: all that is sent arrives, in order, once."""
    s, rest = opened(world, early=MASKED_HELLO)
    with s:
        while len(rest) < len(MASKED_HELLO):
            rest += s.recv(100)
        for i in range(256):
            s.sendall(bytes([i]))
        while len(rest) < len(MASKED_HELLO) + 256:
            rest += s.recv(1000)
        s.shutdown(socket.SHUT_WR)
        rest += until_end(s)
    assert rest == MASKED_HELLO + bytes(range(256))

    def slowly(connection, request):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        whole = (f"HTTP/1.1 101 Yes\r\nupgrade: WebSocket\r\nconnection: upgrade\r\nsec-websocket-accept: {ACCEPT}\r\n\r\n").encode() + HELLO
        for byte in whole:
            connection.sendall(bytes([byte]))
            time.sleep(0.001)
        return "close"

    for behave in (slowly, lambda c, r: switch(c, r, rest=HELLO) or "close"):
        world.odd.behave = behave
        s, rest = opened(world)
        with s:
            assert rest + until_end(s) == HELLO


@pytest.mark.parametrize("first", ["client", "server"])
def test_half_close(world, first):
    """A side that has said all it has to say goes on listening."""
    got = []

    def serve_halves(connection, request):
        switch(connection, request)
        if first == "server":
            connection.sendall(HELLO)
            connection.shutdown(socket.SHUT_WR)
        data = until_end(connection)
        got.append(data)
        if first == "client":
            time.sleep(0.1)
            connection.sendall(b"answer" * 1000)
        return "close"

    world.odd.behave = serve_halves
    s, rest = opened(world)
    with s:
        if first == "server":
            assert rest + until_end(s) == HELLO
            time.sleep(0.1)
        s.sendall(b"question" * 1000)
        s.shutdown(socket.SHUT_WR)
        if first == "client":
            assert rest + until_end(s) == b"answer" * 1000
        wait_for(lambda: got == [b"question" * 1000])


def test_a_slow_reader_stops_the_server(world):
    """60 MB are sent to a client that doesn't read: what is held stays bounded, the others are served, and then all of it arrives."""
    before, rss = world.metric("inferd_upstream_tunnel_bytes_total", pool="real", direction="to_client"), world.rss_bytes()
    with client(world, "/flood", max_queue=1) as c:
        time.sleep(0.7)
        taken = world.metric("inferd_upstream_tunnel_bytes_total", pool="real", direction="to_client") - before
        assert taken < 24 << 20, taken  # sockets' buffers on the way, and what the client's library reads ahead
        assert world.rss_bytes() - rss < 24 << 20
        with client(world) as other:
            other.send("still here")
            assert other.recv(timeout=5) == "still here"
        for _ in range(60):
            assert len(c.recv(timeout=20)) == 1 << 20


def test_a_slow_server_stops_the_client(world):
    """The other way: a client that sends more than the server reads is made to wait."""
    rss, sent = world.rss_bytes(), 0
    s = socket.create_connection(address(world), timeout=10)
    with s:
        s.sendall(ask(path="/sink"))
        head_of(s)
        s.setblocking(False)
        deadline = time.monotonic() + 0.7
        frame = b"\x82\xff" + (1 << 20).to_bytes(8, "big") + bytes(4) + bytes(1 << 20)
        while time.monotonic() < deadline and sent < 100 << 20:
            try:
                sent += s.send(frame[sent % len(frame):])
            except BlockingIOError:
                time.sleep(0.01)
        assert (1 << 20) < sent < 24 << 20, sent
        assert world.rss_bytes() - rss < 24 << 20


SERVER = """
import sys
from websockets.sync.server import serve
with serve(lambda ws: [ws.send(m) for m in ws], "127.0.0.1", 0) as s:
    print(s.socket.getsockname()[1], flush=True)
    s.serve_forever()
"""


def test_a_killed_server(tmp_path):
    """The client hears of an abnormal end at once; the next one is refused, not hung."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline())
    with gateway(tmp_path, text_of([pool([f"127.0.0.1:{port}"])], [{"path": "/echo", "upstream": "p", "websocket": True}])) as g:
        with client(g) as c:
            c.send("x")
            assert c.recv(timeout=5) == "x"
            process.send_signal(signal.SIGKILL)
            process.wait()
            with pytest.raises(ConnectionClosedError) as e:
                c.recv(timeout=5)
            assert e.value.rcvd is None  # no Close came: 1006 in a browser
        with pytest.raises(InvalidStatus) as e:
            client(g)
        assert e.value.response.status_code == 502
        wait_for(lambda: g.metric("inferd_upstream_tunnels") == 0 and g.metric("inferd_upstream_in_flight") == 0)
        assert ended(g, "ended") + ended(g, "broken") == 1


def test_a_broken_server(world):
    """A reset in the middle: what had come before it arrives, then the end; counted as broken, and against the server."""
    def breaks(connection, request):
        switch(connection, request, rest=HELLO)
        time.sleep(0.1)
        reset(connection)
        return "close"

    world.odd.behave = breaks
    before = ended(world, "broken", "odd"), world.metric("inferd_upstream_requests_total", pool="odd", outcome="gateway_failure")
    s, rest = opened(world)
    with s:
        assert rest + until_end(s) == HELLO
    assert (ended(world, "broken", "odd"), world.metric("inferd_upstream_requests_total", pool="odd", outcome="gateway_failure")) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize("how", ["fin", "reset"])
def test_a_killed_client(world, how):
    """The server hears of the end at once, and the slot is free with it."""
    before = len(world.odd.closed_at), ended(world, "client_left", "odd") + ended(world, "ended", "odd")
    over = threading.Event()

    def hears(connection, request):
        switch(connection, request)
        until_end(connection)
        over.set()
        return "close"

    world.odd.behave = hears
    s, _ = opened(world)
    s.sendall(MASKED_HELLO)
    start = time.monotonic()
    s.close() if how == "fin" else reset(s)
    assert over.wait(1) and time.monotonic() - start < 1
    wait_for(lambda: ended(world, "client_left", "odd") + ended(world, "ended", "odd") == before[1] + 1)


def test_a_client_that_leaves_before_the_answer(world):
    world.odd.behave = silent()
    s = socket.create_connection(address(world), timeout=10)
    s.sendall(ask() + b"early")
    wait_for(lambda: world.metric("inferd_upstream_in_flight", pool="odd") == 1)
    reset(s)
    wait_for(lambda: world.metric("inferd_upstream_in_flight", pool="odd") == 0)


@pytest.mark.parametrize("status", ["403 Forbidden", "404 Not Found", "200 OK", "426 Upgrade Required"])
def test_an_answer_that_is_no_101(world, status):
    """It is passed on as it is, and the connection ends behind it: what the client has sent for a tunnel is no request (smuggling)."""
    world.odd.behave = answer(b"no socket here", status, [("X-Why", "because")])
    before = len(world.odd.requests)
    smuggled = b"GET /plain HTTP/1.1\r\nHost: x\r\nX-Smuggled: 1\r\n\r\n"
    reply = talk(world, ask() + smuggled)
    head, body = reply.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 " + status.encode()) and b"X-Why: because" in head and b"Connection: close" in head
    assert body == b"no socket here"
    time.sleep(0.05)
    assert [r.target for r in world.odd.requests[before:]] == ["/raw"]
    with pytest.raises(InvalidStatus) as e:
        client(world, "/raw")
    assert e.value.response.status_code == int(status[:3]) and e.value.response.body == b"no socket here"


WRONG = {
    "another_accept": f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept('AAAAAAAAAAAAAAAAAAAAAA==')}\r\n",
    "no_accept": "Upgrade: websocket\r\nConnection: Upgrade\r\n",
    "two_accepts": "Upgrade: websocket\r\nConnection: Upgrade\r\n" + f"Sec-WebSocket-Accept: {ACCEPT}\r\n" * 2,
    "another_protocol": f"Upgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n",
    "no_connection": f"Upgrade: websocket\r\nSec-WebSocket-Accept: {ACCEPT}\r\n",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_handshake(world, wrong):
    """Who didn't understand the handshake gets no tunnel: 502, and with a good neighbour its tunnel."""
    world.odd.behave = raw(f"HTTP/1.1 101 Switching Protocols\r\n{WRONG[wrong]}\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil".encode())
    reply = talk(world, ask())
    assert reply.startswith(b"HTTP/1.1 502 ") and b"answered the WebSocket's handshake wrongly" in reply and b"evil" not in reply
    for _ in range(2):
        s, rest = opened(world, "/pair", early=HELLO)
        with s:
            assert (rest or s.recv(100)) == HELLO


def test_where_no_route_allows_it(world):
    """An ordinary request, whose answer is an ordinary answer; a server that switches all the same has broken off."""
    world.odd.behave = answer(b"plain")
    before = len(world.odd.requests)
    with pytest.raises(InvalidStatus) as e:
        client(world, "/plain")
    assert e.value.response.status_code == 200 and e.value.response.body == b"plain"
    assert world.odd.requests[before].get("upgrade") == [] and world.odd.requests[before].get("connection") == []
    with pytest.raises(InvalidStatus) as e:
        client(world, "/v2")
    assert e.value.response.status_code == 200
    world.odd.behave = switch
    with pytest.raises(InvalidStatus) as e:
        client(world, "/plain")
    assert e.value.response.status_code == 502


@pytest.mark.parametrize("headers, says", [
    ([*ASK[:3], ("Sec-WebSocket-Version", "8")], b"must be 13, not 8"),
    (ASK[:3], b"Sec-WebSocket-Version"), ([*ASK[:2], ASK[3]], b"Sec-WebSocket-Key"),
    ([*ASK[:2], ("Sec-WebSocket-Key", "short"), ASK[3]], b"24 characters"), ([*ASK, ASK[2]], b"one Sec-WebSocket-Key")])
def test_a_request_that_is_none(world, headers, says):
    before = len(world.odd.requests)
    reply = talk(world, ask(headers) + b"GET /plain HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ") and says in reply and b"Sec-WebSocket-Version: 13" in reply and b"Connection: close" in reply
    assert reply.count(b"HTTP/1.1 ") == 1 and len(world.odd.requests) == before


@pytest.mark.parametrize("kind", ["post", "body", "http10", "not_listed"])
def test_a_request_that_only_mentions_it(world, kind):
    """HTTP lets a server ignore Upgrade, and wants it to in HTTP/1.0: these are ordinary requests, and the next one on the connection is read."""
    world.odd.behave = answer(b"plain")
    before = len(world.odd.requests)
    first = {"post": ask([*ASK, ("Content-Length", "0")], method="POST"), "body": ask([*ASK, ("Content-Length", "3")]) + b"abc",
             "http10": ask([*ASK, ("Connection", "keep-alive")], version="HTTP/1.0"), "not_listed": ask([ASK[0], *ASK[2:]])}[kind]
    reply = talk(world, first + ask([("Connection", "close")], "/plain"))
    assert reply.count(b"HTTP/1.1 200 OK") == 2 and reply.count(b"plain") == 2
    assert all(r.get("upgrade") == [] for r in world.odd.requests[before:]) and len(world.odd.requests) == before + 2


def test_a_slot_is_held(world):
    """A tunnel is one of its server's max_conns for as long as it lives."""
    s, _ = opened(world, "/one")
    with s:
        wait_for(lambda: world.metric("inferd_upstream_in_flight", pool="one") == 1)
        assert b"429 " in talk(world, ask(path="/one")).split(b"\r\n")[0]
    wait_for(lambda: world.metric("inferd_upstream_in_flight", pool="one") == 0)
    s, _ = opened(world, "/one")
    s.close()


def test_silence_ends_it(world):
    """Nothing for idle_timeout in both directions: both sides are told (1001). What moves in one direction is enough."""
    heard = []

    def hears(connection, request):
        switch(connection, request)
        heard.append(until_end(connection))
        return "close"

    world.odd.behave = hears
    before = ended(world, "idle", "odd")
    s, rest = opened(world, "/quiet")
    with s:
        for _ in range(3):
            time.sleep(0.2)
            s.sendall(MASKED_HELLO)
        start = time.monotonic()
        assert rest + until_end(s) == CLOSE_1001
        assert 0.2 < time.monotonic() - start < 1.5
    wait_for(lambda: heard)
    data = heard[0]
    assert data.startswith(MASKED_HELLO * 3) and len(data) == 3 * len(MASKED_HELLO) + 8
    close = data[-8:]
    assert close[:2] == b"\x88\x82" and bytes(a ^ b for a, b in zip(close[6:], close[2:4])) == b"\x03\xe9"
    assert ended(world, "idle", "odd") == before + 1


def test_no_close_inside_a_frame(world):
    """Where a frame is half sent, and behind a Close, nothing is put in: it would be taken for the frame's."""
    for rest in (HELLO[:-1], CLOSE_1001):
        world.odd.behave = lambda c, r, rest=rest: switch(c, r, rest=rest) or until_end(c) and None or "close"
        s, got = opened(world, "/quiet")
        with s:
            assert got + until_end(s) == rest


def test_the_access_log(world):
    """One line, when it is over: 101, the bytes of both directions, how long it was open."""
    s, rest = opened(world)
    with s:
        s.sendall(b"b" * 100000)
        while len(rest) < 100000:
            rest += s.recv(1 << 16)
        time.sleep(0.3)

    def lines():
        return [r for r in map(json.loads, world.access.read_text().splitlines()) if r["status"] == 101 and r["bytes_in"] > 100000 and r["path"] == "/raw"]

    wait_for(lines)
    line = lines()[-1]
    assert line["bytes_in"] < 101000 and 100000 < line["bytes_out"] < 101000
    assert 300000 < line["total_us"] < 5000000


def test_over_http2(world):
    """HTTP/2 has no Upgrade: a GET is an ordinary request, and the CONNECT of RFC 8441, which is not announced, is refused."""
    world.odd.behave = answer(b"plain", "426 Upgrade Required")
    with Http2(world) as c:
        assert 8 not in c.server_settings  # SETTINGS_ENABLE_CONNECT_PROTOCOL
        c.send(c.head("GET", "/raw", [("sec-websocket-key", KEY), ("sec-websocket-version", "13")])[0])
        assert c.answer(1) == (426, b"plain")
    with Http2(world) as c:
        c.send(c.head(pseudo=[(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/raw"), (":authority", "x")], end=False)[0])
        assert c.answer(1)[0] in (None, 501)
    world.alive()


def test_tls_on_both_sides(tmp_path):
    """wss to the gateway, TLS from it to the server, both verified; 1 MB each way; the server's certificate is looked at before anything is asked."""
    a = Authority(tmp_path / "ca")
    cert, key = a.issue("server", "IP:127.0.0.1")
    other, other_key = a.issue("other", "DNS:other.test")
    contexts = []
    for pair in ((cert, key), (other, other_key)):
        c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        c.load_cert_chain(*map(str, pair))
        contexts.append(c)
    real, wrong = Echo(contexts[0]), Echo(contexts[1])
    pools = [pool([real], "real", tls={"ca": str(a.ca)}), pool([wrong], "wrong", tls={"ca": str(a.ca)})]
    routes = [{"path": "/echo", "upstream": "real", "websocket": True}, {"path": "/wrong", "upstream": "wrong", "websocket": True}]
    (tmp_path / "g.yaml").write_text(text_of(pools, routes))
    believed = ssl.create_default_context(cafile=str(a.ca))
    with Secure(args=(f"--config={tmp_path}/g.yaml", f"--tls.certificates={cert}", f"--tls.keys={key}"), wait=None) as g:
        async def talk_to(url):  # the threads of the other client share one SSL object, which Python locks from 3.13 on: it loses answers now and then
            async with aconnect(url, ssl=believed, max_size=None, compression=None) as c:
                for message in ("hi", os.urandom(1 << 20), b"z" * (4 << 20)):
                    await c.send(message)
                    assert await c.recv() == message
            return c.close_code

        assert asyncio.run(talk_to(f"wss://{g.address}/echo")) == 1000
        with pytest.raises(InvalidStatus) as e:
            asyncio.run(talk_to(f"wss://{g.address}/wrong"))
        assert e.value.response.status_code == 502


class Secure(Server):
    def alive(self):
        assert self.process.poll() is None


def test_who_may_and_how_many(tmp_path):
    """Authorised and counted like any other request: 401 without a key, a place of `concurrent` for as long as it lives, 503 past limits.max_tunnels."""
    keys, quotas = tmp_path / "keys", tmp_path / "quotas.yaml"
    mine, theirs = make(keys, "a", "-t", "one"), make(keys, "b", "-t", "two")
    quotas.write_text("policies: [{name: few, per: key, concurrent: 1}]")
    real = Echo()
    with gateway(tmp_path, text_of([pool([real])], [{"path": "/echo", "upstream": "p", "websocket": True}]), f"--auth.keys_file={keys}",
                 f"--quota.file={quotas}", "--limits.max_tunnels=2", "--auth.open=live,ready,metrics") as g:
        def status(key=None):
            with pytest.raises(InvalidStatus) as e:
                client(g, additional_headers={"x-api-key": key} if key else {})
            return e.value.response.status_code

        assert status() == 401 and status("wrong") == 401
        with client(g, additional_headers={"x-api-key": mine}) as c:
            assert c.response.headers["x-ratelimit-limit"] == "1" and c.response.headers["x-ratelimit-remaining"] == "0"
            assert status(mine) == 429
            with client(g, additional_headers={"Authorization": "Bearer " + theirs}):
                assert status(theirs) == 503
                assert g.metric("inferd_http_limit_total", limit="tunnels", listener="http") == 1
                assert g.metric("inferd_http_tunnels", listener="http") == 2
                c.send("x")
                assert c.recv(timeout=5) == "x"
        wait_for(lambda: g.metric("inferd_http_tunnels") == 0)
        with client(g, additional_headers={"x-api-key": mine}) as c:
            c.send("again")
            assert c.recv(timeout=5) == "again"


def test_a_stop_is_said(tmp_path):
    """SIGTERM: who is silent is told to go (1001), who is at it may go on until it is; the server ends well, long before shutdown.drain_timeout."""
    real = Echo()
    with gateway(tmp_path, text_of([pool([real])], [{"path": "/echo", "upstream": "p", "websocket": True}])) as g:
        idle, busy = client(g), client(g)
        start = time.monotonic()
        g.process.send_signal(signal.SIGTERM)
        for i in range(12):
            busy.send(str(i))
            assert busy.recv(timeout=5) == str(i)
            time.sleep(0.15)
        for c in (idle, busy):
            with pytest.raises(ConnectionClosed) as e:
                c.recv(timeout=5)
            assert e.value.rcvd.code == 1001
            c.close()
        g.process.wait(10)
        assert time.monotonic() - start < 8


def test_a_reload_leaves_tunnels_alone(tmp_path):
    """A tunnel keeps its table; new ones go by the new one."""
    real = Echo()
    with gateway(tmp_path, text_of([pool([real])], [{"path": "/echo", "upstream": "p", "websocket": True}])) as g:
        with client(g) as c:
            (tmp_path / "gateway.yaml").write_text(text_of([pool([real])], [{"path": "/echo", "upstream": "p"}]))
            assert requests.post(g.admin_url + "/admin/reload").status_code == 200
            c.send("x")
            assert c.recv(timeout=5) == "x"
            with pytest.raises(InvalidStatus):
                client(g)


def test_many_at_once(world):
    """Fifty tunnels, each with its own words, ended by either side or cut: nobody gets another's, and all are counted once."""
    results = ("ended", "client_left", "broken", "idle", "drained")
    before = sum(ended(world, r) for r in results)

    async def one(session, i):
        ws = await session.ws_connect(f"ws://{world.address}/echo", max_msg_size=0)
        for n in (1, 1000, 30000):
            await ws.send_str(f"{i}:" * n)
            assert await ws.receive_str(timeout=20) == f"{i}:" * n
        if i % 3:
            await ws.close()
        else:
            ws._response.connection.transport.abort()

    async def run():
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(one(session, i) for i in range(50)))

    asyncio.run(run())
    wait_for(lambda: sum(ended(world, r) for r in results) == before + 50)


@pytest.mark.parametrize("pools, route, said", [
    ([{"name": "p", "servers": ["h:1"], "protocol": "http2"}], {"upstream": "p"}, "pool 'p' has protocol http2; WebSockets need http1"),
    ([{"name": "p", "servers": ["h:1"]}, {"name": "q", "servers": ["h:1"], "protocol": "auto", "tls": {"ca": "system"}}],
     {"upstream": "p", "fallback": "q"}, "pool 'q' has protocol auto; WebSockets need http1"),
    ([{"name": "p", "servers": ["h:1"]}], {"upstream": "local"}, "nothing in this process speaks WebSocket")])
def test_where_it_can_not_be(tmp_path, pools, route, said):
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"upstreams": pools, "routes": [{**route, "websocket": True}]}))
    from inferd_server import BINARY
    done = subprocess.run([BINARY, "check", f"--config={config}"], capture_output=True, text=True)
    assert done.returncode != 0 and said in done.stderr + done.stdout
