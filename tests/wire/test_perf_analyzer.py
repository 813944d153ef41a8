"""test_perf_analyzer.py: Triton's own load generator, unmodified, against the server."""
import re
import shutil
import subprocess

import pytest

from inferd_server import ROOT

TOOL = shutil.which("perf_analyzer") or str(ROOT / ".deps/bin/perf_analyzer")
pytestmark = pytest.mark.skipif(not shutil.which(TOOL), reason="perf_analyzer is not there (./dev deps test, x86-64 only)")


@pytest.mark.parametrize("options", [[], ["--async"], ["--input-tensor-format", "json", "--output-tensor-format", "json"]],
                         ids=["sync", "async", "json"])
def test_measures_without_an_error(simple_server, options):
    r = subprocess.run([TOOL, "-m", "simple", "-u", simple_server.address, "-i", "http", "-b", "2", "--concurrency-range", "2",
                        "--measurement-mode", "count_windows", "--measurement-request-count", "200", "--max-trials", "12",
                        "-s", "999", *options], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stdout + r.stderr
    throughput = float(re.search(r"Throughput: ([\d.]+) infer/sec", r.stdout).group(1))
    assert throughput > 0
    # It reads the server's own statistics too, and prints them when they make sense to it.
    assert re.search(r"Inference count: \d+", r.stdout), r.stdout
    assert "Failed" not in r.stdout + r.stderr
    simple_server.alive()
