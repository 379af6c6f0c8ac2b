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
from pliant.cascade.evaluate import EvaluationData, as_large, evaluate, level_step, shuffled, subset, with_figures
from pliant.cascade.route import answers, confidence, softmax
from pliant.cascade.search import Promise, Proposal, SearchConfig, cheapest, propose, prove, wanted
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

    `measured`: of each level; `pair`: whether an input is two texts; `device`: the device class. Where labels are missing
    (NaN), accuracies are shares of the large model's answers, and so is the target. Raises `InputError` for fewer than 40
    texts, and for a regression without labels.
    """
    halves, levels = _halves(outputs, measured, config)
    known = not np.isnan(outputs.labels).any()
    judging = halves[1] if not np.isnan(halves[1].outputs.labels).any() else _agreeing(halves[1])
    kind = "right" if config.target is not None else "agree" if np.isnan(halves[1].outputs.labels).all() else "drop"
    target = config.target or max(0.0, levels[-1].accuracy - config.drop)
    candidates = _ours(halves, kind, config)
    if known:
        whole = EvaluationData(outputs, levels, halves[0].tolerance)
        published = tabi(whole, target, config.tabi)
        # The published candidate, if one meets the target, every level alone, and all levels together.
        candidates += [*([published] if published else []), single(whole, target), *single_levels(whole), voting(whole)]
    elif len(candidates[0].levels) > 1:
        candidates.append(_alone(judging, f"only {levels[-1].name}"))
    return Cascade(
        task=outputs.task,
        classes=outputs.classes,
        pair=pair,
        tolerance=halves[0].tolerance,
        device=device,
        levels=levels,
        candidates=tuple(_judged(candidates, judging, config.confidence if known else None)),
        target=target,
        confidence=config.confidence,
        test_accuracy={},
        data=outputs.data,
        precision=outputs.precision,
        promise=kind,
        amount=config.drop if config.target is None else config.target,
    )


@dataclass(frozen=True, slots=True)
class Purchase:
    """The texts whose labels would make a cascade cheaper, and a sentence on what they buy. `rows`: of the outputs."""

    rows: NDArray[np.int64]
    sentence: str


def purchase(outputs: Outputs, measured: Sequence[Measured], config: PlanConfig, cascade: Cascade) -> Purchase:
    """Return the labels that a cascade which was planned with these outputs lacks: none where all are known."""
    _, second = split_rows(len(outputs.labels), config)
    lacking = np.isnan(outputs.labels[second])
    if config.target is not None:  # proven on the first texts, up to the first without a label
        first = lacking & (np.arange(len(second)) < config.labels)
        sentence = f"the labels of {first.sum()} texts, drawn at random, may prove an accuracy of {config.target:g}"
        return Purchase(second[first], sentence)
    nothing = Purchase(second[:0], "")
    if not lacking.any():
        return nothing
    halves, levels = _halves(outputs, measured, config)
    promise = Promise("drop", config.drop, config.confidence, config.horizon, config.labels)
    proposals, large = propose(halves[0], config.search), level_step(halves[1], len(levels) - 1)
    proposal = cheapest(proposals, promise, 1.0, len(second))
    if proposal is None:
        return nothing
    wanted_R, seconds = wanted(proposal, halves[1], promise)
    before, after = (each / float(large.seconds_R.mean()) for each in (cascade.candidates[0].seconds, seconds))
    if after >= before:
        return nothing
    return Purchase(
        second[wanted_R],
        f"the labels of {wanted_R.sum()} texts, on which its levels differ, are expected to bring the mean time of an "
        f"answer from {before:.2f} to {after:.2f} of {levels[-1].name}'s",
    )


def _halves(
    outputs: Outputs, measured: Sequence[Measured], config: PlanConfig
) -> tuple[tuple[EvaluationData, EvaluationData], tuple[LevelProfile, ...]]:
    """Return the texts to tune with and those to prove with, and the calibrated levels. Raises as `make`."""
    if not outputs.classes and np.isnan(outputs.labels).any():
        raise InputError("labels", "missing", "known for a regression")
    first, second = split_rows(len(outputs.labels), config)
    tuning, proving = subset(outputs, first), subset(outputs, second)
    if (
        config.target is not None
    ):  # on a random sample: the first texts, whatever their answers, up to one without label
        unknown_R = np.isnan(proving.labels)
        proving = subset(proving, np.arange(int(unknown_R.argmax()) if unknown_R.any() else len(unknown_R)))
        if len(proving.labels) < LEAST_TEXTS:  # nothing is proven by these, but all that is said is of some texts
            proving = replace(subset(outputs, second), labels=np.full(len(second), np.nan))
    tolerance = tolerance_of(tuning)
    levels = calibrated(tuning, proving, tolerance, measured)
    return (EvaluationData(tuning, levels, tolerance), EvaluationData(proving, levels, tolerance)), levels


def _agreeing(data: EvaluationData) -> EvaluationData:
    return replace(data, outputs=as_large(data.outputs))


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

    A temperature that does not lower the calibration error is not taken. That is judged by the tuning texts: on the proving
    ones nothing may depend that is proven by them.

    Without labels, confidences are calibrated to be those of the large model's answers, and its own stay as they are;
    errors and accuracies are then of agreement with it.
    """
    known_R = ~np.isnan(tuning.labels)
    blind = int(known_R.sum()) < LEAST_TEXTS / 2
    tuning = as_large(tuning) if blind else subset(tuning, np.flatnonzero(known_R))
    proving = as_large(proving) if np.isnan(proving.labels).any() else proving
    levels = []
    for number, (name, each) in enumerate(zip(tuning.names, measured, strict=True)):
        level = LevelProfile(
            *(name, tuning.classifiers[number], 1.0, (), 0.0, 0.0, 0.0),
            *(each.latency, each.importance, each.kind, each.trunk, each.layers, each.resumed),
        )
        seen, held = tuning.levels[number], proving.levels[number]
        if tuning.classes and not (blind and number == len(measured) - 1):
            label_R = tuning.labels.astype(np.int64)
            fitted = temperature(seen.logits, label_R)
            plain, cooled = (calibration_error(softmax(seen.logits, each), label_R) for each in (1.0, fitted))
            level = replace(level, temperature=fitted if cooled < plain else 1.0)
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
    if promise.kind == "right" and np.isnan(proving.outputs.labels).any():
        return replace(_alone(proving), agreement=1.0)
    known = not np.isnan(tuning.outputs.labels).any()
    large = evaluate(_alone(tuning), tuning).accuracy if known else 1.0
    proposal = cheapest(proposals, promise, large, len(proving.outputs.labels))
    proven = None if proposal is None else prove(proposal, proving, promise)
    if proven is None:
        return replace(_alone(proving), agreement=1.0)
    return replace(proven.candidate, agreement=proven.agreement, labels=proven.labels)


def _alone(data: EvaluationData, name: str = "") -> Candidate:
    return Candidate(name, (len(data.levels) - 1,), (), 0, 0, 0, (), agreement=1.0)
