"""test_gateway_usage.py: what is sent on is paid for by what its answer says it took."""
import json

import requests

from gateway_upstream import Upstream, answer
from test_gateway import gateway, pool, text_of

USAGE = {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}


def events(usage, n=3):
    def behave(connection, request):
        lines = [{"choices": [{"delta": {"content": '"usage":{"total_tokens":500}'}}], "usage": None}] * n
        if usage:
            lines.append({"choices": [], "usage": usage})
        body = "".join(f"data: {json.dumps(x)}\n\n" for x in lines) + "data: [DONE]\n\n"
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(0, len(body), 7):
            part = body[i:i + 7].encode()
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\n\r\n")
    return behave


def document(usage, size=0):
    body = json.dumps({"choices": [{"message": {"content": "x" * size}}], **({"usage": usage} if usage else {})}).encode()
    return answer(body, headers=[("Content-Type", "application/json")])


def test_quotas_settle_at_the_real_usage(tmp_path):
    """100 tokens are reserved each time; what the answer says is kept: short and long documents, streams; without a word it is the estimate; an answer
    that is an error takes what was estimated too, and absurd numbers are none."""
    quotas = tmp_path / "quotas.yaml"
    quotas.write_text("policies: [{name: t, per: key, tokens_per_day: 10000}]")
    text = json.dumps([{"role": "user", "content": "h" * 40}])
    estimate = 100 + len(text) // 4
    cases = [(document(USAGE), 21), (document(USAGE, 100_000), 21), (document({"input_tokens": 3, "output_tokens": 4}), 7), (events(USAGE), 21),
             (events(None), estimate), (document(None), estimate), (document({"total_tokens": 10 ** 15}), estimate)]
    with Upstream(answer()) as u, gateway(tmp_path, text_of([pool([u])], [{"path_prefix": "/v1/", "upstream": "p"}]), f"--quota.file={quotas}") as g:
        left, before = 10000, 0
        for i, (behave, took) in enumerate(cases):
            u.behave = behave
            r = requests.post(g.url + "/v1/chat/completions", data='{"model":"m","max_tokens":100,"messages":%s}' % text)
            assert r.status_code == 200
            now = int(r.headers["x-ratelimit-remaining"])
            assert now == left - before - estimate, i
            left, before = left - before, took
        u.behave = answer()
        r = requests.post(g.url + "/v1/chat/completions", data='{"model":"m","max_tokens":100,"messages":%s}' % text)
        assert int(r.headers["x-ratelimit-remaining"]) == left - before - estimate
