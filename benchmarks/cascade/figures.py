"""Targets, table and picture of the cascade's contest. Knows what was measured and how people want to see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.cascade.contest import METHODS, Round, Showing, equal, ratio
from benchmarks.results import Target

HEADINGS = ("data", "method", "acc.", "points", "missed", "ms", "/single", "early", "large", "words")
NOTE = (
    "points: to the large model; missed: splits below the target; early: answered by the first level; "
    "large: read by the largest; words: kept. matched: the default at the mean accuracy of tabi."
)
COLOURS = {"default": "#1b6ca8", "tabi": "#e08e0b", "single": "#777777", "voting": "#bbbbbb"}
HELPS = 0.95  # of the single model's seconds: below it a cascade helps
FEWER, QUICKER, CUT, SETS, MISSED = 0.9, 0.93, 0.25, 5, 0.05

Rounds = Mapping[str, Sequence[Round]]


def rows(rounds: Rounds) -> list[tuple[str, ...]]:
    """Return the cells under HEADINGS, a row a data set and method: means over the splits."""
    lines = []
    for name, each in rounds.items():
        single = mean(each, "single", "seconds")
        for method in (*METHODS, "equal"):
            if showings(each, method):
                lines.append(_row(name, method, each, single))
    return lines


def _row(name: str, method: str, each: Sequence[Round], single: float) -> tuple[str, ...]:
    accuracy, seconds = mean(each, method, "accuracy"), mean(each, method, "seconds")
    large = float(np.mean([split.large for split in each]))
    label = "matched" if method == "equal" else method
    return (
        name,
        label,
        f"{accuracy:.4f}",
        f"{100 * (accuracy - large):+.2f}",
        "" if method == "equal" else f"{missed(each, method):.0%}",
        f"{1e3 * seconds:.2f}",
        f"{seconds / single:.2f}",
        f"{mean(each, method, 'early'):.1%}",
        f"{mean(each, method, 'large'):.1%}",
        f"{mean(each, method, 'kept'):.0%}",
    )


def showings(each: Sequence[Round], method: str) -> list[Showing]:
    if method == "equal":
        return [showing] if (showing := equal(each)) else []
    return [split.shown[method] for split in each if method in split.shown]


def mean(each: Sequence[Round], method: str, what: str) -> float:
    values = [getattr(showing, what) for showing in showings(each, method)]
    return float(np.mean(values)) if values else float("nan")


def missed(each: Sequence[Round], method: str) -> float:
    """Return the share of splits on whose judging half the accuracy lay below the target."""
    if method == "equal":
        return float("nan")
    return float(np.mean([split.shown[method].accuracy < split.target for split in each if method in split.shown]))


def helping(rounds: Rounds) -> list[str]:
    """Return the data sets on which any cascade helps: the published one, or ours at its accuracy where that is reached."""
    return [name for name, each in rounds.items() if any(_helps(each, method) for method in ("equal", "tabi"))]


def _helps(each: Sequence[Round], method: str) -> bool:
    return mean(each, method, "seconds") < HELPS * mean(each, "single", "seconds")


def contest_targets(rounds: Rounds) -> list[Target]:
    helped = helping(rounds)
    shares = ("rerouted", "large", "seconds")
    rerouted, large, seconds = (_worst([ratio(rounds[name], what) for name in helped]) for what in shares)
    cut = [
        name
        for name, each in rounds.items()
        if mean(each, "default", "seconds") <= (1 - CUT) * mean(each, "single", "seconds")
        and mean(each, "default", "accuracy") >= float(np.mean([split.target for split in each]))
    ]
    rates = [missed(each, "default") for each in rounds.values()]
    of, worst = f"of {len(rounds)}", f"worst of {len(helped)} that a cascade helps"
    return [
        Target(f"re-routed beyond the first level over tabi, equal accuracy, {worst}", rerouted, "<=", FEWER),
        Target(f"sent to the large model over tabi, equal accuracy, {worst}", large, "<=", FEWER),
        Target(f"mean latency over tabi, equal accuracy, {worst}", seconds, "<=", QUICKER),
        Target(f"data sets {of} with 25% lower mean latency than single, target met", len(cut), ">=", SETS),
        Target("splits on which the target is missed", float(np.mean(rates)), "<=", MISSED),
    ]


def _worst(ratios: Sequence[float]) -> float:
    """Return the largest; NaN where one of them could not be measured, or there is none: then the target is missed."""
    return float(np.max(ratios)) if ratios else float("nan")


def contest_figure(rounds: Rounds) -> Any:
    """Draw the mean latency over the single model's, and the accuracy less the target, a group of bars a data set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    width = 0.8 / len(METHODS)
    for place, method in enumerate(METHODS):
        at = np.arange(len(rounds)) + (place - (len(METHODS) - 1) / 2) * width
        latency = [mean(e, method, "seconds") / mean(e, "single", "seconds") for e in rounds.values()]
        targets = [float(np.mean([split.target for split in each])) for each in rounds.values()]
        accuracies = [mean(each, method, "accuracy") for each in rounds.values()]
        points = [100 * (accuracy - target) for accuracy, target in zip(accuracies, targets, strict=True)]
        above.bar(at, latency, width, label=method, color=COLOURS[method])
        below.bar(at, points, width, color=COLOURS[method])
    above.axhline(1, color="black", lw=0.8)
    above.set_ylabel("mean latency / single")
    above.legend(ncols=len(METHODS), frameon=False)
    below.axhline(0, color="black", lw=0.8)
    below.set_ylabel("accuracy less target (points)")
    below.set_xticks(np.arange(len(rounds)), list(rounds))
    splits = max((len(each) for each in rounds.values()), default=0)
    above.set_title(f"One request at a time; held-out texts, means over {splits} random splits")
    return figure
