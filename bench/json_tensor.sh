#!/usr/bin/env bash
# Speed of the JSON tensor codec, MB/s of text on one core, against memcpy and yyjson in the same run; with orjson where Python has it.
# Usage: ./dev bench json_tensor [elements] [rounds]. Budget: decode >= 250 MB/s for FP32 (issue 2, section 7).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
lib=$root/build/release/libinferd_core.a
[ -f "$lib" ] || { echo "json_tensor: build the release preset first (./dev build)" >&2; exit 1; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
deps=$root/.deps/usr
cc -std=c17 -D_GNU_SOURCE -O2 -g -fno-strict-aliasing -I"$root/src" -isystem "$deps/include" "$root/bench/json_tensor.c" "$lib" \
    -L"$deps/lib" -L"$deps/lib/$(cc -dumpmachine)" -Wl,-rpath,"$deps/lib:$deps/lib/$(cc -dumpmachine)" -lyyjson -lm -o "$out/json_tensor"
"$out/json_tensor" "$@"
python=$root/.venv/bin/python
if [ -x "$python" ] && "$python" -c 'import orjson, numpy' 2>/dev/null; then
    "$python" - <<'PY'
import time, numpy as np, orjson
x = np.random.default_rng(1).uniform(-1, 1, 400000).astype(np.float32)
text = orjson.dumps({"data": x.tolist()})
best = min((lambda t: (np.asarray(orjson.loads(text)["data"], np.float32), time.perf_counter() - t)[1])(time.perf_counter()) for _ in range(7))
print(f"orjson + numpy, FP32 17 digits: decode {len(text) / best / 1e6:.0f} MB/s")
PY
fi
