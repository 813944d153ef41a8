"""A language model of the llama architecture in float64 over the dequantised weights of its GGUF file, and how far ours and llama.cpp's
probabilities are from it.

    python tests/tools/llm_float64.py MODEL.gguf BENCH_LLM_LOGITS NODE_DIR [--text FILE] [--tokens 400] [--sites]

NODE_DIR holds node_modules with node-llama-cpp. Prints mean KL and the share of positions with the same most likely token: ours and llama.cpp's against
float64, ours against llama.cpp's. --sites: also how much of ours comes from rounding the inputs of which matrices to 8 bits, by doing so in float64.
Needs numpy."""
import argparse
import json
import os
import struct
import subprocess
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
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


def rounded(x):
    """To int8 in groups of 32 along the row, as activations are before they meet quantised weights."""
    g = x.reshape(x.shape[0], -1, 32)
    scale = np.abs(g).max(axis=2, keepdims=True) / 127
    return (np.round(g / np.where(scale > 0, scale, 1)) * scale).reshape(x.shape)


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

    def logits(self, ids, sites=()):
        """`sites`: of qkv, o, up, down, output: whose inputs are rounded."""
        at = lambda site, x: rounded(x) if site in sites else x
        x, n = self.weight("token_embd")[ids], len(ids)
        mask = np.triu(np.full((n, n), -np.inf), 1)
        for i in range(self.layers):
            b = f"blk.{i}."
            h = at("qkv", self.norm(x, b + "attn_norm"))
            q = self.rope((h @ self.weight(b + "attn_q").T).reshape(n, self.heads, self.dim))
            k = self.rope((h @ self.weight(b + "attn_k").T).reshape(n, self.kv_heads, self.dim))
            v = (h @ self.weight(b + "attn_v").T).reshape(n, self.kv_heads, self.dim)
            k, v = (np.repeat(t, self.heads // self.kv_heads, axis=1) for t in (k, v))
            s = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.dim) + mask
            p = np.exp(s - s.max(axis=2, keepdims=True))
            p /= p.sum(axis=2, keepdims=True)
            o = np.einsum("hqk,khd->qhd", p, v).reshape(n, -1)
            x = x + at("o", o) @ self.weight(b + "attn_output").T
            h = at("up", self.norm(x, b + "ffn_norm"))
            g = h @ self.weight(b + "ffn_gate").T
            h = g / (1 + np.exp(-g)) * (h @ self.weight(b + "ffn_up").T)
            x = x + at("down", h) @ self.weight(b + "ffn_down").T
        out = "output" if "output.weight" in self.f.tensors else "token_embd"
        return at("output", self.norm(x, "output_norm")) @ self.weight(out).T


def log_softmax(x):
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def say(what, want, got):
    """KL(want || got), both log-probabilities."""
    kl = (np.exp(want) * (want - got)).sum(axis=1)
    top = np.sort(want, axis=1)[:, -2:]
    clear = top[:, 1] - top[:, 0] > 0.05
    same = want.argmax(axis=1) == got.argmax(axis=1)
    print(f"{what:<34} mean KL {kl.mean():.3e} +- {kl.std() / np.sqrt(len(kl)):.1e}, same most likely token {same.mean():.1%} "
          f"({same[clear].mean():.1%} where the first two differ by 0.05)", flush=True)


def theirs(node, model, ids, vocab, tmp):
    ids_file, out = os.path.join(tmp, "ids.json"), os.path.join(tmp, "theirs.json")
    with open(ids_file, "w") as f:
        json.dump([ids], f)
    subprocess.run(["node", os.path.join(HERE, "llm_oracle.mjs"), node, model, ids_file, out], check=True)
    with open(out) as f:
        rows = json.load(f)[0]
    p = np.full((len(ids), vocab), 1e-12)
    for i, row in enumerate(rows):
        pairs = np.array(row)
        p[i, pairs[:, 0].astype(int)] = np.maximum(pairs[:, 1], 1e-12)
    return np.log(p / p.sum(axis=1, keepdims=True))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model"), p.add_argument("bench"), p.add_argument("node")
    p.add_argument("--text", default=os.path.join(HERE, "../../docs/architecture.md"))
    p.add_argument("--tokens", type=int, default=400)
    p.add_argument("--sites", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        text = os.path.join(tmp, "text")
        with open(a.text, "rb") as f, open(text, "wb") as to:
            to.write(f.read(8 * a.tokens) + b"\0")
        ids = [int(x) for x in subprocess.run([a.bench, a.model, "tokens", text, "0"], capture_output=True, check=True).stdout.split()][:a.tokens]
        m = Model(a.model)
        exact = log_softmax(m.logits(ids))
        ours_file = os.path.join(tmp, "ours.bin")
        subprocess.run([a.bench, a.model, "logits", ours_file, "1", "512"] + [str(i) for i in ids], check=True)
        ours = log_softmax(np.fromfile(ours_file, dtype=np.float32).reshape(len(ids), -1).astype(np.float64))
        say("ours against float64", exact, ours)
        if a.node != "-":
            other = theirs(a.node, a.model, ids, ours.shape[1], tmp)
            say("llama.cpp against float64", exact, other)
            say("ours against llama.cpp", other, ours)
    every = ("qkv", "o", "up", "down", "output")
    for some in ([every] + [(s,) for s in every] + [tuple(s for s in every if s != "output")]) if a.sites else []:
        say("float64, rounded: " + " ".join(some), exact, log_softmax(m.logits(ids, some)))


if __name__ == "__main__":
    main()
