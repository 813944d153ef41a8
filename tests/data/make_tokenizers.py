"""Writes tests/data/text/tokenizers: small tokenizer.json files and what the `tokenizers` package makes of random Unicode with them.

    PYTHONPATH=... python tests/data/make_tokenizers.py

A vocabulary is NAME.json, its vectors are NAME.txt: a text in hexadecimal, a tab, ids. The texts come from tests/tools/tokenizer_oracle.py. The
unigram model is trained by `sentencepiece` with a character map of a few dozen rules, so that the file stays small; whole maps and
vocabularies are compared by that script."""
import os
import sys
import tempfile

import sentencepiece as spm
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))
import tokenizer_oracle as oracle  # noqa: E402

RULES = [("ﬁ", "fi"), ("ﬂ", "fl"), ("½", "1⁄2"), ("\t", " "), ("\n", " "), ("\u00a0", " "), ("\u3000", " "), ("e\u0301", "é"), ("\u212b", "\u00c5"),
         ("™", "TM"), ("①", "1"), ("\u200b", " "), ("\u0007", ""), ("㎞", "km")] + [(chr(0xff21 + i), chr(0x41 + i)) for i in range(26)]


def wordpiece(cased):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20 if cased else 100))
    tok.normalizer = normalizers.BertNormalizer(lowercase=not cased, strip_accents=None)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.train_from_iterator(oracle.spm_corpus() + ["日 本 語 naïve x y z 0 1 2 ."], trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    tok.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    tok.add_tokens([AddedToken("Straße", normalized=True), AddedToken("it's", single_word=True), AddedToken("<tag>", rstrip=True, normalized=False)])
    ids = [(t, tok.token_to_id(t)) for t in ("[CLS]", "[SEP]")]
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)
    return tok


def unigram(byte_fallback, words):
    with tempfile.TemporaryDirectory() as tmp:
        corpus, prefix, tsv = (os.path.join(tmp, n) for n in ("corpus", "m", "rules.tsv"))
        with open(corpus, "w", encoding="utf-8") as f:
            f.write("\n".join(oracle.spm_corpus()))
        with open(tsv, "w", encoding="utf-8") as f:
            f.writelines(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in RULES)
        spm.SentencePieceTrainer.train(input=corpus, model_prefix=prefix, vocab_size=480 if byte_fallback else 240, model_type="unigram",
                                       normalization_rule_tsv=tsv, byte_fallback=byte_fallback, minloglevel=2, num_threads=1,
                                       hard_vocab_limit=False)
        pieces, charsmap = oracle.read_spm(prefix + ".model")
        oracle.write_folder(os.path.join(tmp, "hf"), pieces, charsmap, byte_fallback, words)
        return Tokenizer.from_file(os.path.join(tmp, "hf", "tokenizer.json"))


def bpe_nfc():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
                                 "isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.train_from_iterator(oracle.spm_corpus(), trainers.BpeTrainer(vocab_size=340, show_progress=False,
                                                                     initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tok.add_special_tokens([AddedToken("[MASK]", normalized=False, lstrip=True, rstrip=True)])
    return tok


def main():
    out = os.path.join(HERE, "text", "tokenizers")
    os.makedirs(out, exist_ok=True)
    for name, tok in {"wordpiece_uncased": wordpiece(False), "wordpiece_cased": wordpiece(True), "unigram": unigram(False, False),
                      "unigram_bytes_words": unigram(True, True), "bpe_nfc": bpe_nfc()}.items():
        tok.save(os.path.join(out, name + ".json"), pretty=False)
        texts = oracle.random_texts(300, len(name))
        if name.startswith("unigram"):
            texts = [t for t in texts if not oracle.has_marks(t)]
        with open(os.path.join(out, name + ".txt"), "w") as f:
            for text, e in zip(texts, tok.encode_batch(texts), strict=True):
                f.write(text.encode().hex() + "\t" + " ".join(str(i) for i in e.ids) + "\n")


if __name__ == "__main__":
    main()
