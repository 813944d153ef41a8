"""zones.py: three zones as network namespaces around a hub, without touching the machine's own network: the hub is a namespace, too.

A namespace belongs to a process that sleeps in it, and goes with it; nothing is left behind when the test is killed. A zone is cut by taking
down its own end of the cable: the hub goes on sending, and nothing answers, as when a switch dies.
"""
import subprocess


class Namespace:
    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self.pid = str(self.holder.pid)
        deadline = 200
        own = subprocess.run(["readlink", "/proc/self/ns/net"], capture_output=True, text=True).stdout
        while subprocess.run(["readlink", f"/proc/{self.pid}/ns/net"], capture_output=True, text=True).stdout in ("", own):
            deadline -= 1
            assert deadline, "no namespace came about"
        self.run("ip", "link", "set", "lo", "up")

    @property
    def prefix(self):
        """In front of a command that is to run inside."""
        return ["nsenter", "-t", self.pid, "-n"]

    def run(self, *command):
        subprocess.run([*self.prefix, *command], check=True)

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Zones:
    """hub: where gateway and clients are. zones["a"].prefix runs a server at address("a")."""

    def __init__(self, names):
        self.hub = Namespace()
        self.zones = {n: Namespace() for n in names}
        for i, (name, zone) in enumerate(self.zones.items(), 1):
            self.hub.run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "up0", "netns", zone.pid)
            self.hub.run("ip", "addr", "add", f"10.231.{i}.1/24", "dev", f"to-{name}")
            self.hub.run("ip", "link", "set", f"to-{name}", "up")
            zone.run("ip", "addr", "add", f"10.231.{i}.2/24", "dev", "up0")
            zone.run("ip", "link", "set", "up0", "up")

    def address(self, name):
        return f"10.231.{list(self.zones).index(name) + 1}.2"

    def cut(self, name):
        self.zones[name].run("ip", "link", "set", "up0", "down")

    def mend(self, name):
        self.zones[name].run("ip", "link", "set", "up0", "up")

    def close(self):
        for zone in (*self.zones.values(), self.hub):
            zone.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
