"""idle_connections.py: memory of a kept-alive connection that waits: 10,000 of them, each served once before.

Budget: DESIGN 8: <= 8 KiB of resident memory each, without TLS. The kernel's own socket memory is printed beside it.
"""
import resource
import socket
import tempfile

from common import *

WANT, PORT = 10_000, 18420

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count = min(WANT, hard - 200)


def tcp_memory_bytes():
    """Pages that TCP holds on this machine, as the kernel counts them."""
    line = next(l for l in open("/proc/net/sockstat") if l.startswith("TCP:"))
    return int(line.split()[-1]) * os.sysconf("SC_PAGE_SIZE")


def open_and_serve(n):
    sockets = []
    for _ in range(n):
        s = socket.create_connection(("127.0.0.1", PORT))
        s.sendall(b"GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n")
        assert s.recv(4096).startswith(b"HTTP/1.1 200")
        sockets.append(s)
    return sockets


with tempfile.TemporaryDirectory() as repository:
    with inferd(repository, PORT, "--limits.idle_timeout=10m", "--limits.max_connections=20000") as server:
        few = open_and_serve(100)
        before, kernel_before = server.rss_bytes(), tcp_memory_bytes()
        many = open_and_serve(count)
        each = (server.rss_bytes() - before) / count
        kernel = (tcp_memory_bytes() - kernel_before) / count
        report("idle_connections bytes each", each, 8192, "at most", f"{count} connections; kernel's buffers {kernel:.0f} B each")
