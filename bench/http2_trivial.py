"""http2_trivial.py: http_trivial.py over HTTP/2 (h2c): requests a second of a whole inference on a model that does nothing, against nginx answering
a constant of the same size over HTTP/2; one core for each server, h2load on the other. Then the server's CPU time a request against that over HTTP/1.1.

Budget: >= 0.7 of nginx's requests a second, as over HTTP/1.1 (DESIGN 8); added time of one unloaded request p50 <= 60 us, p99 <= 250 us.
Last: bytes of an idle connection that has had an answer (<= 16 KiB: nghttp2 alone keeps a frame buffer of 16 KiB and two tables).
"""
import resource
import socket
import tempfile
import urllib.request

from common import *

need("h2load")
need("wrk")
need("nginx")
ROUNDS, PORT, PEER, IDLE = 5, 18420, 18430, 2000
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
# GET /, http, authority "x": indexed fields and one literal (RFC 7541, C.3 has the first three).
GET = b"\x00\x00\x06\x01\x05\x00\x00\x00\x01" + b"\x82\x86\x84" + b"\x41\x01x"


def h2load(port, folder, headers, connections, streams, seconds=4):
    """One run; {'rps', 'p50_us', 'p99_us', 'errors'}."""
    log = pathlib.Path(folder) / "requests.log"
    log.unlink(missing_ok=True)
    command = ["h2load", "-c", connections, "-m", streams, "-D", seconds, "--warm-up-time=1", "-d", f"{folder}/body", f"--log-file={log}"]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    out = subprocess.run(pinned(CLIENT_CORE, [*command, f"http://127.0.0.1:{port}/v2/models/trivial/infer"]), capture_output=True, text=True,
                         check=True).stdout
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    times = sorted(int(r[2]) for r in rows)
    counts = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", out)
    bad = re.search(r"status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", out)
    return {"rps": float(re.search(r"finished in [^,]*, ([\d.]+) req/s", out)[1]), "p50_us": times[len(times) // 2],
            "p99_us": times[len(times) * 99 // 100], "errors": sum(map(int, counts.groups())) + sum(map(int, bad.groups()))}


def cpu_us(server, load):
    """CPU time of the server a request, while `load` runs."""
    cpu, counted = server.cpu_seconds(), requests_served()
    load()
    return {"us": (server.cpu_seconds() - cpu) / (requests_served() - counted) * 1e6}


def requests_served():
    text = urllib.request.urlopen(f"http://127.0.0.1:{PORT + 2}/metrics").read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith("inferd_requests_total"))


def idle_bytes(server):
    """Memory that a connection takes which had one answer and waits."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(IDLE + 500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    sockets = []
    for i in range(IDLE):
        if i == 100:
            before = server.rss_bytes()
        s = socket.create_connection(("127.0.0.1", PORT))
        s.sendall(PREFACE + GET)
        got = b""
        while b"\x00\x00\x00\x01" not in got[50:] or b"error" not in got:  # an answer of 404 on stream 1
            got += s.recv(4096)
        sockets.append(s)
    time.sleep(0.5)
    each = (server.rss_bytes() - before) / (IDLE - 100)
    for s in sockets:
        s.close()
    return each


with tempfile.TemporaryDirectory() as repository, tempfile.TemporaryDirectory() as folder:
    fake_model(repository, "trivial", "input = X FP32 [-1,16]\noutput = Y FP32 [-1,16] copy X\n")
    body, headers = binary_request([("X", "FP32", [1, 16], floats(16))])
    (pathlib.Path(folder) / "body").write_bytes(body)
    script = wrk_script("/v2/models/trivial/infer", body, headers)
    with inferd(repository, PORT) as ours:
        reply = urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}/v2/models/trivial/infer", body, headers))
        size = len(reply.read())
        with nginx(PEER, size, protocol="http2", ready=False) as peer:
            for connections, streams in ((32, 1), (8, 16), (1, 1)):
                a, b = alternate(ROUNDS, lambda: h2load(PORT, folder, headers, connections, streams),
                                 lambda: h2load(PEER, folder, headers, connections, streams))
                errors = sum(r["errors"] for r in a + b)
                detail = f"inferd {median(a, 'rps'):.0f}/s, nginx {median(b, 'rps'):.0f}/s, answer {size} B, {errors} errors"
                if connections > 1:
                    report(f"http2_trivial c={connections} m={streams} requests/s, inferd / nginx", median(a, "rps") / median(b, "rps"), 0.7,
                           detail=detail)
                else:
                    added = {p: median(a, p) - median(b, p) for p in ("p50_us", "p99_us")}
                    report("http2_trivial c=1 added p50, us", added["p50_us"], 60, "at most", detail)
                    report("http2_trivial c=1 added p99, us", added["p99_us"], 250, "at most")
        a, b = alternate(ROUNDS, lambda: cpu_us(ours, lambda: h2load(PORT, folder, headers, 32, 1)), lambda: cpu_us(ours, lambda: wrk(PORT, script, 32)))
        report("http2_trivial c=32 server CPU a request, HTTP/2 / HTTP/1.1", median(a, "us") / median(b, "us"), 1.3, "at most",
               f"{median(a, 'us'):.1f} and {median(b, 'us'):.1f} us; load tools differ, so requests/s can't be compared")
        report("http2_trivial bytes an idle connection", idle_bytes(ours), 16384, "at most", f"{IDLE} connections, each had one answer")
