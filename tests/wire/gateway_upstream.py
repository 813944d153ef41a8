"""gateway_upstream.py: an upstream made of a socket and a thread a connection, that does to the gateway what real servers do on a bad day.

A behaviour is a function (connection, request) -> None that writes what it likes. The request has been read whole, or, with whole=False, up to
its head: the behaviour takes the body from request.pieces() as it comes. A behaviour that returns "close", or leaves a part of the body
unread, ends the connection. What came is kept, and so is what happens to the connection afterwards (closed by the other side, and when).
"""
import socket
import ssl
import threading
import time


class Cut(OSError):
    """The other side closed."""


class Incoming:
    """The bytes of a connection, by the piece that HTTP is made of."""

    def __init__(self, connection):
        self.connection, self.data = connection, b""

    def more(self):
        got = self.connection.recv(1 << 20)
        if not got:
            raise Cut("cut off")
        self.data += got

    def up_to(self, n):
        """What is there, at least one byte and at most `n`."""
        if not self.data:
            self.more()
        part, self.data = self.data[:n], self.data[n:]
        return part

    def exactly(self, n):
        while len(self.data) < n:
            self.more()
        return self.up_to(n) if n else b""

    def until(self, mark):
        """What is before `mark`, which is taken, too."""
        while mark not in self.data:
            self.more()
        part, self.data = self.data.split(mark, 1)
        return part


class Request:
    """A request whose head has come, as it was written: what is wrong with it is for the test to see. A length that is none is a ValueError."""

    def __init__(self, head, incoming):
        lines = head.decode("latin-1").split("\r\n")
        self.head, self.incoming = head, incoming
        self.method, _, rest = lines[0].partition(" ")
        self.target, _, self.version = rest.rpartition(" ")
        self.headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:])]
        self.left = int((self.get("content-length") or ["0"])[0])
        self.chunked = bool(self.get("transfer-encoding"))
        self.body, self.ended = b"", not self.chunked and self.left == 0

    def get(self, name):
        return [v for k, v in self.headers if k.lower() == name]

    def pieces(self):
        """What is left of the body, as it comes: each chunk, or what a read brought. Trailers are passed over."""
        while not self.ended:
            if not self.chunked:
                piece = self.incoming.up_to(self.left)
                self.left -= len(piece)
                self.ended = self.left == 0
                yield piece
                continue
            n = int(self.incoming.until(b"\r\n").split(b";")[0], 16)
            if n:
                piece = self.incoming.exactly(n)
                if self.incoming.exactly(2) != b"\r\n":
                    raise ValueError("no line end behind a chunk")
                yield piece
                continue
            while self.incoming.until(b"\r\n"):
                pass
            self.ended = True


class Listening:
    """A port of 127.0.0.1 whose connections get a thread each, in `serve`, and are counted. A context manager."""

    def __init__(self):
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()


class Upstream(Listening):
    """`behave`, `whole` and `tls` (a server's context) may be replaced at any time.

    requests: in the order in which they came, with whole=False those that are under way, too · unfinished: the heads of those whose bodies broke
    off · broken: bytes that were no request · closed, closed_at: released and noted for each connection that the other side closed."""

    def __init__(self, behave, tls=None, whole=True):
        self.behave, self.tls, self.whole = behave, tls, whole
        self.resumed, self.sni = [], []
        self.requests, self.broken, self.unfinished = [], [], []
        self.closed, self.closed_at = threading.Semaphore(0), []
        super().__init__()

    def _shake(self, connection):
        if self.tls is None:
            return connection
        self.tls.sni_callback = lambda _, name, __: self.sni.append(name)
        try:
            connection = self.tls.wrap_socket(connection, server_side=True)
        except ssl.SSLError as error:
            raise Cut(str(error)) from error
        self.resumed.append(connection.session_reused)
        return connection

    def _next(self, incoming):
        """The next request; None when the connection ends instead."""
        try:
            head = incoming.until(b"\r\n\r\n")
        except Cut:
            self.broken += [incoming.data] if incoming.data else []
            return None
        try:
            request = Request(head, incoming)
            if self.whole:
                request.body = b"".join(request.pieces())
        except (Cut, ValueError) as e:
            (self.unfinished if isinstance(e, Cut) else self.broken).append(head)
            return None
        self.requests.append(request)
        return request

    def serve(self, connection):
        over = False  # by us
        try:
            connection = self._shake(connection)
            incoming = Incoming(connection)
            while not over and (request := self._next(incoming)):
                over = self.behave(connection, request) == "close" or not request.ended
        except (OSError, ValueError):
            pass
        finally:
            connection.close()
        if not over:
            self.closed_at.append(time.monotonic())
            self.closed.release()


def answer(body=b"{}", status="200 OK", headers=()):
    """A plain answer."""
    def behave(connection, request):
        head = "".join(f"{k}: {v}\r\n" for k, v in headers)
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body)
    return behave


class Received:
    """A client's word that it has what was sent: `said()` there, `wait` as the pace of `events` here."""

    def __init__(self):
        self.count = threading.Semaphore(0)

    def said(self):
        self.count.release()

    def wait(self):
        if not self.count.acquire(timeout=20):
            raise OSError("it did not arrive")


def events(n, pace=0, end=True):
    """`n` server-sent events, `pace` seconds apart or until `pace()` returns, then [DONE] or a broken connection."""
    def behave(connection, request):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(n):
            piece = f"data: {i}\n\n".encode()
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            pace() if callable(pace) else time.sleep(pace)
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
            raise Cut("closed")
    return behave


def reset(connection, request):
    """Cuts the connection without an answer."""
    return "close"


def raw(data):
    def behave(connection, request):
        connection.sendall(data)
        return "close"
    return behave
