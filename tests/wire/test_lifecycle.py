"""test_lifecycle.py: loading, reloading, versions and stopping, seen from outside: rows C1 to C5, C12, C27 to C29 of the complaints."""
import concurrent.futures as futures
import json
import os
import resource
import signal
import socket
import threading
import time

import pytest
import requests

from inferd_server import Server, wait_equal, wait_until, write_fake

FILL = "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] fill {}\n"
BODY = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "INT32", "data": [0]}]}
POLL = ["--repository.mode=poll", "--repository.poll_interval=100ms", "--repository.poll_settle=200ms"]


def answer(server, model, version=None):
    r = server.infer(model, BODY, version)
    return r.json()["outputs"][0]["data"][0] if r.status_code == 200 else r.status_code


def stats(server, model):
    return requests.get(f"{server.url}/v2/models/{model}/stats").json()["model_stats"][0]


class Load:
    """Requests without a pause on some threads; every answer that isn't 200 is a failure."""

    def __init__(self, server, model, threads=4):
        self.failures, self.answers, self.stopping = [], set(), False
        self.threads = [threading.Thread(target=self._run, args=(server, model)) for _ in range(threads)]

    def _run(self, server, model):
        session = requests.Session()
        url = f"{server.url}/v2/models/{model}/infer"
        while not self.stopping:
            r = session.post(url, json=BODY)
            if r.status_code != 200:
                self.failures.append(r.text)
            else:
                self.answers.add(r.json()["outputs"][0]["data"][0])

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        for t in self.threads:
            t.join()


def test_reload_under_load_loses_nothing(repository):
    write_fake(repository, "m", FILL.format(1) + "load_delay_ms = 100\n")
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=m"]) as server:
        with Load(server, "m") as load:
            wait_until(lambda: 1 in load.answers)
            for value in range(2, 7):
                write_fake(repository, "m", FILL.format(value) + "load_delay_ms = 100\n")
                r = requests.post(server.url + "/v2/repository/models/m/load")
                assert r.status_code == 200, r.text
                assert answer(server, "m") == value  # a 200 means that the new one serves
                wait_until(lambda: value in load.answers)
        assert load.failures == []
        assert load.answers == {1, 2, 3, 4, 5, 6}


def test_failed_reload_keeps_the_old_one(repository):
    write_fake(repository, "m", FILL.format(1))
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=m"]) as server:
        write_fake(repository, "m", FILL.format(2) + "load_fail = no such weights\n")
        r = requests.post(server.url + "/v2/repository/models/m/load")
        assert r.status_code >= 400 and "no such weights" in r.json()["error"]
        assert answer(server, "m") == 1
        assert requests.get(server.url + "/v2/health/ready").status_code == 200


def test_unload_answers_when_it_is_done(repository):
    write_fake(repository, "m", FILL.format(1) + "base_us = 300000\n")
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=m"]) as server:
        with futures.ThreadPoolExecutor() as pool:
            running = pool.submit(answer, server, "m")
            wait_until(lambda: requests.get(server.admin_url + "/admin/status").json()["in_flight"] == 1)
            assert requests.post(server.url + "/v2/repository/models/m/unload").status_code == 200
            assert running.result(1) == 1  # what ran was finished first
        assert answer(server, "m") in (404, 503)
        assert requests.post(server.url + "/v2/repository/models/missing/unload").status_code == 404
        index = requests.post(server.url + "/v2/repository/index").json()
        assert [m["state"] for m in index if m["name"] == "m"] == ["UNAVAILABLE"]


def test_poll_takes_up_new_changed_and_removed_models(repository):
    write_fake(repository, "m", FILL.format(1))
    with Server(repository, args=POLL) as server:
        with Load(server, "m", 2) as load:
            write_fake(repository, "m", FILL.format(2), version="2")
            wait_until(lambda: answer(server, "m") == 2, what="the new version serves")
            write_fake(repository, "n", FILL.format(9))
            wait_until(lambda: answer(server, "n") == 9, what="the new model serves")
        assert load.failures == [] and load.answers == {1, 2}
        for f in (repository / "n").rglob("*"):
            if f.is_file():
                f.unlink()
        for d in sorted((repository / "n").rglob("*"), reverse=True):
            d.rmdir()
        (repository / "n").rmdir()
        wait_until(lambda: answer(server, "n") in (404, 503), what="the removed model is gone")


def test_partial_copy_is_never_loaded(repository):
    write_fake(repository, "m", FILL.format(1))
    with Server(repository, args=[*POLL, "--repository.poll_settle=500ms"]) as server:
        (repository / "m" / "2").mkdir()
        text = FILL.format(2)
        with open(repository / "m" / "2" / "model.fake", "w") as f:  # a slow copy: a valid file is there only at the end
            for i in range(0, len(text), 6):
                f.write(text[i:i + 6])
                f.flush()
                time.sleep(0.1)
        wait_until(lambda: answer(server, "m") == 2)
        assert server.records("model_failed") == []


def test_one_bad_model_never_touches_others(repository):
    write_fake(repository, "good", FILL.format(1))
    write_fake(repository, "bad", "input = nonsense\n")
    (repository / "worse" / "1").mkdir(parents=True)
    (repository / "worse" / "1" / "model.onnx").write_bytes(b"\x08\x07garbage")
    with Server(repository, wait=None) as server:
        wait_until(lambda: answer(server, "good") == 1)
        rows = {m["name"]: m for m in requests.post(server.url + "/v2/repository/index").json()}
        wait_until(lambda: all(requests.get(f"{server.url}/v2/models/{m}/ready").status_code == 503 for m in ("bad", "worse")))
        assert rows["good"]["state"] == "READY"
        assert requests.get(server.url + "/v2/models/bad/ready").json()["error"]


def test_versions_semver_labels_and_policy(repository):
    for version, value in (("1", 1), ("2", 2), ("10", 10)):
        write_fake(repository, "numbers", FILL.format(value), version=version)
    (repository / "numbers" / "model.yaml").write_text("version_policy: {all: {}}\nlabels: {stable: 2, canary: 10}\n")
    for version, value in (("1.2.0", 120), ("1.10.0", 1100), ("1.10.0-rc.1", 1099), ("1.2.0+b7", 127)):
        write_fake(repository, "semver", FILL.format(value), version=version)
    (repository / "semver" / "model.yaml").write_text("version_policy: {all: {}}\n")
    write_fake(repository, "latest", FILL.format(1))
    write_fake(repository, "latest", FILL.format(7), version="7")
    with Server(repository) as server:
        assert answer(server, "numbers") == 2  # the stable label
        assert [answer(server, "numbers", v) for v in ("1", "2", "10", "stable", "canary")] == [1, 2, 10, 2, 10]
        assert answer(server, "numbers", "3") == 404 and answer(server, "numbers", "01") == 404 and answer(server, "numbers", "v1") == 404
        assert answer(server, "semver") == 1100
        assert answer(server, "semver", "1.10.0-rc.1") == 1099
        assert requests.get(server.url + "/v2/models/semver").json()["versions"] == ["1.2.0", "1.2.0+b7", "1.10.0-rc.1", "1.10.0"]
        assert answer(server, "semver", "1.2.0+b7") == 127
        assert answer(server, "latest") == 7 and answer(server, "latest", "1") == 404  # only the latest is served by default


def test_lone_model_file_and_folder(repository):
    folder = write_fake(repository, "m", FILL.format(3))
    with Server(folder / "model.fake") as server:
        names = [m["name"] for m in requests.post(server.url + "/v2/repository/index").json()]
        assert len(names) == 1 and answer(server, names[0]) == 3
    with Server(repository / "m") as server:
        assert answer(server, "m") == 3


def test_symlink_out_of_the_repository_is_refused(repository, tmp_path):
    outside = write_fake(tmp_path / "elsewhere", "m", FILL.format(1))
    (repository / "m" / "1").mkdir(parents=True)
    os.symlink(outside / "model.fake", repository / "m" / "1" / "model.fake")
    write_fake(repository, "ok", FILL.format(2))
    with Server(repository, wait=None) as server:
        wait_until(lambda: answer(server, "ok") == 2)
        assert answer(server, "m") in (404, 503)
    with Server(repository, args=["--repository.follow_symlinks=true"]) as server:
        assert answer(server, "m") == 1


def test_memory_is_checked_before_a_load(repository):
    write_fake(repository, "small", FILL.format(1))
    write_fake(repository, "huge", FILL.format(2) + "estimate_bytes = 8GiB\n")
    with Server(repository, args=["--repository.memory_limit=1GiB"], wait=None) as server:
        wait_until(lambda: answer(server, "small") == 1)
        wait_until(lambda: requests.get(server.url + "/v2/models/huge/ready").status_code == 503)
        rows = [m for m in requests.post(server.url + "/v2/repository/index").json() if m["name"] == "huge"]
        assert "GiB" in rows[0]["reason"] or "MiB" in rows[0]["reason"], rows


def test_load_does_not_disturb_another_model(repository):
    """C4. A load that sleeps and then warms up leaves the running model answering; the figure itself is measured in bench/."""
    write_fake(repository, "a", FILL.format(1))
    write_fake(repository, "b", FILL.format(2) + "load_delay_ms = 1000\n")
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=a"]) as server:
        with futures.ThreadPoolExecutor() as pool:
            loading = pool.submit(requests.post, server.url + "/v2/repository/models/b/load")
            n = 0
            while not loading.done():
                assert answer(server, "a") == 1
                n += 1
            assert loading.result().status_code == 200
        assert n > 50


def test_warm_up_comes_before_ready(repository):
    write_fake(repository, "m", FILL.format(1) + "base_us = 200000\n", config="max_batch_size: 4\nmodel_warmup:\n  - name: w\n    batch_size: 1\n"
               "    count: 2\n    inputs: {X: {data_type: TYPE_INT32, dims: [1], zero_data: true}}\n")
    with Server(repository, wait=None) as server:
        assert requests.get(server.url + "/v2/health/ready").status_code == 503
        server.wait_ready()
        assert answer(server, "m") == 1
        wait_equal(lambda: stats(server, "m")["inference_count"], 1)  # warm-up is not traffic


def test_response_cache_hits_on_the_whole_request_only(repository):
    write_fake(repository, "m", "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] copy X\noutput = Z INT32 [-1,1] copy X\n",
               config="response_cache: {enable: true}\n")
    with Server(repository) as server:
        def ask(value, **more):
            r = server.infer("m", {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "INT32", "data": [value]}], **more})
            return {o["name"]: o["data"] for o in r.json()["outputs"]}
        assert ask(1) == ask(1) == {"Y": [1], "Z": [1]}
        server.wait_metric("inferd_cache_hits_total", 1, model="m")
        assert ask(2) == {"Y": [2], "Z": [2]}
        assert ask(1, outputs=[{"name": "Z"}]) == {"Z": [1]}
        server.wait_metric("inferd_cache_hits_total", 1, model="m")
        wait_equal(lambda: [stats(server, "m")["inference_stats"][s]["count"] for s in ("cache_hit", "cache_miss")], [1, 3])


def test_two_hundred_load_and_unload_cycles_leave_memory_flat(repository):
    write_fake(repository, "m", FILL.format(1) + "memory_bytes = 4MiB\n")
    with Server(repository, args=["--repository.mode=explicit"]) as server:
        session, after_20 = requests.Session(), 0
        for cycle in range(200):
            assert session.post(server.url + "/v2/repository/models/m/load").status_code == 200
            r = session.post(server.url + "/v2/models/m/infer", json=BODY)
            assert r.status_code == 200, (cycle, r.text)
            assert session.post(server.url + "/v2/repository/models/m/unload").status_code == 200
            if cycle == 20:
                after_20 = server.rss_bytes()
        if "asan" not in os.environ.get("INFERD_BUILD", "") and "tsan" not in os.environ.get("INFERD_BUILD", ""):
            assert server.rss_bytes() <= after_20 * 1.02 + (1 << 20), (after_20, server.rss_bytes())


def test_stopping_has_phases_and_loses_nothing(repository):
    write_fake(repository, "m", FILL.format(1) + "base_us = 5000\n")
    with Server(repository, args=["--shutdown.grace=700ms"]) as server:
        with Load(server, "m", 2) as load:
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: requests.get(server.url + "/v2/health/ready").status_code == 503, 2)
            assert answer(server, "m") == 1  # still serving
            time.sleep(0.3)
            load.stopping = True
        assert load.failures == []
        assert server.process.wait(10) == 0


def test_query_flags_say_yes_or_no(repository):
    write_fake(repository, "m", FILL.format(1))
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=m"]) as server:
        ready = server.url + "/v2/health/ready"
        assert [set(requests.get(ready + q).json()) for q in ("?verbose", "?verbose=true", "?x=1&verbose=1")] == [{"ready", "phase", "models"}] * 3
        assert [set(requests.get(ready + q).json()) for q in ("", "?verbose=false", "?verbosely")] == [{"ready"}] * 3
        load = server.url + "/v2/repository/models/m/load"
        assert [requests.post(load + q).status_code for q in ("?wait=true", "?wait")] == [200, 200]
        r = requests.post(load + "?wait=no")
        assert r.status_code == 400 and "wait" in r.json()["error"]
        assert requests.post(load + "?wait=false").status_code == 202


def test_unload_waits_for_answers_that_are_still_being_read(repository):
    """Answers are sent from the engine's own memory: it may not be freed under a slow reader."""
    n = 6 << 20
    write_fake(repository, "m", "input = X INT32 [-1,-1]\noutput = Y INT32 [-1,-1] copy X\n")
    with Server(repository, args=["--repository.mode=explicit", "--repository.load=m"]) as server, futures.ThreadPoolExecutor() as pool:
        head = json.dumps({"inputs": [{"name": "X", "shape": [1, n], "datatype": "INT32", "parameters": {"binary_data_size": 4 * n}}],
                           "outputs": [{"name": "Y", "parameters": {"binary_data": True}}]}).encode()
        data = bytes(range(256)) * (4 * n // 256)
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.connect((server.address.split(":")[0], int(server.address.split(":")[1])))
        s.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\nInference-Header-Content-Length: %d\r\n"
                  b"Content-Length: %d\r\n\r\n" % (len(head), len(head) + len(data)) + head + data)
        assert s.recv(15) == b"HTTP/1.1 200 OK"  # the answer has begun, and most of it doesn't fit the sockets' buffers
        unload = pool.submit(requests.post, server.url + "/v2/repository/models/m/unload")
        wait_until(lambda: requests.get(server.url + "/v2/models/m/ready").status_code == 503)
        time.sleep(0.3)
        assert not unload.done()
        got = b""
        while chunk := s.recv(1 << 20):
            got += chunk
        assert got.endswith(data)
        assert unload.result(10).status_code == 200


def test_running_request_is_finished_while_draining(repository):
    write_fake(repository, "m", FILL.format(1) + "base_us = 600000\n")
    with Server(repository) as server:
        with futures.ThreadPoolExecutor() as pool:
            running = pool.submit(server.infer, "m", BODY)
            wait_until(lambda: requests.get(server.admin_url + "/admin/status").json()["in_flight"] == 1)
            server.process.send_signal(signal.SIGTERM)
            reply = running.result(5)
            assert reply.status_code == 200 and reply.headers["connection"] == "close"
        assert server.process.wait(5) == 0


def test_second_signal_forces(repository):
    write_fake(repository, "m", FILL.format(1) + "base_us = 20000000\ncancellable = false\n")
    server = Server(repository, args=["--shutdown.drain_timeout=60s"])
    s = socket.create_connection(server.address.split(":"))
    text = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"INT32","data":[0]}]}'
    s.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    wait_until(lambda: requests.get(server.admin_url + "/admin/status").json()["in_flight"] == 1)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(3) == 1
    s.close()


def test_config_reload_by_signal_and_by_admin_call(repository, tmp_path):
    write_fake(repository, "m", FILL.format(1))
    config = tmp_path / "inferd.yaml"
    config.write_text("limits:\n  max_body_bytes: 1MiB\n")
    with Server(repository, args=[f"--config={config}"]) as server:
        assert requests.post(server.url + "/v2/models/m/infer", data=b" " * 3000).status_code == 400
        config.write_text("limits:\n  max_body_bytes: 2KiB\ncompute:\n  threads: 1\n")
        r = requests.post(server.admin_url + "/admin/reload")
        assert r.status_code == 200
        assert r.json() == {"applied": ["limits.max_body_bytes"], "needs_restart": ["compute.threads"]}
        assert requests.post(server.url + "/v2/models/m/infer", data=b" " * 3000).status_code == 413
        config.write_text("limits:\n  max_body_bytes: 4KiB\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: requests.post(server.url + "/v2/models/m/infer", data=b" " * 3000).status_code == 400)
        config.write_text("limits:\n  max_body_byte: 4KiB\n")
        r = requests.post(server.admin_url + "/admin/reload")
        assert r.status_code == 400 and "max_body_bytes" in r.json()["error"]  # the nearest key is named
        assert answer(server, "m") == 1


def test_log_level_can_be_changed(repository):
    write_fake(repository, "m", FILL.format(1))
    with Server(repository) as server:
        assert requests.post(server.admin_url + "/admin/log-level", json={"level": "debug"}).status_code == 200
        assert requests.post(server.admin_url + "/admin/log-level", json={"level": "loud"}).status_code == 400


@pytest.mark.parametrize("arguments, words", [
    (["--http.listen=127.0.0.1:99999"], ["127.0.0.1:99999"]),
    (["--no.such.option=1"], ["no.such.option"]),
    (["--limits.max_headers=2"], ["limits.max_headers", "8"]),
    (["--http.listen=0.0.0.0:0"], ["insecure"]),
])
def test_bad_start_is_one_clear_sentence(repository, arguments, words):
    import subprocess

    from inferd_server import BINARY
    done = subprocess.run([BINARY, "serve", str(repository), *arguments], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert all(w in done.stderr for w in words), done.stderr


def test_load_without_free_descriptors_is_503_and_changes_nothing(repository):
    """Not 404: the model is there. Nothing is seen as changed or gone either, and the same request works when descriptors are back."""
    write_fake(repository, "first", FILL.format(1))
    write_fake(repository, "second", FILL.format(2))
    args = ["--repository.mode=explicit", "--repository.load=first"]
    with Server(repository, args=args) as server, requests.Session() as session:
        load = lambda model: session.post(f"{server.url}/v2/repository/models/{model}/load", timeout=30)
        assert session.get(server.url + "/v2/health/live").status_code == 200  # this connection is open before descriptors run out
        fds = set(map(int, os.listdir(f"/proc/{server.process.pid}/fd")))
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (min(set(range(max(fds) + 2)) - fds), hard))  # the next would be this one
        for model in "second", "first", "absent":
            refused = load(model)
            assert refused.status_code == 503 and "descriptors" in refused.json()["error"], refused.text
            assert str(repository) not in refused.text
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert answer(server, "first") == 1
        assert load("absent").status_code == 404
        assert load("second").status_code == 200
        assert answer(server, "second") == 2
