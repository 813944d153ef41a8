"""raw_socket.py: HTTP by hand, for clients that no library would be. Bytes go out as they stand; answers are read with a parser
that knows only status line, headers, Content-Length and chunks."""
import json
import socket
import struct


def address(server, listener="http"):
    host, port = server.addresses[listener].rsplit(":", 1)
    return host.strip("[]"), int(port)


def connect(server, timeout=10, listener="http"):
    s = socket.create_connection(address(server, listener), timeout=timeout)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def reset(s):
    """Close with RST instead of FIN."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def request(method="GET", target="/v2/health/live", headers=(), body=b"", host="x", version="HTTP/1.1"):
    """A well-formed request; headers is a list of (name, value)."""
    lines = [f"{method} {target} {version}", f"Host: {host}", *(f"{k}: {v}" for k, v in headers)]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def infer_request(model, document, headers=()):
    return request("POST", f"/v2/models/{model}/infer", headers, json.dumps(document).encode())


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:200]!r}>"


class Reader:
    """Answers from a socket, one by one."""

    def __init__(self, s):
        self.s, self.data = s, bytearray()

    def _more(self):
        got = self.s.recv(1 << 16)
        if not got:
            raise EOFError("the connection ended after %r" % bytes(self.data[:100]))
        self.data += got

    def _until(self, mark):
        while mark not in self.data:
            self._more()
        return self._take(self.data.index(mark), len(mark))

    def _take(self, n, skip=0):
        while len(self.data) < n:
            self._more()
        part = bytes(self.data[:n])
        del self.data[: n + skip]
        return part

    def _chunks(self):
        body = b""
        while True:
            n = int(self._until(b"\r\n"), 16)
            body += self._take(n)
            assert self._take(2) == b"\r\n"
            if n == 0:
                return body

    def answer(self, head_only=False):
        """The next final answer; interim ones are skipped."""
        while True:
            head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            version, status = head[0].split(" ")[:2]
            assert version == "HTTP/1.1", head[0]
            if status[0] != "1":
                break
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in head[1:])}
        if head_only or status in ("204", "304"):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = self._chunks()
        else:
            body = self._take(int(headers["content-length"]))
        return Answer(int(status), headers, body)

    def at_end(self):
        """True when nothing more comes and the server closed (FIN or RST)."""
        try:
            return not self.data and self.s.recv(1) == b""
        except ConnectionResetError:
            return True


def ask(server, data, timeout=10, listener="http"):
    """Send bytes, read one answer, close."""
    with connect(server, timeout, listener) as s:
        try:
            s.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass
        return Reader(s).answer()


def fd_count(server):
    import os

    return len(os.listdir(f"/proc/{server.process.pid}/fd"))
