"""Generates a text with vLLM under Pliant's scheduler, by a tiny Llama of random weights: `python trial.py FOLDER cpu|cuda`.

The Python of the engine's environment runs it, so it imports nothing of ours but `pliant`, which must be importable there.
It needs no network. The last line that it prints is a JSON object behind `pliant-trial: `.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

MARK = "pliant-trial: "
WORDS = 64
HIDDEN, HEADS, INNER, LAYERS = 128, 2, 256, 2
PROMPT, TOKENS = "w1 w2 w3 w4", 8  # a prompt of four words, and how many tokens follow


def write_model(folder: Path) -> None:
    """Write a Llama with random weights, and a tokenizer that knows the words w1, w2 and so on."""
    from safetensors.numpy import save_file

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "vocab_size": WORDS,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    }
    vocabulary = {"<end>": 0} | {f"w{number}": number for number in range(1, WORDS)}
    end = {"id": 0, "content": "<end>", "special": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [end | flags],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<end>"},
    }
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "unk_token": "<end>"}
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", kind)):
        (folder / f"{name}.json").write_text(json.dumps(document))
    save_file(_weights(), folder / "model.safetensors", metadata={"format": "pt"})


def _weights() -> dict[str, np.ndarray[Any, Any]]:
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (WORDS, HIDDEN), "norm": (HIDDEN,)}
    for layer in range(LAYERS):
        for part in ("q", "k", "v", "o"):
            shapes[f"layers.{layer}.self_attn.{part}_proj"] = (HIDDEN, HIDDEN)
        for part in ("gate", "up"):
            shapes[f"layers.{layer}.mlp.{part}_proj"] = (INNER, HIDDEN)
        shapes[f"layers.{layer}.mlp.down_proj"] = (HIDDEN, INNER)
        for part in ("input", "post_attention"):
            shapes[f"layers.{layer}.{part}_layernorm"] = (HIDDEN,)
    draw = np.random.default_rng(0)
    return {f"model.{name}.weight": draw.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}


def generate(folder: Path, device: str) -> tuple[str, int]:
    """Return a text of the model in the folder, and how many tokens it has."""
    from vllm import LLM, SamplingParams

    # On a GPU little memory is enough, whatever else is at work there.
    memory: dict[str, Any] = (
        {"kv_cache_memory_bytes": 2**26, "gpu_memory_utilization": 0.02} if device == "cuda" else {}
    )
    model = LLM(
        model=str(folder),
        dtype="float32" if device == "cpu" else "auto",
        enforce_eager=True,
        max_model_len=64,
        max_num_seqs=2,
        scheduler_cls="pliant.packing.vllm.PliantScheduler",
        **memory,
    )
    sampling = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    completion = model.generate([PROMPT], sampling, use_tqdm=False)[0].outputs[0]
    return completion.text, len(completion.token_ids)


def main(folder: Path, device: str) -> None:
    """Write the model, let vLLM load it and write a text, and print what came of it."""
    import pliant

    write_model(folder)
    text, tokens = generate(folder, device)
    versions = {name: version(name) for name in ("vllm", "torch", "transformers", "numpy")}
    scheduler = pliant.PackingScheduler.__name__
    print(MARK + json.dumps({"text": text, "tokens": tokens, "versions": versions, "scheduler": scheduler}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
