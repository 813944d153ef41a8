"""http2_raw.py: HTTP/2 by hand, for clients that no library would be: frames go out as they stand (hyperframe and hpack only write and read
bytes), and nothing is answered unless the test says so.
"""
import socket

import hpack
from hyperframe.frame import (ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame, SettingsFrame,
                              WindowUpdateFrame)

from raw_socket import address

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 3, 7, 8, 11


class Closed(Exception):
    """The server has closed the connection."""


class Http2:
    """One connection. `settings`: ours; the server's greeting is read and acknowledged."""

    def __init__(self, server, settings=None, timeout=10, acknowledge=True):
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.buffer, self.frames = b"", []
        self.next_id = 1
        self.socket = socket.create_connection(address(server), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PREFACE + self.settings(settings or {}))
        self.server_settings = self.wait(lambda f: isinstance(f, SettingsFrame) and "ACK" not in f.flags).settings
        if acknowledge:
            self.send(SettingsFrame(flags=["ACK"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    @staticmethod
    def settings(values):
        frame = SettingsFrame()
        frame.settings = values
        return frame.serialize()

    def send(self, *frames):
        self.socket.sendall(b"".join(f if isinstance(f, bytes) else f.serialize() for f in frames))

    def head(self, method="GET", path="/v2/health/live", extra=(), end=True, stream=None, pseudo=None, end_headers=True):
        """The bytes of a HEADERS frame, and its stream."""
        stream = stream or self.next_id
        self.next_id = max(self.next_id, stream + 2)
        fields = pseudo if pseudo is not None else [(":method", method), (":scheme", "http"), (":path", path), (":authority", "x")]
        frame = HeadersFrame(stream)
        frame.data = self.encoder.encode([*fields, *extra])
        if end_headers:
            frame.flags.add("END_HEADERS")
        if end:
            frame.flags.add("END_STREAM")
        return frame.serialize(), stream

    @staticmethod
    def data(stream, payload=b"", end=False):
        frame = DataFrame(stream)
        frame.data = payload
        if end:
            frame.flags.add("END_STREAM")
        return frame.serialize()

    @staticmethod
    def reset(stream, code=CANCEL):
        frame = RstStreamFrame(stream)
        frame.error_code = code
        return frame.serialize()

    @staticmethod
    def window(stream, n):
        frame = WindowUpdateFrame(stream)
        frame.window_increment = n
        return frame.serialize()

    @staticmethod
    def ping(payload=b"12345678", ack=False):
        frame = PingFrame(0)
        frame.opaque_data = payload
        if ack:
            frame.flags.add("ACK")
        return frame.serialize()

    @staticmethod
    def continuation(stream, data=b"", end=False):
        frame = ContinuationFrame(stream)
        frame.data = data
        if end:
            frame.flags.add("END_HEADERS")
        return frame.serialize()

    def read_frame(self):
        """The next frame; Closed at the end of the connection."""
        while True:
            if len(self.buffer) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(self.buffer[:9]))
                if len(self.buffer) >= 9 + length:
                    frame.parse_body(memoryview(self.buffer[9:9 + length]))
                    self.buffer = self.buffer[9 + length:]
                    if isinstance(frame, HeadersFrame):
                        frame.fields = dict(self.decoder.decode(frame.data))
                    self.frames.append(frame)
                    return frame
            try:
                got = self.socket.recv(65536)
            except ConnectionResetError:
                got = b""
            if not got:
                raise Closed
            self.buffer += got

    def wait(self, condition):
        while True:
            frame = self.read_frame()
            if condition(frame):
                return frame

    def answer(self, stream):
        """(status, body) of the reply on `stream`; (None, code) when it was reset instead."""
        status, body = None, b""
        while True:
            frame = self.wait(lambda f: f.stream_id == stream)
            if isinstance(frame, RstStreamFrame):
                return None, frame.error_code
            if isinstance(frame, HeadersFrame) and status is None:
                status = int(frame.fields[":status"])
            elif isinstance(frame, DataFrame):
                body += frame.data
            if "END_STREAM" in frame.flags:
                return status, body

    def ask(self, *args, **kw):
        head, stream = self.head(*args, **kw)
        self.send(head)
        return self.answer(stream)

    def goaway(self):
        """Read to the end of the connection: the code of the last GOAWAY, None when there was none."""
        try:
            while True:
                self.read_frame()
        except Closed:
            codes = [f.error_code for f in self.frames if isinstance(f, GoAwayFrame)]
            return codes[-1] if codes else None
