"""Compares a share of the early answers with what the large model says of the same texts, in idle moments.

No label is needed: where the levels begin to differ, traffic is no longer what the plan was made for. The text of an answer
that a level before the last gave is kept in memory until nothing waits or runs; then the last level reads it alone. What it
says reaches no client and is counted nowhere else: not among answers, outcomes or tenants. A comparison may be lost (too
many wait, no idle moment comes, the worker dies, another version is served); an answer never is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.cascade.artifact import Cascade
from pliant.serving.cascade.catalog import Catalog
from pliant.serving.cascade.metric_list import AGREEMENT
from pliant.serving.cascade.reading import Draw, Handler, TextInProgress, begin
from pliant.serving.client import ANYBODY
from pliant.serving.driver import Clock, Completed, Driver
from pliant.serving.lifecycle.generation import Generations
from pliant.serving.loop.copies import Copies
from pliant.serving.loop.observe import DriftCounter, Kind, Reading
from pliant.serving.monitoring.metric_list import register
from pliant.serving.request_context import TO_CHALLENGER, FrontDoor, is_copy, to_champion_as_copy
from pliant.watch.binning import classes

QUIET = 0.05  # seconds since the last answer: a client that sends one text after the other is not slowed down
ROOM = 10.0  # deadline of a comparison, at least, over the large model's mean seconds alone
COMPARISONS = Kind(classes(("differs", "agrees")), burn_in=0.1)  # they are a small share of the answers
LEAST_UTILITY = 1e-9  # so that whatever comes meanwhile is worth more


@dataclass(frozen=True, slots=True)
class Early:
    """An answer that a level before the last gave. `text`: the text, and the second one of a pair."""

    handler: Handler
    candidate: str
    text: tuple[str, str | None]
    label: str | float


@dataclass(frozen=True, slots=True)
class Compared:
    """How many early answers of one candidate were compared, since its version was taken up, and how many agreed."""

    version: int
    compared: int = 0
    agreed: int = 0

    def with_one(self, agrees: bool) -> Compared:
        return Compared(self.version, self.compared + 1, self.agreed + agrees)


class AgreementCounter:
    """Counts comparisons for Prometheus."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        (self._compared,) = register(AGREEMENT, registry).values()

    def count(self, task: str, candidate: str, agrees: bool) -> None:
        self._compared.labels(task, candidate, "agrees" if agrees else "differs").inc()


class Agreement:
    """Compares the share `share` of early answers; `run` is a task for as long as the service lives."""

    def __init__(
        self,
        share: float,
        generations: Generations[Catalog, Handler],
        drift: DriftCounter,
        counter: AgreementCounter,
        clock: Clock,
        front: FrontDoor,
        draw: Draw | None = None,
    ) -> None:
        """`front`: whose usual deadline comparisons have."""
        self._share, self._generations, self._drift = share, generations, drift
        self._counter, self._clock, self._front = counter, clock, front
        self._draw: Callable[[], float] = draw or random.Random().random
        self._busy = float("-inf")  # when something was last answered or seen to run
        self._compared: dict[tuple[str, str], Compared] = {}
        self._copies = Copies(self._idle)

    async def run(self) -> None:
        """Wait until cancelled, then end the comparison that runs and forget those that wait."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._copies.stop()

    def answered(self, progress: TextInProgress, result: Completed) -> None:
        """Take note of an answer, and compare it later if it is an early one and in the share."""
        self._busy = self._clock()
        if not self._share or is_copy() or TO_CHALLENGER.get() or result.reason:
            return
        last = len(progress.handler.served.cascade.levels) - 1
        if progress.candidate.levels[progress.levels_done - 1] == last or self._draw() >= self._share:
            return
        early = Early(progress.handler, progress.candidate.name, progress.original, progress.label)
        self._copies.offer(partial(self._compare, early))

    def to_dict(self) -> list[dict[str, Any]]:
        """Return what a status says: for each task and candidate, how many answers were compared and how many agreed."""
        handlers = self._generations.present.handlers
        return [
            {"task": task, "candidate": candidate, "compared": each.compared, "agreed": each.agreed}
            for (task, candidate), each in self._compared.items()
            if task in handlers and handlers[task].served.version == each.version
        ]

    def _idle(self) -> bool:
        """Whether no request waits or runs, in any generation, none has for a moment, and every worker is up."""
        now, generations = self._clock(), self._generations
        if generations.draining or any(each.driver.pending for each in generations.loaded):
            self._busy = now
        return now - self._busy >= QUIET and all(generations.present.driver.up)

    async def _compare(self, early: Early) -> None:
        """Let the last level read the text, and count whether it says the same. Raises as `Driver.submit`."""
        cascade, present = early.handler.served.cascade, self._generations.present
        number = large_alone(cascade)
        if number is None or not self._serves(early.handler):
            return
        with to_champion_as_copy():
            label = await self._read(present.driver, early, number)
        if label is not None and self._serves(early.handler):
            self._count(early, agree(cascade, early.label, label))

    def _serves(self, handler: Handler) -> bool:
        return self._generations.present.handlers.get(handler.served.cascade.task) is handler

    async def _read(self, driver: Driver, early: Early, number: int) -> str | float | None:
        """Return the label that the last level gives, for no tenant; None if it gives none in time."""
        cascade = early.handler.served.cascade
        progress = begin(early.handler, number, *early.text, self._draw)
        deadline = max(self._front.usual_deadline, ROOM * cascade.candidates[number].seconds)
        submitted = driver.submit(
            cascade.task, deadline, LEAST_UTILITY, progress.payload, progress.length, number, progress, ANYBODY
        )
        return progress.label if isinstance(await submitted, Completed) else None

    def _count(self, early: Early, agrees: bool) -> None:
        """Count a comparison, also for the watch: this is no copy any more."""
        served = early.handler.served
        task, key = served.cascade.task, (served.cascade.task, early.candidate)
        known = self._compared.get(key)
        if known is None or known.version != served.version:
            known = Compared(served.version)
        self._compared[key] = known.with_one(agrees)
        self._counter.count(task, early.candidate, agrees)
        self._drift.count([Reading(f"agreement of {task} by {early.candidate}", agrees, COMPARISONS)])


def large_alone(cascade: Cascade) -> int | None:
    """Return the number of the candidate that is the last level by itself; None where there is none."""
    last = (len(cascade.levels) - 1,)
    return next((number for number, each in enumerate(cascade.candidates) if each.levels == last), None)


def agree(cascade: Cascade, first: str | float, second: str | float) -> bool:
    """Whether two labels are one class, or in a regression within the tolerance of each other."""
    if cascade.classes:
        return first == second
    return abs(float(first) - float(second)) <= cascade.tolerance
