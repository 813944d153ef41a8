"""The house's layout: a README in every folder of src/, an opening comment in every C file, an include guard in every
header, documented declarations, relative links in the documents that lead somewhere, and no unfinished marks."""
import os
import re
import sys

import source

MARKS = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
PLAIN = ("_init", "_release", "_create", "_destroy", "_ref", "_unref", "_lock", "_unlock", "_clear")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
DECLARATION = re.compile(r"^(?!typedef|struct \w+;|extern|static|#|/|\s|\}|enum|union|_Static|static_assert)[A-Za-z_][\w \t*]*?\b(\w+)\s*\(", re.M)


def check_readmes():
    folders = {os.path.dirname(p) for p in source.files(".c", ".h", under=("src",))}
    for folder in sorted(folders):
        if not os.path.exists(os.path.join(source.ROOT, folder, "README.md")):
            yield folder, 1, "this folder has no README.md (purpose, threads, life of its main object, invariants, what is not here)"


def check_opening(path):
    text = source.read(path)
    if not re.match(r"\s*(/\*|//)", text):
        yield 1, "the file does not open with a comment that says what it is for"
    if path.endswith(".h"):
        code = source.blank(text)
        if "#pragma once" not in code and not re.search(r"#\s*ifndef\s+(\w+)\s*\n\s*#\s*define\s+\1\b", code):
            yield 1, "the header has no include guard"


def check_documented(path):
    """A function declared in a header has a comment above or beside it, stands in a group right below one that has, or is
    explained by name in the file's opening comment. The words of CONVENTIONS (init, release, destroy, …) explain themselves."""
    text = source.read(path)
    opening = re.match(r"\s*/\*.*?\*/", text, re.S)
    opening = opening.group(0) if opening else ""
    lines, code = text.splitlines(), source.blank(text)
    for m in DECLARATION.finditer(code):
        line = code.count("\n", 0, m.start()) + 1
        if m.group(1) in opening or m.group(1).endswith(PLAIN):
            continue
        at = line - 2
        while at >= 0 and lines[at].strip() and not lines[at].rstrip().endswith("*/") and not lines[at].lstrip().startswith("//"):
            at -= 1
        beside = "/*" in text[m.start():].split(";", 1)[1].split("\n", 1)[0] if ";" in text[m.start():] else False
        if not beside and (at < 0 or not lines[at].strip()):
            yield line, f"{m.group(1)} is declared without a word on what it does, who owns what and which errors it gives"


def check_links(path):
    folder = os.path.dirname(path)
    for number, line in enumerate(source.read(path).splitlines(), 1):
        for target in LINK.findall(line):
            if "://" in target or target.startswith("mailto:"):
                continue
            if not os.path.exists(os.path.join(source.ROOT, folder, target)):
                yield number, f"the link {target} leads nowhere"


def main() -> int:
    findings = list(check_readmes())
    for path in source.files(".c", ".h"):
        findings += [(path, *f) for f in check_opening(path)]
        findings += [(path, n, "an unfinished mark: do it, or file an issue") for n, text in
                     enumerate(source.read(path).splitlines(), 1) if MARKS.search(text)]
    for path in source.files(".h", under=("src",)):
        if path.endswith("_priv.h"):
            continue  # siblings read the comment at the definition
        findings += [(path, *f) for f in check_documented(path)]
    for path in source.files(".md", under=(".",)):
        findings += [(path, *f) for f in check_links(path)]
    return source.report("layout", findings)


if __name__ == "__main__":
    sys.exit(main())
