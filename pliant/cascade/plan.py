"""Plans a cascade from saved outputs: calibrates the levels, then finds the cheapest candidate that keeps its promise.

The texts are split in two. On the first part everything is fitted and chosen (temperatures, gains, weights, pruning,
path). On the second part the thresholds are tested from the safest on, until the promise no longer holds
(pliant/cascade/certify.py). If nothing passes, the large model serves alone. That is the last level, whatever the tuning
texts say of it: which of several is the most accurate there is partly luck, and a standard chosen by it would be another
one than the user named. The published search and the baselines are in tabi.py.

Shape suffixes: R texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Candidate, Cascade, LevelProfile, Outputs
from pliant.cascade.calibrate import calibration_error, error_of, fit_spread, temperature
from pliant.cascade.certify import clopper_pearson
from pliant.cascade.evaluate import EvaluationData, evaluate, shuffled, subset, with_figures
from pliant.cascade.route import answers, confidence, softmax
from pliant.cascade.search import Promise, SearchConfig, plan_candidate, propose
from pliant.cascade.tabi import TabiConfig, single, single_levels, tabi, voting
from pliant.errors import InputError
from pliant.latency import LatencyTable

LEAST_TEXTS = 40


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """What to plan for. `drop`: how far below the large model's accuracy the target lies, unless `target` gives it.

    `horizon`: the number of requests over which the promise is to hold at `confidence`; None: in the long run.
    `further`: other drops, for each of which a candidate is planned too. Raises `InputError` for a value outside its
    limits.
    """

    drop: float = 0.01
    target: float | None = None
    confidence: float = 0.95
    horizon: int | None = 1000
    further: tuple[float, ...] = (0.0, 0.005, 0.02, 0.05)
    tuned: float = 0.4  # share of the texts on which everything is fitted
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
    """Return the planned cascade. Its accuracies on a test split come later (`evaluate.with_test_accuracy`).

    `latency` and `importance`: the tables of each level; `pair`: whether an input is two texts; `device`: the device
    class. Raises `InputError` for fewer than 40 texts.
    """
    first, second = split_rows(len(outputs.labels), config)
    tuning, proving = subset(outputs, first), subset(outputs, second)
    tolerance = tolerance_of(tuning)
    levels = calibrated(tuning, proving, tolerance, latency, importance)
    halves = EvaluationData(tuning, levels, tolerance), EvaluationData(proving, levels, tolerance)
    whole = EvaluationData(outputs, levels, tolerance)
    large = len(levels) - 1
    target = config.target or levels[large].accuracy - config.drop
    published = tabi(whole, target, config.tabi)
    # The published candidate, if one meets the target, every level alone, and all levels together.
    others = [*([published] if published else []), single(whole, target), *single_levels(whole), voting(whole)]
    candidates = []
    for candidate in (*_ours(halves, large, config), *others):
        evaluation = evaluate(candidate, halves[1])  # on texts that it was not tuned on
        promised = clopper_pearson(evaluation.correct_R, config.confidence)
        candidates.append(with_figures(candidate, evaluation, promised))
    return Cascade(
        task=outputs.task,
        classes=outputs.classes,
        pair=pair,
        tolerance=tolerance,
        device=device,
        levels=levels,
        candidates=(candidates[0], *sorted(candidates[1:], key=lambda candidate: candidate.seconds)),
        target=target,
        confidence=config.confidence,
        test_accuracy={},
        data=outputs.data,
        precision=outputs.precision,
    )


def split_rows(count: int, config: PlanConfig) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to tune with and the rows to test with. Raises `InputError` for fewer than 40 texts."""
    if count < LEAST_TEXTS:
        raise InputError("texts to plan with", count, f"at least {LEAST_TEXTS}")
    order = shuffled(count, config.seed)
    cut = max(1, min(count - 1, round(config.tuned * count)))
    return order[:cut], order[cut:]


def tolerance_of(outputs: Outputs) -> float:
    """Return the tolerance of a regression, the best level's root mean square error; 0 for a classification."""
    if outputs.classes:
        return 0.0
    errors = (level.logits[:, 0] - outputs.labels for level in outputs.levels)
    return min(float(np.sqrt(np.mean(error_R**2))) for error_R in errors)


def calibrated(
    tuning: Outputs,
    proving: Outputs,
    tolerance: float,
    latency: Sequence[LatencyTable],
    importance: Sequence[LatencyTable | None],
) -> tuple[LevelProfile, ...]:
    """Return every level, calibrated on the tuning texts, with its errors and accuracy on the proving ones."""
    levels = []
    for number, name in enumerate(tuning.names):
        level = LevelProfile(name, tuning.classifiers[number], 1.0, (), 0, 0, 0, latency[number], importance[number])
        seen, held = tuning.levels[number], proving.levels[number]
        if tuning.classes:
            level = replace(level, temperature=temperature(seen.logits, tuning.labels.astype(np.int64)))
        else:
            spread = fit_spread(seen.logits[:, 0].astype(np.float64), tuning.labels, seen.length)
            level = replace(level, spread=spread)
        answer_RK = answers(level, tolerance, held.logits, held.length)
        correct_R = EvaluationData(proving, (), tolerance).correct(answer_RK)
        before = error = error_of(confidence(answer_RK, not proving.classes), correct_R)
        if proving.classes:
            before = calibration_error(softmax(held.logits, 1.0), proving.labels.astype(np.int64))
        levels.append(replace(level, accuracy=float(correct_R.mean()), error_before=before, error=error))
    return tuple(levels)


def _ours(halves: tuple[EvaluationData, EvaluationData], large: int, config: PlanConfig) -> list[Candidate]:
    """Return the default candidate and one for every further drop, without duplicates."""
    promises = [Promise(config.drop, config.target, config.confidence, config.horizon)]
    promises += [Promise(drop, None, config.confidence, config.horizon) for drop in config.further]
    proposals = list(propose(halves[0], large, config.search))
    candidates = [plan_candidate(*halves, large, promise, config.search, proposals) for promise in promises]
    named = ["default", *(f"default {100 * drop:g}%" for drop in config.further)]
    seen: dict[tuple[object, ...], Candidate] = {}
    for name, candidate in zip(named, candidates, strict=True):
        seen.setdefault((candidate.levels, candidate.gates), replace(candidate, name=name))
    return list(seen.values())
