"""test_operate.py: what an operator sees of a running server: metrics that Prometheus accepts, log rotation, systemd's notify protocol,
the crash report, and a log that nobody reads."""
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest
import requests

from inferd_server import BINARY, SIMPLE, Server, wait_until, write_fake

SANITIZED = os.environ.get("INFERD_BUILD") in ("asan", "tsan", "ubsan")
BODY = {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for n in ("INPUT0", "INPUT1")]}


@pytest.fixture
def models(repository):
    write_fake(repository, "simple", SIMPLE)
    return repository


def test_prometheus_own_checker_accepts_the_metrics(models):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    with Server(models) as server:
        for i in range(5):
            server.infer("simple", BODY if i else {"inputs": []})
        reply = requests.get(server.metrics_url + "/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        check = subprocess.run(["promtool", "check", "metrics"], input=reply.text, capture_output=True, text=True)
        assert check.returncode == 0 and not check.stderr.strip(), check.stdout + check.stderr


def test_process_metrics_agree_with_proc(models):
    with Server(models) as server:
        for _ in range(50):
            server.infer("simple", BODY)
        m = server.metrics()
        get = lambda name: m[(name, frozenset())]  # noqa: E731
        assert abs(get("process_resident_memory_bytes") - server.rss_bytes()) < 32 << 20
        assert get("process_open_fds") == pytest.approx(len(os.listdir(f"/proc/{server.process.pid}/fd")), abs=4)
        assert get("process_threads") == pytest.approx(len(os.listdir(f"/proc/{server.process.pid}/task")), abs=2)
        assert abs(get("process_start_time_seconds") - time.time()) < 120
        fields = open(f"/proc/{server.process.pid}/stat").read().rsplit(")", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        assert get("process_cpu_seconds_total") == pytest.approx(cpu, abs=0.5)
        assert get("inferd_warnings_total") == 0
        assert any(name == "inferd_build_info" and value == 1 for (name, _), value in m.items())


def test_access_log_lines_and_rotation(models, tmp_path):
    path, rotated = tmp_path / "access.log", tmp_path / "access.log.1"
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with Server(models, args=[f"--access_log.file={path}", "--access_log.format=json"]) as server:
        server.infer("simple", BODY, headers={"x-request-id": "first-1", "traceparent": trace})
        lines = wait_until(lambda: [r for r in map(json.loads, path.read_text().splitlines()) if r.get("id") == "first-1"])
        assert len(lines) == 1
        line = lines[0]
        assert line["status"] == 200 and line["method"] == "POST" and line["path"] == "/v2/models/simple/infer"
        assert line["model"] == "simple" and line["version"] == "1" and line["bytes_out"] > 0
        assert line["total_us"] >= line["queue_us"] + line["compute_us"]
        assert line["traceparent"].split("-")[1] == trace.split("-")[1]
        path.rename(rotated)
        server.process.send_signal(signal.SIGUSR1)
        wait_until(path.exists)
        server.infer("simple", BODY, headers={"x-request-id": "second-2"})
        wait_until(lambda: "second-2" in path.read_text())
        assert "second-2" not in rotated.read_text()


def test_a_forged_id_stays_in_its_line(models, tmp_path):
    path = tmp_path / "access.log"
    with Server(models, args=[f"--access_log.file={path}", "--access_log.format=text"]) as server:
        requests.get(server.url + "/v2/models/%0a%1b[31mfake/ready")
        wait_until(lambda: "ready" in path.read_text())
        text = path.read_text()
        assert "\x1b" not in text
        for line in text.splitlines():
            assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z \d{3} ", line)


def test_an_access_log_that_nobody_reads(models, tmp_path):
    """The log is a pipe whose reader sleeps: requests are answered, drops are counted, shutdown is not held up."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with Server(models, args=[f"--access_log.file={pipe}", "--access_log.queue=64"]) as server:
        session = requests.Session()

        def dropped():
            for _ in range(200):
                assert session.post(server.url + "/v2/models/simple/infer", json=BODY, timeout=10).status_code == 200
            return server.metric("inferd_access_log_dropped_total") > 0

        wait_until(dropped, 60)
        server.alive()
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 10
    os.close(reader)


def test_systemd_is_told(models, tmp_path):
    path = str(tmp_path / "notify")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)
    listener.settimeout(20)
    said = []

    def until(word):
        while not any(word in s for s in said):
            said.append(listener.recv(4096).decode())

    with Server(models, env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000000"}) as server:
        until("READY=1")
        until("WATCHDOG=1")
        server.process.send_signal(signal.SIGHUP)
        until("RELOADING=1")
        assert any("MONOTONIC_USEC=" in s for s in said)
        said.clear()
        until("READY=1")
        server.process.send_signal(signal.SIGTERM)
        until("STOPPING=1")
        server.process.wait(20)
    listener.close()


def crash(server):
    """SIGSEGV to the main thread: a signal to the process may reach any of its threads, as idle ones of the runtime that have no frame of ours."""
    tgkill = 234
    assert ctypes.CDLL(None, use_errno=True).syscall(tgkill, server.process.pid, server.process.pid, signal.SIGSEGV) == 0
    server.process.wait(20)
    server.reader.join(5)


def test_crash_report(models):
    """SIGSEGV: a report on stderr and in state_dir, and the signal's own exit status."""
    server = Server(models)
    server.infer("simple", BODY)
    crash(server)
    assert server.process.returncode == -signal.SIGSEGV
    text = "\n".join(server.log_lines)
    assert "inferd: crashed by SIGSEGV" in text
    files = [f for f in os.listdir(server.scratch.name) if f.startswith("crash-")]
    assert len(files) == 1 and os.stat(os.path.join(server.scratch.name, files[0])).st_mode & 0o777 == 0o600
    report = open(os.path.join(server.scratch.name, files[0])).read()
    assert re.search(r"^version \S+, build id [0-9a-f]{40}$", report, re.M)
    assert re.search(r"^#0 0x[0-9a-f]+ ", report, re.M)
    assert re.search(r"^#\d+ 0x[0-9a-f]+ inferd\+0x[0-9a-f]+ \(main\+0x[0-9a-f]+\)$", report, re.M)
    assert report.strip() in text
    server.scratch.cleanup()


@pytest.mark.parametrize("variables, where", [
    ({"STATE_DIRECTORY": "{}/one:{}/two", "XDG_STATE_HOME": "{}/xdg"}, "one"),
    ({"XDG_STATE_HOME": "{}/xdg", "HOME": "{}/home"}, "xdg/inferd"),
    ({"HOME": "{}/home"}, "home/.local/state/inferd"),
    ({"HOME": "/proc/none"}, None),
])
def test_crash_report_without_state_dir(models, tmp_path, variables, where):
    """The report still goes to a file: where systemd or the XDG base directory specification says; else to stderr alone."""
    unset = {"STATE_DIRECTORY": "", "XDG_STATE_HOME": ""}
    env = {**unset, **{k: v.replace("{}", str(tmp_path)) for k, v in variables.items()}}
    server = Server(models, args=["--state_dir="], env=env)
    crash(server)
    found = [p for p in tmp_path.rglob("crash-*.txt")]
    assert [str(p.parent.relative_to(tmp_path)) for p in found] == ([where] if where else [])
    assert "inferd: crashed by SIGSEGV" in "\n".join(server.log_lines)
    assert bool(server.records("crash_folder_unusable")) == (where is None)
    server.scratch.cleanup()


def test_reloads_keep_nothing(models, tmp_path):
    """A thousand reloads of a configuration file: the configurations before are freed (they are some kilobytes each)."""
    config = tmp_path / "inferd.yaml"
    config.write_text("limits:\n  max_pipeline: 16\n")
    with Server(models, args=[f"--config={config}"]) as server:
        reload = lambda: requests.post(server.admin_url + "/admin/reload").raise_for_status()
        for _ in range(100):
            reload()
        before = server.rss_bytes()
        for i in range(1000):
            if i % 100 == 0:
                config.write_text(f"limits:\n  max_pipeline: {16 + i // 100 % 2}\n")
            reload()
        if not SANITIZED:  # those keep what is freed; the leak checker at their end sees what isn't
            assert server.rss_bytes() - before < 1 << 20, server.rss_bytes() - before


def test_stderr_that_nobody_reads(models):
    """The server's own log goes to a pipe that is full from the start: it starts, serves and stops all the same."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.set_blocking(write, True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([BINARY, "serve", str(models), f"--http.listen=127.0.0.1:{port}", "--grpc.listen=", "--metrics.listen=127.0.0.1:0",
                               "--admin.listen=127.0.0.1:0", "--shutdown.grace=0s", "--log.level=debug"],
                              stderr=write, stdout=subprocess.DEVNULL)

    def ready():
        try:
            return requests.get(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    try:
        wait_until(ready)
        for _ in range(20):
            assert requests.post(f"http://127.0.0.1:{port}/v2/models/simple/infer", json=BODY, timeout=10).status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        if server.poll() is None:
            server.kill()
            server.wait()
        os.close(read)
        os.close(write)
