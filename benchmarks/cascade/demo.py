"""The cascade's half of `pliant demo`: one load of held-out texts over HTTP, with a table and a picture at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from pliant.benchmarks.cascade.replay import HEADINGS, KEPT, LoadConfig, Loaded, largest, measure
from pliant.benchmarks.demo.run import Comparison, keep
from pliant.flows.settings import Settings

# Chosen on one core with AVX2 at some 10 Gflop/s, where training both levels takes half a minute (docs/log).
OVERRIDES: Mapping[str, Any] = {
    "levels": [
        {
            "name": "small",
            # Smaller, or trained for one epoch, it is right in half of the texts on some processors: nothing to save.
            "scratch": {"width": 64, "layers": 1, "heads": 2, "vocabulary": 2000},
            "classifier": {"epochs": 3, "batch": 16, "rate": 4e-3, "head_rate": 4e-3, "max_length": 48},
        },
        {
            "name": "large",
            "scratch": {"width": 128, "layers": 4, "heads": 4, "vocabulary": 4000, "dropout": 0.2},
            # Learns from the first 32 tokens and reads 128: that makes a text much heavier than its way over HTTP.
            "classifier": {"epochs": 1, "batch": 16, "rate": 3e-3, "head_rate": 3e-3, "train_length": 32},
        },
    ],
    "outputs": {"prunings": []},
    "latency": {
        "lengths": [16, 32, 64],
        "batches": [1, 4, 16],
        "timer": {"warmup": 1, "least": 3, "most": 10, "budget": 0.05},
    },
    "gate": {"seeds": 1},
    "reference": {"seconds": 0.5},
}
"""The demo's sizes, laid over the flow's: `pliant train cascade` trains longer, on longer texts, and a larger model."""

DEFAULT = "default"
LOAD = LoadConfig(seconds=3.0, share=2.0, probe=1.5, turns=2)


def demo(project: Settings, console: Console) -> Comparison:
    """Compare the default with the large model alone, and point at the picture."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from pliant.flows.progress import stage

    with stage("the cascade and its large model under one load") as progress:
        cascade, compared = measure([DEFAULT], LOAD, progress)
    alone, promised = largest(cascade), cascade.candidates[0].promised
    console.print(
        f"The large model alone bears {compared.capacity:.0f} texts/s on this machine; offered are {compared.rate:.0f}, "
        f"each to be answered within {1e3 * LOAD.deadline:.0f} ms. The table says how many of the answers "
        "were right (acc.), which model gave them (level), and how many were cut short by their deadline (cut)."
    )
    console.print(table(compared, promised))
    console.print(words(compared, promised, cascade.confidence))
    default, large, ratio = compared.report(DEFAULT), compared.report(alone), compared.ratio(DEFAULT, alone)
    console.print(
        f"Of the texts, the cascade answers [bold]{ratio:.2f}x[/bold] as many correctly and in time as the large model "
        f"alone: {default.utility:.0f} and {large.utility:.0f} of {default.requests}, at the median in "
        f"{1e3 * default.p50:.0f} ms and {1e3 * large.p50:.0f} ms. "
        + (
            "Deadlines are met by answers of the small model: where it is sure, and where the large one has no time."
            if len(cascade.candidates[0].levels) > 1
            else "The small model was right too seldom on this machine for a promise, so the large one serves alone."
        )
    )
    borne = {"capacity": compared.capacity, "rate": compared.rate}
    picture = keep(project, "cascade", compared.seen(), borne, compared.plain())
    console.print(f"\nThe picture of this run: {picture}")
    reason = "Where the small model is hardly faster than the large one with its way over HTTP, there is little to win."
    return Comparison("texts answered correctly and in time, over the large model alone", ratio, reason)


def table(compared: Loaded, promised: float) -> Table:
    """Return the table; `promised` stands in the line that it is about."""
    columns = ("candidate", "in time", "acc.", "promised", "p50 ms", "level", "cut")  # what 80 characters hold
    rows, lines = Table(*columns), [dict(zip(HEADINGS, line, strict=True)) for line in compared.rows()]
    about = DEFAULT + KEPT if any(line["candidate"] == DEFAULT + KEPT for line in lines) else DEFAULT
    for line in lines:
        name = line["candidate"]
        cells = line | {"promised": f"{promised:.3f}" if name == about else ""}
        rows.add_row(*(cells[column] for column in columns), style="bold" if name == DEFAULT else "")
    return rows


def words(compared: Loaded, promised: float, confidence: float) -> str:
    """Return what was promised, what deadlines did, and whether what they left alone kept the promise."""
    cut, kept = compared.cut_short(DEFAULT), compared.cut_short(DEFAULT, False)
    said = (
        f"Promised is an accuracy of {promised:.3f} at least (with {confidence:.0%} confidence) for answers that are given "
        "as planned."
    )
    if cut.requests:
        said += (
            f" Deadlines cut {cut.requests / (cut.requests + kept.requests):.1%} of the answers short: the small model was "
            "unsure, no time was left for the large one, and so its own answer was given, which was right in "
            f"{cut.accuracy:.3f}. Of these nothing is promised, and each says so (`cut_short`)."
        )
    if not kept.requests:
        return f"{said} None was given as planned."
    if kept.accuracy >= promised:
        return f"{said} The others are right in {kept.accuracy:.3f}."
    chance = 2 * math.sqrt(promised * (1 - promised) / kept.requests)
    much = "and more" if promised - kept.accuracy > chance else "but no more"
    return (
        f"{said} The others are right in {kept.accuracy:.3f}: less, {much} than chance explains with {kept.requests}."
    )
