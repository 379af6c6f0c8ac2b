"""Makes a service follow the registry's alias: a new version is loaded and served.

Versions that do not fit together (one model's alias has moved, another's has not yet) are held: nothing changes until a
later poll. The same holds for versions that the devices or the settings do not allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from pliant.errors import ArtifactError, InputError
from serving.driver import Driver
from serving.lifecycle.artifacts import Registry
from serving.lifecycle.catalog import Catalog, discard
from serving.lifecycle.generation import Generation, Generations, Running
from serving.lifecycle.poller import Outcome, Poller, RefreshCounter, join_versions

C = TypeVar("C", bound=Catalog)
H = TypeVar("H")
D = TypeVar("D", bound=Running, default=Driver)


Extend = Callable[[Generation[C, H, D], C], Awaitable[Generation[C, H, D] | None]]
"""Gives the present generation with another catalog but the same workers; None if that needs new workers."""


@dataclass(frozen=True, slots=True)
class Source(Generic[C]):
    """Where a system's catalogs come from: the models of one prefix, under one alias."""

    registry: Registry
    alias: str
    prefix: str  # of the names of all its registered models
    load_catalog: Callable[[Registry, str, C | None], C]  # artifacts that the given catalog has are not fetched again

    def pointers(self, running: C) -> Mapping[str, int]:  # noqa: ARG002
        """Return the versions to serve, by registered model. Raises `RegistryError`."""
        return self.registry.versions(self.prefix, self.alias)

    def load(self, running: C | None) -> C:
        """Return the catalog to serve. Raises `RegistryError`, `ArtifactError`, `InputError`."""
        return self.load_catalog(self.registry, self.alias, running)


async def extend_never(present: object, target: object) -> None:
    """Extend no generation: every change needs the next one."""


class Refresher(Generic[C, H, D]):
    """Loads and serves what `source` points to, whenever `poller` polls."""

    def __init__(
        self,
        generations: Generations[C, H, D],
        source: Source[C],
        start: Callable[[C], Awaitable[Generation[C, H, D]]],
        seconds: float,
        metrics: RefreshCounter,
        extend: Extend[C, H, D] = extend_never,
    ) -> None:
        """`start` starts the next generation. If it raises `PliantError`, nothing is left running."""
        self.generations, self._source, self._start, self._extend = generations, source, start, extend
        self._judged: tuple[Mapping[str, int], Outcome] = generations.present.catalog.pointers, _unchanged()
        self.poller = Poller(self._poll, seconds, metrics)

    async def _poll(self, retry_held: bool) -> Outcome:
        """Poll once. Unless `retry_held`, held versions are not tried again before a pointer moves.

        Raises `RegistryError` and `WorkerError`.
        """
        running, source = self.generations.present.catalog, self._source
        pointers = await asyncio.to_thread(source.pointers, running)
        seen, outcome = self._judged
        if pointers == seen and (outcome.outcome == "unchanged" or not retry_held):
            return outcome
        try:
            outcome = await self._serve_target(running)
        except (ArtifactError, InputError) as error:
            outcome = Outcome("held", f"the versions that {source.alias} points to are not served: {error}", {})
        self._judged = pointers, _unchanged() if outcome.outcome == "changed" else outcome
        return outcome

    async def _serve_target(self, running: C) -> Outcome:
        source = self._source
        target = await asyncio.to_thread(source.load, running)
        if target.serves_as(running):
            return _unchanged()
        try:
            await self.serve(target)
        except BaseException:
            discard(source.registry, target, running)
            raise
        moved = {name: v for name, v in target.pointers.items() if running.pointers.get(name) != v}
        return Outcome("changed", f"now served: {join_versions(moved) or 'fewer tasks'}", moved)

    async def serve(self, target: C) -> None:
        """Serve `target` from now on: in the present generation if that can be extended, else in the next one.

        The caller holds `poller.busy`. Raises as `start` and `extend`; then everything is served as before.
        """
        extended = await self._extend(self.generations.present, target)
        if extended is None:
            self.generations.promote(await self._start(target))
        else:
            self.generations.amend(extended)


def _unchanged() -> Outcome:
    return Outcome("unchanged", "the service serves what the alias points to", {})
