"""test_hostile_process.py: floods that are meant for the process: connections up to the limit and past the descriptors, and memory
that has to come back when a burst is over.
"""
import json
import os
import socket
import threading

import pytest

from inferd_server import SIMPLE, Server, wait_until, write_fake
from raw_socket import Reader, address, ask, connect, infer_request, request

LIVE = request("GET", "/v2/health/live")
SANITIZED = os.environ.get("INFERD_BUILD") in ("asan", "tsan", "ubsan")


def flood(server, n, data=b""):
    """n connections that send `data` and then nothing."""
    sockets = []
    for _ in range(n):
        s = socket.create_connection(address(server), timeout=10)
        if data:
            s.sendall(data)
        sockets.append(s)
    return sockets


def every_listener_is_alive(server, listeners):
    for listener in listeners:
        answer = ask(server, LIVE, listener=listener)
        assert answer.status == 200, (listener, answer)


def test_connections_past_the_limit_get_503_and_others_are_served(repository):
    write_fake(repository, "simple", SIMPLE)
    with Server(repository, args=["--limits.max_connections=40"]) as server:
        with connect(server) as old:
            reader = Reader(old)
            old.sendall(LIVE)
            assert reader.answer().status == 200
            sockets = flood(server, 100)
            answer = ask(server, LIVE)
            assert answer.status == 503 and answer.headers["connection"] == "close" and "retry-after" in answer.headers
            every_listener_is_alive(server, ["metrics", "admin"])
            old.sendall(LIVE)  # who was there is served
            assert reader.answer().status == 200
        for s in sockets:
            s.close()
        wait_until(lambda: ask(server, LIVE).status == 200, what="the connections are closed: there is room")
        server.wait_metric("inferd_http_limit_total", lambda n: n >= 60, listener="http", limit="connections")


@pytest.mark.parametrize("sent", [b"", LIVE], ids=["silent", "served"])
def test_fewer_descriptors_than_connections_leave_room_for_operators(repository, sent):
    """`ulimit -n` below max_connections: the flood is answered with 503 at a lower limit instead of taking every descriptor, so that
    health checks, scrapes and loads go on: a process that has run into EMFILE has no other listener alive."""
    write_fake(repository, "simple", SIMPLE)
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=*", "--http.threads=2"],
                prefix=["prlimit", "--nofile=128:128"]) as server:
        warned = server.wait_records("descriptor_limit_low")
        assert 8 <= warned[0]["max_connections"] < 100
        sockets = flood(server, 200, sent)
        every_listener_is_alive(server, ["metrics", "admin"])
        answer = ask(server, request("POST", "/v2/repository/models/simple/load"), listener="admin")
        assert answer.status == 200, answer
        for s in sockets:
            s.close()
        wait_until(lambda: ask(server, LIVE).status == 200, what="the connections are closed: there is room")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's allocator keeps what is freed")
def test_memory_comes_back_after_a_burst(repository):
    """Sixteen clients with 16 MiB each, at once: with the answers half a gigabyte, which the allocator would keep."""
    write_fake(repository, "real", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n", config="max_batch_size: 1\n")
    n = 4 << 20
    document = json.dumps({"inputs": [{"name": "X", "shape": [1, n], "datatype": "FP32",
                                       "parameters": {"binary_data_size": 4 * n}}],
                           "parameters": {"binary_data_output": True}}).encode()
    data = request("POST", "/v2/models/real/infer", [("Inference-Header-Content-Length", str(len(document)))],
                   document + bytes(4 * n))
    statuses = []
    with Server(repository) as server:
        before = server.rss_bytes()
        for _ in range(2):
            clients = [threading.Thread(target=lambda: statuses.append(ask(server, data, timeout=60).status)) for _ in range(16)]
            for c in clients:
                c.start()
            for c in clients:
                c.join()
        assert set(statuses) <= {200, 429} and 200 in statuses
        wait_until(lambda: server.rss_bytes() - before <= 64 << 20, what="at most 64 MiB are kept")
        assert ask(server, infer_request("real", {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32",
                                                             "data": [2.5]}]})).json()["outputs"][0]["data"] == [2.5]
