"""common.py: what the measurements share: pinned servers, a load tool, medians, and one way to print a ratio against its budget.

These machines are shared and noisy. So nothing here prints an absolute figure as a result: inferd and its peer run alternately in
one run, each a few times, and the ratio of the medians is the result. Nothing here fails a build.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = os.environ.get("INFERD_BINARY", str(ROOT / "build/release/inferd"))
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]


def need(tool):
    if not shutil.which(tool):
        sys.exit(f"this measurement needs '{tool}': run it as ./dev bench NAME, which sees to that")


def built(name):
    """A C program of bench/, which a build makes only when asked."""
    path = ROOT / "build/release/bench" / f"bench_{name}"
    if not path.exists():
        sys.exit(f"this measurement needs {path.name}: cmake --build build/release --target {path.name}")
    return path


def pinned(core, command):
    return ["taskset", "-c", str(core), *map(str, command)]


def wait_http(url, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if urllib.request.urlopen(url, timeout=5).status == 200:
                return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{url} did not answer")


def free_port(n=1):
    """The first of n free TCP ports in a row."""
    while True:
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            try:
                for i in range(1, n):
                    held.enter_context(socket.create_server(("127.0.0.1", first + i)))
                return first
            except (OSError, OverflowError):
                pass


class Process:
    """A server under measurement, stopped at the end of a with block."""

    def __init__(self, command, ready_url=None, env=None):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        if ready_url:
            wait_http(ready_url)
            time.sleep(0.1)
        if self.process.poll() is not None:  # and whoever answered has the port
            self.log.seek(0)
            sys.exit(f"{command[0]} ended at once: {self.log.read().decode(errors='replace')[-400:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def cpu_seconds(self):
        """CPU time of the process, its threads and its children so far: to the nanosecond where the kernel counts so (ticks of 10 ms mislead where
        little is done)."""
        total = 0.0
        for pid in [self.process.pid, *children(self.process.pid)]:
            try:
                total += sum(int(open(f"/proc/{pid}/task/{t}/schedstat").read().split()[0]) for t in os.listdir(f"/proc/{pid}/task")) / 1e9
            except OSError:
                fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def rss_bytes(self):
        text = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) * 1024


def children(pid):
    try:
        return [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    except OSError:
        return []


def inferd(repository, port, *args, core=SERVER_CORE):
    """inferd on one core, one I/O thread, on 127.0.0.1:port; metrics on port + 2."""
    command = [BINARY, "serve", str(repository), f"--http.listen=127.0.0.1:{port}", f"--grpc.listen=127.0.0.1:{port + 1}", f"--metrics.listen=127.0.0.1:{port + 2}",
               "--http.threads=1", "--log.level=warn", *args]
    return Process(pinned(core, command) if core is not None else command, f"http://127.0.0.1:{port}/v2/health/ready")


NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; tcp_nodelay on; client_body_temp_path {dir}; proxy_temp_path {dir};
  fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
  server {{ listen 127.0.0.1:{port} reuseport {protocol}; default_type application/octet-stream;
    location / {{ return 200 "{text}"; }} }}
}}
"""


def nginx(port, answer_bytes, core=SERVER_CORE, protocol="", ready=True):
    """nginx with one worker that answers a constant of `answer_bytes` bytes to anything. `protocol`: "http2" for that alone, which the check for
    readiness does not speak."""
    folder = tempfile.mkdtemp(prefix="inferd-nginx-")
    conf = pathlib.Path(folder) / "nginx.conf"
    conf.write_text(NGINX.format(dir=folder, port=port, text="x" * answer_bytes, protocol=protocol))
    return Process(pinned(core, ["nginx", "-c", conf, "-e", f"{folder}/error.log"]), f"http://127.0.0.1:{port}/" if ready else None)


def wrk_script(path, body, headers):
    """A Lua file that posts `body` to `path` with `headers`."""
    folder = tempfile.mkdtemp(prefix="inferd-wrk-")
    (pathlib.Path(folder) / "body").write_bytes(body)
    lines = ["wrk.method = 'POST'", f"wrk.path = '{path}'", f"local f = io.open('{folder}/body', 'rb')",
             "wrk.body = f:read('*a')", "f:close()"]
    lines += [f"wrk.headers['{k}'] = '{v}'" for k, v in headers.items()]
    script = pathlib.Path(folder) / "post.lua"
    script.write_text("\n".join(lines))
    return script


def wrk(port, script, connections=32, seconds=4, core=CLIENT_CORE, scheme="http"):
    """One run of wrk; {'rps', 'p50_us', 'p99_us', 'mean_us', 'errors'}."""
    out = subprocess.run(pinned(core, ["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--latency", "-s", script,
                                       f"{scheme}://127.0.0.1:{port}/"]), capture_output=True, text=True, check=True).stdout
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6}

    def percentile(p):
        m = re.search(rf"^\s+{p}%\s+([\d.]+)(us|ms|s|m)$", out, re.M)
        return float(m[1]) * unit[m[2]]

    mean = re.search(r"^\s+Latency\s+([\d.]+)(us|ms|s|m)\s", out, re.M)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    sock = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", out)
    return {"rps": float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), "p50_us": percentile(50), "p99_us": percentile(99),
            "mean_us": float(mean[1]) * unit[mean[2]],
            "errors": (int(bad[1]) if bad else 0) + (sum(map(int, sock.groups())) if sock else 0)}


def median(runs, key):
    return statistics.median(r[key] for r in runs)


def alternate(rounds, *measures):
    """Run the measures in turn, `rounds` times; a list of results for each."""
    results = [[] for _ in measures]
    for _ in range(rounds):
        for i, measure in enumerate(measures):
            results[i].append(measure())
    return results


def report(name, ratio, budget, better="at least", detail=""):
    """The line that docs/performance.md quotes."""
    met = ratio >= budget if better == "at least" else ratio <= budget
    print(f"{name}: {ratio:.2f} (budget: {better} {budget:g}) {'met' if met else 'MISSED'}{'; ' + detail if detail else ''}")
    return met


def binary_request(inputs, outputs=None):
    """A KServe v2 binary request: (body, headers). inputs: [(name, datatype, shape, bytes)]."""
    head = {"inputs": [{"name": n, "datatype": d, "shape": s, "parameters": {"binary_data_size": len(b)}} for n, d, s, b in inputs],
            "parameters": {"binary_data_output": True}}
    if outputs:
        head["outputs"] = [{"name": o} for o in outputs]
    text = json.dumps(head).encode()
    return text + b"".join(b for *_, b in inputs), {"Inference-Header-Content-Length": str(len(text)),
                                                     "Content-Type": "application/octet-stream"}


def floats(n, value=0.5):
    return struct.pack(f"<{n}f", *([value] * n))


def fake_model(repository, name, text, config=""):
    folder = pathlib.Path(repository) / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.fake").write_text(text)
    if config:
        (folder.parent / "model.yaml").write_text(config)


# ---- real models ----

LIBRARY = ROOT / ".deps/onnxruntime/lib/libonnxruntime.so"
DEMO = pathlib.Path(os.environ.get("INFERD_DEMO", ROOT / "demo/models"))


def build(target):
    """Build one of bench/*.c in the release tree; its path."""
    subprocess.run(["cmake", "--build", str(ROOT / "build/release"), "--target", f"bench_{target}"], check=True,
                   stdout=subprocess.DEVNULL)
    return ROOT / f"build/release/bench/bench_{target}"


def bare_seconds(program, model, batch, seconds=1.0, dim=1, core=SERVER_CORE):
    """Median seconds of one run of a bare ONNX Runtime loop."""
    out = subprocess.run(pinned(core, [program, LIBRARY, model, batch, seconds, dim]), capture_output=True, text=True, check=True)
    return float(out.stdout)


def load(port, model, *args, seconds=4, warmup=1, core=CLIENT_CORE):
    """One run of `inferd bench`: its JSON."""
    command = [BINARY, "bench", model, f"--url=http://127.0.0.1:{port}", f"--duration={seconds * 1000:.0f}ms",
               f"--warmup={warmup * 1000:.0f}ms", "--json", "--quiet",
               *map(str, args)]
    out = subprocess.run(pinned(core, command), capture_output=True, text=True)
    try:
        return json.loads(out.stdout)
    except ValueError:
        sys.exit(f"inferd bench failed: {out.stderr or out.stdout}")
