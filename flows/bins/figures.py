"""Pictures of a stream's bins: the latency staircase with the edges over the lengths asked for, and what padding costs.

Knows matplotlib, artifacts and choices only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pliant.bins.artifact import Bins
from pliant.flows.bins.plan import Choice, ShapeTrial
from pliant.latency import LatencyTable

matplotlib.use("Agg")

GROUP = 8  # tokens a bar of the histogram


def staircase(bins: Bins, choice: Choice, static: Mapping[int, float], dynamic: LatencyTable) -> Figure:
    """Draw the milliseconds of one text over its length, the edges, and the requests (bars).

    `static`: seconds at batch 1 by length, and `dynamic` beside them, as measured when the edges were chosen.
    """
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    _requests(axes.twinx(), bins)
    lengths = sorted(static)
    if lengths:
        axes.step(
            lengths, [1000 * static[n] for n in lengths], where="pre", linewidth=2, color="C0", label="static, batch 1"
        )
    axes.plot(dynamic.settings, [1000 * row[0] for row in dynamic.seconds], color="C1", marker=".", label="dynamic")
    kept = {shape.length for shape in bins.shapes if not shape.dynamic}
    for edge in choice.edges:
        axes.axvline(
            edge, color="#6b7686", linestyle="-" if edge in kept else ":", linewidth=1.5 if edge in kept else 1
        )
    axes.set(xlabel="tokens (lines: edges; dotted: no faster than dynamic, not kept)", xlim=(0, bins.shapes[-1].length))
    axes.set_ylabel(f"milliseconds ({bins.engine}, {bins.device_class})")
    axes.set_title(f"{bins.name}: {len(kept)} of {len(choice.edges)} bins have static runtimes")
    axes.legend(loc="upper left")
    axes.set_zorder(2)
    axes.patch.set_visible(False)
    return figure


def _requests(axes: Axes, bins: Bins) -> None:
    lengths = np.flatnonzero(bins.lengths)
    edges = list(range(0, len(bins.lengths) + GROUP, GROUP))
    axes.hist(lengths, bins=edges, weights=bins.lengths[lengths] / max(1, bins.lengths.sum()), color="#d9dee6")
    axes.set_ylabel(f"share of the requests (bars of {GROUP} tokens)")


def padding(bins: Bins, choice: Choice) -> Figure:
    """Draw the mean milliseconds of a request alone per number of static runtimes, each number's best edges."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    numbers = np.arange(1, len(choice.costs) + 1)
    axes.plot(
        numbers, [1000 * cost for cost in choice.costs], marker="o", linewidth=2, label="static, padded to the edge"
    )
    axes.axhline(1000 * choice.dynamic, color="C1", linestyle="--", label="dynamic, not padded")
    if choice.edges:
        at = min(len(choice.edges), len(choice.costs))
        axes.plot([at], [1000 * choice.costs[at - 1]], marker="*", markersize=16, color="C3", label=f"chosen: {at}")
    axes.set(xlabel="number of static runtimes", ylabel="mean milliseconds of a request alone", ylim=(0, None))
    axes.locator_params(axis="x", integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    axes.set_title(f"What padding costs {bins.name}")
    return figure


def gains(bins: Bins, trials: Sequence[ShapeTrial]) -> Figure:
    """Draw per static shape its seconds as a share of the dynamic runtime's for the same requests."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, batch in enumerate(sorted({trial.batch for trial in trials})):
        alike = [trial for trial in trials if trial.batch == batch and trial.dynamic > 0]
        lengths, ratios = [trial.length for trial in alike], [trial.static / trial.dynamic for trial in alike]
        axes.plot(lengths, ratios, color=f"C{number}", linewidth=1, alpha=0.6, label=f"batch {batch}")
        for trial, ratio in zip(alike, ratios, strict=True):
            style = "full" if trial.kept else "none"
            axes.plot([trial.length], [ratio], marker="o", color=f"C{number}", fillstyle=style)
    axes.axhline(1.0, linestyle=":", color="#6b7686")
    axes.set(xlabel="tokens (filled: kept)", ylabel="seconds, static / dynamic", title=f"Static shapes of {bins.name}")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
