"""The picture of a replay: offered load, gamma chosen, and utility earned, adaptive against gamma 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.load_generator import Reply
from pliant.tokens.reference import ReferenceLoad

matplotlib.use("Agg")

COLOURS = {"adaptive": "#d1495b", "gamma 0": "#2a5db0"}


def replay_figure(load: ReferenceLoad, capacity: float, replies: Mapping[str, Sequence[Reply]]) -> Figure:
    """Draw three rows over time: requests per second, answered requests by gamma, utility per second of every policy."""
    figure = Figure(figsize=(10, 8.5), layout="constrained")
    rate, gamma, utility = figure.subplots(3, 1, sharex=True)
    _rates(rate, load, capacity)
    _gammas(gamma, replies["adaptive"])
    _utilities(utility, replies)
    for axes in (rate, gamma, utility):
        _shade(axes, load)
        axes.margins(x=0)
    utility.set_xlabel("seconds")
    return figure


def _rates(axes: Axes, load: ReferenceLoad, capacity: float) -> None:
    arrivals = np.array([r.arrival for r in load.requests])
    centres, counts = _per_bin(arrivals, np.ones(len(arrivals)), sum(segment.seconds for segment in load.segments))
    axes.plot(centres, counts, color="#333333", linewidth=1.5, label="offered")
    axes.axhline(capacity, color=COLOURS["gamma 0"], linestyle="--", label="served at gamma 0")
    axes.set_ylabel("requests per second")
    axes.set_title("The load: quiet and loud stretches (shaded)")
    axes.legend(loc="upper right")


def _gammas(axes: Axes, replies: Sequence[Reply]) -> None:
    answered = [r.observation for r in replies if r.observation.answered is not None]
    times = [o.request.arrival for o in answered]
    settings = [o.setting for o in answered]
    axes.scatter(times, settings, s=3, alpha=0.15, color=COLOURS["adaptive"])  # type: ignore[arg-type]
    axes.set_ylabel("gamma")
    axes.set_title("The gamma that each answered request got")


def _utilities(axes: Axes, replies: Mapping[str, Sequence[Reply]]) -> None:
    for name, some in replies.items():
        earned = [r.observation for r in some if r.observation.outcome == "accurate"]
        times = np.array([o.request.arrival for o in earned])
        centres, sums = _per_bin(times, np.array([o.request.utility for o in earned]), max(times, default=1.0))
        axes.plot(centres, sums, linewidth=2, label=name, color=COLOURS.get(name))
    axes.set_ylabel("utility per second")
    axes.set_title("What was earned: correct answers in time, by their utility")
    axes.legend(loc="upper right")


def _shade(axes: Axes, load: ReferenceLoad) -> None:
    start = 0.0
    for i, segment in enumerate(load.segments):
        if i % 2:
            axes.axvspan(start, start + segment.seconds, color="#f3d9a4", alpha=0.4, linewidth=0)
        start += segment.seconds


def _per_bin(
    times: NDArray[np.float64], weights: NDArray[np.float64], until: float, width: float = 0.5
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    edges = np.arange(0.0, until + width, width)
    sums, _ = np.histogram(times, edges, weights=weights)
    return (edges[:-1] + edges[1:]) / 2, sums / width
