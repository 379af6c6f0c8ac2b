"""Keeps what a service serves equal to what the registry's alias points to. Knows generations and what a catalog is.

A set that does not fit together (one model's alias moved, another's not yet) changes nothing and waits for the next look;
so does one that the devices refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from pliant.errors import ArtifactError
from serving.driver import Driver
from serving.lifecycle.artifacts import Registry
from serving.lifecycle.catalog import Catalog, discard
from serving.lifecycle.generation import Generation, Generations, Running
from serving.lifecycle.poller import Counter, Outcome, Poller, listed

C = TypeVar("C", bound=Catalog)
W = TypeVar("W")
D = TypeVar("D", bound=Running, default=Driver)


@dataclass(frozen=True, slots=True)
class Source(Generic[C]):
    """Where a system's catalogs come from."""

    registry: Registry
    alias: str
    prefix: str  # of the names of all registered models that one is made of
    load: Callable[[Registry, str, C | None], C]  # what another one holds already is not fetched again


async def follow(
    source: Source[C], start: Callable[[C], Awaitable[Generation[C, W, D]]], seconds: float, metrics: Counter
) -> Refresher[C, W, D]:
    """With the first generation, of what the alias points to now. Raises as `load` and `start`."""
    registry = source.registry
    first = await start(source.load(registry, source.alias, None))
    generations = Generations(first, lambda former, present: discard(registry, former.catalog, present.catalog))
    return Refresher(generations, source, start, seconds, metrics)


class Refresher(Generic[C, W, D]):
    """`poller` says when there is a look, and how the last one ended."""

    def __init__(
        self,
        generations: Generations[C, W, D],
        source: Source[C],
        start: Callable[[C], Awaitable[Generation[C, W, D]]],
        seconds: float,
        metrics: Counter,
    ) -> None:
        """`start` gives the next generation, started. It raises `PliantError`, and nothing of it is left then."""
        self.generations, self._source, self._start = generations, source, start
        self._judged: tuple[Mapping[str, int], Outcome] = generations.present.catalog.pointers, _unchanged()
        self.poller = Poller(self._look, seconds, metrics)

    async def _look(self, patient: bool) -> Outcome:
        """Raises `RegistryError` and `WorkerError`. `patient`: what was held is not tried again before a pointer moves."""
        running, source = self.generations.present.catalog, self._source
        pointers = await asyncio.to_thread(source.registry.versions, source.prefix, source.alias)
        seen, outcome = self._judged
        if pointers == seen and (patient or outcome.outcome == "unchanged"):
            return outcome
        try:
            outcome = await self._take_up(running)
        except ArtifactError as error:
            outcome = Outcome("held", f"what {source.alias} points to is not taken up: {error}", {})
        self._judged = pointers, _unchanged() if outcome.outcome == "changed" else outcome
        return outcome

    async def _take_up(self, running: C) -> Outcome:
        source = self._source
        target = await asyncio.to_thread(source.load, source.registry, source.alias, running)
        if target.serves_as(running):
            return _unchanged()
        try:
            self.generations.become(await self._start(target))
        except BaseException:
            discard(source.registry, target, running)
            raise
        moved = {name: v for name, v in target.pointers.items() if running.pointers.get(name) != v}
        return Outcome("changed", f"taken up: {listed(moved) or 'fewer tasks'}", moved)


def _unchanged() -> Outcome:
    return Outcome("unchanged", "everything served is what the alias points to", {})
