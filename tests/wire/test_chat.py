"""test_chat.py: `inferd chat` as people use it: in a pipe, and in a terminal (a real pty)."""
import os
import pty
import select
import signal
import subprocess
import time

import pytest

from inferd_server import BINARY, Server, write_fake


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    write_fake(root, "parrot", "tokens = true\npiece_bytes = 3\nchat_template = <think>\n")
    with Server(root) as s:
        yield s


def chat(server, *args, stdin=""):
    return subprocess.run([BINARY, "chat", "--url", server.url, *args], input=stdin, capture_output=True, text=True, timeout=30)


def test_pipe(server):
    r = chat(server, "parrot", stdin="grüße,\nWelt")
    assert (r.returncode, r.stdout, r.stderr) == (0, "grüße,\nWelt\n", "")
    assert chat(server, "-m", "one").stdout == "one\n"  # the only model needs no name
    assert chat(server, "-m", "<think>hm</think>yes").stdout == "yes\n"  # thoughts are for terminals


def test_errors(server):
    r = chat(server, "nobody", "-m", "x")
    assert r.returncode == 1 and "nobody" in r.stderr and r.stdout == ""
    r = subprocess.run([BINARY, "chat", "--url", "http://127.0.0.1:1", "x", "-m", "x"], capture_output=True, text=True)
    assert r.returncode == 1 and r.stderr
    assert chat(server, "-m", "x", "--temperature=-1").returncode == 2
    for args, stdin, why in (([], "", "standard input is empty"), ([], " \n", "standard input is empty"), (["-m", ""], "x", "--message is empty")):
        r = chat(server, *args, stdin=stdin)
        assert r.returncode == 1 and why in r.stderr and r.stdout == ""


class Terminal:
    def __init__(self, server, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(BINARY, [BINARY, "chat", "--url", server.url, *args], {**os.environ, "NO_COLOR": "1", "TERM": "xterm"})
        self.seen = ""

    def wait_for(self, text, seconds=10):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, repr(self.seen)
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 4096).decode()
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("it did not end")


def test_terminal(server):
    t = Terminal(server, "parrot")
    t.wait_for("> ")
    t.type("hello there\n")
    assert t.wait_for("\n> ").replace("\r", "").endswith("hello there\nhello there")  # what was typed, and the answer
    t.type("two \\\nlines\n")
    assert "two \nlines" in t.wait_for("\n> ").replace("\r", "")
    t.type("\x1b[2Jx\n")  # an escape sequence comes back harmless
    assert "?[2Jx" in t.wait_for("\n> ")
    t.type("/quit\n")
    assert t.end() == 0


def test_interrupt(server, tmp_path_factory):
    root = tmp_path_factory.mktemp("slow")
    write_fake(root, "slow", "tokens = true\npiece_bytes = 1\npiece_us = 50000\nanswer = " + "a" * 2000 + "\n")
    with Server(root) as s:
        t = Terminal(s, "slow")
        t.wait_for("> ")
        t.type("x\n")
        t.wait_for("aaa")
        t.type("\x03")
        t.wait_for("\n> ", 5)  # the answer stopped, the conversation goes on
        t.type("/quit\n")
        assert t.end() == 0
