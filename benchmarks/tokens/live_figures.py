"""The live comparison for people: a table, and bars of utility and of outcomes by service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.tokens.live import BAR_SHARE, DEFAULT, Live, Row, utility

matplotlib.use("Agg")

HEADINGS = (
    "load",
    "service",
    "setting",
    "utility",
    "in time",
    "late",
    "evicted",
    "p50 ms",
    "p99 ms",
    "accuracy",
    "gammas",
)
OUTCOMES = {"accurate": "#3a7d44", "wrong": "#e0a458", "late": "#d1495b", "evicted": "#9a9a9a"}
OURS, POLICY, SERVICE = "#d1495b", "#2a5db0", "#7a6c5d"


def rows(live: Live) -> list[tuple[str, ...]]:
    """One line a load and contender, each at its best setting, the most useful first; means over seeds."""
    made = []
    for share in sorted({row.share for row in live.rows}):
        for name, some in _ranked(live, share):
            made.append((f"{share:g}x", name, _setting(some[0].setting), *_figures(some)))
    return made


def notes(live: Live) -> list[str]:
    """One sentence a service: what it serves when saturated, or why it was not measured."""
    served = [
        f"{name} serves {rate:.0f} requests/s when saturated, Pliant at gamma 0 {live.capacity:.0f}."
        for name, rate in live.capacities.items()
    ]
    return [*served, *(f"Not measured: {sentence}." for sentence in live.missing.values())]


def _figures(some: Sequence[Row]) -> tuple[str, ...]:
    outcomes = _shares(some)
    in_time = outcomes["accurate"] + outcomes["wrong"]
    p50, p99, accuracy = (
        float(np.mean([getattr(row.report, name) for row in some])) for name in ("p50", "p99", "accuracy")
    )
    shares = (f"{100 * share:.0f}%" for share in (utility(some), in_time, outcomes["late"], outcomes["evicted"]))
    return (*shares, f"{1000 * p50:.0f}", f"{1000 * p99:.0f}", f"{100 * accuracy:.1f}%", _gammas(some))


def live_figure(live: Live, share: float = BAR_SHARE) -> Figure:
    """Share of the offered utility that each earned, and beside it what became of its requests."""
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
        width = np.array([100 * one[outcome] for one in shares])
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


def _setting(setting: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in setting.items())
