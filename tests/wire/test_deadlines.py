"""test_deadlines.py: deadlines, priorities, bounded queues and cancelled clients, seen from outside. Rows C6, C7, C8, C10, C13, C16, C17 and C19 of
the complaints that must not be filed against us."""
import concurrent.futures as futures
import json
import socket
import threading
import time

import pytest
import requests

from inferd_server import Server, wait_until, write_fake

ECHO = "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] copy X\n"


def echo(*values, **more):
    return {"inputs": [{"name": "X", "shape": [len(values), 1], "datatype": "INT32", "data": list(values)}], **more}


def data(reply, name="Y"):
    return next(o for o in reply.json()["outputs"] if o["name"] == name)["data"]


def raw_request(server, model, body):
    text = json.dumps(body).encode()
    s = socket.create_connection(server.address.split(":"))
    s.sendall(b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (model.encode(), len(text)) + text)
    return s


@pytest.fixture
def slow(repository):
    """One run takes a second, one row a batch."""
    write_fake(repository, "slow", ECHO + "base_us = 1000000\n", config="max_batch_size: 1\n")
    with Server(repository) as server:
        yield server


def test_queued_request_is_answered_at_its_deadline_while_another_runs(slow):
    with futures.ThreadPoolExecutor() as pool:
        first = pool.submit(slow.infer, "slow", echo(1))
        wait_until(lambda: slow.metric("inferd_queue_rows", model="slow") == 0 and json.loads(
            requests.get(slow.admin_url + "/admin/status").text)["in_flight"] == 1, what="first runs")
        late = slow.infer("slow", echo(2), headers={"x-inferd-timeout-ms": "150"})
        assert late.status_code == 504 and not first.done()
        assert first.result().status_code == 200 and data(first.result()) == [1]
    slow.wait_metric("inferd_deadline_total", 1, model="slow")


def test_kserve_timeout_parameter_is_a_deadline_too(slow):
    start = time.monotonic()
    r = slow.infer("slow", echo(1, parameters={"timeout": 100_000}))
    assert r.status_code == 504 and time.monotonic() - start < 0.95


def test_what_cannot_be_met_any_more_is_refused_at_once(slow):
    assert slow.infer("slow", echo(1)).status_code == 200  # now the run time is known
    start = time.monotonic()
    r = slow.infer("slow", echo(2), headers={"x-inferd-timeout-ms": "800"})
    assert r.status_code == 504 and time.monotonic() - start < 0.7
    assert "ms" in r.json()["error"]


def in_flight(server):
    return requests.get(server.admin_url + "/admin/status").json()["in_flight"]


def test_client_that_leaves_is_cancelled_running_and_queued(slow):
    running = raw_request(slow, "slow", echo(1))
    wait_until(lambda: in_flight(slow) == 1)
    queued = raw_request(slow, "slow", echo(2))
    wait_until(lambda: in_flight(slow) == 2)
    queued.close()
    wait_until(lambda: in_flight(slow) == 1, what="queued one is gone")
    running.close()
    wait_until(lambda: in_flight(slow) == 0, what="running one is gone")
    slow.wait_metric("inferd_cancelled_total", 2, model="slow")  # neither ended by itself
    r = slow.infer("slow", echo(3))
    assert r.status_code == 200 and data(r) == [3]


def test_half_closed_client_gets_its_answer(slow):
    s = raw_request(slow, "slow", echo(7))
    s.shutdown(socket.SHUT_WR)
    s.settimeout(5)
    reply = b""
    while chunk := s.recv(65536):
        reply += chunk
    final = reply[reply.rindex(b"HTTP/1.1 200"):]
    assert json.loads(final.split(b"\r\n\r\n", 1)[1])["outputs"][0]["data"] == [7]


def test_burst_of_cancelled_clients_leaves_no_ghost_work(repository):
    """The three phases of R#41057: healthy, a burst that times out, healthy again."""
    write_fake(repository, "m", ECHO + "base_us = 20000\n", config="max_batch_size: 1\n")
    with Server(repository) as server:
        assert server.infer("m", echo(0)).status_code == 200
        executions = server.metric("inferd_inference_executions_total", model="m")
        sockets = [raw_request(server, "m", echo(i)) for i in range(200)]
        for s in sockets:
            s.close()
        wait_until(lambda: in_flight(server) == 0)
        for i in range(10):
            r = server.infer("m", echo(i))
            assert r.status_code == 200 and data(r) == [i]
        assert 10 <= server.metric("inferd_inference_executions_total", model="m") - executions < 150  # the burst alone would be 200


def test_full_queue_is_429_with_retry_after_and_bounded_memory(repository):
    write_fake(repository, "m", ECHO + "base_us = 300000\n",
               config="max_batch_size: 1\ndynamic_batching: {default_queue_policy: {max_queue_size: 4}}\n")
    with Server(repository) as server:
        with futures.ThreadPoolExecutor(32) as pool:
            replies = list(pool.map(lambda i: server.infer("m", echo(i)), range(32)))
        codes = [r.status_code for r in replies]
        assert set(codes) <= {200, 429} and codes.count(429) >= 20 and codes.count(200) >= 4
        refused = next(r for r in replies if r.status_code == 429)
        assert int(refused.headers["Retry-After"]) >= 1 and "queue" in refused.json()["error"]
        server.wait_metric("inferd_queue_rejected_total", codes.count(429), model="m")
        assert requests.get(server.url + "/v2/health/ready").status_code == 200


def test_retry_after_is_the_time_that_the_queue_will_take(repository):
    write_fake(repository, "m", ECHO + "base_us = 400000\n", config="max_batch_size: 1\nmax_queue_rows: 12\n")
    with Server(repository) as server:
        assert server.infer("m", echo(0)).status_code == 200  # learned: 0.4 s a request
        with futures.ThreadPoolExecutor(20) as pool:
            replies = list(pool.map(lambda i: server.infer("m", echo(i)), range(20)))
        after = [int(r.headers["Retry-After"]) for r in replies if r.status_code == 429]
        assert len(after) >= 4
        assert all(4 <= s <= 8 for s in after), after  # 12 to 13 requests of 0.4 s are 4.8 to 5.2 s


@pytest.mark.parametrize("action, status", [("DELAY", 200), ("REJECT", 504)])
def test_timeout_under_a_queue_policy_has_triton_s_meaning(repository, action, status):
    """Triton's ModelQueuePolicy: past its timeout a request is delayed behind the others, or rejected; running is not counted."""
    policy = "{timeout_action: %s, default_timeout_microseconds: 60000000, allow_timeout_override: true}" % action
    write_fake(repository, "m", ECHO + "base_us = 300000\n",
               config="max_batch_size: 1\nbatching: fixed\ndynamic_batching: {default_queue_policy: %s}\n" % policy)
    with Server(repository) as server, futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.infer, "m", echo(1, parameters={"timeout": 100_000}))
        wait_until(lambda: in_flight(server) == 1)
        second = server.infer("m", echo(2, parameters={"timeout": 50_000}))
        assert first.result().status_code == 200  # it did not queue; that it ran longer than its timeout doesn't matter
        assert second.status_code == status, second.text


def test_batches_count_rows_and_never_exceed_the_maximum(repository):
    write_fake(repository, "m", "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] copy X\noutput = ROWS INT32 [-1] rows\nbase_us = 5000\n",
               config="max_batch_size: 8\n")
    with Server(repository) as server:
        def one(i):
            rows = 1 + i % 5
            r = server.infer("m", echo(*[100 * i + k for k in range(rows)]))
            assert r.status_code == 200, r.text
            assert data(r) == [100 * i + k for k in range(rows)]  # each client gets its own rows, in order
            return max(data(r, "ROWS"))
        with futures.ThreadPoolExecutor(24) as pool:
            sizes = list(pool.map(one, range(200)))
        assert max(sizes) <= 8
        assert max(sizes) > 5  # requests were really batched
        assert server.infer("m", echo(*range(9))).status_code == 400
        stats = requests.get(server.url + "/v2/models/m/stats").json()["model_stats"][0]
        assert stats["execution_count"] < stats["inference_count"]
        assert max(b["batch_size"] for b in stats["batch_stats"]) <= 8


def test_one_poisoned_request_fails_alone(repository):
    write_fake(repository, "m", ECHO + "base_us = 10000\npoison = 666\n", config="max_batch_size: 16\n")
    with Server(repository) as server:
        with futures.ThreadPoolExecutor(16) as pool:
            values = [666 if i % 10 == 5 else i for i in range(100)]
            replies = list(pool.map(lambda v: server.infer("m", echo(v)), values))
        for v, r in zip(values, replies):
            if v == 666:
                assert r.status_code == 400
            else:
                assert r.status_code == 200 and data(r) == [v]


def test_urgent_priority_overtakes_in_the_queue(repository):
    write_fake(repository, "m", ECHO + "base_us = 200000\n",
               config="max_batch_size: 1\ndynamic_batching: {priority_levels: 2, default_priority_level: 2}\n")
    with Server(repository) as server:
        order = []
        lock = threading.Lock()

        def send(value, priority):
            r = server.infer("m", echo(value, parameters={"priority": priority}))
            assert r.status_code == 200
            with lock:
                order.append(value)
        threads = [threading.Thread(target=send, args=(i, 2)) for i in range(5)]
        for t in threads:
            t.start()
            time.sleep(0.01)
        urgent = threading.Thread(target=send, args=(99, 1))
        urgent.start()
        for t in [*threads, urgent]:
            t.join()
        assert order.index(99) <= 2
        assert server.infer("m", echo(1, parameters={"priority": 3})).status_code == 400


def test_hung_instance_is_not_ready_and_its_queue_is_answered(repository):
    write_fake(repository, "m", ECHO + "hang = 13\nhang_ms = 3000\ncancellable = false\n", config="max_batch_size: 1\n")
    write_fake(repository, "other", ECHO)
    with Server(repository, args=["--scheduler.hang_timeout=500ms"]) as server:
        with futures.ThreadPoolExecutor() as pool:
            hung = pool.submit(server.infer, "m", echo(13))
            wait_until(lambda: in_flight(server) == 1)
            queued = pool.submit(server.infer, "m", echo(1))
            wait_until(lambda: requests.get(server.url + "/v2/health/ready").status_code == 503)
            assert requests.get(server.url + "/v2/health/live").status_code == 200
            assert queued.result(2).status_code == 503
            assert server.infer("m", echo(2)).status_code == 503
            assert server.infer("other", echo(5)).status_code == 200
            assert requests.get(server.url + "/v2/models/m/ready").status_code == 503
            hung.result(5)
        wait_until(lambda: requests.get(server.url + "/v2/health/ready").status_code == 200, what="recovers when the run returns")
        assert server.infer("m", echo(3)).status_code == 200


def test_health_answers_while_everything_is_busy(slow):
    stop = time.monotonic() + 1.0
    with futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(slow.infer, "slow", echo(i), headers={"x-inferd-timeout-ms": "900"}) for i in range(8)]
        times = []
        session = requests.Session()
        while time.monotonic() < stop:
            start = time.monotonic()
            assert session.get(slow.url + "/v2/health/ready").status_code == 200
            times.append(time.monotonic() - start)
        for j in jobs:
            j.result()
    assert sorted(times)[len(times) // 2] < 0.1
