"""footprint.py: what inferd costs when it does nothing: memory without a model, per idle connection, and time from start to ready.

Budgets (DESIGN 8): <= 16 MiB RSS without a model; <= 8 KiB a kept-alive connection (10,000 of them); ready <= 100 ms after the start with
a small model.
"""
import resource
import socket
import tempfile
import urllib.request

from common import *

PORT, CONNECTIONS = 18800, 10_000


def start_seconds(repository):
    command = [BINARY, "serve", repository, f"--http.listen=127.0.0.1:{PORT}", "--grpc.listen=", f"--metrics.listen=127.0.0.1:{PORT + 2}", "--log.level=warn"]
    start = time.monotonic()
    with Process(command):
        while True:
            try:
                if urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/health/ready", timeout=5).status == 200:
                    return time.monotonic() - start
            except OSError:
                time.sleep(0.001)


with tempfile.TemporaryDirectory() as repository:
    with Process([BINARY, "serve", repository, f"--http.listen=127.0.0.1:{PORT}", "--grpc.listen=", f"--metrics.listen=127.0.0.1:{PORT + 2}"],
                 f"http://127.0.0.1:{PORT}/v2/health/live") as server:
        time.sleep(1)
        report("footprint RSS without a model, MiB", server.rss_bytes() / 2**20, 16, "at most")

resource.setrlimit(resource.RLIMIT_NOFILE, (min(CONNECTIONS + 2500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
with tempfile.TemporaryDirectory() as repository:
    fake_model(repository, "small", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    with inferd(repository, PORT, f"--limits.max_connections={CONNECTIONS + 100}", core=None) as server:
        time.sleep(1)
        request = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        sockets, before = [], server.rss_bytes()
        for _ in range(CONNECTIONS):
            s = socket.create_connection(("127.0.0.1", PORT))
            s.sendall(request)
            sockets.append(s)
            s.recv(4096)
        time.sleep(1)
        each = (server.rss_bytes() - before) / CONNECTIONS
        report("footprint bytes a kept-alive connection", each, 8192, "at most", f"{CONNECTIONS} connections, each had one answer")
        for s in sockets:
            s.close()
    starts = [start_seconds(repository) for _ in range(7)]
    report("footprint start to ready, fake model, ms", statistics.median(starts) * 1e3, 100, "at most")

model = DEMO / "voice_activity"
if model.exists():
    report("footprint start to ready, voice_activity (ONNX, 2 MiB), ms", statistics.median(start_seconds(str(model)) for _ in range(5)) * 1e3,
           100, "at most")
