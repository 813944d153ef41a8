"""Whose request it is: trusted proxies, the PROXY protocol, caps per address; and which web pages may ask (CORS)."""
import json
import socket
import ssl
import struct

import pytest
import requests

from certificates import Authority
from inferd_server import SIMPLE, Server, wait_until, write_fake
from test_auth_keys import BODY, make
from test_tls import Secure

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


@pytest.fixture
def models(repository):
    write_fake(repository, "simple", SIMPLE)
    return repository


def raw(server, data, seconds=10):
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as s:
        s.sendall(data)
        out = b""
        try:
            while part := s.recv(65536):
                out += part
        except (ConnectionResetError, socket.timeout):
            pass
        return out


GET = b"GET /v2 HTTP/1.1\r\nHost: x\r\nx-request-id: %s\r\nConnection: close\r\n\r\n"


class Logged:
    """A server with an access log, read by request id."""

    def __init__(self, models, tmp, *args, kind=Server, **kw):
        self.file = tmp / "access"
        self.server = kind(models, args=[f"--access_log.file={self.file}", "--access_log.format=json", *args], **kw)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.server.stop(expect=0 if kind is None else None)

    def peer(self, ident):
        def find():
            return [r for r in map(json.loads, self.file.read_text().splitlines()) if r.get("id") == ident]

        wait_until(find)
        return find()[0]["peer"]


def test_forwarded_for(models, tmp_path):
    with Logged(models, tmp_path, "--proxy.trusted=127.0.0.1,10.0.0.0/8") as l:
        def ask(ident, *values):
            lines = b"".join(b"X-Forwarded-For: %s\r\n" % v for v in values)
            assert raw(l.server, GET.replace(b"Host: x\r\n", b"Host: x\r\n" + lines) % ident).startswith(b"HTTP/1.1 200")
            return l.peer(ident.decode())

        assert ask(b"a", b"192.0.2.7") == "192.0.2.7:0"
        assert ask(b"b", b"6.6.6.6, 192.0.2.7, 10.1.1.1") == "192.0.2.7:0"
        assert ask(b"c", b"6.6.6.6", b"192.0.2.8") == "192.0.2.8:0"
        assert ask(b"d", b"2001:db8::7") == "[2001:db8::7]:0"
        assert ask(b"e", b"nonsense").startswith("127.0.0.1:")
        assert ask(b"f", *[b"6.6.6.6"] * 40, b"192.0.2.9") == "192.0.2.9:0"
    with Logged(models, tmp_path, "--proxy.trusted=10.0.0.0/8") as l:
        raw(l.server, GET.replace(b"Host: x", b"Host: x\r\nX-Forwarded-For: 192.0.2.7") % b"z")
        assert l.peer("z").startswith("127.0.0.1:")


def v2(source="192.0.2.33", command=0x21, family=0x11, extra=b""):
    address = socket.inet_aton(source) + socket.inet_aton("192.0.2.1") + struct.pack(">HH", 4711, 443)
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(address) + len(extra)) + address + extra


def test_proxy_protocol(models, tmp_path):
    with Logged(models, tmp_path, "--proxy.trusted=127.0.0.0/8", "--proxy.protocol=true", wait=None) as l:
        wait_until(lambda: requests.get(l.server.admin_url + "/v2/health/ready").status_code == 200)
        l.server.wait_for_address("http")
        cases = {b"v1": (b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 80\r\n", "192.0.2.7:0"),
                 b"v1-6": (b"PROXY TCP6 2001:db8::9 ::1 4711 80\r\n", "[2001:db8::9]:0"),
                 b"v2": (v2(), "192.0.2.33:0"), b"v2-tlv": (v2(extra=b"\x04\0\x01x"), "192.0.2.33:0"),
                 b"unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1:"), b"local": (v2(command=0x20), "127.0.0.1:")}
        for ident, (header, peer) in cases.items():
            assert raw(l.server, header + GET % ident).startswith(b"HTTP/1.1 200"), ident
            assert l.peer(ident.decode()).startswith(peer)
        for bad in (GET % b"bare", b"PROXY TCP4 x y 1 2\r\n" + GET % b"bad", SIGNATURE + b"\x31\x11\0\x0c" + b"\0" * 12 + GET % b"bad", b"PROXY" + b" " * 200):
            assert raw(l.server, bad) == b""
        l.server.wait_metric("inferd_http_limit_total", lambda n: n >= 4, limit="proxy_header")
        # byte by byte, and slowly
        host, port = l.server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=20) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in v2("192.0.2.44") + GET % b"slow":
                s.send(bytes([byte]))
            assert s.recv(65536).startswith(b"HTTP/1.1 200")
        assert l.peer("slow") == "192.0.2.44:0"
    with Logged(models, tmp_path, "--proxy.trusted=10.0.0.1", "--proxy.protocol=true", wait=None) as l:
        l.server.wait_for_address("http")
        assert raw(l.server, v2() + GET % b"stranger") == b""


def test_proxy_protocol_before_tls(models, tmp_path):
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("a", "DNS:a.test")
    with Logged(models, tmp_path, "--proxy.trusted=127.0.0.1", "--proxy.protocol=true", f"--tls.certificates={cert}", f"--tls.keys={key}",
                "--tls.handshake_timeout=500ms", kind=Secure) as l:
        l.server.wait_for_address("http")
        for ident, header in ((b"tls1", b"PROXY TCP4 192.0.2.7 192.0.2.1 4711 443\r\n"), (b"tls2", v2("192.0.2.7"))):
            s = socket.create_connection(("127.0.0.1", l.server.port), timeout=20)
            s.sendall(header)
            with ssl.create_default_context(cafile=str(authority.ca)).wrap_socket(s, server_hostname="a.test") as t:
                t.sendall(GET % ident)
                assert t.recv(65536).startswith(b"HTTP/1.1 200")
            assert l.peer(ident.decode()) == "192.0.2.7:0"
        with socket.create_connection(("127.0.0.1", l.server.port), timeout=20) as s:
            s.sendall(b"PROXY T")
            assert s.recv(10) == b""  # cut by the handshake's timeout


def test_connections_per_address(models, tmp_path):
    with Logged(models, tmp_path, "--limits.max_connections_per_address=3", wait=None) as l:
        wait_until(lambda: requests.get(l.server.admin_url + "/v2/health/ready").status_code == 200)
        host, port = l.server.address.split(":")
        held = [socket.create_connection((host, int(port))) for _ in range(3)]
        for s in held:
            s.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert s.recv(65536)
        assert raw(l.server, GET % b"four") == b""
        with socket.socket() as other:  # another address has its own
            other.bind(("127.0.0.2", 0))
            other.connect((host, int(port)))
            other.sendall(GET % b"five")
            assert other.recv(65536).startswith(b"HTTP/1.1 200")
        held.pop().close()
        wait_until(lambda: raw(l.server, GET % b"six") != b"")
        l.server.wait_metric("inferd_http_limit_total", lambda n: n >= 1, limit="address_connections")
        for s in held:
            s.close()


def test_handshakes_per_address(models, tmp_path):
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("a", "DNS:a.test")
    with Logged(models, tmp_path, "--limits.max_handshakes_per_address=2", f"--tls.certificates={cert}", f"--tls.keys={key}", kind=Secure) as l:
        context = ssl.create_default_context(cafile=str(authority.ca))

        def shake():
            try:
                context.wrap_socket(socket.create_connection(("127.0.0.1", l.server.port), timeout=20), server_hostname="a.test").close()
                return True
            except (ssl.SSLError, ConnectionError):
                return False

        results = [shake() for _ in range(6)]
        assert results[:2] == [True, True] and not all(results)
        wait_until(shake)
        l.server.wait_metric("inferd_http_limit_total", lambda n: n >= 1, limit="address_handshakes")


def test_quota_by_forwarded_address(models, tmp_path):
    path = tmp_path / "q"
    path.write_text("policies: [{name: p, per: key, requests_per_day: 1}]")
    with Server(models, args=[f"--quota.file={path}", "--proxy.trusted=127.0.0.1"]) as server:
        def ask(address):
            return server.infer("simple", BODY, headers={"X-Forwarded-For": address}).status_code

        assert [ask("192.0.2.1"), ask("192.0.2.1"), ask("192.0.2.2"), ask("9.9.9.9, 192.0.2.1")] == [200, 429, 200, 429]


def test_cors(models, tmp_path):
    file = tmp_path / "keys"
    key = make(file, "web", "-s", "infer,read")
    with Server(models, args=["--cors.origins=https://app.example,https://*.corp.example", f"--auth.keys_file={file}"]) as server:
        ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}
        infer = server.url + "/v2/models/simple/infer"
        r = requests.options(infer, headers={"Origin": "https://app.example", **ask})
        assert r.status_code == 204 and r.content == b""
        assert r.headers["Access-Control-Allow-Origin"] == "https://app.example" and r.headers["Vary"] == "Origin"
        assert "POST" in r.headers["Access-Control-Allow-Methods"] and r.headers["Access-Control-Max-Age"] == "600"
        assert {h.strip() for h in r.headers["Access-Control-Allow-Headers"].split(",")} == {"authorization", "*"}
        assert "Access-Control-Allow-Credentials" not in r.headers
        for origin, allowed in (("https://a.corp.example", True), ("https://evil.example", False), ("null", False),
                                ("https://app.example.evil", False), ("http://app.example", False)):
            for r in (requests.options(infer, headers={"Origin": origin, **ask}),
                      requests.post(infer, json=BODY, headers={"Origin": origin, "x-api-key": key}),
                      requests.post(infer, json=BODY, headers={"Origin": origin}),  # 401: the page must be able to read it
                      requests.get(server.url + "/nowhere", headers={"Origin": origin})):
                assert (r.headers.get("Access-Control-Allow-Origin") == origin) == allowed, (origin, r.status_code)
                assert r.headers["Vary"] == "Origin"
        assert requests.post(infer, json=BODY, headers={"x-api-key": key}).headers["Vary"] == "Origin"
        assert requests.options(infer, headers={"x-api-key": key}).status_code == 405  # no preflight
        refused = requests.post(infer, json=BODY, headers={"Origin": "https://app.example"})
        assert refused.status_code == 401 and refused.headers["WWW-Authenticate"] and refused.headers["Access-Control-Expose-Headers"] == "*"
    with Server(models) as server:
        r = requests.options(server.url + "/v2", headers={"Origin": "https://app.example", **ask})
        assert r.status_code == 405 and "Access-Control-Allow-Origin" not in r.headers


@pytest.mark.parametrize("flag, word", [("--proxy.trusted=10.0.0.0/40", "10.0.0.0/40"), ("--cors.origins=app.example", "app.example"),
                                        ("--proxy.protocol=true", "proxy.trusted")])
def test_mistakes_stop_the_start(models, flag, word):
    import subprocess

    from inferd_server import BINARY

    done = subprocess.run([BINARY, "serve", str(models), "--http.listen=127.0.0.1:0", "--metrics.listen=", flag], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode in (1, 2) and word in done.stderr
