"""test_http2_hostile.py: HTTP/2 clients that mean harm, frame by frame: the smuggling classes of HTTP/2, floods of every cheap frame (rapid reset
CVE-2023-44487, made resets CVE-2025-8671, CONTINUATION VU#421644, the 2019 set CVE-2019-9511 to 9518), bombs, and slowness. After each: the right answer
or GOAWAY, the class counted, memory flat, and another client served.
"""
import os
import time
import zlib

import pytest
import requests
from hyperframe.frame import HeadersFrame

from http2_raw import CANCEL, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR, PREFACE, PROTOCOL_ERROR, REFUSED_STREAM, Closed, Http2
from inferd_server import SIMPLE, Server, wait_equal, wait_until, write_fake
from raw_socket import connect

BUDGET = 100
PSEUDO = [(":method", "GET"), (":scheme", "http"), (":path", "/v2"), (":authority", "x")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "large", "input = X INT32 [1]\noutput = Y INT32 [8388608] fill 1\nbatchable = false\n")  # 32 MiB
    with Server(root, args=[f"--limits.http2_glitches={BUDGET}", "--limits.http2_glitch_rate=1", "--limits.http2_max_streams=50",
                            "--limits.header_timeout=500ms", "--limits.body_timeout=500ms", "--limits.write_timeout=500ms",
                            "--limits.min_body_rate=10KiB", "--limits.max_header_bytes=8KiB"]) as s:
        yield s


@pytest.fixture(autouse=True)
def others_are_served(server):
    """Around every test: memory stays, and both protocols are served afterwards."""
    if not hasattr(server, "rss_before"):
        for _ in range(3):
            with Http2(server) as c:
                assert c.ask()[0] == 200
        server.rss_before = server.rss_bytes()
    yield
    with Http2(server) as c:
        assert c.ask()[0] == 200
    server.alive()
    if os.environ.get("INFERD_BUILD") not in ("asan", "tsan", "ubsan"):
        assert server.rss_bytes() - server.rss_before < 64 << 20


def glitches(server, name):
    return server.metric("inferd_http2_glitches_total", listener="http", **{"class": name})


def hits(server, limit):
    return server.metric("inferd_http_limit_total", listener="http", limit=limit)


# RFC 9113, 8.2 and 8.3, and what a gateway that turned it into HTTP/1.1 would have let through. None: reset with PROTOCOL_ERROR.
SMUGGLING = {
    "CR LF in a value": (None, PSEUDO, [("x", "a\r\nGET /v2/smuggled HTTP/1.1")]),
    "LF in a value": (None, PSEUDO, [("x", "a\nb")]),
    "CR in a value": (None, PSEUDO, [("x", "a\rb")]),
    "NUL in a value": (None, PSEUDO, [("x", "a\0b")]),
    "CR LF in a name": (None, PSEUDO, [("x\r\ny", "v")]),
    "colon in a name": (None, PSEUDO, [("x:y", "v")]),
    "space in a name": (None, PSEUDO, [("x y", "v")]),
    "upper case": (None, PSEUDO, [("Host", "x")]),
    "empty name": (None, PSEUDO, [("", "v")]),
    "transfer-encoding": (None, PSEUDO, [("transfer-encoding", "chunked")]),
    "connection": (None, PSEUDO, [("connection", "x-secret")]),
    "keep-alive": (None, PSEUDO, [("keep-alive", "timeout=5")]),
    "proxy-connection": (None, PSEUDO, [("proxy-connection", "close")]),
    "upgrade": (None, PSEUDO, [("upgrade", "h2c")]),
    "te": (None, PSEUDO, [("te", "chunked")]),
    "length without body": (None, PSEUDO, [("content-length", "5")]),
    "two lengths": (None, PSEUDO, [("content-length", "0"), ("content-length", "0")]),
    "signed length": (None, PSEUDO, [("content-length", "+0")]),
    "huge length": (None, PSEUDO, [("content-length", "99999999999999999999")]),
    "method with CR LF": (None, [(":method", "GET / HTTP/1.1\r\nx: y"), *PSEUDO[1:]], []),
    "path with CR LF": (None, [*PSEUDO[:2], (":path", "/ HTTP/1.1\r\nx: y"), PSEUDO[3]], []),
    "path with a space": (None, [*PSEUDO[:2], (":path", "/v2 HTTP/1.1"), PSEUDO[3]], []),
    "path without slash": (None, [*PSEUDO[:2], (":path", "v2"), PSEUDO[3]], []),
    "absolute path": (None, [*PSEUDO[:2], (":path", "http://x/v2"), PSEUDO[3]], []),
    "empty path": (None, [*PSEUDO[:2], (":path", ""), PSEUDO[3]], []),
    "star for GET": (None, [*PSEUDO[:2], (":path", "*"), PSEUDO[3]], []),
    "authority with CR LF": (None, [*PSEUDO[:3], (":authority", "x\r\ny: z")], []),
    "method twice": (None, [PSEUDO[0], *PSEUDO], []),
    "path twice": (None, [*PSEUDO, (":path", "/v2/other")], []),
    "no method": (None, PSEUDO[1:], []),
    "no scheme": (None, [PSEUDO[0], *PSEUDO[2:]], []),
    "no path": (None, [*PSEUDO[:2], PSEUDO[3]], []),
    "no authority": (None, PSEUDO[:3], []),
    "pseudo-header behind a field": (None, [PSEUDO[0], ("x", "y"), *PSEUDO[1:]], []),
    "unknown pseudo-header": (None, [*PSEUDO, (":x", "y")], []),
    "status": (None, [*PSEUDO, (":status", "200")], []),
    "protocol without our leave": (None, [*PSEUDO, (":protocol", "websocket")], []),
    "authority against host": (400, PSEUDO, [("host", "other")]),
    "user in the authority": ((400, None), [*PSEUDO[:3], (":authority", "user@x")], []),
    "fragment": (400, [*PSEUDO[:2], (":path", "/v2#x"), PSEUDO[3]], []),
    "dot segments": (400, [*PSEUDO[:2], (":path", "/v2/../v2"), PSEUDO[3]], []),
    "unknown scheme": (400, [PSEUDO[0], (":scheme", "file"), *PSEUDO[2:]], []),
    "unknown expectation": (417, PSEUDO, [("expect", "wonders")]),
    "CONNECT": (501, [(":method", "CONNECT"), (":authority", "x:80")], []),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_what_smuggles_is_refused_and_the_connection_lives(server, name):
    status, pseudo, extra = SMUGGLING[name]
    with Http2(server) as c:
        got = c.ask(pseudo=pseudo, extra=extra)
        # nghttp2 from 1.64 on refuses an "@" itself (its pull request 2262): it resets the stream before we can answer
        wanted = status if isinstance(status, tuple) else (status,)
        assert got == (None, PROTOCOL_ERROR) if got[0] is None and None in wanted else got[0] in wanted, got
        assert c.ask()[0] == 200


def test_body_against_its_length(server):
    for length, parts in ((3, [b"abcd"]), (3, [b"ab", b"cd"]), (3, [b"ab"])):
        with Http2(server) as c:
            head, stream = c.head("POST", "/v2/models/simple/infer", [("content-length", str(length))], end=False)
            c.send(head, *(c.data(stream, p, end=p is parts[-1]) for p in parts))
            assert c.answer(stream) == (None, PROTOCOL_ERROR)
            assert c.ask()[0] == 200


# --- floods: (class, frames of one round on a connection) ---

def rapid_reset(c):
    head, stream = c.head("POST", "/v2/models/simple/infer", end=False)
    return head + c.reset(stream)


def made_reset(c, stream, frames):
    """Waits for the reset: faster, it would be more streams than allowed at once, and ended for that."""
    c.send(frames)
    assert c.answer(stream)[0] is None
    return b""


def made_reset_window(c):
    head, stream = c.head("POST", "/v2/models/simple/infer", end=False)
    return made_reset(c, stream, head + c.window(stream, 2**31 - 1))


def made_reset_malformed(c):
    head, stream = c.head(extra=[("connection", "x")])
    return made_reset(c, stream, head)


def made_reset_length(c):
    head, stream = c.head("POST", "/v2/models/simple/infer", [("content-length", "1")], end=False)
    return made_reset(c, stream, head + c.data(stream, b"xx"))


def empty_data(c):
    return on_one_stream(c) + c.data(c.kept) * 10


def padded_data(c):
    return on_one_stream(c) + bytes.fromhex("000004" "00" "08") + c.kept.to_bytes(4, "big") + b"\x03\0\0\0"


def on_one_stream(c):
    """The first time: open a stream for the frames to go to."""
    if hasattr(c, "kept"):
        return b""
    head, c.kept = c.head("POST", "/v2/models/simple/infer", end=False)
    return head


def tiny_windows(c):
    return on_one_stream(c) + c.window(c.kept, 1) * 10 + c.window(0, 1) * 10


def continuations(c):
    head, stream = c.head(end_headers=False)
    return head + c.continuation(stream) * 7 + c.continuation(stream, end=True)


FLOODS = {
    "rapid reset": ("reset", rapid_reset),
    "made reset by window": ("induced_reset", made_reset_window),
    "made reset by a malformed head": ("induced_reset", made_reset_malformed),
    "made reset by length": ("induced_reset", made_reset_length),
    "settings": ("settings", lambda c: c.settings({4: 65535}) * 10),
    "empty settings": ("settings", lambda c: c.settings({}) * 10),
    "ping": ("ping", lambda c: c.ping() * 10),
    "ping acknowledgements": ("ping", lambda c: c.ping(ack=True) * 10),
    "priority": ("priority", lambda c: bytes.fromhex("000005" "02" "00" "00000063" "00000000" "10") * 10),
    "empty data": ("empty_data", empty_data),
    "data that is all padding": ("empty_data", padded_data),
    "window updates of one": ("window_update", tiny_windows),
    "continuations": ("continuation", continuations),
    "unknown frames": ("unknown_frame", lambda c: bytes.fromhex("000000" "7f" "00" "00000000") * 10),
    "resets of closed streams": ("late_reset", lambda c: (c.head()[0] if c.next_id == 1 else b"") + c.reset(1) * 10),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_end_in_goaway_and_are_counted(server, name):
    kind, frames = FLOODS[name]
    before, ended = glitches(server, kind), hits(server, "http2_glitches")
    with Http2(server) as c:
        try:
            for _ in range(2000):
                c.send(frames(c))
        except (OSError, Closed):
            pass  # the server has had enough
        assert c.goaway() in (ENHANCE_YOUR_CALM, None)  # None: what we went on to send has reset the connection under it
    wait_until(lambda: glitches(server, kind) >= before + BUDGET * 0.5)
    wait_equal(lambda: hits(server, "http2_glitches"), ended + 1)


def test_goaway_itself_is_read_when_nothing_follows(server):
    with Http2(server) as c:
        for _ in range(BUDGET + 20):
            try:
                c.send(rapid_reset(c))
            except OSError:
                break
            time.sleep(0.001)
        assert c.goaway() == ENHANCE_YOUR_CALM


def test_endless_header_block(server):
    """CONTINUATION without an end: cut at the limit, long before memory or the budget."""
    with Http2(server) as c:
        head, stream = c.head(end_headers=False)
        c.send(head)
        try:
            for _ in range(2000):
                c.send(c.continuation(stream, b"\0" + b"\x01x" + b"\x7f\x80\x01" + b"v" * 255))
        except OSError:
            pass
        assert c.goaway() in (ENHANCE_YOUR_CALM, None)


def test_header_bombs(server):
    with Http2(server) as c:
        assert c.ask(extra=[("x", "v" * 9000)])[0] == 431
        assert c.ask(extra=[(f"x{i}", "v") for i in range(150)])[0] == 431
        assert c.ask()[0] == 200
    with Http2(server) as c:  # one long entry, referred to by one byte each time: 4 KiB become 16 MiB
        block = c.encoder.encode(PSEUDO) + b"\x40\x01y\x7f\xd9\x1c" + b"v" * 3800 + b"\xbe" * 4000
        c.send(HeadersFrame(1, data=block, flags=["END_HEADERS", "END_STREAM"]))
        assert c.goaway() == ENHANCE_YOUR_CALM


def test_table_size_games(server):
    """A client may announce any table and change it; ours stays at what the option says, both ways."""
    with Http2(server, settings={1: 2**32 - 1}) as c:
        assert c.server_settings[1] == 4096
        for i in range(20):
            c.send(c.settings({1: (0, 2**31, 1)[i % 3]}))
            assert c.ask(extra=[(f"x-{i}", "y" * 300)])[0] == 200
    with Http2(server) as c:
        c.encoder.header_table_size = 100_000  # a size update past what we allowed
        c.send(c.head()[0])
        assert c.goaway() == 9  # COMPRESSION_ERROR


def test_more_streams_than_allowed(server):
    """A client that may not have read our SETTINGS has those past the limit refused one by one while the others are served; one that has
    acknowledged them is told to go."""
    with Http2(server) as c:
        assert c.server_settings[3] == 50
        c.send(*(c.head("POST", "/v2/models/simple/infer", end=False)[0] for _ in range(51)))
        assert c.goaway() == PROTOCOL_ERROR
    with Http2(server, acknowledge=False) as c:
        heads = [c.head("POST", "/v2/models/simple/infer", end=False) for _ in range(60)]
        c.send(*(h for h, _ in heads))
        for _, stream in heads[50:]:
            assert c.answer(stream) == (None, REFUSED_STREAM)
        c.send(*(c.reset(s) for _, s in heads[:50]))
        assert c.ask()[0] == 200


def test_window_games(server):
    with Http2(server) as c:  # a window of nothing at all: SETTINGS below what was sent makes it negative
        c.send(c.settings({4: 0}))
        head, stream = c.head("GET", "/v2")
        c.send(head)
        assert c.wait(lambda f: f.stream_id == stream).fields[":status"] == "200"
        c.send(c.settings({4: 2**31 - 1}))
        assert c.wait(lambda f: f.stream_id == stream and "END_STREAM" in f.flags)
    with Http2(server) as c:
        c.send(c.window(0, 2**31 - 1))
        assert c.goaway() == FLOW_CONTROL_ERROR
    with Http2(server) as c:
        c.send(c.window(0, 0))
        assert c.goaway() == PROTOCOL_ERROR


def test_a_reader_that_stalls_is_reset(server):
    """Slow read (CVE-2019-9517): fifty streams whose replies are never taken."""
    before = hits(server, "write_time")
    with Http2(server, settings={4: 0}) as c:
        heads = [c.head("GET", "/v2") for _ in range(50)]
        c.send(*(h for h, _ in heads))
        for _, stream in heads:
            frame = c.wait(lambda f: f.stream_id == stream and type(f).__name__ == "RstStreamFrame")
            assert frame.error_code == CANCEL
        wait_equal(lambda: hits(server, "write_time"), before + 50)
        c.send(c.settings({4: 65535}))
        assert c.ask()[0] == 200


def test_slow_heads_and_bodies(server):
    head_hits, body_hits = hits(server, "header_time"), hits(server, "body_time")
    with Http2(server) as c:
        c.send(c.head(end_headers=False)[0])
        assert c.goaway() == ENHANCE_YOUR_CALM
    with Http2(server) as c:  # a frame's head, and no more
        c.send(b"\0\0\5\1")
        assert c.goaway() == ENHANCE_YOUR_CALM
    with Http2(server) as c:
        head, stream = c.head("POST", "/v2/models/simple/infer", [("content-length", "100000")], end=False)
        c.send(head)
        started = time.monotonic()
        try:
            while time.monotonic() - started < 3:
                c.send(c.data(stream, b"x" * 100))  # far less than the rate
                time.sleep(0.05)
        except OSError:
            pass
        assert c.answer(stream)[0] == 408
        assert time.monotonic() - started < 10
    wait_equal(lambda: hits(server, "header_time"), head_hits + 2)
    wait_equal(lambda: hits(server, "body_time"), body_hits + 1)


def test_a_megabyte_of_frames_of_one_byte(server):
    """Legal, and served: a stream of tokens looks like that. It costs ten bytes for one, and no memory."""
    document = b'{"inputs":[' + b" " * 100_000 + b"]}"
    with Http2(server) as c:
        head, stream = c.head("POST", "/v2/models/simple/infer", end=False)
        frames = b"".join(c.data(stream, document[i:i + 1]) for i in range(len(document)))
        c.send(head)
        for at in range(0, len(frames), 65536):
            c.send(frames[at:at + 65536])
        c.send(c.data(stream, end=True))
        assert c.answer(stream)[0] == 400  # no inputs


def test_body_past_its_limit_and_bombs(server):
    with Http2(server) as c:
        bomb = zlib.compress(b"\0" * 10_000_000, 9)
        head, stream = c.head("POST", "/v2/models/simple/infer", [("content-encoding", "deflate")], end=False)
        c.send(head, c.data(stream, bomb, end=True))
        assert c.answer(stream)[0] == 413
        head, stream = c.head("POST", "/v2/models/simple/infer", [("content-length", str(1 << 40))], end=False)
        c.send(head)
        assert c.answer(stream)[0] == 413
        assert c.ask()[0] == 200


def test_http1_behind_the_preface_is_not_answered(server):
    with connect(server) as s:
        s.sendall(PREFACE + b"GET /v2/models/stats HTTP/1.1\r\nHost: x\r\n\r\n")
        got = b""
        while chunk := s.recv(65536):
            got += chunk
        assert b"HTTP/1.1" not in got and b"\x07" in got


def test_upgrade_to_h2c_is_passed_over(server):
    """RFC 9113 has done away with the upgrade: the request is served in HTTP/1.1, which is what RFC 9110 7.8 allows."""
    r = requests.get(server.url + "/v2", headers={"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"})
    assert r.status_code == 200 and r.raw.version == 11


def test_many_connections_come_and_go_in_every_state(server):
    for i in range(200):
        with Http2(server) as c:
            try:
                c.send([lambda: c.head("POST", "/v2/models/simple/infer", end=False)[0], lambda: c.head(end_headers=False)[0][:20],
                        lambda: c.head("GET", "/v2")[0], lambda: b"\0\0", lambda: c.ping()][i % 5]())
            except Closed:
                pass
    server.wait_metric("inferd_http2_connections", 0, listener="http")
