"""Writes tests/data/llm/embeddings.txt: what tests/unit/engine/llm/test_encoder.c expects; and a cross-encoder, tests/data/llm/bert-rank, with rank.txt.

    PYTHONPATH=... python tests/data/make_embeddings.py NODE_FOLDER

Encoders: a float64 forward pass over the Hugging Face folder, written here in numpy. Decoders with pooling: llama.cpp on a copy of the tiny file with the
pooling's key set (NODE_FOLDER holds node_modules/node-llama-cpp). Where both can be had they are compared here. A line: model,
pooling, ids, values; vectors have length 1."""
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
LLM = os.path.join(HERE, "llm")
ERF = np.vectorize(math.erf)


def norm(x, w, b, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w + b


def bert(folder, ids, n_first=0):
    """The hidden states of `ids`, float64. Tokens from n_first on, if it is above 0, are of type 1."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    w = {k.removeprefix("bert."): v.astype(np.float64) for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}
    n, heads, eps = len(ids), c["num_attention_heads"], c["layer_norm_eps"]
    e = "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "token_type_embeddings.weight"][[int(0 < n_first <= i) for i in range(n)]] + w[e + "position_embeddings.weight"][:n]
    x = norm(x, w[e + "LayerNorm.weight"], w[e + "LayerNorm.bias"], eps)
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."

        def linear(name, y):
            return y @ w[p + name + ".weight"].T + w[p + name + ".bias"]
        q, k, v = (linear("attention.self." + r, x).reshape(n, heads, -1).swapaxes(0, 1) for r in ("query", "key", "value"))
        s = q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1])
        s = np.exp(s - s.max(-1, keepdims=True))
        a = ((s / s.sum(-1, keepdims=True)) @ v).swapaxes(0, 1).reshape(n, -1)
        x = norm(x + linear("attention.output.dense", a), w[p + "attention.output.LayerNorm.weight"], w[p + "attention.output.LayerNorm.bias"], eps)
        h = linear("intermediate.dense", x)
        h = h * 0.5 * (1 + ERF(h / math.sqrt(2)))
        x = norm(x + linear("output.dense", h), w[p + "output.LayerNorm.weight"], w[p + "output.LayerNorm.bias"], eps)
    return x


def write_ranker(folder):
    """The tiny BERT with a pooler and a classifier, as transformers saves a BertForSequenceClassification of one label."""
    w = load_file(os.path.join(LLM, "bert", "model.safetensors"))
    rng = np.random.default_rng(8)
    with open(os.path.join(LLM, "bert", "config.json")) as f:
        c = json.load(f) | {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    n = c["hidden_size"]
    os.makedirs(folder, exist_ok=True)
    w = {"bert." + k: v for k, v in w.items()} | {
        "bert.pooler.dense.weight": rng.normal(0, 0.3, (n, n)).astype(np.float32), "bert.pooler.dense.bias": rng.normal(0, 0.1, n).astype(np.float32),
        "classifier.weight": rng.normal(0, 1, (1, n)).astype(np.float32), "classifier.bias": np.array([0.25], np.float32)}
    save_file(w, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(c, f, indent=1)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(LLM, "bert", name), os.path.join(folder, name))
    # and in GGUF, under the names of ggml's converter
    with_pooling(os.path.join(LLM, "bert.gguf"), folder + ".gguf", gguf.PoolingType.RANK,
                 {"cls.weight": w["bert.pooler.dense.weight"], "cls.bias": w["bert.pooler.dense.bias"],
                  "cls.output.weight": w["classifier.weight"], "cls.output.bias": w["classifier.bias"]})


def score(folder, ids, n_first):
    w = load_file(os.path.join(folder, "model.safetensors"))
    x = np.tanh(w["bert.pooler.dense.weight"].astype(np.float64) @ bert(folder, ids, n_first)[0] + w["bert.pooler.dense.bias"])
    return float((w["classifier.weight"].astype(np.float64) @ x + w["classifier.bias"])[0])


def write_ranks(rng):
    folder = os.path.join(LLM, "bert-rank")
    write_ranker(folder)
    with open(os.path.join(LLM, "rank.txt"), "w") as f:
        f.write("# by make_embeddings.py: tokens of the first text, ids, score of bert-rank\n")
        for n, m in ((1, 1), (3, 5), (10, 30), (20, 3), (2, 57)):
            ids = [2] + [int(i) for i in rng.integers(5, 60, n)] + [3] + [int(i) for i in rng.integers(5, 60, m)] + [3]
            f.write(f"{n + 2}\t{' '.join(map(str, ids))}\t{score(folder, ids, n + 2):.8g}\n")


QUERY = "Who serves the models?"
DOCUMENTS = ["A server serves models to those who ask.", "The cat sat on the mat.", "one two three", "Models! and a naïve cat"]


def write_rank_texts():
    """The same from texts, by the pair encoding of `tokenizers`."""
    folder = os.path.join(LLM, "bert-rank")
    tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    pairs = [tok.encode(QUERY, d) for d in DOCUMENTS]
    scores = [1 / (1 + math.exp(-score(folder, e.ids, e.type_ids.index(1)))) for e in pairs]
    with open(os.path.join(LLM, "rank_texts.json"), "w") as f:
        json.dump({"query": QUERY, "documents": DOCUMENTS, "scores": scores, "tokens": [len(e.ids) for e in pairs]}, f, indent=1)


def pooled(hidden, how):
    v = hidden.mean(0) if how == "mean" else hidden[0] if how == "cls" else hidden[-1]
    return v / np.linalg.norm(v)


def llama(node, model, lists, context=64):
    with tempfile.TemporaryDirectory(dir=node) as tmp:  # imports are resolved from where the script lies
        ids, out, script = (os.path.join(tmp, n) for n in ("ids", "out", "embeddings.mjs"))
        shutil.copy(os.path.join(HERE, "..", "tools", "llama_embeddings.mjs"), script)
        with open(ids, "w") as f:
            json.dump(lists, f)
        subprocess.run(["node", script, os.path.abspath(model), ids, out, str(context)], check=True)
        with open(out) as f:
            return [np.array(v) / np.linalg.norm(v) for v in json.load(f)]


def with_pooling(source, target, kind, more=None):
    """A copy of a GGUF file with ARCH.pooling_type set, and `more` tensors."""
    r = gguf.GGUFReader(source)
    arch = r.fields["general.architecture"].contents()
    w = gguf.GGUFWriter(target, arch)
    for f in r.fields.values():
        if f.name.startswith("GGUF.") or f.name in ("general.architecture", f"{arch}.pooling_type"):
            continue
        if f.types[0] == gguf.GGUFValueType.ARRAY:
            w.add_array(f.name, f.contents())
        else:
            w.add_key_value(f.name, f.contents(), f.types[0])
    w.add_pooling_type(kind)
    for t in r.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    for name, x in (more or {}).items():
        w.add_tensor(name, x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    node = sys.argv[1]
    write_ranks(np.random.default_rng(6))
    write_rank_texts()
    rng = np.random.default_rng(5)
    lines = []
    lists = [[2] + [int(i) for i in rng.integers(5, 60, n - 2)] + [3] for n in (2, 3, 7, 31, 33, 62)]
    for how in ("mean", "cls", "last"):
        for ids in lists:
            lines.append(("bert", how, ids, pooled(bert(os.path.join(LLM, "bert"), ids), how)))
    for ours, theirs in zip(lines, llama(node, os.path.join(LLM, "bert.gguf"), lists), strict=False):
        assert ours[3] @ theirs > 0.999999, (ours, theirs)
    with tempfile.TemporaryDirectory() as tmp:
        for arch, how in (("qwen3", "last"), ("llama", "mean")):
            copy = os.path.join(tmp, arch + ".gguf")
            with_pooling(os.path.join(LLM, arch + ".gguf"), copy, gguf.PoolingType[how.upper()])
            r = gguf.GGUFReader(copy)
            bos, eos = (int(r.fields[f"tokenizer.ggml.{k}_token_id"].contents()) if f"tokenizer.ggml.{k}_token_id" in r.fields else None for k in ("bos", "eos"))
            # node-llama-cpp puts BOS and EOS around a list that has none
            lists = [([bos] if bos is not None else []) + [int(i) for i in rng.integers(5, 60, n)] + [eos] for n in (1, 8, 40)]
            lines += [(arch, how, ids, v) for ids, v in zip(lists, llama(node, copy, lists), strict=True)]
    with open(os.path.join(LLM, "embeddings.txt"), "w") as f:
        f.write("# by make_embeddings.py: model, pooling, ids, values\n")
        for model, how, ids, v in lines:
            f.write(f"{model}\t{how}\t{' '.join(map(str, ids))}\t{' '.join(f'{x:.8g}' for x in v)}\n")


if __name__ == "__main__":
    main()
