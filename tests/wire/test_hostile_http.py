"""test_hostile_http.py: clients that mean harm, over raw sockets: framing that two readers could take differently (the request
smuggling classes), bombs, floods, and going away in every phase. After each: the right status, the server lives, and another
client's request is answered right.
"""
import gzip
import json
import os
import random
import socket
import struct
import threading
import time
import zlib

import pytest
import requests

from inferd_server import SIMPLE, Server, wait_until, write_fake
from raw_socket import Reader, address, ask, connect, fd_count, infer_request, request, reset

ROW = list(range(16))
SUM = {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": ROW} for n in ("INPUT0", "INPUT1")]}
GOOD = infer_request("simple", SUM)
REAL = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1.5]}]}
POST = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\n"


def assert_lean(server, before, more):
    """Memory has grown by less than `more` bytes. A sanitizer's allocator keeps what is freed, so there it isn't looked at."""
    if os.environ.get("INFERD_BUILD") not in ("asan", "tsan", "ubsan"):
        assert server.rss_bytes() - before < more


def good_client_is_served(server):
    answer = ask(server, GOOD)
    assert answer.status == 200, answer
    assert answer.json()["outputs"][0]["data"] == [2 * x for x in ROW]


def in_flight(server):
    return requests.get(server.admin_url + "/admin/status").json()["in_flight"]


# RFC 9112 (2.2, 3, 6, 7), RFC 9110 (5.5, 7.2, 9.3.6, 10.1.1), RFC 6585 (431). The second request in each vector is what a
# front that read the framing otherwise would have let through: it must never be answered.
SMUGGLED = b"GET /v2/models/stats HTTP/1.1\r\nHost: x\r\n\r\n"
FRAMING = {
    "CL.TE": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "TE.CL": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", 400),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "the same length twice": (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
    "list of lengths": (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
    "length with plus": (POST + b"Content-Length: +2\r\n\r\n{}", 400),
    "length with minus": (POST + b"Content-Length: -2\r\n\r\n{}", 400),
    "hexadecimal length": (POST + b"Content-Length: 0x2\r\n\r\n{}", 400),
    "length with underscore": (POST + b"Content-Length: 1_0\r\n\r\n{}", 400),
    "empty length": (POST + b"Content-Length: \r\n\r\n{}", 400),
    "length with space inside": (POST + b"Content-Length: 1 0\r\n\r\n{}", 400),
    "length 2^63": (POST + b"Content-Length: 9223372036854775808\r\n\r\n", 400),
    "length 2^64+2": (POST + b"Content-Length: 18446744073709551618\r\n\r\n{}", 400),
    "space before the colon": (POST + b"Content-Length : 2\r\n\r\n{}", 400),
    "vertical tab before length": (POST + b"Content-Length: \x0b2\r\n\r\n{}", 400),
    "TE xchunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
    "TE gzip, chunked": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "TE identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", 400),
    "TE twice": (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "TE quoted": (POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n', 400),
    "TE with parameter": (POST + b"Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n", 400),
    "TE behind vertical tab": (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "TE folded": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400),
    "TE in HTTP/1.0": (POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunk size with plus": (CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n", 400),
    "chunk size with minus": (CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", 400),
    "chunk size 0x2": (CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n", 400),
    "chunk size with space": (CHUNKED + b"2 \r\n{}\r\n0\r\n\r\n", 400),
    "chunk size 2^64+2": (CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n", 400),
    "chunk size ends in LF": (CHUNKED + b"2\n{}\r\n0\r\n\r\n", 400),
    "chunk data ends in LF": (CHUNKED + b"2\r\n{}\n0\r\n\r\n", 400),
    "chunk longer than said": (CHUNKED + b"2\r\n{}x\r\n0\r\n\r\n", 400),
    "chunk extension with CR": (CHUNKED + b"2;a\rb\r\n{}\r\n0\r\n\r\n", 400),
    "chunk extension ends in LF": (CHUNKED + b"2;a\n{}\r\n0\r\n\r\n", 400),
    "trailer Content-Length": (CHUNKED + b"2\r\n{}\r\n0\r\nContent-Length: 3\r\n\r\n", 400),
    "trailer of 200 kB": (CHUNKED + b"2\r\n{}\r\n0\r\nA: " + b"a" * 200000 + b"\r\n\r\n", 400),
    "bare LF": (b"GET /v2 HTTP/1.1\nHost: x\n\n", 400),
    "bare CR": (LIVE + b"Host: x\rA: b\r\n\r\n", 400),
    "NUL in a value": (LIVE + b"Host: x\r\nA: b\0c\r\n\r\n", 400),
    "folded header": (LIVE + b"Host: x\r\nA: b\r\n c\r\n\r\n", 400),
    "header without colon": (LIVE + b"Host: x\r\nfoo\r\n\r\n", 400),
    "header without name": (LIVE + b"Host: x\r\n: a\r\n\r\n", 400),
    "white space before the first header": (LIVE[:-2] + b"\r\n Host: x\r\n\r\n", 400),
    "no Host": (LIVE + b"\r\n", 400),
    "two Hosts": (LIVE + b"Host: x\r\nHost: x\r\n\r\n", 400),
    "Host with user": (LIVE + b"Host: a@b\r\n\r\n", 400),
    "Host unlike the target": (b"GET http://y/v2 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "HTTP/0.9": (b"GET /v2/health/live\r\n\r\n", 505),
    "HTTP/1.2": (b"GET /v2 HTTP/1.2\r\nHost: x\r\n\r\n", 505),
    "TLS hello": (bytes.fromhex("16030100a5010000a10303"), 400),
    "CONNECT": (b"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n", 501),
    "unknown method": (b"FROB /v2 HTTP/1.1\r\nHost: x\r\n\r\n", 501),
    "two spaces": (b"GET  /v2 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "other expectation": (POST + b"Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}", 417),
    "long method": (b"A" * 100000 + b" / HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "long target": (b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "5000 headers": (LIVE + b"Host: x\r\n" + b"a: b\r\n" * 5000 + b"\r\n", 431),
    "header of 1 MB": (LIVE + b"Host: x\r\nA: " + b"a" * (1 << 20) + b"\r\n\r\n", 431),
    "body past the limit": (POST + b"Content-Length: 9223372036854775807\r\n\r\n", 413),
}


@pytest.mark.parametrize("vector", FRAMING)
def test_ambiguous_framing_is_refused_and_ends_the_connection(simple_server, vector):
    data, status = FRAMING[vector]
    with connect(simple_server) as s:
        try:
            s.sendall(data + SMUGGLED)
        except OSError:
            pass  # refused before all of it was taken
        reader = Reader(s)
        answer = reader.answer()
        assert answer.status == status, answer
        assert answer.headers["connection"] == "close"
        assert reader.at_end()
    simple_server.alive()


@pytest.mark.parametrize("target, status", [
    ("/v2/models/%2e%2e/config", 400), ("/v2/models/%2e/config", 400), ("/v2/models/..%2f..%2fetc%2fpasswd", 404),
    ("/v2/models/simple%00/config", 400), ("/v2/models/simple%/config", 400), ("/v2/models/simple%2/config", 400),
    ("/v2/models/simple%zz/config", 400), ("/v2/models/simple/../../../etc/passwd", 400), ("/v2/x/../health/live", 400),
    ("/v2/models/simple/versions/1%2f..%2f1", 404), ("/v2/models/" + "a" * 129, 404), ("/v2/models/%20", 404),
    ("/v2/models/s%0d%0aX-Evil:1/config", 404), ("//v2/health/live", 404), ("/v2;a/health/live", 404), ("/metrics", 404),
    ("/admin/status", 404), ("/v2/models/simple#a", 400), ("v2", 400), ("*", 400), ("http://", 400), ("http:///v2", 400)])
def test_path_games(simple_server, target, status):
    answer = ask(simple_server, request("GET", target))
    assert answer.status == status, answer
    assert b"x-evil" not in str(answer.headers).lower().encode()
    simple_server.alive()


TWICE = [("Inference-Header-Content-Length", "10", "0"), ("x-inferd-timeout-ms", "5", "50000"),
         ("Content-Type", "application/json", "multipart/form-data"), ("Content-Encoding", "gzip", "gzip")]


@pytest.mark.parametrize("name, first, second", TWICE)
def test_a_header_that_decides_is_there_once(simple_server, name, first, second):
    answer = ask(simple_server, infer_request("simple", SUM, [(name, first), (name, second)]))
    assert answer.status in (400, 415), answer
    assert name.lower() in answer.json()["error"].lower()


BOMBS = {
    "gzip": (gzip.compress(b" " * (80 << 20)), "gzip", 413),
    "deflate": (zlib.compress(b" " * (80 << 20)), "deflate", 413),
    "zstd window": (b"\x28\xb5\x2f\xfd\x00\xf8" + b"\0" * 20, "zstd", 413),
    "100000 empty gzip members": (gzip.compress(b"") * 100000, "gzip", 400),
    "zstd frames of nothing": ((b"\x50\x2a\x4d\x18" + struct.pack("<I", 0)) * 100000, "zstd", 400),
    "gzip cut": (gzip.compress(json.dumps(REAL).encode())[:-3], "gzip", 400),
    "gzip with a tail": (gzip.compress(json.dumps(REAL).encode()) + b"xx", "gzip", 400),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_compression_bombs(simple_server, bomb):
    body, coding, status = BOMBS[bomb]
    before = simple_server.rss_bytes()
    assert ask(simple_server, request("POST", "/v2/models/real/infer", [("Content-Encoding", coding)], body)).status == status
    assert_lean(simple_server, before, 64 << 20)
    good_client_is_served(simple_server)


JSON_BOMBS = {
    "a million brackets": b"[" * 1000000,
    "a hundred thousand objects": b'{"a":' * 100000 + b"1" + b"}" * 100000,
    "deep data": b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP32","data":' + b"[" * 99999 + b"1" + b"]" * 99999 + b"}]}",
    "a million dimensions": b'{"inputs":[{"name":"X","shape":[' + b"1," * 1000000 + b'1],"datatype":"FP32","data":[1]}]}',
    "a million digits": b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP32","data":[1' + b"0" * 1000000 + b"]}]}",
    "a shape of 2^64": b'{"inputs":[{"name":"X","shape":[4294967296,4294967296],"datatype":"FP32","data":[1]}]}',
    "a shape of 2^40": b'{"inputs":[{"name":"X","shape":[1,1099511627776],"datatype":"FP32","data":[1]}]}',
    "20000 inputs": json.dumps({"inputs": REAL["inputs"] * 20000}).encode(),
    "20000 outputs": json.dumps({**REAL, "outputs": [{"name": f"Y{i}"} for i in range(20000)]}).encode(),
    "100000 parameters": json.dumps({**REAL, "parameters": {f"k{i}": i for i in range(100000)}}).encode(),
    "the same member twice": b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP32","data":[1],"data":[2]}]}',
    "two documents": json.dumps(REAL).encode() * 2,
    "a NUL behind": json.dumps(REAL).encode() + b"\0",
    "a priority below 0": json.dumps({**REAL, "parameters": {"priority": -1}}).encode(),
    "a timeout below 0": json.dumps({**REAL, "parameters": {"timeout": -1}}).encode(),
    "a timeout that is NaN": b'{"parameters":{"timeout":NaN},"inputs":[{"name":"X","shape":[1,1],"datatype":"FP32","data":[1]}]}',
}


@pytest.mark.parametrize("bomb", JSON_BOMBS)
def test_json_bombs(simple_server, bomb):
    before = simple_server.rss_bytes()
    answer = ask(simple_server, request("POST", "/v2/models/real/infer", [], JSON_BOMBS[bomb]))
    assert answer.status == 400, answer
    assert len(answer.body) < 2000
    assert_lean(simple_server, before, 64 << 20)
    good_client_is_served(simple_server)


def test_lengths_without_bodies_cost_nothing(simple_server):
    before, open_before = simple_server.rss_bytes(), fd_count(simple_server)
    sockets = [connect(simple_server) for _ in range(200)]
    for s in sockets:
        s.sendall(b"POST /v2/models/real/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 67000000\r\n\r\n" + b"{" * 500)
    good_client_is_served(simple_server)
    assert_lean(simple_server, before, 200 * (128 << 10))  # announced: 12 GiB
    for s in sockets:
        reset(s)
    wait_until(lambda: fd_count(simple_server) <= open_before + 2, what="descriptors are closed")


def test_a_megabyte_of_tiny_chunks(simple_server):
    body = b" " * 300000 + json.dumps(REAL).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"
    head = b"POST /v2/models/real/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert ask(simple_server, head + chunks).json()["outputs"][0]["data"] == [1.5]
    padded = b"".join(b"1;a=" + b"b" * 60 + b"\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"
    assert ask(simple_server, head + padded).status == 400  # more framing than data
    good_client_is_served(simple_server)


def test_pipelining_flood_is_answered_in_order(simple_server):
    n = 2000
    with connect(simple_server, timeout=30) as s:
        sender = threading.Thread(target=s.sendall, args=(GOOD * n,))
        sender.start()
        reader = Reader(s)
        for _ in range(n):
            answer = reader.answer()
            assert answer.status == 200 and answer.json()["outputs"][1]["data"] == [0] * 16
        sender.join()
    before = simple_server.rss_bytes()
    flood = [connect(simple_server) for _ in range(30)]
    for s in flood:  # answers are never read: reading must stop, and with it memory
        s.settimeout(0.1)
        try:
            for _ in range(100):
                s.sendall(GOOD * 100)
        except TimeoutError:
            pass
    good_client_is_served(simple_server)
    assert_lean(simple_server, before, 64 << 20)
    for s in flood:
        reset(s)
    wait_until(lambda: in_flight(simple_server) == 0, what="nothing in flight")


def test_five_hundred_resets_in_every_phase(simple_server):
    r = random.Random(7)
    big = infer_request("real", {"inputs": [{"name": "X", "shape": [1, 20000], "datatype": "FP32", "data": [1.5] * 20000}]})
    open_before = fd_count(simple_server)
    for i in range(500):
        document = r.choice([GOOD, big, GOOD * 5, LIVE + b"Host: x\r\n\r\n"])
        s = connect(simple_server)
        try:
            s.sendall(document[: r.choice([0, r.randrange(len(document)), len(document)])])
            if r.random() < 0.3:
                s.settimeout(0.005)
                s.recv(r.choice([1, 100, 10000]))
        except OSError:
            pass
        if r.random() < 0.2:
            s.close()
        else:
            reset(s)
        if i % 50 == 0:
            good_client_is_served(simple_server)
    wait_until(lambda: in_flight(simple_server) == 0, what="nothing in flight")
    wait_until(lambda: fd_count(simple_server) <= open_before + 2, what="descriptors are closed")


@pytest.fixture(scope="module")
def tight_server(tmp_path_factory):
    """Short time limits, so that what is slow shows soon."""
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "real", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n")
    with Server(root, args=["--limits.header_timeout=300ms", "--limits.body_timeout=300ms", "--limits.write_timeout=300ms",
                            "--limits.idle_timeout=600ms", "--limits.min_body_rate=100KiB"]) as server:
        yield server


def drip(s, data, pause=0.05):
    """A byte at a time until the server has had enough; then its answer."""
    try:
        for c in data:
            s.sendall(bytes([c]))
            time.sleep(pause)
    except OSError:
        pass
    return Reader(s).answer()


def test_slowloris_in_head_and_body(tight_server):
    with connect(tight_server) as head, connect(tight_server) as body:
        body.sendall(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        assert drip(head, GOOD[:40]).status == 408
        assert drip(body, b"{" * 40).status == 408
    good_client_is_served(tight_server)


def test_a_client_that_never_reads_is_cut_off(tight_server):
    n = 4 << 20
    document = json.dumps({"inputs": [{"name": "X", "shape": [1, n], "datatype": "FP32",
                                       "parameters": {"binary_data_size": 4 * n}}],
                           "parameters": {"binary_data_output": True}}).encode()
    data = request("POST", "/v2/models/real/infer", [("Inference-Header-Content-Length", str(len(document)))],
                   document + bytes(4 * n))
    before = tight_server.metric("inferd_http_limit_total", limit="write_time")
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(20)
    s.connect(address(tight_server))
    with s:
        s.sendall(data)
        wait_until(lambda: tight_server.metric("inferd_http_limit_total", limit="write_time") > before, what="write_timeout")
        good_client_is_served(tight_server)
    wait_until(lambda: in_flight(tight_server) == 0, what="nothing in flight")
