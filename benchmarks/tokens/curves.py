"""`python -m benchmarks.tokens.curves`: what the champion's gammas earn and cost, as docs/tokens_curves.png and .json.

Reads the registry only: accuracies, latencies and the trials of the learning rates were measured when they were published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results import write
from benchmarks.tokens.endpoint import live_bundle
from flows import settings
from flows.release import TRAINING, open_registry
from flows.tokens.stages import Bundle
from pliant.tokens.artifact import Profile, Task
from registry.names import TOKENS_PREFIX
from registry.package import Published

matplotlib.use("Agg")

BATCH = 32


def main() -> None:
    """Write both files."""
    settings.prepare(settings.read())
    values = curves(live_bundle(), _versions())
    path = write(Path("docs"), "tokens_curves", [], values)
    figure(values).savefig(path.with_suffix(".png"), dpi=90)
    print(f"{path} and {path.with_suffix('.png')}")


def _versions() -> dict[str, Published]:
    """Return the champion's version of each model, by its name without the prefix."""
    registry = open_registry(settings.read(), "tokens")
    live = {name.removeprefix(TOKENS_PREFIX): registry.version(name) for name in registry.names(TOKENS_PREFIX)}
    return {part: version for part, version in live.items() if version is not None}


def curves(bundle: Bundle, versions: Mapping[str, Published]) -> dict[str, Any]:
    """Return plain values: the foundation, per task its training and accuracies, and the throughput per gamma."""
    backbone, profile = bundle.backbone, bundle.profile
    model = {"architecture": backbone.architecture, "options": dict(backbone.options), "source": backbone.source}
    return {
        "foundation": {**model, **_origin(versions.get("backbone"))},
        "device": profile.device,
        "tasks": {task.name: _task(task, profile, versions.get(f"task-{task.name}")) for task in bundle.tasks},
        "throughput": [_cost(profile, gamma) for gamma in profile.latency.settings],
    }


def _task(task: Task, profile: Profile, version: Published | None) -> dict[str, Any]:
    rows = [
        {"gamma": gamma, "profiling": task.accuracy[gamma], "test": task.test_accuracy[gamma]}
        for gamma in profile.latency.settings
    ]
    return {"classes": len(task.classes), "data": task.data, **_origin(version), "accuracy": rows}


def _origin(version: Published | None) -> dict[str, Any]:
    """Return which version, published at which commit, and how it was trained where that was noted."""
    if version is None:
        return {}
    noted = json.loads(version.tags.get(TRAINING, "{}"))
    return {"version": version.version, "commit": version.tags.get("pliant.git_commit", "unknown"), "training": noted}


def _cost(profile: Profile, gamma: int) -> dict[str, Any]:
    """Return median and spread (interquartile range) of a batch of `BATCH` in seconds, and the throughput at the median."""
    latency = profile.latency
    seconds = latency.at(gamma, BATCH)
    cost = {"gamma": gamma, "batch": BATCH, "images_per_second": BATCH / seconds, "seconds": seconds}
    if BATCH in latency.batches:
        spread = profile.spread[latency.settings.index(gamma)][latency.batches.index(BATCH)]
        cost["spread_seconds"] = spread
    return cost


def figure(values: Mapping[str, Any]) -> Figure:
    """Draw accuracy and throughput over gamma, and the trials of the learning rates where there were any."""
    swept = {
        name: task["training"]["sweep"] for name, task in values["tasks"].items() if "sweep" in task.get("training", {})
    }
    drawn = Figure(figsize=(12.5 if swept else 8.5, 4), layout="constrained")
    panels = drawn.subplots(1, 3 if swept else 2)
    _accuracies(panels[0], values["tasks"])
    _throughput(panels[1], values["throughput"], values["device"])
    if swept:
        _sweeps(panels[2], swept)
    return drawn


def _accuracies(axes: Axes, tasks: Mapping[str, Any]) -> None:
    """Draw differences from gamma 0: tasks lie so far apart that on one scale their gammas would look alike."""
    for index, (name, task) in enumerate(tasks.items()):
        rows = {row["gamma"]: row for row in task["accuracy"]}
        place = np.arange(len(rows))
        for part, style in (("test", "o-"), ("profiling", ":")):
            points = [100 * (row[part] - rows[0][part]) for row in rows.values()]
            label = f"{name}: {100 * rows[0]['test']:.1f}% at 0" if part == "test" else None
            axes.plot(place, points, style, color=f"C{index}", label=label)
        axes.set_xticks(place, _signed(list(rows)))
    axes.set(xlabel="gamma", ylabel="accuracy against gamma 0, percentage points")
    axes.set_title("What each gamma earns (test; profiling dotted)")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)


def _throughput(axes: Axes, rows: Sequence[Mapping[str, Any]], device: str) -> None:
    place = np.arange(len(rows))
    axes.bar(place, [row["images_per_second"] for row in rows], color="#9fb3cc")
    axes.set_xticks(place, _signed([row["gamma"] for row in rows]))
    axes.set(xlabel="gamma", ylabel=f"images per second at batch {BATCH}", title=f"What it costs ({device})")


def _sweeps(axes: Axes, swept: Mapping[str, Any]) -> None:
    for index, (name, sweep) in enumerate(swept.items()):
        axes.plot(sweep["rates"], sweep["accuracy"], marker="o", color=f"C{index}", label=name)
        axes.axhline(sweep["plain"], linestyle=":", color=f"C{index}")
    axes.set_xscale("log")
    rates = sorted({rate for sweep in swept.values() for rate in sweep["rates"]})
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set(xlabel="learning rate of the prompts", ylabel="accuracy held out of the fit split (dotted: gamma 0)")
    axes.set_title("Trials of the learning rate")
    axes.grid(alpha=0.3)


def _signed(gammas: Sequence[int]) -> list[str]:
    return [f"{gamma:+d}" if gamma else "0" for gamma in gammas]


if __name__ == "__main__":
    main()
