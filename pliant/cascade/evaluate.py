"""What a candidate makes of texts whose outputs were saved: answers, costs, and how far each text goes. Runs no model.

The same walk serves planning (all thresholds at once), reports, the simulator and tests of the service.

Shape suffixes: R texts, K numbers of an answer, S steps of a candidate's path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.cascade import route
from pliant.cascade.artifact import (
    Candidate,
    Cascade,
    Gate,
    LevelOutputs,
    LevelProfile,
    Outputs,
    PrunedOutputs,
    Pruning,
)
from pliant.errors import InputError
from pliant.latency import LatencyTable

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WHOLE = Pruning()  # every word is read


@dataclass(frozen=True, slots=True)
class Ground:
    """Outputs of some texts with calibrated levels: all that is needed to judge a candidate."""

    outputs: Outputs
    levels: tuple[LevelProfile, ...]
    tolerance: float = 0.0

    @property
    def regression(self) -> bool:
        return not self.outputs.classes

    def correct(self, answer_RK: Floats) -> Bools:
        labels = self.outputs.labels
        if self.regression:
            return np.asarray(np.abs(answer_RK[:, 0] - labels) <= self.tolerance)
        return np.asarray(answer_RK.argmax(axis=1) == labels)


@dataclass(frozen=True, slots=True)
class Step:
    """Every text's state after one step of a path, if it came so far."""

    answer_RK: Floats
    correct_R: Bools
    gain_R: Floats  # expected of the next step; NaN: the answer suffices
    length_R: NDArray[np.int32]  # tokens read
    kept_R: Floats  # share of words read
    seconds_R: Floats  # of this step alone


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What became of every text."""

    correct_R: Bools
    seconds_R: Floats
    steps_R: NDArray[np.int64]  # how many levels ran
    kept_R: Floats

    @property
    def accuracy(self) -> float:
        return float(self.correct_R.mean())

    @property
    def seconds(self) -> float:
        return float(self.seconds_R.mean())

    def share(self, step: int) -> float:
        """Of texts that ran step `step` (0: the first)."""
        return float((self.steps_R > step).mean())


def subset(outputs: Outputs, rows: NDArray[np.integer]) -> Outputs:
    """The outputs of some texts."""
    levels = tuple(LevelOutputs(one.logits[rows], one.length[rows]) for one in outputs.levels)
    pruned = tuple(
        replace(one, logits=one.logits[rows], length=one.length[rows], kept=one.kept[rows]) for one in outputs.pruned
    )
    return replace(outputs, labels=outputs.labels[rows], levels=levels, pruned=pruned)


def draws(count: int) -> Floats:
    """Evenly spread numbers in [0, 1) (multiples of the golden ratio), where no generator is passed in."""
    return np.asarray((np.arange(1, count + 1) * 0.6180339887498949) % 1.0)


def walk(candidate: Candidate, ground: Ground, draw_R: Floats | None = None) -> list[Step]:
    """Every text through every step, whether or not it would go so far."""
    draw_R = draws(len(ground.outputs.labels)) if draw_R is None else draw_R
    gates = (*candidate.gates, Gate("never"))
    steps: list[Step] = []
    for place, level in enumerate(candidate.levels):
        before = candidate.levels[place - 1] if place else None
        step = opinion(ground, level, before, gates[place - 1].pruning if place else WHOLE, gates[place].pruning)
        answer_RK, correct_R = step.answer_RK, step.correct_R
        if place and gates[place - 1].weight != 1.0:
            answer_RK = route.combine(gates[place - 1], steps[-1].answer_RK, answer_RK)
            correct_R = ground.correct(answer_RK)
        gain_R = route.judge(gates[place], answer_RK, draw_R, ground.regression)
        steps.append(replace(step, answer_RK=answer_RK, correct_R=correct_R, gain_R=gain_R))
    return steps


def opinion(
    ground: Ground, level: int, before: int | None = None, pruning: Pruning = WHOLE, onward: Pruning = WHOLE
) -> Step:
    """What a level says by itself of every text as `pruning` by the level before leaves it; gains are left open.

    `onward`: what its own importances choose words for. Raises `InputError` for a pruning that was not run.
    """
    read = _read(ground.outputs, level, before, pruning)
    answer_RK = route.answers(ground.levels[level], ground.tolerance, read.logits, read.length)
    count = len(answer_RK)
    kept_R = read.kept.astype(np.float64) if isinstance(read, PrunedOutputs) else np.ones(count)
    seconds_R = seconds_of(table_of(ground.levels[level], onward), read.length)
    return Step(answer_RK, ground.correct(answer_RK), np.full(count, np.nan), read.length, kept_R, seconds_R)


def settle(steps: Sequence[Step]) -> Evaluation:
    """Each text goes on as long as a gain is expected."""
    count = len(steps[0].correct_R)
    correct_R, seconds_R = steps[0].correct_R.copy(), steps[0].seconds_R.copy()
    kept_R, steps_R = steps[0].kept_R.copy(), np.ones(count, dtype=np.int64)
    going_R = np.ones(count, dtype=bool)
    for step, following in pairwise(steps):
        going_R &= ~np.isnan(step.gain_R)
        correct_R[going_R] = following.correct_R[going_R]
        kept_R[going_R] = following.kept_R[going_R]
        seconds_R[going_R] += following.seconds_R[going_R]
        steps_R[going_R] += 1
    return Evaluation(correct_R, seconds_R, steps_R, kept_R)


def evaluate(candidate: Candidate, ground: Ground, draw_R: Floats | None = None) -> Evaluation:
    return settle(walk(candidate, ground, draw_R))


def measured(candidate: Candidate, ground: Ground, promised: float = 0.0) -> Candidate:
    """The candidate with its figures from these texts."""
    return figured(candidate, evaluate(candidate, ground), promised)


def figured(candidate: Candidate, found: Evaluation, promised: float = 0.0) -> Candidate:
    """The candidate with the figures of what became of the texts."""
    shares = tuple(found.share(place) for place in range(len(candidate.levels)))
    beyond = found.steps_R > 1
    kept = float(found.kept_R[beyond].mean()) if beyond.any() else 1.0
    return replace(
        candidate, accuracy=found.accuracy, promised=promised, seconds=found.seconds, shares=shares, kept=kept
    )


def tested(cascade: Cascade, outputs: Outputs) -> Cascade:
    """The cascade with its candidates' accuracies on the test split's outputs."""
    ground = Ground(outputs, cascade.levels, cascade.tolerance)
    return replace(cascade, test_accuracy={c.name: evaluate(c, ground).accuracy for c in cascade.candidates})


def seconds_of(table: LatencyTable, length_R: NDArray[np.integer]) -> Floats:
    """Seconds of each text alone: linear between the measured lengths, in proportion beyond the last."""
    alone = np.array([table.at(setting, 1) for setting in table.settings])
    inside = np.interp(length_R, table.settings, alone)
    return np.asarray(inside * np.maximum(1.0, length_R / table.settings[-1]))


def shuffled(count: int, seed: int) -> NDArray[np.int64]:
    """Rows in random order."""
    return np.random.default_rng(seed).permutation(count).astype(np.int64)


def _read(outputs: Outputs, level: int, before: int | None, pruning: Pruning) -> LevelOutputs | PrunedOutputs:
    """What the level makes of the texts as the pruning by the level before leaves them."""
    if pruning.rule == "none":
        return outputs.levels[level]
    for one in outputs.pruned:
        if (one.pruner, one.reader, one.pruning) == (before, level, pruning):
            return one
    raise InputError("pruning", f"{pruning.rule} {pruning.value:g} of level {before} for {level}", "one that was run")


def table_of(level: LevelProfile, onward: Pruning) -> LatencyTable:
    """With importance where the next level's words are chosen by it."""
    if onward.rule == "none" or level.importance is None:
        return level.latency
    return level.importance
