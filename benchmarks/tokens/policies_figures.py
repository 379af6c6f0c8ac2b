"""Pictures of a comparison of policies: what each earned of what is possible, gammas used, accuracy of batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.pyplot import get_cmap

from benchmarks.tokens.policies import BOUND, COLUMNS, LOADS, PUBLISHED, QUANTILES, Place, Row, best, ratio

STYLE = {"default": ("#c1440e", 3.0), "otas": ("#1f5f8b", 2.0), "otas-kept": ("#7fb2d6", 1.5)}
OUTCOMES = {"accurate": "#3a7d44", "wrong": "#e3b23c", "late": "#c1440e", "evicted": "#9a9a9a"}


def policies_figure(rows: Sequence[Row], place: Place = PUBLISHED) -> Figure:
    """Draw four panels for one profile and workload, of the first seed."""
    figure = Figure(figsize=(13, 8.5), layout="constrained")
    axes = figure.subplots(2, 2)
    _shares(axes[0][0], rows, place)
    _outcomes(axes[0][1], rows, place)
    _gammas(axes[1][0], rows, place)
    _accuracies(axes[1][1], rows, place)
    figure.suptitle(f"Policies in the simulator: profile {place[0]}, {place[1]} workload")
    return figure


def _look(policy: str) -> tuple[str, float]:
    others = [p for p in COLUMNS if p not in STYLE]
    if policy in STYLE:
        return STYLE[policy]
    return to_hex(get_cmap("Greys")(0.35 + 0.5 * others.index(policy) / len(others))), 1.5


def _shares(axes: Axes, rows: Sequence[Row], place: Place) -> None:
    for policy in COLUMNS:
        colour, width = _look(policy)
        shares = [ratio(rows, policy, BOUND, load, place=place) for load in LOADS]
        axes.plot(LOADS, shares, "o-", color=colour, linewidth=width, label=policy)
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="load", ylabel="share of the fluid bound", ylim=(0, 1.05), title="Utility")
    axes.legend(fontsize=8)


def _outcomes(axes: Axes, rows: Sequence[Row], place: Place, load: float = 2.0) -> None:
    shown = [row for policy in COLUMNS if (row := best(rows, policy, load, place=place))]
    under = np.zeros(len(shown))
    for outcome, colour in OUTCOMES.items():
        shares = np.array([row.outcomes.get(outcome, 0) / row.requests for row in shown])
        axes.bar([row.policy for row in shown], shares, bottom=under, color=colour, label=outcome)
        under += shares
    axes.set(ylabel="share of requests", title=f"Outcomes at {load:g}x")
    axes.legend(fontsize=8, loc="lower right")


def _gammas(axes: Axes, rows: Sequence[Row], place: Place, policy: str = "default") -> None:
    shown = [row for load in LOADS if (row := best(rows, policy, load, place=place))]
    gammas = sorted({int(gamma) for row in shown for gamma in row.settings})
    under = np.zeros(len(shown))
    for i, gamma in enumerate(gammas):
        shares = np.array([row.settings.get(gamma, 0) / row.requests for row in shown])
        colour = to_hex(get_cmap("RdYlBu")(i / max(1, len(gammas) - 1)))
        axes.bar([f"{row.load:g}x" for row in shown], shares, bottom=under, color=colour, label=f"{gamma:+d}")
        under += shares
    axes.set(xlabel="load", ylabel="share of requests answered", title=f"Gammas of {policy}")
    axes.legend(fontsize=8, ncols=2)


def _accuracies(axes: Axes, rows: Sequence[Row], place: Place, load: float = 2.0) -> None:
    for policy in COLUMNS:
        row = best(rows, policy, load, place=place)
        if row and row.batch_accuracy:
            colour, width = _look(policy)
            axes.plot(row.batch_accuracy, QUANTILES, color=colour, linewidth=width, label=policy)
    axes.set(xlabel="share of a batch answered correctly", ylabel="share of batches", title=f"Batches at {load:g}x")
    axes.legend(fontsize=8)
