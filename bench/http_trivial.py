"""http_trivial.py: requests a second of a whole inference (HTTP, decode, queue, instance thread, encode) on a model that does nothing,
against nginx answering a constant of the same size; one core for each server, the load tool on the other.

Budgets: DESIGN 8: >= 0.7 of nginx's requests a second; added time of one unloaded request p50 <= 60 us, p99 <= 250 us.
"""
import tempfile
import urllib.request

from common import *

need("wrk")
need("nginx")
ROUNDS, PORT, PEER = 5, 18400, 18410

with tempfile.TemporaryDirectory() as repository:
    fake_model(repository, "trivial", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    body, headers = binary_request([("X", "FP32", [1, 16], floats(16))])
    script = wrk_script("/v2/models/trivial/infer", body, headers)
    with inferd(repository, PORT) as ours:
        reply = urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}/v2/models/trivial/infer", body, headers))
        size = len(reply.read())
        with nginx(PEER, size) as peer:
            for connections in (32, 1):
                a, b = alternate(ROUNDS, lambda: wrk(PORT, script, connections), lambda: wrk(PEER, script, connections))
                errors = sum(r["errors"] for r in a + b)
                detail = f"inferd {median(a, 'rps'):.0f}/s, nginx {median(b, 'rps'):.0f}/s, answer {size} B, {errors} errors"
                if connections > 1:
                    report(f"http_trivial c={connections} requests/s, inferd / nginx", median(a, "rps") / median(b, "rps"), 0.7,
                           detail=detail)
                else:
                    added = {p: median(a, p) - median(b, p) for p in ("p50_us", "p99_us")}
                    report("http_trivial c=1 added p50, us", added["p50_us"], 60, "at most", detail)
                    report("http_trivial c=1 added p99, us", added["p99_us"], 250, "at most")
