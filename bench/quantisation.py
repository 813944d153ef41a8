"""quantisation.py: what each file type costs and gains on real weights: size, speed, divergence, perplexity, ours beside llama.cpp's.

    python bench/quantisation.py --llama LIBRARY_DIR --model SmolLM2-135M-Instruct.Q4_1.gguf [--types f16,q8_0,...] [--tokens 1024] [--rounds 3]
                                 [--speed-only]

The model's weights are written out in F32 with rows of a multiple of 256, which K-quants need and this model's 576 is not: each width is filled up with
zeros, heads too, and the norms' weights and epsilon are rescaled, so that the function stays the same (the script checks it). Where the file's weights are quantised
already, each is moved to a random place within the step that it was rounded to; else they would lie on 16 levels, and a type would be judged by how its own levels
meet those. `inferd quantize` makes each type of that F32 file.
  size         bits a weight, of matrices
  KL           mean divergence from the F32 file's distribution (our float path), positions of a fixed text under teacher forcing
  perplexity   of that text, ours and llama.cpp's on the same file, and their ratio (budget: within 0.5 %)
  speed        tokens/s of the forward pass, one thread, one stream and a prompt of 512, relative to F16 (types take turns; processor time)
LIBRARY_DIR: that of the npm package @node-llama-cpp/linux-x64. Prints a Markdown table. Needs numpy."""
import argparse
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np

import common

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/tools"))
import llm_float64  # noqa: E402
import llm_peer  # noqa: E402
import llm_synth  # noqa: E402

ROOT = HERE.parent
TYPES = "f16,q8_0,q6_k,q5_k_m,q5_1,q5_0,q4_k_m,q4_k_s,q4_1,q4_0,q3_k_m,q2_k"


def up(n, to=256):
    return -(-n // to) * to


def spread(f, name):
    """The tensor, its quantised weights anywhere within their steps; the same at each call."""
    w, (_, kind, at) = f.tensor(name), f.tensors[name]
    if kind not in (2, 3, 8):  # Q4_0, Q4_1, Q8_0: a block of 32 begins with its step
        return w
    blocks = np.array(f.d[at:at + w.size // 32 * llm_float64.BLOCKS[kind][1]]).reshape(w.size // 32, -1)
    step = blocks[:, :2].copy().view(np.float16).astype(np.float64)
    noise = np.random.default_rng(zlib.crc32(name.encode())).random((len(step), 32)) - 0.5
    return w + (step * noise).reshape(w.shape)


class SpreadModel(llm_float64.Model):
    def weight(self, name):
        if name not in self.w:
            self.w[name] = spread(self.f, name + ".weight")
        return self.w[name]


class Wide:
    """The model's tensors in F32, each width filled up with zeros to a multiple of 256."""

    def __init__(self, path):
        m = self.m = SpreadModel(path)
        self.embd, self.ff = up(m.embd), up(m.f.tensors["blk.0.ffn_up.weight"][0][1])
        per = m.heads // m.kv_heads
        self.kv_heads = up(m.embd, 256) // m.dim // per
        self.heads = self.kv_heads * per
        if self.heads * m.dim != self.embd:
            sys.exit("this model's heads can't be filled up to its width")
        self.grow = (m.embd / self.embd) ** 0.5  # a mean over more channels, some of them zero

    def tensor(self, name):
        w = spread(self.m.f, name)
        if w.ndim == 1:
            return np.pad(w, (0, self.embd - len(w))) * self.grow
        kind = name.split(".")[-2]
        rows = {"attn_q": self.heads * self.m.dim, "attn_k": self.kv_heads * self.m.dim, "attn_v": self.kv_heads * self.m.dim, "ffn_gate": self.ff, "ffn_up": self.ff,
                "attn_output": self.embd, "ffn_down": self.embd}.get(kind, w.shape[0])
        cols = self.ff if kind == "ffn_down" else self.embd
        return np.pad(w, ((0, rows - w.shape[0]), (0, cols - w.shape[1])))

    def write(self, path, source):
        s = llm_synth.string
        u32 = lambda k, v: s("llama." + k) + struct.pack("<II", 4, v)
        f32 = lambda k, v: s("llama." + k) + struct.pack("<If", 6, v)
        keys, _ = llm_synth.tokenizer_keys(source)
        keys += [s("general.architecture") + struct.pack("<I", 8) + s("llama"), u32("context_length", 2048), u32("embedding_length", self.embd),
                 u32("block_count", self.m.layers), u32("feed_forward_length", self.ff), u32("attention.head_count", self.heads),
                 u32("attention.head_count_kv", self.kv_heads), u32("rope.dimension_count", self.m.dim),
                 f32("attention.layer_norm_rms_epsilon", self.m.eps * self.grow ** 2), f32("rope.freq_base", self.m.base)]
        names, head, at = list(self.m.f.tensors), b"", 0
        shapes = {n: self.tensor(n).shape[::-1] for n in names}
        for n in names:
            head += s(n) + struct.pack(f"<I{len(shapes[n])}QIQ", len(shapes[n]), *shapes[n], 0, at)
            at += -(-int(np.prod(shapes[n])) * 4 // 32) * 32
        head = b"GGUF" + struct.pack("<IQQ", 3, len(names), len(keys)) + b"".join(keys) + head
        with open(path, "wb") as f:
            f.write(head + b"\0" * (-len(head) % 32))
            for n in names:
                f.write(self.tensor(n).astype(np.float32).tobytes())
        self.weights = sum(int(np.prod(x)) for x in shapes.values() if len(x) == 2)


def matrix_bytes(path):
    """Of the tensors with two dimensions; the file's tensors lie one behind the other."""
    with open(path, "rb") as f:
        head = f.read(64 << 20)
    n_tensors, n_kv = struct.unpack_from("<QQ", head, 8)
    at = 24
    for _ in range(n_kv):
        at = llm_synth.skip_value(head, at, 8)
        at = llm_synth.skip_value(head, at + 4, struct.unpack_from("<I", head, at)[0])
    starts = []
    for _ in range(n_tensors):
        at = llm_synth.skip_value(head, at, 8)
        dims = struct.unpack_from("<I", head, at)[0]
        starts.append((struct.unpack_from("<Q", head, at + 4 + 8 * dims + 4)[0], dims))
        at += 4 + 8 * dims + 12
    end = os.path.getsize(path) - -(-at // 32) * 32
    starts.sort()
    return sum(b - a for (a, dims), b in zip(starts, [x for x, _ in starts[1:]] + [end]) if dims == 2)


def tokens_a_second(path, *what):
    out = subprocess.run([common.built("llm_steps"), path, "1", "f16", *what], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"([\d.]+) tokens/s", out)[1])


class Fixed:
    """The text, and the reference's log-probabilities of it."""

    def __init__(self, args, tmp, file):
        self.args, self.tmp = args, tmp
        ids = llm_float64.our_tokens(common.built("llm_logits"), file, args.text, tmp)[:args.tokens]
        self.windows = [ids[i:i + 512] for i in range(0, len(ids), 512)]
        self.reference = self.ours(file)

    def ours(self, file):
        return [llm_float64.our_logits(common.built("llm_logits"), file, w, self.tmp).astype(np.float32) for w in self.windows]

    def theirs(self, file):
        return [llm_float64.log_softmax(x).astype(np.float32) for x in llm_peer.logits(self.args.llama, file, self.windows)]

    def perplexity(self, logs):
        return llm_float64.perplexity(self.windows, logs)

    def distance(self, want, got):
        d = llm_float64.Distance("")
        for w, g in zip(want, got):
            d.add(w.astype(np.float64), g.astype(np.float64))
        return d.kls().mean(), np.concatenate(d.same)[np.concatenate(d.clear)].mean()


def row(fixed, kind, file, weights):
    ours, theirs = fixed.ours(file), fixed.theirs(file)
    kl, same = fixed.distance(fixed.reference, ours)
    their_kl, _ = fixed.distance(fixed.reference, theirs)
    between, between_same = fixed.distance(theirs, ours)
    a, b = fixed.perplexity(ours), fixed.perplexity(theirs)
    return (f"| {kind} | {matrix_bytes(file) * 8 / weights:.2f} | {kl:.1e} | {same:.1%} | {their_kl:.1e} | {between:.1e} | {between_same:.1%} | {a:.3f} | {b:.3f} | "
            f"{a / b - 1:+.2%} |")


def speeds(files, rounds):
    one, prompt = {k: [] for k in files}, {k: [] for k in files}
    for _ in range(rounds):
        for kind, file in files.items():
            one[kind].append(tokens_a_second(file, "decode", "1", "64", "24"))
            prompt[kind].append(tokens_a_second(file, "prompt", "512", "0", "1"))
    return {k: (statistics.median(one[k]), statistics.median(prompt[k])) for k in files}


def quality_head(fixed, wide, base):
    exact = llm_float64.log_softmax(wide.m.logits(fixed.windows[0]))
    off, _ = fixed.distance([exact], fixed.reference[:1])
    print(f"{wide.weights / 1e6:.0f} M weights in rows of {wide.embd} and {wide.ff}; {sum(map(len, fixed.windows))} positions; "
          f"perplexity {fixed.perplexity(fixed.reference):.3f} in F32; KL of the filled-up F32 file to the model in float64: {off:.0e}\n", flush=True)
    if off > 1e-6:
        sys.exit("the filled-up model is not the same function")
    for group in (32, 256):
        sites = dict.fromkeys(llm_float64.MATRICES, lambda x: llm_float64.rounded(x, group=group))
        coarse, _ = fixed.distance([exact], [llm_float64.log_softmax(llm_float64.Model(base).logits(fixed.windows[0], sites))])
        print(f"inputs of all matrices rounded to 8 bits in groups of {group}, nothing else, in float64: KL {coarse:.1e}\n", flush=True)
    print("| type | bits a weight | KL | same top | llama.cpp's KL | between the two | same top | perplexity | llama.cpp's | ratio |\n" + "| --- " * 10 + "|", flush=True)


def print_speeds(files, rounds):
    print("\n| type | one stream | prompt of 512 |\n| --- | --- | --- |")
    speed = speeds(files, rounds)
    first = speed[next(iter(speed))]
    for kind, (one, prompt) in speed.items():
        print(f"| {kind} | {one / first[0]:.2f} | {prompt / first[1]:.2f} |", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--llama", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--text", default=str(ROOT / "tests/data/llm/prose.txt"))
    p.add_argument("--types", default=TYPES)
    p.add_argument("--tokens", type=int, default=1024)
    p.add_argument("--rounds", type=int, default=3, help="of the speeds; 0: none")
    p.add_argument("--speed-only", action="store_true")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        base = os.path.join(tmp, "f32.gguf")
        wide = Wide(args.model)
        wide.write(base, args.model)
        if not args.speed_only:
            fixed = Fixed(args, tmp, base)
            quality_head(fixed, wide, base)
        files = {}
        for kind in args.types.split(","):
            files[kind] = os.path.join(tmp, kind + ".gguf")
            subprocess.run([common.BINARY, "quantize", base, files[kind], "--type", kind], check=True, capture_output=True)
            if not args.speed_only:
                print(row(fixed, kind, files[kind], wide.weights), flush=True)
        if args.rounds:
            print_speeds(files, args.rounds)


if __name__ == "__main__":
    main()
