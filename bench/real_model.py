"""real_model.py: requests a second of a real model through HTTP against a bare ONNX Runtime loop at the same batch, the runtime on the same
one core in both; and the time that one unloaded request takes beyond the bare run.

Budgets (DESIGN 8, issue 2): >= 0.97 of the bare loop for models of 1 ms and more; unloaded p50 <= 60 us added.
Both get zeros for whole numbers: an embedding's time depends on which rows are asked for, and how many of them the caches hold.
The whole server is pinned to the core that the bare loop had, so that its own work is paid from the same core.
"""
import tempfile

import recommender
from common import *

ROUNDS, PORT = 3, 18600

program = build("bare_loop")
with tempfile.TemporaryDirectory() as folder:
    models = {"file_kind": (DEMO / "file_kind" / "1" / "model.onnx", 1), "recommender": (recommender.write(folder, 1), 1)}
    for name, (model, dim) in models.items():
        if not model.exists():
            print(f"real_model {name}: no such model; run ./dev run once")
            continue
        with tempfile.TemporaryDirectory() as repository:
            version = pathlib.Path(repository) / name / "1"
            version.mkdir(parents=True)
            (version / "model.onnx").write_bytes(model.read_bytes())
            (version.parent / "model.yaml").write_text("max_batch_size: 1\n")
            with inferd(repository, PORT, "--compute.threads=1"):
                bare, busy, alone = alternate(ROUNDS, lambda: {"s": bare_seconds(program, model, 1, 2.0, dim)},
                                              lambda: load(PORT, name, "--concurrency=4", "--zero"), lambda: load(PORT, name, "--zero", seconds=2))
        seconds = median(bare, "s")
        p50 = statistics.median(r["latency_ns"]["p50"] for r in alone) / 1e3
        detail = f"bare run {seconds * 1e3:.3f} ms, served {median(busy, 'per_second'):.0f}/s"
        report(f"real_model {name}, served / bare", median(busy, "per_second") * seconds, 0.97, detail=detail)
        report(f"real_model {name}, unloaded p50 added, us", p50 - seconds * 1e6, 60, "at most")
