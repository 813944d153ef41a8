"""Dependency directions: every #include in src/ against dependencies.txt; folders that include each other in a ring."""
import fnmatch
import os
import re
import sys

import source

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def read_table():
    """({folder: [allowed]}, [(header pattern, [folders])]) of dependencies.txt."""
    folders, system = {}, []
    for line in source.read("tools/lint/dependencies.txt").splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        left, right = line.split(":", 1)
        if left.startswith("system "):
            system.append((left.split()[1], right.split()))
        else:
            folders[left] = right.split()
    return folders, system


def folder_of(path, folders):
    """The row of the table that a file below src/ belongs to, and the folder that counts as its own."""
    parts = os.path.dirname(path).split("/")
    for n in range(len(parts), 0, -1):
        name = "/".join(parts[:n])
        if name in folders:
            return name, name
        star = "/".join(parts[:n - 1]) + "/*"
        if n > 1 and star in folders:
            return star, name
    return None, None


def within(path, entry):
    """Whether an included path is the header `entry` (with or without .h) or lies in the folder `entry`."""
    return path == entry or path == entry + ".h" or path.startswith(entry + "/")


def check_file(path, folders, system):
    row, own = folder_of(path, folders)
    if row is None:
        yield 1, "this folder has no row in tools/lint/dependencies.txt: add one that says what it may use"
        return
    text = source.blank(source.read("src/" + path), keep_strings=True)
    for m in INCLUDE.finditer(text):
        line = text.count("\n", 0, m.start(2)) + 1
        name = m.group(2)
        if m.group(1) == "<":
            allowed = next((a for pattern, a in system if fnmatch.fnmatch(name, pattern)), None)  # the first row that matches
            if allowed is not None and not any(within(path, a) for a in allowed):
                yield line, f"<{name}> belongs to {', '.join(allowed)} and may not be included in {own}"
            continue
        if "/" not in name:
            if not os.path.exists(os.path.join(source.ROOT, "src", os.path.dirname(path), name)):
                yield line, f'"{name}" should be named from src/, as "folder/{name}"'
            continue
        if not any(within(name, a) for a in [own, *folders[row]]):
            allowed = " ".join(folders[row]) or "nothing of ours"
            yield line, f'{own} may not include "{name}" (it may use: {allowed})'
        elif name.endswith("_priv.h") and not within(name, own):
            yield line, f'"{name}" is private to its folder'


def rings():
    """Folders that reach themselves through includes."""
    edges = {}
    for path in source.files(".c", ".h", under=("src",)):
        top = path.split("/")[1]
        for m in INCLUDE.finditer(source.blank(source.read(path), keep_strings=True)):
            if m.group(1) == '"' and "/" in m.group(2) and m.group(2).split("/")[0] != top:
                edges.setdefault(top, set()).add(m.group(2).split("/")[0])
    for start in sorted(edges):
        seen, todo = set(), list(edges[start])
        while todo:
            at = todo.pop()
            if at == start:
                yield start
                break
            if at not in seen:
                seen.add(at)
                todo += edges.get(at, ())


def main() -> int:
    folders, system = read_table()
    findings = []
    for path in source.files(".c", ".h", under=("src",)):
        findings += [(path, line, what) for line, what in check_file(path[4:], folders, system)]
    findings += [("src/" + top, 1, "this folder includes itself through others: break the ring") for top in rings()]
    return source.report("deps", findings)


if __name__ == "__main__":
    sys.exit(main())
