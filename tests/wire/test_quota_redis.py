"""Quotas that several servers share through a real Redis, and what they do when it is away, hangs, forgets or lies."""
import concurrent.futures
import json
import signal
import socket
import subprocess
import threading
import time

import pytest
import requests

from certificates import Authority
from inferd_server import BINARY, SIMPLE, Server, wait_until, write_fake
from redis_server import Far, Redis, free_port
from test_auth_keys import BODY

POLICIES = """
policies:
- {name: once, match: {model: once}, requests_per_day: 1}
- {name: day, match: {model: day}, requests_per_day: 100000, concurrent: 1000}
- {name: few, match: {model: few}, requests_per_day: 10}
- {name: slots, match: {model: slow}, concurrent: 2}
- {name: tokens, match: {model: parrot}, tokens_per_day: 1000}
- {name: rows, match: {model: rows}, rows_per_second: 4}
- {name: mine, match: {model: mine}, requests_per_day: 2, shared: false}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("redis")
    for name in ("once", "day", "few", "rows", "mine"):
        write_fake(root / "models", name, SIMPLE, config="max_batch_size: 8\n" if name == "rows" else None)
    write_fake(root / "models", "parrot", "tokens = true\n")
    write_fake(root / "models", "slow", "tokens = true\npiece_bytes = 1\npiece_us = 50000\nmax_running = 64\n")
    (root / "quotas.yaml").write_text(POLICIES)
    return root


def serve(root, url, *args):
    return Server(root / "models", args=[f"--quota.file={root / 'quotas.yaml'}", f"--redis.url={url}", "--quota.lease=1s", *args])


@pytest.fixture(scope="module")
def redis():
    r = Redis()
    yield r
    r.close()


@pytest.fixture(scope="module")
def pair(root, redis):
    with serve(root, redis.url) as a, serve(root, redis.url) as b:
        yield a, b


def infer(server, model, session=requests, rows=0):
    body = {"inputs": [{**t, "shape": [rows, 16], "data": t["data"] * rows} for t in BODY["inputs"]]} if rows else BODY
    return session.post(f"{server.url}/v2/models/{model}/infer", json=body, timeout=30)


def chat(server, model, max_tokens, stream=False):
    return requests.post(f"{server.url}/v1/chat/completions", timeout=30, stream=stream,
                         json={"model": model, "max_tokens": max_tokens, "stream": stream, "messages": [{"role": "user", "content": "hello"}]})


def status(server):
    return requests.get(server.admin_url + "/admin/status", timeout=10).json()


def is_shared(server):
    return status(server)["shared_quotas"]["judged_by"] == "redis"


def test_a_budget_for_one(pair):
    """A hundred requests at once over two servers, and room for one."""
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        codes = [f.result() for f in [pool.submit(lambda s=pair[i % 2]: infer(s, "once").status_code) for i in range(100)]]
    assert codes.count(200) == 1 and codes.count(429) == 99
    refused = infer(pair[0], "once")
    assert (refused.headers["x-ratelimit-policy"], refused.headers["x-ratelimit-kind"], refused.headers["x-ratelimit-remaining"]) == (
        "once", "budget", "0")
    assert "policy \"once\"" in refused.json()["error"]
    pair[0].wait_metric("inferd_quota_decisions_total", lambda n: n >= 50, by="redis")


def test_rows_tokens_and_local_policies(pair, redis):
    a, b = pair
    assert infer(a, "rows", rows=3).status_code == 200
    assert infer(b, "rows", rows=3).status_code == 429
    never = infer(b, "rows", rows=5)
    assert never.status_code == 429 and "make it smaller" in never.json()["error"]
    first = chat(a, "parrot", 100)
    used = first.json()["usage"]["total_tokens"]
    over = chat(b, "parrot", 2000)
    assert over.status_code == 429 and int(over.headers["x-ratelimit-remaining"]) == 1000 - used  # settled there, too
    assert redis.hash("{inferd}:q:m:tokens:")["u5"] == str(used)
    # a policy that is not shared: two on each
    assert [infer(s, "mine").status_code for s in (a, a, a, b, b, b)] == [200, 200, 429] * 2
    assert not redis.call("KEYS", "*mine*")
    for key in redis.call("KEYS", "*"):
        assert key.startswith("{inferd}:q:") and redis.call("PTTL", key) > 0, key  # nothing stays for ever


def test_a_killed_server_gives_back(root, redis, pair):
    victim = serve(root, redis.url)
    held = [chat(victim, "slow", 500, stream=True) for _ in range(2)]
    assert [h.status_code for h in held] == [200, 200]
    assert chat(pair[0], "slow", 5).status_code == 429
    victim.process.send_signal(signal.SIGKILL)
    victim.process.wait()
    for h in held:
        h.close()
    victim.stop(expect=None)
    began = time.monotonic()
    wait_until(lambda: chat(pair[0], "slow", 1).status_code == 200, 10)
    assert time.monotonic() - began < 3  # the lease, and a look
    assert [k for k in redis.call("HKEYS", redis.call("ZRANGE", "{inferd}:q:owners", 0, 0)[0]) if k.startswith("r")] == []


def hammer(server, model, seconds, out):
    with requests.Session() as s:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            code = infer(server, model, s).status_code
            out.append((code, time.monotonic() - began))


def p99(answers):
    times = sorted(t for _, t in list(answers))
    return times[int(len(times) * 0.99)]


def test_a_redis_that_hangs_costs_nobody(pair, redis):
    """SIGSTOP under load: everybody is answered, p99 within 100 ms; when it goes on its counts are right."""
    before = int(redis.hash("{inferd}:q:m:day:").get("u4", 0))
    answers = []
    threads = [threading.Thread(target=hammer, args=(pair[i % 2], "day", 2.0, answers)) for i in range(4)]
    for t in threads:
        t.start()
    time.sleep(0.5)
    usual = p99(answers)
    redis.pause()
    wait_until(lambda: not is_shared(pair[0]))
    time.sleep(0.5)
    redis.go_on()
    for t in threads:
        t.join()
    assert {c for c, _ in answers} == {200} and len(answers) > 100
    assert p99(answers) <= 0.1 + usual, usual  # a busy machine's own slowness apart
    for server in pair:
        wait_until(lambda s=server: is_shared(s) and status(s)["shared_quotas"]["unconfirmed"] == 0, 10)
        server.wait_records("quotas_local")
        server.wait_metric("inferd_quota_decisions_total", lambda n: n > 0, by="local")
        assert any("127.0.0.1" in d["address"] and "does not answer" in d["reason"] for d in server.wait_records("redis_down"))
        assert server.metric("inferd_quota_dropped_total") == 0
    # each request once, whether it was judged there, here, or there although nobody waited any more
    wait_until(lambda: int(redis.hash("{inferd}:q:m:day:")["u4"]) == before + len(answers), 5)


def test_clients_that_leave_while_it_hangs(pair, redis, tmp_path):
    """With half a body, with a whole one, over HTTP/1.1 and HTTP/2: nothing stays held, there or here."""
    server = pair[0]
    host, port = server.address.split(":")
    body = json.dumps(BODY).encode()
    head = b"POST /v2/models/day/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    (tmp_path / "body").write_bytes(body)

    def h2(n):
        done = subprocess.run(["h2load", "-n", str(n), "-c", "4", "-m", "10", "-d", tmp_path / "body", f"{server.url}/v2/models/day/infer"],
                              capture_output=True, text=True, timeout=30)
        assert f"{n} 2xx" in done.stdout, done.stdout + done.stderr

    redis.pause()
    for sent in (head, head + body[:50], head + body, head + body):
        for _ in range(10):
            with socket.create_connection((host, int(port)), timeout=10) as s:
                s.sendall(sent)
    h2(200)
    redis.go_on()
    wait_until(lambda: is_shared(server) and status(server)["shared_quotas"]["unconfirmed"] == 0 and status(server)["in_flight"] == 0, 10)
    wait_until(lambda: redis.hash("{inferd}:q:m:day:")["c"] == "0", 5)
    h2(400)
    wait_until(lambda: redis.hash("{inferd}:q:m:day:")["c"] == "0", 5)


def test_a_lost_script_is_loaded_again(pair, redis):
    answers = []
    threads = [threading.Thread(target=hammer, args=(pair[i % 2], "day", 0.6, answers)) for i in range(4)]
    lost = [s.metric("inferd_redis_connects_total", result="ok") for s in pair]
    before = int(redis.hash("{inferd}:q:m:day:")["u4"])
    for t in threads:
        t.start()
    for _ in range(4):
        time.sleep(0.1)
        redis.call("SCRIPT", "FLUSH")
    for t in threads:
        t.join()
    assert {c for c, _ in answers} == {200}
    wait_until(lambda: int(redis.hash("{inferd}:q:m:day:")["u4"]) == before + len(answers), 5)
    assert [s.metric("inferd_redis_connects_total", result="ok") for s in pair] == lost  # the connection stayed


def test_a_restart_that_lost_everything(pair, redis):
    a, b = pair
    assert [infer(s, "few").status_code for s in (a, b, a, b)] == [200] * 4
    redis.kill()
    wait_until(lambda: not is_shared(a) and not is_shared(b), 5)
    # away: each admits its half of ten, of which it has used two
    assert [infer(a, "few").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert infer(b, "few").status_code == 200
    redis.start()
    for s in pair:
        wait_until(lambda x=s: is_shared(x), 10)
        wait_until(lambda x=s: x.records("quotas_shared")[-1]["counts_were_lost"])
    # eight were used; what was admitted before and meanwhile is known again
    wait_until(lambda: redis.hash("{inferd}:q:m:few:").get("u4") == "8", 5)
    assert [infer(s, "few").status_code for s in (a, b, a)] == [200, 200, 429]


def test_what_is_no_redis(root):
    """Garbage, silence and the wrong password: said so, and the quotas go on."""
    guarded = Redis("--requirepass", "right")
    trash = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: [c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n") for c in iter(lambda: trash.accept()[0], None)],
                     daemon=True).start()
    cases = [(f"redis://:wrong@127.0.0.1:{guarded.port}", "WRONGPASS"), (guarded.url, "NOAUTH"),
             (f"redis://127.0.0.1:{trash.getsockname()[1]}", "does not speak Redis"), (f"redis://127.0.0.1:{free_port()}", "efused")]
    for url, words in cases:
        with serve(root, url) as server:
            assert [infer(server, "once").status_code for _ in range(2)] == [200, 429]
            wait_until(lambda: words in json.dumps(server.records("redis_down")), 5)
            said = status(server)
            assert said["redis"]["state"] != "up" and words in said["redis"]["reason"] and "wrong" not in server.log()
    password = root / "password"
    password.write_text("right\n")
    with serve(root, guarded.url + "/3", f"--redis.password_file={password}", "--redis.prefix=site") as server:
        assert is_shared(server) and infer(server, "once").status_code == 200
        server.wait_metric("inferd_redis_up", 1)
    guarded.close()


def test_a_redis_too_far_away(root, redis):
    far = Far(redis.port, 0)
    with serve(root, f"redis://127.0.0.1:{far.server_address[1]}", "--redis.prefix=far") as server:
        wait_until(lambda: is_shared(server), 5)
        answers = []
        hammer(server, "day", 0.3, answers)
        usual, near = p99(answers), len(answers)
        far.delay = 0.08  # each way, more than the deadline
        answers = []
        hammer(server, "day", 1.0, answers)
        assert {c for c, _ in answers} == {200} and p99(answers) <= 0.1 + usual
        assert not is_shared(server)
        wait_until(lambda: "later than redis.deadline" in json.dumps(server.records("redis_down")), 5)
        far.delay = 0
        wait_until(lambda: is_shared(server), 8)
        wait_until(lambda: int(redis.hash("{far}:q:m:day:")["u4"]) == near + len(answers), 5)
    far.shutdown()


def test_tls_and_a_user_of_its_own(root, tmp_path):
    """Over TLS with an authority that has to be believed, by a name, as an ACL user with no more rights than the guide lists."""
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("cache", "DNS:localhost")
    plain, secure = free_port(), free_port()
    redis = Redis("--tls-port", str(secure), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority.ca,
                  "--tls-auth-clients", "no", port=plain)
    redis.call("ACL", "SETUSER", "inferd", "on", ">p@ss/w", "~{inferd}:q:*", "+@hash", "+@sortedset", "+pttl", "+pexpire", "+time", "+ping",
               "+select", "+script|load", "+evalsha")
    url = f"rediss://inferd:p%40ss%2Fw@localhost:{secure}/1"
    with serve(root, url, f"--redis.ca={authority.ca}") as server:
        wait_until(lambda: is_shared(server), 5)
        assert [infer(server, "once").status_code for _ in range(2)] == [200, 429]
        assert infer(server, "rows", rows=3).status_code == 200
        wait_until(lambda: status(server)["shared_quotas"]["unconfirmed"] == 0, 5)
        server.wait_metric("inferd_redis_calls_total", 0, result="error")
    with serve(root, url) as server:  # the system's authorities don't know ours
        wait_until(lambda: "certificate" in json.dumps(server.records("redis_down")), 5)
        assert infer(server, "once").status_code == 200 and not is_shared(server)
    redis.close()


@pytest.mark.parametrize("args, words", [(["--redis.url=http://x"], "redis.url"), (["--redis.url=redis://h:99999"], "port"),
                                         (["--redis.url=redis://h", "--redis.prefix=a{b"], "prefix"), ([], "redis.url is not set")])
def test_mistakes_stop_the_start(root, tmp_path, args, words):
    file = tmp_path / "q"
    file.write_text("policies: [{name: p, concurrent: 1, shared: true}]")
    done = subprocess.run([BINARY, "serve", str(root / "models"), "--http.listen=127.0.0.1:0", "--metrics.listen=", f"--quota.file={file}", *args],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and words in done.stderr, done.stderr
