"""The closing count of ./dev test: what it must never do is count something as passed that wasn't."""
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# As cmocka 1.1 prints a group of a passing, a failing and a skipped test.
CMOCKA = """[==========] tests: Running 3 test(s).
[ RUN      ] good
[       OK ] good
[ RUN      ] bad
[  ERROR   ] --- 0x1 != 0x2
[   LINE   ] --- t.c:7: error: Failure!
[  FAILED  ] bad
[ RUN      ] later
[  SKIPPED ] later
[==========] tests: 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] tests: 1 test(s), listed below:
[  SKIPPED ] later
[  FAILED  ] tests: 1 test(s), listed below:
[  FAILED  ] bad

 1 FAILED TEST(S)
"""


@pytest.fixture
def summary(tmp_path):
    def run(**files):
        for name, text in files.items():
            (tmp_path / (name.replace("_", "-") + ".xml")).write_text(text)
        r = subprocess.run([sys.executable, os.path.join(ROOT, "tools/test_summary.py"), str(tmp_path)], capture_output=True, text=True)
        return r.returncode, r.stdout.splitlines()[-1], r.stdout

    return run


def ctest(output, status="run", failure=""):
    text = output.replace("&", "&amp;").replace("<", "&lt;")
    return f'<testsuite><testcase name="unit/x" status="{status}">{failure}<system-out>{text}</system-out></testcase></testsuite>'


def pytest_xml(*bodies):
    return "<testsuites><testsuite>" + "".join(f'<testcase classname="c" name="n">{b}</testcase>' for b in bodies) + "</testsuite></testsuites>"


def test_cmocka_tests_are_counted_one_by_one(summary):
    rc, last, out = summary(debug_unit=ctest(CMOCKA, "fail", "<failure/>"))
    assert (rc, last) == (1, "1 passed, 1 failed, 1 skipped")
    assert "unit/x: bad" in out and "0x1 != 0x2" in out


def test_a_program_that_died_is_a_failure(summary):
    cut = CMOCKA[: CMOCKA.index("[ RUN      ] bad")]
    rc, last, out = summary(debug_unit=ctest(cut, "fail", "<failure/>"))
    assert (rc, last) == (1, "1 passed, 1 failed") and "ended before its last test" in out


def test_a_sanitizer_report_after_the_last_test_is_a_failure(summary):
    good = CMOCKA[: CMOCKA.index("[ RUN      ] bad")] + "[==========] tests: 1 test(s) run.\n[  PASSED  ] 1 test(s).\nleaked 12 bytes\n"
    rc, last, out = summary(debug_unit=ctest(good, "fail", "<failure/>"))
    assert (rc, last) == (1, "1 passed, 1 failed") and "leaked 12 bytes" in out


def test_other_programs_count_as_one(summary):
    assert summary(debug_unit=ctest("replayed 12 inputs"))[:2] == (0, "1 passed, 0 failed")
    assert summary(debug_unit=ctest("boom", "fail", "<failure/>"))[:2] == (1, "0 passed, 1 failed")


def test_pytest_kinds(summary):
    rc, last, _ = summary(debug_wire=pytest_xml("", "", "<failure message='m'>text</failure>", "<error>e</error>", "<skipped/>"))
    assert (rc, last) == (1, "2 passed, 2 failed, 1 skipped")


def test_files_add_up(summary):
    rc, last, _ = summary(debug_wire=pytest_xml("", ""), asan_wire=pytest_xml(""), debug_unit=ctest("ok"))
    assert (rc, last) == (0, "4 passed, 0 failed")


def test_nothing_run_is_not_success(summary):
    assert summary()[:2] == (1, "0 passed, 0 failed")
    assert summary(debug_wire=pytest_xml("<skipped/>"))[0] == 1


def test_a_second_attempt_counts_for_what_failed_and_is_shown(summary):
    def case(name, body=""):
        return f'<testcase classname="c" name="{name}">{body}</testcase>'

    bad = "<failure message='m'>slow</failure>"
    first = f"<testsuites>{case('a')}{case('b', bad)}{case('c', bad)}</testsuites>"
    rc, last, out = summary(debug_wire=first, debug_wire_again=f"<testsuites>{case('b')}{case('c', bad)}</testsuites>")
    assert (rc, last) == (1, "2 passed, 1 failed") and "UNSTABLE debug-wire c::b\n    slow" in out and "FAILED debug-wire c::c" in out
    rc, last, _ = summary(debug_wire=first, debug_wire_again=f"<testsuites>{case('b')}{case('c')}</testsuites>")
    assert (rc, last) == (0, "3 passed, 0 failed")


def test_a_second_attempt_of_a_unit_test(summary):
    good = CMOCKA.replace("[  FAILED  ] bad\n[ RUN", "[       OK ] bad\n[ RUN").split("[  FAILED  ]")[0]
    rc, last, out = summary(debug_unit=ctest(CMOCKA, "fail", "<failure/>"), debug_unit_again=ctest(good))
    assert (rc, last) == (0, "2 passed, 0 failed, 1 skipped") and "UNSTABLE debug-unit unit/x: bad" in out


def test_a_broken_result_file_is_a_failure(summary):
    assert summary(debug_wire="<testsuite><testcase")[:2] == (1, "0 passed, 1 failed")
