"""Writes small random-weight language models, each as a GGUF file and as a Hugging Face folder of the same weights.

    python tests/data/make_llm.py OUT [--arch llama,...] [--embd 32] [--layers N] [--ctx 64] [--type F16|F32|BF16] [--no-folder]
    python tests/data/make_llm.py --seeds tests/fuzz/corpus

Without options it writes what tests/data/llm holds (committed, so that the unit tests need no Python). Larger --embd (e.g. 256) makes rows that
K-quants divide. The GGUF side is written by the `gguf` package, the safetensors by `safetensors`, tokenizer.json by `tokenizers`: three
writers that are not ours. The q and k rows of llama are permuted for GGUF as ggml's converter does."""
import argparse
import json
import math
import os
import random

import gguf
import ml_dtypes
import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
VECTORS = ["", "a", " a", "the cat sat on the mat", "The server serves 12345 models!", "two  spaces and\ttabs\n\nnewlines ", "it's they'll WE'RE",
           "naïve café Ünïcödé", "日本語 😀 x", "a<|im_end|>b", "{\"name\": [1, 2, 3]}", "x" * 40, "mixed123abc 4 56 7890", "a [multimodal] b"]
CHATML = ("{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TEXT = ["the cat sat on the mat and the dog sat on the log", "a server serves models to those who ask for them",
        "one two three four five six seven eight nine ten", '{"name": "value", "list": [1, 2, 3]}', "int main(void) { return 0; }",
        "Müller trinkt Tee, naïve café crème"]


def bpe(pre_regex, digits, specials, bos):
    tok = Tokenizer(models.BPE())
    head = [pre_tokenizers.Split(Regex(pre_regex), "isolated", invert=False)] if pre_regex else []
    head += [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    tok.pre_tokenizer = pre_tokenizers.Sequence(head + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pre_regex)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=256 + 40, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
                                                      show_progress=False))
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    if bos:
        tok.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tok.token_to_id(bos))])
    return tok


def spm(specials, users, prefix):
    """SentencePiece's BPE as tokenizer.json spells it: byte fallback, merges, U+2581 for a space."""
    vocab = {s: i for i, s in enumerate(specials)}
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = len(vocab)
    for c in "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:{}[]\"'()":
        vocab[c] = len(vocab)
    pieces = "▁t he ▁the an ▁a in on er ▁an nd ▁and se rv ▁s serv ▁serv ▁o".split(" ")
    vocab |= {p: len(vocab) + i for i, p in enumerate(pieces)}
    # as transformers converts a SentencePiece vocabulary: every pair of pieces that makes a piece, best piece first
    merges = [m for p in pieces for m in sorted(((p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab),
                                                key=lambda m: (vocab[m[0]], vocab[m[1]]))]
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tok.normalizer = (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]) if prefix
                      else normalizers.Replace(" ", "▁"))
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] +
                                    ([decoders.Strip(" ", 1, 0)] if prefix else []))
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    tok.add_tokens([AddedToken(s, special=False, normalized=False) for s in users])
    bos = next(s for s in specials if s in ("<s>", "<bos>"))
    tok.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tok.token_to_id(bos))])
    return tok


def wordpiece():
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = "the cat sat on mat and a server models who ask for them one two three".split()
    pieces = list("abcdefghijklmnopqrstuvwxyz0123456789.,'") + ["##" + c for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    vocab = {t: i for i, t in enumerate(dict.fromkeys(specials + pieces + words + ["##ing", "##ed", "##s"]))}
    tok = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    ids = {s: tok.token_to_id(s) for s in ("[CLS]", "[SEP]")}
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                       special_tokens=list(ids.items()))
    return tok


CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
PHI = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|assistant|>", "<|system|>", "<|user|>", "<|end|>"]

ARCHS = {  # arch: (tokenizer, special tokens by role, model_type, extra config, extra GGUF)
    "llama": dict(tok=lambda: bpe(LLAMA3, False, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"], "<|begin_of_text|>"),
                  pre="llama-bpe", bos="<|begin_of_text|>", eos="<|end_of_text|>", type="F16", theta=500000.0, layers=2),
    "qwen2": dict(tok=lambda: bpe(QWEN2, False, CHAT, None), pre="qwen2", bos=None, eos="<|im_end|>", pad="<|endoftext|>", type="BF16",
                  theta=1e6, tied=True, layers=2),
    "qwen3": dict(tok=lambda: bpe(QWEN2, False, CHAT, None), pre="qwen2", bos=None, eos="<|im_end|>", type="BF16", theta=1e6, layers=2,
                  head_dim=16),
    "gemma2": dict(tok=lambda: spm(GEMMA, ["[multimodal]"], False), bos="<bos>", eos="<eos>", pad="<pad>", unk="<unk>", type="BF16", theta=1e4, tied=True,
                   layers=2, head_dim=16, window=8),
    "gemma3": dict(tok=lambda: spm(GEMMA, ["[multimodal]"], False), bos="<bos>", eos="<eos>", pad="<pad>", unk="<unk>", type="BF16", theta=1e6, tied=True,
                   layers=7, head_dim=16, window=8),
    "phi3": dict(tok=lambda: spm(PHI, [], True), bos="<s>", eos="<|endoftext|>", unk="<unk>", type="F16", theta=1e4, layers=2),
    "bert": dict(tok=wordpiece, bos=None, eos=None, type="F32", layers=2),
}
HF_TYPE = {"gemma3": "gemma3_text"}
HF_CLASS = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma2": "Gemma2ForCausalLM",
            "gemma3": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM", "bert": "BertModel"}


def llama3_factors(theta, n_rot, factor=8.0, low=1.0, high=4.0, orig=32):
    out = []
    for i in range(0, n_rot, 2):
        wave = 2 * math.pi * theta ** (i / n_rot)
        smooth = (orig / wave - low) / (high - low)
        out.append(1.0 if wave < orig / high else factor if wave > orig / low else 1 / ((1 - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def rounded(w, kind):
    """The nearest value that `kind` has, as float32."""
    if kind == "F16":
        return w.astype(np.float16).astype(np.float32)
    if kind == "BF16":
        u = w.astype(np.float32).view(np.uint32)
        return ((u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000).view(np.float32)
    return w.astype(np.float32)


class Maker:
    def __init__(self, arch, args):
        self.arch, self.a = arch, dict(ARCHS[arch])
        a = self.a
        self.kind = args.type or a["type"]
        self.rng = np.random.default_rng(sum(arch.encode()))
        self.embd, self.layers, self.ctx = args.embd, args.layers or a["layers"], args.ctx
        self.heads, self.kv = 4, 4 if arch in ("phi3", "bert") else 2
        self.dim = a.get("head_dim", self.embd // self.heads) if args.embd == 32 else self.embd // self.heads
        self.ff = 2 * self.embd
        self.tok = a["tok"]()
        self.vocab = self.tok.get_vocab_size()
        self.hf, self.gg = {}, {}

    def tensor(self, hf, gg, shape, mean=0.0, std=None, gg_of=lambda w: w):
        std = std if std is not None else 1.0 / math.sqrt(shape[-1])
        w = rounded(self.rng.normal(mean, std, shape).astype(np.float32), self.kind)
        self.hf[hf] = w
        self.gg[gg] = gg_of(w)

    def norm(self, hf, gg, n=None):
        gemma = self.arch.startswith("gemma")
        self.tensor(hf, gg, (n or self.embd,), 0.0 if gemma else 1.0, 0.1, (lambda w: w + 1) if gemma else (lambda w: w))

    def bias(self, hf, gg, n):
        self.tensor(hf, gg, (n,), 0.0, 0.1)

    def decoder(self):
        e, a = self.embd, self.arch
        # wide and shared with the output, 0.5 would put all probability on the token that was just read
        self.tensor("model.embed_tokens.weight", "token_embd.weight", (self.vocab, e), std=1 / 16 if self.a.get("tied") and e > 32 else 0.5)
        self.norm("model.norm.weight", "output_norm.weight")
        if not self.a.get("tied"):
            self.tensor("lm_head.weight", "output.weight", (self.vocab, e))
        q, k = self.heads * self.dim, self.kv * self.dim
        for i in range(self.layers):
            h, g = f"model.layers.{i}.", f"blk.{i}."
            self.norm(h + "input_layernorm.weight", g + "attn_norm.weight")
            if a == "phi3":
                self.tensor(h + "self_attn.qkv_proj.weight", g + "attn_qkv.weight", (q + 2 * k, e))
                self.tensor(h + "mlp.gate_up_proj.weight", g + "ffn_up.weight", (2 * self.ff, e))
            else:
                turn = (lambda n: lambda w: permute(w, n)) if a == "llama" else (lambda n: lambda w: w)
                self.tensor(h + "self_attn.q_proj.weight", g + "attn_q.weight", (q, e), gg_of=turn(self.heads))
                self.tensor(h + "self_attn.k_proj.weight", g + "attn_k.weight", (k, e), gg_of=turn(self.kv))
                self.tensor(h + "self_attn.v_proj.weight", g + "attn_v.weight", (k, e))
                self.tensor(h + "mlp.gate_proj.weight", g + "ffn_gate.weight", (self.ff, e))
                self.tensor(h + "mlp.up_proj.weight", g + "ffn_up.weight", (self.ff, e))
            if a == "qwen2":
                for n, size in (("q", q), ("k", k), ("v", k)):
                    self.bias(h + f"self_attn.{n}_proj.bias", g + f"attn_{n}.bias", size)
            if a in ("qwen3", "gemma3"):
                for n in "qk":
                    self.norm(h + f"self_attn.{n}_norm.weight", g + f"attn_{n}_norm.weight", self.dim)
            self.tensor(h + "self_attn.o_proj.weight", g + "attn_output.weight", (e, q))
            self.tensor(h + "mlp.down_proj.weight", g + "ffn_down.weight", (e, self.ff))
            if a.startswith("gemma"):
                self.norm(h + "post_attention_layernorm.weight", g + "post_attention_norm.weight")
                self.norm(h + "pre_feedforward_layernorm.weight", g + "ffn_norm.weight")
                self.norm(h + "post_feedforward_layernorm.weight", g + "post_ffw_norm.weight")
            else:
                self.norm(h + "post_attention_layernorm.weight", g + "ffn_norm.weight")

    def encoder(self):
        e = self.embd
        for hf, gg, n in (("word_embeddings", "token_embd", self.vocab), ("position_embeddings", "position_embd", self.ctx),
                          ("token_type_embeddings", "token_types", 2)):
            self.tensor(f"embeddings.{hf}.weight", gg + ".weight", (n, e), std=0.5)
        self.layer_norm("embeddings.LayerNorm", "token_embd_norm")
        for i in range(self.layers):
            h, g = f"encoder.layer.{i}.", f"blk.{i}."
            for hf, gg, o, n in (("attention.self.query", "attn_q", e, e), ("attention.self.key", "attn_k", e, e),
                                 ("attention.self.value", "attn_v", e, e), ("attention.output.dense", "attn_output", e, e),
                                 ("intermediate.dense", "ffn_up", self.ff, e), ("output.dense", "ffn_down", e, self.ff)):
                self.tensor(h + hf + ".weight", g + gg + ".weight", (o, n))
                self.bias(h + hf + ".bias", g + gg + ".bias", o)
            self.layer_norm(h + "attention.output.LayerNorm", g + "attn_output_norm")
            self.layer_norm(h + "output.LayerNorm", g + "layer_output_norm")

    def layer_norm(self, hf, gg):
        self.norm(hf + ".weight", gg + ".weight")
        self.bias(hf + ".bias", gg + ".bias", self.embd)

    # ---- GGUF ----

    def write_gguf(self, path):
        w, a = gguf.GGUFWriter(path, self.arch), self.a
        w.add_name(f"tiny {self.arch}")
        w.add_context_length(self.ctx)
        w.add_embedding_length(self.embd)
        w.add_block_count(self.layers)
        w.add_feed_forward_length(self.ff)
        w.add_head_count(self.heads)
        if self.arch == "bert":
            w.add_layer_norm_eps(1e-12)
            w.add_causal_attention(False)
            w.add_pooling_type(gguf.PoolingType.MEAN)
            w.add_token_type_count(2)
        else:
            w.add_head_count_kv(self.kv)
            w.add_layer_norm_rms_eps(1e-6)
            w.add_rope_freq_base(a["theta"])
            w.add_rope_dimension_count(self.dim)
            w.add_key_length(self.dim)
            w.add_value_length(self.dim)
        if self.arch in ("gemma2", "gemma3"):
            w.add_sliding_window(a["window"])
        if self.arch == "gemma2":
            w.add_attn_logit_softcapping(50.0)
            w.add_final_logit_softcapping(30.0)
        if self.arch == "llama":
            self.gg["rope_freqs.weight"] = llama3_factors(a["theta"], self.dim)
        self.gguf_tokenizer(w)
        for name, x in self.gg.items():
            kind = "F32" if x.ndim == 1 else self.kind
            if kind == "BF16":
                raw = (x.view(np.uint32) >> 16).astype(np.uint16)
                w.add_tensor(name, raw.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
            else:
                w.add_tensor(name, x.astype(np.float16) if kind == "F16" else x)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def gguf_tokenizer(self, w):
        state = json.loads(self.tok.to_str())
        added = {t["id"]: t for t in state["added_tokens"]}
        by_id = sorted(self.tok.get_vocab().items(), key=lambda kv: kv[1])
        assert [i for _, i in by_id] == list(range(self.vocab))
        kind, a = state["model"]["type"], self.a
        merges = [m if isinstance(m, list) else m.split(" ") for m in state["model"].get("merges", [])]
        rank = {x + y: i for i, (x, y) in reversed(list(enumerate(merges)))}
        T = gguf.TokenType
        texts, types, scores = [], [], []
        for text, i in by_id:
            t = T.NORMAL
            if i in added:
                t = T.CONTROL if added[i]["special"] else T.USER_DEFINED
            if kind == "BPE" and not a.get("pre") and t == T.NORMAL and len(text) == 6 and text.startswith("<0x"):
                t = T.BYTE
            if text == a.get("unk") or text == "[UNK]":
                t = T.UNKNOWN
            if kind == "WordPiece" and t in (T.NORMAL, T.UNKNOWN):
                text = text[2:] if text.startswith("##") else "▁" + text
            texts.append(text)
            types.append(t)
            scores.append(-float(rank[text]) if text in rank else -1e9 if t == T.NORMAL else 0.0)
        w.add_tokenizer_model({"WordPiece": "bert", "BPE": "gpt2" if a.get("pre") else "llama"}[kind])
        if a.get("pre"):
            w.add_tokenizer_pre(a["pre"])
            w.add_token_merges([x + " " + y for x, y in merges])
        w.add_token_list(texts)
        w.add_token_types(types)
        if kind == "BPE" and not a.get("pre"):
            w.add_token_scores(scores)
            w.add_add_space_prefix(self.arch == "phi3")
        find = self.tok.token_to_id
        if a.get("bos"):
            w.add_bos_token_id(find(a["bos"]))
        if a.get("eos"):
            w.add_eos_token_id(find(a["eos"]))
        if a.get("unk"):
            w.add_unk_token_id(find(a["unk"]))
        if a.get("pad"):
            w.add_pad_token_id(find(a["pad"]))
        if kind == "WordPiece":
            for role, text in (("cls", "[CLS]"), ("seperator", "[SEP]"), ("unknown", "[UNK]"), ("mask", "[MASK]"), ("padding", "[PAD]")):
                w.add_uint32(f"tokenizer.ggml.{role}_token_id", find(text))
        else:
            w.add_add_bos_token(a.get("bos") is not None)
            w.add_chat_template(CHATML)

    # ---- Hugging Face ----

    def config(self):
        a = self.a
        c = dict(architectures=[HF_CLASS[self.arch]], model_type=HF_TYPE.get(self.arch, self.arch), hidden_size=self.embd,
                 num_hidden_layers=self.layers, intermediate_size=self.ff, num_attention_heads=self.heads,
                 max_position_embeddings=self.ctx, vocab_size=self.vocab,
                 torch_dtype={"F16": "float16", "BF16": "bfloat16", "F32": "float32"}[self.kind])
        if self.arch == "bert":
            return c | dict(layer_norm_eps=1e-12, hidden_act="gelu", type_vocab_size=2, position_embedding_type="absolute")
        c |= dict(num_key_value_heads=self.kv, rms_norm_eps=1e-6, rope_theta=a["theta"], tie_word_embeddings=bool(a.get("tied")),
                  eos_token_id=self.tok.token_to_id(a["eos"]), hidden_act="silu")
        if self.arch in ("gemma2", "gemma3"):
            c |= dict(hidden_activation="gelu_pytorch_tanh", sliding_window=a["window"], query_pre_attn_scalar=self.dim, head_dim=self.dim)
        if self.arch == "gemma2":
            c |= dict(attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
        if self.arch == "gemma3":
            c |= dict(rope_local_base_freq=10000.0, sliding_window_pattern=6)
        if self.arch == "qwen3":
            c |= dict(head_dim=self.dim)
        if self.arch == "llama":
            c |= dict(rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=32))
        return c

    def write_folder(self, path):
        os.makedirs(path, exist_ok=True)
        names = list(self.hf)
        if self.arch == "qwen3":  # in two files behind an index
            cut = len(names) // 2
            parts = {"model-00001-of-00002.safetensors": names[:cut], "model-00002-of-00002.safetensors": names[cut:]}
            index = {"metadata": {}, "weight_map": {n: f for f, ns in parts.items() for n in ns}}
            with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
                json.dump(index, f)
        else:
            parts = {"model.safetensors": names}
        for file, part in parts.items():
            save_safetensors({n: self.hf[n] for n in part}, self.kind, os.path.join(path, file))
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(self.config(), f, indent=1)
        self.tok.save(os.path.join(path, "tokenizer.json"), pretty=False)
        a = self.a
        tc = {k + "_token": a[k] for k in ("bos", "eos", "unk", "pad") if a.get(k)}
        if self.arch == "bert":
            tc = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "mask_token": "[MASK]", "pad_token": "[PAD]"}
        else:
            tc["chat_template"] = CHATML
        with open(os.path.join(path, "tokenizer_config.json"), "w") as f:
            json.dump(tc, f, indent=1)
        with open(os.path.join(path, "vectors.json"), "w") as f:  # ours, not Hugging Face's: what `tokenizers` makes of texts
            json.dump([{"text": t, "ids": self.tok.encode(t).ids} for t in VECTORS], f, indent=0)
        if self.arch in ("gemma3", "qwen2"):
            with open(os.path.join(path, "generation_config.json"), "w") as f:
                json.dump({"do_sample": True, "temperature": 0.7, "top_k": 64, "top_p": 0.95,
                           "eos_token_id": [self.tok.token_to_id(a["eos"]), 1]}, f)


class Adapter:
    """A LoRA adapter of rank 4, alpha 6, for some of a model's matrices: {GGUF's name: (PEFT's name, in, out, heads to permute)}."""

    def __init__(self, maker):
        m, e = maker, maker.embd
        q, k = m.heads * m.dim, m.kv * m.dim
        if m.arch == "phi3":
            parts = {"attn_qkv": ("self_attn.qkv_proj", e, q + 2 * k, 0), "ffn_up": ("mlp.gate_up_proj", e, 2 * m.ff, 0)}
        else:
            parts = {"attn_q": ("self_attn.q_proj", e, q, m.heads), "attn_k": ("self_attn.k_proj", e, k, m.kv),
                     "attn_v": ("self_attn.v_proj", e, k, 0), "ffn_down": ("mlp.down_proj", m.ff, e, 0)}
        self.arch, self.hf, self.gg = m.arch, {}, {}
        rng = np.random.default_rng(7)
        for i in range(m.layers):
            for gg, (hf, n_in, n_out, heads) in parts.items():
                a = rng.normal(0, 0.2, (4, n_in)).astype(np.float32)
                b = rng.normal(0, 0.2, (n_out, 4)).astype(np.float32)
                name = f"base_model.model.model.layers.{i}.{hf}"
                self.hf[name + ".lora_A.weight"], self.hf[name + ".lora_B.weight"] = a, b
                self.gg[f"blk.{i}.{gg}.weight.lora_a"] = a
                self.gg[f"blk.{i}.{gg}.weight.lora_b"] = permute(b, heads) if heads and m.arch == "llama" else b

    def write(self, out):
        w = gguf.GGUFWriter(os.path.join(out, self.arch + "-lora.gguf"), self.arch)
        w.add_type("adapter")
        w.add_string("adapter.type", "lora")
        w.add_float32("adapter.lora.alpha", 6.0)
        for name, x in self.gg.items():
            w.add_tensor(name, x)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        folder = os.path.join(out, self.arch + "-lora")
        os.makedirs(folder, exist_ok=True)
        save_safetensors(self.hf, "F32", os.path.join(folder, "adapter_model.safetensors"))
        with open(os.path.join(folder, "adapter_config.json"), "w") as f:
            json.dump(dict(peft_type="LORA", task_type="CAUSAL_LM", r=4, lora_alpha=6, lora_dropout=0.0, bias="none", use_dora=False,
                           use_rslora=False, fan_in_fan_out=False, modules_to_save=None, alpha_pattern={}, rank_pattern={},
                           target_modules=sorted({n.split(".")[-3] for n in self.hf})), f, indent=1)


def save_safetensors(tensors, kind, path):
    from safetensors.numpy import save_file
    dtype = ml_dtypes.bfloat16 if kind == "BF16" else {"F16": np.float16, "F32": np.float32}[kind]
    save_file({n: np.ascontiguousarray(x.astype(dtype)) for n, x in tensors.items()}, path, {"format": "pt"})
    os.chmod(path, 0o644)


def seed_tokenizers():
    """The smallest tokenizer of each kind, as the `tokenizers` package writes it."""
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -2.0), ("▁ab", -2.5)], unk_id=0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.normalizer = normalizers.Sequence([normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()])
    byte_bpe = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")]))
    byte_bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    byte_bpe.add_special_tokens(["<|im_end|>"])
    spm_bpe = Tokenizer(models.BPE(vocab={"<unk>": 0, "<0x41>": 1, "a": 2, "▁": 3, "▁a": 4}, merges=[("▁", "a")], byte_fallback=True,
                                   unk_token="<unk>"))
    spm_bpe.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    spm_bpe.add_special_tokens(["<s>"])
    spm_bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 5)])
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##b": 4}, unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer(lowercase=True)
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    pieces.add_special_tokens(["[CLS]", "[SEP]"])
    return {"unigram": unigram, "bpe": byte_bpe, "spm": spm_bpe, "wordpiece": pieces}


def seed_gguf(path, arch):
    """A whole llama or phi3 of one layer in a kilobyte."""
    w = gguf.GGUFWriter(path, arch)
    for add, v in ((w.add_context_length, 8), (w.add_embedding_length, 2), (w.add_block_count, 1), (w.add_feed_forward_length, 2),
                   (w.add_head_count, 1)):
        add(v)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>", "a"])
    w.add_token_types([2, 3, 3, 1])
    w.add_token_scores([0.0, 0.0, 0.0, -1.0])
    w.add_chat_template("{{ messages }}")
    one = np.ones
    w.add_tensor("token_embd.weight", one((4, 2), np.float16))
    w.add_tensor("output_norm.weight", one(2, np.float32))
    mats = dict(attn_qkv=(6, 2), ffn_up=(4, 2)) if arch == "phi3" else dict(attn_q=(2, 2), attn_k=(2, 2), attn_v=(2, 2), ffn_gate=(2, 2), ffn_up=(2, 2))
    for n, shape in (mats | dict(attn_output=(2, 2), ffn_down=(2, 2))).items():
        w.add_tensor(f"blk.0.{n}.weight", one(shape, np.float16))
    for n in ("attn_norm", "ffn_norm"):
        w.add_tensor(f"blk.0.{n}.weight", one(2, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_seeds(out):
    for name, tok in seed_tokenizers().items():
        with open(os.path.join(out, "fuzz_tokenizer_json", name), "wb") as f:
            f.write(tok.to_str().encode())
            if name != "unigram":
                f.write(b"\0" + json.dumps({"eos_token": {"content": "<s>"}, "bos_token": "<s>", "chat_template": [
                    {"name": "default", "template": "{{ messages }}"}]}).encode())
    for arch in ("llama", "phi3"):
        seed_gguf(os.path.join(out, "fuzz_gguf", arch), arch)
    folder = os.path.join(out, "fuzz_safetensors")
    save_safetensors({"a": np.ones((2, 3), np.float32), "b": np.ones((1,), np.float32)}, "BF16", os.path.join(folder, "bf16"))
    save_safetensors({"x": np.ones((), np.float32)}, "F32", os.path.join(folder, "scalar"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out", nargs="?", default=os.path.join(os.path.dirname(__file__), "llm"))
    p.add_argument("--arch", default=",".join(ARCHS))
    p.add_argument("--embd", type=int, default=32)
    p.add_argument("--layers", type=int, default=0)
    p.add_argument("--ctx", type=int, default=64)
    p.add_argument("--type")
    p.add_argument("--no-folder", action="store_true")
    p.add_argument("--seeds", help="write the seeds of the fuzz targets into this corpus folder instead")
    args = p.parse_args()
    if args.seeds:
        return write_seeds(args.seeds)
    random.seed(1)
    os.makedirs(args.out, exist_ok=True)
    for arch in args.arch.split(","):
        m = Maker(arch, args)
        m.encoder() if arch == "bert" else m.decoder()
        m.write_gguf(os.path.join(args.out, arch + ".gguf"))
        if not args.no_folder:
            m.write_folder(os.path.join(args.out, arch))
        if arch in ("llama", "phi3"):
            Adapter(m).write(args.out)


if __name__ == "__main__":
    main()
