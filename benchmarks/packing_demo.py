"""The packing system's part of `pliant demo`: chats over HTTP, and the same chats simulated under the other policies.

The service's journal tells which prompts came when, what was predicted of each, and how long each output became. The very
same are then simulated on the measured profile: by the scheduler that served them, which shows what the simulator is worth,
and by those that it is compared with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.packing_load import LoadConfig, arrivals, ask, live_packing, questions
from flows import packing_live
from flows.settings import Settings
from pliant.errors import RegistryError
from pliant.packing.artifact import Packing
from pliant.packing.journal import Entry
from pliant.packing.plan import rules_of
from pliant.packing.policy import Rules
from pliant.packing.request import Prompt
from pliant.packing.scheduler import Packer
from pliant.packing.simulated import Run, simulate, summary
from pliant.progress import Progress
from serving.packing_journal import read

LOAD = LoadConfig(seconds=6.0, share=0.3)
LIVE = "live"
WAYS = {
    "default": "simulated",
    "paged": "simulated: pages on demand, first come, first served",
    "s3": "simulated: S3 as published",
    "orca": "simulated: the longest output reserved (ORCA)",
}
COLOURS = ("#c1440e", "#e3b23c", "#1f5f8b", "#5b8c5a", "#9a9a9a")


@dataclass(frozen=True, slots=True)
class Way:
    """Seconds from arrival to the last token by request, tokens a second, and how often one was preempted."""

    took: np.typing.NDArray[np.float64]
    tokens: float
    preemptions: int

    def row(self, name: str) -> tuple[str, ...]:
        figures = (f"{1e3 * x:,.0f}" for x in (self.took.mean(), *np.quantile(self.took, (0.5, 0.99))))
        return name, *figures, f"{self.tokens:,.0f}", str(self.preemptions)


def demo(told: Settings, console: Console) -> None:
    """Print the comparison and point at the picture. Raises `RegistryError` without a champion."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from flows.progress import stage

    packing = live_packing()
    with stage("chats of unknown length under one load") as progress:
        found = measure(told, packing, progress)
    table = Table("", "mean ms", "p50 ms", "p99 ms", "tokens/s", "preemptions")
    for name, way in found.items():
        table.add_row(*way.row(name), style="bold" if name == LIVE else "")
    memory = packing.memory
    console.print(
        f"The cache of {packing.name} on {packing.device_class}: {memory.pages} pages of {memory.page_tokens} tokens. "
        f"{len(found[LIVE].took)} chats in {LOAD.seconds:g} s, {LOAD.share:g} times what the device bears by its profile."
    )
    console.print(table)
    console.print(f"\nThe picture of this run: {_record(told, found)}")


def measure(told: Settings, packing: Packing, progress: Progress) -> dict[str, Way]:
    """How every request fared, by way of serving."""
    path = told.home / "packing-demo.jsonl"
    path.unlink(missing_ok=True)
    pool, asked = questions(LOAD.seed), arrivals(packing, LOAD)
    live = ask(packing, asked, pool, "default", LOAD, progress, journal=path)
    rules = rules_of(packing, _context(told, packing))
    prompts = recovered(read(path), rules, packing)[LOAD.warm :]
    lengths = {one.id: one.exact for one in prompts}
    ways = {LIVE: Way(live.took, live.tokens / live.seconds, live.preemptions)}
    for policy, name in WAYS.items():
        run = simulate(prompts, lengths, replace(rules, policy=policy), packing.memory, packing.steps)
        ways[name] = way_of(run)
    return ways


def _context(told: Settings, packing: Packing) -> int:
    registry = packing_live.open_registry(told)
    return packing_live.generator(registry, packing_live.live(registry)[packing.name]).context


def recovered(journal: Sequence[Entry], rules: Rules, packing: Packing) -> list[Prompt]:
    """The prompts of a journal that ended, in order of arrival, each with its output's tokens as `exact`.

    A fresh scheduler is told what the live one was told; it must decide what that decided. Raises `RegistryError` if not.
    """
    packer, made = Packer(rules, packing.memory), Counter[int]()
    came, ended = list[Prompt](), set[int]()
    for now, round, decision in journal:
        came += round.arrived
        ended |= set(round.finished)
        if packer.handle(round, now) != decision:
            raise RegistryError(f"the journal of {packing.name} is not that of the champion's scheduler")
        made.update(packer.making())
    return [replace(one, exact=made[one.id]) for one in came if one.id in ended]


def way_of(run: Run) -> Way:
    """Of a simulated run."""
    told = summary(run)
    return Way(np.array([one.ended - one.arrival for one in run.fates]), told.tokens_per_second, told.preemptions)


def _record(told: Settings, found: Mapping[str, Way]) -> Path:
    """The figure as PNG and in MLflow."""
    figure, path = load_figure(found), told.home / "packing_load.png"
    figure.savefig(path, dpi=110)
    with packing_live.open_registry(told).run("packing load", {"kind": "replay"}) as run:
        run.metrics({"mean_seconds": float(found[LIVE].took.mean())})
        run.figure("load", figure)
    return path


def load_figure(found: Mapping[str, Way]) -> Any:
    """Completion times by share of the requests."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for colour, (name, way) in zip(COLOURS, found.items(), strict=False):
        took = np.sort(way.took)
        axes.plot(100 * np.arange(1, len(took) + 1) / len(took), 1e3 * took, color=colour, label=name)
    axes.set(xlabel="% of requests completed within", ylabel="completion (ms)", yscale="log", xlim=(0, 100))
    axes.legend(frameon=False)
    return figure
