"""Which of two takes longer, measured in turns: the ratio of their seconds and an interval of it. Knows no model.

Each round runs champion, challenger, challenger, champion at every point, so that what slows the machine for longer than a
round slows both, and of each side's two calls the faster counts: what interrupts a call only adds to it. Of the rounds the
median counts, and the interval resamples them (Efron 1979). On a CPU a call's seconds are those of the processor, of which
other processes take none; a model that waits without computing is not seen to.

Shape suffixes: N rounds, P points, C calls of a round, D draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pliant.progress import Progress, silent

Call = Callable[[], object]
Pair = tuple[Call, Call]
"""The champion's call and the challenger's at one point; each waits for all work that it starts on the device."""

ORDER = (0, 1, 1, 0)  # of the sides
DRAWS = 400


@dataclass(frozen=True, slots=True)
class Rounds:
    """At least `least` after those to warm up, then further ones until `budget` seconds are spent or there are `most`."""

    warmup: int = 2
    least: int = 12
    most: int = 60
    budget: float = 8.0


ROUNDS = Rounds()


@dataclass(frozen=True, slots=True)
class Ratio:
    """The challenger's seconds over the champion's, the geometric mean of all points, and its interval at 95%."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.2f} to {self.high:.2f} times the champion's seconds"


def interleave(
    pairs: Sequence[Pair],
    device: str,
    config: Rounds = ROUNDS,
    progress: Progress = silent,
    clock: Callable[[], float] | None = None,
) -> Ratio:
    """Return the ratio over all points, which are at least one."""
    rounds: list[list[list[float]]] = []
    clock = clock or (time.process_time if device == "cpu" else time.perf_counter)
    begun = clock()
    for number in range(config.warmup + config.most):
        if number >= config.warmup + config.least and clock() - begun > config.budget:
            break
        rounds.append([[_seconds(pair[side], clock) for side in ORDER] for pair in pairs])
        progress(number + 1, config.warmup + config.most)
    seconds_NPC = np.array(rounds[config.warmup :])
    log_NP = np.log(np.minimum(seconds_NPC[..., 1], seconds_NPC[..., 2]))
    log_NP -= np.log(np.minimum(seconds_NPC[..., 0], seconds_NPC[..., 3]))
    drawn_DN = np.random.default_rng(0).integers(len(log_NP), size=(DRAWS, len(log_NP)))
    low, high = np.quantile(np.median(log_NP[drawn_DN], axis=1).mean(-1), [0.025, 0.975])
    return Ratio(*(float(np.exp(log)) for log in (np.median(log_NP, axis=0).mean(), low, high)))


def _seconds(call: Call, clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start
