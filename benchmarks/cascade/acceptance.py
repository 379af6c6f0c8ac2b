"""Cascade in the acceptance kit of GPUs: seconds of a small and a large classifier by precision, and their launches.

Seconds do not depend on the weights' values, so random ones serve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from pliant.benchmarks.launches import launches
from pliant.benchmarks.results import Add, Target
from pliant.benchmarks.runs import medians_in_turns
from pliant.cascade.runtime import CascadeRuntime, Execution, Payload
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.classifier import module, weights

Precision = Literal["float32", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
SMALL, LARGE = "small", "large"
DIFFERENCE = 0.01  # of logits that are about 1, in float32


@dataclass(frozen=True, slots=True)
class Config:
    """`models`: fields of BERT's configuration by level. Every batch is of texts of each length."""

    models: Mapping[str, Mapping[str, int]]
    lengths: tuple[int, ...] = (32, 128)
    batches: tuple[int, ...] = (1, 8, 32)
    rounds: int = 20


def _bert(width: int, layers: int, heads: int) -> dict[str, int]:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    return sizes | {"intermediate_size": 4 * width}


FULL = Config({SMALL: _bert(384, 6, 12), LARGE: _bert(1024, 24, 16)})
TINY = Config({SMALL: _bert(16, 1, 2), LARGE: _bert(64, 3, 2)}, (8, 16), (1, 4), rounds=3)


def measure(device: str, tiny: bool, add: Add) -> None:
    """Measure each level in each precision that the device has; a part says what is left out."""
    config = TINY if tiny else FULL
    for level, sizes in config.models.items():
        longest = max(config.lengths)
        bert = {"model_type": "bert", "max_position_embeddings": longest, "num_labels": 2, **sizes}
        torch.manual_seed(0)
        values = weights(module(bert))
        classifier = Classifier(level, "random", ("no", "yes"), json.dumps(bert), "", longest, "random", values)
        runtimes: dict[Precision, CascadeRuntime] = {}
        left_out: dict[Precision, str] = {}
        for precision in PRECISIONS:
            try:
                runtimes[precision] = CascadeRuntime({0: classifier}, device, Execution(precision))
            except InputError as error:
                left_out[precision] = str(error)
        rows = [row for length in config.lengths for row in _rows(config, runtimes, length)]
        off = _difference(classifier, runtimes["float32"])
        right = Target(f"{level}: largest difference of logits from the plain model on the CPU", off, "<=", DIFFERENCE)
        add(level, [right, *_targets(level, rows)], {"left out": left_out, "rows": rows})


def _difference(classifier: Classifier, runtime: CascadeRuntime) -> float:
    """Return the largest difference over a batch of texts of several lengths, each of which the CPU reads alone."""
    plain, rng = CascadeRuntime({0: classifier}, "cpu", Execution(packed=False)), np.random.default_rng(0)
    payloads: list[Payload] = [
        (rng.integers(1, 1000, length).astype(np.int32), np.zeros(length, np.int8))
        for length in (classifier.max_length, classifier.max_length // 2, 1)
    ]
    alone = [plain.run(0, [payload]).logits[0] for payload in payloads]
    return float(np.abs(np.array(runtime.run(0, payloads).logits) - np.array(alone)).max())


def _rows(config: Config, runtimes: Mapping[Precision, CascadeRuntime], length: int) -> list[dict[str, Any]]:
    """Measure all precisions, with importance and without, in turns, at every batch."""
    payload: Payload = (np.ones(length, np.int32), np.zeros(length, np.int8))
    rows = []
    for batch in config.batches:
        kinds = [(precision, importance) for precision in runtimes for importance in (False, True)]
        calls = [partial(runtimes[precision].run, 0, [payload] * batch, importance) for precision, importance in kinds]
        medians = medians_in_turns(calls, config.rounds)
        for (precision, importance), call, seconds in zip(kinds, calls, medians, strict=True):
            row = {"tokens": length, "batch": batch, "precision": precision, "importance": importance}
            rows.append(row | {"ms": 1e3 * seconds, "launches": launches(call)})
    return rows


def _targets(level: str, rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    """Compare bfloat16 with float32, where both were measured: launches at all sizes, seconds at the largest."""
    pairs: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        pairs.setdefault((row["tokens"], row["batch"], row["importance"]), {})[row["precision"]] = row
    both = [pair for pair in pairs.values() if len(pair) == len(PRECISIONS)]
    if not both:
        return []
    counts = max(pair["bfloat16"]["launches"] / pair["float32"]["launches"] for pair in both)
    largest = pairs[max(row["tokens"] for row in rows), max(row["batch"] for row in rows), False]
    seconds = largest["bfloat16"]["ms"] / largest["float32"]["ms"]
    return [
        Target(f"{level}: launches in bfloat16 over float32, worst size", counts, "<=", 1.1, "x"),
        Target(f"{level}: seconds in bfloat16 over float32, largest size", seconds, "<=", 1.0, "x"),
    ]
