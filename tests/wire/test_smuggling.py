"""test_smuggling.py: requests that two readers could take differently, through the gateway and through nginx and HAProxy, each before a raw upstream
that records what it really received.

Ours is never the laxer one: what nginx or HAProxy refuses, the gateway refuses; and what it lets through arrives upstream as one well-formed
message whatever it was made of, with the request behind it as a message of its own or not at all. Where the three differ is printed (pytest -s)
and kept in build/logs/smuggling.txt. The vectors that a server alone must refuse are those of test_hostile_http.py and test_http2_hostile.py.
"""
import collections
import concurrent.futures
import re
import socket

import pytest

import fronts
from gateway_upstream import Upstream
from http2_raw import Closed, Http2
from inferd_server import Server
from raw_socket import address
from test_hostile_http import FRAMING
from test_http2_hostile import PSEUDO, SMUGGLING

TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
NGINX = """
keepalive_requests 100000; upstream u {{ server {upstream}; keepalive 16; }}
server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{h2_port} http2; location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
"""
HAPROXY = """
defaults
  mode http
  timeout client 5s
  timeout server 5s
  timeout connect 5s
frontend f
  bind 127.0.0.1:{port}
  bind 127.0.0.1:{h2_port}
  default_backend b
backend b
  server s {upstream}
"""
# What another refuses and ours may take, and why.
TAKEN = {"host alike": "RFC 9113 (8.3.1) forbids a host that differs from :authority, not one that repeats it; one Host arrives"}
FIRST_S, NEXT_S = 3, 1  # for what may never come: an answer to half a message, one to the request behind a whole one

# ---- vectors: name -> (what is sent, class). {} is the place of the vector's own number ----

POST = b"POST /t/{} HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /t/{} HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
BEHIND = b"GET /behind/{} HTTP/1.1\r\nHost: x\r\n\r\n"

MORE = {
    "CL.TE, TE in capitals": POST + b"Content-Length: 5\r\nTRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n",
    "CL.TE, TE behind a tab": POST + b"Content-Length: 5\r\nTransfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
    "CL.TE, TE with a space before the colon": POST + b"Content-Length: 5\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "CL.TE, TE name with a NUL": POST + b"Content-Length: 5\r\nTransfer\0-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "CL.TE, TE with an underscore": POST + b"Content-Length: 5\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
    "CL.TE, TE behind a bare CR": POST + b"Content-Length: 5\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "CL.TE, TE behind a bare LF": POST + b"Content-Length: 5\r\nA: b\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TE chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "TE chunked and xchunked": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "TE empty": POST + b"Transfer-Encoding: \r\nContent-Length: 0\r\n\r\n",
    "TE with a trailing comma": POST + b"Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
    "length with a leading zero": POST + b"Content-Length: 00000000000000000002\r\n\r\n{}".replace(b"{}", b"[]"),
    "length with a trailing comma": POST + b"Content-Length: 2,\r\n\r\n[]",
    "length in other digits": POST + "Content-Length: ２\r\n\r\n[]".encode(),
    "length behind a name with a dot": POST + b"Content.Length: 2\r\n\r\n[]",
    "a body in chunks": CHUNKED + b"2\r\n[]\r\n0\r\n\r\n",
    "chunk size with leading zeros": CHUNKED + b"0000000000000002\r\n[]\r\n0\r\n\r\n",
    "chunk size with an underscore": CHUNKED + b"2_\r\n[]\r\n0\r\n\r\n",
    "chunk size empty": CHUNKED + b"\r\n[]\r\n0\r\n\r\n",
    "chunk extension": CHUNKED + b"2;a=b\r\n[]\r\n0\r\n\r\n",
    "chunk extension with a quoted LF": CHUNKED + b'2;a="\n"\r\n[]\r\n0\r\n\r\n',
    "last chunk ends in LF": CHUNKED + b"2\r\n[]\r\n0\n\n",
    "last chunk of many zeros": CHUNKED + b"2\r\n[]\r\n000\r\n\r\n",
    "trailer": CHUNKED + b"2\r\n[]\r\n0\r\nX-T: 1\r\n\r\n",
    "trailer Transfer-Encoding": CHUNKED + b"2\r\n[]\r\n0\r\nTransfer-Encoding: x\r\n\r\n",
    "trailer Host": CHUNKED + b"2\r\n[]\r\n0\r\nHost: y\r\n\r\n",
    "GET with a body": GET + b"Content-Length: 2\r\n\r\n[]",
    "absolute-form": b"GET http://x/t/{} HTTP/1.1\r\nHost: x\r\n\r\n",
    "absolute-form of another host": b"GET http://y/t/{} HTTP/1.1\r\nHost: x\r\n\r\n",
    "absolute-form with a user": b"GET http://u@x/t/{} HTTP/1.1\r\nHost: x\r\n\r\n",
    "absolute-form of another scheme": b"GET gopher://x/t/{} HTTP/1.1\r\nHost: x\r\n\r\n",
    "two Hosts, one empty": GET[:-9] + b"Host: x\r\nHost: \r\n\r\n",
    "Host with a space": GET[:-9] + b"Host: x y\r\n\r\n",
    "Host with a slash": GET[:-9] + b"Host: x/y\r\n\r\n",
    "folded header with a tab": GET + b"A: b\r\n\tc\r\n\r\n",
    "folded to nothing": GET + b"A: b\r\n \r\n\r\n",
    "bytes past ASCII in a value": GET + b"A: \xe9\xff\r\n\r\n",
    "bytes past ASCII in a name": GET + b"\xe9: a\r\n\r\n",
    "vertical tab in a value": GET + b"A: b\x0bc\r\n\r\n",
    "DEL in a value": GET + b"A: b\x7fc\r\n\r\n",
    "CR at a value's end": GET + b"A: b\r\r\n\r\n",
    "NUL in a name": GET + b"A\0B: c\r\n\r\n",
    "parenthesis in a name": GET + b"A(B): c\r\n\r\n",
    "brace in a name": GET + b"{A}: c\r\n\r\n".replace(b"{A}", b"A{B"),
    "space at a name's start": GET + b" A: b\r\n\r\n",
    "header of an underscore": GET + b"A_B: c\r\n\r\n",
    "connection names a header": GET + b"Connection: x-secret\r\nX-Secret: 1\r\n\r\n",
    "connection names Content-Length": POST + b"Connection: content-length\r\nContent-Length: 2\r\n\r\n[]",
    "CR LF before the request": b"\r\n" + GET + b"\r\n",
    "LF before the request": b"\n" + GET + b"\r\n",
    "space before the version": GET.replace(b" HTTP", b"  HTTP") + b"\r\n",
    "space behind the version": GET.replace(b"1.1\r", b"1.1 \r") + b"\r\n",
    "tab in the request line": GET.replace(b"GET ", b"GET\t") + b"\r\n",
    "version 1.10": GET.replace(b"1.1\r", b"1.10\r") + b"\r\n",
    "version http/1.1": GET.replace(b"HTTP", b"http") + b"\r\n",
    "version 2.0": GET.replace(b"1.1\r", b"2.0\r") + b"\r\n",
    "NUL in the target": GET.replace(b"/t/{}", b"/t/{}\0x") + b"\r\n",
    "bytes past ASCII in the target": GET.replace(b"/t/{}", b"/t/{}\xe9") + b"\r\n",
    "space in the target": GET.replace(b"/t/{}", b"/t/{} x") + b"\r\n",
    "fragment in the target": GET.replace(b"/t/{}", b"/t/{}#x") + b"\r\n",
    "encoded NUL in the target": GET.replace(b"/t/{}", b"/t/{}%00") + b"\r\n",
    "encoded CR LF in the target": GET.replace(b"/t/{}", b"/t/{}%0d%0aA:b") + b"\r\n",
    "half an escape in the target": GET.replace(b"/t/{}", b"/t/{}%2") + b"\r\n",
    "dot segments in the target": GET.replace(b"/t/{}", b"/t/{}/../../etc") + b"\r\n",
    "encoded dot segments in the target": GET.replace(b"/t/{}", b"/t/{}/%2e%2e/%2e%2e/etc") + b"\r\n",
    "backslash in the target": GET.replace(b"/t/{}", b"/t/{}\\..\\x") + b"\r\n",
    "no slash before the target": GET.replace(b"/t/{}", b"t/{}") + b"\r\n",
    "HTTP/1.0 kept alive": GET.replace(b"1.1\r", b"1.0\r") + b"Connection: keep-alive\r\n\r\n",
    "Upgrade: h2c": GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
}
# Nothing to do with what a proxy forwards, or larger than what these fronts are set up for.
NOT_HERE = {"other expectation", "long method", "long target", "5000 headers", "header of 1 MB", "body past the limit", "trailer of 200 kB",
            "TLS hello", "unknown method"}


def placed(data):
    """A vector of test_hostile_http.py with its number for a path."""
    for path in (b"/v2/models/simple/infer", b"/v2/health/live"):
        data = data.replace(path, b"/t/@")
    return re.sub(rb"(GET {1,2}|http://y)/v2 ", rb"\1/t/@ ", data)


def number(data, n):
    return data.replace(b"/t/{}", b"/t/%d" % n).replace(b"/t/@", b"/t/%d" % n).replace(b"/behind/{}", b"/behind/%d" % n).replace(b"t/{}", b"t/%d" % n)


VECTORS = {**{name: placed(data) for name, (data, _) in FRAMING.items() if name not in NOT_HERE}, **MORE}


# ---- the upstream ----

class Recorder(Upstream):
    """Answers everything, and keeps what came: number of the vector -> [(kind, head, body)]; kind is "t" or "behind"."""

    def __init__(self):
        self.got = collections.defaultdict(list)
        super().__init__(self._keep)

    def _keep(self, connection, request):
        if not self._note(request.head, request.body):
            self.broken.append(request.head)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def _note(self, head, body):
        found = re.search(rb"(t|behind)/(\d+)", head.split(b"\r\n")[0])
        if found:
            self.got[int(found[2])].append((found[1].decode(), head, body))
        return found

    def seen(self, n):
        """What came of vector n. A body in chunks that breaks off is no message, and ends with its connection; one that is shorter than announced counts."""
        while self.unfinished:
            head = self.unfinished.pop(0)
            if b"\r\ntransfer-encoding:" not in head.lower():
                self._note(head, b"")
        return self.got[n]


def wrong_with(head):
    """What makes a message, as it arrived, one that another reader could take otherwise; "" when nothing does."""
    if re.search(rb"[^\r]\n|\r[^\n]|\0", head):
        return "bare CR, LF or NUL"
    first, *lines = head.split(b"\r\n")
    if not re.fullmatch(rb"[A-Z]+ /[\x21-\x7e]* HTTP/1\.1", first):
        return f"request line {first!r}"
    names = collections.Counter()
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.fullmatch(name) or re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value):
            return f"line {line!r}"
        names[name.lower()] += 1
        if name.lower() == b"content-length" and not re.fullmatch(rb" *\d+", value):
            return f"line {line!r}"
        if name.lower() == b"transfer-encoding" and value.strip() != b"chunked":
            return f"line {line!r}"
    if names[b"host"] != 1 or names[b"content-length"] > 1 or names[b"transfer-encoding"] > 1:
        return "Host, Content-Length or Transfer-Encoding not once"
    if names[b"content-length"] and names[b"transfer-encoding"]:
        return "both framings"
    if names[b"connection"] and b"x-secret" in head.lower():
        return "a header that Connection names"
    return ""


# ---- the three ----

Side = collections.namedtuple("Side", "name recorder http h2")


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fronts")
    recorders = {name: Recorder() for name in ("inferd", "nginx", "haproxy")}
    config = folder / "gateway.yaml"
    config.write_text(f'upstreams: [{{name: u, servers: ["{recorders["inferd"].address}"]}}]\nroutes: [{{path_prefix: /, upstream: u}}]\n')
    ports = {name: (fronts.free_port(), fronts.free_port()) for name in ("nginx", "haproxy")}
    texts = {name: text.format(upstream=recorders[name].address, port=ports[name][0], h2_port=ports[name][1])
             for name, text in (("nginx", NGINX), ("haproxy", HAPROXY))}
    with Server(args=(f"--config={config}",)) as server, fronts.Front("nginx", texts["nginx"], folder, ports["nginx"]), \
            fronts.Front("haproxy", texts["haproxy"], folder, ports["haproxy"]):
        found = [Side("inferd", recorders["inferd"], address(server), address(server))]
        found += [Side(name, recorders[name], ("127.0.0.1", ports[name][0]), ("127.0.0.1", ports[name][1])) for name in ("nginx", "haproxy")]
        yield found
    for recorder in recorders.values():
        recorder.close()


def status_codes(side, data):
    """The statuses of the answers to `data`, until the end or silence."""
    with socket.create_connection(side.http, timeout=5) as s:
        s.settimeout(FIRST_S)
        got = b""
        try:
            s.sendall(data)
            while more := s.recv(65536):
                got += more
                s.settimeout(NEXT_S)
                if got.count(b"HTTP/1.1 200") >= 2 and got.endswith(b"ok"):
                    break
        except OSError:
            pass
    return [int(c) for c in re.findall(rb"HTTP/1\.[01] (\d\d\d) ", got)]


Seen = collections.namedtuple("Seen", "codes arrived")  # arrived: [(kind, head, body)]


def keep_record(title, rows):
    """The table of what each of the three did, into build/logs and to who looks."""
    lines = [title] + [f"  {name}: " + "; ".join(f"{side} {what}" for side, what in row.items()) for name, row in rows.items()]
    folder = fronts.ROOT / "build/logs"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "smuggling.txt").open("a" if title.startswith("HTTP/2") else "w") as f:
        f.write("\n".join(lines) + "\n")
    print("\n" + "\n".join(lines))


def summary(seen):
    codes = ",".join(map(str, seen.codes)) or "no answer"
    return codes + (" and forwarded " + "+".join(kind for kind, *_ in seen.arrived) if seen.arrived else "")


def judge(title, results):
    """results: vector -> {side: Seen}. What all do alike is not of interest; what ours lets through that another refuses is a failure."""
    rows, faults = {}, []
    for name, seen in results.items():
        passes = {side: any(kind == "t" for kind, *_ in s.arrived) for side, s in seen.items()}
        if len(set(passes.values())) > 1:
            rows[name] = {side: summary(s) for side, s in seen.items()}
        if passes["inferd"] and not all(passes.values()) and name not in TAKEN:
            faults.append(f"{name}: ours is laxer: {rows[name]}")
        for kind, head, _ in seen["inferd"].arrived:
            if why := wrong_with(head):
                faults.append(f"{name}: what arrived has {why}: {head!r}")
        # a path that is refused is no doubt about where the request ends
        if not passes["inferd"] and seen["inferd"].arrived and not name.endswith("in the target"):
            faults.append(f"{name}: refused, and yet the request behind it arrived: {seen['inferd']}")
        if len(seen["inferd"].arrived) > 2:
            faults.append(f"{name}: more messages than were sent: {seen['inferd']}")
    keep_record(title, rows)
    assert not faults, "\n".join(faults)


def test_http1(sides):
    names = list(VECTORS)
    jobs = {}
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        for n, name in enumerate(names):
            data = number(VECTORS[name] + BEHIND, n)
            for side in sides:
                jobs[name, side.name] = pool.submit(status_codes, side, data)
        codes = {key: job.result() for key, job in jobs.items()}
    results = {name: {side.name: Seen(codes[name, side.name], side.recorder.seen(n)) for side in sides} for n, name in enumerate(names)}
    for side in sides[:1]:
        assert not side.recorder.broken, side.recorder.broken
    # what any server must refuse, the gateway refuses too, and nothing of it reaches the upstream
    for name in FRAMING:
        if name in VECTORS:
            assert results[name]["inferd"].arrived == [], (name, results[name]["inferd"])
            assert results[name]["inferd"].codes == [FRAMING[name][1]], (name, results[name]["inferd"])
    judge("HTTP/1.1: vectors that are forwarded by some", results)
    # and it isn't strict by refusing everything
    for name in ("a body in chunks", "chunk extension", "absolute-form", "GET with a body", "connection names a header", "trailer"):
        seen = results[name]["inferd"]
        assert sorted(kind for kind, *_ in seen.arrived) == ["behind", "t"] and seen.codes == [200, 200], (name, seen)
    assert [body for kind, _, body in results["a body in chunks"]["inferd"].arrived if kind == "t"] == [b"[]"]


def h2_outcome(side, pseudo, extra):
    """[status or None] of one request over HTTP/2."""
    class At:
        addresses = {"http": "%s:%d" % side.h2}
    try:
        with Http2(At, timeout=5) as c:
            return [c.ask(pseudo=pseudo, extra=extra)[0]]
    except (OSError, Closed, AssertionError):
        return [None]


def numbered(fields, n):
    """The path of a vector with its number in it, where it begins as all do."""
    return [(k, v.replace("/v2/health/live", f"/t/{n}", 1).replace("/v2", f"/t/{n}", 1) if k == ":path" else v) for k, v in fields]


H2_MORE = {
    "a good request": (PSEUDO, []),
    "cookie in pieces": (PSEUDO, [("cookie", "a=1"), ("cookie", "b=2")]),
    "CR LF CR LF in a value": (PSEUDO, [("x", "a\r\n\r\nGET /behind/1 HTTP/1.1\r\nhost: x")]),
    "space at a value's start": (PSEUDO, [("x", " a")]),
    "tab in a value": (PSEUDO, [("x", "a\tb")]),
    "vertical tab in a value": (PSEUDO, [("x", "a\x0bb")]),
    "DEL in a value": (PSEUDO, [("x", "a\x7fb")]),
    "LF in a name": (PSEUDO, [("x\ny", "v")]),
    "NUL in a name": (PSEUDO, [("x\0y", "v")]),
    "host alike": (PSEUDO, [("host", "x")]),
    "host twice": (PSEUDO, [("host", "x"), ("host", "y")]),
    "encoded CR LF in the path": ([*PSEUDO[:2], (":path", "/v2%0d%0aa:b"), PSEUDO[3]], []),
    "tab in the path": ([*PSEUDO[:2], (":path", "/v2\tx"), PSEUDO[3]], []),
    "NUL in the path": ([*PSEUDO[:2], (":path", "/v2\0x"), PSEUDO[3]], []),
    "bytes past ASCII in the path": ([*PSEUDO[:2], (":path", "/v2\u00e9"), PSEUDO[3]], []),
    "space in the method": ([(":method", "GET /t/1"), *PSEUDO[1:]], []),
    "space in the authority": ([*PSEUDO[:3], (":authority", "x y")], []),
    "te: trailers": (PSEUDO, [("te", "trailers")]),
}


def test_http2_to_http1(sides):
    vectors = {**{name: (pseudo, extra) for name, (_, pseudo, extra) in SMUGGLING.items() if name != "unknown expectation"}, **H2_MORE}
    jobs, first = {}, 10000
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        for n, (name, (pseudo, extra)) in enumerate(vectors.items(), first):
            for side in sides:
                jobs[name, side.name] = pool.submit(h2_outcome, side, numbered(pseudo, n), extra)
        codes = {key: job.result() for key, job in jobs.items()}
    results = {name: {side.name: Seen(codes[name, side.name], side.recorder.seen(n)) for side in sides} for n, name in enumerate(vectors, first)}
    for name in SMUGGLING:
        if name in vectors:
            assert results[name]["inferd"].arrived == [], (name, results[name]["inferd"])
    assert not sides[0].recorder.broken, sides[0].recorder.broken
    judge("HTTP/2 to HTTP/1.1: vectors that are forwarded by some", results)
    for name in ("a good request", "tab in a value", "host alike", "te: trailers", "cookie in pieces"):
        seen = results[name]["inferd"]
        assert [kind for kind, *_ in seen.arrived] == ["t"] and seen.codes == [200], (name, seen)
    assert b"cookie: a=1; b=2" in results["cookie in pieces"]["inferd"].arrived[0][1].lower()
