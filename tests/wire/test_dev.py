"""test_dev.py: ./dev refuses what it doesn't know with a sentence, before it builds or fetches anything."""
import subprocess

import pytest

from inferd_server import ROOT


@pytest.mark.parametrize("args, says", [
    (["nonsense"], "there is no command 'nonsense'"), (["deps", "nonsense"], "the tiers are build, demo, test, lint, bench, all"),
    (["test", "--nonsense"], "test has no option '--nonsense'"), (["build", "nonsense"], "the builds are release, debug"),
    (["bench", "nonsense"], "./dev bench lists them"), (["lint", "nonsense"], "the checks are format"),
    (["fuzz", "nonsense"], "there is no fuzz target 'fuzz_nonsense'; the targets are: fuzz_"),
    (["install", "--nonsense"], "install has no option '--nonsense'"), (["clean", "--nonsense"], "clean has no option '--nonsense'"),
    (["deb", "nonsense"], "deb takes no arguments"), (["fmt", "nonsense"], "fmt takes no arguments")])
def test_what_dev_does_not_know(args, says):
    r = subprocess.run([ROOT / "dev", *args], capture_output=True, text=True, timeout=30)
    assert r.returncode == 1 and says in r.stderr.splitlines()[-1], r.stderr
