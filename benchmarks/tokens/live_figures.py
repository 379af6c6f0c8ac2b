"""The live comparison for people: a table, and a picture of utility and of outcomes by service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.tokens.live import DEFAULT, JUDGED, Live, Row, utility

matplotlib.use("Agg")

SHARES = ("utility", "in time", "late", "evicted")
HEADINGS = ("load", "service", "setting", *SHARES, "p50 ms", "p99 ms", "accuracy", "gammas")
OUTCOMES = {"accurate": "#3a7d44", "wrong": "#e0a458", "late": "#d1495b", "evicted": "#9a9a9a"}
OURS, POLICY, SERVICE = "#d1495b", "#2a5db0", "#7a6c5d"


def rows(live: Live) -> list[tuple[str, ...]]:
    """Return one line a load and contender, each at its best setting, the most useful first; means over seeds."""
    lines = []
    for share in sorted({row.share for row in live.rows}):
        for name, own in _ranked(live, share):
            setting = ", ".join(f"{key} {value}" for key, value in own[0].setting.items())
            lines.append((f"{share:g}x", name, setting, *_figures(own)))
    return lines


def notes(live: Live) -> list[str]:
    """Return one sentence a service: what it serves when saturated, or why it was not measured."""
    served = [
        f"{name} serves {rate:.0f} requests/s when saturated, Pliant at gamma 0 {live.capacity:.0f}."
        for name, rate in live.capacities.items()
    ]
    return [*served, *(f"Not measured: {sentence}." for sentence in live.missing.values())]


def _figures(some: Sequence[Row]) -> tuple[str, ...]:
    outcomes = _shares(some)
    in_time = outcomes["accurate"] + outcomes["wrong"]
    means = {name: np.mean([getattr(row.report, name) for row in some]) for name in ("p50", "p99", "accuracy")}
    shares = (f"{100 * share:.0f}%" for share in (utility(some), in_time, outcomes["late"], outcomes["evicted"]))
    seconds = (f"{1000 * means[name]:.0f}" for name in ("p50", "p99"))
    return *shares, *seconds, f"{100 * means['accuracy']:.1f}%", _gammas(some)


def live_figure(live: Live, share: float = JUDGED) -> Figure:
    """Draw the share of the offered utility that each earned, and beside it what became of its requests."""
    ranked = _ranked(live, share)[::-1]  # the best at the top
    figure = Figure(figsize=(11, 1.4 + 0.45 * len(ranked)), layout="constrained")
    earned, fates = figure.subplots(1, 2, sharey=True)
    names = [name for name, _ in ranked]
    earned.barh(names, [100 * utility(some) for _, some in ranked], color=[_colour(*pair) for pair in ranked])
    earned.set_xlabel("utility earned, % of what was offered")
    earned.set_title(f"Live at {share:g} times the capacity of gamma 0 ({live.capacity:.0f} requests/s)")
    _stack(fates, names, [_shares(some) for _, some in ranked])
    return figure


def _stack(axes: Axes, names: Sequence[str], shares: Sequence[Mapping[str, float]]) -> None:
    left = np.zeros(len(names))
    for outcome, colour in OUTCOMES.items():
        width = np.array([100 * share[outcome] for share in shares])
        axes.barh(names, width, left=left, color=colour, label=outcome)
        left += width
    axes.set_xlabel("% of all requests")
    axes.set_title("What became of the requests")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.02 - 1.6 / (len(names) + 1)), ncols=len(OUTCOMES))


def _ranked(live: Live, share: float) -> list[tuple[str, tuple[Row, ...]]]:
    return sorted(live.best(share).items(), key=lambda pair: utility(pair[1]), reverse=True)


def _colour(name: str, some: Sequence[Row]) -> str:
    if some[0].service:
        return SERVICE
    return OURS if name == DEFAULT else POLICY


def _shares(some: Sequence[Row]) -> dict[str, float]:
    total = sum(row.report.requests for row in some)
    return {name: sum(row.report.outcomes.get(name, 0) for row in some) / max(total, 1) for name in OUTCOMES}


def _gammas(some: Sequence[Row]) -> str:
    counted: Counter[int] = Counter()
    for row in some:
        counted.update(row.report.settings)
    return " ".join(f"{gamma:+d}:{100 * n / counted.total():.0f}%" for gamma, n in sorted(counted.items()))
