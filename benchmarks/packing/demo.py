"""The packing system's part of `pliant demo`: the same chats live under our policy and under what one would have without.

That is pages on demand, first come, first served: what engines of text generation do that predict nothing. Both are the
same endpoint with the same champion, told another policy. More chats come than the machine bears, since a policy decides
who waits: with less to do than that nobody waits, and no policy differs. Each chat has a deadline, and what is compared is
how many are answered by theirs: who gets an answer later than that has gone. Nothing is simulated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from pliant.benchmarks.demo.run import Comparison, keep
from pliant.benchmarks.packing.live import (
    HEADINGS,
    OURS,
    RIVAL,
    Contest,
    ContestConfig,
    contest,
    live_packing,
    questions,
)
from pliant.flows.settings import Settings

OVERRIDES: Mapping[str, Any] = {
    "embedded": {"width": 64, "layers": 24, "first": 2, "joined": 0.05, "epochs": 0.22, "batch_tokens": 512},
    "lengths": {"requests": 900},
}
"""Laid over the flow's embedded configuration: sizes that a slow processor trains in half a minute.

24 layers make a chat's generation much heavier than its way over HTTP. All but two join in the last twentieth of the steps,
so that many cost little more in training than few. Many small steps: after as many tokens in steps of 2,048 the lengths did
not yet follow from the questions, and there was nothing to predict. The memory is the flow's own.
"""
LOAD = ContestConfig()
NAMES = {OURS: "Pliant", RIVAL: "first come, first served"}
REASON = (
    "Pliant wins by starting the chats that can still be in time, by how long their texts will be and how long the engine "
    "takes: where either is forecast wrongly, it starts the wrong ones."
)


def demo(project: Settings, console: Console) -> Comparison:
    """Print the comparison and point at the picture. Raises `RegistryError` without a champion."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from pliant.flows.progress import stage

    packing = live_packing()
    with stage("packing: chats in turns") as progress:
        result = contest(packing.name, questions(LOAD.seed), LOAD, progress)
    memory, ours, rival = packing.memory, result.fared[OURS], result.fared[RIVAL]
    console.print(
        f"The texts are held in {memory.pages} pages of {memory.page_tokens} tokens. First come, first served answers "
        f"{result.borne:.0f} chats/s on this machine. Of the processor time {result.generation:.0%} is then generation; "
        f"the rest is HTTP, the forecasts of lengths, and the client. {result.rate:.0f} chats/s come, {LOAD.overload:g} "
        f"times as many, each to be answered within {1e3 * result.deadline:.0f} ms."
    )
    console.print(table(result))
    console.print(
        "Both live, in turns, the same chats. Of all that came Pliant answers "
        f"[bold]{ours.in_time:.0%}[/bold] in time, first come, first served {rival.in_time:.0%}: "
        f"[bold]{result.ahead:.2f}x[/bold] the answers, and more of them in {result.won} of {LOAD.stretches} turns. More "
        "come than can be answered: Pliant starts those that can probably still be in time, and the others end at their "
        "deadlines without an answer."
    )
    seen = {NAMES[policy]: [reply.observation for reply in fared.replies] for policy, fared in result.fared.items()}
    metrics = {f"in_time.{policy}": fared.in_time for policy, fared in result.fared.items()}
    picture = keep(project, "packing", seen, metrics, {"config": asdict(LOAD), **result.plain()})
    console.print(f"\nThe picture of this run: {picture}")
    return Comparison("chats answered in time, over first come, first served", result.ahead, REASON)


def table(result: Contest) -> Table:
    columns = ("chats", "accepted", "of these in time", "of all in time", "p50 ms", "p90 ms")  # what 80 characters hold
    rows = Table("", *columns)
    for policy, fared in result.fared.items():
        row = dict(zip(HEADINGS, fared.row(), strict=True))
        rows.add_row(NAMES[policy], *(row[name] for name in columns), style="bold" if policy == OURS else "")
    return rows
