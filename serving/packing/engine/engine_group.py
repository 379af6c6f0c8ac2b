"""The engines of one model, each on a device of its own with the whole model: every output goes to the least busy one.

Which that is follows from the forecasts: the tokens that its pending outputs are predicted to need still. An engine whose
process has died keeps its outputs for its restart, and gets no others meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import count

from pliant.packing.engine.submission import Status
from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.engine.engine import CannotKeepError, EngineDriver, EngineReport, InFlightOutput
from pliant.serving.packing.engine.forecaster import Forecaster
from pliant.serving.packing.engine.observed import ObservedLengths
from pliant.serving.packing.grammar import GrammarChecks

_NOT_SUMMED = ("alive", "error", "out_of_memory", "slowness")


class EngineGroup:
    """Engines that are used as one; see `EngineDriver` for the methods."""

    def __init__(self, engines: Sequence[EngineDriver]) -> None:
        self.engines = tuple(engines)
        self._ids = count()  # an output's id is its own in all engines

    @property
    def ready(self) -> bool:
        """Whether some engine runs."""
        return any(engine.ready for engine in self.engines)

    @property
    def alive(self) -> bool:
        """Whether some engine can be started."""
        return any(engine.alive for engine in self.engines)

    @property
    def pending(self) -> int:
        return sum(engine.pending for engine in self.engines)

    @property
    def waiting(self) -> int:
        return sum(engine.waiting for engine in self.engines)

    @property
    def status(self) -> Status:
        return merged([engine.status for engine in self.engines])

    def next_id(self) -> int:
        return next(self._ids)

    async def start(self) -> None:
        """Start all, and raise the first `PliantError` once each has started or failed."""
        starts = [engine.start() for engine in self.engines]
        for error in await asyncio.gather(*starts, return_exceptions=True):
            if error is not None:
                raise error

    async def stop(self) -> None:
        await asyncio.gather(*(engine.stop() for engine in self.engines))

    def hopeless(self, prompt: Prompt) -> float | None:
        """Return the seconds after which some engine might keep a request's targets, if none can now."""
        waits = [engine.hopeless(prompt) for engine in self._usable()]
        return None if None in waits else min(wait for wait in waits if wait is not None)

    def submit(self, outputs: Iterable[InFlightOutput]) -> None:
        """Give each output to the engine with the least load. Raises `WorkerError` where none can be started.

        Raises `CannotKeepError` where that engine cannot keep the targets of one; then it has taken none of them.
        """
        usable = self._usable()
        loads = {engine: engine.load for engine in usable}
        given: dict[EngineDriver, list[InFlightOutput]] = {}
        for output in outputs:
            engine = min(usable, key=loads.__getitem__)
            loads[engine] += output.tokens_left
            given.setdefault(engine, []).append(output)
        accepted: list[EngineDriver] = []
        try:
            for engine, each in given.items():
                engine.accept(each)
                accepted.append(engine)
        except CannotKeepError:
            for engine in accepted:
                engine.give_back(given[engine])
            raise
        for engine, each in given.items():
            engine.begin(each)

    @property
    def wait(self) -> float:
        """Return the seconds after which those that wait in some engine have probably begun."""
        return min(engine.wait for engine in self.engines)

    def surplus(self, count: int, limit: int, tenant: str, weight: float) -> list[InFlightOutput] | None:
        """Return the waiting outputs of one engine to drop so that `count` further ones may wait, if `limit` may in all.

        The engine is the one in which most wait, of those that have enough to drop. None: none has.
        """
        beyond = self.waiting + count - limit
        if beyond <= 0:
            return []
        for engine in sorted(self.engines, key=lambda engine: engine.waiting, reverse=True):
            surplus = engine.surplus(count, engine.waiting + count - beyond, tenant, weight)
            if surplus is not None:
                return surplus
        return None

    def drop(self, output: InFlightOutput) -> None:
        for engine in self.engines:
            if engine.holds(output):
                engine.drop(output)

    def cancel(self, output: InFlightOutput) -> None:
        for engine in self.engines:
            engine.cancel(output)

    async def poll(self) -> EngineReport:
        return merged_report(await asyncio.gather(*(engine.poll() for engine in self.engines)))

    def _usable(self) -> Sequence[EngineDriver]:
        """Return the engines that run; where none does, those that can be started."""
        running = [engine for engine in self.engines if engine.ready]
        return running or [engine for engine in self.engines if engine.alive] or self.engines


def merged(statuses: Sequence[Status]) -> Status:
    """Return one status of several engines: the sums of their figures; they live where all do."""
    names = [field.name for field in fields(Status) if field.name not in _NOT_SUMMED]
    return Status(
        alive=all(status.alive for status in statuses),
        error=next((status.error for status in statuses if status.error), ""),
        out_of_memory=any(status.out_of_memory for status in statuses),
        slowness=max(status.slowness for status in statuses),
        **{name: sum(getattr(status, name) for status in statuses) for name in names},
    )


def merged_report(reports: Sequence[EngineReport]) -> EngineReport:
    """Return one report of several engines, whose accounting is right where that of each is."""
    errors = [report.accounting_error for report in reports]
    wrong = next((error for error in errors if error), None if None in errors else "")
    return EngineReport(merged([report.status for report in reports]), wrong)


@dataclass(frozen=True, slots=True)
class EnginePool:
    """Engines, forecasters and files of observed lengths that start and stop together."""

    engines: Sequence[EngineDriver | EngineGroup]
    forecasters: Sequence[Forecaster]
    observed: Sequence[ObservedLengths]
    grammars: Sequence[GrammarChecks] = ()
    forecasters_first: bool = False  # start the engines after them: an engine takes what is free of a GPU's memory

    @property
    def ready(self) -> bool:
        """Whether all engines run."""
        return all(engine.ready for engine in self.engines)

    @property
    def alive(self) -> bool:
        """Whether all engines can be started."""
        return all(engine.alive for engine in self.engines)

    @property
    def waiting(self) -> int:
        """Return the number of outputs without a token."""
        return sum(engine.waiting for engine in self.engines)

    @property
    def pending(self) -> int:
        """Return the number of outputs that have not ended."""
        return sum(engine.pending for engine in self.engines)

    async def start(self) -> None:
        """Start all, and raise the first `PliantError` once each has started or failed."""
        engines = [engine.start for engine in self.engines]
        forecasters = [forecaster.start for forecaster in self.forecasters]
        for starts in (forecasters, engines) if self.forecasters_first else ([*engines, *forecasters],):
            for error in await asyncio.gather(*(start() for start in starts), return_exceptions=True):
                if error is not None:
                    raise error

    async def stop(self) -> None:
        """Stop all, after the last output has ended."""
        await asyncio.gather(*(engine.stop() for engine in self.engines))
        for forecaster in self.forecasters:
            await forecaster.stop()
        for checks in self.grammars:
            checks.stop()
        for file in self.observed:
            file.close()
