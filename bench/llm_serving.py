"""llm_serving.py: a language model through HTTP as users see it: time to first token under load, shared prefixes, a long prompt beside streams.

    python bench/llm_serving.py [load] [prefix] [long]     these parts; without any, all

SmolLM2-135M (demo/models/smollm2), measured by `inferd bench --openai` and, for token gaps, by a client of its own. Budgets (issue 3): p95 of
the time to first token < 500 ms at 70 % of capacity with prompts of 256 and answers of 64 tokens (Poisson); the same with a shared prefix of
1,000 words <= 0.2 x of cold; an 8k prompt beside 8 streams: largest gap <= 3 x the median before it; health p99 < 50 ms meanwhile.
"""
import http.client
import threading

from common import *

PORT = 18840
MODEL = DEMO / "smollm2"
URL = f"http://127.0.0.1:{PORT}"


def bench(*args):
    command = [BINARY, "bench", "--openai", "smollm2", "--url", URL, "--json", "--quiet", *map(str, args)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def post(body):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
    c.request("POST", "/v1/completions", json.dumps({"model": "smollm2", "temperature": 0, "ignore_eos": True, **body}))
    return c.getresponse()


def stream_gaps(times, n):
    """Times of the events of one stream of n tokens."""
    r = post({"prompt": [100 + len(times)] * 64, "max_tokens": n, "stream": True})
    while line := r.readline():
        if line.startswith(b"data: {"):
            times.append(time.monotonic())


def health(stop, out):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    while not stop.is_set():
        begin = time.monotonic()
        c.request("GET", "/v2/health/live")
        c.getresponse().read()
        out.append(time.monotonic() - begin)
        time.sleep(0.005)


def words_of(tokens):
    """How many of the random words make so many tokens, by what the server counts."""
    probe = bench("--requests", 4, "--prompt-words", tokens, "--max-tokens", 1)
    return round(tokens * tokens / (probe["total_input_tokens"] / probe["completed"]))


def running(stop, out):
    """How many sequences run, ten times a second."""
    while not stop.wait(0.1):
        page = urllib.request.urlopen(f"http://127.0.0.1:{PORT + 2}/metrics", timeout=30).read().decode()
        out += [float(x) for x in re.findall(r"^inferd_llm_requests_running\S* (\S+)$", page, re.M)]


def load():
    """Capacity is what 16 clients get that each send the next request when the last is answered: more gain little, since a step of 16 decodes is
    already nearly 16 times the price of what a decode adds to it."""
    words = words_of(256)
    full = bench("--requests", 96, "--concurrency", 16, "--prompt-words", words, "--max-tokens", 64)
    rate = 0.7 * full["request_throughput"]
    stop, counts = threading.Event(), []
    watch = threading.Thread(target=running, args=(stop, counts))
    watch.start()
    at70 = bench("--requests", max(60, int(rate * 20)), "--rate", rate, "--prompt-words", words, "--max-tokens", 64, "--seed", 7)
    stop.set()
    watch.join()
    report("llm_serving p95 of TTFT at 70 % of capacity, ms", at70["p95_ttft_ms"], 500, "at most",
           f"median {at70['median_ttft_ms']:.0f}; {rate:.1f} requests/s of {full['request_throughput']:.1f}, {at70['total_input_tokens'] / at70['completed']:.0f} tokens "
           f"each; {full['output_throughput']:.0f} tokens/s at capacity; {statistics.mean(counts or [0]):.1f} run; time per output token {at70['median_tpot_ms']:.1f} ms, "
           f"99th percentile of the gaps {at70['p99_itl_ms']:.0f} ms")


def prefix():
    cold = bench("--requests", 8, "--prompt-words", 1050, "--max-tokens", 2, "--warmup", 0, "--seed", 11)
    warm = bench("--requests", 8, "--prompt-words", 1050, "--prefix-words", 1000, "--max-tokens", 2, "--warmup", 1, "--seed", 12)
    report("llm_serving TTFT with a shared prefix against cold", warm["median_ttft_ms"] / cold["median_ttft_ms"], 0.2, "at most",
           f"{warm['median_ttft_ms']:.1f} ms against {cold['median_ttft_ms']:.1f} ms")


def long_prompt():
    alone = time.monotonic()
    post({"prompt": [3 + i % 4000 for i in range(8000)], "max_tokens": 1, "cache_salt": "alone"}).read()
    alone = time.monotonic() - alone
    streams, pings, stop = [[] for _ in range(8)], [], threading.Event()
    threads = [threading.Thread(target=stream_gaps, args=(times, 600)) for times in streams]
    [t.start() for t in threads]
    while min(map(len, streams)) < 60:
        time.sleep(0.01)
    watch = threading.Thread(target=health, args=(stop, pings))
    watch.start()
    begin = time.monotonic()
    post({"prompt": [3 + i % 4000 for i in range(8000)], "max_tokens": 1, "cache_salt": "beside"}).read()
    end = time.monotonic()
    stop.set()
    [t.join() for t in [*threads, watch]]
    gaps = [(b, b - a) for times in streams for a, b in zip(times[20:], times[21:])]
    before = statistics.median(g for at, g in gaps if at < begin)
    report("llm_serving largest token gap beside an 8k prompt, of the median before", max(g for at, g in gaps if begin <= at <= end) / before, 3,
           "at most", f"median {before * 1e3:.1f} ms")
    report("llm_serving TTFT of that prompt, of alone", (end - begin) / alone, 2, "at most", f"alone {alone:.2f} s")
    report("llm_serving health p99 meanwhile, ms", sorted(pings)[int(len(pings) * 0.99)] * 1e3, 50, "at most")


if not MODEL.exists():
    sys.exit("this measurement needs demo/models/smollm2: run ./dev deps demo first")
parts = {"load": load, "prefix": prefix, "long": long_prompt}
if unknown := set(sys.argv[1:]) - set(parts):
    sys.exit(f"llm_serving.py: there is no part {unknown.pop()!r}; the parts are {', '.join(parts)}")
with inferd(MODEL, PORT, core=None):
    for part in sys.argv[1:] or parts:
        parts[part]()
