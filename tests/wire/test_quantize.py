"""test_quantize.py: `inferd quantize` on the real binary: the file it writes, its messages and exit codes.

The bytes are compared with llama.cpp's by tests/tools/quantize_oracle.py, where its library is at hand; here F16 -> Q8_0 is computed with numpy
from the format's definition: per 32 values a scale d = max|x| / 127 in F16 and q = round(x / d)."""
import os
import struct
import subprocess

import numpy as np

from inferd_server import BINARY

MODELS = os.path.join(os.path.dirname(__file__), "..", "data", "llm")


def quantize(*args):
    return subprocess.run([BINARY, "quantize", *map(str, args)], capture_output=True, timeout=60, text=True)


def tensors(path):
    """{name: (type, values in file order as bytes)} of a small GGUF file, after the specification."""
    data = open(path, "rb").read()
    at = 0

    def take(fmt):
        nonlocal at
        out = struct.unpack_from("<" + fmt, data, at)
        at += struct.calcsize("<" + fmt)
        return out[0]

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()

    size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            inner, n = take("I"), take("Q")
            for _ in range(n):
                skip(inner)
        else:
            at += size[kind]

    assert data[:4] == b"GGUF"
    at = 4
    take("I")
    n_tensors, n_kv = take("Q"), take("Q")
    for _ in range(n_kv):
        text()
        skip(take("I"))
    infos = []
    for _ in range(n_tensors):
        name = text()
        dims = [take("Q") for _ in range(take("I"))]
        infos.append((name, dims, take("I"), take("Q")))
    base = (at + 31) // 32 * 32
    block = {0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34)}
    out = {}
    for name, dims, kind, offset in infos:
        elems, width = block[kind]
        start = base + offset
        out[name] = (kind, data[start:start + int(np.prod(dims)) // elems * width])
    return out


def test_q8_0_by_definition(tmp_path):
    source, to = os.path.join(MODELS, "llama.gguf"), tmp_path / "q8.gguf"
    result = quantize(source, to, "--type", "q8_0")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("q8_0: ") and "16 tensors converted, 6 kept" in result.stdout
    before, after = tensors(source), tensors(to)
    assert before.keys() == after.keys()
    for name, (kind, raw) in before.items():
        if kind == 0:  # vectors stay
            assert after[name] == (0, raw)
            continue
        x = np.frombuffer(raw, np.float16).astype(np.float32).reshape(-1, 32)
        d = np.abs(x).max(axis=1) / np.float32(127)
        scaled = x * np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)[:, None]
        q = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)  # halves away from zero
        want = b"".join(np.float16(s).tobytes() + row.tobytes() for s, row in zip(d, q))
        assert after[name] == (8, want), name
    assert os.listdir(tmp_path) == ["q8.gguf"]


def test_mistakes(tmp_path):
    source, to = os.path.join(MODELS, "llama.gguf"), tmp_path / "out.gguf"
    result = quantize(source, to, "--type", "q4_9")
    assert result.returncode == 2 and '--type is "q4_9"; accepted: f32, f16, bf16, q8_0' in result.stderr
    result = quantize(source, source)
    assert result.returncode == 2 and "another name" in result.stderr
    result = quantize(source)
    assert result.returncode == 2
    result = quantize(tmp_path / "none.gguf", to)
    assert result.returncode == 1 and "none.gguf" in result.stderr
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(open(source, "rb").read()[:5000])
    result = quantize(broken, to)
    assert result.returncode == 1 and "runs past the end of the file" in result.stderr or "more than the" in result.stderr
    result = quantize(os.path.join(MODELS, "llama-lora.gguf"), to)
    assert result.returncode == 1 and 'is a "adapter", not a model' in result.stderr
    quantized = tmp_path / "q8.gguf"
    assert quantize(source, quantized, "-t", "q8_0").returncode == 0
    result = quantize(quantized, to, "-t", "q4_0")
    assert result.returncode == 1 and "is Q8_0 already: quantise from the original, or allow it with --allow-requantize" in result.stderr
    assert quantize(quantized, to, "-t", "q4_0", "--allow-requantize").returncode == 0
    assert sorted(os.listdir(tmp_path)) == ["broken.gguf", "out.gguf", "q8.gguf"]  # no .part is left behind


def test_verbose_lists_tensors(tmp_path):
    result = quantize(os.path.join(MODELS, "llama.gguf"), tmp_path / "o.gguf", "-t", "q4_k_m", "-v", "--threads", "1")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["blk.1.ffn_up.weight", "64", "x", "32", "F16", "->", "Q5_0"] in lines
    assert ["blk.1.attn_norm.weight", "1", "x", "32", "F32", "->", "kept"] in lines
    assert "rows that the type's blocks don't divide" in result.stdout
