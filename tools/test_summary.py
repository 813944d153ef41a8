"""test_summary.py FOLDER: what failed, and the closing line "N passed, N failed", from the JUnit files in FOLDER.

ctest counts programs, but a cmocka program holds many tests: where a ctest's output has cmocka's own result lines,
those are counted instead, and a program that died before its result line counts as the tests it finished plus one
failure. The exit status is 0 only when something ran and nothing failed.

NAME-again.xml holds a second run of what failed in NAME.xml, alone (test.sh says why): a test that passes there counts as
passed, and is shown with its first failure as UNSTABLE.
"""
import os
import re
import sys
import xml.etree.ElementTree as ET

CMOCKA_OK = re.compile(r"^\[\s+OK \] (\S+)", re.M)
CMOCKA_DONE = re.compile(r"^\[=+\] (?:\w+: )?\d+ test\(s\) run\.", re.M)
CMOCKA_BEGIN = re.compile(r"^\[=+\] (?:\w+: )?Running \d+ test\(s\)", re.M)


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.good = set()  # names of what passed
        self.failures = []  # (where, why)
        self.unstable = []  # the same of what passed at the second attempt

    def succeed(self, where):
        self.passed += 1
        self.good.add(where)

    def fail(self, where, why):
        self.failed += 1
        self.failures.append((where, why))

    def forgive(self, again):
        """Count what failed here and passed in the totals `again` as passed."""
        bad = {where for where, _ in again.failures}
        self.unstable = [f for f in self.failures if f[0] in again.good and f[0] not in bad]
        self.failures = [f for f in self.failures if f not in self.unstable]
        self.failed -= len(self.unstable)
        self.passed += len(self.unstable)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.unstable += other.unstable


def cmocka_names(text, word):
    """Names of tests marked FAILED or SKIPPED: cmocka prints each as it happens, and all again in a list at the end."""
    names = []
    for m in re.finditer(rf"^\[\s+{word}\s+\] (.*)$", text, re.M):
        name = m.group(1).strip()
        if name and not re.match(r"(\w+: )?\d+ test", name) and name not in names:
            names.append(name)
    return names


def add_ctest(totals, suite, case, text):
    """One ctest: a cmocka program (counted by its own tests) or any other program (counted as one)."""
    name = f"{suite} {case.get('name')}"
    bad = case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail"
    if case.get("status") in ("disabled", "notrun") and not bad:
        totals.skipped += 1
        return
    if not CMOCKA_BEGIN.search(text):
        if bad:
            totals.fail(name, excerpt(text))
        else:
            totals.succeed(name)
        return
    names = cmocka_names(text, "FAILED")
    for test in CMOCKA_OK.findall(text):
        totals.succeed(f"{name}: {test}")
    totals.skipped += len(cmocka_names(text, "SKIPPED"))
    for test in names:
        totals.fail(f"{name}: {test}", test_excerpt(text, test))
    if bad and not names:
        why = "" if CMOCKA_DONE.search(text) else "the program ended before its last test\n"
        totals.fail(name, why + excerpt(text))


def excerpt(text, lines=25):
    return "\n".join(text.strip().splitlines()[-lines:])


def test_excerpt(text, test):
    """What cmocka printed between a test's RUN line and its FAILED line."""
    m = re.search(rf"^\[ RUN\s+\] {re.escape(test)}$(.*?)^\[\s+FAILED", text, re.M | re.S)
    return m.group(1).strip() if m else ""


def add_pytest(totals, suite, case):
    name = f"{suite} {case.get('classname', '')}::{case.get('name')}"
    for kind in ("failure", "error"):
        node = case.find(kind)
        if node is not None:
            totals.fail(name, excerpt(node.text or node.get("message") or "", 40))
            return
    if case.find("skipped") is not None:
        totals.skipped += 1
    else:
        totals.succeed(name)


def read_file(path, suite):
    """The totals of one result file, or None where there is none."""
    if not os.path.exists(path):
        return None
    totals = Totals()
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError as e:
        totals.fail(suite, f"the result file cannot be read: {e}")
        return totals
    for case in root.iter("testcase"):
        if suite.endswith("-unit"):
            out = case.find("system-out")
            add_ctest(totals, suite, case, (out.text or "") if out is not None else "")
        else:
            add_pytest(totals, suite, case)
    return totals


def show(word, listed):
    for where, why in listed:
        print(f"\n{word} {where}")
        if why:
            print("    " + why.replace("\n", "\n    "))


def main() -> int:
    totals = Totals()
    folder = sys.argv[1]
    for name in sorted(os.listdir(folder)):
        suite, extension = os.path.splitext(name)
        if extension != ".xml" or suite.endswith("-again"):
            continue
        part = read_file(os.path.join(folder, name), suite)
        again = read_file(os.path.join(folder, suite + "-again.xml"), suite)
        if again:
            part.forgive(again)
        totals.add(part)
        tail = f" {len(part.unstable):4} of them at the second attempt" if part.unstable else ""
        print(f"{suite:<20} {part.passed:5} passed {part.failed:4} failed {part.skipped:4} skipped{tail}")
    show("UNSTABLE", totals.unstable)
    show("FAILED", totals.failures)
    tail = f", {totals.skipped} skipped" if totals.skipped else ""
    print(f"\n{totals.passed} passed, {totals.failed} failed{tail}")
    return 0 if totals.passed and not totals.failed else 1


if __name__ == "__main__":
    sys.exit(main())
