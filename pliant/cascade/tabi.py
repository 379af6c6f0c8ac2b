"""The published search (Tabi), and the baselines: the best single model (INFaaS) and all models together (Cocktail).

Unlike our own planning (pliant/cascade/search.py) it goes through a grid of c (the confidence up to which texts go on)
and alpha (the pruning's multiple of the mean importance), has no bounds, and weights answers by accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Candidate, Gate, Pruning
from pliant.cascade.calibrate import published
from pliant.cascade.evaluate import (
    Evaluation,
    EvaluationData,
    Step,
    done,
    draws,
    level_step,
    measured,
    seconds_of,
    settle,
    table_of,
    with_figures,
)
from pliant.cascade.route import combine, confidence, reroute_probability

Floats = NDArray[np.float64]

ALWAYS = Gate("always")


@dataclass(frozen=True, slots=True)
class TabiConfig:
    """The published grid. The slope k is not published, so the cheapest of `slopes` counts, in its favour."""

    slopes: tuple[float, ...] = (5.0, 10.0, 20.0)
    first: float = 0.95  # value of c
    step: float = 0.05  # by which c falls
    loss: float = 0.02  # of the last model's accuracy, up to which alpha rises
    slowest: float = 1.5  # limit of a candidate's 75th percentile of seconds, over that of its slowest model
    levels: int = 3  # of one candidate, at most
    whole: bool = True  # try no pruning too, in the baseline's favour: on short texts pruning costs more than it saves


def single(data: EvaluationData, target: float) -> Candidate:
    """Return the cheapest model that meets the target by itself, or else the most accurate one (INFaaS)."""
    levels = single_levels(data)
    able = [level for level in levels if level.accuracy >= target]
    chosen = min(able, key=lambda level: level.seconds) if able else max(levels, key=lambda level: level.accuracy)
    return replace(chosen, name="single")


def single_levels(data: EvaluationData) -> list[Candidate]:
    """Return each level by itself as a candidate."""
    candidates = [
        Candidate(f"only {level.name}", (number,), (), 0, 0, 0, (1.0,)) for number, level in enumerate(data.levels)
    ]
    return [measured(candidate, data) for candidate in candidates]


def voting(data: EvaluationData) -> Candidate:
    """Return the candidate in which every model answers, weighted by its accuracy (Cocktail).

    It mixes probabilities, of which Cocktail's votes are a coarser form.
    """
    accuracy = [level.accuracy for level in data.levels]
    gates = tuple(
        replace(ALWAYS, weight=accuracy[i] / sum(accuracy[: i + 1]) if sum(accuracy[: i + 1]) else 1.0)
        for i in range(1, len(accuracy))
    )
    return measured(Candidate("voting", tuple(range(len(accuracy))), gates, 0, 0, 0, ()), data)


def tabi(data: EvaluationData, target: float, config: TabiConfig = TabiConfig()) -> Candidate | None:
    """Return the cheapest published candidate that meets the target on these texts; None if none does."""
    able = [candidate for candidate in candidates(data, config) if candidate.accuracy >= target]
    return replace(min(able, key=lambda candidate: candidate.seconds), name="tabi") if able else None


def candidates(data: EvaluationData, config: TabiConfig = TabiConfig()) -> list[Candidate]:
    """Return every combination of models and settings that the published search keeps."""
    steps = [level_step(data, level) for level in range(len(data.levels))]
    singles = [settle([step]) for step in steps]
    kept = []
    for path in _paths(data, config):
        for pruning in _prunings(data, path, singles, config):
            states = _states(data, path, pruning, steps)
            for slope in config.slopes:
                kept += list(_falling(states, slope, data, singles, config))
    return kept


def _paths(data: EvaluationData, config: TabiConfig) -> Iterator[tuple[int, ...]]:
    accuracy = [level.accuracy for level in data.levels]
    for size in range(2, config.levels + 1):
        for path in combinations(range(len(accuracy)), size):
            if all(accuracy[a] < accuracy[b] for a, b in pairwise(path)):
                yield path


def _prunings(
    data: EvaluationData, path: tuple[int, ...], singles: Sequence[Evaluation], config: TabiConfig
) -> Iterator[Pruning]:
    """Yield no pruning, then the prunings of rising alpha until the last model loses more than `loss`."""
    if config.whole:
        yield Pruning()
    runs = [o for o in data.outputs.pruned if (o.pruner, o.reader, o.pruning.rule) == (path[-2], path[-1], "mean")]
    for run in sorted(runs, key=lambda run: run.pruning.value):
        if data.correct(run.logits.astype(np.float64)).mean() < singles[path[-1]].accuracy - config.loss:
            return
        yield run.pruning


@dataclass(frozen=True, slots=True)
class _States:
    """What every level of a path answers by itself, whatever the thresholds."""

    path: tuple[int, ...]
    pruning: Pruning  # before the last level
    steps: list[Step]
    confidence_GR: list[Floats]
    draw_R: Floats


def _states(data: EvaluationData, path: tuple[int, ...], pruning: Pruning, single_steps: Sequence[Step]) -> _States:
    steps = [
        level_step(data, level, path[:place]) if done(data.levels, path[:place], level) else single_steps[level]
        for place, level in enumerate(path)
    ]
    if pruning.rule != "none":
        table = table_of(data.levels[path[-2]], pruning)
        steps[-2] = replace(steps[-2], seconds_R=seconds_of(table, steps[-2].length_R))
        steps[-1] = level_step(data, path[-1], path[:-1], pruning)
    sure_GR = [confidence(step.answer_RK, data.regression) for step in steps[:-1]]
    return _States(path, pruning, steps, sure_GR, draws(len(data.outputs.labels)))


def _falling(
    states: _States, slope: float, data: EvaluationData, singles: Sequence[Evaluation], config: TabiConfig
) -> Iterator[Candidate]:
    """Yield the candidates of falling c until the accuracy is below the mean of the path's models."""
    mean = float(np.mean([singles[level].accuracy for level in states.path]))
    slowest = max(float(np.quantile(singles[level].seconds_R, 0.75)) for level in states.path)
    for c in (config.first - config.step * i for i in range(round(config.first / config.step))):
        candidate, evaluation = _at(states, round(c, 6), slope, data)
        if evaluation.accuracy < mean:
            return
        if float(np.quantile(evaluation.seconds_R, 0.75)) <= config.slowest * slowest:
            yield with_figures(candidate, evaluation)


def _at(states: _States, c: float, slope: float, data: EvaluationData) -> tuple[Candidate, Evaluation]:
    """Return the candidate for one c, and its evaluation.

    The last level reads pruned texts, and its weight follows from the accuracies on the texts that come so far.
    """
    gate = Gate("tabi", c, slope)
    going_GR = [states.draw_R < reroute_probability(sure_R, c, slope) for sure_R in states.confidence_GR]
    on_R = np.logical_and.reduce(going_GR)
    before, after = states.steps[-2:]
    before_RK, after_RK, label_R = before.answer_RK[on_R], after.answer_RK[on_R], data.outputs.labels[on_R]
    weight = 1.0 if data.regression else published(before_RK, after_RK, label_R.astype(np.int64))
    last = replace(gate, pruning=states.pruning, weight=weight)
    correct_R = after.correct_R
    if weight != 1.0:
        correct_R = correct_R.copy()
        correct_R[on_R] = combine(last, before_RK, after_RK).argmax(axis=1) == label_R
    gains = [np.where(going_R, 1.0, np.nan) for going_R in going_GR]
    steps = [replace(step, gain_R=gain_R) for step, gain_R in zip(states.steps, gains, strict=False)]
    name = f"tabi {states.path} c={c:g} k={slope:g} {states.pruning.rule}{states.pruning.value:g}"
    gates = (*[gate] * (len(states.path) - 2), last)
    return Candidate(name, states.path, gates, 0, 0, 0, ()), settle([*steps, replace(after, correct_R=correct_R)])
