#!/usr/bin/env bash
# The kernels' unit tests, built for 64-bit ARM and run under emulation: the NEON table against the scalar one, bit by bit.
# Needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user; leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/../.."
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v "$tool" >/dev/null || { echo "kernels.sh: $tool is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"; exit 2; }
done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
flags=(-std=c17 -O2 -Wall -Wextra -Werror -Wno-maybe-uninitialized -D_GNU_SOURCE -ffunction-sections -Isrc -Itests/arm -Itests/unit
    "-DTEST_DATA=\"$PWD/tests/data\"")
for src in src/engine/llm/kernels/*.c src/engine/llm/kernels/*/*.c src/engine/llm/file/weight_type.c src/base/{buf,check,error,str}.c; do
    aarch64-linux-gnu-gcc "${flags[@]}" -c "$src" -o "$out/$(echo "$src" | tr / _).o"
done
for src in tests/unit/engine/llm/kernels/test_*.c; do
    test=$(basename "$src" .c)
    aarch64-linux-gnu-gcc "${flags[@]}" -static -Wl,--gc-sections "$src" "$out"/*.o -o "$out/$test" -lm
    echo "== $test"
    qemu-aarch64 "$out/$test"
done
