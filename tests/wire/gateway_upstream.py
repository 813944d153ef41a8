"""gateway_upstream.py: an upstream made of a socket and a thread, that does to the gateway what real servers do on a bad day.

A behaviour is a function (connection, request) -> None that writes what it likes; the request has been read whole. What happens to the
connection afterwards (closed by the other side, and when) is recorded.
"""
import socket
import ssl
import threading
import time


class Request:
    def __init__(self, head, body):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ")
        self.headers = [tuple(p.strip() for p in line.split(":", 1)) for line in lines[1:] if line]
        self.body = body

    def get(self, name):
        return [v for k, v in self.headers if k.lower() == name]


class Upstream:
    """Use as a context manager; `behave` may be replaced at any time."""

    def __init__(self, behave, tls=None):
        self.behave, self.tls = behave, tls
        self.resumed, self.tls_errors, self.sni = [], [], []
        self.requests, self.connections, self.closed = [], 0, threading.Semaphore(0)
        self.closed_at = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _read(self, connection, data):
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return None, b""
            data += more
        head, rest = data.split(b"\r\n\r\n", 1)
        length = 0
        for line in head.split(b"\r\n")[1:]:
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        while len(rest) < length:
            rest += connection.recv(1 << 20)
        return Request(head, rest[:length]), rest[length:]

    def _shake(self, connection):
        """TLS, when `tls` is a server's context; replaceable at any time, as `behave` is."""
        if self.tls is None:
            return connection
        self.tls.sni_callback = lambda _, name, __: self.sni.append(name)
        try:
            connection = self.tls.wrap_socket(connection, server_side=True)
        except (ssl.SSLError, OSError) as error:
            self.tls_errors.append(str(error))
            raise OSError from error
        self.resumed.append(connection.session_reused)
        return connection

    def _serve(self, connection):
        rest = b""
        with connection:
            try:
                connection = self._shake(connection)
                while True:
                    request, rest = self._read(connection, rest)
                    if request is None:
                        break
                    self.requests.append(request)
                    if self.behave(connection, request) == "close":
                        return
            except OSError:
                pass
            self.closed_at.append(time.monotonic())
            self.closed.release()


def answer(body=b"{}", status="200 OK", headers=()):
    """A plain answer."""
    def behave(connection, request):
        head = "".join(f"{k}: {v}\r\n" for k, v in headers)
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body)
    return behave


def events(n, gap, end=True):
    """`n` server-sent events, `gap` seconds apart, then [DONE] or a broken connection."""
    def behave(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(n):
            piece = f"data: {i}\n\n".encode()
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            time.sleep(gap)
        if not end:
            return "close"
        connection.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return None
    return behave


def silent(seconds=30):
    """Says nothing until the other side closes."""
    def behave(connection, request):
        connection.settimeout(seconds)
        if connection.recv(1) == b"":
            raise OSError("closed")
    return behave


def reset(connection, request):
    """Cuts the connection without an answer."""
    return "close"


def raw(data):
    def behave(connection, request):
        connection.sendall(data)
        return "close"
    return behave
