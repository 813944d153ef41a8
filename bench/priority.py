"""priority.py [SECONDS]: what overload by some costs the others.

One model that takes 40 ms a batch and 2.5 ms a row, batches of 16 (asleep: the cores are for the server and the load tool): 80 ms and 200 rows a second
at most. Always open loop, Poisson, 20 requests a second of the one who is watched.

1. Classes: the class low sends 5 times what the model can do. Budget (issue 4): the class core loses nothing, and its p99 is at most 1.5 times that of an
   unloaded server plus one batch.
2. Tenants, within quotas: one tenant sends 5 times what the model can do where his quota lets him have half of it. Budget: the other's p99 is at most 1.5 times
   what it is beside a tenant who keeps to his quota.
3. Tenants, without quotas: the same flood against fairness alone; the same budget as in 1 for the other tenant.
4. What rules cost where nothing is overloaded: requests a second with them and without, a trivial model.
"""
import pathlib
import subprocess
import tempfile
import threading

from common import *

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
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


def tell(name, alone, mine, budget_ms, other, what):
    ratio = p99(mine) / p99(alone)
    detail = (f"p99 {p99(alone):.1f} -> {p99(mine):.1f} ms ({ratio:.2f} x), lost {lost(mine)}; the other sent {5 * CAPACITY}/s and got "
              f"{other['ok'] / other['seconds']:.0f}/s; {what}")
    report(name, p99(mine) / budget_ms, 1, "at most", detail)


with tempfile.TemporaryDirectory() as folder:
    repository, rules, quotas = f"{folder}/models", pathlib.Path(folder) / "overload.yaml", pathlib.Path(folder) / "quotas.yaml"
    fake_model(repository, "m", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\nbase_us = 40000\nper_row_us = 2500\n", "max_batch_size: 16\n")
    rules.write_text(RULES)
    quotas.write_text(QUOTAS)
    core, low = make_key(folder, "core", "--class", "gold"), make_key(folder, "low", "--class", "bulk")
    a, b = make_key(folder, "a", "--tenant", "a"), make_key(folder, "b", "--tenant", "b")
    flags = (f"--auth.keys_file={folder}/keys", f"--overload.file={rules}")
    with inferd(repository, PORT, *flags):
        alone = send(PORT, core, WATCHED, SECONDS, 64)
        mine, other = beside(PORT, core, low, 5 * CAPACITY)
        tell("priority core beside low at 5 x: p99 / (1.5 x unloaded + a batch)", alone, mine, 1.5 * p99(alone) + BATCH_MS, other, "classes")
        report("priority core requests lost", lost(mine), 0, "at most")
        alone = send(PORT, b, WATCHED, SECONDS, 64)
        mine, other = beside(PORT, b, a, 5 * CAPACITY)
        tell("priority tenant beside a flood, no quota: p99 / (1.5 x unloaded + a batch)", alone, mine, 1.5 * p99(alone) + BATCH_MS, other,
             "turns and equal parts")
    with inferd(repository, PORT + 10, *flags, f"--quota.file={quotas}"):
        calm, _ = beside(PORT + 10, b, a, 0.95 * CAPACITY / 2)
        mine, other = beside(PORT + 10, b, a, 5 * CAPACITY)
        tell("priority tenant beside a flood, quotas: p99 / (1.5 x beside one who keeps to his)", calm, mine, 1.5 * p99(calm), other, "quota")

    fake_model(repository, "trivial", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    body, headers = binary_request([("X", "FP32", [1, 16], floats(16))])
    script = wrk_script("/v2/models/trivial/infer", body, headers)
    with inferd(repository, PORT + 20) as plain, inferd(repository, PORT + 30, f"--overload.file={rules}") as guarded:
        x, y = alternate(5, lambda: wrk(PORT + 20, script, 32), lambda: wrk(PORT + 30, script, 32))
        report("priority trivial model c=32 requests/s, with rules / without", median(y, "rps") / median(x, "rps"), 0.9,
               detail=f"{median(x, 'rps'):.0f}/s -> {median(y, 'rps'):.0f}/s, {sum(r['errors'] for r in x + y)} errors")
