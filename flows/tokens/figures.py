"""Pictures of a tokens profile: what each gamma costs and what it earns. Knows matplotlib and artifacts only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pliant.tokens.artifact import Profile, Task

matplotlib.use("Agg")


def trade_off(tasks: Sequence[Task], profile: Profile, batch: int = 32) -> Figure:
    """Draw test accuracy per task (lines) and throughput at one batch size (bars) over gamma."""
    gammas = profile.latency.settings
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    place = np.arange(len(gammas))
    rates = [batch / profile.latency.at(gamma, batch) for gamma in gammas]
    right.bar(place, rates, color="#d9dee6", width=0.7, zorder=0)
    right.set_ylabel(f"images per second at batch {batch} (bars)", color="#6b7686")
    for task in tasks:
        left.plot(place, [task.test_accuracy[g] for g in gammas], marker="o", linewidth=2, label=task.name, zorder=3)
    left.set_zorder(right.get_zorder() + 1)
    left.set_frame_on(False)
    left.set_xticks(place, [f"{g:+d}" if g else "0" for g in gammas])
    left.set_xlabel("gamma: tokens merged (-) or prompts added (+) per layer")
    left.set_ylabel("accuracy on held-out images")
    left.legend(loc="lower right", frameon=True)
    left.set_title("What each gamma earns and what it costs")
    return figure


def rate_map(profile: Profile) -> Figure:
    """Draw the derived rate-to-gamma rule as a staircase (the paper's Table I, but measured)."""
    rule = profile.rule
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    last = rule.below[-1] * 1.2 if rule.below else 1.0
    axes.stairs(rule.gammas, [0.0, *rule.below, last], linewidth=2.5, color="#2a5db0", baseline=None)
    axes.set_xlabel("arrival rate (requests per second and device)")
    axes.set_ylabel("gamma")
    axes.set_yticks(sorted(rule.gammas))
    axes.grid(alpha=0.3)
    axes.set_title("Which gamma the rate rule picks")
    return figure


def sweeps(swept: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw per task the accuracy of every learning rate's trial, with the plain head's as a dotted line."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for index, (task, sweep) in enumerate(swept.items()):
        axes.plot(sweep["rates"], sweep["accuracy"], marker="o", linewidth=2, color=f"C{index}", label=task)
        axes.axhline(sweep["plain"], linestyle=":", color=f"C{index}")
    axes.set_xscale("log")
    rates = sorted({rate for sweep in swept.values() for rate in sweep["rates"]})
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set_xlabel("learning rate of the prompts (dotted: gamma 0)")
    axes.set_ylabel("accuracy on the held-out part of the fit split")
    axes.legend()
    axes.set_title("Trials of the learning rate")
    return figure
