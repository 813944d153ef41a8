"""Tokens: made by PyJWT and joserfc, good and forged in every way that the field has seen (RFC 8725)."""
import base64
import hashlib
import hmac
import http.server
import json
import os
import ssl
import threading
import time

import jwt
import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwk as jose_jwk
from joserfc import jwt as jose_jwt

from certificates import Authority
from inferd_server import SIMPLE, Server, wait_until, write_fake
from test_auth_keys import make

ISSUER, AUDIENCE = "https://issuer.test/", "inferd"


class Key:
    def __init__(self, alg, kid, private=None):
        make_one = {"RS256": lambda: rsa.generate_private_key(65537, 2048), "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
                    "EdDSA": ed25519.Ed25519PrivateKey.generate}
        self.alg, self.kid, self.private = alg, kid, private or make_one[alg]()

    def jwk(self, **more):
        family = {"RS256": jwt.algorithms.RSAAlgorithm, "ES256": jwt.algorithms.ECAlgorithm, "EdDSA": jwt.algorithms.OKPAlgorithm}
        data = json.loads(family[self.alg].to_jwk(self.private.public_key()))
        data.pop("key_ops", None)
        return {**data, "kid": self.kid, "use": "sig", **more}

    def token(self, headers=None, **claims):
        return jwt.encode({**good(), **claims}, self.private, self.alg, headers={"kid": self.kid, **(headers or {})})

    def pem(self):
        return self.private.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def good(**more):
    now = int(time.time())
    return {"iss": ISSUER, "aud": AUDIENCE, "exp": now + 600, "nbf": now - 5, "iat": now - 5, "sub": "alice",
            "scope": "openid read", "tenant": "acme", **more}


KEYS = {alg: Key(alg, "k-" + alg) for alg in ("RS256", "ES256", "EdDSA")}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("jwt")
    for name in ("simple", "secret"):
        write_fake(root / "models", name, SIMPLE)
    keys = root / "keys"
    key = make(keys, "human", "-s", "read")
    jwks = root / "jwks"
    jwks.write_text(json.dumps({"keys": [k.jwk() for k in KEYS.values()] + [
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"},
        {**KEYS["RS256"].jwk(), "kid": "for-encryption", "use": "enc"}]}))
    with Server(root / "models", args=[f"--jwt.keys={jwks}", f"--jwt.issuer={ISSUER}", f"--jwt.audience={AUDIENCE}",
                                       f"--auth.keys_file={keys}", f"--audit.file={root}/audit"]) as s:
        s.jwks, s.key, s.audit = jwks, key, root / "audit"
        yield s


def ask(server, token, path="/v2"):
    return requests.get(server.url + path, headers={"Authorization": "Bearer " + token})


@pytest.mark.parametrize("alg", KEYS)
def test_good_tokens(server, alg):
    for _ in range(2):  # verified, then remembered
        token = KEYS[alg].token()
        assert ask(server, token).status_code == ask(server, token).status_code == 200
    no_kid = jwt.encode(good(), KEYS[alg].private, alg)
    assert ask(server, no_kid).status_code == 200  # one key of that algorithm: no doubt which
    assert ask(server, KEYS[alg].token({"typ": "at+jwt"})).status_code == 200
    assert ask(server, KEYS[alg].token(aud=["other", AUDIENCE])).status_code == 200
    assert ask(server, KEYS[alg].token(exp=time.time() + 5.5)).status_code == 200


def test_joserfc(server):
    for alg, kty in (("RS256", jose_jwk.RSAKey), ("ES256", jose_jwk.ECKey), ("Ed25519", jose_jwk.OKPKey)):
        mine = KEYS["EdDSA" if alg == "Ed25519" else alg]
        key = kty.import_key(mine.private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                        serialization.NoEncryption()))
        header = {"alg": "EdDSA" if alg == "Ed25519" else alg, "kid": mine.kid}
        token = jose_jwt.encode(header, good(), key, algorithms=[header["alg"]])
        assert ask(server, token).status_code == 200, alg


def test_a_key_still_works_beside_tokens(server):
    assert requests.get(server.url + "/v2", headers={"x-api-key": server.key}).status_code == 200


@pytest.mark.parametrize("claims", [
    {"iss": "https://issuer.test"}, {"iss": None}, {"iss": [ISSUER]}, {"aud": "other"}, {"aud": ["a", "b"]}, {"aud": None}, {"aud": []},
    {"exp": int(time.time()) - 61}, {"exp": None}, {"exp": 0}, {"exp": -1}, {"exp": True}, {"exp": [9]}, {"exp": {}}, {"nbf": int(time.time()) + 300},
    {"iat": int(time.time()) + 300}, {"scope": 7}, {"scope": [7]}, {"scope": {}}, {"tenant": "a b"}, {"tenant": 7}, {"sub": 7},
    {"inferd_models": "a/b"}, {"inferd_models": ["a"]}], ids=str)
def test_bad_claims(server, claims):
    all_claims = {k: v for k, v in {**good(), **claims}.items() if v is not None}
    key = KEYS["EdDSA"].private
    header = part({"alg": "EdDSA", "kid": "k-EdDSA"})
    body = header + "." + part(all_claims)
    assert ask(server, body + "." + b64(key.sign(body.encode()))).status_code == 401


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(obj):
    return b64(json.dumps(obj).encode())


def signed(header, claims, alg="EdDSA"):
    body = part(header) + "." + part(claims)
    return body + "." + b64(KEYS["EdDSA"].private.sign(body.encode()))


def test_what_a_token_says_about_its_own_key_is_not_believed(server):
    mallory = Key("EdDSA", "k-EdDSA")
    for extra in ({"jwk": mallory.jwk()}, {"jku": "https://evil.test/"}, {"x5u": "https://evil.test/"}, {"x5c": ["AAAA"]},
                  {"crit": ["exp"]}, {"crit": ["b64"], "b64": False}, {"b64": False}, {"zip": "DEF"}, {"typ": "JWE"},
                  {"alg": "none"}, {"alg": "NONE"}, {"alg": "eddsa"}, {"alg": "RS512"}, {"alg": "PS256"}, {"alg": None}, {"alg": ["EdDSA"]}):
        token = signed({"alg": "EdDSA", "kid": "k-EdDSA", **extra}, good())
        assert ask(server, token).status_code == 401, extra
    assert ask(server, mallory.token()).status_code == 401


def test_none_and_confused_algorithms(server):
    claims = good()
    for alg in ("none", "None", ""):
        head = part({"alg": alg, "typ": "JWT"}) + "." + part(claims)
        for tail in (".", ".AA"):
            assert ask(server, head + tail).status_code == 401
    # HS256 with the public key's text as the secret (CVE-2015-9235), by each of its spellings
    for key in KEYS.values():
        for secret in (key.pem(), json.dumps(key.jwk()).encode(), b""):
            body = part({"alg": "HS256", "kid": key.kid}) + "." + part(claims)
            assert ask(server, body + "." + b64(hmac.new(secret, body.encode(), hashlib.sha256).digest())).status_code == 401
    body = part({"alg": "HS256", "kid": "shared"}) + "." + part(claims)
    secret = base64.urlsafe_b64decode("c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA==")
    assert ask(server, body + "." + b64(hmac.new(secret, body.encode(), hashlib.sha256).digest())).status_code == 401
    # a key is for one algorithm: RS256's used with another kid's, and a key for encryption
    for kid in ("k-ES256", "k-EdDSA", "for-encryption"):
        assert ask(server, jwt.encode(claims, KEYS["RS256"].private, "RS256", headers={"kid": kid})).status_code == 401
    assert ask(server, jwt.encode(claims, KEYS["RS256"].private, "RS512", headers={"kid": "k-RS256"})).status_code == 401


def test_every_byte_counts(server):
    for key in KEYS.values():
        token = key.token()
        for i in range(0, len(token), 7):
            other = "A" if token[i] != "A" else "B"
            assert ask(server, token[:i] + other + token[i + 1:]).status_code == 401, i
        assert ask(server, token + "=").status_code == ask(server, token + "A").status_code == ask(server, token[:-1]).status_code == 401
    head, body, sig = KEYS["ES256"].token().split(".")
    raw = base64.urlsafe_b64decode(sig + "==")
    n = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    for r, s in ((0, 0), (int.from_bytes(raw[:32], "big"), 0), (n, n), (0, int.from_bytes(raw[32:], "big"))):  # CVE-2022-21449
        assert ask(server, f"{head}.{body}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}").status_code == 401


def test_garbage(server):
    for token in ("..", "a.b.c", "a.b", "a.b.c.d", "a.b.c.d.e", "." * 100, "A" * 9000 + "." + "A" * 9000 + ".", b64(b"[]") + "." + b64(b"{}") + ".AA",
                  b64(b'{"alg":"EdDSA","alg":"none"}') + "." + b64(b"{}") + ".AA", b64(b"{" * 500) + ".AA.AA", b64(b'{"alg":"EdDSA"}') + "." + b64(b"\xff") + ".AA"):
        assert ask(server, token).status_code in (401, 431), token
    server.alive()


def test_scopes_and_models(server):
    assert ask(server, KEYS["EdDSA"].token(scope="openid email")).status_code == 403
    assert ask(server, KEYS["EdDSA"].token(scope=["x", "read"])).status_code == 200
    assert ask(server, KEYS["EdDSA"].token(scope="reader admin,read")).status_code == 403
    token = KEYS["EdDSA"].token(inferd_models="sim*")
    assert ask(server, token, "/v2/models/simple").status_code == 200
    assert ask(server, token, "/v2/models/secret").status_code == 404
    wait_until(lambda: any(r.get("subject") == "alice" and r.get("tenant") == "acme" and r["error"] == "hidden_model"
                     for r in map(json.loads, server.audit.read_text().splitlines())))


def test_a_token_ends_while_remembered(server):
    """The server is asked until it says no: not before exp, and within the skew behind it."""
    end = time.time() + 2
    token = KEYS["RS256"].token(exp=end - 30)  # the skew's last two seconds
    assert ask(server, token).status_code == 200
    wait_until(lambda: ask(server, token).status_code == 401)
    assert time.time() >= end - 1.1


def test_a_new_key_file(server):
    fresh = Key("EdDSA", "fresh")
    old_text = server.jwks.read_text()
    assert ask(server, fresh.token()).status_code == 401
    server.jwks.write_text(json.dumps({"keys": [fresh.jwk()]}))
    wait_until(lambda: ask(server, fresh.token()).status_code == 200)
    assert ask(server, KEYS["EdDSA"].token()).status_code == 401
    server.jwks.write_text('{"keys": [')
    wait_until(lambda: server.records("issuer_keys_unusable"))
    assert ask(server, fresh.token()).status_code == 200
    server.jwks.write_text(old_text)
    wait_until(lambda: ask(server, KEYS["EdDSA"].token()).status_code == 200)


class Issuer:
    """An HTTP(S) server with a key set that tests change."""

    def __init__(self, context=None):
        self.keys, self.asked, self.status = [], 0, 200
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.asked += 1
                body = json.dumps({"keys": issuer.keys}).encode()
                self.send_response(issuer.status if self.path == "/oauth/jwks?v=1" else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context:
            self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True)
        self.port = self.httpd.server_port
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()


@pytest.mark.skipif(os.environ.get("INFERD_BUILD") in ("asan", "tsan", "ubsan"), reason="it waits for two real half minutes; the plain build has it")
@pytest.mark.skipif(os.environ.get("INFERD_BUILD", "debug") != "debug", reason="a minute of waiting: once is enough")
def test_url(repository):
    """Asked at start; an unknown key makes it ask again, but not before 30 s; a failure leaves the old keys (a second server beside, so as to wait once)."""
    write_fake(repository, "simple", SIMPLE)
    issuer, failing = Issuer(), Issuer()
    first, second = Key("ES256", "first"), Key("EdDSA", "second")
    issuer.keys, failing.keys = [first.jwk()], [first.jwk(), second.jwk()]

    def believing(i):
        return Server(repository, args=[f"--jwt.keys=http://127.0.0.1:{i.port}/oauth/jwks?v=1", f"--jwt.issuer={ISSUER}", f"--jwt.audience={AUDIENCE}"])

    with believing(issuer) as server, believing(failing) as left_alone:
        wait_until(lambda: ask(server, first.token()).status_code == 200)
        wait_until(lambda: ask(left_alone, first.token()).status_code == 200)
        begun = time.monotonic()
        assert issuer.asked == 1
        failing.status = 500
        assert ask(left_alone, Key("EdDSA", "other").token()).status_code == 401
        issuer.keys = [first.jwk(), second.jwk()]
        for i in range(200):
            assert ask(server, Key("EdDSA", f"random-{i}", second.private).token()).status_code == 401
        assert issuer.asked == 1
        wait_until(lambda: ask(server, second.token()).status_code == 200, 60)
        assert time.monotonic() - begun > 25 and issuer.asked == 2
        wait_until(lambda: left_alone.records("issuer_keys_unusable"), 60)
        assert ask(left_alone, second.token()).status_code == ask(left_alone, first.token()).status_code == 200


def test_https(repository, tmp_path):
    write_fake(repository, "simple", SIMPLE)
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("issuer", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    issuer = Issuer(context)
    mine = Key("EdDSA", "k")
    issuer.keys = [mine.jwk()]
    args = [f"--jwt.keys=https://127.0.0.1:{issuer.port}/oauth/jwks?v=1", f"--jwt.issuer={ISSUER}", f"--jwt.audience={AUDIENCE}"]
    with Server(repository, args=[*args, f"--jwt.ca={authority.ca}"]) as server:
        wait_until(lambda: ask(server, mine.token()).status_code == 200)
    with Server(repository, args=args) as server:  # an authority that nobody named
        wait_until(lambda: server.records("issuer_keys_unusable"))
        assert ask(server, mine.token()).status_code == 503


def test_configuration(repository, tmp_path):
    import subprocess

    from inferd_server import BINARY

    write_fake(repository, "simple", SIMPLE)
    small = rsa.generate_private_key(65537, 1024)
    files = {"weak": [Key("RS256", "k", small).jwk()], "empty": [], "twice": [KEYS["ES256"].jwk(), KEYS["ES256"].jwk()],
             "point": [{**KEYS["ES256"].jwk(), "x": KEYS["ES256"].jwk()["y"]}]}
    words = {"weak": "2048", "empty": "none of its keys", "twice": "kid", "point": "P-256"}
    for name, keys in files.items():
        path = tmp_path / name
        path.write_text(json.dumps({"keys": keys}))
        done = subprocess.run([BINARY, "serve", str(repository), "--http.listen=127.0.0.1:0", "--grpc.listen=", "--metrics.listen=", f"--jwt.keys={path}",
                               f"--jwt.issuer={ISSUER}", f"--jwt.audience={AUDIENCE}"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and words[name] in done.stderr, done.stderr
    done = subprocess.run([BINARY, "serve", str(repository), f"--jwt.keys={path}", f"--jwt.issuer={ISSUER}"], capture_output=True, text=True)
    assert done.returncode == 2 and "jwt.audience" in done.stderr
