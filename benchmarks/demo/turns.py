"""Endpoints that get the same requests in turns, so that what else the machine does falls on all alike, and how all fare."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from pliant.benchmarks.load_generator import Form, Reply, replay, turns
from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import Observation, Report, summarise


@dataclass(frozen=True, slots=True)
class Compared:
    """`borne`: requests/s that the machine bears, by turn. `turns`: the replies of every turn, by name."""

    borne: Sequence[float]
    turns: Mapping[str, Sequence[Sequence[Reply]]]

    @property
    def bears(self) -> float:
        """Return the mean of the turns."""
        return statistics.fmean(self.borne)

    def seen(self, name: str, turn: int | None = None) -> list[Observation]:
        """Return how the requests of a turn fared, or those of all; the times of each turn begin at 0."""
        some = self.turns[name] if turn is None else [self.turns[name][turn]]
        return [reply.observation for replies in some for reply in replies]

    def report(self, name: str, turn: int | None = None) -> Report:
        """Report on a turn, or on all; of all the goodput says nothing, as their times are the same."""
        return summarise(self.seen(name, turn))

    def mean(self, name: str, turn: int | None = None) -> float:
        """Return the mean seconds to the answer; without one a request counts all the time that it had."""
        ends = [(each.request, each.answered) for each in self.seen(name, turn)]
        return statistics.fmean((r.deadline if at is None else at) - r.arrival for r, at in ends)

    def plain(self) -> dict[str, Any]:
        """Return what is kept of the comparison."""
        return {"borne": list(self.borne), "reports": {name: asdict(self.report(name)) for name in self.turns}}

    def table(self, columns: Sequence[str], bold: str) -> Table:
        """Return a table with a row for each name; `columns` are those of `cells`, and `bold` is the name of one row."""
        rows = Table("", *columns)
        for name in self.turns:
            own = cells(self.report(name)) | {"mean ms": f"{1e3 * self.mean(name):.1f}"}
            rows.add_row(name, *(own[column] for column in columns), style="bold" if name == bold else "")
        return rows


def cells(report: Report) -> dict[str, str]:
    """Return the figures of a report as text; times are those of requests that were answered."""
    milliseconds = {f"{name} ms": f"{1e3 * getattr(report, name):.0f}" for name in ("p50", "p98", "p99")}
    shares = {"in time": f"{report.attainment:.1%}", "accuracy": f"{report.accuracy:.1%}"}
    return {"requests": str(report.requests), "utility": f"{report.utility:.0f}", **shares, **milliseconds}


def compare(
    addresses: Mapping[str, str],
    forms: Mapping[str, Form],
    pool: Mapping[str, Sequence[Any]],
    count: int,
    probe: Callable[[], float],
    load: Callable[[int, float], Sequence[Request]],
    progress: Progress = silent,
) -> Compared:
    """Send the loads of `count` turns to each address, by name.

    `probe`: what the machine bears, asked before each turn; `load`: the requests of a turn, given its number and that.
    """
    borne, done = list[float](), dict[str, list[list[Reply]]]({name: [] for name in addresses})
    for number, name, part in turns(count, list(addresses), progress):
        if number == len(borne):
            borne.append(probe())
        requests = load(number, borne[number])
        done[name].append(asyncio.run(replay(addresses[name], requests, pool, number, part, forms[name])))
    return Compared(borne, done)
