"""overload.py [SECONDS]: three times more requests than the server can answer, for a minute.

A model that burns 4 ms a batch and 1 ms a row (so batches pay); capacity is measured first with closed-loop clients. Server and model share
one core, so a refusal is paid from the same core as an answer. Then open-loop
Poisson arrivals at 3 x that rate, each with a deadline of 100 ms. Budgets (issue 2): goodput (answers within their deadline) >= 0.9 of
the peak, accepted p99 within the deadline, RSS flat, health p99 <= 10 ms.
"""
import tempfile
import threading

from common import *

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
PORT, DEADLINE_MS = 18700, 100


def poll_health(times, stop):
    import http.client
    while not stop.is_set():
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        start = time.monotonic()
        connection.request("GET", "/v2/health/ready")
        connection.getresponse().read()
        times.append(time.monotonic() - start)
        connection.close()
        time.sleep(0.02)


with tempfile.TemporaryDirectory() as repository:
    fake_model(repository, "burner", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\nbase_us = 4000\nper_row_us = 1000\nmode = spin\n",
               "max_batch_size: 16\n")
    with inferd(repository, PORT) as server:
        peak = statistics.median(load(PORT, "burner", "--concurrency=64")["per_second"] for _ in range(3))
        times, stop = [], threading.Event()
        poller = threading.Thread(target=poll_health, args=(times, stop))
        load(PORT, "burner", f"--rate={3 * peak:.0f}", f"--deadline={DEADLINE_MS}ms", "--connections=512", seconds=5)
        before = server.rss_bytes()
        poller.start()
        result = load(PORT, "burner", f"--rate={3 * peak:.0f}", f"--deadline={DEADLINE_MS}ms", "--connections=512", seconds=SECONDS)
        after = server.rss_bytes()
        stop.set()
        poller.join()
        goodput = result["ok"] / result["seconds"]
        times.sort()
        detail = f"peak {peak:.0f}/s, offered {3 * peak:.0f}/s for {SECONDS} s, answered {goodput:.0f}/s, statuses {result['status']}"
        report("overload goodput / peak", goodput / peak, 0.9, detail=detail)
        report("overload accepted p99, ms (from the scheduled time)", result["latency_ns"]["p99"] / 1e6, DEADLINE_MS, "at most")
        report("overload RSS growth, MiB", (after - before) / 2**20, 1, "at most", f"{after / 2**20:.1f} MiB at the end")
        report("overload health p99, ms", times[int(len(times) * 0.99)] * 1e3, 10, "at most", f"{len(times)} probes")
