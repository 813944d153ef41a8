"""llm_peer.py: llama.cpp, through its C library, as the other side of llm_speed.py: reads one command a line, answers with seconds.

    python bench/llm_peer.py LIBRARY_DIR MODEL.gguf THREADS MAX_SEQUENCES CONTEXT_A_SEQUENCE

    decode N PROMPT STEPS    N sequences with PROMPT tokens each take STEPS tokens more, all in one batch a step, greedily: seconds of the steps
    prompt TOKENS DEPTH      one prompt of TOKENS tokens behind DEPTH tokens that are computed already: seconds

LIBRARY_DIR is that of the npm package @node-llama-cpp/linux-x64. The structs are those of llama.h as of v0.4.0; what isn't set keeps the library's own
defaults (flash attention: its choice)."""
import ctypes
import glob
import multiprocessing
import os
import sys
import time

import numpy as np

c = ctypes


class Blob(c.Structure):
    """A parameter struct: larger than the real one; the library fills in its defaults."""
    _fields_ = [("word", c.c_uint32 * 128)]


class Batch(c.Structure):
    _fields_ = [("n_tokens", c.c_int32), ("token", c.POINTER(c.c_int32)), ("embd", c.c_void_p), ("pos", c.POINTER(c.c_int32)),
                ("n_seq_id", c.POINTER(c.c_int32)), ("seq_id", c.POINTER(c.POINTER(c.c_int32))), ("logits", c.POINTER(c.c_int8))]


class Llama:
    def __init__(self, folder, model, threads, sequences, context, cpu=None):
        """`cpu`: the library's build to take (haswell, zen4, ...), not the best that this machine runs."""
        c.CDLL(os.path.join(folder, "libggml-base.so"), c.RTLD_GLOBAL)
        ggml = c.CDLL(glob.glob(os.path.join(folder, "libggml.v*.so"))[0], c.RTLD_GLOBAL)
        if cpu:
            ggml.ggml_backend_load.restype = c.c_void_p
            if not ggml.ggml_backend_load(os.path.join(folder, f"libggml-cpu-{cpu}.so").encode()):
                sys.exit(f"llama.cpp can't load its library for {cpu}")
        else:
            ggml.ggml_backend_load_all_from_path(folder.encode())
        lib = self.lib = c.CDLL(glob.glob(os.path.join(folder, "libllama.v*.so"))[0])
        quiet = self.quiet = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda *_: None)
        lib.llama_log_set(quiet, None)
        for name, kind in (("llama_model_default_params", Blob), ("llama_context_default_params", Blob), ("llama_model_load_from_file", c.c_void_p),
                           ("llama_init_from_model", c.c_void_p), ("llama_batch_init", Batch), ("llama_get_logits_ith", c.POINTER(c.c_float)),
                           ("llama_get_memory", c.c_void_p), ("llama_model_get_vocab", c.c_void_p)):
            getattr(lib, name).restype = kind
        lib.llama_model_load_from_file.argtypes = [c.c_char_p, Blob]
        lib.llama_init_from_model.argtypes = [c.c_void_p, Blob]
        lib.llama_decode.argtypes = [c.c_void_p, Batch]
        lib.llama_get_logits_ith.argtypes = [c.c_void_p, c.c_int32]
        lib.llama_get_memory.argtypes = [c.c_void_p]
        lib.llama_memory_clear.argtypes = [c.c_void_p, c.c_bool]
        lib.llama_memory_seq_rm.argtypes = [c.c_void_p, c.c_int32, c.c_int32, c.c_int32]
        lib.llama_set_n_threads.argtypes = [c.c_void_p, c.c_int32, c.c_int32]
        lib.llama_model_get_vocab.argtypes = lib.llama_vocab_n_tokens.argtypes = [c.c_void_p]
        model = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
        if not model:
            sys.exit("llama.cpp can't load the model")
        params = lib.llama_context_default_params()
        if list(params.word[0:4]) != [512, 2048, 512, 1]:
            sys.exit("llama.cpp's context parameters aren't laid out as this script knows them")
        params.word[0], params.word[1], params.word[3] = context * sequences, 2048, sequences
        self.ctx = lib.llama_init_from_model(model, params)
        if not self.ctx:
            sys.exit("llama.cpp can't make the context")
        lib.llama_set_n_threads(self.ctx, threads, threads)
        self.memory = lib.llama_get_memory(self.ctx)
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        self.batch = lib.llama_batch_init(2048, 0, 1)
        self.rng = np.random.default_rng(1)

    def run(self, rows):
        """rows: (token, position, sequence, logits wanted)."""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, pos, seq, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, pos, 1, wanted
            b.seq_id[i][0] = seq
        if self.lib.llama_decode(self.ctx, b):
            sys.exit("llama_decode failed")

    def greedy(self, row):
        return int(np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.ctx, row), (self.vocab,)).argmax())

    def tokens(self, n):
        return [int(t) for t in self.rng.integers(100, self.vocab - 100, n)]

    def fill(self, seq, first, tokens):
        for at in range(0, len(tokens), 2048):
            part = tokens[at:at + 2048]
            self.run([(t, first + at + i, seq, at + i + 1 == len(tokens)) for i, t in enumerate(part)])
        return self.greedy(len(part) - 1)

    def decode(self, n, prompt, steps):
        self.lib.llama_memory_clear(self.memory, False)
        last = [self.fill(s, 0, self.tokens(prompt)) for s in range(n)]
        begin = time.monotonic()
        for k in range(steps):
            self.run([(last[s], prompt + k, s, 1) for s in range(n)])
            last = [self.greedy(s) for s in range(n)]
        return time.monotonic() - begin

    def prompt(self, n, depth):
        self.lib.llama_memory_clear(self.memory, False)
        if depth:
            self.fill(0, 0, self.tokens(depth))
        tokens = self.tokens(n)
        begin = time.monotonic()
        self.fill(0, depth, tokens)
        return time.monotonic() - begin


def logits_here(folder, model, windows, batch, cpu):
    llama = Llama(folder, model, 1, 1, 2048, cpu)
    out = []
    for ids in windows:
        llama.lib.llama_memory_clear(llama.memory, False)
        rows = []
        for at in range(0, len(ids), batch):
            part = ids[at:at + batch]
            llama.run([(t, at + i, 0, 1) for i, t in enumerate(part)])
            rows += [np.ctypeslib.as_array(llama.lib.llama_get_logits_ith(llama.ctx, i), (llama.vocab,)).copy() for i in range(len(part))]
        out.append(np.array(rows))
    return out


def logits(folder, model, windows, batch=512, cpu=None):
    """f32[n][vocab] for each window of token ids, teacher-forced, `batch` tokens at once; in a process of its own, since a process has one CPU library."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(logits_here, (os.path.realpath(folder), model, windows, batch, cpu))


def main():
    folder, model, threads, sequences, context = sys.argv[1:]
    llama = Llama(os.path.realpath(folder), model, int(threads), int(sequences), int(context))
    print("ready", flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        print(getattr(llama, what)(*map(int, numbers)), flush=True)


if __name__ == "__main__":
    main()
