"""test_hostile_slow.py: many slow clients at once, and many unfinished TLS handshakes: the server lives, its memory stays, good clients are served.

The slow ones are slowhttptest's: heads that never end (slowloris), bodies that never end, readers with a tiny window, and range floods. One such client
at a time, with its exact answer, is in test_hostile_http.py and test_http2_hostile.py.
"""
import os
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest
import requests

from certificates import Authority
from inferd_server import SIMPLE, Server, write_fake
from raw_socket import address
from test_tls import start

CONNECTIONS = 150
# What an unfinished handshake may hold. The thread sanitizer resides beside what is touched: two bytes of shadow for each, and some for its locks.
HANDSHAKE_BYTES = (3 if os.environ.get("INFERD_BUILD") == "tsan" else 1) * (160 << 10)
ATTACKS = {
    "slowloris": ["-H", "-i", "1"],
    "slow body": ["-B", "-i", "1", "-s", "8192", "-t", "POST"],
    "slow read": ["-X", "-n", "2", "-z", "16", "-w", "64", "-y", "128", "-k", "3"],
    "ranges": ["-R", "-a", "1", "-b", "100"],
}


@pytest.mark.skipif(not shutil.which("slowhttptest"), reason="needs slowhttptest")
def test_slowhttptest(tmp_path):
    write_fake(tmp_path, "simple", SIMPLE)
    with Server(tmp_path, args=["--limits.header_timeout=1s", "--limits.body_timeout=1s", "--limits.write_timeout=1s", "--limits.min_body_rate=10KiB"]) as s:
        for _ in range(20):
            assert requests.get(s.url + "/v2").status_code == 200
        before = s.rss_bytes()
        attacks = {}
        for name, flags in ATTACKS.items():
            target = "/v2/models/simple/infer" if name == "slow body" else "/v2"
            attacks[name] = subprocess.Popen(["slowhttptest", *flags, "-c", str(CONNECTIONS), "-r", str(CONNECTIONS), "-l", "4", "-p", "3", "-u", s.url + target],
                                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        peak, served = 0, 0
        while any(p.poll() is None for p in attacks.values()):
            began = time.monotonic()
            assert requests.get(s.url + "/v2", timeout=5).status_code == 200
            assert time.monotonic() - began < 2
            peak, served = max(peak, s.rss_bytes()), served + 1
            time.sleep(0.01)
        assert served > 20
        assert peak - before < (len(ATTACKS) * CONNECTIONS * 64 << 10), (before, peak)  # 64 KiB a connection; a sanitizer's shadow included
        for name, process in attacks.items():
            report = re.sub(r"\x1b\[[0-9;]*m", "", process.stdout.read())
            assert re.findall(r"service available:\s+(\w+)", report)[-1] == "YES", report
            if name in ("slowloris", "slow body"):  # all were cut before the attack's end
                assert "No open connections left" in report, report
        s.wait_metric("inferd_http_limit_total", lambda n: n >= CONNECTIONS, limit="header_time")
        s.wait_metric("inferd_http_limit_total", lambda n: n >= CONNECTIONS, limit="body_time")
        s.alive()


def test_unfinished_handshakes(tmp_path):
    """Hellos that nothing follows, halves of hellos, and silence: cut by the handshake's time; who finishes is served meanwhile."""
    models = tmp_path / "models"
    write_fake(models, "simple", SIMPLE)
    authority = Authority(tmp_path / "ca")
    with start(models, [authority.issue("a", "DNS:a.test,DNS:localhost")], "--tls.handshake_timeout=1s", "--limits.max_handshakes_per_address=0",
               "--limits.max_connections_per_address=0") as s:
        context = ssl.create_default_context(cafile=str(authority.ca))
        out = ssl.MemoryBIO()
        hello = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="a.test")
        with pytest.raises(ssl.SSLWantReadError):
            hello.do_handshake()
        hello = out.read()
        before, flood = s.rss_bytes(), []
        for i in range(300):
            c = socket.create_connection(address(s))
            c.sendall([hello, hello[:len(hello) // 2], b"\x16\x03\x01\x02", b""][i % 4])
            flood.append(c)
        with context.wrap_socket(socket.create_connection(address(s)), server_hostname="a.test") as good:
            good.sendall(b"GET /v2 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
            assert good.recv(100).startswith(b"HTTP/1.1 200")
        assert s.rss_bytes() - before < 300 * HANDSHAKE_BYTES
        for c in flood:
            c.settimeout(10)
            try:
                while c.recv(65536):
                    pass
            except ConnectionResetError:
                pass
            c.close()
        s.wait_metric("inferd_tls_handshakes_total", lambda n: n >= 290, outcome="timeout")
