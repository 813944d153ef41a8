"""TLS as clients see it: Python's ssl, curl and openssl s_client against certificates made here."""
import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
import requests

from certificates import Authority
from inferd_server import SIMPLE, Server, wait_equal, wait_until, write_fake
from test_auth_keys import make


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("pki") / "ca")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    write_fake(root, "echo", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n")
    return root


class Secure(Server):
    """A server whose http listener speaks TLS; readiness is asked for on the admin listener."""

    def wait_ready(self, seconds=60):
        wait_until(lambda: self.process.poll() is not None or requests.get(self.admin_url + "/v2/health/ready").status_code == 200, seconds)
        assert self.process.poll() is None, self.log()

    def alive(self):
        assert self.process.poll() is None, self.log()

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])


def start(models, pairs, *args):
    return Secure(models, args=["--tls.certificates=" + ",".join(str(c) for c, _ in pairs),
                                "--tls.keys=" + ",".join(str(k) for _, k in pairs), *args])


def context(authority, cert=None, **kw):
    c = ssl.create_default_context(cafile=str(authority.ca))
    if cert:
        c.load_cert_chain(*map(str, cert))
    for name, value in kw.items():
        setattr(c, name, value)
    return c


def connect(server, c, name="a.test", session=None):
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    return c.wrap_socket(raw, server_hostname=name, session=session)


def get(sock, path="/v2", headers=(), host=None):
    lines = [f"GET {path} HTTP/1.1", f"Host: {host or sock.server_hostname or 'a.test'}", "Connection: close", *headers]
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    data = b""
    while part := sock.recv(65536):
        data += part
    return data


@pytest.fixture(scope="module")
def server(models, authority):
    pairs = [authority.issue("a", "DNS:a.test,DNS:localhost"), authority.issue("b", "DNS:*.b.test,DNS:b.test"),
             authority.issue("r", "DNS:rsa.test", algorithm=("rsa:2048",))]
    with start(models, pairs) as s:
        yield s


def test_versions(server, authority):
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        for host in ("a.test", "rsa.test"):
            with connect(server, context(authority, minimum_version=version, maximum_version=version), host) as s:
                assert s.version() == name
                assert get(s).startswith(b"HTTP/1.1 200 OK")
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
                          input="", capture_output=True, text=True, timeout=20)
    assert done.returncode != 0 and "Cipher is (NONE)" in done.stdout


@pytest.mark.parametrize("name, want", [("a.test", "a.test"), ("x.b.test", "*.b.test"), ("b.test", "*.b.test"), ("rsa.test", "rsa.test"),
                                        ("y.x.b.test", "a.test"), ("nobody.test", "a.test"), (None, "a.test")])
def test_sni(server, authority, name, want):
    c = context(authority, check_hostname=False)
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    with c.wrap_socket(raw, server_hostname=name) as s:
        assert want in [v for k, v in s.getpeercert()["subjectAltName"] if k == "DNS"]


@pytest.mark.parametrize("name, host, status", [
    ("a.test", "a.test", 200), ("a.test", "A.TEST:8443", 200), ("a.test", "localhost", 200),  # another name of the same certificate: h2 clients coalesce
    ("x.b.test", "y.b.test", 200), ("a.test", "b.test", 421), ("b.test", "a.test", 421), ("x.b.test", "rsa.test:1", 421),
    ("a.test", "nobody.test", 200), ("b.test", "nobody.test", 421),  # names that no certificate is for are the first one's
    ("a.test", "10.0.0.1", 200), ("b.test", "[::1]:8000", 421), ("nobody.test", "a.test", 200), ("nobody.test", "b.test", 421),
    (None, "b.test", 200),  # who names no server was given no choice
])
def test_misdirected_requests(server, authority, name, host, status):
    """421 where the Host is another certificate's than the one that SNI chose, over HTTP/1.1 and HTTP/2; the h2 connection lives on."""
    c = context(authority, check_hostname=False)
    with connect(server, c, name) as s:
        answer = get(s, host=host)
        assert answer.split(b" ", 2)[1] == str(status).encode(), answer
        assert status == 200 or b"connect anew" in answer
    c.set_alpn_protocols(["h2"])
    good = {"a.test": "a.test", "nobody.test": "a.test", None: "a.test"}.get(name, name)
    with connect(server, c, name) as s:
        import h2.config
        import h2.connection
        import h2.events

        h = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        h.initiate_connection()
        for authority_asked in (host, good):
            h.send_headers(h.get_next_available_stream_id(),
                           [(":method", "GET"), (":scheme", "https"), (":path", "/v2"), (":authority", authority_asked)], end_stream=True)
        s.sendall(h.data_to_send())
        statuses = {}
        while len(statuses) < 2:
            data = s.recv(65536)
            assert data, statuses
            for e in h.receive_data(data):
                if isinstance(e, h2.events.ResponseReceived):
                    statuses[e.stream_id] = int(dict(e.headers)[":status"])
        assert statuses == {1: status, 3: 200}


def test_hosts_are_not_compared_where_a_proxy_names_one_server(models, authority):
    pairs = [authority.issue("a2", "DNS:a.test"), authority.issue("b2", "DNS:b.test")]
    with start(models, pairs, "--tls.check_host=false") as s, connect(s, context(authority)) as c:
        assert get(c, host="b.test").startswith(b"HTTP/1.1 200")


def test_alpn(server, authority):
    c = context(authority)
    c.set_alpn_protocols(["x", "http/1.1"])
    with connect(server, c) as s:
        assert s.selected_alpn_protocol() == "http/1.1"
    c = context(authority)
    c.set_alpn_protocols(["x", "spdy/1"])
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        connect(server, c)


def test_curl(server, authority):
    url = f"https://a.test:{server.port}/v2/models/simple/infer"
    done = subprocess.run(["curl", "-sS", "--http1.1", "--cacert", str(authority.ca), "--resolve", f"a.test:{server.port}:127.0.0.1",
                           "-d", '{"inputs":[]}', url, "-w", "%{http_code} %{ssl_verify_result}"], capture_output=True, text=True)
    assert done.stdout.endswith("400 0"), done


def test_wrong_names_and_strangers_fail_at_the_client(server, authority, tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(server, context(authority), "nobody.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(server, context(Authority(tmp_path / "other", "other")), "a.test")


def session(server, name):
    s = requests.Session()
    s.verify = str(name)
    return s


def test_inference_large_and_small(server, authority):
    """Bodies of many records both ways, on one connection, and answers that are read slowly."""
    c = http.client.HTTPSConnection("localhost", server.port, context=context(authority), timeout=60)
    for n in (1, 1000, 16384, 100_000, 3_000_000, 7):
        body = os.urandom(4 * n)
        head = b'{"inputs":[{"name":"X","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],' \
               b'"outputs":[{"name":"Y","parameters":{"binary_data":true}}]}' % (n, 4 * n)
        c.request("POST", "/v2/models/echo/infer", head + body, {"Inference-Header-Content-Length": str(len(head)),
                                                                  "Content-Type": "application/octet-stream"})
        answer = c.getresponse()
        assert answer.status == 200, answer.read()
        length = int(answer.headers["Inference-Header-Content-Length"])
        data = b""
        while part := answer.read(50_000):
            data += part
        assert data[length:] == body
    c.close()


def test_pipelined_requests_in_one_record(server, authority):
    """More requests in a record than are read ahead: the rest waits decrypted, where no readiness announces it."""
    with connect(server, context(authority)) as s:
        one = b"GET /v2 HTTP/1.1\r\nHost: a.test\r\n\r\n"
        s.sendall(one * 200)
        data = b""
        while data.count(b"HTTP/1.1 200") < 200:
            part = s.recv(65536)
            assert part
            data += part


def test_byte_by_byte(server, authority):
    """The handshake and the request cut at every byte by a proxy in between."""
    gate = socket.create_server(("127.0.0.1", 0))

    def carry():
        client, _ = gate.accept()
        back = socket.create_connection(("127.0.0.1", server.port))
        back.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def down():
            while part := back.recv(65536):
                client.sendall(part)
            client.close()

        threading.Thread(target=down, daemon=True).start()
        while part := client.recv(65536):
            for i in range(len(part)):
                back.sendall(part[i:i + 1])

    threading.Thread(target=carry, daemon=True).start()
    raw = socket.create_connection(gate.getsockname(), timeout=30)
    with context(authority).wrap_socket(raw, server_hostname="a.test") as s:
        assert get(s).startswith(b"HTTP/1.1 200")


def outcome(server, name):
    return server.metric("inferd_tls_handshakes_total", outcome=name)


def test_resumption(server, authority):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        c = context(authority, minimum_version=version, maximum_version=version)
        with connect(server, c) as s:
            get(s)
            ticket = s.session
        before = outcome(server, "resumed")
        with connect(server, c, session=ticket) as s:
            get(s)
            assert s.session_reused
        wait_equal(lambda: outcome(server, "resumed"), before + 1)


def test_ticket_keys_turn(models, authority):
    """Two rotations later a ticket is still taken, later no more."""
    pair = authority.issue("t", "DNS:a.test")
    with start(models, [pair], "--tls.ticket_rotation=2s") as server:
        c = context(authority, maximum_version=ssl.TLSVersion.TLSv1_2)
        with connect(server, c) as s:
            get(s)
            ticket = s.session
        with connect(server, c, session=ticket) as s:
            assert s.session_reused
        time.sleep(8)
        with connect(server, c, session=ticket) as s:
            assert not s.session_reused
            assert get(s).startswith(b"HTTP/1.1 200")


def test_no_early_data(server, authority, tmp_path):
    ticket = tmp_path / "session"
    base = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-servername", "a.test", "-CAfile", str(authority.ca),
            "-tls1_3"]
    request = "GET /v2 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"
    subprocess.run([*base, "-sess_out", str(ticket), "-ign_eof"], input=request, capture_output=True, text=True, timeout=20)
    assert "Max Early Data: 0" in subprocess.run(["openssl", "sess_id", "-in", str(ticket), "-noout", "-text"], capture_output=True,
                                                 text=True).stdout
    early = tmp_path / "early"
    early.write_text(request)
    done = subprocess.run([*base, "-sess_in", str(ticket), "-early_data", str(early), "-ign_eof"], input=request, capture_output=True,
                          text=True, timeout=20)
    assert "Early data was accepted" not in done.stdout


def test_no_renegotiation(server, authority):
    done = subprocess.Popen(["openssl", "s_client", "-connect", f"127.0.0.1:{server.port}", "-tls1_2"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(0.5)
    out, _ = done.communicate("R\n", timeout=20)
    assert "no renegotiation" in out.lower()


def test_plain_and_garbage(server):
    failed = outcome(server, "failed")
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(4096), b"\x16\x03\x01\xff\xff" + b"\0" * 100, b""):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as s:
            with contextlib.suppress(OSError):  # it may have hung up already
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
    wait_until(lambda: outcome(server, "failed") >= failed + 3)
    server.alive()


def test_slow_handshake_is_cut(models, authority):
    pair = authority.issue("slow", "DNS:a.test")
    with start(models, [pair], "--tls.handshake_timeout=300ms") as server:
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as s:
            s.sendall(b"\x16")
            assert s.recv(10) == b""
        assert 0.25 < time.monotonic() - begun < 10
        wait_equal(lambda: outcome(server, "timeout"), 1)
        server.wait_metric("inferd_http_limit_total", 1, limit="handshake_time")
        with connect(server, context(authority)) as s:
            time.sleep(0.6)  # idle, but up
            assert get(s).startswith(b"HTTP/1.1 200")


def test_half_close(server, authority):
    """A client that says it sends no more still gets its answer, and close_notify behind it."""
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context(authority).wrap_bio(incoming, outgoing, server_hostname="a.test")

    closed = False

    def flush():
        data = outgoing.read()
        if not closed:
            raw.sendall(data)

    def step(call):
        while True:
            try:
                result = call()
                flush()
                return result
            except ssl.SSLWantReadError:
                flush()
                data = raw.recv(65536)
                if data:
                    incoming.write(data)
                else:
                    incoming.write_eof()

    step(tls.do_handshake)
    tls.write(b"GET /v2 HTTP/1.1\r\nHost: a.test\r\n\r\n")
    raw.sendall(outgoing.read())
    raw.shutdown(socket.SHUT_WR)
    closed = True
    data = b""
    try:
        while part := step(lambda: tls.read(65536)):
            data += part
    except ssl.SSLZeroReturnError:
        pass  # close_notify, not a cut
    assert data.rstrip().endswith(b"}") and b"HTTP/1.1 200" in data


def test_certificates_are_replaced_while_serving(models, authority, tmp_path):
    cert, key = (tmp_path / n for n in ("live.pem", "live.key"))

    def install(pair):
        for source, target in zip(pair, (cert, key)):
            shutil.copy(source, tmp_path / "new")
            os.replace(tmp_path / "new", target)

    install(authority.issue("first", "DNS:a.test,DNS:first.test", ends=20))
    with start(models, [(cert, key)]) as server:
        (soon,) = server.wait_records("certificate_expires_soon")
        assert soon["threshold_days"] == 30 and 19 < soon["days_left"] < 20.1
        assert 19 < server.metric("inferd_tls_certificate_days_left", file=str(cert)) < 20.1
        old = http.client.HTTPSConnection("a.test", server.port, context=context(authority), timeout=30)
        old.sock = connect(server, context(authority))
        old.request("GET", "/v2")
        assert old.getresponse().read()

        def served():
            with connect(server, context(authority)) as s:
                return {v for _, v in s.getpeercert()["subjectAltName"]}

        assert "first.test" in served()
        install(authority.issue("second", "DNS:a.test,DNS:second.test", ends=5))
        wait_until(lambda: "second.test" in served())
        old.request("GET", "/v2")  # the connection from before lives
        assert old.getresponse().status == 200
        server.wait_records("certificate_expires_soon", threshold_days=7)
        cert.write_text("broken")
        server.wait_records("certificates_unusable")
        assert "second.test" in served()
        install(authority.issue("third", "DNS:a.test,DNS:third.test"))
        wait_until(lambda: "third.test" in served())
        server.wait_metric("inferd_tls_certificate_days_left", lambda n: n > 300, file=str(cert))


CLIENT = "clientAuth"


def test_client_certificates(models, authority, tmp_path):
    clients = Authority(tmp_path / "clients", "clients")
    good = clients.issue("svc", "URI:spiffe://test/svc,DNS:svc.test", usage=CLIENT)
    expired = clients.issue("old", "URI:spiffe://test/svc", starts=-30, ends=-1, usage=CLIENT)
    early = clients.issue("early", "URI:spiffe://test/svc", starts=2, usage=CLIENT)
    revoked = clients.issue("revoked", "URI:spiffe://test/svc", usage=CLIENT)
    server_only = clients.issue("srv", "URI:spiffe://test/svc", usage="serverAuth")
    stranger = Authority(tmp_path / "strangers", "clients").issue("x", "URI:spiffe://test/svc", usage=CLIENT)
    clients.revoke(revoked[0])
    crl = clients.crl()
    file = tmp_path / "keys"
    make(file, "svc", "-s", "read", "--certificate", "URI:spiffe://test/svc")
    key = make(file, "human", "-s", "read")
    pair = authority.issue("m", "DNS:a.test")
    args = [f"--tls.client_ca={clients.ca}", f"--tls.crl={crl}", f"--auth.keys_file={file}"]

    def ask(server, cert, headers=(), **kw):
        with connect(server, context(authority, cert, **kw)) as s:
            return get(s, "/v2", headers)

    with start(models, [pair], "--tls.client_auth=required", *args) as server:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            assert ask(server, good, maximum_version=version).startswith(b"HTTP/1.1 200")
            for bad in (None, expired, early, revoked, server_only, stranger):
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    answer = ask(server, bad, maximum_version=version)
                    assert not answer
                    raise ConnectionError("closed")
        server.alive()
    with start(models, [pair], "--tls.client_auth=optional", *args) as server:
        assert ask(server, good).startswith(b"HTTP/1.1 200")
        assert ask(server, None).startswith(b"HTTP/1.1 401")
        assert ask(server, None, ["x-api-key: " + key]).startswith(b"HTTP/1.1 200")
        other = clients.issue("other", "URI:spiffe://test/other", usage=CLIENT)
        assert ask(server, other).startswith(b"HTTP/1.1 401")  # verified, but nobody gave it anything
        # a header is no certificate
        assert ask(server, None, ["x-client-cert: URI:spiffe://test/svc"]).startswith(b"HTTP/1.1 401")
        # revoked while serving: also for a session that could be resumed
        c = context(authority, good)
        with connect(server, c) as s:
            assert get(s).startswith(b"HTTP/1.1 200")
            ticket = s.session
        clients.revoke(good[0])
        n = len(server.records("certificates_read"))
        clients.crl()
        wait_until(lambda: len(server.records("certificates_read")) > n)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with connect(server, c, session=ticket) as s:
                assert not get(s)
                raise ConnectionError("closed")


def test_only_13(models, authority):
    pair = authority.issue("n", "DNS:a.test")
    with start(models, [pair], "--tls.min_version=1.3") as server:
        with connect(server, context(authority)) as s:
            assert s.version() == "TLSv1.3"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connect(server, context(authority, maximum_version=ssl.TLSVersion.TLSv1_2))


def test_bad_files_stop_the_start(models, authority, tmp_path):
    from inferd_server import BINARY

    cert, key = authority.issue("ok", "DNS:a.test")
    other = authority.issue("ok2", "DNS:a.test")[1]
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "pkcs8", "-topk8", "-in", str(key), "-out", str(locked), "-passout", "pass:x"], check=True)
    cases = [(cert, other, "does not fit"), (key, key, "not readable PEM"), (cert, cert, "no private key"), (cert, locked, "password"),
             (tmp_path / "absent", key, "absent")]
    for c, k, word in cases:
        done = subprocess.run([BINARY, "serve", str(models), "--http.listen=127.0.0.1:0", "--grpc.listen=", "--metrics.listen=", f"--tls.certificates={c}",
                               f"--tls.keys={k}"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and word in done.stderr, (word, done.stderr)


def test_stop_closes_cleanly(models, authority):
    pair = authority.issue("z", "DNS:a.test")
    server = start(models, [pair])
    s = connect(server, context(authority))
    s.sendall(b"GET /v2 HTTP/1.1\r\nHost: a.test\r\n\r\n")
    assert s.recv(65536).startswith(b"HTTP/1.1 200")
    server.process.send_signal(signal.SIGTERM)
    assert s.recv(10) == b""  # close_notify: a cut would raise
    server.process.wait(30)
    server.stop()


def test_many_connections_come_and_go(server, authority):
    c = context(authority)
    for _ in range(3):
        threads = [threading.Thread(target=lambda: get(connect(server, c))) for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    if os.environ.get("INFERD_BUILD") in ("asan", "tsan"):
        return  # freed memory is kept there
    before = server.rss_bytes()
    for _ in range(200):
        connect(server, c).close()
    assert server.rss_bytes() - before < 16 << 20


def test_http2(server, authority):
    """By ALPN, and not when the client doesn't ask for it; large bodies both ways over one connection."""
    def curl(*arguments):
        return subprocess.run(["curl", "-sS", "--cacert", str(authority.ca), "--resolve", f"a.test:{server.port}:127.0.0.1", *arguments],
                              capture_output=True, text=True, timeout=60)

    url = f"https://a.test:{server.port}/v2"
    assert curl("--http2", "-o", os.devnull, "-w", "%{http_version} %{http_code}", url).stdout == "2 200"
    assert curl("--http1.1", "-o", os.devnull, "-w", "%{http_version} %{http_code}", url).stdout == "1.1 200"
    body = '{"inputs":[{"name":"X","shape":[1,200000],"datatype":"FP32","data":[%s]}]}' % ",".join(["1.5"] * 200000)
    infer = url + "/models/echo/infer"
    done = subprocess.run(["curl", "-sS", "--http2", "--cacert", str(authority.ca), "--resolve", f"a.test:{server.port}:127.0.0.1",
                           "--data-binary", "@-", "-H", "Expect:", infer, infer], input=body, capture_output=True, text=True, timeout=60)
    assert done.stdout.count("1.5") >= 200000, done.stderr


def test_with_tls_and_keys_others_may_reach_it(models, authority, tmp_path):
    """Off loopback each of the two alone is refused, both together need no --insecure."""
    from inferd_server import BINARY

    cert, key = authority.issue("open", "DNS:a.test")
    keys = tmp_path / "keys"
    secret = make(keys, "a", "-s", "read")
    tls, auth = [f"--tls.certificates={cert}", f"--tls.keys={key}"], [f"--auth.keys_file={keys}"]
    for flags, word in ((tls, "no authentication"), (auth, "no TLS")):
        done = subprocess.run([BINARY, "serve", str(models), "--http.listen=0.0.0.0:0", "--metrics.listen=", *flags], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 2 and word in done.stderr
    with start(models, [(cert, key)], "--http.listen=0.0.0.0:0", *auth) as server:
        assert not server.records("open_without_tls") and not server.records("open_without_authentication")
        with connect(server, context(authority)) as s:
            assert get(s, headers=["x-api-key: " + secret]).startswith(b"HTTP/1.1 200")


def test_our_own_client_verifies(server, authority):
    from inferd_server import BINARY

    def run(url, ca):
        env = {**os.environ, "INFERD_URL": url, "INFERD_CA": str(ca) if ca else ""}
        return subprocess.run([BINARY, "models"], capture_output=True, text=True, env=env, timeout=60)

    good = f"https://localhost:{server.port}"
    assert "simple" in run(good, authority.ca).stdout
    stranger = run(good, None)
    assert stranger.returncode == 1 and "TLS failed" in stranger.stderr
    wrong_name = run(f"https://127.0.0.1:{server.port}", authority.ca)
    assert wrong_name.returncode == 1 and "TLS failed" in wrong_name.stderr and "mismatch" in wrong_name.stderr
