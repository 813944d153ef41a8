"""real_model.py: requests a second of a real model through HTTP against a bare ONNX Runtime loop at the same batch, the runtime on the same
one core in both; and the time that one unloaded request takes beyond the bare run.

Budgets (DESIGN 8, issue 2): >= 0.97 of the bare loop for models of 1 ms and more; unloaded p50 <= 60 us added.
Both get zeros for whole numbers: an embedding's time depends on which rows are asked for, and how many of them the caches hold.
The whole server is pinned to the core that the bare loop had, so that its own work is paid from the same core. A machine's speed moves
by a fifth within a minute: the measures take turns of less than a second, and each round gives its own ratio.

A run leaves neither code nor data of the kernel's sockets in the caches: the same loop behind the least of a server (bare_loop.c: poll,
read, Run, write) is measured beside, driven by the same client, and shows what of the added time that is. That client does not sleep: the
time its core would take to wake is no time of the server.
"""
import tempfile

import recommender
from common import *

ROUNDS, PORT = 9, 18600
# open dims for the bare loop; the shape for the load tool
DEMOS = {"file_kind": ("1", "--zero"), "text_direction": ("48,192", "--shape=x=1,3,48,192"), "text_recognizer": ("48,320", "--shape=x=1,3,48,320"),
         "text_detector": ("320", "--shape=x=1,3,320,320")}


def serve(folder, name, model):
    version = pathlib.Path(folder) / name / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(model.read_bytes())
    (version.parent / "model.yaml").write_text("max_batch_size: 1\n")


def measure(program, name, model, dims, shape):
    with tempfile.TemporaryDirectory() as repository, tempfile.NamedTemporaryFile() as metadata:
        serve(repository, name, model)
        with inferd(repository, PORT, "--compute.threads=1"):
            metadata.write(urllib.request.urlopen(f"http://127.0.0.1:{PORT}/v2/models/{name}").read())
            metadata.flush()
            least = pinned(SERVER_CORE, [program, LIBRARY, model, 1, f"{PORT + 10}:{metadata.name}", dims])
            with Process(least, f"http://127.0.0.1:{PORT + 10}/"):
                def p50(port):
                    return load(port, name, shape, "--busy-poll", seconds=0.8, warmup=0.2)["latency_ns"]["p50"] / 1e9

                def rate(port):
                    return load(port, name, "--concurrency=4", shape, seconds=0.8, warmup=0.2)["per_second"]

                return alternate(ROUNDS, lambda: bare_seconds(program, model, 1, 0.8, dims), lambda: p50(PORT), lambda: p50(PORT + 10),
                                 lambda: rate(PORT), lambda: rate(PORT + 10))


program = build("bare_loop")
with tempfile.TemporaryDirectory() as folder:
    models = {name: (DEMO / name / "1" / "model.onnx", *how) for name, how in DEMOS.items()}
    models["recommender"] = (recommender.write(folder, 1), "1", "--zero")
    for name, (model, dims, shape) in models.items():
        if not model.exists():
            print(f"real_model {name}: no such model; run ./dev run once")
            continue
        bare, alone, least, busy, least_busy = measure(program, name, model, dims, shape)
        share = statistics.median(b * r for b, r in zip(bare, busy))
        added = statistics.median(a - b for a, b in zip(alone, bare)) * 1e6
        beyond = statistics.median(a - x for a, x in zip(alone, least)) * 1e6
        seconds, least_share = statistics.median(bare), statistics.median(b * r for b, r in zip(bare, least_busy))
        detail = (f"the least of a server: {least_share:.2f}; bare run {seconds * 1e3:.3f} ms, served {statistics.median(busy):.0f}/s"
                  + ("" if seconds >= 1e-3 else "; the budget is for 1 ms and more"))
        report(f"real_model {name}, served / bare", share, 0.97, detail=detail)
        report(f"real_model {name}, unloaded p50 added, us", added, 60, "at most", detail=f"{beyond:.0f} us beyond the least of a server")
