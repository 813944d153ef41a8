"""Every decoder architecture with random weights whose rows K-quants divide, in every file type: against llama.cpp, and folder against file.

    python tests/tools/arch_oracle.py BUILD NODE_DIR [--arch llama,...] [--types q4_k_m,...]

BUILD holds inferd and bench/bench_llm_logits; NODE_DIR holds node_modules with node-llama-cpp. For each architecture `make_llm.py` writes an F32 GGUF file and a
Hugging Face folder of the same weights (--embd 256). Then, over teacher-forced positions:
  - each type that `inferd quantize` makes of the file: KL divergence between llama.cpp and us on the same file, same most likely token where
    llama.cpp's first two differ by more than 0.05 (99.5 % over all types); and both engines' KL to the reference: the file's dequantised values in F32 (whose logits are
    llama.cpp's to 1e-6, see the f32 lines);
  - the folder in F32, and quantised at load, against the GGUF file of the same type. Where the output matrix is the embedding, and Hugging Face's
    order of rows is GGUF's (all but llama), the logits must be the same bits. An embedding of its own is quantised in a file and not at load
    (rows are read from it where they lie), so there the folder's logits must be no further from the F32 file's than the quantised file's.
Prints a line a comparison; ends with 1 when one is beyond its bound. Needs numpy, gguf, safetensors, tokenizers."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHS = "llama,qwen2,qwen3,gemma2,gemma3,phi3"
TYPES = "f32,f16,bf16,q8_0,q4_0,q4_1,q5_0,q5_1,q2_k,q3_k_m,q4_k_m,q5_k_m,q6_k"
# Random weights make flat distributions over 300 tokens. The bounds are for mean KL; what 8-bit activations cost is the same on both sides.
KL_MOST = 1e-3
SAME_BITS = ("qwen2", "gemma2", "gemma3")


def logits(build, model, ids, tmp, *options):
    out = os.path.join(tmp, "logits.bin")
    subprocess.run([os.path.join(build, "bench", "bench_llm_logits"), model, "logits", out, "1", str(len(ids)), *options] + [str(i) for i in ids], check=True)
    return np.fromfile(out, dtype=np.float32).reshape(len(ids), -1).astype(np.float64)


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def theirs(node, model, ids, tmp, n_vocab):
    ids_file, out = os.path.join(tmp, "ids.json"), os.path.join(tmp, "theirs.json")
    with open(ids_file, "w") as f:
        json.dump([ids], f)
    subprocess.run(["node", os.path.join(HERE, "llm_oracle.mjs"), node, model, ids_file, out], check=True)
    p = np.zeros((len(ids), n_vocab))
    with open(out) as f:
        for i, pairs in enumerate(json.load(f)[0]):
            for token, probability in pairs:
                p[i, token] = probability
    return p


def dequantise(source, target, arch):
    r, w = gguf.GGUFReader(source), gguf.GGUFWriter(target, arch)
    for f in r.fields.values():
        if f.name.startswith("GGUF.") or f.name == "general.architecture":
            continue
        if f.types[0] == gguf.GGUFValueType.ARRAY:
            w.add_array(f.name, f.contents())
        else:
            w.add_key_value(f.name, f.contents(), f.types[0])
    for t in r.tensors:
        shape = [int(n) for n in reversed(t.shape)]
        w.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def kl_of(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / q), 0).sum(-1)


def against_llama(name, ours, p, reference, tops):
    q, r = softmax(ours), softmax(reference)
    kl = kl_of(p, q)
    top = np.sort(p, -1)
    clear = np.log(top[:, -1]) - np.log(np.maximum(top[:, -2], 1e-30)) > 0.05
    same = (p.argmax(-1) == q.argmax(-1))[clear]
    good = kl.mean() <= KL_MOST
    tops[0] += int(same.sum())
    tops[1] += int(clear.sum())
    print(f"{name}: to llama.cpp mean KL {kl.mean():.2g}, largest {kl.max():.2g}, same top {same.sum()}/{clear.sum()}; "
          f"to the reference ours {kl_of(r, q).mean():.2g}, llama.cpp's {kl_of(r, p).mean():.2g}{'' if good else '   BEYOND'}", flush=True)
    return good


def nmse(a, b):
    return ((a - b) ** 2).sum() / (b ** 2).sum()


def folder_against_file(name, folder, file, exact, bits):
    """Logits of the folder, of the file of the same type, and of the F32 file."""
    same, ours, files = (folder == file).all(), nmse(folder, exact), nmse(file, exact)
    good = same if bits else ours <= max(1.05 * files, 1e-6)
    print(f"{name}: folder and file {'are the same bits' if same else f'differ by NMSE {nmse(folder, file):.2g}'}; to F32 the folder {ours:.2g}, "
          f"the file {files:.2g}{'' if good else '   BEYOND'}", flush=True)
    return good


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("node")
    p.add_argument("--arch", default=ARCHS)
    p.add_argument("--types", default=TYPES)
    a = p.parse_args()
    rng = random.Random(4)
    ids = [rng.randrange(60) for _ in range(60)]
    good = True
    for arch in a.arch.split(","):
        with tempfile.TemporaryDirectory() as tmp:
            subprocess.run([sys.executable, os.path.join(HERE, "..", "data", "make_llm.py"), tmp, "--arch", arch, "--embd", "256", "--type", "F32"],
                           check=True, stdout=subprocess.DEVNULL)
            source, folder = os.path.join(tmp, arch + ".gguf"), os.path.join(tmp, arch)
            tops = [0, 0]
            for kind in a.types.split(","):
                file = source
                if kind != "f32":
                    file = os.path.join(tmp, kind + ".gguf")
                    subprocess.run([os.path.join(a.build, "inferd"), "quantize", source, file, "--type", kind], check=True, capture_output=True)
                ours = logits(a.build, file, ids, tmp)
                exact = os.path.join(tmp, "exact.gguf")
                dequantise(file, exact, arch)
                good &= against_llama(f"{arch} {kind}", ours, theirs(a.node, file, ids, tmp, ours.shape[1]), logits(a.build, exact, ids, tmp), tops)
                got = logits(a.build, os.path.join(folder, "config.json"), ids, tmp, *(["--quantize", kind] if kind != "f32" else []))
                float_file = logits(a.build, source, ids, tmp)
                good &= folder_against_file(f"{arch} {kind}", got, ours, float_file, arch in SAME_BITS)
            print(f"{arch}: same top {tops[0]}/{tops[1]} over all types", flush=True)
            good &= tops[0] >= 0.995 * tops[1]
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
