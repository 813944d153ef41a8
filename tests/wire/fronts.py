"""fronts.py: the real nginx, HAProxy and Envoy, started from a configuration that a test gives, as test_fronts.py and test_smuggling.py use them."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("nginx", "haproxy", "envoy")


def program(name):
    """Where ./dev deps put it. It is there, or the test fails: none of these tests is skipped."""
    found = shutil.which(name) or next((str(p) for p in (ROOT / ".deps/bin" / name, pathlib.Path(sys.prefix) / "bin" / name) if p.exists()), None)
    assert found, f"{name} is missing: run ./dev deps --test"
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wrap_nginx(folder, http):
    """What nginx wants around an http block's content, with every path in `folder`."""
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temp = " ".join(f"{kind}_temp_path {folder};" for kind in kinds)
    user = "user root;" if os.getuid() == 0 else ""
    return (f"{user} worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; events {{ worker_connections 512; }}\n"
            f"http {{ access_log off; {temp}\n{http}\n}}\n")


class Front:
    """A running front. Use as a context manager. Its own check of the configuration comes first, and has to pass."""

    def __init__(self, name, text, folder, ports):
        self.name, self.folder, self.ports = name, pathlib.Path(folder), ports
        path = self.folder / f"{name}.{'yaml' if name == 'envoy' else 'conf'}"
        path.write_text(wrap_nginx(folder, text) if name == "nginx" else text)
        checks = {"nginx": ["-t", "-c", path, "-e", self.folder / "nginx.log"], "haproxy": ["-c", "-f", path],
                  "envoy": ["--mode", "validate", "-c", path, "-l", "warning"]}
        runs = {"nginx": ["-c", path, "-e", self.folder / "nginx.log"], "haproxy": ["-db", "-f", path],
                "envoy": ["-c", path, "-l", "warning", "--concurrency", "1", "--use-dynamic-base-id", "--disable-hot-restart"]}
        command = program(name)
        checked = subprocess.run([command, *map(str, checks[name])], capture_output=True, text=True)
        self.check_output = checked.stdout + checked.stderr
        assert checked.returncode == 0, self.check_output
        self.log = open(self.folder / f"{name}.out", "w+")
        self.process = subprocess.Popen([command, *map(str, runs[name])], stdout=self.log, stderr=self.log)
        for port in ports:
            self._wait(port)

    def _wait(self, port):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.said()
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"{self.name} does not listen: " + self.said())

    def said(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
