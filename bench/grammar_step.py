"""What a constraint costs a step, end to end: inferd serves one GGUF file on one core and answers the same prompt with and without a schema, alternately,
with the same number of tokens; compared is the server's processor time a token (the machine may be busy with something else).

    python bench/grammar_step.py MODEL.gguf [--rounds N]

The schema is that of issue 3: four levels, an enum of 200 values. Its first round is reported apart: there the masks are new."""
import argparse
import json
import pathlib
import shutil
import statistics
import tempfile
import urllib.request

import common


def schema(n_objects):
    values = [f"value_{i * 7919 % 997:03d}_{'abcdefgh'[i % 8]}" for i in range(200)]
    inner = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "kind": {"enum": values}}, "required": ["name", "kind"],
             "additionalProperties": False}
    item = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 9999}, "inner": inner}, "required": ["id", "inner"],
            "additionalProperties": False}
    return {"type": "object", "properties": {"list": {"type": "array", "items": item, "minItems": n_objects, "maxItems": n_objects}},
            "required": ["list"], "additionalProperties": False}


def ask(url, model, temperature, seed, **more):
    body = {"model": model, "temperature": temperature, "seed": seed, "messages": [{"role": "user", "content": "List some things as JSON."}], **more}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=300))["usage"]["completion_tokens"]


def measure(server, url, model, temperature, rounds):
    form = {"type": "json_schema", "json_schema": {"name": "list", "schema": schema(6), "strict": True}}
    with_ms, without_ms, first_ms = [], [], None
    for k in range(rounds + 1):
        t = server.cpu_seconds()
        n = ask(url, model, temperature, k, max_tokens=600, response_format=form)
        constrained = (server.cpu_seconds() - t) * 1000 / n
        t = server.cpu_seconds()
        m = ask(url, model, temperature, k, max_tokens=n, min_tokens=n)
        free = (server.cpu_seconds() - t) * 1000 / m
        if k == 0:
            first_ms = constrained
        else:
            with_ms.append(constrained)
            without_ms.append(free)
    ratio = statistics.median(w / f for w, f in zip(with_ms, without_ms))
    detail = (f"{statistics.median(with_ms):.2f} ms against {statistics.median(without_ms):.2f} ms of processor time a token, {len(with_ms)} rounds; "
              f"the first constrained answer {first_ms:.2f} ms")
    common.report(f"a constrained step, temperature {temperature}", ratio, 1.10, "at most", detail)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--rounds", type=int, default=6)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as repository:
        version = pathlib.Path(repository, "llm", "1")
        version.mkdir(parents=True)
        shutil.copy(args.model, version / "model.gguf")
        # guessing tokens pays better in a repetitive answer: without it, both sides do the same work a token
        version.parent.joinpath("model.yaml").write_text("parameters:\n  speculation: 'off'\n")
        with common.inferd(repository, 18766) as server:
            for temperature in (0, 1):
                measure(server, "http://127.0.0.1:18766", "llm", temperature, args.rounds)


if __name__ == "__main__":
    main()
