"""What the checkers share: which files are ours, C source without comments and strings, and how a finding is printed."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

NOT_OURS = (".deps", ".venv", ".git/", "build/", "dist/", "demo/models/", "demo/media/")

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def files(*suffixes, under=("src", "tests", "bench", "tools", "demo", "deploy", "docs", ".ci")):
    """Paths, relative to the root, of the project's files with one of the suffixes; what git ignores is not ours."""
    try:
        out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *under], cwd=ROOT, capture_output=True,
                             text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        out = [p for top in under for p in walk(top) if not p.startswith(NOT_OURS)]
    return sorted(p for p in set(out) if p.endswith(tuple(suffixes)) and os.path.isfile(os.path.join(ROOT, p)))


def walk(top):
    """Every file below a folder, for a tree without git."""
    for folder, _, names in os.walk(os.path.join(ROOT, top)):
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def blank(text, keep_strings=False):
    """The text with comments (and string contents) replaced by spaces, so that line numbers stay."""

    def cover(m):
        s = m.group(0)
        if s[0] in "\"'":
            return s if keep_strings else s[0] + " " * (len(s) - 2) + s[-1]
        return re.sub(r"[^\n]", " ", s)

    return _TOKEN.sub(cover, text)


def report(check, findings):
    """Prints findings (path, line, sentence) and returns the exit status."""
    for path, line, what in findings:
        print(f"{path}:{line}: {what}")
    if findings:
        print(f"{check}: {len(findings)} finding(s)", file=sys.stderr)
    return 1 if findings else 0
