"""Measures the classifiers of two cascades beside each other, from the large ones on: seconds of launches in turns.

Bags and exits are timed with none of them: an exit's seconds are those of its trunk. Knows no Prefect and no registry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from pliant.cascade.artifact import CLASSIFIER, Cascade, Level, LevelProfile
from pliant.cascade.runtime import CascadeRuntime, Execution, Payload
from pliant.device import threads
from pliant.errors import DeviceError
from pliant.flows.beside import Beside, Pace
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.profiling.interleaved import ROUNDS, Pair, Rounds, interleave
from pliant.progress import Progress

Side = tuple[Cascade, Mapping[str, Level]]
"""The plan and its levels by digest."""
BATCH = 8


def beside(
    config: CascadeFlowConfig,
    champion: Side,
    challenger: Side,
    lengths: Sequence[int],
    progress: Progress,
    rounds: Rounds = ROUNDS,
) -> Beside:
    """Return the pace; `lengths`: of texts in tokens. Raises what a runtime raises that cannot be opened or run."""
    (old, _), (new, _) = champion, challenger
    if old.device != new.device:
        raise DeviceError(f"its profile is of {old.device}, this device is {new.device}")
    middle, long = (max(1, int(n)) for n in np.quantile(lengths, [0.5, 0.9]))
    pairs, points = list[Pair](), list[tuple[float, float]]()
    with threads(config.threads):
        for levels in zip(_classifiers(champion), _classifiers(challenger), strict=False):
            runtimes = [
                CascadeRuntime({0: artifacts[level.classifier]}, config.device, Execution(cascade.precision))
                for level, (cascade, artifacts) in zip(levels, (champion, challenger), strict=True)
            ]
            most = min(level.latency.settings[-1] for level in levels)
            for length, batch in ((min(middle, most), 1), (min(long, most), 1), (min(middle, most), BATCH)):
                text: Payload = np.ones(length, np.int32), np.zeros(length, np.int8)
                before, now = (partial(runtime.run, 0, [text] * batch) for runtime in runtimes)
                pairs.append((before, now))
                points.append((levels[0].latency.between(length, batch), levels[1].latency.between(length, batch)))
        return Beside(Pace(interleave(pairs, config.device, rounds, progress), tuple(points)))


def _classifiers(side: Side) -> list[LevelProfile]:
    return [level for level in reversed(side[0].levels) if level.kind == CLASSIFIER]
