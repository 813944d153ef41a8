"""Header self-containment: each header of src/ compiles alone, with the flags of build/BUILD/compile_commands.json."""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

import source


def flags_of(build):
    """Include paths, definitions and the standard, from the first command of the build."""
    with open(os.path.join(source.ROOT, build, "compile_commands.json"), encoding="utf-8") as f:
        words = shlex.split(json.load(f)[0]["command"])
    kept, take = [words[0]], False
    for word in words[1:]:
        if take:
            kept.append(word)
            take = False
        elif word in ("-I", "-isystem", "-D"):
            kept.append(word)
            take = True
        elif word.startswith(("-I", "-D", "-std")):
            kept.append(word)
    return kept


def main() -> int:
    flags = flags_of(sys.argv[1] if len(sys.argv) > 1 else "build/debug")

    def compile_one(path):
        r = subprocess.run([*flags, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-x", "c", "-"], cwd=source.ROOT,
                           input=f'#include "{path[4:]}"\n', capture_output=True, text=True)
        return path, r.returncode, (r.stderr.strip().splitlines() or [""])[0]

    findings = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, rc, first in pool.map(compile_one, source.files(".h", under=("src",))):
            if rc:
                findings.append((path, 1, f"does not compile alone: {first}"))
    return source.report("headers", findings)


if __name__ == "__main__":
    sys.exit(main())
