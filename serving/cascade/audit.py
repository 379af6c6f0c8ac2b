"""Audits a random share of the early answers: the large model reads these texts, too, whatever the load.

No label is needed: where the large model overturns more answers than the plan's proof allows, traffic is no longer what the
plan was made for. The share is drawn before anything is known of the answer, and each audit waits as long as it takes, among
the requests of its worth but behind those that are due: so busy hours count as much as idle ones. What an audit says reaches
no client and is counted nowhere else, neither among answers nor outcomes nor tenants. An anytime-valid bet against what was
proven (pliant/betting.py) breaks by chance in at most 5% of services, ever; then a safer candidate takes the
place of the default until another version is served. The watch tests the same comparisons for change; its alarm retrains.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from prometheus_client import REGISTRY, CollectorRegistry

from pliant.betting import Bets
from pliant.cascade.artifact import Candidate, Cascade
from pliant.outcomes.record import TARGET
from pliant.serving.cascade.catalog import Catalog
from pliant.serving.cascade.endpoint import Draw, Handler, TextInProgress, begin
from pliant.serving.cascade.metric_list import AGREEMENT
from pliant.serving.client import ANYBODY
from pliant.serving.driver import Completed
from pliant.serving.lifecycle.generation import Generations
from pliant.serving.loop.observe import DriftCounter, Kind, Reading
from pliant.serving.monitoring.metric_list import register
from pliant.serving.request_context import TO_CHALLENGER, is_copy, to_champion_as_copy
from pliant.watch.binning import classes

logger = logging.getLogger("pliant.serving")

DEADLINE = 60.0  # seconds: later than those of requests, so that none is late for an audit
AT_ONCE = 64  # audits that wait or run; further ones are given up, and counted as `missed`
COMPARISONS = Kind(classes(("differs", "agrees")), burn_in=0.1)  # they are a small share of the answers

Text = tuple[str, str | None]


class AgreementCounter:
    """Counts audits for Prometheus."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        (self._compared,) = register(AGREEMENT, registry).values()

    def count(self, task: str, candidate: str, result: str) -> None:
        self._compared.labels(task, candidate, result).inc()


@dataclass(slots=True)
class _Test:
    """The audits of one candidate of a version, and the bet against what was proven of it."""

    version: int
    proven: float | None  # share of early answers that are the large model's, at least; None: nothing
    bets: Bets = field(default_factory=Bets)
    compared: int = 0
    agreed: int = 0
    missed: int = 0
    broken: bool = False

    def add(self, agrees: bool) -> None:
        if self.proven is not None:
            self.bets.add(not agrees, self.proven)
        self.compared += 1
        self.agreed += agrees
        self.broken = self.broken or self.evidence >= TARGET

    @property
    def evidence(self) -> float:
        return self.bets.evidence


class Audit:
    """Audits the share `share` of early answers; `run` is a task for as long as the service lives."""

    def __init__(
        self,
        share: float,
        generations: Generations[Catalog, Handler],
        drift: DriftCounter,
        counter: AgreementCounter,
        draw: Draw | None = None,
    ) -> None:
        self._share, self._generations, self._drift, self._counter = share, generations, drift, counter
        self._draw: Callable[[], float] = draw or random.Random().random
        self._tests: dict[tuple[str, str], _Test] = {}  # by task and candidate, of the version that is served
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Wait until cancelled, then end the audits that wait or run."""
        try:
            await asyncio.Event().wait()
        finally:
            for audit in self._running:
                audit.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def answered(self, progress: TextInProgress, result: Completed, utility: float) -> None:
        """Take note of an answer, and audit it if it is an early one and in the share. `utility`: of its request."""
        if not self._share or is_copy() or TO_CHALLENGER.get() or result.reason:
            return
        last = len(progress.handler.served.cascade.levels) - 1
        if progress.candidate.levels[progress.levels_done - 1] == last or self._draw() >= self._share:
            return
        if len(self._running) >= AT_ONCE:
            self._missed(progress)
            return
        audit = asyncio.create_task(self._audit(progress, progress.label, utility))
        self._running.add(audit)
        audit.add_done_callback(self._running.discard)

    def safest(self, handler: Handler) -> int:
        """Return the number of the default candidate, as the function of this name does."""
        cascade = handler.served.cascade
        tests = {number: self._tests.get((cascade.task, each.name)) for number, each in enumerate(cascade.candidates)}
        broken = {n for n, test in tests.items() if test and test.broken and test.version == handler.served.version}
        return safest(cascade, broken)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return what a status says of each task and candidate."""
        handlers = self._generations.present.handlers
        return [
            {
                "task": task,
                "candidate": candidate,
                "compared": test.compared,
                "agreed": test.agreed,
                "missed": test.missed,
                "proven": test.proven,
                "evidence": test.evidence,
                "broken": test.broken,
            }
            for (task, candidate), test in self._tests.items()
            if task in handlers and handlers[task].served.version == test.version
        ]

    async def _audit(self, progress: TextInProgress, label: str | float, utility: float) -> None:
        """Let the large model read a text, and count whether it says `label`. It reads for no tenant."""
        handler, cascade = progress.handler, progress.handler.served.cascade
        last = (len(cascade.levels) - 1,)
        number = next((number for number, each in enumerate(cascade.candidates) if each.levels == last), None)
        if number is None or not self._serves(handler):
            return
        with to_champion_as_copy():
            read = begin(handler, number, *progress.original, self._draw)
            try:
                result = await self._generations.present.driver.submit(
                    *(cascade.task, DEADLINE, utility, read.payload, read.length, number, read, ANYBODY)
                )
            except Exception as error:  # nobody waits for it
                logger.debug("an audit failed: %s", error)
                result = None
        if not self._serves(handler):
            return
        if not isinstance(result, Completed):
            self._missed(progress)
            return
        agrees, test = agree(cascade, label, read.label), self._test(progress)
        before = test.broken
        test.add(agrees)
        candidate = progress.candidate.name
        if test.broken and not before:
            logger.error(
                f"{cascade.task}: the large model overturns {1 - test.agreed / test.compared:.1%} of the early answers of "
                f"{candidate}, more than was proven ({1 - (test.proven or 0):.1%}): a safer candidate is served"
            )
        self._counter.count(cascade.task, candidate, "agrees" if agrees else "differs")
        # also for the watch: this is no copy any more
        self._drift.count([Reading(f"agreement of {cascade.task} by {candidate}", agrees, COMPARISONS)])

    def _missed(self, progress: TextInProgress) -> None:
        self._test(progress).missed += 1
        self._counter.count(progress.handler.served.cascade.task, progress.candidate.name, "missed")

    def _test(self, progress: TextInProgress) -> _Test:
        served, candidate = progress.handler.served, progress.candidate
        key = served.cascade.task, candidate.name
        test = self._tests.get(key)
        if test is None or test.version != served.version:
            test = self._tests[key] = _Test(served.version, proven(candidate))
        return test

    def _serves(self, handler: Handler) -> bool:
        return self._generations.present.handlers.get(handler.served.cascade.task) is handler


def safest(cascade: Cascade, broken: Set[int]) -> int:
    """Return the number of the default candidate: the first, or if that is broken the cheapest that is safer and not."""
    if 0 not in broken:
        return 0
    least = max(cascade.candidates[number].agreement for number in broken)
    able = [n for n, each in enumerate(cascade.candidates) if each.agreement > least and n not in broken]
    return min(able, key=lambda n: cascade.candidates[n].seconds, default=0)


def proven(candidate: Candidate) -> float | None:
    """Return the least share of a candidate's early answers that are the large model's, as proven; None: nothing was.

    Answers of the large model itself agree, so all that differ are early ones.
    """
    early = 1 - candidate.shares[-1] if len(candidate.levels) > 1 else 1.0
    if not candidate.agreement or not early:
        return None
    return float(np.clip(1 - (1 - candidate.agreement) / early, 0.0, 1.0))


def agree(cascade: Cascade, first: str | float, second: str | float) -> bool:
    """Whether two labels are one class, or in a regression within the tolerance of each other."""
    if cascade.classes:
        return first == second
    return abs(float(first) - float(second)) <= cascade.tolerance
