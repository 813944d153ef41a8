"""quota_redis.py: what quotas that are shared through a Redis cost against local ones: latency of one unloaded request, requests a second under load,
and what a Redis that hangs does to the slowest requests. Server and Redis on one core, the load tool on the other.

Arguments: --seconds=N of each measurement (default 3).
"""
import sys

from common import *

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/wire"))
from redis_server import Redis  # noqa: E402

need("wrk")
SECONDS = next((int(a.split("=")[1]) for a in sys.argv if a.startswith("--seconds=")), 3)
ROUNDS, PORT, THERE = 3, 19400, 19410
POLICIES = """
policies:
- {name: key, per: key, requests_per_second: 1000000, concurrent: 100000}
- {name: tenant, per: [tenant, model], requests_per_day: 1000000000}
- {name: all, requests_per_month: 1000000000}
"""

with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "quotas.yaml"
    file.write_text(POLICIES)
    models = pathlib.Path(folder) / "models"
    fake_model(models, "trivial", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    body, headers = binary_request([("X", "FP32", [1, 16], floats(16))])
    script = wrk_script("/v2/models/trivial/infer", body, headers)
    redis = Redis()
    try:
        quotas = [f"--quota.file={file}", "--state_dir=-"]
        with inferd(models, PORT, *quotas), inferd(models, THERE, *quotas, f"--redis.url={redis.url}"):
            runs = {}
            for n in (1, 32):
                runs[n] = alternate(ROUNDS, lambda: wrk(PORT, script, n, SECONDS), lambda: wrk(THERE, script, n, SECONDS))
            for name, i in (("local", 0), ("shared", 1)):
                one, many = runs[1][i], runs[32][i]
                print(f"{name:6} one at a time: p50 {median(one, 'p50_us'):.0f} us, p99 {median(one, 'p99_us'):.0f} us; 32 at once: "
                      f"{median(many, 'rps'):.0f}/s, p50 {median(many, 'p50_us'):.0f} us, p99 {median(many, 'p99_us'):.0f} us, "
                      f"{sum(r['errors'] for r in one + many)} errors")
            added = {p: median(runs[1][1], p) - median(runs[1][0], p) for p in ("p50_us", "p99_us")}
            print(f"shared adds p50 {added['p50_us']:.0f} us, p99 {added['p99_us']:.0f} us; requests a second "
                  f"{median(runs[32][1], 'rps') / median(runs[32][0], 'rps'):.2f} of local")
            redis.pause()
            hung = wrk(THERE, script, 32, SECONDS)
            report("p99 while the Redis hangs, ms", hung["p99_us"] / 1000, 100, "at most", f"{hung['rps']:.0f}/s, {hung['errors']} errors")
    finally:
        redis.close()
