"""test_agent_line.py: agent.listen, where a balancer's agent-check hears how this server is: by hand, with the real HAProxy, and with our own gateway.
The words are those of HAProxy's documentation of agent-check."""
import concurrent.futures
import signal
import socket
import subprocess

import requests

from fronts import Front, free_port
from inferd_server import BINARY, SIMPLE, Server, wait_until, write_fake
from test_gateway import BODY, gateway, pool, text_of
from test_gateway_reports import state

LISTEN = "--agent.listen=127.0.0.1:0"


def line(server, say=b""):
    host, port = server.addresses["agent"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.sendall(say)
        got = b""
        while part := s.recv(100):
            got += part
        return got


def agent_port(server):
    return int(server.addresses["agent"].rsplit(":", 1)[1])


def models(path, text=SIMPLE):
    write_fake(path, "simple", text)
    return path


def test_up_with_less_under_load_and_drain(tmp_path):
    """100 % idle, half with eight requests there, drain from SIGTERM on; whatever the balancer sends first, and however many ask."""
    with Server(models(tmp_path, SIMPLE + "base_us = 1500000\n"), args=[LISTEN, "--shutdown.grace=4s"]) as s:
        assert line(s) == b"up ready 100%\n"
        assert line(s, b"which one are you?\n") == b"up ready 100%\n"
        with concurrent.futures.ThreadPoolExecutor(8) as many:
            running = [many.submit(s.infer, "simple", BODY) for _ in range(8)]
            wait_until(lambda: line(s) == b"up ready 50%\n")
            assert all(r.result().status_code == 200 for r in running)
        wait_until(lambda: line(s) == b"up ready 100%\n")
        with concurrent.futures.ThreadPoolExecutor(50) as many:
            assert set(many.map(lambda _: line(s), range(500))) == {b"up ready 100%\n"}
        s.process.send_signal(signal.SIGTERM)
        wait_until(lambda: line(s) == b"drain\n")
        s.process.wait(30)


def test_loading_is_down(tmp_path):
    """Listening, and not ready: HAProxy sends it nothing."""
    models(tmp_path, SIMPLE + "load_delay_ms = 2000\n")
    with Server(tmp_path, args=[LISTEN], wait="listening") as s:
        s.wait_for_address("agent")
        assert line(s) == b"down #loading\n"
        s.wait_ready()
        wait_until(lambda: line(s) == b"up ready 100%\n")


def test_addresses(tmp_path):
    """A unix socket works, an address that is taken or open to others is refused by name."""
    path = tmp_path / "agent.sock"
    with Server(models(tmp_path / "m"), args=[f"--agent.listen=unix:{path}"]) as s:
        assert s.addresses["agent"] == f"unix:{path}"
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(path))
            assert c.recv(100) == b"up ready 100%\n"
    assert not path.exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for address, said in ((f"127.0.0.1:{port}", f"agent.listen: "), ("0.0.0.0:0", "agent.listen: 0.0.0.0:0 can be reached from other machines")):
            done = subprocess.run([BINARY, "serve", str(tmp_path / "m"), "--http.listen=127.0.0.1:0", "--grpc.listen=", "--metrics.listen=",
                                   f"--agent.listen={address}"], capture_output=True, text=True, timeout=60)
            assert done.returncode != 0 and said in done.stderr, done.stderr


HAPROXY = """
global
    log stderr format raw local0 warning
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend f
    bind 127.0.0.1:{port}
    http-response set-header x-server %s
    default_backend b
backend b
    server a {a} check agent-check agent-port {agent_a} agent-inter 100ms inter 1s
    server b {b} check agent-check agent-port {agent_b} agent-inter 100ms inter 1s
"""


def test_haproxy_looks_away_before_the_server_goes(tmp_path):
    """HAProxy's own check, a connection, goes on to pass in a server's grace: it is the agent's word that keeps requests from it."""
    root = models(tmp_path / "m")
    with Server(root, args=[LISTEN, "--shutdown.grace=4s"]) as a, Server(root, args=[LISTEN]) as b:
        port = free_port()
        text = HAPROXY.format(port=port, a=a.address, b=b.address, agent_a=agent_port(a), agent_b=agent_port(b))
        with Front("haproxy", text, tmp_path, [port]):
            def served_by():
                reply = requests.post(f"http://127.0.0.1:{port}/v2/models/simple/infer", json=BODY)
                assert reply.status_code == 200
                return reply.headers["x-server"]

            wait_until(lambda: {served_by() for _ in range(10)} == {"a", "b"})
            a.process.send_signal(signal.SIGTERM)
            wait_until(lambda: {served_by() for _ in range(6)} == {"b"})
            assert a.process.poll() is None  # it would have answered
            a.process.wait(30)


def test_our_gateway_reads_it(tmp_path):
    with Server(models(tmp_path / "m"), args=[LISTEN, "--shutdown.grace=4s"]) as a:
        text = text_of([pool([a], report={"agent_port": agent_port(a), "interval": "30ms"})], [{"path_prefix": "/", "upstream": "p"}])
        with gateway(tmp_path, text) as g:
            assert g.infer("simple", BODY).status_code == 200
            a.process.send_signal(signal.SIGTERM)
            wait_until(lambda: state(g, a.address)["state"] == "draining")
            a.process.wait(30)
