"""llm_synth.py: a GGUF of the llama architecture with random weights of one quantisation, for speed (what it says is noise).

    python bench/llm_synth.py OUT.gguf --type q4_0|q8_0|q4_k_m|q6_k|f16 --tokenizer SOME.gguf [--layers 16] [--embd 2048] [--ff 8192]
                              [--heads 32] [--kv-heads 8] [--context 20480]

The blocks are written directly: random quants under scales that keep activations in range. The tokenizer's keys are copied from another file, so the
vocabulary is a real one. q4_k_m mixes as llama.cpp does: Q6_K for the output and for half of attn_v and ffn_down."""
import argparse
import struct

import numpy as np

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "q4_k": 12, "q6_k": 14}


def f16(x, n):
    return np.full(n, x, dtype=np.float16).view(np.uint8).reshape(n, 2)


def blocks(rng, kind, rows, cols):
    std = 1 / np.sqrt(cols)
    size = 32 if kind in ("q4_0", "q8_0") else 256
    n = rows * cols // size
    bits = lambda k: rng.integers(0, 256, (n, k), dtype=np.uint8)
    if kind == "f32":
        return np.ones(rows * cols, dtype=np.float32).tobytes()
    if kind == "f16":
        return (rng.standard_normal(rows * cols, dtype=np.float32) * std).astype(np.float16).tobytes()
    if kind == "q4_0":
        return np.hstack([f16(std / 4.6, n), bits(16)]).tobytes()
    if kind == "q8_0":
        return np.hstack([f16(std / 74, n), bits(32)]).tobytes()
    if kind == "q6_k":
        scales = rng.integers(16, 64, (n, 16), dtype=np.uint8)
        return np.hstack([bits(192), scales, f16(std / (40 * 18.5), n)]).tobytes()
    d = std / 200
    return np.hstack([f16(d, n), f16(d * 7.5, n), bits(140)]).tobytes()


def string(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


def skip_value(d, at, kind):
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    if kind == 8:
        return at + 8 + struct.unpack_from("<Q", d, at)[0]
    if kind == 9:
        of, n = struct.unpack_from("<IQ", d, at)
        at += 12
        if of != 8:
            return at + n * sizes[of]
        for _ in range(n):
            at = skip_value(d, at, 8)
        return at
    return at + sizes[kind]


def tokenizer_keys(path):
    """The tokenizer's keys as they are in the file, and the size of the vocabulary."""
    with open(path, "rb") as f:
        d = f.read(64 << 20)
    n_kv, at, out, vocab = struct.unpack_from("<Q", d, 16)[0], 24, [], 0
    for _ in range(n_kv):
        start = at
        at = skip_value(d, at, 8)
        key = d[start + 8:at].decode()
        kind = struct.unpack_from("<I", d, at)[0]
        if key == "tokenizer.ggml.tokens":
            vocab = struct.unpack_from("<Q", d, at + 8)[0]
        at = skip_value(d, at + 4, kind)
        if key.startswith("tokenizer.ggml."):
            out.append(d[start:at])
    return out, vocab


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--type", required=True, choices=["q4_0", "q8_0", "q4_k_m", "q6_k", "f16"])
    p.add_argument("--tokenizer", required=True)
    for name, default in (("layers", 16), ("embd", 2048), ("ff", 8192), ("heads", 32), ("kv-heads", 8), ("context", 20480)):
        p.add_argument("--" + name, type=int, default=default)
    a = p.parse_args()
    keys, vocab = tokenizer_keys(a.tokenizer)
    u32 = lambda k, v: string(k) + struct.pack("<II", 4, v)
    f32 = lambda k, v: string(k) + struct.pack("<If", 6, v)
    keys += [string("general.architecture") + struct.pack("<I", 8) + string("llama"), u32("llama.context_length", a.context),
             u32("llama.embedding_length", a.embd), u32("llama.block_count", a.layers), u32("llama.feed_forward_length", a.ff),
             u32("llama.attention.head_count", a.heads), u32("llama.attention.head_count_kv", a.kv_heads),
             f32("llama.attention.layer_norm_rms_epsilon", 1e-5), f32("llama.rope.freq_base", 500000.0),
             u32("llama.rope.dimension_count", a.embd // a.heads)]
    plain = "q4_k" if a.type == "q4_k_m" else a.type
    kv = a.embd // a.heads * a.kv_heads
    tensors = [("token_embd.weight", vocab, a.embd, plain), ("output.weight", vocab, a.embd, "q6_k" if a.type.startswith("q4") else plain),
               ("output_norm.weight", 1, a.embd, "f32")]
    for i in range(a.layers):
        more = "q6_k" if a.type == "q4_k_m" and (i < a.layers // 8 or i >= 7 * a.layers // 8 or (i - a.layers // 8) % 3 == 2) else plain
        b = f"blk.{i}."
        tensors += [(b + "attn_norm.weight", 1, a.embd, "f32"), (b + "attn_q.weight", a.embd, a.embd, plain), (b + "attn_k.weight", kv, a.embd, plain),
                    (b + "attn_v.weight", kv, a.embd, more), (b + "attn_output.weight", a.embd, a.embd, plain), (b + "ffn_norm.weight", 1, a.embd, "f32"),
                    (b + "ffn_gate.weight", a.ff, a.embd, plain), (b + "ffn_up.weight", a.ff, a.embd, plain), (b + "ffn_down.weight", a.embd, a.ff, more)]
    block = {"f32": (1, 4), "f16": (1, 2), "q4_0": (32, 18), "q8_0": (32, 34), "q4_k": (256, 144), "q6_k": (256, 210)}
    head, at = b"", 0
    for name, rows, cols, kind in tensors:
        elems, size = block[kind]
        dims = struct.pack("<IQ", 1, cols) if rows == 1 else struct.pack("<IQQ", 2, cols, rows)
        head += string(name) + dims + struct.pack("<IQ", TYPES[kind], at)
        at += -(-(rows * cols // elems * size) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + head
    rng = np.random.default_rng(1)
    with open(a.out, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for _, rows, cols, kind in tensors:
            data = blocks(rng, kind, rows, cols)
            f.write(data + b"\0" * (-len(data) % 32))


if __name__ == "__main__":
    main()
