"""Chooses the precision of a cascade's levels from what was measured in each. Knows no Prefect and no store.

Shape suffixes: R texts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flows.cascade.config import CascadeFlowConfig
from flows.cascade.stages import Latencies
from pliant.cascade.artifact import Outputs
from pliant.cascade.plan import tolerance_of


def in_precision(config: CascadeFlowConfig, precision: str) -> CascadeFlowConfig:
    """Return the config whose outputs and latencies are measured in this precision."""
    outputs, latency = config.outputs, config.latency
    return replace(
        config,
        outputs=replace(outputs, execution=replace(outputs.execution, precision=precision)),
        latency=replace(latency, execution=replace(latency.execution, precision=precision)),
    )


def slowdown(half: Latencies, full: Latencies) -> float:
    """Return the seconds of `half` over those of `full`: the geometric mean over all levels, lengths and batches."""
    pairs = zip(half.plain, full.plain, strict=True)
    ratios = [np.log(np.asarray(low.seconds) / np.asarray(high.seconds)).ravel() for low, high in pairs]
    return float(np.exp(np.concatenate(ratios).mean()))


def cost(half: Outputs, full: Outputs) -> float:
    """Return how many answers fewer `half` gets right than `full`, as a share, of the level that loses most."""
    tolerance = tolerance_of(full)
    right = zip(_right(half, tolerance), _right(full, tolerance), strict=True)
    return max(float(before_R.mean() - after_R.mean()) for after_R, before_R in right)


def _right(outputs: Outputs, tolerance: float) -> list[NDArray[np.bool_]]:
    """Return for every level which texts it answers correctly."""
    if outputs.classes:
        return [level.logits.argmax(1) == outputs.labels for level in outputs.levels]
    return [np.abs(level.logits[:, 0] - outputs.labels) <= tolerance for level in outputs.levels]
