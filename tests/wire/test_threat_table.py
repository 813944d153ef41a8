"""test_threat_table.py: the tests that docs/guide/security.md names against each threat exist: a table that points nowhere would be a promise."""
import re

from inferd_server import ROOT


def test_every_test_that_the_table_names_is_there():
    text = (ROOT / "docs/guide/security.md").read_text()
    rows = [line for line in text[text.index("| threat |"):].splitlines()[2:] if line.startswith("|") and not line.startswith("| **")]
    assert len(rows) > 40
    for row in rows:
        cells = [cell.strip() for cell in row.strip().strip("|").split(" | ")]
        assert len(cells) == 3, row
        threat, _, tests = cells
        named, file = re.findall(r"`([^`]+)`", tests), None
        assert named or "by construction" in tests, row
        for name in named:
            where, _, test = name.partition("::")
            if where.startswith("fuzz_"):
                assert (ROOT / "tests/fuzz" / (where + ".c")).exists(), name
                continue
            if where:
                file = ROOT / where if "/" in where else ROOT / "tests/wire" / where
            assert file and file.exists(), (threat, name)
            assert not test or f"def {test}(" in file.read_text(), (threat, name)
