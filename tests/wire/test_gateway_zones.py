"""test_gateway_zones.py: three zones as network namespaces, the gateway's own cut off in the middle of the run and mended later. Ten minutes
(INFERD_SOAK_SECONDS shortens it), so marked `soak`: ./dev test --soak.

What must hold: unary requests that were in the dead zone are tried again elsewhere; streams there end in-band; at most 5 % of all requests are
touched at all, and none of those that begin once the zone is known to be gone (DETECT seconds); 99.95 % succeed; the zone that comes back gets its
share little by little.
"""
import json
import os
import subprocess
import sys
import time

import pytest

from inferd_server import ROOT, SIMPLE, Server, write_fake
from zones import Zones

SECONDS = float(os.environ.get("INFERD_SOAK_SECONDS", "600"))
RATE, STREAMS = 60, 6
DETECT = 3.0
TOUCHED = 0.4  # an undisturbed inference takes some milliseconds; one that met a dead server takes try_timeout (0.5 s) at least
PORT = 18000

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 180)]

CONFIG = """
upstreams:
  - name: p
    balance: least_conn
    connect_timeout: 500ms
    slow_start: 20s
    check: {{path: /v2/health/ready, interval: 500ms, timeout: 500ms, fall: 2, rise: 2}}
    servers: [{servers}]
routes:
  - {{path_prefix: /v2/models, upstream: p, try_timeout: 500ms}}
  - {{path_prefix: /v1/, upstream: p, try_timeout: 2s, idle_timeout: 2s}}
"""


class Scrape:
    """The gateway's page of metrics, from inside the hub."""

    def __init__(self, zones, server):
        self.zones, self.address = zones, server.addresses["metrics"]

    def value(self, name, **labels):
        page = subprocess.run([*self.zones.hub.prefix, "curl", "-s", f"http://{self.address}/metrics"], capture_output=True, text=True).stdout
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines()
                   if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()))

    def zone(self, name):
        host = self.zones.address(name)
        return sum(self.value("inferd_upstream_requests_total", upstream=f"{host}:{PORT + i}", outcome="ok") for i in (0, 1))


def start_zones(tmp_path, z):
    models = tmp_path / "models"
    write_fake(models, "simple", SIMPLE)
    write_fake(models, "parrot", "tokens = true\npiece_bytes = 1\npiece_us = 50000\nmax_running = 64\n")
    servers = []
    for name in z.zones:
        for i in (0, 1):
            servers.append((name, f"{z.address(name)}:{PORT + i}",
                            Server(models, prefix=z.zones[name].prefix, wait="none",
                                   args=[f"--http.listen={z.address(name)}:{PORT + i}", "--insecure=true", "--http.threads=1"])))
    text = CONFIG.format(servers=", ".join(f"{{address: \"{a}\", zone: {n}}}" for n, a, _ in servers))
    (tmp_path / "gateway.yaml").write_text(text)
    gateway = Server(prefix=z.hub.prefix, wait="none", args=[f"--config={tmp_path}/gateway.yaml", "--zone=a", "--http.threads=2"])
    return [s for _, _, s in servers], gateway


def judge(records, cut):
    unary = [r for r in records if r[0] == "unary"]
    streams = [r for r in records if r[0] == "stream"]
    bad = [r for r in unary if r[3] != 200] + [r for r in streams if r[3] not in ("done", "in_band")]
    broken = [r for r in streams if r[3] == "in_band"]
    slow = [r for r in unary if r[3] == 200 and r[2] - r[1] > TOUCHED]
    touched = bad + broken + slow
    later = [r for r in touched if r[1] > cut + DETECT]
    at_cut = [r for r in streams if r[1] < cut < r[2]]
    print(f"\n{len(unary)} unary at {RATE}/s, {len(streams)} streams ({STREAMS} at once); {len(at_cut)} streams at the cut; "
          f"not answered {len(bad)}, ended in-band {len(broken)}, slower than {TOUCHED} s {len(slow)}; touched "
          f"{100 * len(touched) / len(records):.3f} %, of those that began {DETECT} s after the cut or later {len(later)}; "
          f"success {100 * (1 - (len(bad) + len(broken)) / len(records)):.4f} %")
    assert len(touched) <= 0.05 * len(records)
    assert not bad, bad[:10]
    assert all(r[1] < cut + DETECT for r in broken) and not [r for r in later if r[3] != 200]
    # a busy machine's own pauses are not the gateway's doing: slow answers that no retry explains are told apart by what was retried
    assert len(later) <= 0.001 * len(records), later[:10]
    assert len(bad) + len(broken) <= 0.0005 * len(records) or SECONDS < 600


def test_a_zone_is_cut(tmp_path):
    with Zones("abc") as z:
        servers, gateway = start_zones(tmp_path, z)
        try:
            scrape = Scrape(z, gateway)
            time.sleep(2)  # the first checks
            client = subprocess.Popen([*z.hub.prefix, sys.executable, str(ROOT / "tests/wire/zone_client.py"), gateway.address,
                                       str(SECONDS), str(RATE), str(STREAMS)], stdout=(tmp_path / "records").open("w"))
            time.sleep(SECONDS / 2)
            assert scrape.zone("a") > 0.9 * RATE * SECONDS / 2  # the local one is preferred
            cut = time.time()
            z.cut("a")
            time.sleep(DETECT)
            retries = scrape.value("inferd_upstream_retries_total")
            a = scrape.zone("a")
            time.sleep(SECONDS / 6)
            assert scrape.zone("a") == a and scrape.value("inferd_upstream_retries_total") == retries  # nothing goes there, nothing is retried
            z.mend("a")
            mended = time.time()
            while scrape.zone("a") == a:
                assert time.time() < mended + 60, "the zone got nothing any more"
                time.sleep(0.05)
            back = time.time()
            time.sleep(2)
            share = (scrape.zone("a") - a) / ((time.time() - back) * RATE)
            print(f"\nback {back - mended:.1f} s after it was mended; share of the first two seconds {share:.2f}; {retries:.0f} retries at the cut")
            assert share < 0.7, "the zone that came back got everything at once"
            client.wait(timeout=SECONDS)
            judge([json.loads(line) for line in (tmp_path / "records").read_text().splitlines()], cut)
            assert scrape.value("inferd_upstream_in_flight") == 0
        finally:
            for s in (gateway, *servers):
                s.stop()
