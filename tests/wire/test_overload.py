"""Overload over the wire: limits, classes, circuit breakers, and who answers instead. One server; each test has models of its own."""
import concurrent.futures
import os
import subprocess
import threading
import time

import numpy as np
import pytest
import requests

from inferd_server import BINARY, Server, wait_equal, wait_until, write_fake
from test_auth_keys import make

ONE = "input = X FP32 [-1,2]\noutput = Y FP32 [-1,2] copy X\n"
FRAGILE = ONE + "fail_rows_over = 1\n"  # two rows: the model's fault; one row: fine
BREAKER = "{errors: 50%, minimum: 4, window: 2s, open: 500ms, probes: 2}"
RULES = f"""
rules:
- {{class: core, match: {{class: gold}}}}
- {{class: low, best: normal, match: {{tenant: crawler}}}}
models:
- {{match: breaks, breaker: {BREAKER}}}
- {{match: calm, breaker: {{minimum: 2, open: 60s}}}}
- {{match: late, breaker: {{errors: 0, slow: 30ms, minimum: 2, open: 60s}}}}
- {{match: leans, breaker: {{minimum: 2, open: 60s}}, fallback: light}}
- {{match: remembers, breaker: {{minimum: 2, open: 60s}}, cache: true}}
- {{match: "never,never-either", fallback: leans-too}}
- {{match: leans-too, limit: off, breaker: {{minimum: 2, open: 60s}}, fallback: light}}
- {{match: narrow, limit: {{max: 2, burst: 0}}}}
- {{match: narrow-leans, limit: {{max: 1, burst: 0}}, fallback: light}}
- {{match: talker, limit: {{max: 1, burst: 0}}, fallback: small-talker}}
- {{match: "heavy,starved", breaker: off, fallback: light}}
- {{match: heavy-alone}}
- {{match: heavy-talker, fallback: small-talker}}
- {{match: odd, limit: {{max: 1, burst: 0}}, fallback: other-shape}}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overload")
    root = folder / "models"
    for name in ("breaks", "calm", "leans", "leans-too"):
        write_fake(root, name, FRAGILE + "poison = 666\n")
    write_fake(root, "remembers", FRAGILE, config="response_cache: {enable: true}\nmax_batch_size: 4\n")
    write_fake(root, "late", ONE + "base_us = 60000\n")
    write_fake(root, "light", ONE)
    write_fake(root, "never", ONE + "load_fail = no such weights\n")
    write_fake(root, "never-either", ONE + "load_fail = nor these\n")
    for name in ("heavy", "heavy-alone"):
        write_fake(root, name, ONE + "estimate_bytes = 64000GiB\n")
    write_fake(root, "heavy-talker", "tokens = true\nestimate_bytes = 64000GiB\n")
    write_fake(root, "starved", ONE + "fail_every = 1\nfail_no_memory = true\nfail_text = no memory for the tensors\n")
    write_fake(root, "other-shape", "input = Z FP32 [-1,3]\noutput = Y FP32 [-1,3] copy Z\n")
    for name in ("narrow", "narrow-leans", "odd"):
        # long enough for seven to be asked one by one; at once, so that it isn't paid for four times
        write_fake(root, name, ONE + "base_us = 2000000\n", config="max_batch_size: 1\ninstance_group: {count: 4}\n")
    write_fake(root, "talker", "tokens = true\nanswer = long words\npiece_us = 100000\n")
    write_fake(root, "small-talker", "tokens = true\nanswer = short\n")
    rules = folder / "overload.yaml"
    rules.write_text(RULES)
    keys = folder / "keys"
    args = [f"--overload.file={rules}", f"--auth.keys_file={keys}", "--auth.open=live,ready,metrics,admin_limits,admin_reload"]
    plain, gold, crawler = make(keys, "p"), make(keys, "g", "--class", "gold"), make(keys, "c", "-t", "crawler")
    with Server(root, args=[*args, "--repository.strict_readiness=false"]) as server:
        server.plain, server.gold, server.crawler, server.rules = plain, gold, crawler, rules
        yield server


def ask(server, model, rows=1, key=None, value=1.0, **headers):
    body = {"inputs": [{"name": "X", "shape": [rows, 2], "datatype": "FP32", "data": [value] * (2 * rows)}]}
    headers = {"x-api-key": key or server.plain, **{k.replace("_", "-"): v for k, v in headers.items()}}
    return requests.post(f"{server.url}/v2/models/{model}/infer", json=body, headers=headers, timeout=30)


def state(server, model):
    models = requests.get(server.admin_url + "/admin/limits").json()["models"]
    return next((m for m in models if m["model"] == model), None)


def breaker(server, model):
    return state(server, model)["breaker"]["state"]


def busy(server, model):
    found = state(server, model)
    return sum(found["in_flight"].values()) if found else 0


def break_it(server, model):
    for _ in range(4):
        ask(server, model, rows=2)
    wait_equal(lambda: breaker(server, model), "open")


def test_a_breaker_opens_probes_and_closes(world):
    assert [ask(world, "breaks", rows=2).status_code for _ in range(4)] == [500] * 4
    refused = ask(world, "breaks")
    assert refused.status_code == 503 and "circuit breaker" in refused.json()["error"] and refused.headers["Retry-After"] == "1"
    world.wait_metric("inferd_breaker_state", 2, model="breaks")
    assert state(world, "breaks")["breaker"]["probe_in_ms"] <= 500
    wait_until(lambda: ask(world, "breaks").status_code == 200)  # a probe
    wait_equal(lambda: breaker(world, "breaks"), "half_open")
    assert ask(world, "breaks").status_code == 200
    wait_equal(lambda: breaker(world, "breaks"), "closed")
    wait_equal(lambda: [r["to"] for r in world.records("breaker_changed") if r["model"] == "breaks"], ["open", "half_open", "closed"])
    world.wait_metric("inferd_overload_changes_total", 1, model="breaks", to="open")
    # a probe that fails opens it again, for twice as long
    assert [ask(world, "breaks", rows=2).status_code for _ in range(4)] == [500] * 4
    wait_until(lambda: ask(world, "breaks", rows=2).status_code == 500)
    assert 500 < state(world, "breaks")["breaker"]["probe_in_ms"] <= 1000


def test_a_callers_mistakes_do_not_open_it(world):
    assert [ask(world, "calm", value=666).status_code for _ in range(6)] == [400] * 6
    bad = [requests.post(f"{world.url}/v2/models/calm/infer", data=b"{", headers={"x-api-key": world.plain}).status_code for _ in range(3)]
    assert bad == [400] * 3
    assert ask(world, "calm").status_code == 200
    wait_equal(lambda: state(world, "calm")["breaker"], {"state": "closed", "answers": 1, "errors": 0, "slow": 0, "probe_in_ms": 0})


def test_slow_answers_open_it(world):
    assert [ask(world, "late").status_code for _ in range(2)] == [200, 200]
    assert ask(world, "late").status_code == 503
    wait_equal(lambda: breaker(world, "late"), "open")


def test_a_fallback_answers_for_a_broken_model(world):
    break_it(world, "leans")
    r = ask(world, "leans")
    assert r.status_code == 200 and r.json()["model_name"] == "light" and r.json()["outputs"][0]["data"] == [1.0, 1.0]
    assert r.headers["x-inferd-degraded"] == "fallback=light; reason=breaker"
    assert "x-inferd-degraded" not in ask(world, "light").headers
    world.wait_metric("inferd_degraded_total", lambda n: n >= 1, model="leans", by="fallback", reason="breaker")
    logged = world.wait_records("model_degraded", model="leans")
    assert len(logged) == 1 and logged[0]["by"] == "light"  # when it begins, not for each
    # a caller's mistake stays his own, and is told by the model he asked for
    assert requests.post(f"{world.url}/v2/models/nothing/infer", json={}, headers={"x-api-key": world.plain}).status_code == 404


def test_grpc_says_so_in_metadata(world):
    grpcclient = pytest.importorskip("tritonclient.grpc")
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    break_it(world, "leans-too")
    request = service_pb2.ModelInferRequest(model_name="leans-too")
    tensor = request.inputs.add(name="X", datatype="FP32", shape=[1, 2])
    request.raw_input_contents.append(np.array([3, 4], np.float32).tobytes())
    assert tensor.name == "X"
    with grpc.insecure_channel(world.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        who = [("x-api-key", world.plain)]
        answer, call = stub.ModelInfer.with_call(request, metadata=who)
        assert answer.model_name == "light" and answer.raw_output_contents[0] == request.raw_input_contents[0]
        assert dict(call.initial_metadata())["x-inferd-degraded"] == "fallback=light; reason=breaker"
        first = next(stub.ModelStreamInfer(iter([request]), metadata=who))
        assert first.infer_response.parameters["x-inferd-degraded"].string_param == "fallback=light; reason=breaker"
        request.model_name = "light"
        first = next(stub.ModelStreamInfer(iter([request]), metadata=who))
        assert "x-inferd-degraded" not in first.infer_response.parameters
    assert grpcclient


def test_a_model_that_did_not_load_is_answered_for_along_the_chain(world):
    r = ask(world, "never")
    assert r.status_code == 200 and r.headers["x-inferd-degraded"].endswith("reason=not_ready")
    break_it(world, "leans-too")
    r = ask(world, "never-either")
    assert r.json()["model_name"] == "light" and r.headers["x-inferd-degraded"] == "fallback=light; reason=not_ready"


def test_memory_that_is_not_there_to_load_or_to_run_is_answered_for(world):
    for model in ("heavy", "starved"):
        r = ask(world, model, value=7.0)
        assert r.status_code == 200 and r.json()["model_name"] == "light" and r.json()["outputs"][0]["data"] == [7.0, 7.0]
        assert r.headers["x-inferd-degraded"] == "fallback=light; reason=out_of_memory", model
        world.wait_metric("inferd_degraded_total", 1, model=model, by="fallback", reason="out_of_memory")
    chat = requests.post(world.url + "/v1/chat/completions", headers={"x-api-key": world.plain}, timeout=30,
                         json={"model": "heavy-talker", "messages": [{"role": "user", "content": "hello"}]})
    assert chat.json()["model"] == "small-talker" and chat.json()["choices"][0]["message"]["content"] == "short"
    assert chat.headers["x-inferd-degraded"] == "fallback=small-talker; reason=out_of_memory"
    alone = ask(world, "heavy-alone")
    assert alone.status_code == 503 and "needs about 65536000 MiB" in alone.json()["error"] and "x-inferd-degraded" not in alone.headers


def test_a_cached_answer(world):
    assert ask(world, "remembers", value=7.0).status_code == 200
    break_it(world, "remembers")
    r = ask(world, "remembers", value=7.0)
    assert r.status_code == 200 and r.headers["x-inferd-degraded"] == "cache; reason=breaker"
    assert r.json()["outputs"][0]["data"] == [7.0, 7.0]
    r = ask(world, "remembers", value=8.0)
    assert r.status_code == 503 and "circuit breaker" in r.json()["error"] and "x-inferd-degraded" not in r.headers
    world.wait_metric("inferd_degraded_total", 1, model="remembers", by="cache", reason="breaker")


def together(server, calls):
    """Each is begun when the one before has been admitted or refused; their answers."""
    def seen(model):
        found = state(server, model)
        return sum(found["in_flight"].values()) + sum(found["refused"].values()) if found else 0

    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        futures = []
        for call in calls:
            before = seen(call["model"])
            futures.append(pool.submit(ask, server, **call))
            wait_until(lambda: seen(call["model"]) > before or futures[-1].done())
        return [f.result() for f in futures]


def test_the_least_important_are_refused_first(world):
    low, core = {"model": "narrow", "key": world.crawler}, {"model": "narrow", "key": world.gold}
    answers = together(world, [low, low, low, core, low, core, core])
    # two of the low fill it; core counts only core, and its third is one too many
    assert [r.status_code for r in answers] == [200, 200, 429, 200, 429, 200, 429]
    assert "class low" in answers[2].json()["error"] and int(answers[2].headers["Retry-After"]) >= 1
    world.wait_metric("inferd_limit_shed_total", 2, model="narrow", **{"class": "low"})
    world.wait_metric("inferd_limit_shed_total", 1, model="narrow", **{"class": "core"})
    wait_equal(lambda: state(world, "narrow")["refused"], {"core": 1, "high": 0, "normal": 0, "low": 2})
    assert [r["class"] for r in world.wait_records("model_saturated", model="narrow")] == ["low"]
    wait_equal(lambda: state(world, "narrow")["in_flight"], {"core": 0, "high": 0, "normal": 0, "low": 0})


def test_a_client_asks_for_a_class_as_far_as_its_rule_goes(world):
    low = {"model": "narrow", "key": world.crawler}
    answers = together(world, [low, low, {**low, "x_inferd_class": "normal"}, {**low, "x_inferd_class": "core"}, low])
    assert [r.status_code for r in answers] == [200, 200, 200, 200, 429]  # normal at best, but before its like
    refused = ask(world, "narrow", x_inferd_class="vital")
    assert refused.status_code == 400 and "vital" in refused.json()["error"] and "core, high, normal or low" in refused.json()["error"]


def test_a_saturated_model_is_answered_for(world):
    answers = together(world, [{"model": "narrow-leans"}] * 3)
    assert [r.headers.get("x-inferd-degraded") for r in answers] == [None] + ["fallback=light; reason=saturated"] * 2
    # one that doesn't take the same tensors is no help: the answer is the refusal
    answers = together(world, [{"model": "odd"}] * 2)
    assert [r.status_code for r in answers] == [200, 429] and "model \"odd\"" in answers[1].json()["error"]


def test_a_language_model_is_answered_for(world):
    def chat():
        return requests.post(world.url + "/v1/chat/completions", headers={"x-api-key": world.plain}, timeout=30,
                             json={"model": "talker", "messages": [{"role": "user", "content": "hello"}]})

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(chat)
        wait_until(lambda: busy(world, "talker") == 1)
        second = chat()
        assert first.result().json()["model"] == "talker" and "x-inferd-degraded" not in first.result().headers
    assert second.json()["model"] == "small-talker" and second.json()["choices"][0]["message"]["content"] == "short"
    assert second.headers["x-inferd-degraded"] == "fallback=small-talker; reason=saturated"
    stream = requests.post(world.url + "/v1/chat/completions", headers={"x-api-key": world.plain}, timeout=30, stream=True,
                           json={"model": "talker", "stream": True, "messages": [{"role": "user", "content": "hello"}]})
    wait_until(lambda: busy(world, "talker") == 1)
    stream.close()
    wait_until(lambda: busy(world, "talker") == 0)  # a client that leaves gives its place back


def test_reload(world):
    world.rules.write_text(RULES.replace("match: narrow, limit: {max: 2", "match: narrow, limit: {max: 1"))
    assert requests.post(world.admin_url + "/admin/reload").status_code == 200
    answers = together(world, [{"model": "narrow", "key": world.crawler}] * 2)
    assert [r.status_code for r in answers] == [200, 429]
    world.rules.write_text("models: [{match: narrow, fallback: narrow}]")
    assert requests.post(world.admin_url + "/admin/reload").status_code == 400
    assert state(world, "narrow")["limit"] == 1  # the rules before stay


@pytest.mark.parametrize("rules, words", [
    ("models: [{match: light, fallback: calm}, {match: calm, fallback: light}]", "leads back"),
    ("models: [{match: '*', fallback: light}]", "leads back"),
    ("models: [{match: light, fallback: lihgt}]", "lihgt"),
    ("models: [{match: light, breaker: {eror: 1}}]", "eror"),
    ("rules: [{class: urgent}]", "urgent")])
def test_mistakes_stop_the_start(tmp_path, rules, words):
    for name in ("light", "calm"):
        write_fake(tmp_path / "models", name, ONE)
    path = tmp_path / "o.yaml"
    path.write_text(rules)
    done = subprocess.run([BINARY, "serve", str(tmp_path / "models"), "--http.listen=127.0.0.1:0", "--metrics.listen=",
                           f"--overload.file={path}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_a_flood_of_one_model_is_shed_for_the_sake_of_another(tmp_path):
    """Models of one server share its processor: when the flood's runs make the core model's take longer, the flood is shed, from the bottom."""
    root = tmp_path / "models"
    spin = ONE + "base_us = 4000\nmode = spin\n"
    write_fake(root, "core", spin, config="max_batch_size: 1\n")
    write_fake(root, "flood", spin, config="max_batch_size: 1\ninstance_group: [{count: 4}]\n")
    write_fake(root, "apart", ONE, config="max_batch_size: 1\n")
    rules = tmp_path / "overload.yaml"
    rules.write_text("rules: [{class: core, match: {model: core}}, {class: low, match: {model: '*'}}]\n"
                     "models: [{match: apart, pressure: off}, {match: '*', breaker: off}]\n")
    stop = threading.Event()
    with Server(root, args=[f"--overload.file={rules}"], prefix=["taskset", "-c", str(min(os.sched_getaffinity(0)))]) as server:
        server.plain = "none"

        def flood():
            while not stop.is_set():
                ask(server, "flood")

        def core():
            while not stop.is_set():
                answers.append(ask(server, "core"))
                time.sleep(0.01)

        answers = []
        for _ in range(30):
            answers.append(ask(server, "core"))
        threads = [threading.Thread(target=flood) for _ in range(8)] + [threading.Thread(target=core)]
        for t in threads:
            t.start()
        try:
            server.wait_metric("inferd_pressure_shed_total", lambda n: n >= 1, **{"class": "low"})
            seen = requests.get(server.admin_url + "/admin/limits").json()["pressure"]
            assert seen["low"] < 1 and seen["high"] == 1
            refused = []
            wait_until(lambda: refused.append(ask(server, "flood")) or refused[-1].status_code == 429
                       and "more important requests" in refused[-1].json()["error"])
            assert "Retry-After" in refused[-1].headers
            assert all(ask(server, "apart").status_code == 200 for _ in range(10))
        finally:
            stop.set()
            for t in threads:
                t.join()
        assert {a.status_code for a in answers} == {200}
        assert server.wait_records("pressure_sheds", **{"class": "low"})
