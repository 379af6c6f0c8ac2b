"""Plans a cascade from saved outputs: calibrates the levels, then finds the cheapest way that keeps its promise.

Texts are parted in two: on the first part everything is fitted and chosen (temperatures, gains, weights, pruning, path), on
the second thresholds are tested from the safest down until the promise would no longer hold (pliant/cascade/certify.py).
The large model alone is what remains where nothing passes. The published search and the baselines are in tabi.py.

Shape suffixes: R texts, S steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Candidate, Cascade, LevelProfile, Outputs
from pliant.cascade.calibrate import calibration_error, error_of, fit_spread, softmax, temperature
from pliant.cascade.certify import wilson
from pliant.cascade.evaluate import Ground, evaluate, figured, opinion, shuffled, subset
from pliant.cascade.route import answers, confidence
from pliant.cascade.search import Promise, SearchConfig, planned, ways
from pliant.cascade.tabi import TabiConfig, alone, single, tabi, voting
from pliant.errors import InputError
from pliant.latency import LatencyTable

LEAST_TEXTS = 40


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """`drop`: how far below the large model's accuracy the target lies, unless `target` says it outright.

    `horizon`: over so many requests the promise is to hold, at `confidence` (None: in the long run). `further`: drops that
    candidates are planned for besides.
    """

    drop: float = 0.01
    target: float | None = None
    confidence: float = 0.95
    horizon: int | None = 1000
    further: tuple[float, ...] = (0.0, 0.005, 0.02, 0.05)
    tuned: float = 0.4  # share of the texts that everything is fitted on
    seed: int = 0
    search: SearchConfig = field(default_factory=SearchConfig)
    tabi: TabiConfig = field(default_factory=TabiConfig)

    def __post_init__(self) -> None:
        for drop in (self.drop, *self.further):
            if not 0 <= drop < 1:
                raise InputError("drop or further", drop, "from 0 to below 1")
        if not 0.5 <= self.confidence < 1:
            raise InputError("confidence", self.confidence, "at least 0.5 and below 1")
        if not 0 < self.tuned < 1:
            raise InputError("tuned", self.tuned, "between 0 and 1")
        if self.target is not None and not 0 < self.target < 1:
            raise InputError("target", self.target, "between 0 and 1")
        if self.horizon is not None and self.horizon < 1:
            raise InputError("horizon", self.horizon, "at least 1, or left out")


def make(
    outputs: Outputs,
    latency: Sequence[LatencyTable],
    importance: Sequence[LatencyTable | None],
    config: PlanConfig,
    pair: bool,
    device: str,
) -> Cascade:
    """The cascade without accuracies on a test split (see evaluate.tested). Raises `InputError` for too few texts."""
    first, second = parts(len(outputs.labels), config)
    tuning, proving = subset(outputs, first), subset(outputs, second)
    tolerance = tolerance_of(tuning)
    levels = calibrated(tuning, proving, tolerance, latency, importance)
    grounds = Ground(tuning, levels, tolerance), Ground(proving, levels, tolerance)
    whole = Ground(outputs, levels, tolerance)
    large = large_of(grounds[0])
    target = config.target or levels[large].accuracy - config.drop
    made = [*_ours(grounds, large, config), *_others(whole, target, config)]
    candidates = tuple(_proven(one, grounds[1], config) for one in made)
    return Cascade(
        task=outputs.task,
        classes=outputs.classes,
        pair=pair,
        tolerance=tolerance,
        device=device,
        levels=levels,
        candidates=candidates[:1] + tuple(sorted(candidates[1:], key=lambda one: one.seconds)),
        target=target,
        confidence=config.confidence,
        test_accuracy={},
        data=outputs.data,
    )


def parts(count: int, config: PlanConfig) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to tune with and rows to prove with."""
    if count < LEAST_TEXTS:
        raise InputError("texts to plan with", count, f"at least {LEAST_TEXTS}")
    order = shuffled(count, config.seed)
    cut = max(1, min(count - 1, round(config.tuned * count)))
    return order[:cut], order[cut:]


def tolerance_of(outputs: Outputs) -> float:
    """Regression: an answer within the best level's root mean square error counts as correct. Else 0."""
    if outputs.classes:
        return 0.0
    errors = (level.logits[:, 0] - outputs.labels for level in outputs.levels)
    return min(float(np.sqrt(np.mean(error_R**2))) for error_R in errors)


def large_of(tuning: Ground) -> int:
    """The most accurate level, which promises are measured by; of equal ones the largest. Not from proving texts."""
    accuracy = [float(opinion(tuning, level).correct_R.mean()) for level in range(len(tuning.levels))]
    return max(range(len(accuracy)), key=lambda level: (accuracy[level], level))


def calibrated(
    tuning: Outputs,
    proving: Outputs,
    tolerance: float,
    latency: Sequence[LatencyTable],
    importance: Sequence[LatencyTable | None],
) -> tuple[LevelProfile, ...]:
    """Every level: fitted on one part, its errors and accuracy told of the other."""
    levels = []
    for number, name in enumerate(tuning.names):
        level = LevelProfile(name, tuning.classifiers[number], 1.0, (), 0, 0, 0, latency[number], importance[number])
        fit = _fit_spread if not tuning.classes else _fit_temperature
        levels.append(_judged(fit(level, tuning, number), proving, number, tolerance))
    return tuple(levels)


def _fit_temperature(level: LevelProfile, tuning: Outputs, number: int) -> LevelProfile:
    found = temperature(tuning.levels[number].logits, tuning.labels.astype(np.int64))
    return replace(level, temperature=found)


def _fit_spread(level: LevelProfile, tuning: Outputs, number: int) -> LevelProfile:
    saved = tuning.levels[number]
    return replace(level, spread=fit_spread(saved.logits[:, 0].astype(np.float64), tuning.labels, saved.length))


def _judged(level: LevelProfile, proving: Outputs, number: int, tolerance: float) -> LevelProfile:
    saved = proving.levels[number]
    answer_RK = answers(level, tolerance, saved.logits, saved.length)
    correct_R = Ground(proving, (), tolerance).correct(answer_RK)
    error = error_of(confidence(answer_RK, not proving.classes), correct_R)
    before = error
    if proving.classes:
        before = calibration_error(softmax(saved.logits, 1.0), proving.labels.astype(np.int64))
    return replace(level, accuracy=float(correct_R.mean()), error_before=before, error=error)


def _ours(grounds: tuple[Ground, Ground], large: int, config: PlanConfig) -> list[Candidate]:
    """The default, and one for every further drop; none twice."""
    promises = [Promise(config.drop, config.target, config.confidence, config.horizon)]
    promises += [Promise(drop, None, config.confidence, config.horizon) for drop in config.further]
    known = list(ways(grounds[0], large, config.search))
    made = [planned(*grounds, large, promise, config.search, known) for promise in promises]
    named = ["default", *(f"default {100 * drop:g}%" for drop in config.further)]
    seen: dict[tuple[object, ...], Candidate] = {}
    for name, one in zip(named, made, strict=True):
        seen.setdefault((one.levels, one.gates), replace(one, name=name))
    return list(seen.values())


def _others(ground: Ground, target: float, config: PlanConfig) -> list[Candidate]:
    """The published candidate where one meets the target, every level alone, and all of them together."""
    found = tabi(ground, target, config.tabi)
    return [*([found] if found else []), single(ground, target), *alone(ground), voting(ground)]


def _proven(candidate: Candidate, proving: Ground, config: PlanConfig) -> Candidate:
    """Its figures on texts that it was not tuned on."""
    found = evaluate(candidate, proving)
    return figured(candidate, found, wilson(found.correct_R, config.confidence))
