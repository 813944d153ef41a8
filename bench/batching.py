"""batching.py: how much of the gain that ONNX Runtime itself gets from a batch reaches the clients.

For each model: a bare loop at batch 1 and at growing batches gives the runtime's own gain (rows a second at the best batch over rows a
second at batch 1). inferd serves one-row requests, once with batching off and once with its default policy; the ratio of the two is the
served gain. Everything of the server, runtime included, is pinned to one core; the load tool has the other.
Budgets (DESIGN 8): served gain >= 0.9 of the runtime's own for each demo model; the recommender >= 17 x one-by-one with p95 <= 100 ms.
"""
import shutil
import tempfile

import recommender
from common import *

ROUNDS, PORT = 3, 18500
# largest batch; the open dims for the bare loop; the same for the load tool
DEMOS = {"file_kind": (64, "1", "--dynamic=1"), "text_direction": (32, "48,192", "--shape=x=1,3,48,192"), "text_detector": (4, "320", "--dynamic=320"),
         "text_recognizer": (16, "48,320", "--shape=x=1,3,48,320")}


def serve(repository, name, model, max_batch):
    folder = pathlib.Path(repository) / name / "1"
    folder.mkdir(parents=True)
    shutil.copy(model, folder / "model.onnx")
    (folder.parent / "model.yaml").write_text(f"max_batch_size: {max_batch}\n")


def measure(program, name, model, max_batch, dim, shape, clients):
    sizes = [b for b in (1, 2, 4, 8, 16, 32, 64, 128, 256) if b <= max_batch]
    bare = {b: b / statistics.median(bare_seconds(program, model, b, 1.0, dim) for _ in range(3)) for b in sizes}
    best = max(bare, key=bare.get)
    with tempfile.TemporaryDirectory() as repository:
        serve(repository, f"{name}_on", model, max_batch)
        serve(repository, f"{name}_off", model, 1)
        with inferd(repository, PORT, "--compute.threads=1"):
            on, off = alternate(ROUNDS, lambda: load(PORT, f"{name}_on", f"--concurrency={clients}", shape),
                                lambda: load(PORT, f"{name}_off", "--concurrency=4", shape))
    served = median(on, "per_second") / median(off, "per_second")
    own = bare[best] / bare[1]
    p95 = statistics.median(r["latency_ns"]["p95"] for r in on) / 1e6
    rows = on[-1]["server"]["rows"] / max(1, on[-1]["server"]["runs"])
    detail = (f"served {served:.2f} x ({median(off, 'per_second'):.0f} -> {median(on, 'per_second'):.0f}/s, {rows:.1f} rows a batch, "
              f"p95 {p95:.1f} ms), the runtime's own {own:.2f} x at batch {best}")
    return served, own, p95, detail


program = build("bare_loop")
for name, (max_batch, dim, shape) in DEMOS.items():
    model = DEMO / name / "1" / "model.onnx"
    if not model.exists():
        print(f"batching {name}: no such model; run ./dev run once")
        continue
    served, own, _, detail = measure(program, name, model, max_batch, dim, shape, 2 * max_batch)
    report(f"batching {name}, served gain / runtime's gain", served / own, 0.9, detail=detail)
with tempfile.TemporaryDirectory() as folder:
    served, own, p95, detail = measure(program, "recommender", recommender.write(folder), 256, "1", "--dynamic=1", 512)
    report("batching recommender, served gain / runtime's gain", served / own, 0.9, detail=detail)
    report("batching recommender, times one-by-one", served, 17)
    report("batching recommender, p95 ms", p95, 100, "at most")
