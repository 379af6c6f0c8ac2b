"""Tiny encoders of several families of transformers for tests of bins: random weights, two layers of width 16."""

from __future__ import annotations

import json

import numpy as np
import torch

from pliant.bins.artifact import Encoder
from pliant.bins.model import module
from pliant.bins.padding import Payload
from pliant.cascade.model import weights
from tests.cascade_classifiers import TEXTS, new_tokenizer, tiny_config

FAMILIES = ("bert", "modernbert", "distilbert")
VOCABULARY = 80


def tiny_encoder(
    family: str = "bert",
    head: str = "classification",
    pooling: str = "mean",
    normalize: bool = True,
    max_length: int = 40,
    name: str = "tiny",
) -> Encoder:
    """Weights are drawn wide enough that texts and tokens differ visibly. Equal arguments give equal values."""
    classes = ("x", "y", "z") if head == "classification" else ()
    config = tiny_config(family, len(classes) or 1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = weights(module(config, head))
    tokenizer = new_tokenizer(TEXTS, VOCABULARY).to_str()
    told = (pooling, normalize) if head == "embedding" else ("", False)
    return Encoder(name, head, classes, *told, json.dumps(config), tokenizer, max_length, "data", made)


def random_payload(rng: np.random.Generator, length: int, typed: bool = True) -> Payload:
    types = (np.arange(length) >= length // 2) & typed
    return rng.integers(5, VOCABULARY, length).astype(np.int32), types.astype(np.int8)
