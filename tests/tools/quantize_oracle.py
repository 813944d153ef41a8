"""Compares `inferd quantize` with llama.cpp on the same files: every tensor's type and every byte of it.

    python tests/tools/quantize_oracle.py INFERD LLAMA_LIB_DIR MODEL.gguf... [--types q4_k_m,q8_0,...]

LLAMA_LIB_DIR holds libllama.*.so (the npm package @node-llama-cpp/linux-x64 carries a prebuilt one). Prints a line a file and type and
ends with 1 on any difference. Needs the `gguf` package. Types that llama.cpp stores as IQ4_NL, which inferd doesn't have, are counted apart."""
import argparse
import ctypes
import glob
import os
import subprocess
import sys
import tempfile

import gguf

FTYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12, "q3_k_l": 13,
          "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "bf16": 32}


class Params(ctypes.Structure):
    _fields_ = [("nthread", ctypes.c_int32), ("ftype", ctypes.c_int32), ("rest", ctypes.c_uint8 * 248)]


class Llama:
    def __init__(self, folder):
        self.base = ctypes.CDLL(glob.glob(os.path.join(folder, "libggml-base*.so"))[0], ctypes.RTLD_GLOBAL)
        ggml = glob.glob(os.path.join(folder, "libggml.v*.so")) or glob.glob(os.path.join(folder, "libggml.so"))
        self.ggml = ctypes.CDLL(ggml[0], ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(glob.glob(os.path.join(folder, "libllama.v*.so"))[0])
        try:
            self.ggml.ggml_backend_load_all_from_path(folder.encode())
        except AttributeError:
            pass
        self.lib.llama_backend_init()
        log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.quiet = log(lambda level, text, user: None)
        self.lib.llama_log_set(self.quiet, None)
        self.lib.llama_model_quantize_default_params.restype = Params
        self.lib.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Params)]
        self.lib.llama_model_quantize.restype = ctypes.c_uint32

    def quantize(self, source, to, ftype):
        p = self.lib.llama_model_quantize_default_params()
        p.nthread, p.ftype = 1, ftype
        rc = self.lib.llama_model_quantize(source.encode(), to.encode(), ctypes.byref(p))
        if rc:
            raise RuntimeError(f"llama_model_quantize: {rc}")


def compare(ours, theirs):
    a, b = gguf.GGUFReader(ours), gguf.GGUFReader(theirs)
    mine = {t.name: t for t in a.tensors}
    other = {t.name: t for t in b.tensors}
    wrong, iq, blocks, off = [], 0, 0, 0
    if set(mine) != set(other):
        return [f"tensors differ: {sorted(set(mine) ^ set(other))[:4]}"], 0, 0, 0
    for name, y in other.items():
        x = mine[name]
        if y.tensor_type.name == "IQ4_NL":
            iq += 1
            continue
        if x.tensor_type != y.tensor_type:
            wrong.append(f"{name}: {x.tensor_type.name}, llama.cpp {y.tensor_type.name}")
            continue
        u, v = x.data.reshape(-1).view("uint8"), y.data.reshape(-1).view("uint8")
        size = gguf.GGML_QUANT_SIZES[y.tensor_type][1]
        diff = (u != v).reshape(-1, size).any(axis=1)
        blocks += len(diff)
        off += int(diff.sum())
        if diff.any():
            wrong.append(f"{name} {y.tensor_type.name}: {int(diff.sum())} of {len(diff)} blocks differ")
    for key in ("general.file_type", "general.quantization_version"):
        if a.fields[key].contents() != b.fields[key].contents():
            wrong.append(f"{key}: {a.fields[key].contents()}, llama.cpp {b.fields[key].contents()}")
    return wrong, iq, blocks, off


def main():
    p = argparse.ArgumentParser()
    p.add_argument("inferd")
    p.add_argument("libs")
    p.add_argument("models", nargs="+")
    p.add_argument("--types", default=",".join(FTYPES))
    args = p.parse_args()
    llama, failed = Llama(args.libs), False
    for model in args.models:
        for kind in args.types.split(","):
            with tempfile.TemporaryDirectory() as tmp:
                ours, theirs = os.path.join(tmp, "ours.gguf"), os.path.join(tmp, "theirs.gguf")
                subprocess.run([args.inferd, "quantize", model, ours, "--type", kind], check=True, stdout=subprocess.DEVNULL)
                llama.quantize(model, theirs, FTYPES[kind])
                wrong, iq, blocks, off = compare(ours, theirs)
                failed |= bool(wrong)
                print(f"{os.path.basename(model):14} {kind:7} {blocks:7} blocks, {off} differ, {iq} tensors IQ4_NL there", flush=True)
                for line in wrong[:6]:
                    print("   ", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
