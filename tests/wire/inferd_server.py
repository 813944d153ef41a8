"""inferd_server.py: start a real inferd on free ports, talk to it, and see that it ends well.

Used by every wire test. A server that dies, or that does not exit 0 on SIGTERM, fails the test that ran it, so a crash or a
sanitizer's finding can't hide behind a right answer.
"""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("INFERD_BINARY", str(ROOT / "build/debug/inferd"))
START_SECONDS = 60
STOP_SECONDS = 180 if os.environ.get("INFERD_BUILD") in ("asan", "tsan", "ubsan") else 90  # hundreds of real models are unloaded slowly there

SIMPLE = """
input   = INPUT0 INT32 [-1,16]
input   = INPUT1 INT32 [-1,16]
output  = OUTPUT0 INT32 [-1,16] add INPUT0 INPUT1
output  = OUTPUT1 INT32 [-1,16] sub INPUT0 INPUT1
"""


def wait_until(condition, seconds=20, what=""):
    """Poll until `condition()` is true, and return what it said. An answer may reach its client before the log record, the counter or the
    state that goes with it is there, so a test waits for these instead of asking once."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"did not happen in {seconds} s: {what}"
        time.sleep(0.01)
    return value


def wait_equal(read, expected, seconds=20):
    """Poll until `read()` is `expected`; a failure shows both."""
    deadline = time.monotonic() + seconds
    while (found := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found == expected


def write_fake(repository, name, text, version="1", config=None, config_name="model.yaml"):
    """Lay out one version of a fake model; returns its folder."""
    folder = pathlib.Path(repository) / name / version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.fake").write_text(text)
    if config is not None:
        (folder.parent / config_name).write_text(config)
    return folder


class Server:
    """A running inferd. Use as a context manager. `prefix` is a command that execs the rest (prlimit, taskset)."""

    def __init__(self, *paths, args=(), env=None, wait="ready", prefix=()):
        self.log_lines = []
        self.addresses = {}
        self.lock = threading.Condition()
        self.scratch = tempfile.TemporaryDirectory(prefix="inferd-test-")
        command = [*prefix, BINARY, "serve", *map(str, paths), "--http.listen=127.0.0.1:0", "--grpc.listen=127.0.0.1:0", "--metrics.listen=127.0.0.1:0",
                   "--admin.listen=127.0.0.1:0", "--log.format=json", "--shutdown.grace=0s", f"--state_dir={self.scratch.name}",
                   *args]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                                        env={**os.environ, **(env or {})})
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        try:
            self.wait_for_address("admin")
            if wait == "ready":
                self.wait_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _read(self):
        for line in self.process.stderr:
            with self.lock:
                self.log_lines.append(line.rstrip("\n"))
                try:
                    record = json.loads(line)
                    if record.get("event") == "listening":
                        self.addresses[record["name"]] = record["address"]
                except ValueError:
                    pass
                self.lock.notify_all()
        with self.lock:
            self.lock.notify_all()

    def wait_for_address(self, name):
        deadline = time.monotonic() + START_SECONDS
        with self.lock:
            while name not in self.addresses:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError("the server did not start listening:\n" + self.log())
                self.lock.wait(0.2)

    def wait_ready(self, seconds=START_SECONDS):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process.poll() is None, "the server ended:\n" + self.log()
            if requests.get(self.url + "/v2/health/ready").status_code == 200:
                return
            time.sleep(0.02)
        raise AssertionError("not ready in time:\n" + requests.get(self.url + "/v2/health/ready?verbose").text + self.log())

    @property
    def address(self):
        return self.addresses["http"]

    @property
    def url(self):
        return "http://" + self.addresses["http"]

    @property
    def grpc_address(self):
        """The port of its own; the HTTP port takes gRPC too."""
        return self.addresses["grpc"]

    @property
    def metrics_url(self):
        return "http://" + self.addresses["metrics"]

    @property
    def admin_url(self):
        return "http://" + self.addresses["admin"]

    def log(self):
        return "\n".join(self.log_lines[-60:])

    def records(self, event):
        """Log records of one event, parsed."""
        found = []
        for line in list(self.log_lines):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record.get("event") == event:
                found.append(record)
        return found

    def wait_records(self, event, n=1, **fields):
        """The first `n` or more records of `event` with these fields."""
        def found():
            have = [r for r in self.records(event) if fields.items() <= r.items()]
            return have if len(have) >= n else None

        return wait_until(found, what=f"{n} records of {event} with {fields}")

    def infer(self, model, body, version=None, headers=None, **kw):
        path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "") + "/infer"
        return requests.post(self.url + path, json=body, headers=headers, **kw)

    def metrics(self):
        """{(name, frozenset(labels.items())): value} of one scrape."""
        from prometheus_client.parser import text_string_to_metric_families

        text = requests.get(self.metrics_url + "/metrics").text
        return {(s.name, frozenset(s.labels.items())): s.value
                for family in text_string_to_metric_families(text) for s in family.samples}

    def metric(self, name, **labels):
        """Sum over all series of `name` that carry these labels."""
        want = set(labels.items())
        return sum(v for (n, have), v in self.metrics().items() if n == name and want <= have)

    def wait_metric(self, name, expected, **labels):
        """Poll until the sum of `metric()` is `expected`, or what the function `expected` accepts."""
        if callable(expected):
            return wait_until(lambda: expected(self.metric(name, **labels)), what=f"{name} {labels}")
        return wait_equal(lambda: self.metric(name, **labels), expected)

    def alive(self):
        """The process runs and answers: to be called after every hostile request."""
        assert self.process.poll() is None, "the server ended:\n" + self.log()
        assert requests.get(self.url + "/v2/health/live", timeout=10).status_code == 200

    def rss_bytes(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def stop(self, expect=0):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError("the server did not stop within %d s:\n%s" % (STOP_SECONDS, self.log()))
        self.reader.join(5)
        self.scratch.cleanup()
        if expect is not None:
            assert self.process.returncode == expect, f"exit status {self.process.returncode}:\n" + self.log()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop(expect=0 if kind is None else None)
