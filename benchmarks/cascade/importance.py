"""What attention importance costs: beside our attention, and where transformers gives the attentions out.

One text at a time, all in turns, so that a busy machine slows all alike; seconds and ratios are medians over rounds.
"bare" is transformers' model as it comes (scaled-dot-product attention, a mask of ones, no gradients); "asked" the same
that is also asked for importance; "eager" the same with `output_attentions=True`, whose attentions are summed. "runtime"
and "runtime asked" are CascadeRuntime, with all that it does around the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pliant.cascade.attention import Received, watch
from pliant.cascade.runtime import CascadeRuntime, Payload
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers, load_model, weights
from pliant.progress import Progress, silent
from training.starts import pretrained

LENGTHS = (16, 32, 64, 128, 256, 512)
BUDGET, LEAST = 3.0, 9
"""Seconds for one number of layers at one length, and the least rounds."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of one text. `difference`: the largest between our importance and that of eager attention, per mean."""

    layers: int
    length: int
    seconds: Mapping[str, float]
    ours: float  # seconds with importance per second without
    eager: float
    added: float  # seconds that importance adds to a request in the runtime
    runtime: float  # seconds of the runtime per second of the bare model
    rounds: int
    difference: float


def measure(
    folder: Path, depths: Sequence[int] = (1, 6), lengths: Sequence[int] = LENGTHS, progress: Progress = silent
) -> list[Cost]:
    """Costs of the encoder in `folder` cut to its first `depths` layers."""
    found: list[Cost] = []
    for depth in depths:
        classifier = _classifier(folder, depth)
        for length in lengths:
            found.append(_cost(classifier, depth, length))
            progress(len(found), len(depths) * len(lengths))
    return found


def _classifier(folder: Path, depth: int) -> Classifier:
    start = pretrained(f"path:{folder}")
    model: Any = start.model(2)
    del layers(model)[depth:]
    model.config.num_hidden_layers = depth
    told = model.config.to_json_string(use_diff=False)
    return Classifier(
        "encoder",
        "none",
        ("a", "b"),
        told,
        start.tokenizer.to_str(),
        model.config.max_position_embeddings,
        "",
        weights(model),
    )


def _cost(classifier: Classifier, depth: int, length: int) -> Cost:
    """Random tokens: what they are does not matter to the time."""
    ids = np.random.default_rng(length).integers(1000, 2000, length).astype(np.int32)
    payload: Payload = (ids, np.zeros(length, np.int8))
    calls, difference = _calls(classifier, payload)
    taken = _in_turns(calls)
    seconds = {name: float(np.median(each)) for name, each in taken.items()}
    ours, eager, runtime = (float(np.median(taken[name] / taken["bare"])) for name in ("asked", "eager", "runtime"))
    added = float(np.median(taken["runtime asked"] - taken["runtime"]))
    return Cost(depth, length, seconds, ours, eager, added, runtime, len(taken["bare"]), difference)


def _calls(classifier: Classifier, payload: Payload) -> tuple[dict[str, Callable[[], object]], float]:
    bare, asked, eager = (load_model(classifier) for _ in range(3))
    watch(asked)
    eager.set_attn_implementation("eager")  # type: ignore[operator]
    id_BN = torch.from_numpy(payload[0])[None].long()
    told = {"input_ids": id_BN, "attention_mask": torch.ones_like(id_BN), "token_type_ids": torch.zeros_like(id_BN)}
    # weights of its own for each, or one would find them in the cache that the one before it filled
    runtime, watched = CascadeRuntime({0: classifier}), CascadeRuntime({0: classifier})
    calls: dict[str, Callable[[], object]] = {
        "bare": lambda: _run(bare, told),
        "asked": lambda: _ours(asked, told),
        "eager": lambda: _eager(eager, told),
        "runtime": lambda: runtime.run(0, [payload]),
        "runtime asked": lambda: watched.run(0, [payload], importance=True),
    }
    expected = _eager(eager, told)
    return calls, float((_ours(asked, told) - expected).abs().max() / expected.mean())


@torch.inference_mode()
def _run(model: nn.Module, told: dict[str, Any]) -> Any:
    return model(**told)


@torch.inference_mode()
def _ours(model: nn.Module, told: dict[str, Any]) -> Tensor:
    received = Received()
    model(**told, received=received)
    assert received.total_BM is not None
    return received.total_BM


@torch.inference_mode()
def _eager(model: nn.Module, told: dict[str, Any]) -> Tensor:
    return torch.stack([each.sum((1, 2)) for each in model(**told, output_attentions=True).attentions]).sum(0)


def _in_turns(calls: Mapping[str, Callable[[], object]]) -> dict[str, NDArray[np.float64]]:
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    rng, end = np.random.default_rng(0), time.perf_counter() + BUDGET
    while time.perf_counter() < end or len(taken["bare"]) < LEAST:
        for name in rng.permutation(list(calls)).tolist():  # what ran just before leaves its mark on the caches
            start = time.perf_counter()
            calls[name]()
            taken[name].append(time.perf_counter() - start)
    return {name: np.array(each) for name, each in taken.items()}
