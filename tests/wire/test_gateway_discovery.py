"""test_gateway_discovery.py: which servers there are: names that change, SRV records, files that others write; and that a wrong or empty answer
never empties a pool that works."""
import json
import os
import threading
import time

import requests

from dns_server import A, AAAA, SRV, NameServer
import mmdb
from gateway_upstream import Upstream, answer, reset
from inferd_server import wait_until
from test_gateway import gateway, pool, status, text_of, total

ROUTE = [{"path": "/x", "upstream": "p"}]


def addresses(g):
    return {s["address"] for s in status(g)["servers"]}


class Asking:
    """Requests all the time; none may fail."""

    def __init__(self, url):
        self.url, self.statuses, self.stop = url, [], threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        session = requests.Session()
        while not self.stop.is_set():
            self.statuses.append(session.get(self.url).status_code)
            time.sleep(0.005)

    def end(self):
        self.stop.set()
        self.thread.join()
        assert set(self.statuses) == {200} and len(self.statuses) > 20


def test_names_are_looked_up_again(tmp_path):
    """A record more, a record less; then a name server that goes wrong: the last good list stays, and it is said."""
    with Upstream(answer()) as u:
        port = u.port
        with NameServer({("models.test", A): ["127.0.0.1"]}) as dns:
            text = text_of([pool([f"models.test:{port}"], resolve_interval="1s")], ROUTE)
            with gateway(tmp_path, text, f"--resolver={dns.address}") as g:
                assert addresses(g) == {f"127.0.0.1:{port}"}
                asking = Asking(g.url + "/x")
                dns.records = {("models.test", A): ["127.0.0.1", "127.0.0.2"], ("models.test", AAAA): ["::1"]}
                wait_until(lambda: addresses(g) == {f"127.0.0.1:{port}", f"127.0.0.2:{port}", f"[::1]:{port}"})
                dns.records = {("models.test", A): ["127.0.0.1"]}
                wait_until(lambda: addresses(g) == {f"127.0.0.1:{port}"})
                g.wait_metric("inferd_upstream_lookup_failures_total", 0)
                for bad in ("garbage", "nxdomain"):
                    before = total(g, "inferd_upstream_lookup_failures_total")
                    dns.mode, dns.records = ("garbage", dns.records) if bad == "garbage" else ("answer", {})
                    wait_until(lambda: total(g, "inferd_upstream_lookup_failures_total") > before, 20)
                    assert addresses(g) == {f"127.0.0.1:{port}"}, bad
                    g.wait_metric("inferd_upstream_lookup_stale", 1, pool="p")
                dns.mode, dns.records = "answer", {("models.test", A): ["127.0.0.1"]}
                wait_until(lambda: total(g, "inferd_upstream_lookup_stale", pool="p") == 0, 20)
                asking.end()


def test_a_wrong_answer_sends_nobody_astray_for_long(tmp_path):
    """The name points to an address where nobody is: requests that have another server still work, and the next right answer mends it."""
    with Upstream(answer()) as u, NameServer({("models.test", A): ["127.0.0.1"]}) as dns:
        text = text_of([pool([f"models.test:{u.port}", u.address.replace("127.0.0.1", "127.0.0.3")], resolve_interval="1s")], ROUTE)
        with gateway(tmp_path, text, f"--resolver={dns.address}") as g:
            dns.records = {("models.test", A): ["127.0.0.9"]}
            wait_until(lambda: f"127.0.0.9:{u.port}" in addresses(g))
            # the listener takes 127.0.0.1 alone: both addresses refuse, and the client is told in plain words
            reply = requests.get(g.url + "/x")
            assert reply.status_code == 502 and "can't be reached" in reply.text
            dns.records = {("models.test", A): ["127.0.0.1"]}
            wait_until(lambda: requests.get(g.url + "/x").status_code == 200)


def test_srv_records(tmp_path):
    """Ports, weights and priorities come from the records: 3 to 1, and the backup only when both are gone."""
    with Upstream(answer(b'"a"')) as a, Upstream(answer(b'"b"')) as b, Upstream(answer(b'"c"')) as c:
        def records(*list_):
            return {("_infer._tcp.models.test", SRV): list(list_), ("one.test", A): ["127.0.0.1"]}

        all_three = records((10, 3, a.port, "one.test"), (10, 1, b.port, "one.test"), (20, 1, c.port, "one.test"))
        with NameServer(all_three) as dns:
            text = text_of([pool(["_infer._tcp.models.test"], resolve_interval="1s")], ROUTE)
            with gateway(tmp_path, text, f"--resolver={dns.address}") as g:
                got = [requests.get(g.url + "/x").json() for _ in range(20)]
                assert (got.count("a"), got.count("b"), got.count("c")) == (15, 5, 0)
                a.behave = b.behave = reset
                assert [requests.get(g.url + "/x").json() for _ in range(3)] == ["c"] * 3
                dns.records = records((20, 1, c.port, "one.test"))
                wait_until(lambda: addresses(g) == {c.address})
                assert [requests.get(g.url + "/x").json() for _ in range(3)] == ["c"] * 3


def slice_of(ports, ready=True):
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "List", "items": [
        {"kind": "EndpointSlice", "addressType": "IPv4", "ports": [{"name": "http", "port": p}],
         "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}, "zone": "z"}]} for p in ports]}


def write(path, text):
    new = path.with_suffix(".new")
    new.write_text(text if isinstance(text, str) else json.dumps(text))
    os.replace(new, path)


def test_a_file_is_watched(tmp_path):
    """EndpointSlices that come, go and break, while requests run: nobody notices. A plain list does as well."""
    file = tmp_path / "endpoints.yaml"
    with Upstream(answer(b'"a"')) as a, Upstream(answer(b'"b"')) as b:
        write(file, slice_of([a.port]))
        text = text_of([json.dumps({"name": "p", "servers_file": str(file), "servers_port": "http"})], ROUTE)
        with gateway(tmp_path, text) as g:
            assert requests.get(g.url + "/x").json() == "a"
            asking = Asking(g.url + "/x")
            write(file, slice_of([a.port, b.port]))
            wait_until(lambda: addresses(g) == {a.address, b.address})
            write(file, slice_of([b.port]))
            wait_until(lambda: addresses(g) == {b.address})
            for n, bad in enumerate(("{ broken", slice_of([a.port], ready=False), [{"address": "nonsense"}], "")):
                write(file, bad)
                wait_until(lambda: total(g, "inferd_upstream_lookup_failures_total") > n)
                assert addresses(g) == {b.address}, bad
            file.unlink()
            wait_until(lambda: total(g, "inferd_upstream_lookup_failures_total") > 4)
            g.wait_metric("inferd_upstream_lookup_stale", 1, pool="p")
            write(file, [a.address, {"address": b.address, "backup": True}])
            wait_until(lambda: addresses(g) == {a.address, b.address} and total(g, "inferd_upstream_lookup_stale", pool="p") == 0)
            assert [requests.get(g.url + "/x").json() for _ in range(4)] == ["a"] * 4
            asking.end()


def test_a_header_names_the_zone(tmp_path):
    """Zone by header: two servers in each of two zones; a name that nobody has changes nothing."""
    with Upstream(answer(b'"a"')) as a1, Upstream(answer(b'"a"')) as a2, Upstream(answer(b'"b"')) as b1, Upstream(answer(b'"b"')) as b2:
        servers = [{"address": u.address, "zone": z} for u, z in ((a1, "a"), (a2, "a"), (b1, "b"), (b2, "b"))]
        with gateway(tmp_path, text_of([pool(servers, zone_header="x-zone")], ROUTE), "--zone=a") as g:
            for header, want in ({}, "a"), ({"x-zone": "b"}, "b"), ({"x-zone": "mars"}, "a"):
                assert {requests.get(g.url + "/x", headers=header).json() for _ in range(6)} == {want}


def test_a_clients_address_names_the_zone(tmp_path):
    """A MaxMind file: the most specific network counts; who is in none, or in one without a zone, prefers the own; a new file is taken up, a broken
    one leaves the old."""
    file = tmp_path / "geo.mmdb"
    networks = {"192.0.2.0/24": {"continent": {"code": "EU"}}, "192.0.2.128/25": {"continent": {"code": "NA"}},
                "198.51.100.0/24": {"continent": {"code": "AF"}}, "203.0.113.0/24": {"country": "none"}}
    file.write_bytes(mmdb.database(networks))
    with Upstream(answer(b'"a"')) as a1, Upstream(answer(b'"a"')) as a2, Upstream(answer(b'"b"')) as b1, Upstream(answer(b'"b"')) as b2:
        servers = [{"address": u.address, "zone": z} for u, z in ((a1, "a"), (a2, "a"), (b1, "b"), (b2, "b"))]
        geo = {"file": str(file), "zones": ["EU=b", "NA=a", "AF=nowhere"]}
        with gateway(tmp_path, text_of([pool(servers, geo=geo)], ROUTE), "--zone=a", "--proxy.trusted=127.0.0.1") as g:
            def zone(client):
                return {requests.get(g.url + "/x", headers={"X-Forwarded-For": client}).json() for _ in range(4)}

            for client, want in (("192.0.2.1", "b"), ("192.0.2.200", "a"), ("198.51.100.1", "a"), ("203.0.113.1", "a"), ("8.8.8.8", "a"),
                                 ("2001:db8::1", "a")):
                assert zone(client) == {want}, client
            write(file, "no database at all")
            wait_until(lambda: total(g, "inferd_upstream_lookup_failures_total") == 1)
            assert zone("192.0.2.1") == {"b"}
            new = tmp_path / "new"
            new.write_bytes(mmdb.database({"8.0.0.0/8": {"continent": {"code": "EU"}}}))
            os.replace(new, file)
            wait_until(lambda: zone("8.8.8.8") == {"b"})
            assert zone("192.0.2.1") == {"a"}
