"""make_quota_script.py: src/edge/quota_script.lua as a C string, to stdout: src/edge/quota_script.c.

Comments and indentation stay behind: the script travels to the Redis at each connection.
"""
import pathlib

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "src/edge/quota_script.lua"

print("/* quota_script.c: quota_script.lua as a string. Written by tools/make_quota_script.py; don't edit. */")
print('#include "edge/quota_script.h"\n')
print("const char QUOTA_SCRIPT[] =")
lines = []
for line in SCRIPT.read_text().splitlines():
    line = line.strip()
    if not line or line.startswith("--"):
        continue
    line = line.replace("\\", "\\\\").replace('"', '\\"')
    lines.append(f'    "{line}\\n"')
print("\n".join(lines) + ";")
