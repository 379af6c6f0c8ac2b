"""Registers tasks while the service runs, as in OTAS's paper (Section IV): the backbone stays loaded.

A task, or another version of a task, joins the running generation: first its scheduler, which may reject it, then the
device process, between two launches. Any other change starts the next generation, as in the other systems.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from pliant.errors import PliantError, RegistryError
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_TASK
from pliant.serving.client import ANYBODY, Client
from pliant.serving.driver import Driver
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import shorten
from pliant.serving.lifecycle.catalog import Artifacts
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.lifecycle.refresh import Refresher, Source
from pliant.serving.monitoring.metric_list import register
from pliant.serving.tokens.catalog import Catalog, Origin, ServedTask, TaskInfo, load_catalog, load_task
from pliant.serving.tokens.metric_list import PINS
from pliant.serving.workers.device_process import Build
from pliant.tokens.scheduler import Knowledge

TokensGeneration = Generation[Catalog, TaskInfo]
TokensRefresher = Refresher[Catalog, TaskInfo]

Origins = dict[tuple[str, str], Origin]
"""The origin of an output, by the digests of task and model in it. None is removed: outputs of old versions may follow."""


logger = logging.getLogger("pliant.serving")


class Pins:
    """Tasks that do not follow the registry's alias, because an administrator has pinned them: the version of each model."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}  # by registered model
        self._show: Callable[[int], None] = lambda _count: None

    def count_in(self, registry: CollectorRegistry) -> None:
        """Show in `registry` how many there are from now on."""
        self._show = register(PINS, registry)["pins"].set

    def to_dict(self) -> dict[str, int]:
        """Return the pinned version by task."""
        return {model.removeprefix(TOKENS_TASK): version for model, version in sorted(self.versions.items())}

    def pin(self, model: str, version: int, client: Client) -> None:
        """Pin a model to a version."""
        self.versions[model] = version
        self._show(len(self.versions))
        logger.warning("%s is pinned to version %d by %s", model, version, _named(client))

    def take_off(self, model: str, why: str) -> None:
        """Let a model follow the alias again, if it is pinned."""
        if self.versions.pop(model, None) is not None:
            self._show(len(self.versions))
            logger.warning("%s is no longer pinned: %s", model, why)


def _named(client: Client) -> str:
    return f"key {client.key} of {client.tenant}" if client.key else "an administrator without a key"


@dataclass(frozen=True, slots=True)
class TokensSource(Source[Catalog]):
    """What the alias points to, except for tasks that were registered by version or under another alias (pinned)."""

    pins: Pins = field(default_factory=Pins)

    def pointers(self, running: Catalog, registry: Artifacts | None = None) -> Mapping[str, int]:
        """Return the versions to serve. Once the backbone changes, a pinned task follows the alias if that has it."""
        # A pin that is no longer served (a new backbone replaced it) ends, or the next poll would bring it back.
        for model in [m for m, version in self.pins.versions.items() if running.pointers.get(m) != version]:
            self.pins.take_off(model, "another backbone is served")
        versions = (registry or self.registry).versions(self.prefix, self.alias)
        wanted = {name: version for name, version in versions.items() if name.startswith(running.PREFIXES)}
        stays = wanted.get(TOKENS_BACKBONE) == running.pointers.get(TOKENS_BACKBONE)
        return wanted | {model: v for model, v in self.pins.versions.items() if stays or model not in wanted}

    def load_from(self, registry: Artifacts, running: Catalog | None) -> Catalog:
        if not isinstance(running, Catalog):
            return self.load_catalog(registry, self.alias, running)
        return load_catalog(registry, self.alias, running, self.pointers(running, registry))


class Registrar:
    """Adds tasks to the running generation."""

    def __init__(
        self,
        rebuild: Callable[[Catalog, Any], Build],
        knowledge: Callable[[Catalog], Knowledge],
        source: TokensSource,
        origins: Origins,
    ) -> None:
        """`rebuild` gives the build plan of a device process that serves a catalog, from the plan that it has now;
        `knowledge` gives what the scheduler knows of a catalog.
        """
        self._rebuild, self._knowledge = rebuild, knowledge
        self._source, self._origins = source, origins

    @property
    def pins(self) -> Pins:
        return self._source.pins

    async def register(
        self, refresher: TokensRefresher, name: str, which: str | int | None, client: Client = ANYBODY
    ) -> None:
        """Serve a task of the registry, or another version of it, from now on. `which` pins it to an alias or version;
        None, or the service's own alias, takes the pin off.

        Raises `ApiError` if the registry lacks the task, `RegistryError` if the registry cannot be reached,
        `BackboneError` and `InputError` if the task does not fit, `WorkerError` if the device lacks memory.
        """
        async with refresher.poller.busy:
            catalog = refresher.generations.present.catalog
            alias, model = self._source.alias, TOKENS_TASK + name
            served = await asyncio.to_thread(self._fetch, name, which or alias, catalog.backbone.digest)
            await refresher.serve(catalog.with_task(served))
            if which is None or which == alias:
                self.pins.take_off(model, f"taken off by {_named(client)}")
            else:
                self.pins.pin(model, served.version, client)

    async def extend(self, present: TokensGeneration, target: Catalog) -> TokensGeneration | None:
        """Return the generation with the tasks of `target`; None if more than tasks differs, or one is removed.

        Raises `InputError` if the scheduler rejects the tasks, `WorkerError` if the device does; then nothing changes.
        """
        catalog, driver = present.catalog, present.driver
        if not target.extends(catalog):
            return None
        self._origins.update(target.origins)
        driver.change(self._knowledge(target).plain())
        try:
            await self._update(driver, target, catalog)
        except PliantError:
            with suppress(PliantError):  # scheduler, device and build plan go back to what they were
                driver.change(self._knowledge(catalog).plain())
                driver.remember(partial(self._rebuild, catalog))
                await self._update(driver, catalog, target)
            raise
        return replace(present, catalog=target, handlers=target.tasks_described())

    async def _update(self, driver: Driver, target: Catalog, former: Catalog) -> None:
        former_digests = {served.digest for served in former.tasks.values()}
        rebuild = partial(self._rebuild, target)
        for served in target.tasks.values():
            if served.digest not in former_digests:
                await driver.update(served, rebuild)
        driver.remember(rebuild)

    def _fetch(self, name: str, which: str | int, backbone: str) -> ServedTask:
        """Return a task of the registry. Runs in a thread, as the registry may be slow. Raises as `register`."""
        registry = self._source.registry
        if TOKENS_TASK + name not in registry.names(TOKENS_TASK):
            message = f"name is {shorten(name)}, but the registry has no such task"
            raise ApiError(404, "not_in_registry", message, "name")
        try:
            return load_task(registry, name, which, backbone)
        except RegistryError as error:
            field = "version" if isinstance(which, int) else "alias"
            raise ApiError(404, "not_in_registry", str(error), field) from None
