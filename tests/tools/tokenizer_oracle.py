"""Compares our tokenizers with others' on whole vocabularies: every id.

    python tests/tools/tokenizer_oracle.py vectors TOKENS BUNDLE     llama.cpp's own test vectors of its vocabularies (15 of them)
    python tests/tools/tokenizer_oracle.py random TOKENS FOLDER...   Hugging Face's `tokenizers` on random Unicode, FOLDER/tokenizer.json
    python tests/tools/tokenizer_oracle.py sentencepiece TOKENS      unigram models trained here, against `sentencepiece` and `tokenizers`
    python tests/tools/tokenizer_oracle.py pieces TOKENS             every pre-tokeniser's cut, against `tokenizers` with its expressions
    python tests/tools/tokenizer_oracle.py cases FILE                writes what tests/unit/text/test_pretokenize.c reads

TOKENS is build/*/bench/bench_llm_tokens. BUNDLE is llama/gitRelease.bundle of the npm package node-llama-cpp: a git repository as a file.
Prints a line a vocabulary and ends with 1 on any difference that is not listed here with its reason."""
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

# vocabularies of the bundle whose model or pre-tokeniser inferd does not have; each is refused by name
NOT_SUPPORTED = {"gemma-4"}


def ids_of(tokens, path, texts, special=False):
    p = subprocess.run([tokens, path] + (["special"] if special else []), input="".join(t.encode().hex() + "\n" for t in texts),
                       capture_output=True, text=True)
    if p.returncode:
        return p.stderr.strip()
    return [[int(i) for i in line.split()] for line in p.stdout.split("\n")[:-1]]


def report(name, texts, ours, theirs):
    if isinstance(ours, str):
        print(f"{name}: refused: {ours}")
        return 1
    bad = [(t, a, b) for t, a, b in zip(texts, ours, theirs, strict=True) if a != b]
    print(f"{name}: {len(texts) - len(bad)} of {len(texts)} texts agree")
    for t, a, b in bad[:5]:
        print(f"    {t!r}\n      ours   {a}\n      theirs {b}")
    return len(bad) > 0


def vectors(tokens, bundle):
    wrong = 0
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(["git", "clone", "-q", bundle, tmp], check=True, capture_output=True)
        models = os.path.join(tmp, "models")
        for file in sorted(f for f in os.listdir(models) if f.endswith(".gguf.inp")):
            name = file[len("ggml-vocab-"):-len(".gguf.inp")]
            with open(os.path.join(models, file), encoding="utf-8", newline="") as f:
                texts = f.read().split("\n__ggml_vocab_test__\n")[:-1]
            with open(os.path.join(models, file[:-4] + ".out"), encoding="utf-8") as f:
                theirs = [[int(i) for i in line.split()] for line in f.read().split("\n")[:len(texts)]]
            ours = ids_of(tokens, os.path.join(models, file[:-4]), texts)
            if name in NOT_SUPPORTED and isinstance(ours, str):
                print(f"{name}: not supported: {ours[:90]}")
                continue
            wrong += report(name, texts, ours, theirs)
    return wrong


# blocks of Unicode 8 and before: the tables of all three libraries know them
RANGES = [(0x20, 0x7e)] * 8 + [(0xa0, 0x17f)] * 3 + [(0x180, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x620, 0x64a),
         (0x900, 0x97f), (0xe01, 0xe3a), (0x1100, 0x11ff), (0x1e00, 0x1eff), (0x2000, 0x206f), (0x2070, 0x209c), (0x20a0, 0x20bd),
         (0x2100, 0x214f), (0x2190, 0x22ff), (0x2500, 0x257f), (0x3000, 0x303f), (0x3041, 0x3096), (0x30a0, 0x30ff), (0x3400, 0x34ff),
         (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0xf900, 0xfa2d), (0xfb00, 0xfb06), (0xff01, 0xff5e), (0x1d400, 0x1d454), (0x1f300, 0x1f64f),
         (0x20000, 0x200ff), (0, 0x1f), (0x7f, 0x9f), (0xe000, 0xe010), (0xfffd, 0xfffd)]
WORDS = ("the of and server models serve it's don't hello world naïve café Straße Ångström co-operate 3.14 1,000 x_y <tag> [MASK] "
         "日本語 한국어 привет мир 😀 👍🏽 e\u0301 \u0130stanbul ﬁne ½ ™ \u00a0 \u200b \t \n").split(" ")


def random_texts(n, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        parts = []
        for _ in range(rng.randint(0, 12)):
            kind = rng.random()
            if kind < 0.5:
                parts.append(rng.choice(WORDS) + " " * rng.choice((0, 1, 1, 1, 2, 3)))
            else:
                lo, hi = rng.choice(RANGES)
                parts.append("".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 6))))
        out.append("".join(parts))
    return out


def has_marks(text):
    return any(unicodedata.category(c)[0] == "M" or c == "\u0e33" for c in text)


def compare_hf(tokens, folder, name, n=3000, seed=1, charsmap=False):
    """`charsmap`: `tokenizers` looks the character map up a grapheme at a time and takes the shortest key, so that marks behind a letter can
    vanish; sentencepiece takes the longest key at each character, and so do we. Texts without marks have no such graphemes."""
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tok.no_truncation()
    tok.no_padding()
    texts = [t for t in random_texts(n, seed) if not (charsmap and has_marks(t))]
    theirs = [e.ids for e in tok.encode_batch(texts)]
    return report(name + " (tokenizers)", texts, ids_of(tokens, folder, texts, special=True), theirs)


# ---- pre-tokenisers ----

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
FOLDED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = FOLDED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + BLANKS
WORD = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + BLANKS
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"
CJK = "[一-龥ࠀ-一가-퟿]+"
CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥ"
    "ῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
# by the name in tokenizer.ggml.pre: the expressions that the models' own tokenizer.json have, one Split each
PRE = {
    "gpt-2": [GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
    "qwen35": [FOLDED + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + BLANKS],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [FOLDED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + BLANKS],
    "smollm": [r"\p{N}", GPT2],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "tekken": [WORD + UPPER + "*" + LOWER + "+|" + WORD + UPPER + "+" + LOWER + r"*|\p{N}" + CASED_TAIL],
    "gpt-4o": [WORD + UPPER + "*" + LOWER + "+" + FOLDED + "?|" + WORD + UPPER + "+" + LOWER + "*" + FOLDED + r"?|\p{N}{1,3}" + CASED_TAIL],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{CASED_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*""" + BLANKS],
}
PRE_WORDS = ("it's WE'LL Don'T 'ſ 'stop x'd ABCdef HTTPServer camelCase ÉCOLE Éa ÀB ǅungla ªb aʰB 12 12345 ٣٤٥٦٧ ½⅓ Ⅷx $100 a/b/ //\n/ !\n\n ...\r\n #include "
             "<b> _x -y \"quoted\" 日本語テキスト 日本ABC ABC日本 한국어 \u0301a a\u0301B \u0301AB e\u0301 \u3000 \u3000。 \t\tx \n\n\n \r\n \n \x01ab \x01\x02 "
             "ﬁx 😀😀 👍🏽! \u200b \xa0x \u2028 ᲐᲑ ƻa ʔb 𝐀b ।x ، x|y (a) x)y").split(" ")


def pre_texts(n, seed):
    rng = random.Random(seed)
    out = []
    for base in random_texts(n, seed + 1):
        parts = [base] if rng.random() < 0.6 else []
        for _ in range(rng.randint(0, 10)):
            parts.append(rng.choice(PRE_WORDS) + rng.choice(("", "", " ", " ", "  ", "   ", "\n", " \n", "\n ", "\t", "\r")))
        rng.shuffle(parts)
        out.append("".join(parts))
    return out


def hf_pieces(name, texts):
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Sequence, Split
    pre = Sequence([Split(Regex(r), "isolated") for r in PRE[name]])
    return [[len(piece.encode()) for piece, _ in pre.pre_tokenize_str(t)] for t in texts]


def pieces(tokens):
    wrong = 0
    for seed, name in enumerate(PRE):
        texts = pre_texts(int(os.environ.get("TEXTS", "20000")), seed)
        p = subprocess.run([tokens, "pieces", name], input="".join(t.encode().hex() + "\n" for t in texts), capture_output=True, text=True)
        ours = [[int(i) for i in line.split()] for line in p.stdout.split("\n")[:-1]] if p.returncode == 0 else p.stderr.strip()
        wrong += report(name, texts, ours, hf_pieces(name, texts))
    return wrong


def cases(path):
    with open(path, "w", encoding="ascii") as f:
        f.write("# name, text in hexadecimal, lengths of its pieces in bytes: tests/tools/tokenizer_oracle.py cases, which asks `tokenizers`\n")
        for seed, name in enumerate(PRE):
            texts = [t for t in pre_texts(200, 1000 + seed) if 0 < len(t.encode()) < 120][:25]
            for text, cut in zip(texts, hf_pieces(name, texts), strict=True):
                f.write(f"{name}\t{text.encode().hex()}\t{' '.join(map(str, cut))}\n")
    return 0


# ---- SentencePiece ----

def fields(b):
    """The fields of a protobuf message: (number, value)."""
    def varint(i):
        v = shift = 0
        while True:
            v |= (b[i] & 127) << shift
            shift += 7
            i += 1
            if b[i - 1] < 128:
                return v, i
    i = 0
    while i < len(b):
        key, i = varint(i)
        if key & 7 == 0:
            v, i = varint(i)
        elif key & 7 == 5:
            v, i = struct.unpack("<f", b[i:i + 4])[0], i + 4
        else:
            n, i = varint(i)
            v, i = b[i:i + n], i + n
        yield key >> 3, v


def read_spm(path):
    pieces, norm = [], {}
    with open(path, "rb") as f:
        for k, v in fields(f.read()):
            if k == 1:
                p = {1: b"", 2: 0.0, 3: 1} | dict(fields(v))
                pieces.append((p[1].decode(), p[2], p[3]))
            elif k == 3:
                norm = dict(fields(v))
    return pieces, norm.get(2, b"")


def spm_corpus():
    rng = random.Random(3)
    base = ("the server serves models to those who ask for them and it answers in time naïve café crème Müller trinkt Tee "
            "日本語 の テキスト привет мир one two three four five 1 2 3 4 x = y + z ; return 0 ; it's don't").split(" ")
    return [" ".join(rng.choices(base, k=rng.randint(3, 14))) for _ in range(4000)]


def write_gguf(path, pieces, charsmap):
    import gguf
    w = gguf.GGUFWriter(path, "t5")
    w.add_tokenizer_model("t5")
    w.add_token_list([p for p, _, _ in pieces])
    w.add_token_scores([s for _, s, _ in pieces])
    w.add_token_types([t for _, _, t in pieces])
    w.add_precompiled_charsmap(charsmap)
    w.add_remove_extra_whitespaces(True)
    w.add_add_space_prefix(True)
    w.add_unk_token_id(0)
    w.add_eos_token_id(2)
    w.add_add_eos_token(False)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def write_folder(path, pieces, charsmap, byte_fallback, words):
    """As transformers writes T5's (words) or XLM-RoBERTa's of today."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
    tok = Tokenizer(models.Unigram([(p, s) for p, s, _ in pieces], unk_id=0, byte_fallback=byte_fallback))
    rest = [] if words else [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    tok.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap)] + rest)
    meta = pre_tokenizers.Metaspace()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta]) if words else meta
    tok.add_special_tokens([AddedToken("<s>", normalized=False), AddedToken("</s>", normalized=False)])
    tok.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    tok.add_tokens([AddedToken("serve", single_word=True, normalized=True), AddedToken("café", rstrip=True, normalized=False)])
    os.makedirs(path)
    tok.save(os.path.join(path, "tokenizer.json"))


def sentencepiece(tokens):
    import sentencepiece as spm
    wrong = 0
    for rule in ("nmt_nfkc", "nfkc", "nfkc_cf"):
        for fallback in (False, True):
            with tempfile.TemporaryDirectory() as tmp:
                corpus, prefix = os.path.join(tmp, "corpus"), os.path.join(tmp, "m")
                with open(corpus, "w", encoding="utf-8") as f:
                    f.write("\n".join(spm_corpus()))
                spm.SentencePieceTrainer.train(input=corpus, model_prefix=prefix, vocab_size=600 if fallback else 320, model_type="unigram",
                                               normalization_rule_name=rule, byte_fallback=fallback, minloglevel=2, num_threads=1,
                                               hard_vocab_limit=False)
                sp = spm.SentencePieceProcessor(model_file=prefix + ".model")
                pieces, charsmap = read_spm(prefix + ".model")
                texts = [t.replace("\0", "") for t in random_texts(3000, 2)]
                name = f"unigram {rule}{', bytes' if fallback else ''}"
                write_gguf(prefix + ".gguf", pieces, charsmap)
                wrong += report(name + " (sentencepiece)", texts, ids_of(tokens, prefix + ".gguf", texts), [sp.encode(t) for t in texts])
                for words in (False, True):
                    folder = os.path.join(tmp, f"hf{words}")
                    write_folder(folder, pieces, charsmap, fallback, words)
                    wrong += compare_hf(tokens, folder, name + (", words" if words else ""), charsmap=True)
    return wrong


def main():
    mode, tokens, *rest = sys.argv[1:]
    if mode == "vectors":
        sys.exit(vectors(tokens, rest[0]) > 0)
    if mode == "random":
        sys.exit(sum(compare_hf(tokens, f, os.path.basename(os.path.abspath(f))) for f in rest) > 0)
    if mode == "sentencepiece":
        sys.exit(sentencepiece(tokens) > 0)
    if mode == "pieces":
        sys.exit(pieces(tokens) > 0)
    if mode == "cases":
        sys.exit(cases(tokens))
    sys.exit(__doc__)


if __name__ == "__main__":
    main()
