"""Bars, tables and the picture of the cascade's contest. Knows what was measured and how people want to see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.cascade.alone import Alone
from benchmarks.cascade.contest import METHODS, Round, Showing, equal, ratio
from benchmarks.cascade.importance import Cost
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
    """One a data set and method: means over the splits."""
    made = []
    for name, each in rounds.items():
        single = mean(each, "single", "seconds")
        for method in (*METHODS, "equal"):
            if showings(each, method):
                made.append(_row(name, method, each, single))
    return made


def _row(name: str, method: str, each: Sequence[Round], single: float) -> tuple[str, ...]:
    accuracy, seconds = mean(each, method, "accuracy"), mean(each, method, "seconds")
    large = float(np.mean([one.large for one in each]))
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
        return [found] if (found := equal(each)) else []
    return [one.shown[method] for one in each if method in one.shown]


def mean(each: Sequence[Round], method: str, what: str) -> float:
    found = [getattr(one, what) for one in showings(each, method)]
    return float(np.mean(found)) if found else float("nan")


def missed(each: Sequence[Round], method: str) -> float:
    """Share of splits on whose judging half the accuracy lay below the target."""
    if method == "equal":
        return float("nan")
    return float(np.mean([one.shown[method].accuracy < one.target for one in each if method in one.shown]))


def helping(rounds: Rounds) -> list[str]:
    """Data sets on which any cascade helps: the published one, or ours at its accuracy where that is within reach."""
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
        and mean(each, "default", "accuracy") >= float(np.mean([one.target for one in each]))
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
    """NaN where one of them could not be measured, or there is none: then the bar falls short."""
    return float(np.max(ratios)) if ratios else float("nan")


def alone_table(found: Mapping[str, Alone]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    methods = ("default", "equal", "tabi", "single", "voting", "large")
    made = [
        (name, *(f"{1e3 * one.seconds[m]:.2f} ({one.accuracy[m]:.3f})" if m in one.seconds else "" for m in methods))
        for name, one in found.items()
    ]
    return ("data set", *methods), made


def alone_bars(found: Mapping[str, Alone]) -> list[Target]:
    """The wall clock's word on what the contest reckons from latencies."""
    cut = sum(one.ratio("default", "single") <= 1 - CUT for one in found.values())
    return [Target(f"data sets of {len(found)} with 25% lower mean latency than single, by the clock", cut, ">=", SETS)]


def importance_table(found: Sequence[Cost]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    made = [
        (str(c.layers), str(c.length), f"{1e6 * c.added:.0f}", f"{c.ours:.3f}", f"{c.eager:.3f}", f"{c.runtime:.2f}")
        for c in found
    ]
    headings = ("layers", "tokens", "us a request", "with importance", "output_attentions", "runtime over bare")
    return headings, made


def contest_figure(rounds: Rounds) -> Any:
    """Mean latency over the single model's, and held-out accuracy less the target, a group of bars for each data set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    width = 0.8 / len(METHODS)
    for place, method in enumerate(METHODS):
        at = np.arange(len(rounds)) + (place - (len(METHODS) - 1) / 2) * width
        latency = [mean(e, method, "seconds") / mean(e, "single", "seconds") for e in rounds.values()]
        points = [
            100 * (mean(e, method, "accuracy") - float(np.mean([one.target for one in e]))) for e in rounds.values()
        ]
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
