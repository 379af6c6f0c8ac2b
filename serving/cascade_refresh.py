"""Keeps what the cascade service serves equal to what the registry's alias points to. Knows catalogs and generations.

A set that does not fit together (a classifier's alias moved, its task's not yet) changes nothing and waits for the next
look; so does one that the devices refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from pliant.errors import ArtifactError
from serving.artifacts import Registry
from serving.cascade_catalog import Catalog, discard, load_catalog, look
from serving.cascade_generation import Generation, Generations
from serving.metrics import Metrics
from serving.watch import Outcome, Watch, listed

Raise = Callable[[Catalog], Awaitable[Generation]]
"""The next generation, started. Raises `PliantError`, and nothing of it is left then."""


class Refresher:
    """`watch` says when there is a look, and how the last one ended."""

    def __init__(
        self,
        generations: Generations,
        registry: Registry,
        alias: str,
        start: Raise,
        seconds: float,
        metrics: Metrics,
    ) -> None:
        self._generations, self._registry, self._alias, self._start = generations, registry, alias, start
        self._judged: tuple[Mapping[str, int], Outcome] = generations.present.catalog.pointers, _unchanged()
        self.watch = Watch(self._look, seconds, metrics)

    async def _look(self, patient: bool) -> Outcome:
        """Raises `RegistryError` and `WorkerError`. `patient`: what was held is not tried again before a pointer moves."""
        running = self._generations.present.catalog
        pointers = await asyncio.to_thread(look, self._registry, self._alias)
        seen, outcome = self._judged
        if pointers == seen and (patient or outcome.outcome == "unchanged"):
            return outcome
        try:
            outcome = await self._take_up(running)
        except ArtifactError as error:
            outcome = Outcome("held", f"what {self._alias} points to is not taken up: {error}", {})
        self._judged = pointers, _unchanged() if outcome.outcome == "changed" else outcome
        return outcome

    async def _take_up(self, running: Catalog) -> Outcome:
        target = await asyncio.to_thread(load_catalog, self._registry, self._alias, running)
        if target.serves_as(running):
            return _unchanged()
        try:
            self._generations.become(await self._start(target))
        except BaseException:
            discard(self._registry, target, running)
            raise
        moved = {name: v for name, v in target.pointers.items() if running.pointers.get(name) != v}
        return Outcome("changed", f"taken up: {listed(moved) or 'fewer tasks'}", moved)


def _unchanged() -> Outcome:
    return Outcome("unchanged", "everything served is what the alias points to", {})
