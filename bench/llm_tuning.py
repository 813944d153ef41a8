"""llm_tuning.py: what each option of a language model is worth: the figures of docs/guide/tuning-language-models.md.

    python bench/llm_tuning.py --model MODEL.gguf [--only threads,concurrency,kv,prefix,speculation,prompts,budget] [--rounds 3] [--depth 3000]

The model is served over HTTP once for each value of an option; values take turns where they are compared, and figures are relative to the first, from
the medians. Nothing here has a budget."""
import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

import common
import llm_speed

PORT = llm_speed.PORT
# What lookup speculation lives on: an answer that repeats its prompt. Ids of any vocabulary do: the model continues a pattern seen many times.
PATTERN = [1000 + 37 * i % 4000 for i in range(24)]


class Site:
    """Servers of one model, one for each set of options, one at a time."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        version = folder / "m" / "1"
        version.mkdir(parents=True)
        os.symlink(os.path.realpath(args.model), version / "model.gguf")

    def ask(self, options, *questions):
        """The answers of questions to a fresh server with these options."""
        ours = llm_speed.Ours(self.folder, options.get("threads", 2), options.get("context", 8192), options.get("max_sequences", 32), options.items())
        try:
            ours.stream(ours.tokens(8), 16, [])  # pages touched, costs learned
            return [q(ours) for q in questions]
        finally:
            ours.close()

    def compare(self, name, values, what, unit, base=None, **questions):
        """`values`: label -> options. Prints a line for each value and each question, relative to the first value's."""
        got = {v: {q: [] for q in questions} for v in values}
        for _ in range(self.args.rounds):
            for label, options in values.items():
                for q, x in zip(questions, self.ask({**(base or {}), **options}, *questions.values())):
                    got[label][q].append(x)
        first = {q: statistics.median(got[next(iter(values))][q]) for q in questions}
        print(f"{name} ({what})")
        for label in values:
            said = ", ".join(f"{q.replace('_', ' ')} {statistics.median(x):.4g} {unit} ({statistics.median(x) / first[q]:.2f})" for q, x in got[label].items())
            print(f"  {label:<26} {said}", flush=True)


def rate(n, prompt, steps):
    return lambda ours: n * steps / ours.decode(n, prompt, steps)


def prompt_rate(n, depth=0):
    return lambda ours: n / ours.prompt(n, depth)


def metric(name):
    text = urllib.request.urlopen(f"http://127.0.0.1:{PORT + 2}/metrics").read().decode()
    return float(re.search(rf"^inferd_llm_{name}{{[^}}]*}} ([\d.e+]+)", text, re.M)[1])


def threads(site):
    site.compare("threads", {"2": {"threads": 2}, "1": {"threads": 1}}, "tokens/s", "", one_stream=rate(1, 16, 64), eight_streams=rate(8, 16, 32), prompt_of_512=prompt_rate(512))


def whole_rate(n, steps):
    """Of n answers that begin together, from the first request to the last token."""
    def run(ours):
        begin = time.monotonic()
        ours.many([ours.tokens(16) for _ in range(n)], steps)
        return n * steps / (time.monotonic() - begin)
    return run


def concurrency(site):
    counts = (1, 2, 4, 8, 16, 32)
    got = {n: [] for n in counts}
    for _ in range(site.args.rounds):
        for n, x in zip(counts, site.ask({}, *(whole_rate(n, 96) for n in counts))):
            got[n].append(x)
    one = statistics.median(got[1])
    print("concurrency (tokens/s)")
    for n in counts:
        x = statistics.median(got[n])
        print(f"  {n:<3} streams {x:7.1f} together ({x / one:.2f}), {x / n:6.1f} each ({x / n / one:.2f})", flush=True)


def kv(site):
    """Speed: of the forward pass alone, one thread, by its processor time."""
    kinds, depth = ("f16", "bf16", "q8_0"), str(site.args.depth)
    got = {k: ([], []) for k in kinds}
    for _ in range(site.args.rounds):
        for k in kinds:
            for to, what in zip(got[k], (("decode", "4", depth, "12"), ("prompt", "256", depth, "1"))):
                out = subprocess.run([common.built("llm_steps"), site.args.model, "1", k, *what], capture_output=True, text=True, check=True).stdout
                to.append(float(re.search(r"([\d.]+) tokens/s", out)[1]))
    print(f"kv_cache_type (behind {depth} tokens, against F16)")
    for k in kinds:
        four, prompt = (statistics.median(a) / statistics.median(b) for a, b in zip(got[k], got["f16"]))
        print(f"  {k:<26} four streams {four:.2f}, a prompt of 256 {prompt:.2f}", flush=True)
    site.compare("kv_cache_type", {k: {"kv_cache_type": k, "kv_cache_bytes": "256MiB"} for k in ("f16", "bf16", "q8_0")}, "what 256 MiB hold", "tokens",
                 tokens=lambda ours: 32 * metric("kv_blocks"))


def prefix(site):
    def warm(ours):
        shared = ours.tokens(1000)
        ours.stream(shared, 1, [])
        return first_token(ours, shared + ours.tokens(16))

    cold = lambda ours: first_token(ours, ours.tokens(1016))
    got = [site.ask({}, cold, warm, cold, warm) for _ in range(site.args.rounds)]
    a, b = (statistics.median(x[i] for x in got for i in at) for at in ((0, 2), (1, 3)))
    print(f"prefix cache (first token of a prompt of 1016)\n  cold {a * 1e3:.0f} ms, behind 1000 tokens that are known {b * 1e3:.0f} ms ({b / a:.2f})", flush=True)


def first_token(ours, tokens):
    times, begin = [], time.monotonic()
    ours.stream(tokens, 1, times)
    return times[0] - begin


def speculation(site):
    """One thread, by the server's processor time: guesses are columns, and waiting for each other is not the question here."""
    def cost(prompt, n, temperature):
        def run(ours):
            ours.temperature = temperature
            begin = ours.server.cpu_seconds()
            ours.many([prompt(ours, i) for i in range(n)], 192)
            return n * 192 / (ours.server.cpu_seconds() - begin)
        return run

    pattern, other = lambda ours, i: [100 + i] + PATTERN * 8, lambda ours, i: ours.tokens(16)
    site.compare("speculation", {"off": {"speculation": "off"}, "lookup": {"speculation": "lookup"}},
                 "tokens a second of processor time; answers that go on with a pattern, and sampled ones that don't", "", {"threads": 1},
                 one_repeating=cost(pattern, 1, 0), eight_repeating=cost(pattern, 8, 0), one_sampled=cost(other, 1, 1), eight_sampled=cost(other, 8, 1))


def prompts(site):
    """A prompt of `depth` tokens beside four streams: its first token, and the streams' largest gap, relative to their median gap before it."""
    def beside(ours):
        times = [[] for _ in range(4)]
        threads = [llm_speed.threading.Thread(target=ours.stream, args=(ours.tokens(16), 400, t)) for t in times]
        [t.start() for t in threads]
        while min(map(len, times)) < 40:
            time.sleep(0.01)
        begin = time.monotonic()
        first = first_token(ours, ours.tokens(site.args.depth))
        [t.join() for t in threads]
        gaps = [(b, b - a) for t in times for a, b in zip(t, t[1:])]
        usual = statistics.median(g for at, g in gaps if at < begin)
        during = sorted(g for at, g in gaps if begin <= at <= begin + first)
        return first * 1e3, during[int(len(during) * 0.95)] / usual, during[-1] / usual

    values = {"default": {}, "target_step_ms 20": {"target_step_ms": 20}, "max_step_tokens 64": {"max_step_tokens": 64}, "max_step_tokens 16": {"max_step_tokens": 16}}
    got = {v: [] for v in values}
    for _ in range(site.args.rounds):
        for label, options in values.items():
            got[label] += site.ask(options, beside)
    print(f"a prompt of {site.args.depth} beside four streams (first token; the streams' gaps, of their median before)")
    for label, runs in got.items():
        first, most, largest = (statistics.median(x) for x in zip(*runs))
        print(f"  {label:<26} {first:6.0f} ms; 95 % of gaps below {most:.1f}, the largest {largest:.1f}", flush=True)


def budget(site):
    """Eight answers of 600 tokens in a pool that holds all of them, and in one that doesn't."""
    def run(ours):
        begin = time.monotonic()
        ours.many([ours.tokens(16) for _ in range(8)], 600)
        return 8 * 600 / (time.monotonic() - begin), metric("preemptions_total")

    sizes = {"256MiB": "all fit", "64MiB": "half of them fit"}
    got = {s: [] for s in sizes}
    for _ in range(site.args.rounds):
        for s in sizes:
            got[s] += site.ask({"context": 1024, "kv_cache_bytes": s}, run)
    print("kv_cache_bytes (8 answers of 600 tokens at once, tokens/s)")
    first = statistics.median(x for x, _ in got["256MiB"])
    for s, why in sizes.items():
        x = statistics.median(x for x, _ in got[s])
        print(f"  {s:<26} {x:.1f} ({x / first:.2f}), {statistics.median(p for _, p in got[s]):.0f} preemptions: {why}", flush=True)


ALL = {"threads": threads, "concurrency": concurrency, "kv": kv, "prefix": prefix, "speculation": speculation, "prompts": prompts, "budget": budget}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--only", default=",".join(ALL))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--depth", type=int, default=3000)
    args = p.parse_args()
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory() as tmp:
            ALL[name](Site(args, pathlib.Path(tmp)))


if __name__ == "__main__":
    main()
