"""Which of two takes longer, measured in turns: the ratio of their seconds and an interval of it. Knows no model.

Each round runs champion, challenger, challenger, champion at every point, so that what slows the machine for longer than a
round slows both, and of each side's two calls the faster counts: what interrupts a call only adds to it. Of the rounds the
median counts, and the interval resamples them (Efron 1979). On a CPU a call's seconds are those of the processor, of which
other processes take none; a model that waits without computing is not seen to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pliant.progress import Progress, silent

Call = Callable[[], object]
"""Waits for all work that it starts on the device."""
WARMUP, LEAST, MOST = 2, 12, 60  # rounds
BUDGET = 8.0  # seconds, after which there are no more rounds than `LEAST`
DRAWS = 400


@dataclass(frozen=True, slots=True)
class Ratio:
    """The challenger's seconds over the champion's, the geometric mean of all points, and its interval at 95%."""

    middle: float
    low: float
    high: float


def interleave(
    sides: Sequence[Sequence[Call]],
    device: str,
    progress: Progress = silent,
    budget: float = BUDGET,
    clock: Callable[[], float] | None = None,
) -> Ratio:
    """Return the ratio by the calls of both sides, champion and challenger, one a point."""
    rounds: list[list[list[float]]] = []
    now = clock or (time.process_time if device == "cpu" else time.perf_counter)
    begun = now()
    while len(rounds) < WARMUP + LEAST or (len(rounds) < WARMUP + MOST and now() - begun < budget):
        pairs = zip(*sides, strict=True)
        rounds.append([[_seconds(call, now) for call in (old, new, new, old)] for old, new in pairs])
        progress(len(rounds), WARMUP + MOST)
    seconds_NPC = np.array(rounds[WARMUP:])  # N rounds, P points, C calls
    log_NP = np.log(seconds_NPC[..., 1:3].min(-1) / seconds_NPC[..., ::3].min(-1))
    drawn_DN = np.random.default_rng(0).integers(len(log_NP), size=(DRAWS, len(log_NP)))
    low, high = np.quantile(np.median(log_NP[drawn_DN], axis=1).mean(-1), [0.025, 0.975])
    return Ratio(*(float(np.exp(log)) for log in (np.median(log_NP, axis=0).mean(), low, high)))


def _seconds(call: Call, clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start
