"""What the demo of a system ends with: a picture, one figure, and whether Pliant is ahead by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pliant.flows.release import open_registry
from pliant.flows.settings import Settings
from pliant.report import Observation

COLOURS = ("#c1440e", "#1f5f8b", "#777777", "#e08e0b")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`figure`: what is compared, with what; `ratio`: how many times as good Pliant was; `reason`: of one that is not ahead.

    The reason is a sentence: what may have decided instead of Pliant.
    """

    figure: str
    ratio: float
    reason: str

    @property
    def ahead(self) -> bool:
        """Whether Pliant was better; not where there was nothing to compare (NaN)."""
        return self.ratio > 1.0

    @property
    def said(self) -> str:
        """Return how it ended, in two words."""
        return "ahead" if self.ahead else "not ahead"


def conclude(console: Console, comparisons: Mapping[str, Comparison]) -> list[str]:
    """Print how each system's comparison ended, with a sentence for each that Pliant lost; return those systems."""
    table = Table("", "compared", "Pliant", "", title="How the comparisons ended")
    for system, comparison in comparisons.items():
        style = "" if comparison.ahead else "bold red"
        table.add_row(system, comparison.figure, f"{comparison.ratio:.2f}x", comparison.said, style=style)
    console.print(table)
    behind = [system for system, comparison in comparisons.items() if not comparison.ahead]
    for system in behind:
        lost = comparisons[system]
        console.print(
            f"[bold red]{system} is not ahead[/bold red]: {lost.ratio:.2f}x in {lost.figure}. {lost.reason} Other work on "
            f"this machine during a turn can do that, too: `pliant demo {system}` repeats it."
        )
    return behind


def keep(
    project: Settings,
    system: str,
    seen: Mapping[str, Sequence[Observation]],
    metrics: Mapping[str, float],
    document: Mapping[str, Any],
) -> Path:
    """Keep a picture as PNG, and it and all that was measured in MLflow; return the PNG's path.

    It shows, of all requests of each that is compared, the share that was answered within so many milliseconds.
    """
    from matplotlib.figure import Figure

    figure, path = Figure(figsize=(8, 4), layout="constrained"), project.home / f"{system}_load.png"
    axes = figure.subplots()
    for colour, (name, some) in zip(COLOURS, seen.items(), strict=False):
        took = np.sort([each.answered - each.request.arrival for each in some if each.answered is not None])
        axes.plot(100 * np.arange(1, len(took) + 1) / max(len(some), 1), 1e3 * took, color=colour, label=name)
    axes.set(xlabel="% of requests answered within", ylabel="latency (ms)", yscale="log", xlim=(0, 100))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    with open_registry(project, system).run(f"{system} load", {"kind": "replay"}) as run:
        run.metrics(metrics)
        run.document("load", document)
        run.figure("load", figure)
    return path
