"""redis_server.py: a real Redis on a free port, for tests: started, killed, stopped and asked. Skips where there is none.

Debian's redis-tools brings the server's program under the name of one of its tools and starts no service.
"""
import os
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time

import pytest

PROGRAM = "/usr/bin/redis-check-rdb"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    def __init__(self, *args, port=None):
        if not os.path.exists(PROGRAM):
            pytest.skip("redis-tools is not installed: ./dev deps test")
        self.folder = tempfile.TemporaryDirectory(prefix="inferd-redis-")
        self.port, self.args = port or free_port(), args
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command(), executable=PROGRAM, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "redis does not listen"
                time.sleep(0.02)

    def command(self):
        return ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.folder.name,
                *self.args]

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def call(self, *args):
        """One command; replies as text, integers, lists."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as s:
            f = s.makefile("rwb")
            f.write(b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in (str(x).encode() for x in args)))
            f.flush()
            return self._reply(f)

    def _reply(self, f):
        line = f.readline().rstrip(b"\r\n")
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self._reply(f) for _ in range(int(rest))]
        if kind == b"$":
            if int(rest) < 0:
                return None
            return f.read(int(rest) + 2)[:-2].decode("latin1")
        return int(rest) if kind == b":" else rest.decode()

    def hash(self, key):
        flat = self.call("HGETALL", key)
        return dict(zip(flat[::2], flat[1::2]))

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.go_on()
        self.kill()
        self.folder.cleanup()


class Sentinel(Redis):
    """One that watches `master` under the name "mymaster"."""

    def __init__(self, master):
        self.master = master
        super().__init__()

    def command(self):
        config = f"{self.folder.name}/sentinel.conf"
        with open(config, "w") as f:
            f.write(f"port {self.port}\nbind 127.0.0.1\ndir {self.folder.name}\nsentinel monitor mymaster 127.0.0.1 {self.master.port} 1\n"
                    "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n")
        return ["redis-sentinel", config]

    def names(self):
        """The master's port."""
        return int(self.call("SENTINEL", "get-master-addr-by-name", "mymaster")[1])


class Far(socketserver.ThreadingTCPServer):
    """A way to a port that takes `delay` seconds each way; may be changed while in use."""
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port, delay):
        self.target, self.delay = port, delay
        super().__init__(("127.0.0.1", 0), None)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def finish_request(self, request, address):
        with socket.create_connection(("127.0.0.1", self.target)) as there:
            request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self.pump, args=(there, request), daemon=True)
            back.start()
            self.pump(request, there)
            back.join()

    def pump(self, a, b):
        try:
            while data := a.recv(65536):
                time.sleep(self.delay)
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
