"""proxy.py: requests a second and CPU a request of the gateway against nginx and HAProxy, each in front of the same constant upstream (nginx). The
proxies share one core in turn, upstream and load tool have the other. proxy_edge.py has the rest: keys and quotas, HTTP/2, streams, TLS, memory.

Budgets (issue 5): plain HTTP/1.1 >= 1.0 of nginx's requests/s; a 256 KB body with `model` taken from it <= 2 x HAProxy without; added p50 <= 60 us;
mean added latency under load < 2 ms.
"""
import tempfile

from common import *
from proxy_common import UPSTREAM, errors_of, figures, gateway, haproxy, nginx_proxy, with_wrk

ROUNDS, PORT, NGINX_PORT, HAPROXY_PORT = 7, 19100, 19120, 19130


def compare(ours, peers, script, connections):
    """Runs of ours, then of each peer."""
    return alternate(ROUNDS, *[with_wrk(p, port, script, connections) for p, port in [ours, *peers]])


with tempfile.TemporaryDirectory() as folder, nginx(UPSTREAM, 128, core=CLIENT_CORE), gateway(folder, PORT) as ours:
    with nginx_proxy(NGINX_PORT) as n, haproxy(HAPROXY_PORT) as h:
        peers = [(n, NGINX_PORT), (h, HAPROXY_PORT)]
        small = wrk_script("/plain", b"x" * 64, {})
        large = wrk_script("/v1/chat/completions", b'{"messages":[{"role":"user","content":"' + b"x" * (256 << 10) + b'"}],"model":"m1"}',
                           {"Content-Type": "application/json"})

        mine, theirs, haproxys = compare((ours, PORT), peers, small, 32)
        detail = figures(("inferd", mine), ("nginx", theirs), ("HAProxy", haproxys)) + f", {errors_of(mine, theirs, haproxys)} errors"
        report("proxy plain, 32 connections, requests/s against nginx", median(mine, "rps") / median(theirs, "rps"), 1.0, detail=detail)
        report("proxy plain, 32 connections, CPU a request against nginx", median(mine, "cpu_us") / median(theirs, "cpu_us"), 1.0, "at most")
        report("proxy plain, 32 connections, CPU a request against HAProxy", median(mine, "cpu_us") / median(haproxys, "cpu_us"), 1.25, "at most")

        direct, mine = alternate(ROUNDS, lambda: wrk(UPSTREAM, small, 32, seconds=3), lambda: wrk(PORT, small, 32, seconds=3))
        report("proxy plain, 32 connections, mean added latency, ms", (median(mine, "mean_us") - median(direct, "mean_us")) / 1000, 2.0, "at most",
               f"{median(direct, 'mean_us'):.0f} us without it")

        direct, mine, theirs = alternate(ROUNDS, lambda: wrk(UPSTREAM, small, 1, seconds=2), lambda: wrk(PORT, small, 1, seconds=2),
                                         lambda: wrk(NGINX_PORT, small, 1, seconds=2))
        report("proxy plain, 1 connection, added p50, us", median(mine, "p50_us") - median(direct, "p50_us"), 60, "at most",
               f"nginx adds {median(theirs, 'p50_us') - median(direct, 'p50_us'):.0f} us")

        mine, theirs, haproxys = compare((ours, PORT), peers, large, 8)
        report("proxy 256 KB with its model read, CPU a request against HAProxy without", median(mine, "cpu_us") / median(haproxys, "cpu_us"), 2.0,
               "at most", figures(("inferd", mine), ("nginx", theirs), ("HAProxy", haproxys)) + f", {errors_of(mine, theirs, haproxys)} errors")
