"""test_soak.py: ten minutes of everything at once (INFERD_SOAK_SECONDS shortens it). Marked `soak`: ./dev test --soak.

Good clients check every number of every answer; beside them clients that vanish in every phase of a request, malformed
requests, reloads of the models and of the configuration, and scrapes. At the end: no wrong answer, no failure of a good
client, memory and descriptors flat, nothing in flight.

Flat means: the mean of the last quarter is not more than GROWTH above the mean of the second one. The first quarter is not
looked at, because there pools, histograms and the allocator's arenas grow to their size.
"""
import json
import os
import random
import signal
import threading
import time

import pytest
import requests

from inferd_server import SIMPLE, Server, wait_equal, write_fake
from raw_socket import Reader, connect, fd_count, infer_request, request, reset

SECONDS = float(os.environ.get("INFERD_SOAK_SECONDS", "600"))
GROWTH_BYTES = 4 << 20
GROWTH_FDS = 8
GOOD_THREADS, CRASHING_THREADS, MALFORMED_THREADS = 3, 2, 2

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 120)]

MALFORMED = [  # (bytes, the status that answers them)
    (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
    (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
    (b"GET /v2 HTTP/1.1\nHost: x\n\n", 400),
    (b"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\n{\r\n0\r\n\r\n", 400),
    (b"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    (b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 500 + b"\r\n", 431),
    (b"GET /v2/models/%2e%2e/config HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n" + b"[" * 2000, 400),
    (infer_request("sum", {"inputs": [{"name": "INPUT0", "shape": [1, 1 << 40], "datatype": "INT32", "data": [1]}]}), 400),
    (infer_request("sum", {"inputs": [{"name": "INPUT0", "shape": [-1, 16], "datatype": "INT32", "data": [1]}]}), 400),
    (infer_request("nobody", {"inputs": []}), 404),
    (infer_request("sum", {"inputs": []}, [("x-inferd-timeout-ms", "NaN")]), 400),
]


def sum_document(a, b):
    return {"inputs": [{"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", "data": a},
                       {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": b}]}


class Soak:
    """The threads and what they saw."""

    def __init__(self, server, config):
        self.server, self.config = server, config
        self.until = time.monotonic() + SECONDS
        self.wrong, self.counts, self.lock = [], {}, threading.Lock()
        self.samples = []  # (seconds since start, rss bytes, descriptors)

    def fail(self, text):
        with self.lock:
            self.wrong.append(text)

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def _thread(self, work, seed):
        r = random.Random(seed)
        while time.monotonic() < self.until and len(self.wrong) < 10:
            try:
                work(r)
                self.count(work.__name__)
            except Exception as e:
                self.fail(f"{work.__name__}: {e!r}")

    # --- what the threads do, again and again ---

    def good(self, r):
        """Twenty requests of one keep-alive client; answers are checked element by element."""
        with requests.Session() as session:
            for _ in range(20):
                a, b = ([r.randrange(-1 << 30, 1 << 30) for _ in range(16)] for _ in range(2))
                model = r.choice(["sum", "reloaded", "slow"])
                answer = session.post(f"{self.server.url}/v2/models/{model}/infer", json=sum_document(a, b), timeout=30)
                if answer.status_code != 200:
                    self.fail(f"good client of {model}: {answer.status_code} {answer.text}")
                    return
                data = {o["name"]: o["data"] for o in answer.json()["outputs"]}
                if data != {"OUTPUT0": [x + y for x, y in zip(a, b)], "OUTPUT1": [x - y for x, y in zip(a, b)]}:
                    self.fail(f"wrong answer of {model}: {a} {b} {data}")

    def crashing(self, r):
        """A client that goes away: before, inside or behind its request, by RST, FIN or half-close."""
        document = infer_request(r.choice(["sum", "slow"]), sum_document([1] * 16, [2] * 16)) * r.choice([1, 1, 4])
        with connect(self.server) as s:
            try:
                s.sendall(document[: r.choice([0, r.randrange(len(document)), len(document)])])
                if r.random() < 0.3:
                    s.settimeout(0.02)
                    s.recv(r.choice([1, 50, 5000]))
            except OSError:
                pass
            if r.random() < 0.7:
                reset(s)

    def chatting(self, r):
        """A conversation, whole or streamed; the scripted model says what it was asked, and a reloaded one keeps its word."""
        text = "".join(r.choice("abc 世é\n") for _ in range(r.randrange(1, 200)))
        stream = r.random() < 0.5
        body = {"model": r.choice(["parrot", "reloaded_parrot"]), "stream": stream, "messages": [{"role": "user", "content": text}]}
        answer = requests.post(f"{self.server.url}/v1/chat/completions", json=body, timeout=30)
        if answer.status_code == 429:
            return
        if stream:
            chunks = [json.loads(b[6:]) for b in answer.content.decode().split("\n\n") if b.startswith("data: {")]
            said = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
        else:
            said = answer.json()["choices"][0]["message"]["content"]
        if said != text:
            self.fail(f"chat: {answer.status_code} {said!r}, not {text!r}")

    def leaving(self, r):
        """A client that leaves its generation: queued, in the prompt, in the answer; streaming or not; or that doesn't read."""
        body = {"model": "slow_parrot", "stream": r.random() < 0.7, "n": r.choice([1, 4]),
                "messages": [{"role": "user", "content": "x" * 2000}]}
        with connect(self.server) as s:
            s.sendall(request("POST", "/v1/chat/completions", body=json.dumps(body).encode()))
            time.sleep(r.random() * 0.05)
            if r.random() < 0.8:
                reset(s)

    def malformed(self, r):
        data, status = r.choice(MALFORMED)
        with connect(self.server) as s:
            try:
                s.sendall(data)
            except OSError:
                pass  # answered and closed before all of it was read
            answer = Reader(s).answer()
        if answer.status != status:
            self.fail(f"{data[:60]!r}: {answer}, expected {status}")
        time.sleep(0.002)

    def reloading(self, r):
        answer = requests.post(f"{self.server.url}/v2/repository/models/reloaded/load", timeout=30)
        if answer.status_code != 200:
            self.fail(f"load: {answer.status_code} {answer.text}")
        answer = requests.post(f"{self.server.url}/v2/repository/models/reloaded_parrot/load", timeout=30)
        if answer.status_code != 200:
            self.fail(f"load: {answer.status_code} {answer.text}")
        for verb in ("load", "unload"):
            answer = requests.post(f"{self.server.url}/v2/repository/models/comes_and_goes/{verb}", timeout=30)
            if answer.status_code != 200:
                self.fail(f"{verb}: {answer.status_code} {answer.text}")
        self.config.write_text(f"limits: {{max_headers: {r.randrange(90, 110)}}}\n")
        self.server.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)

    def scraping(self, _):
        if not self.server.metrics():
            self.fail("an empty scrape")
        for path in ("/v2/health/ready", "/v2/models/stats", "/v2"):
            if requests.get(self.server.url + path, timeout=10).status_code != 200:
                self.fail(f"{path} is not 200")
        time.sleep(0.25)

    def sampling(self, _):
        self.samples.append((SECONDS - (self.until - time.monotonic()), self.server.rss_bytes(), fd_count(self.server)))
        time.sleep(min(1, SECONDS / 100))

    def run(self):
        work = ([self.good] * GOOD_THREADS + [self.crashing] * CRASHING_THREADS + [self.malformed] * MALFORMED_THREADS +
                [self.chatting] * 2 + [self.leaving, self.reloading, self.scraping, self.sampling])
        threads = [threading.Thread(target=self._thread, args=(w, seed)) for seed, w in enumerate(work)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def quarter(self, which, column):
        values = [s[column] for s in self.samples if which <= 4 * s[0] / SECONDS < which + 1]
        return sum(values) / len(values)


def in_flight(server):
    return requests.get(server.admin_url + "/admin/status", timeout=10).json()["in_flight"]


def test_soak(repository, tmp_path):
    write_fake(repository, "sum", SIMPLE)
    write_fake(repository, "slow", SIMPLE + "base_us = 2000\n")
    write_fake(repository, "reloaded", SIMPLE + "load_delay_ms = 20\n")
    write_fake(repository, "comes_and_goes", SIMPLE + "memory_bytes = 1MiB\n")
    write_fake(repository, "parrot", "tokens = true\npiece_bytes = 3\n")
    write_fake(repository, "reloaded_parrot", "tokens = true\npiece_bytes = 5\npiece_us = 300\n")
    write_fake(repository, "slow_parrot", "tokens = true\npiece_bytes = 1\npiece_us = 1000\nmax_running = 4\nmax_waiting = 8\n")
    config = tmp_path / "inferd.yaml"
    config.write_text("limits: {max_headers: 100}\n")
    with Server(repository, args=[f"--config={config}", "--repository.mode=explicit",
                                  "--repository.load=sum,slow,reloaded,parrot,reloaded_parrot,slow_parrot"]) as server:
        soak = Soak(server, config)
        soak.run()
        assert not soak.wrong, "\n".join(soak.wrong)
        wait_equal(lambda: in_flight(server), 0)
        print({k: v for k, v in sorted(soak.counts.items())},
              [(q, round(soak.quarter(q, 1) / 2**20, 1), round(soak.quarter(q, 2), 1)) for q in range(4)])
        assert min(soak.counts.get(w, 0) for w in ("good", "crashing", "malformed", "chatting", "leaving", "reloading", "scraping")) > 0
        if os.environ.get("INFERD_BUILD") not in ("asan", "tsan", "ubsan"):  # a sanitizer's allocator keeps what is freed
            assert soak.quarter(3, 1) - soak.quarter(1, 1) < GROWTH_BYTES, "memory grows"
        assert soak.quarter(3, 2) - soak.quarter(1, 2) < GROWTH_FDS, "descriptors grow"
