#!/usr/bin/env bash
# Speed of the language-model kernels beside raw read bandwidth and int8 peak of the same run: bench/llm_kernels.sh [-t threads] [-k type|attn]
# [-i isa] [-r rows] [-c cols] [-n rounds] [-w MiB of weights]. Without options: one and two threads, all types, 2048x2048 and 8192x2048,
# then attention.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
cmake --build build/release --target bench_llm_kernels >/dev/null
bench=build/release/bench/bench_llm_kernels
if [ $# -gt 0 ]; then
    exec "$bench" "$@"
fi
for threads in 1 2; do
    "$bench" -t "$threads" -r 2048
    "$bench" -t "$threads" -r 8192
done
