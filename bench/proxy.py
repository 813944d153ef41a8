"""proxy.py: requests a second and CPU a request of the gateway against nginx and, where it is installed, HAProxy, each in front of the same
constant upstream (nginx). The proxies share one core in turn, upstream and load tool have the other.

Budgets (issue 5): plain HTTP/1.1 >= 1.0 of nginx's requests/s; CPU a request <= 1.25 of HAProxy's; a 256 KB body with `model` taken from it
<= 2 x HAProxy without; added p50 <= 60 us.
"""
import tempfile

from common import *

need("wrk")
need("nginx")
ROUNDS, PORT, UPSTREAM, NGINX_PORT, HAPROXY_PORT = 5, 19100, 19110, 19120, 19130

PROXY = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; tcp_nodelay on; client_max_body_size 10m; client_body_buffer_size 512k;
  client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
  upstream u {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} reuseport;
    location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}
}}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 4096
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout client 30s
  timeout server 30s
  timeout connect 5s
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s 127.0.0.1:{upstream}
"""


def proxy(text, name, command, port):
    folder = tempfile.mkdtemp(prefix=f"inferd-{name}-")
    conf = pathlib.Path(folder) / "conf"
    conf.write_text(text.format(dir=folder, port=port, upstream=UPSTREAM))
    return Process(pinned(SERVER_CORE, command(conf, folder)), f"http://127.0.0.1:{port}/")


def gateway(folder):
    config = pathlib.Path(folder) / "gateway.yaml"
    config.write_text(f'upstreams:\n  - {{name: u, servers: ["127.0.0.1:{UPSTREAM}"], keepalive: 256}}\n'
                      'routes:\n  - {model: "m*", upstream: u}\n  - {path_prefix: /plain, upstream: u}\n')
    command = [BINARY, "serve", f"--config={config}", f"--http.listen=127.0.0.1:{PORT}", "--grpc.listen=", "--metrics.listen=", "--http.threads=1",
               "--log.level=warn"]
    return Process(pinned(SERVER_CORE, command), f"http://127.0.0.1:{PORT}/v2/health/live")


def measured(process, port, script, connections):
    def run():
        before = process.cpu_seconds()
        r = wrk(port, script, connections, seconds=3, core=CLIENT_CORE)
        r["cpu_us"] = (process.cpu_seconds() - before) / (r["rps"] * 3) * 1e6
        return r
    return run


def compare(title, ours, peers, script_path, body, headers, connections, budgets):
    script = wrk_script(script_path, body, headers)
    runs = alternate(ROUNDS, measured(ours, PORT, script, connections),
                     *[measured(p, port, script, connections) for _, p, port in peers])
    mine = runs[0]
    errors = sum(r["errors"] for each in runs for r in each)
    for (name, _, _), theirs in zip(peers, runs[1:]):
        detail = (f"{median(mine, 'rps'):.0f}/s and {median(mine, 'cpu_us'):.1f} us, {name} {median(theirs, 'rps'):.0f}/s and "
                  f"{median(theirs, 'cpu_us'):.1f} us, {errors} errors")
        if name in budgets.get("rps", {}):
            report(f"proxy {title}, requests/s against {name}", median(mine, "rps") / median(theirs, "rps"), budgets["rps"][name],
                   detail=detail)
        if name in budgets.get("cpu", {}):
            report(f"proxy {title}, CPU a request against {name}", median(mine, "cpu_us") / median(theirs, "cpu_us"),
                   budgets["cpu"][name], "at most", detail)
        if name in budgets.get("p50", {}):
            report(f"proxy {title}, p50 beside {name}'s, us", median(mine, "p50_us") - median(theirs, "p50_us"), budgets["p50"][name],
                   "at most", detail)


with tempfile.TemporaryDirectory() as folder, nginx(UPSTREAM, 128, core=CLIENT_CORE), gateway(folder) as ours:
    with proxy(PROXY, "nginx", lambda c, d: ["nginx", "-c", c, "-e", f"{d}/error.log"], NGINX_PORT) as n:
        peers = [("nginx", n, NGINX_PORT)]
        h = None
        if shutil.which("haproxy"):
            h = proxy(HAPROXY, "haproxy", lambda c, d: ["haproxy", "-f", c], HAPROXY_PORT)
            peers.append(("haproxy", h, HAPROXY_PORT))
        small, large = b"x" * 64, b'{"messages":[{"role":"user","content":"' + b"x" * (256 << 10) + b'"}],"model":"m1"}'
        try:
            compare("plain, 32 connections", ours, peers, "/plain", small, {}, 32,
                    {"rps": {"nginx": 1.0}, "cpu": {"nginx": 1.0, "haproxy": 1.25}})
            compare("plain, 1 connection", ours, peers, "/plain", small, {}, 1, {"p50": {"nginx": 60}})
            compare("256 KB with its model read", ours, peers, "/v1/chat/completions", large, {"Content-Type": "application/json"}, 8,
                    {"cpu": {"nginx": 2.0, "haproxy": 2.0}})
        finally:
            if h:
                h.__exit__()
