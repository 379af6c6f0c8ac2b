"""Keeps what is served equal to what the registry's alias points to. Knows the registry, pins and outcomes; serves nothing.

A look costs one question for version numbers. Only what moved is fetched, verified and tried against the rest; a set that
does not fit together (the backbone's alias moved, the tasks' not yet) changes nothing and waits for the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pliant.errors import ArtifactError, BackboneError, InputError, RegistryError
from registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_TASK
from serving.http.api_errors import ApiError
from serving.http.json_body import shorten
from serving.lifecycle.artifacts import Registry
from serving.lifecycle.poller import Outcome, Poller, listed
from serving.metrics import Metrics
from serving.tokens.catalog import Catalog, Servable, has_task, load_catalog, load_task
from serving.tokens.live import Live
from serving.tokens.variants import VariantCatalog, load_variants

MISFIT = (BackboneError, InputError)


class Refresher:
    """`seconds` between two looks; 0 for none but those that are asked for."""

    def __init__(self, live: Live, registry: Registry, alias: str, seconds: float, metrics: Metrics) -> None:
        self._live, self._registry, self._alias = live, registry, alias
        self._pinned: dict[str, int] = {}  # models of tasks that somebody registered by version or another alias
        self._poller = Poller(self._look_once, seconds, metrics)
        self._misfit: Mapping[str, int] | None = None  # pointers that were found not to fit together

    @property
    def last(self) -> Outcome:
        return self._poller.last

    @property
    def seconds(self) -> float:
        return self._poller.seconds

    async def run(self) -> None:
        await self._poller.run()

    async def refresh(self, patient: bool = False) -> Outcome:
        """Look once. Raises what kept it from being done, but for what is "held"; all is served as before then."""
        return await self._poller.poll(patient)

    async def register(self, name: str, which: str | int | None) -> None:
        """Serve a task of the registry, or another version of one, from now on. One that is named by version stays.

        Raises `ApiError` where the registry lacks it, `RegistryError` where it is out of reach, `BackboneError` and
        `InputError` where the task does not fit.
        """
        async with self._poller.busy:
            catalog = self._live.catalog
            if not isinstance(catalog, Catalog):
                raise ApiError(409, "variants", "under this policy tasks come with the variants, which hold them all")
            served = await asyncio.to_thread(self._fetch, name, which or self._alias, catalog.backbone_digest)
            await self._live.become(catalog.with_task(served))
            model = TOKENS_TASK + name
            self._pinned.pop(model, None)
            if which is not None and which != self._alias:
                self._pinned[model] = served.version

    async def _look_once(self, patient: bool) -> Outcome:
        """`patient`: pointers that did not fit together at the last look are not fetched again before one of them moves."""
        try:
            return await self._refresh(patient)
        except MISFIT as error:
            return Outcome("held", f"what {self._alias} points to is not taken up: {error}", {})

    async def _refresh(self, patient: bool) -> Outcome:
        running = self._live.catalog
        pointers = await asyncio.to_thread(self._look, running)
        moved = {name: version for name, version in pointers.items() if running.pointers.get(name) != version}
        if pointers == running.pointers:
            self._live.stay()
            return Outcome("unchanged", "everything served is what the alias points to", {})
        if patient and pointers == self._misfit:
            return self.last
        self._misfit = None
        try:
            target = await asyncio.to_thread(self._load, pointers, running)
        except (*MISFIT, ArtifactError):
            self._misfit = pointers
            raise
        await self._become(target, running)
        # A pin that the new backbone's task has taken the place of is over, or it would come back with the next look.
        self._pinned = {model: v for model, v in self._pinned.items() if target.pointers.get(model) == v}
        return Outcome("changed", f"taken up: {listed(moved) or 'fewer tasks'}", moved)

    async def _become(self, target: Servable, running: Servable) -> None:
        idle = running
        try:
            await self._live.become(target)
        except Exception:
            idle = target
            raise
        finally:
            for folder in set(idle.folders) - set(self._live.catalog.folders):
                self._registry.discard(folder)

    def _look(self, running: Servable) -> Mapping[str, int]:
        """In a thread. A pinned task follows the alias again once the backbone moves, if the alias has a version of it."""
        pointers = dict(self._registry.versions(TOKENS_PREFIX, self._alias))
        wanted = {name: version for name, version in pointers.items() if name.startswith(running.PREFIXES)}
        stays = wanted.get(TOKENS_BACKBONE) == running.pointers.get(TOKENS_BACKBONE)
        for model, version in self._pinned.items():
            if stays or model not in wanted:
                wanted[model] = version
        return wanted

    def _load(self, pointers: Mapping[str, int], running: Servable) -> Servable:
        registry = self._registry
        if isinstance(running, VariantCatalog):
            return load_variants(registry, self._alias, pointers)
        assert isinstance(running, Catalog), "there are two kinds"
        return load_catalog(registry, self._alias, pointers, running)

    def _fetch(self, name: str, which: str | int, backbone: str) -> Any:
        """In a thread: the registry may be slow."""
        registry = self._registry
        if not has_task(registry, name):
            message = f"name is {shorten(name)}, but the registry has no such task"
            raise ApiError(404, "not_in_registry", message, "name")
        try:
            return load_task(registry, name, which, backbone)
        except RegistryError as error:
            field = "version" if isinstance(which, int) else "alias"
            raise ApiError(404, "not_in_registry", str(error), field) from None
