"""proxy_common.py: what proxy.py and proxy_edge.py share: the gateway, nginx and HAProxy as plain proxies before the same upstream, each with one
worker on the same core."""
import os
import pathlib
import tempfile

from common import BINARY, ROOT, SERVER_CORE, Process, median, need, pinned, wrk

os.environ["PATH"] = f"{ROOT / '.deps/bin'}{os.pathsep}{os.environ['PATH']}"  # where ./dev deps puts programs out of their packages
need("wrk")
need("nginx")
need("haproxy")

UPSTREAM = 19110

NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000; tcp_nodelay on; client_max_body_size 10m; client_body_buffer_size 512k;
  client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
  upstream u {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} reuseport {tls};
    location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering {buffering}; }} }}
}}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 8192
  ssl-default-bind-options ssl-min-ver TLSv1.3
  tune.ssl.default-dh-param 2048
defaults
  mode http
  option http-keep-alive
  http-reuse always
  {options}
  timeout client 300s
  timeout server 300s
  timeout connect 5s
frontend f
  bind 127.0.0.1:{port} {tls}
  default_backend b
backend b
  server s 127.0.0.1:{upstream}
"""


def start(text, name, command, port, ready=True, **values):
    folder = tempfile.mkdtemp(prefix=f"inferd-{name}-")
    conf = pathlib.Path(folder) / "conf"
    conf.write_text(text.format(dir=folder, port=port, **values))
    return Process(pinned(SERVER_CORE, command(conf, folder)), f"http://127.0.0.1:{port}/" if ready else None)


def nginx_proxy(port, upstream=UPSTREAM, buffering="on", tls="", ready=True):
    return start(NGINX, "nginx", lambda c, d: ["nginx", "-c", c, "-e", f"{d}/error.log"], port, ready, upstream=upstream, buffering=buffering, tls=tls)


def haproxy(port, upstream=UPSTREAM, tls="", ready=True, options=""):
    return start(HAPROXY, "haproxy", lambda c, d: ["haproxy", "-f", c], port, ready, upstream=upstream, tls=tls, options=options)


def gateway(folder, port, upstream=UPSTREAM, args=()):
    """The gateway with one I/O thread; the models m* and what is below /plain go to the upstream."""
    config = pathlib.Path(folder) / f"gateway-{port}.yaml"
    config.write_text(f'upstreams:\n  - {{name: u, servers: ["127.0.0.1:{upstream}"], keepalive: 256}}\n'
                      'routes:\n  - {model: "m*", upstream: u}\n  - {path_prefix: /plain, upstream: u}\n')
    command = [BINARY, "serve", f"--config={config}", f"--http.listen=127.0.0.1:{port}", "--grpc.listen=", f"--metrics.listen=127.0.0.1:{port + 1}",
               "--http.threads=1", "--log.level=warn", *args]
    return Process(pinned(SERVER_CORE, command), f"http://127.0.0.1:{port + 1}/v2/health/live")


def measured(process, run, seconds):
    """`run` (which gives rps over `seconds`) with the CPU time that a request took in `process`."""
    def once():
        before = process.cpu_seconds()
        r = run()
        r["cpu_us"] = (process.cpu_seconds() - before) / (r["rps"] * seconds) * 1e6
        return r
    return once


def with_wrk(process, port, script, connections, seconds=3, scheme="http"):
    from common import CLIENT_CORE
    return measured(process, lambda: wrk(port, script, connections, seconds=seconds, core=CLIENT_CORE, scheme=scheme), seconds)


def errors_of(*runs):
    return sum(r["errors"] for each in runs for r in each)


def figures(*named):
    """"name 12345/s and 12.3 us" of each (name, runs)."""
    return ", ".join(f"{name} {median(runs, 'rps'):.0f}/s and {median(runs, 'cpu_us'):.1f} us" for name, runs in named)
