"""Distilled levels with a promise, beside the published cascade (Tabi) and baselines, over divisions of the held-out texts.

Each division parts the held-out texts in two halves: on one everything is planned, the other judges. Ours is planned with
labels that are bought where its levels and the large model differ, with none at all, and with 1,000 texts in place of the
half. Tabi has its own levels, each fine-tuned for itself, and in a second row ours; it may look at all labels, as may the
best single model and the vote. Seconds are of one request at a time, by the latencies of this run, over the large model's on
the same texts. A promise is missed where the judging half breaks it: with no label 99% of the answers are to be the large
model's, otherwise its accuracy is to be at most one point above.

At equal accuracy are compared: Tabi, and ours without a promise, whose routers have learnt on the same half, where the mean
accuracies over all divisions are equal. Tabi looks at every label of the half, ours at none; in a second row these labels
choose our thresholds, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.cascade.material import LONG, Levels, Material, materials
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.cascade.artifact import Candidate, Outputs
from pliant.cascade.evaluate import EvaluationData, level_step, settle, subset, walk
from pliant.cascade.plan import PlanConfig, calibrated, make, split_rows
from pliant.cascade.route import same
from pliant.cascade.search import points_of, propose
from pliant.cascade.tabi import single, single_levels, tabi, voting

DIVISIONS = 40
DROP, LABELS, FEW, MISSED = 0.01, 100, 1000, 0.05
AHEAD = 0.10  # of the majority class, so far must the large model's accuracy be for a data set to count
SHARES = (*np.linspace(0.8, 0.98, 19).tolist(), 0.985, 0.99, 0.995, 1.0)
"""Of the large model's answers on the planning half, at which ours is shown without a promise."""
RIGHT = (*SHARES, 1.005, 1.01, 1.015, 1.02)
"""The same over its right answers: small levels may be right more often."""
BOUGHT, UNLABELLED, FEWER, TABI, TABI_OURS = "bought labels", "no label", "1,000 texts", "tabi", "tabi, our levels"


@dataclass(frozen=True, slots=True)
class Showing:
    """One method on one judging half. `seconds`: over the large model's; `agreement`: share of the large model's answers."""

    accuracy: float
    seconds: float
    agreement: float
    labels: int  # that planning looked at
    missed: bool  # whether what was promised did not hold


@dataclass(frozen=True, slots=True)
class Round:
    """One division: every method, and ours at each of `SHARES` and of `RIGHT`. `large`: the large model's accuracy."""

    large: float
    shown: Mapping[str, Showing]
    curve: tuple[Showing, ...]
    labelled: tuple[Showing, ...]


@dataclass(frozen=True, slots=True)
class Contest:
    """The divisions of one data set. `majority`: share of its largest class. `pair`, `long`: its texts are."""

    rounds: tuple[Round, ...]
    majority: float
    pair: bool
    long: bool = False

    @property
    def counts(self) -> bool:
        """Whether the large model is so far ahead of the majority class that there is something to keep."""
        return float(np.mean([each.large for each in self.rounds])) >= self.majority + AHEAD

    def mean(self, method: str, what: str) -> float:
        """Return the mean of a figure over the divisions."""
        return float(np.mean([getattr(each.shown[method], what) for each in self.rounds]))

    def over(self, rival: str, curve: str = "curve") -> float:
        """Return our seconds over a rival's where our curve has its mean accuracy; NaN where it stays below."""
        accuracy_A, seconds_A = (
            np.mean([[getattr(shown, what) for shown in getattr(each, curve)] for each in self.rounds], axis=0)
            for what in ("accuracy", "seconds")
        )
        order_A = np.argsort(seconds_A)
        best_A, wanted = np.maximum.accumulate(accuracy_A[order_A]), self.mean(rival, "accuracy")
        if best_A[-1] < wanted:
            return float("nan")
        return float(np.interp(wanted, best_A, seconds_A[order_A])) / self.mean(rival, "seconds")


def contest(context: Context) -> Measured:
    """Compare on every data set that there is."""
    sets: dict[str, Contest] = {}
    for name, material in materials(context).items():
        labels = material.ours.outputs.labels.astype(np.int64)
        rounds = []
        with context.stage(f"{name}: {DIVISIONS} divisions") as progress:
            for seed in range(DIVISIONS):
                rounds.append(one_round(material, seed))
                progress(seed + 1, DIVISIONS)
        majority = float(np.bincount(labels).max() / len(labels))
        sets[name] = Contest(tuple(rounds), majority, material.pair, name == LONG)
    return targets(sets), {name: plain(each) for name, each in sets.items()}


def halves(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows to plan with and those to judge with."""
    order = np.random.default_rng(seed).permutation(count).astype(np.int64)
    return order[: count // 2], order[count // 2 :]


def one_round(material: Material, seed: int) -> Round:
    """Return one division."""
    rows, judged = halves(len(material.ours.outputs.labels), seed)
    config = PlanConfig(drop=DROP, seed=seed, horizon=len(judged), further=(), labels=LABELS)
    ours, shown = subset(material.ours.outputs, rows), dict[str, Showing]()
    judging, count = subset(material.ours.outputs, judged), len(rows)
    few, unknown = subset(ours, np.arange(min(FEW, count))), replace(ours, labels=np.full(count, np.nan))
    for name, planning in {BOUGHT: to_buy(ours, config), FEWER: to_buy(few, config), UNLABELLED: unknown}.items():
        cascade = make(planning, material.ours.measured, config, material.pair, material.device)
        default = cascade.candidates[0]
        shown[name] = show(default, EvaluationData(judging, cascade.levels), default.labels, cascade.promise)
    whole = known(material.ours, rows, config)
    ground = EvaluationData(judging, whole.levels)
    least, alone = whole.levels[-1].accuracy - DROP, single_levels(whole)[-1]
    if material.tabi is not None:
        own, its = known(material.tabi, rows, config), subset(material.tabi.outputs, judged)
        shown[TABI] = show(tabi(own, least) or alone, EvaluationData(its, own.levels), count)
    for name, candidate in {
        TABI_OURS: tabi(whole, least) or alone,
        "single": single(whole, least),
        "voting": voting(whole),
    }.items():
        shown[name] = show(candidate, ground, count)
    curves = (tuple(show(each, ground) for each in curve(whole, labels)) for labels in (False, True))
    return Round(show(alone, ground).accuracy, shown, *curves)


def known(levels: Levels, rows: NDArray[np.int64], config: PlanConfig) -> EvaluationData:
    """Return the planning half with all its labels."""
    planning = subset(levels.outputs, rows)
    tuning, proving = (subset(planning, part) for part in split_rows(len(rows), config))
    return EvaluationData(planning, calibrated(tuning, proving, 0.0, levels.measured))


def to_buy(outputs: Outputs, config: PlanConfig) -> Outputs:
    """Return the outputs with the labels that may be bought: those of the texts on which the promise is proven."""
    tuning, _ = split_rows(len(outputs.labels), config)
    labels = outputs.labels.copy()
    labels[tuning] = np.nan
    return replace(outputs, labels=labels)


def curve(data: EvaluationData, labels: bool) -> list[Candidate]:
    """Return the cheapest of ours for each of `SHARES` that routers expect on these texts, or of `RIGHT` by their labels.

    Where none is so good, it is the best.
    """
    large, offers = (
        float(level_step(data, len(data.levels) - 1).correct_R.mean()),
        list[tuple[float, float, Candidate]](),
    )
    for proposal in propose(data):
        kept_P, seconds_P = 1 - proposal.apart_P, proposal.seconds_P
        if labels:
            points = points_of(proposal, data)
            kept_P, seconds_P = points.right_PR.mean(axis=1) / large, points.seconds_P
        for kept, seconds, threshold_G in zip(kept_P, seconds_P, proposal.threshold_PG, strict=True):
            at = zip(proposal.candidate.gates, threshold_G.tolist(), strict=True)
            gates = tuple(replace(gate, threshold=threshold) for gate, threshold in at)
            offers.append((float(kept), float(seconds), replace(proposal.candidate, gates=gates)))
    return [
        min(offers, key=lambda o: (max(share - 1e-9 - o[0], 0), o[1]))[2] for share in (RIGHT if labels else SHARES)
    ]


def show(candidate: Candidate, data: EvaluationData, labels: int = 0, promise: str = "drop") -> Showing:
    """Return what a candidate did on the judging half, and whether the promise of that kind was missed."""
    steps, large = walk(candidate, data), level_step(data, len(data.levels) - 1)
    judged, rows = settle(steps), np.arange(len(large.correct_R))
    answer_RK = np.stack([step.answer_RK for step in steps])[judged.steps_R - 1, rows]
    agreement = float(same(answer_RK, large.answer_RK, data.regression, data.tolerance).mean())
    lost = 1 - agreement if promise == "agree" else float(large.correct_R.mean()) - judged.accuracy
    seconds = judged.seconds / float(large.seconds_R.mean())
    return Showing(judged.accuracy, seconds, agreement, labels, lost > DROP + 1e-9)


def targets(sets: Mapping[str, Contest]) -> list[Target]:
    """Return the targets; what could not be measured on one of the data sets is missed.

    Pairs and long texts have limits of their own. Promises are to hold on all data sets, also where there is little to keep.
    """
    single = {name: each for name, each in sets.items() if each.counts and not each.pair and not each.long}
    pairs = {name: each for name, each in sets.items() if each.counts and each.pair}
    long = {name: each for name, each in sets.items() if each.counts and each.long}

    def bars(
        what: str,
        figure: Callable[[Contest], float],
        worst: float,
        median: float | None,
        of: Mapping[str, Contest] = single,
    ) -> list[Target]:
        values = [figure(each) for each in of.values()] or [float("nan")]
        named = f"of {', '.join(of)}"
        bars = [Target(f"{what}, worst {named}", float(np.max(values)), "<=", worst)]
        if median is not None:
            bars.append(Target(f"{what}, median {named}", float(np.median(values)), "<=", median))
        return bars

    limits = bars(
        "seconds over the large model, at most 100 labels", lambda each: each.mean(BOUGHT, "seconds"), 0.5, 0.15
    )
    limits += bars("seconds over the large model, no label", lambda each: each.mean(UNLABELLED, "seconds"), 0.7, 0.35)
    limits += bars("seconds over the large model, 1,000 texts", lambda each: each.mean(FEWER, "seconds"), 0.6, 0.18)
    own = {name: each for name, each in single.items() if TABI in each.rounds[0].shown}
    limits += bars("seconds over tabi, equal accuracy", lambda each: each.over(TABI), 0.5, None, own)
    limits += bars("seconds over tabi with our levels, equal accuracy", lambda each: each.over(TABI_OURS), 1.0, 0.8)
    what = "seconds over tabi with our levels and as many labels, equal accuracy"
    limits += bars(what, lambda each: each.over(TABI_OURS, "labelled"), 1.0, 0.8)
    for what, of, worst in (("pairs", pairs, 0.85), ("long texts", long, 0.6)):
        if of:
            limits += bars(
                f"seconds over the large model, {what}", lambda each: each.mean(BOUGHT, "seconds"), worst, None, of
            )
    for method in (BOUGHT, UNLABELLED, FEWER):
        rates = [each.mean(method, "missed") for each in sets.values()]
        limits.append(
            Target(f"promises missed, {method}, all of {len(sets)} data sets", float(np.mean(rates)), "<=", MISSED)
        )
        limits.append(Target(f"promises missed, {method}, worst data set", float(np.max(rates)), "<=", MISSED))
    return limits


def plain(each: Contest) -> dict[str, Any]:
    """Return what the results' file holds: each method's means over the divisions."""
    methods = [
        {"method": name} | {figure.name: each.mean(name, figure.name) for figure in fields(Showing)}
        for name in each.rounds[0].shown
    ]
    large = float(np.mean([division.large for division in each.rounds]))
    over = {rival: each.over(rival) for rival in (TABI, TABI_OURS) if rival in each.rounds[0].shown}
    over["tabi, our levels, as many labels"] = each.over(TABI_OURS, "labelled")
    return {"divisions": len(each.rounds), "large": large, "majority": each.majority, "over": over, "methods": methods}
