"""Compares adapted models with llama.cpp: KL divergence position by position, without and with the adapter.

    python tests/tools/lora_oracle.py BENCH_LLM_LOGITS NODE_DIR [MODEL.gguf ADAPTER.gguf]

NODE_DIR holds node_modules with node-llama-cpp; without a model the tiny ones of tests/data/llm are taken. Ends with 1 when a mean KL is
above 1e-5 or a most likely token differs. Needs numpy."""
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data", "llm")


def compare(bench, node, model, adapter, tmp):
    rng = random.Random(3)
    ids = [rng.randrange(64) for _ in range(40)]
    ids_file, theirs_file, ours_file = (os.path.join(tmp, n) for n in ("ids.json", "theirs.json", "ours.bin"))
    with open(ids_file, "w") as f:
        json.dump([ids], f)
    subprocess.run(["node", os.path.join(HERE, "llm_oracle.mjs"), node, model, ids_file, theirs_file] + ([adapter] if adapter else []), check=True)
    subprocess.run([bench, model, "logits", ours_file, "1", "40"] + (["--lora", adapter] if adapter else []) + [str(i) for i in ids], check=True)
    with open(theirs_file) as f:
        theirs = json.load(f)[0]
    ours = np.fromfile(ours_file, dtype=np.float32).reshape(len(ids), -1).astype(np.float64)
    kl, same = [], 0
    for pairs, x in zip(theirs, ours):
        p = np.zeros(len(x))
        for token, probability in pairs:
            p[token] = probability
        q = np.exp(x - x.max())
        q /= q.sum()
        some = p > 0
        kl.append(float((p[some] * np.log(p[some] / q[some])).sum()))
        same += int(p.argmax() == q.argmax())
    print(f"{os.path.basename(model)} + {adapter and os.path.basename(adapter)}: mean KL {np.mean(kl):.2g}, largest {max(kl):.2g}, "
          f"same most likely token {same}/{len(ids)}")
    return np.mean(kl) <= 1e-5 and same == len(ids)


def main():
    bench, node, *rest = sys.argv[1:]
    pairs = [tuple(rest)] if rest else [(os.path.join(DATA, a + ".gguf"), os.path.join(DATA, a + "-lora.gguf")) for a in ("llama", "phi3")]
    with tempfile.TemporaryDirectory() as tmp:
        results = [compare(bench, node, m, a, tmp) for m, adapter in pairs for a in (None, adapter)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
