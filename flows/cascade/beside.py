"""Measures the classifiers of two cascades beside each other, from the large ones on. Bags and exits go with their trunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from pliant.cascade.artifact import CLASSIFIER, Cascade, Level
from pliant.cascade.runtime import CascadeRuntime, Execution
from pliant.device import threads
from pliant.flows.beside import Beside, same_device
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.models.artifact import Classifier
from pliant.profiling.interleaved import interleave
from pliant.progress import Progress

Side = tuple[Cascade, Mapping[str, Level]]
"""The plan, and its levels by digest."""
BATCH = 8


def beside(config: CascadeFlowConfig, sides: tuple[Side, Side], lengths: Sequence[int], progress: Progress) -> Beside:
    """Return the ratio; `sides`: champion and challenger; `lengths`: of texts in tokens. Raises what a runtime raises."""
    (old, _), (new, _) = sides
    same_device(old.device, new.device)
    classifiers = [[level for level in reversed(each.levels) if level.kind == CLASSIFIER] for each in (old, new)]
    common = list(zip(*classifiers, strict=False))
    middle, long = (max(1, int(n)) for n in np.quantile(lengths, [0.5, 0.9]))
    launches = [
        (place, min(length, *(level.latency.settings[-1] for level in pair)), batch)
        for place, pair in enumerate(common)
        for length, batch in ((middle, 1), (long, 1), (middle, BATCH))
    ]
    calls, seconds = [], []
    with threads(config.threads):
        for (cascade, artifacts), levels in zip(sides, zip(*common, strict=True), strict=True):
            loaded = ((place, artifacts[level.classifier]) for place, level in enumerate(levels))
            parts = {place: part for place, part in loaded if isinstance(part, Classifier)}
            runtime = CascadeRuntime(parts, config.device, Execution(cascade.precision))
            texts = {n: (np.ones(n, np.int32), np.zeros(n, np.int8)) for _, n, _ in launches}
            calls.append([partial(runtime.run, place, [texts[length]] * batch) for place, length, batch in launches])
            seconds.append([levels[place].latency.between(length, batch) for place, length, batch in launches])
        return Beside(interleave(calls, config.device, progress), tuple(zip(*seconds, strict=True)))
