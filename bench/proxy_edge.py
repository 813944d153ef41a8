"""proxy_edge.py: what the gateway costs with everything on, against HAProxy and nginx as plain proxies before the same upstream, one core each in turn.

Budgets (issue 5): with key auth, route, local quota and metrics, CPU a request <= 1.25 of HAProxy plain (HTTP/1.1) and <= 1.3 (HTTP/2 in, HTTP/1.1
out); an SSE chunk passed through <= 1.0 of HAProxy, which is told to send each at once (http-no-delay): by itself it holds chunks back for up to
200 ms, which is cheaper and no stream; full TLS handshake and one request <= 1.1 of the better of the two; 1,000 idle SSE streams
<= 40 KB each; RSS flat over 1 M requests (under a byte a request: the smallest
thing that could be left behind is 32).
"""
import asyncio
import multiprocessing
import selectors
import socket
import tempfile

from common import *
from proxy_common import UPSTREAM, errors_of, figures, gateway, haproxy, measured, nginx_proxy, with_wrk

need("h2load")
need("openssl")
ROUNDS, PORT, NGINX_PORT, HAPROXY_PORT, EVENTS = 7, 19200, 19220, 19230, 19240
STREAMS, EVENTS_PER_S, IDLE, MILLION = 200, 20, 1000, 1_000_000
EVENT = b"data: " + b"x" * 177 + b"\n\n"
POLICIES = """
policies:
- {name: key, per: key, requests_per_second: 100000000, tokens_per_minute: 100000000000, concurrent: 100000}
- {name: tenant, per: [tenant, model], requests_per_day: 100000000000}
"""


def guards(folder):
    """Flags and headers of a gateway that asks for a key and counts quotas."""
    path, quotas = pathlib.Path(folder) / "keys", pathlib.Path(folder) / "quotas.yaml"
    key = subprocess.run([BINARY, "keys", "make", "--file", path, "--name", "bench", "--scopes", "infer"], capture_output=True, text=True,
                         check=True).stdout.strip()
    quotas.write_text(POLICIES)
    return (f"--auth.keys_file={path}", f"--quota.file={quotas}"), {"x-api-key": key}


def h2load(port, folder, headers, seconds=3):
    command = ["h2load", "-c", 16, "-m", 16, "-D", seconds, "-d", f"{folder}/body"]
    for name, value in headers.items():
        command += ["-H", f"{name}: {value}"]
    out = subprocess.run(pinned(CLIENT_CORE, [*command, f"http://127.0.0.1:{port}/plain"]), capture_output=True, text=True, check=True).stdout
    bad = re.search(r"status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", out)
    return {"rps": float(re.search(r"finished in [^,]*, ([\d.]+) req/s", out)[1]), "errors": sum(map(int, bad.groups()))}


# ---- streams ----

async def serve_events(port):
    """An upstream of endless server-sent events: EVENTS_PER_S a second, or one and then silence below /plain/idle."""
    async def one(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while not writer.is_closing():
                writer.write(b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
                await writer.drain()
                await asyncio.sleep(1 / EVENTS_PER_S if b"/idle" not in head else 3600)
        except (ConnectionError, asyncio.CancelledError):
            writer.close()
    server = await asyncio.start_server(one, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


def events_process():
    os.sched_setaffinity(0, {CLIENT_CORE})
    asyncio.run(serve_events(EVENTS))


def open_streams(port, n, path):
    found = []
    for _ in range(n):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n" % path)
        found.append(s)
    got = [b""] * n
    for i, s in enumerate(found):
        while EVENT not in got[i]:
            more = s.recv(65536)
            assert more, got[i]
            got[i] += more
        assert got[i].startswith(b"HTTP/1.1 200"), got[i]
    return found


def chunk_us(process, port, seconds=4):
    """CPU time of `process` an event that passed through it."""
    def once():
        streams = open_streams(port, STREAMS, b"/plain")
        events, chunks = selectors.DefaultSelector(), 0
        for s in streams:
            events.register(s, selectors.EVENT_READ)
        end, before = time.monotonic() + seconds, process.cpu_seconds()
        while time.monotonic() < end:
            for key, _ in events.select(0.1):
                chunks += key.fileobj.recv(65536).count(b"data: ")
        used = process.cpu_seconds() - before
        for s in streams:
            s.close()
        time.sleep(0.3)
        return {"us": used / chunks * 1e6, "chunks": chunks}
    return once


def idle_bytes(process, port):
    warm = open_streams(port, 50, b"/plain/idle")
    before = process.rss_bytes()
    streams = open_streams(port, IDLE, b"/plain/idle")
    each = (process.rss_bytes() - before) / IDLE
    for s in warm + streams:
        s.close()
    return each


# ---- TLS ----

def certificate(folder):
    """One P-256 certificate with its key: two files, and both in one for HAProxy."""
    cert, key, both = f"{folder}/cert.pem", f"{folder}/key.pem", f"{folder}/both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "60", "-subj", "/CN=localhost"], check=True, capture_output=True)
    pathlib.Path(both).write_text(open(cert).read() + open(key).read())
    return cert, key, both


# ---- the parts ----

def requests_guarded(folder):
    flags, key = guards(folder)
    (pathlib.Path(folder) / "body").write_bytes(b"x" * 64)
    plain, guarded = wrk_script("/plain", b"x" * 64, {}), wrk_script("/plain", b"x" * 64, key)
    with gateway(folder, PORT, args=flags) as ours, haproxy(HAPROXY_PORT) as h:
        mine, theirs = alternate(ROUNDS, with_wrk(ours, PORT, guarded, 32), with_wrk(h, HAPROXY_PORT, plain, 32))
        report("proxy_edge key, route, quota, metrics over HTTP/1.1: CPU a request against HAProxy plain",
               median(mine, "cpu_us") / median(theirs, "cpu_us"), 1.25, "at most",
               figures(("inferd", mine), ("HAProxy", theirs)) + f", {errors_of(mine, theirs)} errors")
        mine, theirs = alternate(ROUNDS, measured(ours, lambda: h2load(PORT, folder, key), 3),
                                 measured(h, lambda: h2load(HAPROXY_PORT, folder, {}), 3))
        report("proxy_edge the same, HTTP/2 in and HTTP/1.1 out", median(mine, "cpu_us") / median(theirs, "cpu_us"), 1.3, "at most",
               figures(("inferd", mine), ("HAProxy", theirs)) + f", {errors_of(mine, theirs)} errors")


def handshakes(folder):
    cert, private, both = certificate(folder)
    tls = (f"--tls.certificates={cert}", f"--tls.keys={private}", "--tls.min_version=1.3")
    with gateway(folder, PORT, args=tls) as ours, haproxy(HAPROXY_PORT, tls=f"ssl crt {both}", ready=False) as h, \
            nginx_proxy(NGINX_PORT, tls=f"ssl; ssl_certificate {cert}; ssl_certificate_key {private}; ssl_protocols TLSv1.3", ready=False) as n:
        time.sleep(1)
        closing = wrk_script("/plain", b"x" * 64, {"Connection": "close"})
        runs = alternate(ROUNDS, *[with_wrk(p, port, closing, 16, scheme="https") for p, port in ((ours, PORT), (n, NGINX_PORT), (h, HAPROXY_PORT))])
        best = min(median(r, "cpu_us") for r in runs[1:])
        report("proxy_edge full TLS 1.3 handshake (P-256) and one request, CPU against the better of both", median(runs[0], "cpu_us") / best, 1.1,
               "at most", figures(("inferd", runs[0]), ("nginx", runs[1]), ("HAProxy", runs[2])) + f", {errors_of(*runs)} errors")


def event_streams(folder):
    streams = multiprocessing.Process(target=events_process, daemon=True)
    streams.start()
    time.sleep(0.5)
    os.sched_setaffinity(0, {CLIENT_CORE})
    with gateway(folder, PORT, EVENTS) as ours, haproxy(HAPROXY_PORT, EVENTS, ready=False, options="option http-no-delay") as h, \
            nginx_proxy(NGINX_PORT, EVENTS, buffering="off", ready=False) as n:
        time.sleep(0.5)
        mine, theirs, nginxs = alternate(3, chunk_us(ours, PORT), chunk_us(h, HAPROXY_PORT), chunk_us(n, NGINX_PORT))
        report("proxy_edge SSE chunk, CPU against HAProxy", median(mine, "us") / median(theirs, "us"), 1.0, "at most",
               f"inferd {median(mine, 'us'):.1f} us, HAProxy {median(theirs, 'us'):.1f}, nginx {median(nginxs, 'us'):.1f}; "
               f"{STREAMS} streams, {sum(r['chunks'] for r in mine)} chunks")
        each = idle_bytes(ours, PORT)
        report("proxy_edge idle SSE stream, KB of resident memory each", each / 1000, 40, "at most",
               f"{IDLE} streams; HAProxy {idle_bytes(h, HAPROXY_PORT) / 1000:.1f}, nginx {idle_bytes(n, NGINX_PORT) / 1000:.1f}")
    streams.kill()


def memory(folder):
    flags, key = guards(folder)
    guarded = wrk_script("/plain", b"x" * 64, key)
    with gateway(folder, PORT, args=flags) as ours:
        wrk(PORT, guarded, 32, seconds=4)
        before, served = ours.rss_bytes(), 0
        while served < MILLION:
            served += wrk(PORT, guarded, 32, seconds=5)["rps"] * 5
        report("proxy_edge resident memory over 1 M requests, bytes grown a request", (ours.rss_bytes() - before) / served, 1, "at most",
               f"{(ours.rss_bytes() - before) >> 10} KiB over {served:.0f} requests; {before >> 10} KiB before")


PARTS = {"requests": requests_guarded, "tls": handshakes, "streams": event_streams, "memory": memory}
wanted = sys.argv[1:] or list(PARTS)
if not set(wanted) <= set(PARTS):
    sys.exit(f"usage: proxy_edge.py [{'|'.join(PARTS)}]...")
with nginx(UPSTREAM, 128, core=CLIENT_CORE):
    for part in wanted:
        with tempfile.TemporaryDirectory() as where:
            PARTS[part](where)
