"""priority.py [SECONDS]: what overload by some costs the others.

One model that takes 40 ms a batch and 2.5 ms a row, batches of 16 (asleep: the cores are for the server and the load tool): 80 ms and 200 rows a second
at most. Always open loop, Poisson, 20 requests a second of the one who is watched. Three rounds, in turn; the ratio is that of the medians.

1. Classes: the class low sends 5 times what the model can do. Budget (issue 4): the class core loses nothing, and its p99 is at most 1.5 times that of an
   unloaded server plus one batch.
2. Tenants, without quotas: the same flood by one tenant against turns and equal parts; the same budget for the other.
3. Tenants, within quotas: one tenant sends 5 times what the model can do where his quota lets him have half of it. Budget: the other's p99 is at most 1.5 times
   what it is beside a tenant who keeps to his quota.
4. Batches: 64 closed-loop clients, what the model answers with the limit and without it: the limit must not make batches smaller.
5. What rules cost where nothing is overloaded: CPU of a request with them and without, a trivial model.
"""
import pathlib
import subprocess
import tempfile
import threading

from common import *

SECONDS, ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 12, 3
PORT, BATCH_MS, CAPACITY, WATCHED = 19700, 80.0, 200, 20
RULES = """
rules:
- {class: core, match: {class: gold}}
- {class: low, match: {class: bulk}}
models:
- {match: "*"}
"""
QUOTAS = "policies: [{name: half, per: tenant, rows_per_second: %d}]" % (CAPACITY // 2)


def make_key(folder, name, *flags):
    return subprocess.run([BINARY, "keys", "make", "--file", f"{folder}/keys", "--name", name, "--scopes", "infer,read", *flags], capture_output=True,
                          text=True, check=True).stdout.strip()


def send(port, key, rate, seconds, connections):
    """`inferd bench` at `rate` requests a second: its JSON."""
    command = [BINARY, "bench", "m", f"--url=http://127.0.0.1:{port}", f"--rate={rate:.0f}", f"--connections={connections}", f"--duration={seconds}s",
               "--warmup=2s", "--json", "--quiet"]
    out = subprocess.run(pinned(CLIENT_CORE, command), capture_output=True, text=True, env={**os.environ, "INFERD_API_KEY": key})
    try:
        return json.loads(out.stdout)
    except ValueError:
        sys.exit(f"inferd bench failed: {out.stderr or out.stdout}")


def beside(port, watched, other, rate):
    """The watched one's figures while the other sends at `rate`, and the other's."""
    result = {}
    load = threading.Thread(target=lambda: result.update(send(port, other, rate, SECONDS + 3, 512)))
    load.start()
    time.sleep(2)
    mine = send(port, watched, WATCHED, SECONDS - 1, 64)
    load.join()
    return mine, result


def p99(r):
    return r["latency_ns"]["p99"] / 1e6


def lost(r):
    return r["failed"] + r["broken"] + r["timeouts"] + r["unfinished"] + r["connect_failures"]


def tell(name, calm, loaded, budget_ms, others, what):
    """`calm`, `loaded`: p99 of each round; the budget is 1.5 times the first plus `budget_ms`."""
    before, after = statistics.median(calm), statistics.median(loaded)
    detail = (f"p99 {before:.0f} -> {after:.0f} ms ({after / before:.2f} x); the other sent {5 * CAPACITY}/s and got "
              f"{statistics.median(o['ok'] / o['seconds'] for o in others):.0f}/s; {what}")
    report(name, after / (1.5 * before + budget_ms), 1, "at most", detail)


def compare(name, port, watched, other, calm_rate, budget_ms, what):
    """Rounds without the flood (the other sends at calm_rate; 0: nothing) and with it; how many requests the watched one lost in it."""
    calm, loaded, others, gone = [], [], [], 0
    for _ in range(ROUNDS):
        first = beside(port, watched, other, calm_rate)[0] if calm_rate else send(port, watched, WATCHED, SECONDS, 64)
        mine, theirs = beside(port, watched, other, 5 * CAPACITY)
        calm.append(p99(first))
        loaded.append(p99(mine))
        others.append(theirs)
        gone += lost(mine)
    tell(name, calm, loaded, budget_ms, others, what)
    return gone


def cpu_of(server, port, script):
    before = server.cpu_seconds()
    r = wrk(port, script, 32, seconds=2)
    return {"us": (server.cpu_seconds() - before) / (2 * r["rps"]) * 1e6}


with tempfile.TemporaryDirectory() as folder:
    repository, rules, quotas = f"{folder}/models", pathlib.Path(folder) / "overload.yaml", pathlib.Path(folder) / "quotas.yaml"
    fake_model(repository, "m", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\nbase_us = 40000\nper_row_us = 2500\n", "max_batch_size: 16\n")
    fake_model(repository, "trivial", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    rules.write_text(RULES)
    quotas.write_text(QUOTAS)
    core, low = make_key(folder, "core", "--class", "gold"), make_key(folder, "low", "--class", "bulk")
    a, b = make_key(folder, "a", "--tenant", "a"), make_key(folder, "b", "--tenant", "b")
    flags = (f"--auth.keys_file={folder}/keys", f"--overload.file={rules}")
    with inferd(repository, PORT, *flags):
        gone = compare("priority core beside low at 5 x: p99 / (1.5 x unloaded + a batch)", PORT, core, low, 0, BATCH_MS, "classes")
        report("priority core requests lost", gone, 0, "at most")
        compare("priority tenant beside a flood, no quota: p99 / (1.5 x unloaded + a batch)", PORT, b, a, 0, BATCH_MS, "turns and equal parts")
    with inferd(repository, PORT + 10, *flags, f"--quota.file={quotas}"):
        compare("priority tenant beside a flood, quotas: p99 / (1.5 x beside one who keeps to his)", PORT + 10, b, a, 0.95 * CAPACITY / 2, 0, "quota")
    body, headers = binary_request([("X", "FP32", [1, 16], floats(16))])
    script = wrk_script("/v2/models/trivial/infer", body, headers)
    with inferd(repository, PORT + 20) as plain, inferd(repository, PORT + 30, f"--overload.file={rules}") as guarded:
        x, y = alternate(ROUNDS, lambda: load(PORT + 20, "m", "--concurrency=64", seconds=4), lambda: load(PORT + 30, "m", "--concurrency=64", seconds=4))
        served = [statistics.median(r["ok"] / r["seconds"] for r in runs) for runs in (x, y)]
        report("priority batches, 64 clients, answers a second with the limit / without", served[1] / served[0], 0.97,
               detail=f"{served[0]:.0f}/s -> {served[1]:.0f}/s")
        x, y = alternate(5, lambda: cpu_of(plain, PORT + 20, script), lambda: cpu_of(guarded, PORT + 30, script))
        report("priority trivial model c=32, CPU of a request with rules / without", median(y, "us") / median(x, "us"), 1.05, "at most",
               f"{median(x, 'us'):.2f} -> {median(y, 'us'):.2f} us")
