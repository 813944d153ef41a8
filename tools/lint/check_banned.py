"""Banned functions and names: calls that have a bounded or thread-safe twin, and registry hosts anywhere in the tree."""
import re
import sys

import source

# function: what to use instead. tests and benchmarks too; a file may say "Exception: NAME" in a comment with its reason.
BANNED = {
    "strcpy": "a bounded copy", "strcat": "a bounded append", "stpcpy": "a bounded copy", "strncpy": "memcpy with a checked length",
    "strncat": "a bounded append", "sprintf": "snprintf", "vsprintf": "vsnprintf", "gets": "fgets",
    "strtok": "a cursor over a view", "strtok_r": "a cursor over a view", "alloca": "an arena", "rand": "base's random",
    "srand": "base's random", "random": "base's random", "drand48": "base's random", "atoi": "a checked parser",
    "atol": "a checked parser", "atoll": "a checked parser", "atof": "a checked parser", "scanf": "a checked parser",
    "sscanf": "a checked parser", "fscanf": "a checked parser", "asctime": "strftime", "ctime": "strftime", "gmtime": "gmtime_r",
    "localtime": "localtime_r", "strerror": "os/'s error texts", "tmpnam": "mkstemp", "tempnam": "mkstemp", "mktemp": "mkstemp",
    "system": "posix_spawn", "popen": "posix_spawn", "vfork": "posix_spawn", "setjmp": "returned errors", "longjmp": "returned errors",
    "signal": "sigaction", "usleep": "a condition or a timer", "readdir_r": "readdir", "bcopy": "memmove", "bzero": "memset",
    "gethostbyname": "getaddrinfo", "inet_ntoa": "inet_ntop", "getwd": "getcwd", "select": "poll or epoll",
}
# What a test may use all the same: it reads its own well-formed text and starts its own programs.
TESTS_MAY = {"system", "popen", "sscanf", "atoi", "atol", "atoll", "atof", "rand", "srand", "strerror", "setjmp", "usleep"}
CALL = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
MACRO_JUMP = re.compile(r"^\s*#\s*define\s+\w+\s*\([^)]*\)(?:[^\n]*\\\n)*[^\n]*\b(goto|return)\b", re.M)

# Hosts of package registries, in two halves so that this file does not name them either.
HOSTS = [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("crates", "io"), ("proxy.golang", "org"),
         ("repo1.maven", "org"), ("deb.debian", "org"), ("security.debian", "org"), ("snapshot.debian", "org"),
         ("archive.ubuntu", "com"), ("ports.ubuntu", "com")]
HOST = re.compile("|".join(re.escape(a) + r"\s*\.\s*" + b for a, b in HOSTS))


def check_calls(path):
    text = source.read(path)
    code = source.blank(text)
    for m in CALL.finditer(code):
        name = m.group(1)
        if name in TESTS_MAY and not path.startswith("src/"):
            continue
        if name == "strerror" and path.startswith("src/os/"):
            continue
        if re.search(r"Exception:[^*]*\b" + name + r"\b", text):
            continue
        yield code.count("\n", 0, m.start(1)) + 1, f"{name}() is banned: use {BANNED[name]}"
    for m in MACRO_JUMP.finditer(code):
        # A macro that builds the rows of one switch and is undefined right after it hides nothing.
        name = re.search(r"define\s+(\w+)", m.group(0)).group(1)
        if "Exception:" not in text and not re.search(r"#\s*undef\s+" + name + r"\b", code):
            yield code.count("\n", 0, m.start()) + 1, f"a macro that hides a '{m.group(1)}': write the jump where it happens"


def check_hosts(path):
    for number, line in enumerate(source.read(path).splitlines(), 1):
        if HOST.search(line):
            yield number, "names a package registry's host: name the package, and let the machine's own settings find it"


def main() -> int:
    findings = []
    for path in source.files(".c", ".h"):
        findings += [(path, *f) for f in check_calls(path)]
    text_files = source.files(".c", ".h", ".py", ".sh", ".md", ".txt", ".yaml", ".yml", ".json", "Dockerfile", "dev", ".cmake", "run",
                              under=(".",))
    for path in text_files:
        findings += [(path, *f) for f in check_hosts(path)]
    return source.report("banned", findings)


if __name__ == "__main__":
    sys.exit(main())
