"""Size budget: a file of at most 1000 lines, a function of at most 100, and at least 85 % of a folder's functions within 40.

A longer one is allowed where the file says why, in a comment that starts with "Exception:" and stands above the function or
names it (or, for the file itself, has the word "file").
"""
import re
import sys

import source

FILE_LINES, FUNCTION_LINES, USUAL_LINES, USUAL_SHARE = 1000, 100, 40, 0.85


def functions(text):
    """(name, first line, number of lines) of each function: in the project's format a body's braces stand in column 0."""
    lines = source.blank(text).splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{":
            start = number
        elif line.startswith("}") and start is not None:
            yield name_before(lines, start), start, number - start + 1
            start = None


def name_before(lines, brace):
    """The function's name: the identifier before the first '(' of the signature above its brace."""
    signature = ""
    for n in range(brace - 2, max(brace - 15, -1), -1):
        if not lines[n].strip() or lines[n].startswith(("}", "#")) or lines[n].rstrip().endswith(";"):
            break
        signature = lines[n] + " " + signature
    m = re.search(r"(\w+)\s*\(", signature)
    return m.group(1) if m else "?"


def main() -> int:
    findings, usual = [], {}
    for path in source.files(".c", ".h", under=("src", "tests", "bench", "tools")):
        text = source.read(path)
        exceptions = " ".join(re.findall(r"Exception:(.*?)\*/", text, re.S))
        count = text.count("\n")
        if count > FILE_LINES and not re.search(r"\bfile\b", exceptions):
            findings.append((path, 1, f"{count} lines, more than {FILE_LINES}: split it, or say 'Exception:' why the file is longer"))
        lines = text.splitlines()
        for name, line, length in functions(text):
            above = "\n".join(lines[max(line - 12, 0):line])
            if length > FUNCTION_LINES and name not in exceptions and "Exception:" not in above:
                findings.append((path, line, f"{name} has {length} lines, more than {FUNCTION_LINES}: split it, or say 'Exception:' why"))
            if path.startswith("src/"):
                usual.setdefault("/".join(path.split("/")[:2]), []).append(length <= USUAL_LINES)
    for folder, short in sorted(usual.items()):
        share = sum(short) / len(short)
        if len(short) >= 20 and share < USUAL_SHARE:
            findings.append((folder, 1, f"only {share:.0%} of {len(short)} functions have at most {USUAL_LINES} lines (budget {USUAL_SHARE:.0%})"))
    return source.report("size", findings)


if __name__ == "__main__":
    sys.exit(main())
