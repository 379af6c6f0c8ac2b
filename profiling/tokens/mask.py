"""Measures per gamma below 0 how many labels change without proportional attention, and what it costs.

In proportional attention (ToMe, Eq. 1) a merged token counts as often as the tokens it stands for; here that is a mask.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.progress import Progress, silent
from pliant.tokens.artifact import GAMMAS, Backbone, Task
from pliant.tokens.runtime import Execution, Payload, TokensRuntime

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class MaskEffect:
    """At one gamma, over all images. `accuracies`: shares of right labels with and without, where labels are given."""

    gamma: int
    agreement: float  # share of labels that are the same with and without the mask
    gain: float  # seconds with the mask over seconds without, median of interleaved pairs
    accuracies: tuple[float, float] | None = None


def compare(
    backbone: Backbone,
    tasks: Sequence[Task],
    images: Mapping[str, Pixels],
    device: str = "cpu",
    gammas: Sequence[int] = GAMMAS,
    labels: Mapping[str, NDArray[np.int64]] | None = None,
    batch: int = 32,
    progress: Progress = silent,
) -> tuple[MaskEffect, ...]:
    """Compare both at every gamma below 0.

    `images` (and `labels`) are by task, [n, size, size, 3]. Raises `InputError` as the runtime does.
    """
    merging = [gamma for gamma in gammas if gamma < 0]
    masked, plain = (
        TokensRuntime(backbone, tasks[0].backbone, tasks, device, Execution(unmasked=frozenset(unmasked)))
        for unmasked in ((), merging)
    )
    payloads = [Payload(task, image) for task, pixels in images.items() for image in pixels]
    right = None if labels is None else np.concatenate([labels[task] for task in images])
    effects = []
    for gamma in merging:
        effects.append(_effect(gamma, masked, plain, payloads, right, batch))
        progress(len(effects), len(merging))
    return tuple(effects)


def _effect(
    gamma: int,
    masked: TokensRuntime,
    plain: TokensRuntime,
    payloads: Sequence[Payload],
    right: NDArray[np.int64] | None,
    batch: int,
) -> MaskEffect:
    """Run every batch on both, one after the other, and the first batch once more in front to warm up."""
    batches = [payloads[start : start + batch] for start in range(0, len(payloads), batch)]
    for runtime in (masked, plain):
        runtime.run(gamma, batches[0])
    with_mask: list[int] = []
    without: list[int] = []
    ratios = []
    for part in batches:
        slow = _add_labels(with_mask, masked, gamma, part)
        ratios.append(slow / _add_labels(without, plain, gamma, part))
    agreement = float(np.mean(np.equal(with_mask, without)))
    accuracies = None if right is None else (float(np.mean(with_mask == right)), float(np.mean(without == right)))
    return MaskEffect(gamma, agreement, float(np.median(ratios)), accuracies)


def _add_labels(labels: list[int], runtime: TokensRuntime, gamma: int, part: Sequence[Payload]) -> float:
    """Add one batch's labels to `labels`, and return the seconds that it took."""
    start = time.perf_counter()
    run = runtime.run(gamma, part)
    seconds = time.perf_counter() - start
    labels.extend(int(p.argmax()) for p in run.probabilities)
    return seconds
