"""The checkers of ./dev lint, each on a small tree with one thing wrong and on the same tree without it."""
import os
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

HEADER = "/* a.h: a thing. */\n#ifndef A_H\n#define A_H\n\n/* Does it. */\nint a_do(void);\n\n#endif\n"
SOURCE = '/* a.c: the thing. */\n#include "base/a.h"\n\nint a_do(void)\n{\n    return 1;\n}\n'


@pytest.fixture
def tree(tmp_path):
    """A clean tree: write(path, text) adds a file, check(name) runs a checker and returns (status, output)."""

    class Tree:
        def write(self, path, text):
            full = tmp_path / path
            full.parent.mkdir(parents=True, exist_ok=True)
            full.write_text(text)

        def check(self, name):
            r = subprocess.run([sys.executable, str(tmp_path / "tools/lint" / f"check_{name}.py")], capture_output=True, text=True,
                               env={**os.environ, "GIT_DIR": str(tmp_path / "no-git")})
            return r.returncode, r.stdout

    shutil.copytree(os.path.join(ROOT, "tools/lint"), tmp_path / "tools/lint", ignore=shutil.ignore_patterns("__pycache__"))
    t = Tree()
    t.write("src/base/README.md", "base\n")
    t.write("src/base/a.h", HEADER)
    t.write("src/base/a.c", SOURCE)
    return t


@pytest.mark.parametrize("name", ["banned", "deps", "size", "layout"])
def test_clean_tree_is_clean(tree, name):
    assert tree.check(name) == (0, "")


@pytest.mark.parametrize("call", ["strcpy(a, b)", "sprintf(a, b)", "strtok(a, b)", "alloca(3)", "gets(a)", "rand()", "atoi(a)"])
def test_banned_call(tree, call):
    tree.write("src/base/b.c", f"/* b.c: bad. */\nvoid b(void)\n{{\n    {call};\n}}\n")
    rc, out = tree.check("banned")
    assert rc == 1 and out.startswith("src/base/b.c:4: ") and call.split("(")[0] in out


@pytest.mark.parametrize("text", ["/* strcpy(a, b) */ int x;", '// gets(a)', 'const char *s = "sprintf(a)";', "x.rand(1);", "p->rand();",
                                  "my_strcpy(a);", "snprintf(a, 1, b);"])
def test_banned_name_that_is_no_call(tree, text):
    tree.write("src/base/b.c", f"/* b.c: good. */\n{text}\n")
    assert tree.check("banned")[0] == 0


def test_banned_exception_is_named(tree):
    tree.write("src/base/b.c", "/* b.c. Exception: strcpy, the target was measured. */\nvoid b(void)\n{\n    strcpy(a, b);\n}\n")
    assert tree.check("banned")[0] == 0


def test_macro_that_returns_in_a_header(tree):
    tree.write("src/base/m.h", HEADER.replace("A_H", "M_H") + "#define TRY(x) do { if (x) return -1; } while (0)\n")
    rc, out = tree.check("banned")
    assert rc == 1 and "hides a 'return'" in out


def test_registry_host(tree):
    tree.write("docs/x.md", "fetch it from " + "pypi" + ".org\n")
    rc, out = tree.check("banned")
    assert rc == 1 and out.startswith("docs/x.md:1: ")


@pytest.mark.parametrize("folder, include, word", [
    ("base", '"os/x.h"', "base may not include"),
    ("sched", '"net/loop.h"', "sched may not include"),
    ("sched", "<time.h>", "belongs to os"),
    ("engine/onnx", '"engine/fake/x.h"', "may not include"),
    ("engine/llm/kernels", '"os/x.h"', "may not include"),
    ("net", '"api/api.h"', "net may not include"),
    ("attic", '"base/a.h"', "has no row"),
])
def test_wrong_direction(tree, folder, include, word):
    tree.write(f"src/{folder}/b.c", f"/* b.c: bad. */\n#include {include}\n")
    rc, out = tree.check("deps")
    assert rc == 1 and out.startswith(f"src/{folder}/b.c:") and word in out


@pytest.mark.parametrize("folder, include", [("os", "<errno.h>"), ("net", '"wire/json.h"'), ("engine/onnx", '"engine/engine.h"'),
                                             ("engine/onnx", "<onnxruntime_c_api.h>"), ("text", '"wire/json.h"'), ("sched", '"base/heap.h"')])
def test_right_direction(tree, folder, include):
    tree.write(f"src/{folder}/b.c", f"/* b.c: good. */\n#include {include}\n")
    assert tree.check("deps") == (0, "")


def test_ring_of_folders(tree):
    tree.write("src/model/m.c", '/* m.c: m. */\n#include "sched/s.h"\n')
    tree.write("src/sched/s.c", '/* s.c: s. */\n#include "model/m.h"\n')
    rc, out = tree.check("deps")
    assert rc == 1 and "ring" in out


def function(name, lines):
    return f"int {name}(void)\n{{\n" + "    x();\n" * (lines - 2) + "}\n"


def test_function_budget(tree):
    tree.write("src/base/b.c", "/* b.c: b. */\n" + function("just", 100))
    assert tree.check("size")[0] == 0
    tree.write("src/base/b.c", "/* b.c: b. */\n" + function("long_one", 101))
    rc, out = tree.check("size")
    assert rc == 1 and "long_one has 101 lines" in out
    tree.write("src/base/b.c", "/* b.c. Exception: long_one is a table. */\n" + function("long_one", 101))
    assert tree.check("size")[0] == 0


def test_file_budget(tree):
    tree.write("src/base/b.c", "/* b.c: b. */\n" + "int x;\n" * 1000)
    rc, out = tree.check("size")
    assert rc == 1 and "1001 lines" in out


def test_layout_findings(tree):
    tree.write("src/os/b.c", "int x;\n")
    tree.write("src/base/b.h", "/* b.h: b. */\n\nint b_do(void);\n")
    tree.write("docs/x.md", "see [there](nowhere.md)\n")
    rc, out = tree.check("layout")
    assert rc == 1
    for words in ("src/os:1: this folder has no README", "src/os/b.c:1: the file does not open with a comment",
                  "src/base/b.h:1: the header has no include guard", "b_do is declared without a word", "nowhere.md leads nowhere"):
        assert words in out
