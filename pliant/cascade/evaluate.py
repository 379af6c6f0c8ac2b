"""Evaluates candidates on texts whose outputs were saved: answers, seconds, and how far each text goes. Runs no model.

Planning, reports, the simulator and tests of the service all walk through a candidate's levels by `walk`.

Shape suffixes: R texts, K numbers of an answer (see pliant/cascade/route.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.cascade import route
from pliant.cascade.artifact import (
    EXIT,
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
class EvaluationData:
    """The outputs of some texts and the calibrated levels: all that a candidate is evaluated by."""

    outputs: Outputs
    levels: tuple[LevelProfile, ...]
    tolerance: float = 0.0

    @property
    def regression(self) -> bool:
        return not self.outputs.classes

    def correct(self, answer_RK: Floats) -> Bools:
        """Return [R], whether each answer is the label, or in a regression within the tolerance of it.

        Of a text whose label is not known no answer is correct.
        """
        labels = self.outputs.labels
        if self.regression:
            return np.asarray(np.abs(answer_RK[:, 0] - labels) <= self.tolerance)
        return np.asarray(answer_RK.argmax(axis=1) == labels)


@dataclass(frozen=True, slots=True)
class Step:
    """The state of every text after one level of a path, as if all came so far."""

    answer_RK: Floats
    correct_R: Bools
    gain_R: Floats  # what the next level is worth; NaN: the answer suffices
    length_R: NDArray[np.int32]  # tokens read
    kept_R: Floats  # share of words read
    seconds_R: Floats  # of this level alone


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of a candidate, text by text."""

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
        """Return the share of texts that ran step `step` of the path; 0 is the first."""
        return float((self.steps_R > step).mean())


def subset(outputs: Outputs, rows: NDArray[np.integer]) -> Outputs:
    """Return the outputs of these texts only."""
    levels = tuple(LevelOutputs(level.logits[rows], level.length[rows]) for level in outputs.levels)
    pruned = tuple(
        replace(run, logits=run.logits[rows], length=run.length[rows], kept=run.kept[rows]) for run in outputs.pruned
    )
    return replace(outputs, labels=outputs.labels[rows], levels=levels, pruned=pruned)


def as_large(outputs: Outputs) -> Outputs:
    """Return the outputs with the large model's answers for labels: an accuracy is then the share that agrees with it."""
    return replace(outputs, labels=outputs.levels[-1].logits.argmax(axis=1).astype(np.float64))


def draws(count: int) -> Floats:
    """Return `count` evenly spread numbers in [0, 1): multiples of the golden ratio, without a random generator."""
    return np.asarray((np.arange(1, count + 1) * 0.6180339887498949) % 1.0)


def walk(candidate: Candidate, data: EvaluationData, draw_R: Floats | None = None) -> list[Step]:
    """Return the steps of a candidate over all texts, whether or not a text would go so far.

    `draw_R`: uniform numbers for the published gate; None: those of `draws`. Raises `InputError` as `level_step` does.
    """
    draw_R = draws(len(data.outputs.labels)) if draw_R is None else draw_R
    gates = (*candidate.gates, Gate("never"))
    steps: list[Step] = []
    for place, level in enumerate(candidate.levels):
        former = candidate.levels[:place]
        step = level_step(data, level, former, gates[place - 1].pruning if place else WHOLE, gates[place].pruning)
        answer_RK, correct_R = step.answer_RK, step.correct_R
        if place and gates[place - 1].weight != 1.0:
            answer_RK = route.combine(gates[place - 1], steps[-1].answer_RK, answer_RK)
            correct_R = data.correct(answer_RK)
        answers = [*(each.answer_RK for each in steps), answer_RK]
        gain_R = route.judge(gates[place], answers, step.length_R, draw_R, data.regression, data.tolerance)
        steps.append(replace(step, answer_RK=answer_RK, correct_R=correct_R, gain_R=gain_R))
    return steps


def level_step(
    data: EvaluationData, level: int, former: Sequence[int] = (), pruning: Pruning = WHOLE, onward: Pruning = WHOLE
) -> Step:
    """Return what a level answers by itself after `pruning` by the last of the levels before it. The gains are NaN.

    `former`: the levels that ran before; `onward`: the pruning by this level's own importances, which take time to
    measure. Raises `InputError` for a pruning that was not run.
    """
    read = _read(data.outputs, level, former[-1] if former else None, pruning)
    answer_RK = route.answers(data.levels[level], data.tolerance, read.logits, read.length)
    count = len(answer_RK)
    kept_R = read.kept.astype(np.float64) if isinstance(read, PrunedOutputs) else np.ones(count)
    seconds_R = seconds_of(table_of(data.levels[level], onward, done(data.levels, former, level)), read.length)
    return Step(answer_RK, data.correct(answer_RK), np.full(count, np.nan), read.length, kept_R, seconds_R)


def done(levels: Sequence[LevelProfile], former: Sequence[int], level: int) -> int:
    """Return how many layers of a level's trunk the exits among the levels before it have run."""
    trunk = levels[level].trunk or levels[level].classifier
    exits = (levels[number] for number in former)
    return max((each.layers for each in exits if each.kind == EXIT and each.trunk == trunk), default=0)


def settle(steps: Sequence[Step]) -> Evaluation:
    """Return the results if each text goes on as long as a gain is expected."""
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


def evaluate(candidate: Candidate, data: EvaluationData, draw_R: Floats | None = None) -> Evaluation:
    """Return the results of a candidate. Arguments and errors are those of `walk`."""
    return settle(walk(candidate, data, draw_R))


def measured(candidate: Candidate, data: EvaluationData, promised: float = 0.0) -> Candidate:
    """Return the candidate with the figures that it has on these texts."""
    return with_figures(candidate, evaluate(candidate, data), promised)


def with_figures(candidate: Candidate, evaluation: Evaluation, promised: float = 0.0) -> Candidate:
    """Return the candidate with the figures of an evaluation. `promised`: its lower bound of the accuracy."""
    shares = tuple(evaluation.share(place) for place in range(len(candidate.levels)))
    beyond = evaluation.steps_R > 1
    kept = float(evaluation.kept_R[beyond].mean()) if beyond.any() else 1.0
    return replace(
        candidate, accuracy=evaluation.accuracy, promised=promised, seconds=evaluation.seconds, shares=shares, kept=kept
    )


def with_test_accuracy(cascade: Cascade, outputs: Outputs) -> Cascade:
    """Return the cascade with its candidates' accuracies on the outputs of the test split."""
    data = EvaluationData(outputs, cascade.levels, cascade.tolerance)
    return replace(cascade, test_accuracy={c.name: evaluate(c, data).accuracy for c in cascade.candidates})


def seconds_of(table: LatencyTable, length_R: NDArray[np.integer]) -> Floats:
    """Return the seconds [R] of each text alone: linear between measured lengths, in proportion beyond the last."""
    alone = np.array([table.at(setting, 1) for setting in table.settings])
    inside = np.interp(length_R, table.settings, alone)
    return np.asarray(inside * np.maximum(1.0, length_R / table.settings[-1]))


def shuffled(count: int, seed: int) -> NDArray[np.int64]:
    """Return the numbers below `count` in random order."""
    return np.random.default_rng(seed).permutation(count).astype(np.int64)


def _read(outputs: Outputs, level: int, before: int | None, pruning: Pruning) -> LevelOutputs | PrunedOutputs:
    """Return the saved outputs of a level after this pruning. Raises `InputError` if there are none."""
    if pruning.rule == "none":
        return outputs.levels[level]
    for pruned in outputs.pruned:
        if (pruned.pruner, pruned.reader, pruned.pruning) == (before, level, pruning):
            return pruned
    raise InputError("pruning", f"{pruning.rule} {pruning.value:g} of level {before} for {level}", "one that was run")


def table_of(level: LevelProfile, onward: Pruning, layers: int = 0) -> LatencyTable:
    """Return the level's latency behind `layers` layers that have run, with importance if `onward` prunes by it."""
    if onward.rule == "none" or level.importance is None:
        return level.after(layers)
    return level.importance
