"""test_hostile_stop.py: a process that is told to stop while everybody still talks to it: reloads by API and by signal, log
rotation, scrapes, status calls. Each is harmless alone; together with the taking down they once met freed listeners (reload
through the admin API) and a restored signal default (SIGHUP killed the process behind its last log line). Server.stop() asserts
exit status 0, and a sanitizer's report is another one.
"""
import signal
import threading

import requests

from inferd_server import SIMPLE, Server, write_fake

ROUNDS = 6


class Callers:
    """Threads that repeat an HTTP call until the server is gone."""

    def __init__(self, calls):
        self.stopping = False
        self.threads = [threading.Thread(target=self._run, args=c) for c in calls for _ in range(2)]

    def _run(self, method, url):
        with requests.Session() as session:
            while not self.stopping:
                try:
                    session.request(method, url, timeout=5)
                except requests.RequestException:
                    session.close()

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        for t in self.threads:
            t.join()


def signal_until_gone(server, numbers):
    while server.process.poll() is None:
        for n in numbers:
            server.process.send_signal(n)


def test_calls_on_every_listener_while_the_server_is_taken_down(repository, tmp_path):
    write_fake(repository, "sum", SIMPLE)
    config = tmp_path / "inferd.yaml"
    config.write_text("limits: {max_headers: 90}\n")
    for _ in range(ROUNDS):
        with Server(repository, args=[f"--config={config}", "--repository.mode=explicit", "--repository.load=*"]) as server:
            calls = [("POST", server.admin_url + "/admin/reload"), ("GET", server.admin_url + "/admin/status"),
                     ("POST", server.admin_url + "/v2/repository/models/sum/load"),
                     ("GET", server.metrics_url + "/metrics"), ("GET", server.metrics_url + "/v2/health/ready?verbose"),
                     ("POST", server.url + "/v2/repository/index")]
            with Callers(calls):
                server.stop()


def test_reload_and_rotation_signals_up_to_the_end(repository):
    write_fake(repository, "sum", SIMPLE)
    for _ in range(ROUNDS):
        with Server(repository) as server:
            storm = threading.Thread(target=signal_until_gone, args=(server, (signal.SIGHUP, signal.SIGUSR1)))
            storm.start()
            server.stop()
            storm.join()


def test_a_second_stop_signal_forces_while_a_load_holds_the_first_up(repository):
    """The load can't be interrupted and the server waits for it; the operator who asks again needn't."""
    write_fake(repository, "sum", SIMPLE)
    write_fake(repository, "lazy", SIMPLE + "load_delay_ms = 60000\n")
    server = Server(repository, args=["--repository.mode=explicit", "--repository.load=sum"])
    assert requests.post(server.url + "/v2/repository/models/lazy/load?wait=false").status_code == 202
    server.process.send_signal(signal.SIGTERM)
    server.wait_records("stopped")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 1
    server.stop(expect=1)
