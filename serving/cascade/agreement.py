"""Compares a share of the early answers with what the large model says of the same texts, in idle moments.

No label is needed: where the levels begin to differ, traffic is no longer what the plan was made for. The text of an answer
that a level before the last gave is kept in memory until nothing waits or runs; then the last level reads it alone. What it
says reaches no client and is counted nowhere else: not among answers, outcomes or tenants. A comparison may be lost (too
many wait, no idle moment comes, the worker dies, another version is served); an answer never is.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.cascade.artifact import Cascade
from pliant.serving.cascade.catalog import Catalog
from pliant.serving.cascade.endpoint import Draw, Handler, TextInProgress, begin
from pliant.serving.cascade.metric_list import AGREEMENT
from pliant.serving.client import ANYBODY
from pliant.serving.driver import Clock, Completed
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


Text = tuple[str, str | None]


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
        # by task and candidate: the version that was taken up, and how many comparisons since then agreed
        self._compared: dict[tuple[str, str], tuple[int, Counter[bool]]] = {}
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
        read_again = partial(
            self._compare, progress.handler, progress.candidate.name, progress.original, progress.label
        )
        self._copies.offer(read_again)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return what a status says: for each task and candidate, how many answers were compared and how many agreed."""
        handlers = self._generations.present.handlers
        return [
            {"task": task, "candidate": candidate, "compared": results.total(), "agreed": results[True]}
            for (task, candidate), (version, results) in self._compared.items()
            if task in handlers and handlers[task].served.version == version
        ]

    def _idle(self) -> bool:
        """Whether no request waits or runs, in any generation, none has for a moment, and every worker is up."""
        now, generations = self._clock(), self._generations
        if generations.draining or any(each.driver.pending for each in generations.loaded):
            self._busy = now
        return now - self._busy >= QUIET and all(generations.present.driver.up)

    async def _compare(self, handler: Handler, candidate: str, text: Text, label: str | float) -> None:
        """Let the last level read a text, and count whether it says the same. Raises as `Driver.submit`.

        It reads for no tenant, and may give no answer in time. `text`: with the second one of a pair; `candidate`, `label`:
        what gave the early answer, and that answer.
        """
        served, cascade = handler.served, handler.served.cascade
        last = (len(cascade.levels) - 1,)
        number = next((number for number, each in enumerate(cascade.candidates) if each.levels == last), None)
        if number is None or not self._serves(handler):
            return
        with to_champion_as_copy():
            progress = begin(handler, number, *text, self._draw)
            deadline = max(self._front.usual_deadline, ROOM * cascade.candidates[number].seconds)
            result = await self._generations.present.driver.submit(
                cascade.task, deadline, LEAST_UTILITY, progress.payload, progress.length, number, progress, ANYBODY
            )
        if not isinstance(result, Completed) or not self._serves(handler):
            return
        agrees, key = agree(cascade, label, progress.label), (cascade.task, candidate)
        version, results = self._compared.get(key, (served.version, Counter()))
        if version != served.version:
            results = Counter()
        results[agrees] += 1
        self._compared[key] = served.version, results
        self._counter.count(cascade.task, candidate, agrees)  # also for the watch: this is no copy any more
        self._drift.count([Reading(f"agreement of {cascade.task} by {candidate}", agrees, COMPARISONS)])

    def _serves(self, handler: Handler) -> bool:
        return self._generations.present.handlers.get(handler.served.cascade.task) is handler


def agree(cascade: Cascade, first: str | float, second: str | float) -> bool:
    """Whether two labels are one class, or in a regression within the tolerance of each other."""
    if cascade.classes:
        return first == second
    return abs(float(first) - float(second)) <= cascade.tolerance
