"""test_gateway_tls.py: TLS between the gateway and its upstreams: who is believed, who proves what, and what a client sees when that fails."""
import ssl
import time

import pytest
import requests

from certificates import Authority
from gateway_upstream import Upstream, answer
from inferd_server import wait_equal, wait_until
from test_gateway import gateway, pool, text_of

WORDS = "a secure connection to the server for this request can't be made"
SAID = {"hostname mismatch": WORDS + ": its certificate is for another name", "certificate has expired": WORDS + ": its certificate is not valid at this time",
        "unable to get local issuer certificate": WORDS + ": its certificate is not from an authority that is believed"}


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """An authority and what it issued: name -> (certificate, key)."""
    a = Authority(tmp_path_factory.mktemp("pki") / "ca")
    a.pairs = {"ip": a.issue("ip", "IP:127.0.0.1"), "name": a.issue("name", "DNS:replica.test"), "other": a.issue("other", "DNS:other.test"),
               "expired": a.issue("expired", "IP:127.0.0.1", starts=-20, ends=-10),
               "client": a.issue("client", "DNS:gateway.test", usage="clientAuth")}
    a.stranger = Authority(tmp_path_factory.mktemp("pki2") / "ca", "a stranger")
    a.pairs["stranger"] = a.stranger.issue("stranger", "IP:127.0.0.1")
    return a


def serving(pki, name, version=None, ask_client=False):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(*map(str, pki.pairs[name]))
    if version:
        c.minimum_version = c.maximum_version = version
    if ask_client:
        c.verify_mode = ssl.CERT_REQUIRED
        c.load_verify_locations(str(pki.ca))
    return c


def test_names_and_authorities(tmp_path, pki):
    """An address and a name that fit are answered; another name, an expired certificate and a stranger's are a 502 that says so, at once,
    and the log says which it was. A client's certificate is shown where one is asked for."""
    cases = [("ip", {}, None), ("name", {"name": "replica.test"}, None), ("other", {"name": "replica.test"}, "hostname mismatch"),
             ("ip", {"name": "replica.test"}, "hostname mismatch"), ("expired", {}, "certificate has expired"),
             ("stranger", {}, "unable to get local issuer certificate")]
    upstreams = [Upstream(answer(b'"it"'), tls=serving(pki, name)) for name, _, _ in cases]
    pools = [pool([u], f"p{i}", tls={"ca": str(pki.ca), **tls}, max_fails=1000) for i, (u, (_, tls, _)) in enumerate(zip(upstreams, cases))]
    with gateway(tmp_path, text_of(pools, [{"path": f"/{i}", "upstream": f"p{i}"} for i in range(len(cases))])) as g:
        for i, (_, tls, why) in enumerate(cases):
            start = time.monotonic()
            reply = requests.post(f"{g.url}/{i}", data=b"x")
            assert time.monotonic() - start < 2
            if why is None:
                assert (reply.status_code, reply.text) == (200, '"it"')
                assert upstreams[i].sni == [tls.get("name")]  # an address is no server name (RFC 6066)
                continue
            assert (reply.status_code, reply.json()["error"]) == (502, SAID[why]), why
            assert upstreams[i].requests == []
            wait_until(lambda: any(why in r["reason"] and r["pool"] == f"p{i}" for r in g.records("upstream_tls_failed")), what=why)
            g.wait_metric("inferd_upstream_requests_total", 1, pool=f"p{i}", outcome="gateway_failure")
    for u in upstreams:
        u.close()


def test_a_failed_handshake_is_tried_elsewhere_and_ejected(tmp_path, pki):
    """It counts as a connection that did not come about: nobody sees it while another server answers."""
    with Upstream(answer(b'"good"'), tls=serving(pki, "ip")) as good, Upstream(answer(), tls=serving(pki, "expired")) as bad, \
            Upstream(answer()) as plain:
        with gateway(tmp_path, text_of([pool([good, bad, plain], tls={"ca": str(pki.ca)})], [{"path": "/x", "upstream": "p"}])) as g:
            assert [requests.post(g.url + "/x", data=b"1").text for _ in range(30)] == ['"good"'] * 30
            g.wait_metric("inferd_upstream_requests_total", 5, upstream=bad.address, outcome="gateway_failure")
            g.wait_metric("inferd_upstream_requests_total", 5, upstream=plain.address, outcome="gateway_failure")
            assert bad.requests == [] and plain.requests == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates_and_sessions(tmp_path, pki, version):
    """mTLS: with our certificate it is answered, without it is 502. A second connection resumes the first one's session."""
    cert, key = map(str, pki.pairs["client"])
    names = []

    def who(connection, request):
        names.append(connection.getpeercert()["subjectAltName"])
        answer(b"x" * 100000, headers=[("Connection", "close")])(connection, request)
        return "close"

    with Upstream(who, tls=serving(pki, "ip", version, ask_client=True)) as u:
        text = text_of([pool([u], "with", tls={"ca": str(pki.ca), "certificate": cert, "key": key}), pool([u], "without", tls={"ca": str(pki.ca)})],
                       [{"path": "/with", "upstream": "with"}, {"path": "/without", "upstream": "without"}])
        with gateway(tmp_path, text, "--http.threads=1") as g:
            for _ in range(3):
                assert requests.post(g.url + "/with", data=b"y" * 50000).content == b"x" * 100000
            assert names == [(("DNS", "gateway.test"),)] * 3
            assert u.resumed == [False, True, True]
            assert requests.post(g.url + "/without", data=b"1").status_code == 502
            assert len(names) == 3


def test_checks_speak_tls(tmp_path, pki):
    """Active checks go the same way as requests: a certificate that has expired takes the server out, a good one brings it back."""
    with Upstream(answer(b'"it"'), tls=serving(pki, "expired")) as u:
        text = text_of([pool([u], tls={"ca": str(pki.ca)}, check={"path": "/ready", "interval": "50ms", "rise": 1})],
                       [{"path": "/x", "upstream": "p"}])
        with gateway(tmp_path, text) as g:
            wait_until(lambda: requests.get(g.url + "/x").status_code == 503)
            wait_until(lambda: any("certificate has expired" in r["reason"] for r in g.records("upstream_tls_failed")))
            u.tls = serving(pki, "ip")
            wait_until(lambda: requests.get(g.url + "/x").status_code == 200)


def test_new_files_are_taken_at_reload(tmp_path, pki):
    """Other authorities under the same name: from the reload on, the server is believed."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes(pki.stranger.ca.read_bytes())
    with Upstream(answer(b'"it"'), tls=serving(pki, "ip")) as u:
        with gateway(tmp_path, text_of([pool([u], tls={"ca": str(ca)})], [{"path": "/x", "upstream": "p"}])) as g:
            assert requests.get(g.url + "/x").status_code == 502
            ca.write_bytes(pki.ca.read_bytes())
            assert requests.post(g.admin_url + "/admin/reload").status_code == 200
            assert requests.get(g.url + "/x").status_code == 200


def test_what_can_not_be_configured(tmp_path, pki):
    with Upstream(answer()) as u, gateway(tmp_path, text_of([pool([u])], [{"path": "/x", "upstream": "p"}])) as g:
        for more, words in (({"tls": {"name": "a"}}, "upstreams[].tls.name of pool 'p' needs tls.ca"),
                            ({"tls": {"ca": "/nowhere.pem"}}, "/nowhere.pem holds no usable certificate"),
                            ({"tls": {"ca": str(pki.ca), "key": "k"}}, "needs tls.certificate"),
                            ({"tls": {"ca": str(pki.ca), "certificate": str(pki.pairs["client"][0])}}, "holds no private key"),
                            ({"protocol": "auto"}, "auto needs tls.ca"), ({"protocol": "http3"}, "give one of http1 http2 auto")):
            (tmp_path / "gateway.yaml").write_text(text_of([pool([u], **more)], [{"path": "/x", "upstream": "p"}]))
            reply = requests.post(g.admin_url + "/admin/reload")
            assert reply.status_code == 400 and words in reply.text, reply.text
        assert requests.get(g.url + "/x").status_code == 200


def test_idle_connections_end(tmp_path):
    """keepalive_timeout: an idle connection is closed then, and the next request makes another one."""
    with Upstream(answer()) as u:
        with gateway(tmp_path, text_of([pool([u], keepalive_timeout="200ms")], [{"path": "/x", "upstream": "p"}]), "--http.threads=1") as g:
            for _ in range(3):
                assert requests.get(g.url + "/x").status_code == 200
            assert u.connections == 1
            assert u.closed.acquire(timeout=5)
            assert requests.get(g.url + "/x").status_code == 200
            assert u.connections == 2


def test_connections_are_kept_ready(tmp_path):
    """keepalive_min: opened ahead, not closed for their age; a reload that changes the pool lets them go."""
    with Upstream(answer()) as u:
        text = text_of([pool([u], keepalive_min=3, keepalive_timeout="200ms")], [{"path": "/x", "upstream": "p"}])
        with gateway(tmp_path, text, "--http.threads=1") as g:
            assert requests.get(g.url + "/x").status_code == 200
            wait_equal(lambda: u.connections, 4)
            assert u.closed.acquire(timeout=5)  # the fourth is one more than has to be there
            assert not u.closed.acquire(timeout=0.6)
            assert requests.get(g.url + "/x").status_code == 200
            (tmp_path / "gateway.yaml").write_text(text_of([pool([u], keepalive_min=0, keepalive_timeout="300ms")], [{"path": "/x", "upstream": "p"}]))
            assert requests.post(g.admin_url + "/admin/reload").status_code == 200
            for _ in range(3):
                assert u.closed.acquire(timeout=5)
