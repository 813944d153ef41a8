"""test_embeddings.py: /v1/embeddings and /v1/rerank with the official Python client, over the tiny BERT (GGUF and Hugging Face folder) and decoders with a pooling.

Expected vectors are tests/data/llm/embeddings.txt (numpy in float64, llama.cpp); ids and counts are worked out in the test.
"""
import base64
import json
import math
import os
import pathlib
import shutil
import struct
import threading

import openai
import pytest
import requests

from inferd_server import Server, wait_until, write_fake

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "llm"


def vectors():
    out = []
    for line in (DATA / "embeddings.txt").read_text().splitlines():
        if not line.startswith("#"):
            model, how, ids, values = line.split("\t")
            out.append((model, how, [int(i) for i in ids.split()], [float(v) for v in values.split()]))
    return out


def lay_out(root, name, source, config=None):
    folder = root / name / "1"
    if source.is_dir():
        shutil.copytree(source, folder)
    else:
        folder.mkdir(parents=True)
        shutil.copy(source, folder / "model.gguf")
    if config:
        (root / name / "model.yaml").write_text(config)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    lay_out(root, "bert", DATA / "bert.gguf")
    lay_out(root, "folder", DATA / "bert")
    lay_out(root, "cls", DATA / "bert", "parameters: {pooling: cls}\n")
    lay_out(root, "cut", DATA / "bert", "parameters: {matryoshka: true}\n")
    lay_out(root, "brief", DATA / "bert", "parameters: {max_waiting: 2}\n")
    lay_out(root, "qwen3", DATA / "qwen3.gguf", "parameters: {pooling: last}\n")
    lay_out(root, "text", DATA / "llama")
    lay_out(root, "rank", DATA / "bert-rank")
    lay_out(root, "brief-rank", DATA / "bert-rank", "parameters: {max_waiting: 2}\n")
    sentence = lay_out(root, "sentence", DATA / "bert")
    (sentence / "1_Pooling").mkdir()
    (sentence / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
    (sentence / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    write_fake(root, "parrot", "tokens = true\n")
    write_fake(root, "numbers", "input = X FP32 [-1,n]\noutput = Y FP32 [-1,n] copy X\n")
    with Server(root) as s:
        yield s


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def refused(server, status, param, text, code=None, **body):
    r = requests.post(server.url + "/v1/embeddings", json={"model": "bert", "input": "a cat", **body})
    error = r.json()["error"]
    assert (r.status_code, error["param"], error["code"]) == (status, param, code), error
    assert text in error["message"], error["message"]


# ---- right ----


def test_vectors_of_token_lists(client):
    for model, how, ids, want in vectors():
        if (model, how) not in (("bert", "mean"), ("qwen3", "last")):
            continue
        r = client.embeddings.create(model=model, input=ids)
        assert r.object == "list" and r.model == model and r.data[0].object == "embedding" and r.data[0].index == 0
        assert r.usage.prompt_tokens == r.usage.total_tokens == len(ids)
        assert len(r.data[0].embedding) == len(want) and cosine(r.data[0].embedding, want) > 0.99999


def test_folder_and_pooling_say_the_same(client):
    for model, name, how in (("folder", "bert", "mean"), ("cls", "bert", "cls"), ("sentence", "bert", "cls")):
        rows = [(ids, want) for m, h, ids, want in vectors() if (m, h) == (name, how)]
        r = client.embeddings.create(model=model, input=[ids for ids, _ in rows])
        assert [d.index for d in r.data] == list(range(len(rows)))
        for d, (_, want) in zip(r.data, rows, strict=True):
            assert cosine(d.embedding, want) > 0.99999
            # the sentence folder has no Normalize: its vectors keep their length
            assert (abs(math.sqrt(sum(x * x for x in d.embedding)) - 1) < 1e-5) == (model != "sentence")


def test_texts_get_cls_and_sep(client, server):
    ids = requests.post(server.url + "/tokenize", json={"model": "bert", "prompt": "the cat"}).json()["tokens"]
    assert ids[0] == 2 and ids[-1] == 3 and len(ids) == 4  # [CLS] the cat [SEP]
    a = client.embeddings.create(model="bert", input="The  Cät")  # lower case, no accents, one space
    b = client.embeddings.create(model="bert", input=ids)
    assert a.data[0].embedding == b.data[0].embedding and a.usage.prompt_tokens == 4


def test_formats(client, server):
    texts = ["the cat", "a server", "the cat"]
    as_float = requests.post(server.url + "/v1/embeddings", json={"model": "bert", "input": texts, "encoding_format": "float"}).json()
    as_text = requests.post(server.url + "/v1/embeddings", json={"model": "bert", "input": texts, "encoding_format": "base64"}).json()
    for f, b in zip(as_float["data"], as_text["data"], strict=True):
        raw = base64.b64decode(b["embedding"], validate=True)
        values = struct.unpack(f"<{len(raw) // 4}f", raw)
        assert [struct.unpack("<f", struct.pack("<f", x))[0] for x in f["embedding"]] == list(values)
    assert as_float["data"][0]["embedding"] == as_float["data"][2]["embedding"] != as_float["data"][1]["embedding"]
    assert client.embeddings.create(model="bert", input=texts).data[1].embedding == pytest.approx(as_float["data"][1]["embedding"], abs=1e-7)


def test_dimensions(client, server):
    whole = client.embeddings.create(model="cut", input="the cat").data[0].embedding
    short = client.embeddings.create(model="cut", input="the cat", dimensions=8).data[0].embedding
    length = math.sqrt(sum(x * x for x in whole[:8]))
    assert short == pytest.approx([x / length for x in whole[:8]], abs=1e-6)
    assert len(client.embeddings.create(model="bert", input="the cat", dimensions=32).data[0].embedding) == 32
    refused(server, 400, "dimensions", "may not be shortened", dimensions=8)
    refused(server, 400, "dimensions", "between 1 and 32", dimensions=33)
    refused(server, 400, "dimensions", "between 1 and 32", dimensions=0)


def test_same_bits_whatever_shares_the_step(client):
    texts = [" ".join(["the cat sat on a mat"] * (1 + i % 8)) for i in range(40)]
    alone = [client.embeddings.create(model="bert", input=t, encoding_format="base64").data[0].embedding for t in texts]
    together = [d.embedding for d in client.embeddings.create(model="bert", input=texts, encoding_format="base64").data]
    assert together == alone
    got = [None] * 8

    def ask(i):
        got[i] = [d.embedding for d in client.embeddings.create(model="bert", input=texts, encoding_format="base64").data]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(g == alone for g in got)


def test_more_inputs_than_the_queue_ever_holds(client):
    with pytest.raises(openai.BadRequestError) as e:
        client.embeddings.create(model="brief", input=["a", "b", "c"])
    assert e.value.param == "input" and "input has 3 entries" in str(e.value) and "max_waiting is 2" in str(e.value)


def test_more_documents_than_the_queue_ever_holds(server):
    r = requests.post(server.url + "/v1/rerank", json={"model": "brief-rank", "query": "a", "documents": ["a", "b", "c"]})
    error = r.json()["error"]
    assert r.status_code == 400 and error["param"] == "documents"
    assert "documents has 3 entries" in error["message"] and "max_waiting is 2" in error["message"]


def test_as_many_as_openai_takes(client):
    r = client.embeddings.create(model="bert", input=["the cat"] * 2048)
    assert len(r.data) == 2048 and r.usage.prompt_tokens == 4 * 2048


@pytest.mark.skipif(os.environ.get("INFERD_BUILD") in ("asan", "tsan"), reason="a sanitizer keeps freed memory")
def test_memory_is_flat_over_distinct_texts(client, server):
    """Less than a KiB a request, over 2,000 requests with texts that no request had before."""
    def ask(first, n):
        for i in range(first, first + n):
            client.embeddings.create(model="bert", input=f"the cat {i} sat on {i * 7919 % 10007}")
    ask(0, 300)
    before = server.rss_bytes()
    ask(300, 2000)
    assert server.rss_bytes() - before < 2000 * 1024


def test_a_folder_of_a_decoder_completes(client):
    r = client.completions.create(model="text", prompt="the cat", max_tokens=4, temperature=0)
    assert r.usage.completion_tokens >= 1 and r.choices[0].finish_reason in ("stop", "length")


def rank(server, path="/v1/rerank", **body):
    want = json.loads((DATA / "rank_texts.json").read_text())
    return requests.post(server.url + path, json={"model": "rank", "query": want["query"], "documents": want["documents"], **body}), want


def test_rerank(server):
    for path in ("/v1/rerank", "/rerank"):
        r, want = rank(server, path)
        body = r.json()
        assert r.status_code == 200 and body["model"] == "rank" and body["id"].startswith("rerank-"), body
        assert body["usage"] == {"prompt_tokens": sum(want["tokens"]), "total_tokens": sum(want["tokens"])}
        order = sorted(range(len(want["scores"])), key=lambda i: -want["scores"][i])
        assert [x["index"] for x in body["results"]] == order
        assert [x["relevance_score"] for x in body["results"]] == pytest.approx([want["scores"][i] for i in order], abs=1e-3)
        assert all("document" not in x for x in body["results"])
    r, want = rank(server, top_n=2, return_documents=True, documents=[{"text": d} for d in want["documents"]])
    assert [(x["index"], x["document"]["text"]) for x in r.json()["results"]] == [(i, want["documents"][i]) for i in order[:2]]
    # a score is the same beside other documents and alone
    alone = rank(server, documents=[want["documents"][1]])[0].json()["results"][0]["relevance_score"]
    assert alone == next(x["relevance_score"] for x in body["results"] if x["index"] == 1)


@pytest.mark.parametrize("body, param, text", [
    ({"query": ""}, "query", "empty"), ({"query": 7}, "query", "string"), ({"query": None}, "query", "query"), ({"documents": []}, "documents", "0 entries"),
    ({"documents": "a"}, "documents", "documents"), ({"documents": ["a", ""]}, "documents", "documents[1]"), ({"documents": [{"image": "x"}]}, "documents", "documents[0]"),
    ({"top_n": 0}, "top_n", "top_n"), ({"top_n": -1}, "top_n", "top_n"), ({"return_documents": "x"}, "return_documents", "return_documents"),
    ({"model": "bert"}, "model", "cross-encoder"), ({"model": "text"}, "model", "no embeddings"), ({"documents": ["cat " * 100]}, "documents", "maximum context length is 64"),
    ({"documents": ["a"] * 2049}, "documents", "2049")])
def test_rerank_refusals(server, body, param, text):
    r, _ = rank(server, **body)
    error = r.json()["error"]
    assert r.status_code == 400 and error["param"] == param and text in error["message"], error


# ---- refused ----


def test_refusals(server):
    r = requests.post(server.url + "/v1/embeddings", json={"model": "bert"})
    assert r.status_code == 400 and r.json()["error"]["param"] == "input"
    refused(server, 400, "input", "empty", input="")
    refused(server, 400, "input", "0 entries", input=[])
    refused(server, 400, "input", "input[1] is an empty", input=["a", ""])
    refused(server, 400, "input", "2049 entries", input=["a"] * 2049)
    refused(server, 400, "input", "must be a string", input=7)
    refused(server, 400, "input", "must be a string", input=["a", {}])
    refused(server, 400, "input", "token id", input=[2, -1])
    refused(server, 400, "input", "token id", input=[2, 1.5])
    refused(server, 400, None, "vocabulary", input=[2, 1 << 20])
    refused(server, 400, "encoding_format", "float, base64", encoding_format="int8")
    refused(server, 400, "truncate_prompt_tokens", "not supported", truncate_prompt_tokens=4)
    refused(server, 400, "dimensions", "dimensions", dimensions="x")
    refused(server, 400, "priority", "priority", priority=-1)
    refused(server, 404, "model", "none", model="none", code="model_not_found")
    refused(server, 400, "model", "generates text", model="text")
    refused(server, 400, "model", "use /v1/rerank", model="rank")
    refused(server, 400, "model", "takes tensors", model="numbers")
    refused(server, 400, "model", "generates text", model="parrot")
    refused(server, 400, "input", "maximum context length is 64 tokens. However, your prompt has 102", input="cat " * 100, code="context_length_exceeded")
    refused(server, 400, "input", "maximum context length is 64 tokens. However, your prompt has 65", input=[5] * 65, code="context_length_exceeded")


def test_an_embedding_model_generates_nothing(server):
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
        r = requests.post(server.url + path, json={"model": "bert", **body})
        assert r.status_code == 400, r.text


def test_whole_context_is_taken(client):
    assert client.embeddings.create(model="bert", input=[5] * 64).usage.prompt_tokens == 64


def test_bad_folders_are_named(tmp_path):
    """A pooling or module that inferd doesn't have, and a tensor that is missing, fail the load with their names."""
    dense = lay_out(tmp_path, "dense", DATA / "bert")
    (dense / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]')
    maximum = lay_out(tmp_path, "maximum", DATA / "bert")
    (maximum / "modules.json").write_text('[{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]')
    (maximum / "1_Pooling").mkdir()
    (maximum / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    outside = lay_out(tmp_path, "outside", DATA / "bert")
    (outside / "modules.json").write_text('[{"type": "x.Pooling", "path": "../../dense"}]')
    lay_out(tmp_path, "odd", DATA / "bert", "parameters: {pooling: max}\n")
    with Server(tmp_path, wait="live") as s:
        def all_failed():
            rows = {r["name"]: r for r in requests.post(s.url + "/v2/repository/index").json()}
            return rows if len(rows) == 4 and all(r.get("reason") for r in rows.values()) else None

        rows = wait_until(all_failed, 60)
        assert "Dense" in rows["dense"]["reason"]
        assert "pooling_mode_max_tokens" in rows["maximum"]["reason"]
        assert rows["outside"]["reason"]
        assert "mean, cls or last" in rows["odd"]["reason"]
