"""API keys and the authorisation point, on every route that the server has.

The routes come from the server's own table (`inferd keys routes`), so a route that is added without a scope fails here.
"""
import json
import re
import stat
import subprocess
import time

import pytest
import requests

from inferd_server import BINARY, SIMPLE, Server, wait_equal, wait_until as wait, write_fake

BODY = {"inputs": [{"name": n, "shape": [1, 16], "datatype": "INT32", "data": list(range(16))} for n in ("INPUT0", "INPUT1")]}


def keys(*arguments, check=True):
    done = subprocess.run([BINARY, "keys", *map(str, arguments)], capture_output=True, text=True)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def make(file, name, *flags):
    return keys("make", "--file", file, "--name", name, *flags).stdout.strip()


def routes():
    lines = keys("routes").stdout.splitlines()
    titles = re.split(r"  +", lines[0].strip())
    starts = [lines[0].index(t) for t in titles]
    rows = []
    for line in lines[1:]:
        cells = [line[a:b].strip() for a, b in zip(starts, starts[1:] + [len(line)])]
        rows.append(dict(zip(titles, cells)))
    return rows


ROUTES = [r for r in routes() if r["LISTENERS"] != "grpc"]  # gRPC's: test_grpc_auth.py
SCOPES = ("infer", "read", "admin")
OPEN = ("live", "ready")


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A server that asks for keys, in explicit mode so that load and unload work, and keys of all kinds."""
    root = tmp_path_factory.mktemp("auth")
    for model in ("simple", "secret", "loadable"):
        write_fake(root / "models", model, SIMPLE)
    write_fake(root / "models", "loadable-chat", "tokens = true\nanswer = yes\n")
    file = root / "keys"
    k = {scope: make(file, scope, "-s", scope) for scope in SCOPES}
    k["all"] = make(file, "all", "-s", "infer,read,admin")
    k["expired"] = make(file, "expired", "-s", "infer,read,admin", "-e", "2001-01-01")
    k["some"] = make(file, "some", "-s", "infer,read,admin", "-m", "simple,load*", "-t", "acme")
    with Server(root / "models", args=["--repository.mode=explicit", "--repository.load=*", f"--auth.keys_file={file}",
                                       f"--audit.file={root}/audit"]) as server:
        server.k, server.file, server.audit = k, file, root / "audit"
        yield server


def call(server, listener, row, key, model="loadable"):
    openai = row["ROUTE"].startswith("openai_")
    if openai and model == "loadable":
        model = "loadable-chat"
    path = row["PATH"].replace("{m}", model).replace("{v}", "1")
    base = {"http": server.url, "metrics": server.metrics_url, "admin": server.admin_url}[listener]
    body = BODY if row["ROUTE"] == "infer" else {"level": "info"} if row["ROUTE"] == "admin_log_level" else \
        {"model": model, "prompt": "x", "messages": [{"role": "user", "content": "x"}]} if openai else {}
    return requests.request(row["METHOD"], base + path, json=body if row["METHOD"] == "POST" else None,
                            headers={"Authorization": "Bearer " + key} if key else {}, timeout=30)


@pytest.mark.parametrize("row", ROUTES, ids=lambda r: r["ROUTE"] + ":" + r["PATH"])
def test_every_route(closed, row):
    assert row["SCOPE"] in SCOPES, "a route that declares no scope"
    for listener in row["LISTENERS"].split():
        right = [closed.k[row["SCOPE"]], closed.k["all"]]
        wrong = [closed.k[s] for s in SCOPES if s != row["SCOPE"]]
        nobody = [None, closed.k["expired"], closed.k["all"][:-1] + "!", "inferd_0000000000000000_" + "0" * 64, "x"]
        for key in nobody:
            answer = call(closed, listener, row, key)
            if row["ROUTE"] in OPEN:
                assert answer.status_code == 200
                continue
            assert answer.status_code == 401, (row, key)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
            assert "error" in answer.json()
        for key in wrong:
            assert call(closed, listener, row, key).status_code == (200 if row["ROUTE"] in OPEN else 403)
        for key in right:
            answer = call(closed, listener, row, key)
            assert answer.status_code not in (401, 403, 404, 405), (row, answer.status_code, answer.text)
            if row["ROUTE"] == "repository_unload":
                requests.post(closed.url + "/v2/repository/models/loadable/load", headers={"x-api-key": closed.k["admin"]})
        # whoever may see only some models is told nothing about the others, and nothing about all of them at once
        if row["ROUTE"] in OPEN:
            continue
        if "{m}" in row["PATH"]:
            hidden = call(closed, listener, row, closed.k["some"], model="secret")
            absent = call(closed, listener, row, closed.k["some"], model="no-such")
            assert hidden.status_code == absent.status_code == 404
            assert hidden.text.replace("secret", "M") == absent.text.replace("no-such", "M")
        elif row["ROUTE"].startswith("openai_") and row["METHOD"] == "POST":
            hidden = call(closed, listener, row, closed.k["some"], model="secret")
            absent = call(closed, listener, row, closed.k["some"], model="no-such")
            assert hidden.status_code == absent.status_code == 404
            assert hidden.text.replace("secret", "M") == absent.text.replace("no-such", "M")
        elif row["MODELS"] == "all":
            assert call(closed, listener, row, closed.k["some"]).status_code == 403


def test_lists_hold_what_the_key_may_see(closed):
    for path, find in (("/v2/repository/index", lambda j: {r["name"] for r in j}),):
        for key, want in (("some", {"simple", "loadable", "loadable-chat"}), ("all", {"simple", "secret", "loadable", "loadable-chat"})):
            assert find(requests.post(closed.url + path, headers={"x-api-key": closed.k[key]}).json()) == want
    stats = requests.get(closed.url + "/v2/models/stats", headers={"x-api-key": closed.k["some"]}).json()
    assert {r["name"] for r in stats["model_stats"]} == {"simple", "loadable", "loadable-chat"}
    ready = closed.url + "/v2/health/ready?verbose"
    assert requests.get(ready).json()["models"] == []
    seen = requests.get(ready, headers={"x-api-key": closed.k["some"]}).json()["models"]
    assert {r["model"] for r in seen} == {"simple", "loadable", "loadable-chat"}
    assert requests.get(ready, headers={"x-api-key": closed.k["expired"]}).json()["models"] == []


def test_how_a_key_is_sent(closed):
    url, k = closed.url + "/v2", closed.k["read"]
    ok = [{"Authorization": "Bearer " + k}, {"authorization": "bearer " + k}, {"X-API-Key": k},
          {"Authorization": "Bearer " + k, "x-api-key": k}]
    bad = [{"Authorization": "Basic " + k}, {"Authorization": k}, {"Authorization": "Bearer"}, {"x-api-key": ""},
           {"Authorization": "Bearer " + k, "x-api-key": closed.k["all"]}, {"Authorization": "Bearer " + k + " x"}]
    for headers in ok:
        assert requests.get(url, headers=headers).status_code == 200, headers
    for headers in bad:
        assert requests.get(url, headers=headers).status_code == 401, headers


def test_two_headers_are_refused(closed):
    import socket

    host, port = closed.address.split(":")
    for second in (closed.k["read"], closed.k["all"]):
        with socket.create_connection((host, int(port))) as s:
            s.sendall(f"GET /v2 HTTP/1.1\r\nHost: x\r\nx-api-key: {closed.k['read']}\r\nx-api-key: {second}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: s.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 401 ")


def test_a_body_is_not_read_before_the_key_is_checked(closed):
    """Refused on its headers: a client that waits for 100 Continue never gets to send."""
    import socket

    host, port = closed.address.split(":")
    with socket.create_connection((host, int(port))) as s:
        s.settimeout(10)
        s.sendall(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n")
        assert s.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_made_and_revoked_while_serving(closed):
    key = make(closed.file, "late", "-s", "read")

    def status():
        return requests.get(closed.url + "/v2", headers={"x-api-key": key}).status_code

    wait(lambda: status() == 200)
    keys("revoke", "late", "--file", closed.file)
    wait(lambda: status() == 401)
    assert requests.get(closed.url + "/v2", headers={"x-api-key": closed.k["read"]}).status_code == 200


def test_a_broken_file_leaves_the_old_keys(closed):
    text = closed.file.read_text()
    closed.file.write_text(text + "{broken\n")
    wait(lambda: closed.records("keys_unusable"))
    assert requests.get(closed.url + "/v2", headers={"x-api-key": closed.k["read"]}).status_code == 200
    answer = requests.post(closed.admin_url + "/admin/reload", headers={"x-api-key": closed.k["admin"]})
    assert answer.status_code >= 400 and "keys" in answer.text
    closed.file.write_text(text)
    n = len(closed.records("keys_read"))
    wait(lambda: len(closed.records("keys_read")) > n)


def test_audit(closed):
    mark = {"x-request-id": "audit-1"}
    requests.get(closed.url + "/v2/models/secret", headers={**mark, "x-api-key": closed.k["some"]})
    requests.post(closed.url + "/v2/repository/models/loadable/load", headers={**mark, "x-api-key": closed.k["admin"]})
    requests.get(closed.url + "/v2", headers=mark)
    requests.get(closed.url + "/v2", headers={**mark, "x-api-key": closed.k["read"]})  # neither refused nor an admin's

    def found():
        lines = [json.loads(line) for line in closed.audit.read_text().splitlines()]
        return [r for r in lines if r.get("id") == "audit-1"]

    wait(lambda: len(found()) >= 3)
    hidden, load, nobody = found()
    some_id = closed.k["some"].split("_")[1]
    assert (hidden["status"], hidden["error"], hidden["subject"], hidden["tenant"], hidden["model"]) == \
        (404, "hidden_model", some_id, "acme", "secret")
    assert (load["status"], load["subject"], load["path"]) == \
        (200, closed.k["admin"].split("_")[1], "/v2/repository/models/loadable/load")
    assert (nobody["status"], nobody["error"]) == (401, "no_credentials") and "subject" not in nobody
    text = closed.audit.read_text() + "\n".join(closed.log_lines)
    for key in closed.k.values():
        assert key.split("_")[2] not in text, "a secret was written to a log"


def test_metrics(closed):
    def count(verdict):
        text = requests.get(closed.metrics_url + "/metrics", headers={"x-api-key": closed.k["read"]}).text
        return float(re.search(r'inferd_auth_total\{verdict="%s"\} (\S+)' % verdict, text).group(1))

    before = count("no_credentials")
    requests.get(closed.url + "/v2")
    wait_equal(lambda: count("no_credentials"), before + 1)


def test_the_command(tmp_path):
    file = tmp_path / "keys"
    key = make(file, "ci", "-t", "acme", "-s", "infer", "-m", "a*,b", "--class", "gold", "-e", "90d")
    assert re.fullmatch(r"inferd_[0-9a-f]{16}_[0-9a-f]{64}", key)
    assert key.split("_")[2] not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (row,) = [json.loads(line) for line in keys("list", "--json", "--file", file).stdout.splitlines()]
    assert row["id"] == key.split("_")[1] and row["scopes"] == "infer" and row["models"] == "a*,b" and row["class"] == "gold"
    assert abs(time.mktime(time.strptime(row["expires"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone - time.time() - 90 * 86400) < 60
    make(file, "ci")
    assert keys("revoke", "ci", "--file", file, check=False).returncode == 1  # two of that name
    keys("revoke", row["id"], "--file", file)
    keys("revoke", "ci", "--file", file)
    assert keys("list", "--json", "--file", file).stdout == ""
    for bad in (["make", "--name", "a b"], ["make", "--name", "a", "-s", "rad"], ["make", "--name", "a", "-e", "soon"],
                ["make", "--name", "a", "-m", "x/y"], ["make"], ["revoke"], ["revoke", "nobody"], ["frob"]):
        done = keys(*bad, "--file", file, check=False)
        assert done.returncode in (1, 2) and done.stderr, bad


def test_unusable_key_file_stops_the_start(repository):
    write_fake(repository, "simple", SIMPLE)
    for content, word in ((None, "keys"), ("{oops", ":1: ")):
        file = repository.parent / "keys"
        if content:
            file.write_text(content)
        done = subprocess.run([BINARY, "serve", str(repository), "--http.listen=127.0.0.1:0", "--grpc.listen=", "--metrics.listen=",
                               f"--auth.keys_file={file}"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and word in done.stderr
    file.write_text("")
    done = subprocess.run([BINARY, "serve", str(repository), "--http.listen=127.0.0.1:0", "--grpc.listen=", "--metrics.listen=",
                           f"--auth.keys_file={file}", "--auth.open=lives"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "lives" in done.stderr


def test_check_reads_the_files_of_the_edge(repository, tmp_path):
    write_fake(repository, "simple", SIMPLE)
    keys, quotas, jwks = tmp_path / "keys", tmp_path / "quotas", tmp_path / "jwks"

    def check(*flags):
        return subprocess.run([BINARY, "check", str(repository), *flags], capture_output=True, text=True, timeout=60)

    make(keys, "a")
    quotas.write_text("policies: [{name: a, concurrent: 1}]")
    good = check(f"--auth.keys_file={keys}", f"--quota.file={quotas}", "--proxy.trusted=10.0.0.0/8", "--jwt.keys=https://nobody.test/jwks",
                 "--jwt.issuer=x", "--jwt.audience=y")
    assert good.returncode == 0, good.stderr
    for file, text, flags in ((keys, "{", [f"--auth.keys_file={keys}"]), (quotas, "x: 1", [f"--quota.file={quotas}"]),
                              (jwks, "{}", [f"--jwt.keys={jwks}", "--jwt.issuer=x", "--jwt.audience=y"]),
                              (None, None, ["--tls.certificates=/nowhere"]), (None, None, ["--proxy.trusted=10.0.0.0/99"])):
        if file:
            file.write_text(text)
        bad = check(*flags)
        assert bad.returncode == 2 and flags[0].split("=")[0].strip("-").split(".")[0] in bad.stderr, bad.stderr


def test_open_probes_can_be_closed(repository):
    write_fake(repository, "simple", SIMPLE)
    file = repository.parent / "keys"
    key = make(file, "probe", "-s", "read")
    with Server(repository, args=[f"--auth.keys_file={file}", "--auth.open="], wait=None) as server:
        assert requests.get(server.url + "/v2/health/live").status_code == 401
        assert requests.get(server.url + "/v2/health/live", headers={"x-api-key": key}).status_code == 200


def test_what_is_open_is_said(repository):
    write_fake(repository, "simple", SIMPLE)
    command = [BINARY, "serve", str(repository), "--http.listen=0.0.0.0:0", "--grpc.listen=", "--metrics.listen=", "--log.format=json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "no authentication or TLS" in done.stderr and "--insecure" in done.stderr
    with Server(repository, args=["--http.listen=0.0.0.0:0", "--insecure"], wait=None) as server:
        server.wait_for_address("http")
        (auth,) = server.wait_records("open_without_authentication")
        assert auth["listener"] == "http" and "run models" in auth["anybody_may"]
        server.wait_records("open_without_tls")


def test_our_own_clients_bring_a_key(closed, tmp_path):
    import os

    def run(*arguments, key=None):
        env = {**os.environ, "INFERD_URL": closed.url, "INFERD_API_KEY": key or ""}
        return subprocess.run([BINARY, *arguments], capture_output=True, text=True, env=env, timeout=60)

    assert run("models").returncode == 1
    assert "secret" in run("models", key=closed.k["read"]).stdout
    assert "secret" not in run("models", key=closed.k["some"]).stdout
    infer = ("infer", "simple", "--zero", "--shape", "INPUT0=1,16", "--shape", "INPUT1=1,16")
    assert run(*infer, key=closed.k["read"]).returncode == 1
    assert run(*infer, key=closed.k["all"]).returncode == 0
    bench = ("bench", "simple", "--zero", "--shape", "INPUT0=1,16", "--shape", "INPUT1=1,16", "--duration=300ms", "--warmup=0s", "--json", "--quiet")
    done = run(*bench, key=closed.k["all"])
    assert done.returncode == 0, done.stderr
