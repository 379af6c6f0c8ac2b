"""`pliant demo [SYSTEM ...]`: flow, registry, endpoint, replayed load, end to end, one system after the other.

Each ends with a picture, one figure, and whether Pliant is ahead by it.

Tokens come first, with their picture as soon as it is there. What an interrupted demo has made is kept, and not made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pliant import systems
from pliant.flows import settings
from pliant.flows.progress import observed
from pliant.flows.run import run_connected, show, with_prefect
from pliant.flows.settings import Settings
from pliant.report import Observation

COLOURS = ("#c1440e", "#1f5f8b", "#777777", "#e08e0b")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`ratio`: how many times as good Pliant was in a `figure`; `reason`: a sentence for one that it lost."""

    figure: str
    ratio: float
    reason: str

    @property
    def ahead(self) -> bool:
        """Whether Pliant was better; not where there was nothing to compare (NaN)."""
        return self.ratio > 1.0


def conclude(console: Console, comparisons: Mapping[str, Comparison]) -> list[str]:
    """Print how each system's comparison ended, with a sentence for each that Pliant lost; return those systems."""
    table = Table("", "compared", "Pliant", "", title="How the comparisons ended")
    for system, comparison in comparisons.items():
        style, said = ("", "ahead") if comparison.ahead else ("bold red", "not ahead")
        table.add_row(system, comparison.figure, f"{comparison.ratio:.2f}x", said, style=style)
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
    from matplotlib.ticker import LogLocator, NullFormatter

    from pliant.flows.release import open_registry

    figure, path = Figure(figsize=(8, 4), layout="constrained"), project.home / f"{system}_load.png"
    axes = figure.subplots()
    for colour, (name, some) in zip(COLOURS, seen.items(), strict=False):
        took = np.sort([each.answered - each.request.arrival for each in some if each.answered is not None])
        axes.plot(100 * np.arange(1, len(took) + 1) / max(len(some), 1), 1e3 * took, color=colour, label=name)
    axes.set(xlabel="% of requests answered within", ylabel="latency (ms)", yscale="log", xlim=(0, 100))
    axes.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}", minor_formatter=NullFormatter())
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    with open_registry(project, system).run(f"{system} load", {"kind": "replay"}) as run:
        run.metrics(metrics)
        run.document("load", document)
        run.figure("load", figure)
    return path


FIRST_PORT = 3000
WORDS: Mapping[str, tuple[str, str]] = {
    "tokens": ("train, profile, judge, publish", "the same bursty load with gamma 0 and with adaptation"),
    "bins": (
        "train, compile, profile, choose bins, judge, publish",
        "the same texts of all lengths, with bins and without",
    ),
    "cascade": (
        "train, calibrate, profile, plan, judge, publish",
        "the same texts with the cascade and with its large model",
    ),
    "packing": (
        "train, observe lengths, predict, profile, plan, judge, publish",
        "the same chats, packed by predicted lengths and first come, first served",
    ),
}
"""What a system's flow and its load are called."""


def demo(names: Sequence[str], keep: bool, check: bool = False) -> int:
    """Run the demo of the systems `names` in the order of the list (all, where none is named). With `keep`, all stays up.

    Returns the exit status: with `check` 1 where Pliant is not ahead in every comparison, else 0.
    """
    chosen = [name for name in systems.names() if name in names or not names]
    project, console = settings.read(), Console()

    def prepare() -> None:
        """Do what takes seconds while Prefect's server starts: load torch and the flow, and make MLflow's new database."""
        systems.system(chosen[0]).part("flows", "flow")
        from pliant.flows.release import open_registry

        open_registry(project, chosen[0]).create()

    took: dict[str, dict[str, float]] = {}
    with with_prefect(project, prepare, for_people=keep) as prefect:
        comparisons: dict[str, Comparison] = {}
        for system in chosen:
            took[system] = {}
            (flow, load), part = WORDS[system], systems.system(system).part("benchmarks", "demo")
            with observed(took[system].__setitem__):
                console.rule(f"{system}, flow: {flow}")
                show(run_connected(system, None, part.OVERRIDES))
                console.rule(f"{system}, endpoint: {load}")
                comparisons[system] = part.demo(project, console)
        console.rule("Done")
        kept = {"took": took, "ratios": {system: comparison.ratio for system, comparison in comparisons.items()}}
        (project.home / "demo.json").write_text(json.dumps(kept, indent=1) + "\n")
        behind = conclude(console, comparisons)
        for line in FURTHER:
            console.print(f"  {line}")
        if keep:
            _keep(console, project, prefect, chosen)
    return 1 if check and behind else 0


FURTHER = (
    "pliant demo --keep       MLflow, Prefect and the endpoints, left running",
    "pliant serve SYSTEM      an endpoint alone; docs/SYSTEM.md says what it answers",
    "pliant simulate SYSTEM   the same load in virtual time",
    "pliant train SYSTEM      the flow in its own size, larger than here",
    "pliant bench SYSTEM      every target, measured",
)
"""How to look further."""


def _keep(console: Console, project: Settings, prefect: str, chosen: Sequence[str]) -> None:
    from pliant.benchmarks.endpoint import serving
    from pliant.cli import ui
    from pliant.flows.progress import stage

    with ExitStack() as stack:
        with stage("MLflow's server"):
            pages = stack.enter_context(ui.pages(project, prefect))
        addresses, share = {}, 1.0 if ui.may_trace(project) else 0.0  # these are for people, not for loads
        for number, system in enumerate(chosen):
            if share:
                os.environ |= ui.collector(project, system, pages)
            with stage(f"endpoint of {system}"):
                addresses[system] = stack.enter_context(serving(system, FIRST_PORT + number, trace_share=share))
        console.rule("Left running until Ctrl-C")
        console.print(str(pages))
        for system, address in addresses.items():
            console.print(f"{system:<10}{address}")
        if share:
            console.print("Every request of theirs is traced into MLflow.")
        ui.wait()
        console.print("Stopping.")
