"""llm_speed.py: language-model speed against llama.cpp on the same file with the same threads: streams and prompts, as ratios of one run.

    python bench/llm_speed.py --llama LIBRARY_DIR --tokenizer SOME.gguf [--types q4_0,q4_k_m,q6_k,q8_0] [--layers 16] [--threads 2] [--rounds 3]
                              [--streams 1,4,8,16] [--depths 0,4096] [--gap] [--prefix] [--keep FOLDER]

Ours answers over HTTP (/v1/completions, token ids as prompts, streamed), llama.cpp through its C library with all sequences in one batch a step
(llm_peer.py), both greedily and without speculation. The two take turns; the ratio of the medians is the result. Beside them stand the raw read
bandwidth and the int8 peak of the run (bench_llm_kernels), and what share of the bandwidth a single stream's weights are.
LIBRARY_DIR: that of the npm package @node-llama-cpp/linux-x64 (bins/linux-x64). Weights are random (llm_synth.py) and kept in --keep if given."""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import common

HERE = pathlib.Path(__file__).resolve().parent
BUDGETS = {1: 1.1, 4: 1.5, 8: 1.8, 16: 1.8, "prompt": 1.6}
PORT = common.free_port(3)


class Ours:
    """inferd with the model, over HTTP."""
    temperature = 0

    def __init__(self, repository, threads, context, sequences, options=()):
        folder = repository / "m"
        settings = {"threads": threads, "context": context, "max_sequences": max(sequences, 16), "speculation": "off", **dict(options)}
        (folder / "config.pbtxt").write_text("".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}\n' for k, v in settings.items()))
        self.server = common.inferd(repository, PORT, core=None)
        self.rng = random.Random(1)

    def close(self):
        self.server.__exit__()

    def tokens(self, n):
        return [self.rng.randrange(100, 49000) for _ in range(n)]

    def stream(self, prompt, n, times):
        """One streamed completion; the time of each event with text is appended to `times`."""
        body = json.dumps({"model": "m", "prompt": prompt, "max_tokens": n, "temperature": self.temperature, "stream": True, "ignore_eos": True,
                           "logprobs": 0}).encode()
        s = socket.create_connection(("127.0.0.1", PORT))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
                  + str(len(body)).encode() + b"\r\n\r\n" + body)
        rest = b""
        while data := s.recv(65536):
            now = time.monotonic()
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.startswith(b"HTTP/1.1") and b" 200 " not in line:
                    sys.exit(f"inferd answered {line.decode()}: {data.decode(errors='replace')[-400:]}")
                for choice in json.loads(line[6:])["choices"] if line.startswith(b"data: {") else ():
                    times += [now] * len((choice["logprobs"] or {"tokens": ()})["tokens"])
        s.close()

    def many(self, prompts, n):
        times = [[] for _ in prompts]
        threads = [threading.Thread(target=self.stream, args=(p, n, t)) for p, t in zip(prompts, times)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return times

    def decode(self, n, prompt, steps):
        """Seconds that `steps` tokens of n streams take together, between the last first token and the first end."""
        times = self.many([self.tokens(prompt) for _ in range(n)], steps + 8)
        begin, end = max(t[0] for t in times), min(t[-1] for t in times)
        made = sum(sum(begin < x <= end for x in t) for t in times)
        if not made:
            sys.exit(f"{n} streams of {steps + 8} tokens never ran all together: give more --steps")
        return (end - begin) * n * steps / made

    def prompt(self, n, depth):
        first = self.tokens(depth)
        if depth:
            self.stream(first, 1, [])  # the prefix cache keeps it
        times, begin = [], time.monotonic()
        self.stream(first + self.tokens(n), 1, times)
        return times[0] - begin


class Theirs:
    """llama.cpp in llm_peer.py."""

    def __init__(self, library, model, threads, sequences, context):
        self.p = subprocess.Popen([sys.executable, HERE / "llm_peer.py", library, model, str(threads), str(sequences), str(context)],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self.p.stdout.readline() != "ready\n":
            sys.exit("llm_peer.py did not start; run it by hand")

    def ask(self, *words):
        self.p.stdin.write(" ".join(map(str, words)) + "\n")
        self.p.stdin.flush()
        return float(self.p.stdout.readline())

    def decode(self, n, prompt, steps):
        return self.ask("decode", n, prompt, steps)

    def prompt(self, n, depth):
        return self.ask("prompt", n, depth)

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def machine(threads):
    """Raw read bandwidth (GB/s) and int8 peak (GMAC/s), as bench_llm_kernels says them; None where it isn't built."""
    bench = common.ROOT / "build/release/bench/bench_llm_kernels"
    if not bench.exists():
        return None, None
    out = subprocess.run([bench, "-t", str(threads), "-k", "Q8_0", "-c", "1", "-n", "1"], capture_output=True, text=True).stdout
    read, peak = re.search(r"([\d.]+) GB/s", out), re.search(r"([\d.]+) GMAC/s", out)
    return (float(read[1]) if read else None), (float(peak[1]) if peak else None)


def compare(what, ours, theirs, tokens, rounds, budget):
    a, b = [], []
    for _ in range(rounds):
        a.append(ours())
        b.append(theirs())
    x, y = tokens / statistics.median(a), tokens / statistics.median(b)
    said = f"budget {budget}: {'ok' if x / y >= budget else 'MISSED'}" if budget else ""
    print(f"  {what:<28} ours {x:8.1f}  llama.cpp {y:8.1f} tokens/s  ratio {x / y:5.2f}  {said}", flush=True)
    return x


def measure(kind, model, repository, args):
    depths, streams = args.depths, args.streams
    context = max(depths) + 1024 if not args.gap else max(max(depths) + 1024, 9216)
    read, peak = machine(args.threads)
    print(f"{kind}: {model.stat().st_size / 1e6:.0f} MB, {args.threads} threads; raw read {read} GB/s, int8 peak {peak} GMAC/s", flush=True)
    theirs = Theirs(args.llama, model, args.threads, max(streams), context)
    ours = Ours(repository, args.threads, context, max(streams))
    try:
        compare_all(ours, theirs, model, read, args)
    finally:
        theirs.close()
        ours.close()


def compare_all(ours, theirs, model, read, args):
    ours.stream(ours.tokens(8), 12, []), theirs.decode(1, 8, 4)  # pages touched, costs learned
    for n in args.streams:
        steps = args.steps
        x = compare(f"{n} streams", lambda: ours.decode(n, 16, steps), lambda: theirs.decode(n, 16, steps), n * steps, args.rounds, BUDGETS.get(n))
        if n == 1 and read:
            print(f"    one stream reads {x * model.stat().st_size * 1e-9:.1f} GB/s of weights at most, {x * model.stat().st_size * 1e-9 / read:.0%} "
                  "of the raw bandwidth (the token embedding, read by the row, counts in)", flush=True)
    for depth in args.depths:
        compare(f"prompt of 512 at {depth}", lambda: ours.prompt(512, depth), lambda: theirs.prompt(512, depth), 512, args.rounds,
                BUDGETS["prompt"] if depth == 0 else 1.0)
    if args.gap:
        gap(ours)
    if args.prefix:
        prefix(ours)


def gap(ours):
    """The largest gap of 8 running streams while a long prompt arrives, against the median before; and that prompt's time, against alone."""
    long = ours.tokens(8000)
    alone = []
    begin = time.monotonic()
    ours.stream(ours.tokens(8000), 1, alone)
    alone = alone[0] - begin
    times = [[] for _ in range(8)]
    threads = [threading.Thread(target=ours.stream, args=(ours.tokens(16), 600, t)) for t in times]
    for t in threads:
        t.start()
    while min(map(len, times)) < 40:
        time.sleep(0.01)
    arrived, first = time.monotonic(), []
    ours.stream(long, 1, first)
    done = time.monotonic()
    for t in threads:
        t.join()
    gaps = [(b, b - a) for t in times for a, b in zip(t, t[1:])]
    quiet = [g for at, g in gaps if at < arrived]
    before = statistics.median(quiet)
    during = sorted(g for at, g in gaps if arrived <= at <= done)
    print(f"  8k prompt beside 8 streams: largest gap {during[-1] / before:.2f} of the median before (median "
          f"{statistics.median(during) / before:.2f}, p99 {during[int(len(during) * 0.99)] / before:.2f}; before it came the machine alone made one of "
          f"{max(quiet) / before:.2f}), "
          f"budget 3; its first token after {(first[0] - arrived) / alone:.2f} of alone, budget 2", flush=True)


def prefix(ours):
    shared, cold, warm = ours.tokens(1000), [], []
    for _ in range(5):
        begin, t = time.monotonic(), []
        ours.stream(ours.tokens(1000) + ours.tokens(16), 1, t)
        cold.append(t[0] - begin)
    ours.stream(shared, 1, [])
    for _ in range(5):
        begin, t = time.monotonic(), []
        ours.stream(shared + ours.tokens(16), 1, t)
        warm.append(t[0] - begin)
    print(f"  first token behind a shared prefix of 1000: {statistics.median(warm) / statistics.median(cold):.2f} of cold, budget 0.2", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--llama", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--types", default="q4_0,q4_k_m,q6_k,q8_0")
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--streams", default="1,4,8,16")
    p.add_argument("--depths", default="0")
    p.add_argument("--gap", action="store_true")
    p.add_argument("--prefix", action="store_true")
    p.add_argument("--keep")
    args = p.parse_args()
    args.streams = [int(n) for n in args.streams.split(",")]
    args.depths = [int(n) for n in args.depths.split(",")]
    with tempfile.TemporaryDirectory(dir=args.keep) as tmp:
        for kind in args.types.split(","):
            store = pathlib.Path(args.keep or tmp) / f"synth-{kind}-{args.layers}.gguf"
            if not store.exists():
                subprocess.run([sys.executable, HERE / "llm_synth.py", store, "--type", kind, "--tokenizer", args.tokenizer, "--layers", str(args.layers)],
                               check=True)
            version = pathlib.Path(tmp) / kind / "m" / "1"
            version.mkdir(parents=True)
            os.link(store, version / "model.gguf")
            measure(kind, store, pathlib.Path(tmp) / kind, args)
            shutil.rmtree(pathlib.Path(tmp) / kind)


if __name__ == "__main__":
    main()
