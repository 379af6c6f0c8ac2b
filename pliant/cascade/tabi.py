"""Candidates as published (Tabi, offline search), and the baselines: the best single model (INFaaS), all models (Cocktail).

Kept apart from our own planning (pliant/cascade/search.py): a grid of c and alpha, no bounds, weights by accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Candidate, Gate, Pruning
from pliant.cascade.ensemble import published
from pliant.cascade.evaluate import (
    Evaluation,
    Ground,
    Step,
    draws,
    figured,
    measured,
    opinion,
    seconds_of,
    settle,
    table_of,
)
from pliant.cascade.route import combine, confidence, reroute_probability

Floats = NDArray[np.float64]

ALWAYS = Gate("always")


@dataclass(frozen=True, slots=True)
class TabiConfig:
    """The published grid. The slope k is not published: the cheapest of `slopes` is taken, in the baseline's favour."""

    slopes: tuple[float, ...] = (5.0, 10.0, 20.0)
    first: float = 0.95  # of c, which falls by ...
    step: float = 0.05
    loss: float = 0.02  # of the large model's accuracy, up to which alpha rises
    slowest: float = 1.5  # times the 75th percentile of the slowest model, within which that of a candidate must lie
    levels: int = 3  # most in one candidate
    whole: bool = True  # also without pruning, in the baseline's favour: on short texts it costs more than it saves


def single(ground: Ground, target: float) -> Candidate:
    """INFaaS: the cheapest model that meets the target on these texts by itself; else the most accurate."""
    every = alone(ground)
    able = [one for one in every if one.accuracy >= target]
    chosen = min(able, key=lambda one: one.seconds) if able else max(every, key=lambda one: one.accuracy)
    return replace(chosen, name="single")


def alone(ground: Ground) -> list[Candidate]:
    """Each level by itself."""
    made = [
        Candidate(f"only {level.name}", (number,), (), 0, 0, 0, (1.0,)) for number, level in enumerate(ground.levels)
    ]
    return [measured(one, ground) for one in made]


def voting(ground: Ground) -> Candidate:
    """Cocktail: every model answers, weighted by its accuracy. (Of probabilities, which votes are a coarser form of.)"""
    accuracy = [level.accuracy for level in ground.levels]
    gates = tuple(
        replace(ALWAYS, weight=accuracy[i] / sum(accuracy[: i + 1]) if sum(accuracy[: i + 1]) else 1.0)
        for i in range(1, len(accuracy))
    )
    return measured(Candidate("voting", tuple(range(len(accuracy))), gates, 0, 0, 0, ()), ground)


def tabi(ground: Ground, target: float, config: TabiConfig = TabiConfig()) -> Candidate | None:
    """The cheapest published candidate that meets the target on these texts; None where none does."""
    able = [one for one in candidates(ground, config) if one.accuracy >= target]
    return replace(min(able, key=lambda one: one.seconds), name="tabi") if able else None


def candidates(ground: Ground, config: TabiConfig = TabiConfig()) -> list[Candidate]:
    """Every combination of models and settings that the published search keeps."""
    steps = [opinion(ground, level) for level in range(len(ground.levels))]
    singles = [settle([step]) for step in steps]
    kept = []
    for path in _paths(ground, config):
        for pruning in _prunings(ground, path, singles, config):
            states = _states(ground, path, pruning, steps)
            for slope in config.slopes:
                kept += list(_falling(states, slope, ground, singles, config))
    return kept


def _paths(ground: Ground, config: TabiConfig) -> Iterator[tuple[int, ...]]:
    """Two or more levels in ascending accuracy."""
    accuracy = [level.accuracy for level in ground.levels]
    for size in range(2, config.levels + 1):
        for path in combinations(range(len(accuracy)), size):
            if all(accuracy[a] < accuracy[b] for a, b in pairwise(path)):
                yield path


def _prunings(
    ground: Ground, path: tuple[int, ...], singles: Sequence[Evaluation], config: TabiConfig
) -> Iterator[Pruning]:
    """alpha rises until the last model loses more than `loss`; before it, no pruning at all."""
    if config.whole:
        yield Pruning()
    found = [o for o in ground.outputs.pruned if (o.pruner, o.reader, o.pruning.rule) == (path[-2], path[-1], "mean")]
    for one in sorted(found, key=lambda one: one.pruning.value):
        if ground.correct(one.logits.astype(np.float64)).mean() < singles[path[-1]].accuracy - config.loss:
            return
        yield one.pruning


@dataclass(frozen=True, slots=True)
class _States:
    """What every level of a path says by itself: no threshold changes it."""

    path: tuple[int, ...]
    pruning: Pruning  # before the last level
    steps: list[Step]
    confidence_GR: list[Floats]
    draw_R: Floats


def _states(ground: Ground, path: tuple[int, ...], pruning: Pruning, alone: Sequence[Step]) -> _States:
    steps = [alone[level] for level in path]
    if pruning.rule != "none":
        table = table_of(ground.levels[path[-2]], pruning)
        steps[-2] = replace(steps[-2], seconds_R=seconds_of(table, steps[-2].length_R))
        steps[-1] = opinion(ground, path[-1], path[-2], pruning)
    sure_GR = [confidence(step.answer_RK, ground.regression) for step in steps[:-1]]
    return _States(path, pruning, steps, sure_GR, draws(len(ground.outputs.labels)))


def _falling(
    states: _States, slope: float, ground: Ground, singles: Sequence[Evaluation], config: TabiConfig
) -> Iterator[Candidate]:
    """c falls until accuracy is below the mean of the models used."""
    mean = float(np.mean([singles[level].accuracy for level in states.path]))
    slowest = max(float(np.quantile(singles[level].seconds_R, 0.75)) for level in states.path)
    for c in (config.first - config.step * i for i in range(round(config.first / config.step))):
        candidate, found = _at(states, round(c, 6), slope, ground)
        if found.accuracy < mean:
            return
        if float(np.quantile(found.seconds_R, 0.75)) <= config.slowest * slowest:
            yield figured(candidate, found)


def _at(states: _States, c: float, slope: float, ground: Ground) -> tuple[Candidate, Evaluation]:
    """One candidate, its last level weighted by the accuracies on texts that come so far; words are pruned before it."""
    gate = Gate("tabi", c, slope)
    going_GR = [states.draw_R < reroute_probability(sure_R, c, slope) for sure_R in states.confidence_GR]
    on_R = np.logical_and.reduce(going_GR)
    before, after = states.steps[-2:]
    before_RK, after_RK, label_R = before.answer_RK[on_R], after.answer_RK[on_R], ground.outputs.labels[on_R]
    weight = 1.0 if ground.regression else published(before_RK, after_RK, label_R.astype(np.int64))
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
