"""gateway_h2.py: an HTTP/2 upstream made of the h2 library, a socket and a thread a connection, that can also do what servers do on a bad day.

A behaviour is a function (connection, stream) called when a request is whole (`early=True`: when its head is in); it uses the Connection's methods.
"""
import ssl
import threading
import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from gateway_upstream import Listening


class Stream:
    def __init__(self, number, headers):
        self.number, self.fields, self.body = number, headers, b""
        self.ended = self.reset = False
        self.windows = 0

    def get(self, name):
        return [v for k, v in self.fields if k == name]


class Connection:
    def __init__(self, upstream, sock):
        self.upstream, self.socket = upstream, sock
        self.lock = threading.RLock()
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.streams = {}
        if upstream.max_streams:
            self.h2.local_settings = h2.settings.Settings(client=False, initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: upstream.max_streams})
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        with self.lock:
            data = self.h2.data_to_send()
            if data:
                self.socket.sendall(data)

    def head(self, stream, status=200, fields=(), end=False):
        with self.lock:
            self.h2.send_headers(stream.number, [(":status", str(status)), *fields], end_stream=end)
            self.flush()

    def data(self, stream, data=b"", end=False):
        """Waits for the other side's window."""
        while True:
            with self.lock:
                if stream.reset:
                    return False
                room = min(self.h2.local_flow_control_window(stream.number), self.h2.max_outbound_frame_size, len(data))
                if room or not data:
                    self.h2.send_data(stream.number, data[:room], end_stream=end and room == len(data))
                    self.flush()
                    data = data[room:]
                    if not data:
                        return True
                    continue
            time.sleep(0.002)

    def trailers(self, stream, fields):
        with self.lock:
            self.h2.send_headers(stream.number, list(fields), end_stream=True)
            self.flush()

    def rst(self, stream, code):
        with self.lock:
            self.h2.reset_stream(stream.number, code)
            self.flush()

    def goaway(self, last, code=0):
        with self.lock:
            self.h2.close_connection(code, last_stream_id=last)
            self.flush()

    def serve(self):
        while True:
            data = self.socket.recv(65536)
            if not data:
                return
            with self.lock:
                events = self.h2.receive_data(data)
            for event in events:
                self.handle(event)
            self.flush()

    def run(self, stream):
        def target():
            try:
                self.upstream.behave(self, stream)
            except (OSError, h2.exceptions.ProtocolError):
                pass
        threading.Thread(target=target, daemon=True).start()

    def handle(self, event):
        u = self.upstream
        if isinstance(event, h2.events.RequestReceived):
            stream = self.streams[event.stream_id] = Stream(event.stream_id, event.headers)
            u.requests.append(stream)
            if u.early:
                self.run(stream)
        elif isinstance(event, h2.events.DataReceived):
            stream = self.streams[event.stream_id]
            stream.body += event.data
            if u.consume:
                with self.lock:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].ended = True
            if not u.early:
                self.run(self.streams[event.stream_id])
        elif isinstance(event, h2.events.StreamReset):
            self.streams[event.stream_id].reset = True
            u.resets.append((event.stream_id, int(event.error_code)))
            u.cancelled.release()


class H2Upstream(Listening):
    """requests: streams, from their heads on · resets: (stream, code) · all: connections · cancelled, closed: released for each reset and for each
    connection that ended. consume=False leaves the windows of bodies as they are."""

    def __init__(self, behave, tls=None, early=False, max_streams=0, consume=True):
        self.behave, self.tls, self.early, self.max_streams, self.consume = behave, tls, early, max_streams, consume
        self.requests, self.resets, self.all = [], [], []
        self.cancelled, self.closed = threading.Semaphore(0), threading.Semaphore(0)
        super().__init__()

    def serve(self, sock):
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            connection = Connection(self, sock)
            self.all.append(connection)
            connection.serve()
        except (OSError, ssl.SSLError, h2.exceptions.ProtocolError):
            pass
        finally:
            sock.close()
            self.closed.release()


def reply(body=b"{}", status=200, fields=()):
    def behave(connection, stream):
        connection.head(stream, status, [("content-length", str(len(body))), *fields], end=not body)
        if body:
            connection.data(stream, body, end=True)
    return behave
