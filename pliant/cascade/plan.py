"""Plans a cascade from saved outputs: calibrates the levels, then finds the cheapest candidate that keeps its promise.

The texts are split in two. On the first part everything is fitted and chosen (temperatures, routers, path). On the second
part the thresholds are tested from the safest on, until the promise no longer holds (pliant/cascade/search.py). If nothing
passes, the large model serves alone. That is the last level, whatever the texts say of it: which of several is the most
accurate there is partly luck, and a standard chosen by it would be another one than the user named. The published search
and the baselines are in tabi.py.

Shape suffixes: R texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import CLASSIFIER, Candidate, Cascade, LevelProfile, Outputs, Resumed
from pliant.cascade.calibrate import calibration_error, error_of, fit_spread, temperature
from pliant.cascade.certify import clopper_pearson
from pliant.cascade.evaluate import EvaluationData, evaluate, shuffled, subset, with_figures
from pliant.cascade.route import answers, confidence, softmax
from pliant.cascade.search import Promise, Proposal, SearchConfig, cheapest, propose, prove
from pliant.cascade.tabi import TabiConfig, single, single_levels, tabi, voting
from pliant.errors import InputError
from pliant.latency import LatencyTable

LEAST_TEXTS = 40


@dataclass(frozen=True, slots=True)
class PlanConfig:
    """What to plan for. `drop`: how far below the large model's accuracy the target lies, unless `target` gives it.

    Without labels `drop` is the share of answers that may differ from the large model's. `horizon`: the number of requests
    over which the promise is to hold at `confidence`; None: in the long run. `further`: other drops, for each of which a
    candidate is planned too. `labels`: to look at for one candidate, at most. Raises `InputError` for a value outside its
    limits.
    """

    drop: float = 0.01
    target: float | None = None
    confidence: float = 0.95
    horizon: int | None = 1000
    further: tuple[float, ...] = (0.0, 0.005, 0.02, 0.05)
    tuned: float = 0.25  # share of the texts on which everything is fitted
    labels: int = 300
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
        if self.labels < 0:
            raise InputError("labels", self.labels, "at least 0")
        if self.horizon is not None and self.horizon < 1:
            raise InputError("horizon", self.horizon, "at least 1, or left out")


@dataclass(frozen=True, slots=True)
class Measured:
    """What one level is, and its latency on the device: `trunk` and `layers` as in `LevelProfile`."""

    latency: LatencyTable
    importance: LatencyTable | None = None
    kind: str = CLASSIFIER
    trunk: str = ""
    layers: int = 0
    resumed: tuple[Resumed, ...] = ()


def make(outputs: Outputs, measured: Sequence[Measured], config: PlanConfig, pair: bool, device: str) -> Cascade:
    """Return the planned cascade. Its accuracies on a test split come later (`evaluate.with_test_accuracy`).

    `measured`: of each level; `pair`: whether an input is two texts; `device`: the device class. Raises `InputError` for
    fewer than 40 texts, and without labels for what needs them.
    """
    first, second = split_rows(len(outputs.labels), config)
    tuning, proving = subset(outputs, first), subset(outputs, second)
    known = not np.isnan(outputs.labels).any()
    if not known and (config.target is not None or not outputs.classes):
        raise InputError("labels", "missing", "known for a target of accuracy, and for a regression")
    tolerance = tolerance_of(tuning)
    levels = calibrated(tuning, proving, tolerance, measured)
    halves = EvaluationData(tuning, levels, tolerance), EvaluationData(proving, levels, tolerance)
    target = config.target or max(0.0, levels[-1].accuracy - config.drop)
    kind = "right" if config.target is not None else "agree" if np.isnan(proving.labels).all() else "drop"
    candidates = _ours(halves, kind, config)
    if known:
        whole = EvaluationData(outputs, levels, tolerance)
        published = tabi(whole, target, config.tabi)
        # The published candidate, if one meets the target, every level alone, and all levels together.
        candidates += [*([published] if published else []), single(whole, target), *single_levels(whole), voting(whole)]
    elif len(candidates[0].levels) > 1:
        candidates.append(_alone(halves[1], f"only {levels[-1].name}"))
    return Cascade(
        task=outputs.task,
        classes=outputs.classes,
        pair=pair,
        tolerance=tolerance,
        device=device,
        levels=levels,
        candidates=tuple(_judged(candidates, halves[1], config.confidence if known else None)),
        target=target,
        confidence=config.confidence,
        test_accuracy={},
        data=outputs.data,
        precision=outputs.precision,
        promise=kind,
        amount=config.drop if config.target is None else config.target,
    )


def _judged(candidates: Sequence[Candidate], proving: EvaluationData, confidence: float | None) -> list[Candidate]:
    """Return the candidates with figures of texts that they were not tuned on; beyond the first they ascend in seconds.

    `confidence`: of the promised accuracy; None: no label is known, and no accuracy promised.
    """
    judged = []
    for candidate in candidates:
        evaluation = evaluate(candidate, proving)
        promised = 0.0 if confidence is None else clopper_pearson(evaluation.correct_R, confidence)
        judged.append(with_figures(candidate, evaluation, promised))
    return [judged[0], *sorted(judged[1:], key=lambda candidate: candidate.seconds)]


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
    tuning: Outputs, proving: Outputs, tolerance: float, measured: Sequence[Measured]
) -> tuple[LevelProfile, ...]:
    """Return every level, calibrated on the tuning texts, with its errors and accuracy on the proving ones.

    Without labels, confidences are calibrated to be those of the large model's answers, and its own stay as they are;
    errors and accuracies are then of agreement with it.
    """
    blind = _is_blind(tuning)
    tuning, proving = _labelled(tuning), _labelled(proving)
    levels = []
    for number, (name, each) in enumerate(zip(tuning.names, measured, strict=True)):
        level = LevelProfile(
            *(name, tuning.classifiers[number], 1.0, (), 0.0, 0.0, 0.0),
            *(each.latency, each.importance, each.kind, each.trunk, each.layers, each.resumed),
        )
        seen, held = tuning.levels[number], proving.levels[number]
        if tuning.classes and not (blind and number == len(measured) - 1):
            level = replace(level, temperature=temperature(seen.logits, tuning.labels.astype(np.int64)))
        elif not tuning.classes:
            spread = fit_spread(seen.logits[:, 0].astype(np.float64), tuning.labels, seen.length)
            level = replace(level, spread=spread)
        answer_RK = answers(level, tolerance, held.logits, held.length)
        correct_R = EvaluationData(proving, (), tolerance).correct(answer_RK)
        before = error = error_of(confidence(answer_RK, not proving.classes), correct_R)
        if proving.classes:
            before = calibration_error(softmax(held.logits, 1.0), proving.labels.astype(np.int64))
        levels.append(replace(level, accuracy=float(correct_R.mean()), error_before=before, error=error))
    return tuple(levels)


def _labelled(outputs: Outputs) -> Outputs:
    """Return the outputs of the texts whose labels are known or, where these are too few, with the large model's answers."""
    if not _is_blind(outputs):
        return subset(outputs, np.flatnonzero(~np.isnan(outputs.labels)))
    return replace(outputs, labels=outputs.levels[-1].logits.argmax(axis=1).astype(np.float64))


def _is_blind(outputs: Outputs) -> bool:
    """Whether too few labels are known to calibrate with."""
    return bool((~np.isnan(outputs.labels)).sum() < LEAST_TEXTS / 2)


def _ours(halves: tuple[EvaluationData, EvaluationData], kind: str, config: PlanConfig) -> list[Candidate]:
    """Return the default candidate and one for every further drop, without duplicates."""
    proposals = propose(halves[0], config.search)
    named = {"default": config.drop, **{f"default {100 * drop:g}%": drop for drop in config.further}}
    promises = {
        name: Promise("drop" if kind == "right" else kind, drop, config.confidence, config.horizon, config.labels)
        for name, drop in named.items()
    }
    if config.target is not None:
        promises["default"] = replace(promises["default"], kind="right", amount=config.target)
    seen: dict[tuple[object, ...], Candidate] = {}
    for name, promise in promises.items():
        candidate = planned(proposals, halves, promise)
        seen.setdefault((candidate.levels, candidate.gates), replace(candidate, name=name))
    return list(seen.values())


def planned(
    proposals: Sequence[Proposal], halves: tuple[EvaluationData, EvaluationData], promise: Promise
) -> Candidate:
    """Return the candidate that keeps a promise, or the large model alone. `halves`: to tune and to prove with."""
    tuning, proving = halves
    large = evaluate(_alone(tuning), tuning).accuracy
    proposal = cheapest(proposals, promise, large, len(proving.outputs.labels))
    proven = None if proposal is None else prove(proposal, proving, promise)
    if proven is None:
        return replace(_alone(proving), agreement=1.0)
    return replace(proven.candidate, agreement=proven.agreement, labels=proven.labels)


def _alone(data: EvaluationData, name: str = "") -> Candidate:
    return Candidate(name, (len(data.levels) - 1,), (), 0, 0, 0, (), agreement=1.0)
