"""A language model of the llama architecture in float64 over the dequantised weights of its GGUF file, and how far ours and llama.cpp's
probabilities are from it, and from each other, under teacher forcing.

    python tests/tools/llm_float64.py MODEL.gguf BENCH_LLM_LOGITS LLAMA_DIR [--text FILE] [--tokens 1024] [--window 512]
                                      [--floor] [--sites] [--layers]

LLAMA_DIR is that of the npm package @node-llama-cpp/linux-x64 (bins/linux-x64). The text is cut into windows that know nothing of each other. Prints mean KL, the share
of positions with the same most likely token (of all, and where the reference's first two differ by more than 0.05, as log-probabilities and as probabilities), and
perplexities.
  --floor   what a mean KL between two correct engines is at least, on this model: llama.cpp against itself with another batch size and
            another of its own CPU libraries, and float64 with every matrix's input rounded to 8 bits against the same with the embeddings disturbed by 1e-7
  --sites   how much comes from which rounding: each made alone, in float64
  --layers  how much comes from which layer: the inputs of its matrices rounded alone, in float64
Needs numpy."""
import argparse
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench"))
import llm_peer  # noqa: E402

BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 14: (256, 210)}


class File:
    """Keys (numbers and strings) and tensors of a GGUF file."""

    def __init__(self, path):
        self.d = np.memmap(path, dtype=np.uint8, mode="r")
        self.at = 8
        n_tensors, n_kv = self.take("Q"), self.take("Q")
        self.kv = {}
        for _ in range(n_kv):
            key = self.string()
            self.kv[key] = self.value(self.take("I"))
        infos = []
        for _ in range(n_tensors):
            name, dims = self.string(), [self.take("Q") for _ in range(self.take("I"))]
            infos.append((name, dims, self.take("I"), self.take("Q")))
        base = -(-self.at // 32) * 32
        self.tensors = {name: (dims, kind, base + offset) for name, dims, kind, offset in infos}

    def take(self, f):
        n = struct.calcsize(f)
        v = struct.unpack("<" + f, self.d[self.at:self.at + n].tobytes())[0]
        self.at += n
        return v

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.d[self.at - n:self.at].tobytes().decode(errors="replace")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            of, n = self.take("I"), self.take("Q")
            return [self.value(of) for _ in range(n)]
        return self.take({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}[kind])

    def tensor(self, name):
        dims, kind, at = self.tensors[name]
        elems, size = BLOCKS[kind]
        n = int(np.prod(dims))
        b = np.array(self.d[at:at + n // elems * size]).reshape(-1, size)
        half = lambda p: p.copy().view(np.float16).astype(np.float64)
        if kind in (0, 1):
            w = b.view(np.float32 if kind == 0 else np.float16).astype(np.float64)
        elif kind == 8:
            w = half(b[:, :2]) * b[:, 2:].view(np.int8)
        elif kind in (2, 3):
            q = np.hstack([b[:, -16:] & 15, b[:, -16:] >> 4]).astype(np.float64)
            w = half(b[:, :2]) * (q - 8) if kind == 2 else half(b[:, :2]) * q + half(b[:, 2:4])
        else:
            ql, qh, sc, d = b[:, :128], b[:, 128:192], b[:, 192:208].view(np.int8).astype(np.float64), half(b[:, 208:210])
            parts = []
            for h in range(2):
                l, u = ql[:, 64 * h:64 * h + 64], qh[:, 32 * h:32 * h + 32]
                parts += [l[:, :32] & 15 | (u & 3) << 4, l[:, 32:] & 15 | (u >> 2 & 3) << 4, l[:, :32] >> 4 | (u >> 4 & 3) << 4, l[:, 32:] >> 4 | (u >> 6) << 4]
            w = d * np.repeat(sc, 16, axis=1) * (np.hstack(parts).astype(np.float64) - 32)
        return w.reshape(dims[::-1])


def rounded(x, half_scale=False, group=32):
    """To int8 in groups of 32 along the row, as activations are before they meet quantised weights; `half_scale`: under a scale in F16, as
    llama.cpp's. (Where it meets K-quants with it, llama.cpp's groups are of 256.)"""
    g = x.reshape(x.shape[0], -1, group)
    scale = np.abs(g).max(axis=2, keepdims=True) / 127
    q = np.round(g / np.where(scale > 0, scale, 1))
    return (q * (halved(scale) if half_scale else scale)).reshape(x.shape)


def twice(x):
    """As the sum of two such vectors: our output matrix."""
    first = rounded(x)
    return first + rounded(x - first)


def halved(x):
    return x.astype(np.float16).astype(np.float64)


MATRICES = ("qkv", "o", "up", "down", "output")
OURS = {**dict.fromkeys(MATRICES, rounded), "output": twice, "kv": halved}
THEIRS = {**dict.fromkeys(MATRICES, lambda x: rounded(x, True)), "kv": halved, "query": halved, "weights": halved}


class Model:
    def __init__(self, path):
        f = self.f = File(path)
        kv = f.kv
        if kv["general.architecture"] != "llama":
            raise SystemExit("only the llama architecture")
        key = lambda k, default=None: kv.get("llama." + k, default)
        self.layers, self.embd, self.heads = key("block_count"), key("embedding_length"), key("attention.head_count")
        self.kv_heads, self.eps, self.base = key("attention.head_count_kv"), key("attention.layer_norm_rms_epsilon"), key("rope.freq_base", 10000.0)
        self.dim = self.embd // self.heads
        self.w = {}

    def weight(self, name):
        if name not in self.w:
            self.w[name] = self.f.tensor(name + ".weight")
        return self.w[name]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + self.eps) * self.weight(name)

    def rope(self, x):
        n, _, d = x.shape
        angle = np.arange(n)[:, None] * self.base ** (-np.arange(0, d, 2) / d)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        out = np.empty_like(x)
        out[..., 0::2], out[..., 1::2] = x[..., 0::2] * c - x[..., 1::2] * s, x[..., 0::2] * s + x[..., 1::2] * c
        return out

    def logits(self, ids, sites=None, only=None, disturb=0):
        """`sites`: what is done at which place: qkv, o, up, down, output: the inputs of these matrices; kv, query, weights: of attention. `only`: in
        this layer alone. `disturb`: the embeddings, relatively."""
        sites = sites or {}
        at = lambda site, x, i=None: sites[site](x) if site in sites and only in (None, i) else x
        x, n = self.weight("token_embd")[ids], len(ids)
        x = x * (1 + disturb * np.random.default_rng(1).standard_normal(x.shape))
        mask = np.triu(np.full((n, n), -np.inf), 1)
        for i in range(self.layers):
            b = f"blk.{i}."
            h = at("qkv", self.norm(x, b + "attn_norm"), i)
            q = self.rope((h @ self.weight(b + "attn_q").T).reshape(n, self.heads, self.dim))
            k = self.rope((h @ self.weight(b + "attn_k").T).reshape(n, self.kv_heads, self.dim))
            v = (h @ self.weight(b + "attn_v").T).reshape(n, self.kv_heads, self.dim)
            q, k, v = at("query", q, i), at("kv", k, i), at("kv", v, i)
            k, v = (np.repeat(t, self.heads // self.kv_heads, axis=1).transpose(1, 0, 2) for t in (k, v))
            s = q.transpose(1, 0, 2) @ k.transpose(0, 2, 1) / np.sqrt(self.dim) + mask
            p = np.exp(s - s.max(axis=2, keepdims=True))
            p = at("weights", p / p.sum(axis=2, keepdims=True), i)
            o = (p @ v).transpose(1, 0, 2).reshape(n, -1)
            x = x + at("o", o, i) @ self.weight(b + "attn_output").T
            h = at("up", self.norm(x, b + "ffn_norm"), i)
            g = h @ self.weight(b + "ffn_gate").T
            h = g / (1 + np.exp(-g)) * (h @ self.weight(b + "ffn_up").T)
            x = x + at("down", h, i) @ self.weight(b + "ffn_down").T
        out = "output" if "output.weight" in self.f.tensors else "token_embd"
        return at("output", self.norm(x, "output_norm")) @ self.weight(out).T


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


class Distance:
    """Of pairs of log-probabilities, over windows."""

    def __init__(self, what):
        self.what, self.kl, self.same, self.clear, self.apart = what, [], [], [], []

    def add(self, want, got):
        top = np.sort(want, axis=1)[:, -2:]
        self.kl.append((np.exp(want) * (want - got)).sum(axis=1))
        self.same.append(want.argmax(axis=1) == got.argmax(axis=1))
        self.clear.append(top[:, 1] - top[:, 0] > 0.05)
        self.apart.append(np.exp(top[:, 1]) - np.exp(top[:, 0]) > 0.05)

    def kls(self):
        return np.concatenate(self.kl)

    def say(self):
        kl, same, clear, apart = self.kls(), *(np.concatenate(x) for x in (self.same, self.clear, self.apart))
        print(f"{self.what:<52} mean KL {kl.mean():.2e} +- {kl.std() / np.sqrt(len(kl)):.0e}, median {np.median(kl):.1e}; same top {same.mean():.1%} of {len(same)}, "
              f"{same[clear].mean():.1%} of {clear.sum()} apart by 0.05 nats, {same[apart].mean():.1%} of {apart.sum()} by 0.05 of probability", flush=True)


def compare(what, pairs):
    d = Distance(what)
    for want, got in pairs:
        d.add(want, got)
    d.say()
    return d


def our_tokens(bench, model, text, tmp):
    copy = os.path.join(tmp, "text")
    with open(text, "rb") as f, open(copy, "wb") as to:
        to.write(f.read() + b"\0")
    return [int(x) for x in subprocess.run([bench, model, "tokens", copy, "0"], capture_output=True, check=True).stdout.split()]


def our_logits(bench, model, ids, tmp, chunk=512):
    out = os.path.join(tmp, "ours.bin")
    subprocess.run([bench, model, "logits", out, "2", str(chunk)] + [str(i) for i in ids], check=True)
    return log_softmax(np.fromfile(out, dtype=np.float32).reshape(len(ids), -1))


def perplexity(windows, logs):
    return np.exp(-np.mean([p[i, ids[i + 1]] for ids, p in zip(windows, logs) for i in range(len(ids) - 1)]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model"), p.add_argument("bench"), p.add_argument("llama")
    p.add_argument("--text", default=os.path.join(HERE, "../data/llm/prose.txt"))
    p.add_argument("--tokens", type=int, default=1024)
    p.add_argument("--window", type=int, default=512)
    p.add_argument("--floor", action="store_true")
    p.add_argument("--sites", action="store_true")
    p.add_argument("--layers", action="store_true")
    a = p.parse_args()
    m = Model(a.model)
    with tempfile.TemporaryDirectory() as tmp:
        ids = our_tokens(a.bench, a.model, a.text, tmp)[:a.tokens]
        windows = [ids[i:i + a.window] for i in range(0, len(ids), a.window)]
        ours = [our_logits(a.bench, a.model, w, tmp) for w in windows]
    theirs_at = lambda batch, cpu=None: [log_softmax(x) for x in llm_peer.logits(a.llama, a.model, windows, batch, cpu)]
    theirs, exact = theirs_at(512), [log_softmax(m.logits(w)) for w in windows]
    x = compare("ours against float64", zip(exact, ours)).kls()
    y = compare("llama.cpp against float64", zip(exact, theirs)).kls()
    d = y - x
    print(f"  llama.cpp is further by {d.mean():.1e} +- {d.std() / np.sqrt(len(d)):.0e}, {y.mean() / x.mean():.2f} times")
    compare("ours against llama.cpp", zip(theirs, ours))
    print(f"  perplexity: float64 {perplexity(windows, exact):.4f}, ours {perplexity(windows, ours):.4f}, llama.cpp {perplexity(windows, theirs):.4f}", flush=True)
    if a.floor:
        compare("llama.cpp, tokens one by one against 512 at once", zip(theirs, theirs_at(1)))
        compare("llama.cpp, its AVX2 library against its best", zip(theirs, theirs_at(512, "haswell")))
        for what, sites in (("as ours", OURS), ("as llama.cpp", THEIRS)):
            one, other = ([log_softmax(m.logits(w, sites, None, e)) for w in windows] for e in (0, 1e-7))
            compare(f"float64, rounded {what}, inputs disturbed by 1e-7", zip(one, other))
            compare(f"float64, rounded {what}, against unrounded", zip(exact, one))
    alone = lambda sites, only=None: [(e, log_softmax(m.logits(w, sites, only))) for w, e in zip(windows, exact)]
    if a.sites:
        for s in MATRICES:
            compare(f"float64, rounded: {s}", alone({s: rounded}))
        compare("float64, rounded: output twice", alone({"output": twice}))
        compare("float64, rounded: all but output", alone(dict.fromkeys(MATRICES[:-1], rounded)))
        compare("float64, rounded: all", alone(dict.fromkeys(MATRICES, rounded)))
        compare("float64, rounded: all under scales in F16", alone(dict.fromkeys(MATRICES, THEIRS["o"])))
        compare("float64, F16: keys and values", alone({"kv": halved}))
        compare("float64, F16: keys, values, queries and their weights", alone({s: halved for s in ("kv", "query", "weights")}))
    if a.layers:
        for i in range(m.layers):
            compare(f"float64, rounded: layer {i}", alone(dict.fromkeys(MATRICES[:-1], rounded), i))


if __name__ == "__main__":
    main()
