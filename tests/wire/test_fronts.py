"""test_fronts.py: `inferd export`: what it writes is taken by the real nginx, HAProxy and Envoy, and does what inferd's own configuration says:
inference, events as they come, gRPC with its errors, the routes in their order, TLS, and no failed request when a replica is killed."""
import json
import re
import shutil
import signal
import subprocess

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from websockets.sync.client import connect

import certificates
import fronts
from gateway_upstream import Received, Upstream, answer, events
from inferd_server import BINARY, SIMPLE, Server, wait_equal, wait_until, write_fake
from test_gateway_websocket import Echo

BODY = {"inputs": [{"name": n, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for n in ("INPUT0", "INPUT1")]}
SUM = [2 * i for i in range(16)]


def export(kind, config, *args):
    return subprocess.run([BINARY, "export", kind, f"--config={config}", *args], capture_output=True, text=True)


def echo_headers(connection, request):
    """Answers with the request as it arrived."""
    said = json.dumps({"target": request.target, "headers": {k.lower(): v for k, v in request.headers}})
    answer(said.encode(), headers=[("Content-Type", "application/json")])(connection, request)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "simple", SIMPLE)
    return root


@pytest.fixture(scope="module")
def steady(repository):
    with Server(repository) as server:
        yield server


class Setting:
    """One front before two replicas, and two small upstreams behind routes of their own."""


@pytest.fixture(scope="module", params=fronts.NAMES)
def setting(request, steady, repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    s = Setting()
    s.port, s.grpc_port = fronts.free_port(), fronts.free_port()
    s.victim = Server(repository)
    request.addfinalizer(lambda: s.victim.stop(expect=None))  # a test kills it
    with Upstream(answer()) as stream, Upstream(echo_headers) as echo, Upstream(answer(b'"blue"')) as blue:
        config = folder / "inferd.yaml"
        config.write_text(json.dumps({"upstreams": [
            {"name": "events", "servers": [stream.address]},
            {"name": "echo", "servers": [echo.address]},
            {"name": "blue", "balance": "least_conn", "servers": [{"address": blue.address, "weight": 3, "max_conns": 8}]}], "routes": [
            {"path_prefix": "/events", "upstream": "events"},
            {"path": "/echo", "methods": ["POST"], "header": "x-team: blue", "upstream": "blue"},
            {"path": "/echo", "upstream": "echo", "set_headers": ["X-Set: it's \"5%\""], "remove_headers": ["x-secret"]},
            {"model": "old-*", "upstream": "echo", "rewrite_model": "new"}]}))
        made = export(request.param, config, f"--listen=127.0.0.1:{s.port}", f"--grpc-listen=127.0.0.1:{s.grpc_port}", steady.address,
                      s.victim.address)
        assert made.returncode == 0, made.stderr
        s.notes, s.text, s.steady, s.url = made.stderr, made.stdout, steady, f"http://127.0.0.1:{s.port}"
        s.upstreams = {"events": stream, "echo": echo, "blue": blue}
        with fronts.Front(request.param, made.stdout, folder, [s.port, s.grpc_port]) as s.front:
            yield s


def infer(url, **kw):
    return requests.post(f"{url}/v2/models/simple/infer", json=BODY, **kw)


def test_inference(setting):
    """What no route takes goes to the replicas, both of them."""
    def taken(server):
        return server.metric("inferd_requests_total", model="simple")

    before = [taken(setting.steady), taken(setting.victim)]
    for _ in range(12):
        reply = infer(setting.url)
        assert reply.status_code == 200, setting.front.said()
        assert reply.json()["outputs"][0]["data"] == SUM
    wait_equal(lambda: taken(setting.steady) + taken(setting.victim), sum(before) + 12)
    assert taken(setting.steady) > before[0] and taken(setting.victim) > before[1]


def test_events_come_as_they_are_sent(setting):
    """Each of 8 events is at the client before the next is sent: none is held back."""
    received, lines = Received(), []
    setting.upstreams["events"].behave = events(8, received.wait)
    with requests.get(setting.url + "/events", stream=True, timeout=20) as reply:
        assert reply.headers["content-type"] == "text/event-stream"
        for line in reply.iter_lines():
            if line.startswith(b"data: "):
                lines.append(line)
                received.said()
    assert lines == [b"data: %d" % i for i in range(8)] + [b"data: [DONE]"]


def test_grpc(setting):
    """An inference, and an error with its own code: trailers pass."""
    with triton.InferenceServerClient(f"127.0.0.1:{setting.grpc_port}") as client:
        inputs = []
        for name in ("INPUT0", "INPUT1"):
            inputs.append(triton.InferInput(name, [1, 16], "INT32"))
            inputs[-1].set_data_from_numpy(np.arange(16, dtype=np.int32).reshape(1, 16))
        assert client.infer("simple", inputs).as_numpy("OUTPUT0").tolist() == [SUM]
    with grpc.insecure_channel(f"127.0.0.1:{setting.grpc_port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(pb.ModelInferRequest(model_name="absent"), timeout=10)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_routes_in_their_order(setting):
    """The first that matches, by method and header; headers set and removed; a model's name rewritten in the path."""
    assert requests.post(setting.url + "/echo", headers={"x-team": "blue"}, data=b"x").json() == "blue"
    assert requests.post(setting.url + "/echo", headers={"x-team": "bluer"}, data=b"x").json()["target"] == "/echo"
    said = requests.get(setting.url + "/echo?q=1", headers={"x-team": "blue", "x-secret": "s", "X-Forwarded-For": "6.6.6.6"}).json()
    assert said["target"] == "/echo?q=1"
    assert said["headers"]["x-set"] == "it's \"5%\""
    assert "x-secret" not in said["headers"]
    assert "6.6.6.6" not in said["headers"]["x-forwarded-for"].split(",")[-1]
    assert said["headers"]["x-request-id"]
    moved = requests.post(setting.url + "/v2/models/old-1/infer", json={})
    assert moved.json()["target"] == "/v2/models/new/infer"
    assert requests.get(setting.url + "/echoes").status_code == 404  # inferd's own answer: `path` is the whole path


def test_large_bodies(setting):
    """As large as our own limit says, not as the front would have it by itself (1 MB in nginx)."""
    text = json.dumps(BODY) + " " * (3 << 20)
    reply = requests.post(f"{setting.url}/v2/models/simple/infer", data=text, headers={"Content-Type": "application/json"})
    assert reply.status_code == 200, reply.text[:300]
    assert reply.json()["outputs"][0]["data"] == SUM


def test_what_is_not_said(setting):
    """Every thing that the front has no words for is named, on stderr and at the head."""
    for note in setting.notes.splitlines():
        assert note.startswith("inferd: not said: ")
        assert f"# {note.removeprefix('inferd: ')}" in setting.text
    assert "routes[3]: model is seen in the path" in setting.notes
    assert "routes[3]: rewrite_model changes the path only" in setting.notes
    if setting.front.name == "nginx":
        assert "upstreams[inferd]: check: nginx" in setting.notes and "max_body" in setting.notes
    if setting.front.name == "envoy":
        assert "max_conns" in setting.notes


def test_a_replica_killed(setting):
    """No request fails: neither those at once, nor those that come later. (Last: it takes the replica.)"""
    setting.victim.process.send_signal(signal.SIGKILL)
    setting.victim.process.wait()
    session = requests.Session()
    replies = [session.post(f"{setting.url}/v2/models/simple/infer", json=BODY) for _ in range(40)]
    assert [r.status_code for r in replies] == [200] * 40, setting.front.said()
    assert replies[-1].json()["outputs"][0]["data"] == SUM
    with triton.InferenceServerClient(f"127.0.0.1:{setting.grpc_port}") as client:
        assert client.is_model_ready("simple")


@pytest.mark.parametrize("kind", fronts.NAMES)
def test_tls(kind, steady, tmp_path):
    """One port with TLS: HTTP/1.1, HTTP/2 and gRPC by ALPN; the certificate is ours."""
    port = fronts.free_port()
    ca = certificates.Authority(tmp_path / "ca")
    chain, key = ca.issue("localhost", "DNS:localhost")
    if kind == "haproxy":  # which reads the key from beside the certificate, as a note says
        shutil.copy(key, f"{chain}.key")
    config = tmp_path / "inferd.yaml"
    config.write_text(json.dumps({"tls": {"certificates": [str(chain)], "keys": [str(key)]}}))
    made = export(kind, config, f"--listen=127.0.0.1:{port}", steady.address)
    assert made.returncode == 0 and "tls: it ends at the front" in made.stderr, made.stderr
    with fronts.Front(kind, made.stdout, tmp_path, [port]) as front:
        reply = infer(f"https://localhost:{port}", verify=str(ca.ca))
        assert reply.status_code == 200 and reply.json()["outputs"][0]["data"] == SUM, front.said()
        credentials = grpc.ssl_channel_credentials(open(ca.ca, "rb").read())
        with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert stub.ModelReady(pb.ModelReadyRequest(name="simple"), timeout=10).ready


@pytest.mark.parametrize("kind", fronts.NAMES)
def test_tls_to_the_servers(kind, repository, tmp_path):
    """Replicas that speak TLS and ask for a certificate: HTTP and gRPC reach them; one that proves another name gets no request."""
    port, grpc_port = fronts.free_port(), fronts.free_port()
    ca = certificates.Authority(tmp_path / "ca")
    chain, key = ca.issue("replica", "DNS:replica.test")
    mine, my_key = ca.issue("front", "DNS:front.test", usage="clientAuth")
    both = tmp_path / "both.pem"
    both.write_text(mine.read_text() + my_key.read_text())
    tls = {"ca": str(ca.ca), "certificate": str(both), "name": "replica.test"}
    with Server(repository, wait=None, args=(f"--tls.certificates={chain}", f"--tls.keys={key}", f"--tls.client_ca={ca.ca}",
                                             "--tls.client_auth=required")) as replica:
        config = tmp_path / "inferd.yaml"
        config.write_text(json.dumps({"upstreams": [{"name": "right", "servers": [replica.address], "tls": tls},
                                                    {"name": "wrong", "servers": [replica.address], "tls": {**tls, "name": "other.test"}}],
                                      "routes": [{"path_prefix": "/wrong", "upstream": "wrong"}, {"path_prefix": "/", "upstream": "right"}]}))
        made = export(kind, config, f"--listen=127.0.0.1:{port}", f"--grpc-listen=127.0.0.1:{grpc_port}", "127.0.0.1:1")
        assert made.returncode == 0, made.stderr
        wait_until(lambda: requests.get(replica.metrics_url + "/v2/health/ready").status_code == 200)
        with fronts.Front(kind, made.stdout, tmp_path, [port, grpc_port]) as front:
            reply = infer(f"http://127.0.0.1:{port}")
            assert reply.status_code == 200 and reply.json()["outputs"][0]["data"] == SUM, front.said()
            with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                assert stub.ModelReady(pb.ModelReadyRequest(name="simple"), timeout=10).ready
            assert requests.get(f"http://127.0.0.1:{port}/wrong").status_code in (502, 503)


@pytest.mark.parametrize("kind", fronts.NAMES)
def test_websockets(kind, tmp_path):
    """A route that lets WebSockets through does so in the front, for a real server behind it, beside ordinary requests on the same route."""
    port, real = fronts.free_port(), Echo()
    config = tmp_path / "inferd.yaml"
    config.write_text(json.dumps({"upstreams": [{"name": "ws", "servers": [real.address]}],
                                  "routes": [{"path_prefix": "/echo", "upstream": "ws", "websocket": True}]}))
    made = export(kind, config, f"--listen=127.0.0.1:{port}", "127.0.0.1:1")
    assert made.returncode == 0, made.stderr
    with fronts.Front(kind, made.stdout, tmp_path, [port]):
        with connect(f"ws://127.0.0.1:{port}/echo", compression=None, max_size=None) as c:
            c.send(b"m" * (1 << 20))
            assert c.recv(timeout=10) == b"m" * (1 << 20)
        assert requests.get(f"http://127.0.0.1:{port}/echo").status_code == 426


def test_what_cannot_be_exported(tmp_path):
    """Errors name the argument and what is accepted."""
    config = tmp_path / "inferd.yaml"
    config.write_text('{"http": {"listen": ["127.0.0.1:0"]}}')
    for args, said in ((["traefik"], "there is no front 'traefik'; nginx, envoy and haproxy"),
                       (["nginx"], "http.listen 127.0.0.1:0 has no fixed port"),
                       (["nginx", "nowhere"], "the server 'nowhere' is not HOST:PORT"),
                       (["envoy", "h:1", "--listen=unix:/x"], "--listen: 'unix:/x' is not an address of the front"),
                       (["haproxy", "h:1", "--grpc-listen=x"], "--grpc-listen: 'x' is not an address of the front")):
        made = subprocess.run([BINARY, "export", *args, f"--config={config}"], capture_output=True, text=True)
        assert made.returncode == 2 and said in made.stderr and not made.stdout, (args, made.stderr)


@pytest.mark.parametrize("kind", fronts.NAMES)
def test_hostile_texts(kind, tmp_path):
    """What is quoted in our file stays one word in the front's, whatever is in it: its check passes, and the header arrives as it is."""
    value = "a'b\"c\\d{e};f#g %[src] %r |h"
    port = fronts.free_port()
    with Upstream(echo_headers) as echo:
        config = tmp_path / "inferd.yaml"
        config.write_text(json.dumps({"upstreams": [{"name": "a; } b'\"", "servers": [echo.address]}], "routes": [
            {"path_prefix": "/x'; }\"$uri(", "header": "x-a: '\"; $b }", "host": "*.x'y", "upstream": "a; } b'\""},
            {"path_prefix": "/", "set_headers": [f"x-set: {value}"], "upstream": "a; } b'\""}]}))
        made = export(kind, config, f"--listen=127.0.0.1:{port}", "127.0.0.1:1")
        assert made.returncode == 0, made.stderr
        with fronts.Front(kind, made.stdout, tmp_path, [port]):
            assert requests.get(f"http://127.0.0.1:{port}/").json()["headers"]["x-set"] == value


# A value of each key of `upstreams:` and `routes:` that is not its default. A key that isn't here fails the test: it has to be said, or noted.
SAMPLES = {
    "upstreams[]": {"name": "q", "balance": "p2c", "servers": ["127.0.0.2:1"], "servers_file": "/x", "servers_port": "grpc", "zone_header": "x-zone",
                    "hash_key": "path", "hash_header": "x-h", "min_healthy": 2, "max_fails": 7, "eject_base": "11s", "eject_max": "99s",
                    "slow_start": "13s", "keepalive_min": 3, "keepalive": 17, "keepalive_timeout": "19s", "ping_interval": "23s", "protocol": "http2",
                    "connect_timeout": "29s", "resolve_interval": "31s", "max_requests": 37, "queue": 41, "queue_timeout": "43s"},
    "upstreams[].servers[]": {"address": "127.0.0.3:1", "weight": 3, "backup": True, "zone": "z", "max_conns": 5, "max_fails": 7, "fail_timeout": "11s",
                              "slow_start": "13s"},
    "upstreams[].tls": {"ca": "/ca.pem", "certificate": "/c.pem", "key": "/k.pem", "name": "other.test"},
    "upstreams[].check": {"path": "/ready", "body": "{}", "content_type": "text/x", "expect": "yes", "grpc": True, "service": "s", "interval": "3s",
                          "timeout": "4s", "fall": 5, "rise": 6},
    "upstreams[].geo": {"file": "/g.mmdb"},
    "upstreams[].report": {"headers": True, "path": "/m", "agent_port": 7},
    "upstreams[].hedge": {"after": "1s", "percentile": 90},
    "upstreams[].retry": {"attempts": 5, "on": ["502"], "budget_percent": 33, "budget_least": 44, "buffer": "1MiB"},
    "routes[]": {"host": "h.test", "path": "/p", "path_prefix": "/pp", "methods": ["PUT"], "model": "m", "header": "x-y: z", "percent": 12,
                 "upstream": "local", "priority": "high", "fallback": "other", "rewrite_model": "n", "timeout": "1m", "try_timeout": "2m",
                 "idle_timeout": "3m", "max_body": "1GiB", "idempotent": False, "websocket": True, "set_headers": ["x-s: t"], "remove_headers": ["x-r"]},
}
# What belongs to a section that is said, or noted, as a whole.
WITH_ITS_SECTION = {"upstreams[].llm": None, "upstreams[]": {"servers_port"}, "upstreams[].geo": {"path", "zones"}, "upstreams[].report": {"port", "max_queued", "interval", "timeout", "max_age"}}
# What has to be there besides for a key to mean anything.
BESIDES = {"hash_key": {"balance": "hash"}, "hash_header": {"balance": "hash"}, "certificate": {"ca": "/ca.pem", "name": "a.test"},
           "key": {"ca": "/ca.pem", "certificate": "/c.pem", "name": "a.test"}, "name": {"ca": "/ca.pem"}, "body": {"path": "/ready"},
           "content_type": {"path": "/ready", "body": "{}"}, "expect": {"path": "/ready"}, "service": {"grpc": True}, "interval": {"path": "/ready"},
           "timeout": {"path": "/ready"}, "fall": {"path": "/ready"}, "rise": {"path": "/ready"}, "fail_timeout": {"max_fails": 3}}
# Means nothing to a front that has already noted that it has no checks (nginx), no canaries (Envoy), no gRPC checks (HAProxy).
COVERED = {("nginx", "upstreams[].check"): {"body", "content_type", "expect", "service", "interval", "timeout", "fall", "rise"},
           ("haproxy", "upstreams[]"): {"queue"},  # stands beside max_conns of a server
           ("envoy", "upstreams[].check"): {"content_type"}, ("haproxy", "upstreams[].check"): {"service"}}


def with_key(section, values):
    """A configuration in which one section has these values."""
    pool = {"name": "p", "servers": ["127.0.0.1:1", "127.0.0.1:2"]}
    route = {"path_prefix": "/r", "upstream": "p"}
    if section == "routes[]":
        route.update(values)
    elif section == "upstreams[]":
        pool.update({k: v for k, v in values.items() if k != "name"})
        pool["name"] = route["upstream"] = values.get("name", "p")
    elif section == "upstreams[].servers[]":
        pool["servers"] = ["127.0.0.1:1", {"address": "127.0.0.1:2", **values}]
    else:
        pool[section.split(".")[1]] = values
        if values.get("grpc"):
            pool["protocol"] = "http2"
    return {"upstreams": [pool, {"name": "other", "servers": ["127.0.0.1:9"]}], "routes": [route]}


@pytest.mark.parametrize("kind", fronts.NAMES)
def test_every_key_is_said_or_noted(kind, tmp_path):
    """A key that changes neither the text nor the notes would be dropped in silence."""
    page = subprocess.run([BINARY, "config", "--markdown"], capture_output=True, text=True, check=True).stdout
    keys, section = {}, None
    for line in page.splitlines():
        if found := re.match(r"## `((?:upstreams|routes)\[\].*)`", line):
            section = found[1]
        elif line.startswith("## "):
            section = None
        elif section and (found := re.match(r"\| `(\w+)` \| (.*?) \|", line)) and found[2] != "a map":
            keys.setdefault(section, []).append(found[1])
    assert {"upstreams[]", "routes[]", "upstreams[].check"} <= set(keys)
    config = tmp_path / "inferd.yaml"

    def text(section, values):
        config.write_text(json.dumps(with_key(section, values)))
        made = export(kind, config, "--listen=127.0.0.1:80", "127.0.0.1:3")
        assert made.returncode == 0, (section, values, made.stderr)
        return made.stdout

    silent, without = [], {}
    for section, names in keys.items():
        for name in names:
            if WITH_ITS_SECTION.get(section, ()) is None or name in WITH_ITS_SECTION.get(section, ()) or name in COVERED.get((kind, section), ()):
                continue
            assert name in SAMPLES.get(section, ()), f"{section}.{name} is new: export_*.c says it or export_notes.c names it, and a value of it stands here"
            own = {"upstreams[]": ("hash_key", "hash_header"), "upstreams[].servers[]": ("fail_timeout",), "routes[]": ()}.get(section, BESIDES)
            besides = BESIDES.get(name, {}) if name in own else {}
            before = (section, tuple(besides.items()))
            without[before] = without.get(before) or text(section, besides)
            if without[before] == text(section, {**besides, name: SAMPLES[section][name]}):
                silent.append(f"{section}.{name}")
    assert not silent, silent


@pytest.mark.parametrize("change, said", [
    ({"upstreams": [{"name": "p", "servers": ["h;x:1"]}]}, "upstreams[p]: the address 'h;x:1' can't be exported"),
    ({"upstreams": [{"name": "p", "servers_file": "/x"}]}, "upstreams[p] can't be exported: its servers come from servers_file"),
    ({"routes": [{"upstream": "local", "remove_headers": ["x; }"]}]}, "routes[0].remove_headers: 'x; }' is not accepted; write the name of a header"),
    ({"routes": [{"upstream": "local", "rewrite_model": "a b"}]}, "routes[0]: rewrite_model 'a b' can't be exported")])
def test_what_is_no_word(tmp_path, change, said):
    config = tmp_path / "inferd.yaml"
    config.write_text(json.dumps(change))
    made = export("nginx", config, "h:1")
    assert made.returncode == 2 and said in made.stderr and not made.stdout, made.stderr
