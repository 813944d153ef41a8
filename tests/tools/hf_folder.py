"""A Hugging Face folder out of a GGUF file of a llama with a byte-level BPE vocabulary: dequantised, renamed, q and k rows put back in Hugging Face's order.

    python tests/tools/hf_folder.py MODEL.gguf FOLDER [--type F32|F16|BF16] [--shards N] [--tokenizer-only]

For comparing a folder with the file it was made of (tests/tools/arch_oracle.py does it for small random weights), and, with --tokenizer-only, for
clients that count tokens themselves. Needs numpy and gguf, for the weights safetensors and ml_dtypes, too."""
import argparse
import json
import os

import gguf
import numpy as np

LAYER = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}
MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
SMOLLM = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def tensors(r, heads, kv, dtype):
    for t in r.tensors:
        w = gguf.quants.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])
        stem = t.name.removesuffix(".weight")
        if stem.startswith("blk."):
            _, layer, role = stem.split(".", 2)
            if role in ("attn_q", "attn_k"):
                w = unpermute(w, heads if role == "attn_q" else kv)
            name = f"model.layers.{layer}.{LAYER[role]}.weight"
        else:
            name = MODEL[stem] + ".weight"
        yield name, np.ascontiguousarray(w.astype(dtype))


def dtype_of(name):
    import ml_dtypes
    return {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[name]


def write_weights(a, r, heads, kv):
    """The names of all tensors."""
    from safetensors.numpy import save_file
    every = list(tensors(r, heads, kv, dtype_of(a.type)))
    index, per = {}, -(-len(every) // a.shards)
    for i in range(a.shards):
        name = "model.safetensors" if a.shards == 1 else f"model-{i + 1:05}-of-{a.shards:05}.safetensors"
        part = dict(every[i * per:(i + 1) * per])
        save_file(part, os.path.join(a.folder, name), {"format": "pt"})
        index |= {t: name for t in part}
    if a.shards > 1:
        with open(os.path.join(a.folder, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": index}, f)
    return index


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("folder")
    p.add_argument("--type", default="F32", choices=("F32", "F16", "BF16"))
    p.add_argument("--shards", type=int, default=1)
    p.add_argument("--tokenizer-only", action="store_true")
    a = p.parse_args()
    r = gguf.GGUFReader(a.model)
    get = lambda k: r.fields[k].contents() if k in r.fields else None  # noqa: E731
    arch = get("general.architecture")
    assert arch == "llama" and get("tokenizer.ggml.pre") == "smollm", "only SmolLM's kind is needed"
    n = lambda k: get(f"{arch}.{k}")  # noqa: E731
    heads, kv = n("attention.head_count"), n("attention.head_count_kv")
    os.makedirs(a.folder, exist_ok=True)
    index = {} if a.tokenizer_only else write_weights(a, r, heads, kv)
    tokens, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=n("embedding_length"), num_hidden_layers=n("block_count"),
                  intermediate_size=n("feed_forward_length"), num_attention_heads=heads, num_key_value_heads=kv, hidden_act="silu",
                  max_position_embeddings=n("context_length"), rms_norm_eps=n("attention.layer_norm_rms_epsilon"), rope_theta=n("rope.freq_base") or 10000.0,
                  vocab_size=len(tokens), tie_word_embeddings="lm_head.weight" not in index, eos_token_id=get("tokenizer.ggml.eos_token_id"))
    added = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for i, (t, k) in enumerate(zip(tokens, types, strict=True)) if k == gguf.TokenType.CONTROL]
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=SMOLLM, post_processor=None,
                     decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, model=dict(type="BPE", dropout=None, unk_token=None, byte_fallback=False, ignore_merges=False,
                                                               vocab={t: i for i, t in enumerate(tokens)}, merges=get("tokenizer.ggml.merges")))
    name = lambda k: tokens[get(k)] if get(k) is not None else None  # noqa: E731
    files = {"config.json": config, "tokenizer.json": tokenizer,
             "tokenizer_config.json": dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=name("tokenizer.ggml.bos_token_id"), eos_token=name("tokenizer.ggml.eos_token_id"),
                                           chat_template=get("tokenizer.chat_template")),
             "generation_config.json": dict(eos_token_id=get("tokenizer.ggml.eos_token_id"), temperature=0.2, top_p=0.9)}
    for file, content in files.items():
        with open(os.path.join(a.folder, file), "w", encoding="utf-8") as f:
            json.dump(content, f, ensure_ascii=False)


if __name__ == "__main__":
    main()
