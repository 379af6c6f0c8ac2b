"""A setting of the packing flow that is done in seconds, and plans without any model, for the gate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from flows.packing_learn import is_held_out
from flows.packing_live import Live
from pliant.packing.artifact import Packing, Predictor
from pliant.packing.forecast import LEVELS
from pliant.packing.request import Memory
from pliant.packing.steps import LinearSteps

STEPS = LinearSteps(base=0.002, query=2e-5, sequence=1e-4, token=1e-7, pair=0.0, swap=1e-6, error=0.1)
CONTEXT = 160


def some_packing(spread: float = 0.2, seconds: float = 1.0, seed: int = 0, count: int = 200, **changes: Any) -> Packing:
    """Outputs of 1 to 100 tokens, forecast but for an error of `spread` in the log; iterations last `seconds` x STEPS."""
    rng = np.random.default_rng(7)
    outputs = np.clip(np.exp(rng.normal(3.0, 0.9, count)), 1, 100).astype(np.int32)
    error = np.random.default_rng(seed).normal(0, spread, count)
    quantiles = np.linspace(-1.6, 2.3, len(LEVELS)) * max(spread, 0.05)
    forecasts = np.exp(np.log(outputs)[:, None] + error[:, None] + quantiles[None, :])
    steps = replace(STEPS, **{key: seconds * getattr(STEPS, key) for key in ("base", "query", "sequence", "token")})
    made = Packing(
        name="things",
        generator="generator",
        predictor="predictor",
        device_class="cpu",
        memory=Memory(pages=48, page_tokens=16, host_pages=0, step_tokens=128, sequences=64),
        kv_bytes=1024,
        steps=steps,
        level=0.5,
        patience=1.5,
        prompt_tokens=rng.integers(5, 50, count).astype(np.int32),
        output_tokens=outputs,
        forecasts=np.clip(forecasts, 1, 110).astype(np.float32),
        buckets=(10 * np.ceil(outputs / 10)).astype(np.int32),
    )
    return replace(made, **changes)


def write_prompts(folder: Path, count: int = 120, seed: int = 0) -> Path:
    """A file of prompts: a wish and some words."""
    rng = np.random.default_rng(seed)
    words = ("apple", "pear", "iron", "gold", "oak", "elm", "and", "with", "some", "old")
    asks = ("Say it briefly:", "Explain:", "Tell me all about")
    rows = [" ".join([rng.choice(asks), *rng.choice(words, rng.integers(1, 9))]) for _ in range(count)]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": row}) + "\n" for row in rows))
    return path


SETTING: Mapping[str, Any] = {
    "name": "things",
    "lengths": {"requests": 60, "held_out": 0.4, "limit": 12, "pages": 128, "temperature": 1.0},
    "predictor": {"width": 16, "layers": 1, "heads": 2, "vocabulary": 80, "max_length": 32, "epochs": 2},
    "memory": {"pages": 24, "page_tokens": 8, "host_pages": 24, "step_tokens": 32, "sequences": 16},
    "steps": {"sequences": [1, 4], "fills": [0.2], "prompts": [0.0, 0.5], "warmup": 0, "repeats": 1},
    "plan": {"levels": [1.0], "patience": [1.5]},
    "reference": {"quiet": [0.5], "loud": [1.5], "requests": 20},
    "gate": {"seeds": 1, "tolerance": 9.0, "tail": 9.0},  # so that whatever is made is promoted
    "retrain": {"least": 40, "predictor": {"epochs": 2, "rate": 3e-4}},
}


def setting(folder: Path, **changes: Any) -> dict[str, Any]:
    """The tiny setting on the prompts and the generator in `folder`, with some of its top-level keys replaced."""
    given = {"prompts": f"json:{folder / 'prompts.jsonl'}", "generator": f"path:{folder / 'generator'}"}
    return {**given, **SETTING, **changes}


def write_generator(folder: Path, seed: int = 0) -> Path:
    """A random Llama of one layer in transformers' format, which ends by chance: one token in some is an end."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from training.packing_generator import new_tokenizer

    torch.manual_seed(seed)
    tokenizer = new_tokenizer(["the old oak and the apple", "explain it briefly", "tell me all about iron"], 300)
    size = tokenizer.get_vocab_size()
    config = LlamaConfig(
        vocab_size=size, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, eos_token_id=list(range(size - 40, size)),
    )  # fmt: skip
    made = folder / "generator"
    LlamaForCausalLM(config).save_pretrained(made)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(made)
    return made


def write_observed(path: Path, one: Live, count: int, misleading: bool = False) -> Path:
    """What a service would write of the model's outputs: 20 to 40 tokens, far beyond what was forecast.

    `misleading`: but for the prompts that are not held out 1 to 3 tokens.
    """
    rng, held_out = np.random.default_rng(count), SETTING["lengths"]["held_out"]
    prompts = [f"tell me all about number {number}" for number in range(count)]
    short = [misleading and not is_held_out(prompt, held_out) for prompt in prompts]
    lines = [
        {
            "prompt": prompt,
            "prompt_tokens": int(rng.integers(5, 20)),
            "tokens": int(rng.integers(1, 4) if little else rng.integers(20, 41)),
            "finish": "end",
            "limit": 44,
            "forecast": [float(tokens) for tokens in range(2, 2 + len(LEVELS))],
            "bucket": 12,
            "prediction": "predicted",
            "generator": one.packing.generator,
        }
        for prompt, little in zip(prompts, short, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@cache
def some_predictor() -> Predictor:
    """One that has hardly learnt anything."""
    from training.packing_lengths import observed
    from training.packing_predictor import PredictorConfig, train

    config = PredictorConfig(width=16, layers=1, heads=2, vocabulary=80, max_length=32, epochs=1)
    pairs = [(f"{'explain' if n % 2 else 'say'} the old oak {n}", 1 + 3 * n % 50) for n in range(60)]
    return train(config, observed("things", pairs), name="things", generator="generator")
