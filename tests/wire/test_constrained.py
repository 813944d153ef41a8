"""Constrained output over HTTP with a real engine and random weights: whatever has the asked form has it from the constraint. Checked by Python's `re`
and `jsonschema`. What can't be honoured is 400 with the field's name, and the server lives on."""
import json
import pathlib
import re
import shutil
import threading

import jsonschema
import pytest
import requests
from inferd_server import Server

DATA = pathlib.Path(__file__).resolve().parents[1] / "data/llm"
SCHEMA = {"type": "object", "properties": {"k": {"enum": ["ab", "c"]}, "n": {"type": "integer", "minimum": -9, "maximum": 99}, "b": {"type": "boolean"}},
          "required": ["k", "n"], "additionalProperties": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    (root / "tiny/1").mkdir(parents=True)
    shutil.copy(DATA / "llama.gguf", root / "tiny/1/model.gguf")
    with Server(root) as s:
        yield s


def complete(server, **more):
    body = {"model": "tiny", "prompt": "a", "max_tokens": 50, **more}
    return requests.post(server.url + "/v1/completions", json=body, timeout=60)


def choices(server, **more):
    r = complete(server, **more)
    assert r.status_code == 200, r.text
    return [(c["text"], c["finish_reason"]) for c in r.json()["choices"]]


@pytest.mark.parametrize("pattern", [r"\d{3}-\d{4}", r"(ab|c)+!", "[^a-z]{2}", "(yes|no)( (yes|no)){0,3}", "é{2,3}日?"])
def test_regex(server, pattern):
    for text, finish in choices(server, structured_outputs={"regex": pattern}, n=6, seed=1):
        assert finish == "length" or re.fullmatch(pattern, text), text
        assert finish in ("stop", "length")


def test_schema_many_at_once(server):
    """Eight clients with two schemas; each choice is valid by jsonschema or was cut."""
    other = {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2}
    answers, stops = [], 0

    def ask(seed):
        schema = [SCHEMA, other][seed % 2]
        for text, finish in choices(server, structured_outputs={"json": schema}, n=4, seed=seed, temperature=[0, 1, 2][seed % 3]):
            answers.append((schema, text, finish))

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(answers) == 32
    for schema, text, finish in answers:
        if finish == "stop":
            jsonschema.validate(json.loads(text), schema)
            stops += 1
    assert stops > 8


def test_choice_and_grammar(server):
    for text, finish in choices(server, structured_outputs={"choice": ["red", "green"]}, n=4, seed=3):
        assert text in ("red", "green") and finish == "stop"
    assert choices(server, structured_outputs={"grammar": 'root ::= "a"'}, max_tokens=10) == [("a", "stop")]
    assert choices(server, structured_outputs={"choice": ["a"]}, max_tokens=1) == [("a", "stop")]


@pytest.mark.parametrize("field,value,word", [
    ("regex", "foo**", "quantifier"), ("regex", "[", "without its ]"), ("regex", "(" * 60000, "nested more than 64"),
    ("grammar", "root ::= " + "(" * 60000, "nested more than 64"), ("grammar", "root ::= x", "defined"), ("grammar", "root ::= root \"a\"", "left recursion"),
    ("choice", [], "at least one"), ("regex", "q{60}", "shortest output"), ("regex", "a{1000000000}", "shortest output"),
    ("json", {"type": "object", "patternProperties": {}}, "'patternProperties'"), ("json", {"type": "string", "pattern": "^a\\!$"}, "'pattern'"),
    ("json", {"$ref": "#"}, "refers to itself"), ("json", {"type": "string", "format": "colour"}, "colour"),
])
def test_refused(server, field, value, word):
    r = complete(server, structured_outputs={field: value})
    assert r.status_code == 400, r.text
    error = r.json()["error"]
    assert word in error["message"] and error["param"] == field, error
    assert choices(server, structured_outputs={"choice": ["ok"]}) == [("ok", "stop")]
