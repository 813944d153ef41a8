#!/usr/bin/env bash
# Time of a run through the ONNX engine against a bare ONNX Runtime loop in C, one core, same library.
#
# Prints a line a model and the least ratio of the convolutional ones (0.25 and 1 ms); fails below 0.97. Optional argument: seconds a model.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake --build build/release --target bench_onnx_overhead >/dev/null
exec build/release/bench/bench_onnx_overhead "$@"
