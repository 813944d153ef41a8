"""test_summary.py FOLDER: what failed, and the closing line "N passed, N failed", from the JUnit files in FOLDER.

ctest counts programs, but a cmocka program holds many tests: where a ctest's output has cmocka's own result lines,
those are counted instead, and a program that died before its result line counts as the tests it finished plus one
failure. The exit status is 0 only when something ran and nothing failed.
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
        self.failures = []  # (where, why)

    def fail(self, where, why):
        self.failed += 1
        self.failures.append((where, why))


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
            totals.passed += 1
        return
    names = cmocka_names(text, "FAILED")
    totals.passed += len(CMOCKA_OK.findall(text))
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
        totals.passed += 1


def add_file(totals, path):
    suite = os.path.splitext(os.path.basename(path))[0]
    try:
        root = ET.parse(path).getroot()
    except ET.ParseError as e:
        totals.fail(suite, f"the result file cannot be read: {e}")
        return
    for case in root.iter("testcase"):
        if suite.endswith("-unit"):
            out = case.find("system-out")
            add_ctest(totals, suite, case, (out.text or "") if out is not None else "")
        else:
            add_pytest(totals, suite, case)


def main() -> int:
    totals = Totals()
    folder = sys.argv[1]
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".xml"):
            continue
        before = (totals.passed, totals.failed, totals.skipped)
        add_file(totals, os.path.join(folder, name))
        passed, failed, skipped = (now - was for now, was in zip((totals.passed, totals.failed, totals.skipped), before))
        print(f"{name[:-4]:<20} {passed:5} passed {failed:4} failed {skipped:4} skipped")
    for where, why in totals.failures:
        print(f"\nFAILED {where}")
        if why:
            print("    " + why.replace("\n", "\n    "))
    tail = f", {totals.skipped} skipped" if totals.skipped else ""
    print(f"\n{totals.passed} passed, {totals.failed} failed{tail}")
    return 0 if totals.passed and not totals.failed else 1


if __name__ == "__main__":
    sys.exit(main())
