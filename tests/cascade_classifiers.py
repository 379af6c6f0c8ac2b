"""Tiny classifiers of several families of transformers for tests: random weights, two layers of width 16, four heads.

Weights are drawn wide enough that texts and models differ visibly. Equal arguments give equal values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from pliant.cascade.artifact import Classifier
from pliant.cascade.model import module, weights
from training.cascade_start import new_tokenizer

SAID = "the a small large model reads every word of this text and answers what it says about dogs cats or trees"
WORDS = SAID.split()
TEXTS = tuple(" ".join(WORDS[i : i + 9]) for i in range(len(WORDS)))

_WIDE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
_FAMILIES: dict[str, dict[str, Any]] = {
    "bert": _WIDE,
    "roberta": {**_WIDE, "type_vocab_size": 1, "pad_token_id": 1},
    "electra": {**_WIDE, "embedding_size": 8},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24},
    "albert": {**_WIDE, "embedding_size": 8},
    "modernbert": {
        **_WIDE,
        "global_attn_every_n_layers": 2,
        "local_attention": 8,
        "cls_token_id": 2,
        "sep_token_id": 3,
    },
    "llama": {**_WIDE, "num_key_value_heads": 2},
    "falcon": _WIDE,
    "t5": {"d_model": 16, "num_layers": 2, "num_heads": 4, "d_kv": 4, "d_ff": 24, "decoder_start_token_id": 0},
}
FAMILIES = tuple(_FAMILIES)


def tiny_config(family: str, outputs: int = 3, positions: int = 40) -> dict[str, Any]:
    given = {"vocab_size": 80, "max_position_embeddings": positions, "initializer_range": 0.4, "pad_token_id": 0}
    ends = {"bos_token_id": 2, "eos_token_id": 3}
    return {"model_type": family, **given, **ends, **_FAMILIES[family], "num_labels": outputs}


def tiny_classifier(
    name: str = "small",
    family: str = "bert",
    classes: Sequence[str] = ("x", "y", "z"),
    seed: int = 0,
    max_length: int = 24,
    vocabulary: int = 80,
) -> Classifier:
    """`vocabulary`: at most 80 entries; fewer make more tokens of the same words."""
    config = tiny_config(family, len(classes) or 1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = weights(module(config))
    tokenizer = new_tokenizer(TEXTS, vocabulary).to_str()
    return Classifier(name, "task", tuple(classes), json.dumps(config), tokenizer, max_length, "data", made)
