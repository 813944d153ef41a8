"""test_gateway_faults.py: each fault of an upstream, and exactly what the client sees of it; then ten minutes of all of them at random, with every
request accounted for exactly once (marked `soak`; INFERD_SOAK_SECONDS shortens it)."""
import collections
import http.client
import json
import os
import random
import socket
import struct
import threading
import time

import pytest
import requests

from gateway_upstream import Upstream, answer, events, raw, reset, silent
from http2_raw import Http2
from test_gateway import gateway, pool, text_of, total, wait_idle

SECONDS = float(os.environ.get("INFERD_SOAK_SECONDS", "600"))


def rst(connection, request):
    """Half an answer, then a reset instead of an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return "close"


def half_open(connection, request):
    """Closes its sending side and goes on holding the connection."""
    connection.shutdown(socket.SHUT_WR)
    time.sleep(1)
    return "close"


def trickle(connection, request):
    """A head that comes a byte at a time, for longer than a try may take."""
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}":
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

BROKE = "broke off before it answered"
NO_HTTP = "answered with something that is not proper HTTP"
SHORTER = "its answer is shorter than it had announced"
BEFORE = {  # before the answer's first byte went to the client: (what the server does, the status and the words for a client when nobody else is there)
    "reset": (reset, 502, BROKE),
    "half_open": (half_open, 502, BROKE),
    "garbage": (raw(b"\x16\x03\x01 what is this\r\n\r\n"), 502, NO_HTTP),
    "garbage_after_status": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nbad header\r\n\r\n{}"), 502, NO_HTTP),
    "status_0": (raw(b"HTTP/1.1 000 Odd\r\nContent-Length: 2\r\n\r\n{}"), 502, NO_HTTP),
    "status_99": (raw(b"HTTP/1.1 099 Odd\r\nContent-Length: 2\r\n\r\n{}"), 502, NO_HTTP),
    "two_lengths": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"), 502, NO_HTTP),
    "large_head": (raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 70000 + b"\r\n\r\n"), 502, "answered with a larger header section than is accepted"),
    "head_breaks_off": (raw(b"HTTP/1.1 200 OK\r\nContent-Le"), 502, "broke off in the middle of its answer"),
    "length_too_long": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}"), 502, SHORTER),
    "reset_in_the_body": (rst, 502, SHORTER),
    "chunks_break_with_the_head": (raw(CHUNKED + b"9\r\ndata: 0\n\n\r\nZZ\r\n"), 502, NO_HTTP),
    "503": (answer(status="503 Service Unavailable"), 503, ""),
    "silent": (silent(), 504, "did not answer in time"),
    "trickle": (trickle, 504, "did not answer in time"),
}


@pytest.mark.parametrize("fault", BEFORE)
def test_before_the_first_byte(faulty, fault):
    """Alone: the status that says what happened, once. With a healthy neighbour: its answer, and the fault is seen by nobody."""
    g, alone, bad, good = faulty
    behave, status, words = BEFORE[fault]
    alone.behave = bad.behave = behave
    start = time.monotonic()
    reply = requests.post(g.url + "/alone", data=b"x")
    assert reply.status_code == status and words in (reply.json()["error"] if words else reply.text)
    assert time.monotonic() - start < 2.5
    for _ in range(2):
        reply = requests.post(g.url + "/pair", data=b"x")
        assert (reply.status_code, reply.text) == (200, '"good"')


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """Pools of one bad server, of a bad and a good one, and the same for streams, where no time-out has made the bad one suspect."""
    with Upstream(answer()) as alone, Upstream(answer()) as bad, Upstream(answer(b'"good"')) as good, Upstream(answer()) as cut_off:
        pools = {"alone": [alone], "pair": [bad, good], "events": [cut_off, good]}
        text = text_of([pool(servers, n, max_fails=1000) for n, servers in pools.items()],
                       [{"path": "/" + n, "upstream": n, "try_timeout": "300ms", "idle_timeout": "500ms"} for n in pools])
        with gateway(tmp_path_factory.mktemp("g"), text) as g:
            g.cut_off = cut_off
            yield g, alone, bad, good


def test_no_connection(tmp_path):
    """Nobody listens, nobody takes the connection, no such name: each is said, and none says where."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        closed = s.getsockname()[1]
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = []
    for _ in range(4):  # its queue is full: more connections are not taken
        c = socket.socket()
        c.setblocking(False)
        c.connect_ex(full.getsockname())
        waiting.append(c)
    pools = [pool([f"127.0.0.1:{closed}"], "closed"), pool(["127.0.0.1:%d" % full.getsockname()[1]], "full", connect_timeout="200ms"),
             pool(["no-such-name.invalid:80"], "nameless")]
    with full, gateway(tmp_path, text_of(pools, [{"path": "/" + n, "upstream": n} for n in ("closed", "full", "nameless")])) as g:
        for path, status, words in (("closed", 502, "the server for this request can't be reached: it refuses connections"),
                                    ("full", 502, "the server for this request can't be reached: it did not take the connection in time"),
                                    ("nameless", 503, "no server for this request is known: the names of its servers can't be resolved: try again later")):
            reply = requests.get(f"{g.url}/{path}")
            assert (reply.status_code, reply.json()["error"]) == (status, words)
    for c in waiting:
        c.close()


def cut(connection, request):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 300000)
    return "close"


def stalls(connection, request):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 0\n\n\r\n")
    time.sleep(1.5)
    return "close"


def bad_chunk(connection, request):
    connection.sendall(CHUNKED + b"9\r\ndata: 0\n\n\r\n")
    time.sleep(0.1)
    connection.sendall(b"ZZ\r\n")
    return "close"


@pytest.mark.parametrize("behave", [events(1, 0, end=False), stalls, bad_chunk], ids=["broken", "stalls", "bad_chunk"])
def test_events_end_in_band(faulty, behave):
    """What had come is there, then one error event, no [DONE], and a proper end; nobody else is asked."""
    g, alone, bad, good = faulty
    asked = len(good.requests)
    g.cut_off.behave = behave
    seen = set()
    for _ in range(2):
        text = requests.post(g.url + "/events", data=b"x", stream=True).content.decode()
        seen.add(text.split("\n")[0])
        if text != '"good"':
            assert text.startswith("data: 0\n\nevent: error\ndata: {") and text.count("event: error") == 1 and "[DONE]" not in text
    assert seen == {"data: 0", '"good"'} and len(good.requests) == asked + 1


def test_another_format_is_cut(faulty):
    g, alone, bad, good = faulty
    alone.behave = cut
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        requests.post(g.url + "/alone", data=b"x", stream=True).content


def test_more_than_was_announced_is_not_passed_on(faulty):
    """Bytes behind the answer's length belong to no answer: the client gets what was announced, and the connection is not used again."""
    g, alone, bad, good = faulty
    alone.behave = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
    session = requests.Session()
    for _ in range(3):
        reply = session.post(g.url + "/alone", data=b"x")
        assert (reply.status_code, reply.text) in ((200, "{}"), (502, reply.text)) and "forged" not in reply.text


@pytest.mark.parametrize("said", [b"Content-Length: 77\r\n", b"Transfer-Encoding: chunked\r\n"], ids=["length", "no_length"])
def test_a_head_tells_the_length_of_the_body_it_stands_for(faulty, said):
    """RFC 9110 8.6: not that of the body that a HEAD's answer does not have; none where the server says none."""
    g, alone, bad, good = faulty

    def behave(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + said + b"\r\n")

    alone.behave = behave
    want = "77" if b"77" in said else None
    session = requests.Session()
    for _ in range(2):
        reply = session.head(g.url + "/alone")
        assert (reply.status_code, reply.headers.get("content-length"), reply.content) == (200, want, b"")
    with Http2(g) as c:
        assert c.ask("HEAD", "/alone") == (200, b"")
        assert [f.fields.get("content-length") for f in c.frames if hasattr(f, "fields")] == [want]


# ---- ten minutes of everything ----

FAULTS = [reset, half_open, rst, raw(b"nonsense\r\n\r\n"), silent(2), trickle, answer(status="503 Service Unavailable"),
          raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}")]


def echo(connection, request):
    body = json.dumps({"id": request.get("x-request-id")[0]}).encode()
    if request.target != "/stream":
        return answer(body)(connection, request)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for i in range(10):
        piece = b"data: " + body + b"\n\n"
        connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        time.sleep(0.01)
        if request.fault == "mid":
            return "close"
    connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    return None


class Shaky:
    """A server that misbehaves for a while, now and then; answers bear the request's id. Counts what it took, by id."""

    def __init__(self, seed):
        self.random, self.taken, self.fault = random.Random(seed), collections.Counter(), None

    def __call__(self, connection, request):
        self.taken[request.get("x-request-id")[0]] += 1
        request.fault = None
        if self.fault == "mid":
            request.fault = "mid" if request.target == "/stream" else None
        elif self.fault:
            return self.fault(connection, request)
        return echo(connection, request)


class Soak:
    def __init__(self, g, until):
        self.g, self.until, self.lock = g, until, threading.Lock()
        self.outcomes, self.wrong, self.sent = collections.Counter(), [], 0

    def one(self, host, number, worker):
        name = f"r{worker}-{number}"
        path = "/stream" if number % 5 == 0 else "/x"
        c = http.client.HTTPConnection(host, timeout=30)
        try:
            c.request("POST", path, b"x" * (number % 3000), {"x-request-id": name})
            reply = c.getresponse()
            text = reply.read().decode()
            if reply.status != 200:
                return f"{reply.status}"
            ids = [json.loads(t.removeprefix("data: "))["id"] for t in text.split("\n") if '"id"' in t]
            if set(ids) != {name}:
                self.wrong.append((name, text[:200]))
            if path == "/x":
                return "200" if len(ids) == 1 else "wrong"
            if text.endswith("data: [DONE]\n\n"):
                return "stream" if len(ids) == 10 and "event: error" not in text else "wrong"
            return "in-band" if text.count("event: error") == 1 and 1 <= len(ids) <= 10 else "wrong"
        except (OSError, http.client.HTTPException) as e:
            return "cut " + type(e).__name__
        finally:
            c.close()

    def run(self, worker):
        number = 0
        while time.monotonic() < self.until:
            outcome = self.one(self.g.address, number, worker)
            number += 1
            with self.lock:
                self.outcomes[outcome] += 1
                if outcome == "wrong":
                    self.wrong.append((worker, number))


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 120)
def test_random_faults(tmp_path):
    """Four servers, at most two of them bad at a time, one of six faults each for a second or so; 8 clients, one request in five a stream. Every
    request has exactly one outcome, no answer is another request's, none that isn't repeatable is served twice, and nothing is left over."""
    shaky = [Shaky(i) for i in range(4)]
    servers = [Upstream(s) for s in shaky]
    text = text_of([pool(servers, max_fails=3, eject_base="1s", eject_max="2s", queue=64, hedge={"percentile": 95},
                         retry={"attempts": 4, "on": ["connect", "reset", "timeout", "503"]})],
                   [{"path_prefix": "/", "upstream": "p", "try_timeout": "500ms", "idle_timeout": "1s"}])
    with gateway(tmp_path, text) as g:
        soak = Soak(g, time.monotonic() + SECONDS)
        workers = [threading.Thread(target=soak.run, args=(w,)) for w in range(8)]
        for w in workers:
            w.start()
        dice = random.Random(7)
        while time.monotonic() < soak.until:
            for s in shaky:
                s.fault = None
            for s in dice.sample(shaky, dice.choice((0, 1, 1, 2))):
                s.fault = dice.choice([*FAULTS, "mid"])
            time.sleep(dice.uniform(0.3, 1.5))
        for s in shaky:
            s.fault = None
        for w in workers:
            w.join()
        wait_idle(g)
        asked = sum(soak.outcomes.values())
        tries = total(g, "inferd_upstream_requests_total")
        retries, hedges = total(g, "inferd_upstream_retries_total"), total(g, "inferd_upstream_hedges_total", result="started")
        ended = sum(total(g, "inferd_upstream_hedges_total", result=r) for r in ("won", "lost", "failed"))
        print(f"\n{asked} requests in {SECONDS:.0f} s ({asked / SECONDS:.0f}/s, 20 % streams): {dict(soak.outcomes)}; {tries:.0f} tries, "
              f"{retries:.0f} retries, {hedges:.0f} hedges")
        assert not soak.wrong, soak.wrong[:5]
        assert not [o for o in soak.outcomes if o.startswith("cut") or o == "wrong"], soak.outcomes
        assert set(soak.outcomes) <= {"200", "stream", "in-band", "502", "503", "504"}, soak.outcomes
        assert tries == asked + retries + hedges  # each try is counted once, and nothing else is
        assert ended == hedges
        served = collections.Counter()
        for s in shaky:
            served.update(s.taken)
        assert len(served) <= asked and max(served.values()) <= 5  # four tries and a hedge
        assert soak.outcomes["200"] + soak.outcomes["stream"] >= 0.97 * asked
    for s in servers:
        s.close()
