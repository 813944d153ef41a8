"""test_openai_embeddings.py: /v1/embeddings with the official client, over small random encoders whose vectors were computed in float64 by
numpy (tests/data/llm/embeddings.txt: model, pooling, ids, values)."""
import base64
import shutil

import numpy as np
import openai
import pytest
import requests

from inferd_server import ROOT, Server, write_fake

DATA = ROOT / "tests/data/llm"


def expected():
    for line in (DATA / "embeddings.txt").read_text().splitlines():
        if line.startswith("bert\tmean\t"):
            _, _, ids, values = line.split("\t")
            yield [int(i) for i in ids.split()], np.array([float(v) for v in values.split()])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    (root / "bert/1").mkdir(parents=True)
    shutil.copy(DATA / "bert.gguf", root / "bert/1/model.gguf")
    (root / "bert/model.yaml").write_text("parameters:\n  pooling: mean\n")
    write_fake(root, "parrot", "tokens = true\n")
    with Server(root) as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def cosine(a, b):
    return np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)


def test_vectors_are_those_of_the_reference(client):
    rows = list(expected())
    assert len(rows) >= 5
    r = client.embeddings.create(model="bert", input=[ids for ids, _ in rows])  # the client asks for base64 by itself
    assert [d.index for d in r.data] == list(range(len(rows))) and r.usage.prompt_tokens == sum(len(ids) for ids, _ in rows)
    for d, (_, want) in zip(r.data, rows):
        assert cosine(np.array(d.embedding), want) > 0.9999
    one = client.embeddings.create(model="bert", input=rows[0][0], encoding_format="float").data[0].embedding
    assert np.array_equal(np.float32(one), np.float32(r.data[0].embedding))  # the same alone and in a batch, as numbers and as base64


def test_text(client, server):
    r = client.embeddings.create(model="bert", input=["a b", "c"], encoding_format="float")
    alone = client.embeddings.create(model="bert", input="c", encoding_format="float")
    assert r.data[1].embedding == alone.data[0].embedding
    raw = requests.post(server.url + "/v1/embeddings", json={"model": "bert", "input": "c", "encoding_format": "base64"}).json()
    assert np.array_equal(np.frombuffer(base64.b64decode(raw["data"][0]["embedding"], validate=True), "<f4"), np.float32(alone.data[0].embedding))
    ids = requests.post(server.url + "/tokenize", json={"model": "bert", "prompt": "a b"}).json()["tokens"]
    assert client.embeddings.create(model="bert", input=ids, encoding_format="float").data[0].embedding == r.data[0].embedding


def test_text_never_becomes_a_marker(client):
    """A text that spells a marker is longer than the marker."""
    plain = client.embeddings.create(model="bert", input="c", encoding_format="float").usage.prompt_tokens
    assert client.embeddings.create(model="bert", input="c [SEP]", encoding_format="float").usage.prompt_tokens > plain + 1


@pytest.mark.parametrize("body, param", [
    ({"input": None}, "input"), ({}, "input"), ({"input": 3.5}, "input"), ({"input": []}, "input"), ({"input": [[]]}, "input"),
    ({"input": [-1]}, "input"), ({"input": ["a", 3]}, "input"), ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ({"input": "a", "dimensions": 7}, "dimensions"), ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "model": "parrot"}, "model"),
    ({"input": "a", "model": "nobody"}, "model"), ({"input": "a " * 5000}, "input"), ({"input": ["a"] * 2049}, "input"),
    ({"input": [99999999]}, None),
])
def test_bad_requests(server, body, param):
    r = requests.post(server.url + "/v1/embeddings", json={"model": "bert", **body})
    assert r.status_code in (400, 404) and r.json()["error"]["param"] == param, r.text
    server.alive()


def test_an_encoder_generates_nothing(client):
    with pytest.raises(openai.BadRequestError, match="gives embeddings"):
        client.chat.completions.create(model="bert", messages=[{"role": "user", "content": "x"}])
    assert "bert" in {m.id for m in client.models.list()}
