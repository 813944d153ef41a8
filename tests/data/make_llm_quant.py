"""Golden vectors of the weight formats, from ggml itself: python3 make_llm_quant.py LIBGGML_BASE.so > llm_quant.bin

The library is any build of ggml's base library (libggml-base.so), as in the npm package @node-llama-cpp/linux-x64 (3.21.1 was used). For each
type: u32 type, u32 n, u32 bytes; f32 x[n]; the bytes that ggml's reference quantiser makes of x; then random blocks, `bytes` of them, and the
f32[n] that ggml's dequantiser makes of those.
"""
import ctypes
import struct
import sys

import numpy as np

# id: name, elements, bytes of a block, offsets of f16 scales
TYPES = {2: ("q4_0", 32, 18, [0]), 3: ("q4_1", 32, 20, [0, 2]), 6: ("q5_0", 32, 22, [0]), 7: ("q5_1", 32, 24, [0, 2]),
         8: ("q8_0", 32, 34, [0]), 10: ("q2_K", 256, 84, [80, 82]), 11: ("q3_K", 256, 110, [108]), 12: ("q4_K", 256, 144, [0, 2]),
         13: ("q5_K", 256, 176, [0, 2]), 14: ("q6_K", 256, 210, [208])}
N = 1024
lib = ctypes.CDLL(sys.argv[1])
rng = np.random.default_rng(7)
out = sys.stdout.buffer
for number, (name, elems, block, scales) in TYPES.items():
    x = rng.standard_normal(N).astype(np.float32) * np.repeat(np.exp(rng.uniform(-6, 2, N // 32)), 32).astype(np.float32)
    x[64:96] = 0
    x[256:512] = 0 if number % 2 else -x[256:512] ** 2
    x[512:768] = np.abs(x[512:768])
    size = N // elems * block
    quants = ctypes.create_string_buffer(size)
    fn = getattr(lib, f"quantize_row_{name}_ref")
    fn.argtypes, fn.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    fn(x.ctypes.data, quants, N)
    raw = rng.integers(0, 256, size, dtype=np.uint8).reshape(-1, block)
    for at in scales:
        raw[:, at:at + 2] = rng.uniform(-2, 2, len(raw)).astype(np.float16).view(np.uint8).reshape(-1, 2)
    raw = np.ascontiguousarray(raw)
    y = np.zeros(N, np.float32)
    fn = getattr(lib, f"dequantize_row_{name}")
    fn.argtypes, fn.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64], None
    fn(raw.ctypes.data, y.ctypes.data, N)
    out.write(struct.pack("<3I", number, N, size) + x.tobytes() + quants.raw + raw.tobytes() + y.tobytes())
