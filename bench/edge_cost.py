"""edge_cost.py: what the edge costs: the same trivial inference with key, quotas and guard and without, and over TLS 1.3 kept alive against nginx
answering a constant over TLS; one core for each server, the load tool on the other. The guard checks body, content type, shape, range and a
reference (robust z, Mahalanobis), and an output policy holds that finds no text to look at.

Arguments: --no-guard leaves the guard out; --no-tls leaves the part with nginx out.

Budgets (issue 4): with all of it >= 0.9 of the requests a second, <= 50 us added to one unloaded request; 10,000 keys cost what one does;
TLS >= 0.7 of nginx.
"""
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from common import *

GUARD, TLS = "--no-guard" not in sys.argv, "--no-tls" not in sys.argv
need("wrk")
if TLS:
    need("nginx")
    need("openssl")
ROUNDS, PORT = 5, 19300
POLICIES = """
policies:
- {name: key, per: key, requests_per_second: 100000000, rows_per_second: 100000000, concurrent: 100000}
- {name: tenant, per: [tenant, model], requests_per_day: 100000000000, requests_per_month: 100000000000}
- {name: all, requests_per_second: 100000000}
"""
GUARDS = """
inputs:
- name: trivial
  match: {model: trivial, route: "infer,grpc_*"}
  content_types: [application/octet-stream, application/json]
  json_depth: 16
  tensors: [{input: X, dtype: FP32, shape: [-1, 16], range: [-1000, 1000], finite: true}]
  deny: [{builtin: secret}]
  reference: {input: X, file: REFERENCE, false_positive_rate: 0.01, methods: [robust_z, mahalanobis]}
outputs:
- {name: pii, match: {model: "*"}, rules: [{builtin: card}, {builtin: email}, {builtin: phone}]}
"""
SPREAD = 1000.0  # of the reference: the benchmark's own numbers are within


def write_npy(path, rows, features):
    """A reference as numpy would save it: little-endian float32, C order."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {features}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    rng = random.Random(1)
    values = [rng.uniform(-SPREAD, SPREAD) for _ in range(rows * features)]
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"<{len(values)}f", *values))


def make_keys(folder, n):
    """A file of `n` keys; the first one's text. The others are written as `inferd keys make` would, with random hashes."""
    path = pathlib.Path(folder) / f"keys-{n}"
    first = subprocess.run([BINARY, "keys", "make", "--file", path, "--name", "bench", "--scopes", "infer"], capture_output=True, text=True,
                           check=True).stdout.strip()
    with path.open("a") as f:
        for i in range(1, n):
            f.write(json.dumps({"id": f"{i:016x}", "name": f"k{i}", "tenant": f"t{i % 1000}", "scopes": "infer", "salt": os.urandom(16).hex(),
                                "hash": os.urandom(32).hex()}) + "\n")
    return path, first


def added(name, plain, guarded, budget_ratio):
    detail = f"plain {median(plain, 'rps'):.0f}/s, guarded {median(guarded, 'rps'):.0f}/s, {sum(r['errors'] for r in plain + guarded)} errors"
    report(name, median(guarded, "rps") / median(plain, "rps"), budget_ratio, detail=detail)


def loaded(server, port, script, connections, seconds=4):
    """A run of wrk with the server's CPU time a request beside it, which other work on the machine disturbs less."""
    before = server.cpu_seconds()
    r = wrk(port, script, connections, seconds)
    return {**r, "cpu_us": (server.cpu_seconds() - before) / (r["rps"] * seconds) * 1e6}


def certificate(folder):
    cert, key = f"{folder}/cert.pem", f"{folder}/key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out",
                    cert, "-days", "60", "-subj", "/CN=localhost"], check=True, capture_output=True)
    return cert, key


def nginx_tls(port, answer_bytes, cert, key):
    tls = f"ssl; ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3"
    process = nginx(port, answer_bytes, protocol=tls, ready=False)
    time.sleep(1)
    return process


with tempfile.TemporaryDirectory() as folder:
    repository = f"{folder}/models"
    fake_model(repository, "trivial", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    body, headers = binary_request([("X", "FP32", [1, 16], floats(16))])
    plain_script = wrk_script("/v2/models/trivial/infer", body, headers)
    quotas = pathlib.Path(folder) / "quotas.yaml"
    quotas.write_text(POLICIES)
    rules = pathlib.Path(folder) / "overload.yaml"
    rules.write_text("rules: [{class: core, match: {class: gold}}]\nmodels: [{match: '*'}]\n")
    guards, reference = pathlib.Path(folder) / "guards.yaml", pathlib.Path(folder) / "reference.npy"
    write_npy(reference, 2000, 16)
    guards.write_text(GUARDS.replace("REFERENCE", str(reference)))
    what = "key, quotas and guard" if GUARD else "key and quotas"

    for n in (1, 10_000):
        keys, key = make_keys(folder, n)
        script = wrk_script("/v2/models/trivial/infer", body, {**headers, "x-api-key": key})
        flags = (f"--auth.keys_file={keys}", f"--quota.file={quotas}", *([f"--guard.file={guards}"] if GUARD else []))
        with inferd(repository, PORT) as plain, inferd(repository, PORT + 10, *flags) as guarded:
            a, b = alternate(ROUNDS, lambda: loaded(plain, PORT, plain_script, 32), lambda: loaded(guarded, PORT + 10, script, 32))
            added(f"edge_cost {n} keys c=32 requests/s, {what} / without", a, b, 0.9)
            report(f"edge_cost {n} keys c=32 CPU a request, {what} / without", median(b, "cpu_us") / median(a, "cpu_us"), 1 / 0.9, "at most",
                   detail=f"{median(a, 'cpu_us'):.2f} us and {median(b, 'cpu_us'):.2f} us")
            a, b = alternate(ROUNDS, lambda: wrk(PORT, plain_script, 1), lambda: wrk(PORT + 10, script, 1))
            report(f"edge_cost {n} keys c=1 added mean, us", 1e6 / median(b, "rps") - 1e6 / median(a, "rps"), 50, "at most")

    if not TLS:
        sys.exit(0)
    cert, key = certificate(folder)
    command = [BINARY, "serve", repository, f"--http.listen=127.0.0.1:{PORT + 20}", f"--metrics.listen=127.0.0.1:{PORT + 22}", "--http.threads=1",
               "--log.level=warn", f"--tls.certificates={cert}", f"--tls.keys={key}", "--tls.min_version=1.3"]
    with Process(pinned(SERVER_CORE, command), f"http://127.0.0.1:{PORT + 22}/v2/health/ready"):
        with nginx_tls(PORT + 30, 300, cert, key):
            a, b = alternate(ROUNDS, lambda: wrk(PORT + 20, plain_script, 32, scheme="https"),
                             lambda: wrk(PORT + 30, plain_script, 32, scheme="https"))
            detail = f"inferd {median(a, 'rps'):.0f}/s, nginx {median(b, 'rps'):.0f}/s, {sum(r['errors'] for r in a + b)} errors"
            report("edge_cost TLS 1.3 c=32 requests/s, inferd / nginx", median(a, "rps") / median(b, "rps"), 0.7, detail=detail)
