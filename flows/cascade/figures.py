"""Pictures of a cascade: whether its confidences hold, what its candidates cost.

Knows matplotlib and artifacts only.
"""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pliant.cascade.artifact import Candidate, Cascade
from pliant.cascade.calibrate import Reliability

matplotlib.use("Agg")


def reliability(level: str, before: Reliability, after: Reliability) -> Figure:
    """Draw accuracy over confidence of one level before and after calibration, and where its texts are (bars)."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    both = zip(figure.subplots(1, 2, sharey=True), ("before", "after"), (before, after), ("C1", "C0"), strict=True)
    for axes, when, diagram, colour in both:
        _draw(axes, when, diagram, colour)
    figure.axes[0].set_ylabel("accuracy (bars: share of the texts)")
    figure.suptitle(f"How far the confidence of {level} can be trusted")
    return figure


def _draw(axes: Axes, when: str, diagram: Reliability, colour: str) -> None:
    bins = len(diagram.count)
    edges = np.linspace(0, 1, bins + 1)
    axes.bar(
        edges[:-1], diagram.count / diagram.count.sum(), 1 / bins, align="edge", color="#d9dee6", edgecolor="white"
    )
    axes.plot([0, 1], [0, 1], linestyle=":", color="#6b7686")
    filled = diagram.count > 0
    label = f"{when}: ECE {100 * diagram.error:.1f}%"
    axes.plot(diagram.confidence[filled], diagram.accuracy[filled], marker="o", linewidth=2, color=colour, label=label)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel=f"confidence ({bins} bins)")
    axes.legend(loc="upper left")


def candidates(cascade: Cascade) -> Figure:
    """Draw accuracy over mean seconds of every candidate. The line below a point goes down to what it promises."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    for index, candidate in enumerate(cascade.candidates):
        _point(axes, candidate, cascade.test_accuracy.get(candidate.name), index)
    axes.axhline(cascade.target, linestyle=":", color="#6b7686", label=f"target {cascade.target:.3f}")
    axes.set_xlabel(f"mean milliseconds of one request alone ({cascade.device})")
    axes.set_ylabel("accuracy (crosses: on the test split)")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    axes.set_title(f"What the candidates of {cascade.task} cost and earn")
    return figure


def _point(axes: Axes, candidate: Candidate, tested: float | None, index: int) -> None:
    colour, milliseconds = f"C{index % 10}", 1000 * candidate.seconds
    below = [[max(0.0, candidate.accuracy - candidate.promised)], [0.0]]
    marker = "*" if index == 0 else "o"  # the first serves by default
    size = 14 if index == 0 else 7
    axes.errorbar(
        [milliseconds],
        [candidate.accuracy],
        below,
        fmt=marker,
        markersize=size,
        capsize=4,
        color=colour,
        label=candidate.name,
    )
    if tested is not None:
        axes.plot([milliseconds], [tested], marker="x", linestyle="none", color=colour)
