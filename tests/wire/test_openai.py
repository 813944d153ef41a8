"""test_openai.py: OpenAI's endpoints with the official Python client, over scripted models whose answer is the prompt itself.

The scripted model (engine/fake, token face) answers with the content of the last message in pieces of a known size, so every expected
text stands in the test. The client parses and validates each reply and chunk.
"""
import json
import socket
import threading
import time

import openai
import pytest
import requests

from inferd_server import Server, wait_equal, wait_until, write_fake
from raw_socket import connect, request, reset

PARROT = "tokens = true\npiece_bytes = 3\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "parrot", PARROT)
    write_fake(root, "slow", "tokens = true\npiece_bytes = 1\npiece_us = 20000\nprefill_us = 50000\nmax_running = 2\nmax_waiting = 3\n")
    write_fake(root, "endless", "tokens = true\nanswer = x\npiece_bytes = 1\nprefill_us = 600000000\n")
    write_fake(root, "broken", "tokens = true\npiece_bytes = 1\nfail_after = 2\npiece_us = 1000\n")
    write_fake(root, "small", "tokens = true\ncontext = 32\n")
    write_fake(root, "numbers", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n")
    with Server(root) as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def say(text, **more):
    return {"model": "parrot", "messages": [{"role": "system", "content": "Repeat."}, {"role": "user", "content": text}], **more}


def post(server, path, body, **more):
    return requests.post(server.url + path, json=body, **more)


# ---- chat ----


def test_chat_whole(client):
    r = client.chat.completions.create(**say("Hello, world"))
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.model == "parrot"
    assert r.choices[0].message.role == "assistant"
    assert r.choices[0].message.content == "Hello, world"
    assert r.choices[0].finish_reason == "stop"
    assert (r.usage.prompt_tokens, r.usage.completion_tokens, r.usage.total_tokens) == (12, 5, 17)  # 4 pieces and the end


def test_chat_stream(client):
    chunks = list(client.chat.completions.create(**say("Hello, world"), stream=True, stream_options={"include_usage": True}))
    assert len({c.id for c in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello, world"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 17
    assert all(c.usage is None for c in chunks[:-1])


def test_stream_without_usage(client):
    assert all(c.usage is None and c.choices for c in client.chat.completions.create(**say("Hello"), stream=True))


def test_several_choices(client):
    r = client.chat.completions.create(**say("same"), n=3)
    assert [c.index for c in r.choices] == [0, 1, 2] and {c.message.content for c in r.choices} == {"same"}
    texts = {0: "", 1: "", 2: ""}
    for c in client.chat.completions.create(**say("same"), n=3, stream=True):
        texts[c.choices[0].index] += c.choices[0].delta.content or ""
    assert texts == {0: "same", 1: "same", 2: "same"}


def test_length(client):
    r = client.chat.completions.create(**say("one two three"), max_tokens=2)
    assert (r.choices[0].message.content, r.choices[0].finish_reason, r.usage.completion_tokens) == ("one tw", "length", 2)
    r = client.chat.completions.create(**say("one two three"), max_completion_tokens=1)
    assert (r.choices[0].message.content, r.choices[0].finish_reason) == ("one", "length")


def test_logprobs(client):
    r = client.chat.completions.create(**say("abcdef"), logprobs=True, top_logprobs=2)
    content = r.choices[0].logprobs.content
    assert [t.token for t in content] == ["abc", "def"]
    assert all(t.logprob == -0.25 and len(t.top_logprobs) == 2 and t.bytes == list(t.token.encode()) for t in content)
    streamed = [t.token for c in client.chat.completions.create(**say("abcdef"), logprobs=True, stream=True)
                for t in (c.choices[0].logprobs.content if c.choices[0].logprobs else [])]
    assert streamed == ["abc", "def"]
    assert client.chat.completions.create(**say("abc")).choices[0].logprobs is None


@pytest.mark.parametrize("text", ["grüße, 世界 👩‍👩‍👧 end", "日本語のテキスト"])
def test_no_half_character_leaves(server, text):
    """Pieces of three bytes cut characters of two, three and four; every data line must be UTF-8 and together give the text."""
    with post(server, "/v1/chat/completions", say(text, stream=True), stream=True) as r:
        data = [line[6:] for line in r.raw.read().split(b"\n") if line.startswith(b"data: {")]
    pieces = [json.loads(d.decode("utf-8"))["choices"][0]["delta"].get("content", "") for d in data]
    assert "".join(pieces) == text and "\ufffd" not in "".join(pieces)


def test_cut_character_at_the_limit(client):
    r = client.chat.completions.create(**say("ab世界"), max_tokens=1)  # the third byte begins a character
    assert r.choices[0].message.content == "ab\ufffd"


@pytest.mark.parametrize("shift", range(6))
def test_stop_strings_never_leak(client, shift):
    text = "." * shift + "abcSTxy and more"
    chunks = list(client.chat.completions.create(**say(text), stop=["STOP", "xy"], stream=True))
    said = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert said == "." * shift + "abcST" and chunks[-1].choices[0].finish_reason == "stop"
    assert client.chat.completions.create(**say("tail ST"), stop="STOP").choices[0].message.content == "tail ST"


def test_content_forms(client, server):
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    r = client.chat.completions.create(model="parrot", messages=[{"role": "user", "content": parts}])
    assert r.choices[0].message.content == "one two"
    r = client.chat.completions.create(model="parrot", messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": None},
                                                                 {"role": "developer", "content": "y"}])
    assert r.choices[0].message.content == "y"
    picture = [{"type": "image_url", "image_url": {"url": server.url + "/v2/health/live"}}]
    with pytest.raises(openai.BadRequestError, match="image_url.*text only.*fetched"):
        client.chat.completions.create(model="parrot", messages=[{"role": "user", "content": picture}])


# ---- completions, models, tokens ----


def test_completions(client):
    r = client.completions.create(model="parrot", prompt=["first", [115, 101, 99]], max_tokens=9, n=2)
    assert [(c.index, c.text, c.finish_reason) for c in r.choices] == [(0, "first", "stop"), (1, "first", "stop"), (2, "sec", "stop"),
                                                                       (3, "sec", "stop")]
    assert r.usage.prompt_tokens == 8
    r = client.completions.create(model="parrot", prompt="abcdef", echo=True, max_tokens=1)
    assert (r.choices[0].text, r.choices[0].finish_reason) == ("abcdefabc", "length")
    texts = {}
    for c in client.completions.create(model="parrot", prompt=["uno", "dos"], stream=True, stream_options={"include_usage": True}):
        for choice in c.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == {0: "uno", 1: "dos"} and c.usage.prompt_tokens == 6
    lp = client.completions.create(model="parrot", prompt="abcdefg", logprobs=1, max_tokens=3).choices[0].logprobs
    assert (lp.tokens, lp.text_offset, lp.token_logprobs) == (["abc", "def", "g"], [0, 3, 6], [-0.25] * 3)
    assert client.completions.create(model="parrot", prompt="x" * 99).usage.completion_tokens == 16  # OpenAI's default


def test_models(client):
    assert {m.id for m in client.models.list()} == {"parrot", "slow", "endless", "broken", "small"}
    assert client.models.retrieve("parrot").id == "parrot"
    with pytest.raises(openai.NotFoundError) as e:
        client.models.retrieve("numbers")  # takes tensors
    assert e.value.body["code"] == "model_not_found"


def test_tokenize(server):
    r = post(server, "/tokenize", {"model": "parrot", "prompt": "añ", "return_token_strs": True}).json()
    assert (r["count"], r["tokens"], r["max_model_len"]) == (3, [97, 195, 177], 4096)
    assert post(server, "/tokenize", {"model": "parrot", "messages": [{"role": "user", "content": "hi"}]}).json()["tokens"] == [104, 105]
    assert post(server, "/detokenize", {"model": "parrot", "tokens": [97, 195, 177]}).json() == {"prompt": "añ"}
    r = post(server, "/detokenize", {"model": "parrot", "tokens": [300]})
    assert r.status_code == 400 and r.json()["error"]["param"] == "tokens"


# ---- errors ----

NUMBERS = {"temperature": [-1], "top_p": [-1, 2], "min_p": [-1], "typical_p": [-1], "repetition_penalty": [-1], "frequency_penalty": [-3],
           "presence_penalty": [3], "top_k": [-2], "max_tokens": [-1, 0, 1.5], "max_completion_tokens": [-1], "min_tokens": [-1],
           "n": [-1, 0, 129], "seed": [1.5], "top_logprobs": [-1, 21], "priority": [-1]}


@pytest.mark.parametrize("field", NUMBERS)
def test_bad_numbers_are_named(server, field):
    for value in [*(json.dumps(v) for v in NUMBERS[field]), "1e309", "-1e309", "NaN", "Infinity", '"x"', "9223372036854775808", "[]", "{}",
                  "true"]:
        body = '{"model":"parrot","messages":[{"role":"user","content":"a"}],"logprobs":true,"%s":%s}' % (field, value)
        r = requests.post(server.url + "/v1/chat/completions", data=body)
        assert r.status_code == 400, (value, r.text)
        error = r.json()["error"]
        assert error["type"] == "invalid_request_error" and error["param"] == field and field in error["message"], (value, error)
    server.alive()


@pytest.mark.parametrize("change, param", [
    ({"messages": []}, "messages"), ({"messages": "x"}, "messages"), ({"messages": [1]}, "messages"), ({"messages": None}, "messages"),
    ({"messages": [{"content": "x"}]}, "role"), ({"messages": [{"role": "boss", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages"), ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, "messages"),
    ({"model": 7}, "model"), ({"model": None}, "model"), ({"model": "a/../b"}, "model"), ({"model": "numbers"}, "model"),
    ({"stop": 7}, "stop"), ({"stop": [""]}, "stop"), ({"stop": ["x"] * 10000}, "stop"), ({"stop": ["x" * 2000]}, "stop"),
    ({"stop": [1]}, "stop"), ({"stream": "yes"}, "stream"), ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"logit_bias": {"a": 1}}, "logit_bias"), ({"logit_bias": {"1": 101}}, "logit_bias"), ({"logit_bias": [1]}, "logit_bias"),
    ({"top_logprobs": 3}, "top_logprobs"), ({"stop_token_ids": [-1]}, "stop_token_ids"), ({"logprobs": 3}, "logprobs"),
    ({"audio": {"voice": "a"}}, "audio"),
])
def test_bad_fields_are_named(server, change, param):
    r = post(server, "/v1/chat/completions", {**say("x"), **change})
    assert r.status_code in (400, 404), r.text
    assert r.json()["error"]["param"] == param
    server.alive()


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}])
    assert e.value.body["code"] == "model_not_found" and e.value.body["param"] == "model"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"model":"parrot","messages":[{"role":"user","content":"\xff"}]}',
                                  b'{"model":"parrot","messages":' + b"[" * 90000 + b"]" * 90000 + b"}", b'{"model":"parrot","model":"x"}'])
def test_broken_bodies(server, body):
    r = requests.post(server.url + "/v1/chat/completions", data=body)
    assert r.status_code == 400 and r.json()["error"]["type"] == "invalid_request_error"
    server.alive()


def test_other_errors_have_the_shape(server):
    r = requests.get(server.url + "/v1/chat/completions")
    assert r.status_code == 405 and r.headers["Allow"] == "POST" and r.json()["error"]["message"]
    assert requests.get(server.url + "/v1/nothing").json()["error"]["type"] == "invalid_request_error"


def test_prompt_over_the_context(server):
    for text, count in (("x" * 32, "32"), ("x" * 1000, "1000"), ("x" * 3000000, "more than")):
        r = post(server, "/v1/chat/completions", {**say(text), "model": "small"})
        error = r.json()["error"]
        assert r.status_code == 400 and error["code"] == "context_length_exceeded" and error["param"] == "messages"
        assert "32 tokens" in error["message"] and count in error["message"]
    assert post(server, "/v1/chat/completions", {**say("x" * 31), "model": "small"}).status_code == 200


def test_failure_in_a_stream(client, server):
    with pytest.raises(openai.APIError, match="failed as its script says"):
        list(client.chat.completions.create(**{**say("abcdef"), "model": "broken"}, stream=True))
    r = post(server, "/v1/chat/completions", {**say("abcdef"), "model": "broken"})
    assert r.status_code == 500 and r.json()["error"]["type"] == "server_error"


def test_deadline(server):
    r = post(server, "/v1/chat/completions", {**say("x" * 200), "model": "slow"}, headers={"x-inferd-timeout-ms": "200"})
    assert r.status_code == 504 and "deadline" in r.json()["error"]["message"]
    r = post(server, "/v1/chat/completions", say("x"), headers={"x-inferd-timeout-ms": "soon"})
    assert r.status_code == 400 and "x-inferd-timeout-ms" in r.json()["error"]["message"]


# ---- load, and clients that leave ----


def generating(server):
    """Generations between arrival and reply."""
    return requests.get(server.admin_url + "/admin/status").json()["in_flight"]


def wait_idle(server, seconds=5):
    wait_equal(lambda: generating(server), 0, seconds)


def test_full_queue_is_429(server):
    """Two run and three wait (a new one waits until the step thread has seen it); the others are refused at once, and say when to come again."""
    results = []
    threads = [threading.Thread(target=lambda: results.append(post(server, "/v1/chat/completions", {**say("x" * 20), "model": "slow"})))
               for _ in range(9)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    codes = sorted(r.status_code for r in results)
    assert codes.count(200) + codes.count(429) == 9 and codes.count(200) >= 3 and 429 in codes
    refused = next(r for r in results if r.status_code == 429)
    assert refused.json()["error"]["type"] == "rate_limit_error" and int(refused.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("stream", [False, True])
def test_more_prompts_than_the_queue_ever_holds(server, stream):
    """Not 429, which asks to come again: 400, with the field, the count and the limit (max_waiting of this model)."""
    r = post(server, "/v1/completions", {"model": "slow", "prompt": ["x"] * 4, "n": 2, "max_tokens": 1, "stream": stream})
    error = r.json()["error"]
    assert r.status_code == 400 and error["param"] == "prompt" and "Retry-After" not in r.headers
    assert error["message"].startswith("prompt has 4 entries") and "max_waiting is 3" in error["message"]
    wait_idle(server)
    assert post(server, "/v1/completions", {"model": "slow", "prompt": ["x"] * 3, "max_tokens": 1}).status_code == 200


def test_names_with_control_characters_are_shown(server):
    """All of the name, escaped: a NUL doesn't cut it, and nothing in it begins a line or breaks JSON."""
    for body, shown in (("a\\u0000b\\n", "a\\x00b\\n"), ("\\u001b[31m\\u0085\\u00e9", "\\x1b[31m\\x85\u00e9")):
        r = requests.post(server.url + "/v1/completions", data=f'{{"model": "{body}", "prompt": "x"}}'.encode())
        assert r.status_code == 404 and f'"{shown}"' in r.json()["error"]["message"], r.text
    r = requests.get(server.url + "/v1/models/ab%0d%0a%ff")
    assert r.status_code == 404 and "unknown model" in r.json()["error"]["message"], r.text
    r = requests.get(server.url + "/v1/models/a%00b")
    assert r.status_code == 400 and "%00" in r.json()["error"]["message"], r.text
    long = "\n" * 3000  # the echo is cut, the sentence isn't
    r = post(server, "/v1/completions", {"model": long, "prompt": "x"})
    assert r.status_code == 404 and r"\n..." in r.json()["error"]["message"] and len(r.json()["error"]["message"]) < 300, r.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["prefill", "running", "queued"])
def test_client_leaves(server, phase, stream):
    """In each phase the generation ends soon, and what else runs is not touched."""
    wait_idle(server)
    model = "endless" if phase == "prefill" else "slow"
    witness = []
    other = threading.Thread(target=lambda: witness.append(post(server, "/v1/chat/completions", {**say("0123456789"), "model": "slow"})))
    other.start()
    if phase == "queued":
        holders = [connect(server) for _ in range(2)]
        for s in holders:
            s.sendall(request("POST", "/v1/chat/completions", body=json.dumps({**say("y" * 4000), "model": "slow"}).encode()))
        wait_until(lambda: generating(server) >= 2)
    s = connect(server)
    s.sendall(request("POST", "/v1/chat/completions", body=json.dumps({**say("z" * 4000, stream=stream), "model": model}).encode()))
    if phase == "running" and stream:
        while b"data: " not in s.recv(4096):
            pass
    else:
        time.sleep(0.2)
    reset(s)
    if phase == "queued":
        [reset(h) for h in holders]
    other.join()
    assert witness[0].json()["choices"][0]["message"]["content"] == "0123456789"
    wait_idle(server)
    server.alive()


def test_many_random_disconnects(server):
    wait_idle(server)
    for i in range(200):
        s = connect(server)
        s.sendall(request("POST", "/v1/chat/completions", body=json.dumps(say("w" * 3000, stream=i % 2 == 0)).encode()))
        if i % 3:
            time.sleep(0.0005 * (i % 7))
        reset(s)
    wait_idle(server)
    server.alive()


def test_slow_reader_stops_only_itself(server):
    """A reader that takes nothing loses its stream; others don't notice, and nothing is left of it."""
    wait_idle(server)
    s = connect(server)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    body = {**say("q" * 4000), "stream": True, "n": 64, "logprobs": True, "top_logprobs": 20, "max_tokens": 4000}
    s.sendall(request("POST", "/v1/chat/completions", body=json.dumps(body).encode()))
    time.sleep(0.2)
    r = post(server, "/v1/chat/completions", say("quick"))
    assert r.json()["choices"][0]["message"]["content"] == "quick"
    wait_idle(server, 20)
    s.settimeout(20)
    data = b""
    try:
        while chunk := s.recv(1 << 16):
            data += chunk
    except ConnectionError:
        pass
    s.close()
    assert b"[DONE]" not in data and not data.endswith(b"0\r\n\r\n")  # the client can see that something is missing
    server.alive()


def test_keep_alive_comments(server):
    with post(server, "/v1/chat/completions", {**say("x"), "model": "endless", "stream": True}, stream=True, timeout=30) as r:
        assert r.status_code == 200 and r.headers["Content-Type"].startswith("text/event-stream")
        lines = r.iter_lines()
        assert next(lines).startswith(b":") and next(lines) == b"" and next(lines).startswith(b":")
    wait_idle(server)


def test_stop_while_generating(tmp_path):
    """SIGTERM with a generation that would never end: it is answered, and the process ends well."""
    write_fake(tmp_path / "models", "endless", "tokens = true\nprefill_us = 600000000\n")
    results = []
    with Server(tmp_path / "models", args=["--shutdown.drain_timeout=200ms"]) as s:
        t = threading.Thread(target=lambda: results.append(post(s, "/v1/chat/completions", {**say("x"), "model": "endless"})))
        t.start()
        wait_until(lambda: generating(s))
        s.stop()
        t.join()
    assert results[0].status_code == 503 and results[0].json()["error"]["type"] == "server_error"


def test_metrics_and_access(server, client):
    before = server.metric("inferd_requests_total", model="parrot", protocol="openai", status="ok")
    client.chat.completions.create(**say("x"))
    server.wait_metric("inferd_requests_total", before + 1, model="parrot", protocol="openai", status="ok")
    server.wait_metric("inferd_api_requests_total", lambda n: n > 0, route="chat_completions", code="200")
