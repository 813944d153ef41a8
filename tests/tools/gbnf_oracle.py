"""Compares GBNF grammars with llama.cpp: along random walks over a model's vocabulary, the set of allowed tokens is the same after every token.

    python tests/tools/gbnf_oracle.py BENCH_GRAMMAR LLAMA_LIB_DIR MODEL.gguf [--walks N]

BENCH_GRAMMAR is build/<preset>/bench/bench_grammar; LLAMA_LIB_DIR that of the npm package @node-llama-cpp/linux-x64. Compared are tokens of whole
characters: llama.cpp lets pieces of characters pass that no character completes, and treats control tokens as their text. Ends with 1 on a difference."""
import argparse
import ctypes as c
import glob
import json
import os
import random
import subprocess
import sys

GRAMMARS = {
    "arithmetic": 'root ::= (expr "=" ws term "\\n")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | "(" ws expr ")" ws\n'
                  'ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n',
    "chess": 'root ::= "1. " move " " move "\\n" ([1-9] [0-9]? ". " move " " move "\\n")+\nmove ::= (pawn | nonpawn | castle) [+#]?\n'
             'nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]\npawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?\ncastle ::= "O-O" "-O"?\n',
    "list": 'root ::= item+\n# Excludes various line break characters\nitem ::= "- " [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"\n',
    "json": 'root ::= object\nvalue ::= object | array | string | number | ("true" | "false" | "null") ws\n'
            'object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws\narray ::= "[" ws (value ("," ws value)*)? "]" ws\n'
            'string ::= "\\"" ([^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\\"" ws\n'
            'number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\nws ::= | " " | "\\n" [ \\t]{0,20}\n',
    "japanese": 'root ::= jp-char+ ([ \\t\\n] jp-char+)*\njp-char ::= hiragana | katakana | punctuation | cjk\nhiragana ::= [ぁ-ゟ]\nkatakana ::= [ァ-ヿ]\n'
                'punctuation ::= [、-〾]\ncjk ::= [一-鿿]\n',
    "counts": 'root ::= ("ab" | [0-9]{2,3} | "")  ("x"? | "é"+){0,4} .{3} ("" | "end")',
    "choices": 'root ::= ("yes" | "no" | "maybe" (" not")?) "." | "The " [a-z]+ " is " [^.!]+ [.!]',
}


class Blob(c.Structure):
    _fields_ = [("word", c.c_uint32 * 128)]


class TokenData(c.Structure):
    _fields_ = [("id", c.c_int32), ("logit", c.c_float), ("p", c.c_float)]


class TokenArray(c.Structure):
    _fields_ = [("data", c.POINTER(TokenData)), ("size", c.c_size_t), ("selected", c.c_int64), ("sorted", c.c_bool)]


class Llama:
    def __init__(self, folder, model):
        c.CDLL(os.path.join(folder, "libggml-base.so"), c.RTLD_GLOBAL)
        ggml = c.CDLL(glob.glob(os.path.join(folder, "libggml.v*.so"))[0], c.RTLD_GLOBAL)
        ggml.ggml_backend_load_all_from_path(folder.encode())
        lib = self.lib = c.CDLL(glob.glob(os.path.join(folder, "libllama.v*.so"))[0])
        self.quiet = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(lambda *_: None)
        lib.llama_log_set(self.quiet, None)
        for name, result, args in (("llama_model_default_params", Blob, []), ("llama_model_load_from_file", c.c_void_p, [c.c_char_p, Blob]),
                                   ("llama_model_get_vocab", c.c_void_p, [c.c_void_p]), ("llama_vocab_n_tokens", c.c_int32, [c.c_void_p]),
                                   ("llama_vocab_is_eog", c.c_bool, [c.c_void_p, c.c_int32]), ("llama_vocab_is_control", c.c_bool, [c.c_void_p, c.c_int32]),
                                   ("llama_token_to_piece", c.c_int32, [c.c_void_p, c.c_int32, c.c_char_p, c.c_int32, c.c_int32, c.c_bool]),
                                   ("llama_sampler_init_grammar", c.c_void_p, [c.c_void_p, c.c_char_p, c.c_char_p]),
                                   ("llama_sampler_apply", None, [c.c_void_p, c.POINTER(TokenArray)]),
                                   ("llama_sampler_accept", None, [c.c_void_p, c.c_int32]), ("llama_sampler_free", None, [c.c_void_p])):
            getattr(lib, name).restype, getattr(lib, name).argtypes = result, args
        handle = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
        if not handle:
            sys.exit("llama.cpp can't load the model")
        self.vocab = lib.llama_model_get_vocab(handle)
        self.n = lib.llama_vocab_n_tokens(self.vocab)
        self.data = (TokenData * self.n)()
        self.eog = [i for i in range(self.n) if lib.llama_vocab_is_eog(self.vocab, i)]
        self.whole = {i for i in range(self.n) if self.is_whole(i)}

    def is_whole(self, i):
        buf = c.create_string_buffer(512)
        n = self.lib.llama_token_to_piece(self.vocab, i, buf, 512, 0, False)
        try:
            return n > 0 and not self.lib.llama_vocab_is_control(self.vocab, i) and "\0" not in buf.raw[:n].decode()
        except UnicodeDecodeError:
            return False

    def allowed(self, sampler):
        for i in range(self.n):
            self.data[i].id, self.data[i].logit = i, 0.0
        self.lib.llama_sampler_apply(sampler, c.byref(TokenArray(self.data, self.n, -1, False)))
        ids = {t.id for t in self.data if t.logit == 0.0}
        return ids & self.whole, any(e in ids for e in self.eog)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("llama")
    p.add_argument("model")
    p.add_argument("--walks", type=int, default=3)
    args = p.parse_args()
    llama, r, n_masks = Llama(args.llama, args.model), random.Random(1), 0
    server = subprocess.Popen([args.program, args.model, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for name, source in GRAMMARS.items():
        for _ in range(args.walks):
            sampler, path = llama.lib.llama_sampler_init_grammar(llama.vocab, source.encode(), b"root"), []
            if not sampler:
                sys.exit(f"llama.cpp refuses the grammar {name}")
            while len(path) < 16:
                server.stdin.write(json.dumps({"kind": "gbnf", "source": source, "path": path}).encode() + b"\n")
                server.stdin.flush()
                answer = json.loads(server.stdout.readline())
                if "error" in answer:
                    sys.exit(f"{name}: {answer['error']}")
                ours, our_end = set(answer["allowed"][:-1]) & llama.whole, answer["allowed"][-1] == -1
                theirs, their_end = llama.allowed(sampler)
                if ours != theirs or our_end != their_end:
                    sys.exit(f"{name} behind {path}: only ours {sorted(ours - theirs)[:10]}, only llama.cpp's {sorted(theirs - ours)[:10]}, "
                             f"end {our_end} and {their_end}")
                n_masks += 1
                if not ours:
                    break
                path.append(r.choice(sorted(ours)))
                llama.lib.llama_sampler_accept(sampler, path[-1])
            llama.lib.llama_sampler_free(sampler)
    print(f"{len(GRAMMARS)} grammars, {n_masks} sets of allowed tokens: as llama.cpp's")


if __name__ == "__main__":
    main()
