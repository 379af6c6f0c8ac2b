"""Pictures of a packing: predicted against observed lengths, how often forecasts hold, step times, policies simulated.

Knows matplotlib, artifacts and choices only.
"""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pliant.flows.packing.plan import Choice
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES, UPPER
from pliant.packing.scheduling.iteration_cost import LinearCost, Point

matplotlib.use("Agg")

LOWER = QUANTILES.index(0.1)
GREY = "#6b7686"


def predicted(packing: Packing) -> Figure:
    """Draw the observed tokens of every held-out output over the predicted median, with the range from 10% to 90%."""
    figure = Figure(figsize=(6.5, 5.5), layout="constrained")
    axes = figure.subplots()
    middle, low, high = (packing.forecasts[:, at] for at in (MEDIAN, LOWER, UPPER))
    order = np.argsort(middle, kind="stable")
    axes.fill_between(middle[order], low[order], high[order], color="#d9dee6", label="10% to 90% predicted")
    axes.scatter(middle, packing.output_tokens, s=8, alpha=0.6, linewidths=0, label="a held-out prompt")
    top = float(max(middle.max(), packing.output_tokens.max()))
    axes.plot([1, top], [1, top], linestyle=":", color=GREY, label="as predicted")
    axes.set(xscale="log", yscale="log", xlabel="predicted median (tokens)", ylabel="observed (tokens)")
    axes.set_title(f"Output lengths of {packing.name}")
    axes.legend()
    return figure


def lengths(packing: Packing) -> Figure:
    """Draw how long outputs are, and the share of them within each forecast quantile."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(packing.output_tokens, bins=30, color="C0")
    left.set(xlabel="tokens of an output", ylabel="held-out prompts", title=f"Observed outputs of {packing.name}")
    within = (packing.output_tokens[:, None] <= packing.forecasts).mean(axis=0)
    right.plot([0, 1], [0, 1], linestyle=":", color=GREY)
    right.plot(QUANTILES, within, marker="o", linewidth=2, label="forecasts")
    right.set(xlabel="level of the quantile", ylabel="share of the outputs within it", title="Coverage")
    right.grid(alpha=0.3)
    right.legend()
    return figure


def steps(points: Sequence[Point], fitted: LinearCost, device: str) -> Figure:
    """Draw the measured milliseconds of every profiled iteration over those of the fit."""
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    fit = [1000 * float(fitted.seconds(p.queries, p.sequences, p.cached)) for p in points]
    measured = [1000 * p.seconds for p in points]
    axes.scatter(fit, measured, s=14)
    top = max(*fit, *measured)
    axes.plot([0, top], [0, top], linestyle=":", color=GREY)
    axes.set(xlabel="fitted (ms)", ylabel="measured (ms)", title=f"Iterations on {device}")
    axes.grid(alpha=0.3)
    return figure


def policies(choice: Choice) -> Figure:
    """Draw mean and tail of the completion times, and tokens computed again, policy by policy. Simulated."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    names = [figures.policy for figures in choice.policies]
    shown = (
        ("mean completion (s)", [figures.mean for figures in choice.policies]),
        ("99th percentile (s)", [figures.p99 for figures in choice.policies]),
        ("computed again (%)", [100 * figures.recomputed for figures in choice.policies]),
    )
    for axes, (title, values) in zip(figure.subplots(1, 3), shown, strict=True):
        _bars(axes, names, values, title)
    figure.suptitle("Policies on the reference workload, simulated on the measured steps")
    return figure


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float], title: str) -> None:
    axes.bar(names, values, color=["C0" if name == "default" else "#b8c0cc" for name in names])
    axes.set_title(title)
    axes.tick_params(axis="x", rotation=30)
