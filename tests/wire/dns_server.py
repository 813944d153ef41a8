"""dns_server.py: a name server on a loopback port, for what resolvers see on good and bad days. `records` maps (name, type) to values and may be
replaced at any time; `mode` is "answer", "silent", "garbage", "servfail" or "truncated"."""
import ipaddress
import socket
import struct
import threading

A, AAAA, SRV = 1, 28, 33


def encode_name(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.strip(".").split(".")) + b"\0"


class NameServer:
    def __init__(self, records):
        self.records, self.mode, self.asked = records, "answer", []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _data(self, kind, value):
        if kind == SRV:
            priority, weight, port, target = value
            return struct.pack(">HHH", priority, weight, port) + encode_name(target)
        return ipaddress.ip_address(value).packed

    def _answer(self, question):
        at, parts = 12, []
        while question[at]:
            parts.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1:at + 3])[0]
        name = ".".join(parts).lower()
        self.asked.append((name, kind))
        known = any(n == name for n, _ in self.records)
        values = self.records.get((name, kind), [])
        code = 2 if self.mode == "servfail" else 0 if known else 3
        if self.mode == "servfail":
            values = []
        head = question[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(values), 0, 0)
        body = question[12:at + 5]
        for value in values:
            data = self._data(kind, value)
            body += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data
        return head + (body[:-3] if self.mode == "truncated" and values else body)

    def _run(self):
        while True:
            try:
                question, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            if self.mode == "silent":
                continue
            try:
                self.socket.sendto(question[:2] + b"\x81\x80" + b"\xff" * 20 if self.mode == "garbage" else self._answer(question), peer)
            except OSError:
                return
