"""What is served at this moment, and the change to something else while requests are in flight.

Knows the driver, the device process's build plans and what fits a catalog; knows nothing of the registry or of HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pliant.errors import DeviceError, InputError, PliantError
from serving.driver import Driver
from serving.tokens.catalog import Servable, Source
from serving.workers.device_process import Build
from serving.workers.worker import Worker

logger = logging.getLogger("pliant.serving")

Plan = Callable[[Servable], Build]
"""How a device process builds the model of a catalog."""

WorkerFactory = Callable[[Build], Worker]
"""A worker, not yet started, for a build plan."""


class Live:
    """`become` changes it; everything else reads. Outputs of former catalogs stay readable: they may still be on the way."""

    def __init__(
        self, catalog: Servable, driver: Driver, plan: Plan, worker_factory: WorkerFactory, any_device: bool = False
    ) -> None:
        self._driver, self._plan, self._worker_factory, self._any_device = driver, plan, worker_factory, any_device
        self._catalog, self._accepted = catalog, frozenset(catalog.tasks_described())
        self._sources: dict[tuple[str, str], Source] = dict(catalog.sources())
        self._changing = asyncio.Lock()

    @property
    def catalog(self) -> Servable:
        return self._catalog

    @property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """Those that questions are accepted for."""
        described = self._catalog.tasks_described()
        return {name: described[name] for name in described if name in self._accepted}

    def accepts(self, task: str) -> bool:
        return task in self._accepted

    def source(self, digests: tuple[str, str]) -> Source:
        return self._sources[digests]

    def tell(self) -> None:
        """Tell the scheduler what it goes by. As the first event it makes the journal complete in itself."""
        self._driver.change(self._catalog.knowledge().plain(), self._catalog.planned_by)

    async def become(self, target: Servable) -> None:
        """Serve `target` from now on; nothing that waits is dropped for it. Where it raises, all stays as it was.

        Raises `DeviceError` for a profile of another class of device, `InputError` where requests wait for a task that
        `target` lacks, `WorkerError` where the device refuses it or has no room.
        """
        async with self._changing:
            if target.device != self._catalog.device and not self._any_device:
                raise DeviceError(
                    f"the new profile was measured on {target.device}, but this device is {self._catalog.device}: "
                    "profile again on it, or serve regardless (--any-profile)"
                )
            self._sources |= target.sources()
            self._leave_tasks(target)
            updates = target.updates_from(self._catalog)
            try:
                await (self._exchange(target) if updates is None else self._update(target, updates))
            except BaseException:
                self.stay()
                raise
            self._catalog = target
            self.stay()

    def stay(self) -> None:
        """Accept questions for every task of the present catalog: none is about to go."""
        self._accepted = frozenset(self._catalog.tasks_described())

    def _leave_tasks(self, target: Servable) -> None:
        """Nobody new is accepted for a task that goes; it stays until those who wait for it are answered."""
        kept = frozenset(target.tasks_described())
        self._accepted &= kept
        for task in set(self._catalog.tasks_described()) - kept:
            if self._driver.waits_for(task):
                raise InputError(f"task {task}", "still waited for", "without requests before it can go")

    async def _update(self, target: Servable, updates: Any) -> None:
        """The same device process: the scheduler first, which may refuse, then each task between two launches."""
        self._driver.change(target.knowledge().plain(), target.planned_by)
        build = self._plan(target)
        try:
            for served in updates:
                await self._driver.update(served, build)
        except PliantError:
            with suppress(PliantError):
                await self._take_back(target)
            raise
        self._driver.remember(build)

    async def _take_back(self, target: Servable) -> None:
        """The device refused one of several tasks: scheduler, device and build go by what was served before."""
        self.tell()
        build = self._plan(self._catalog)
        self._driver.remember(build)
        for served in self._catalog.updates_from(target) or ():
            await self._driver.update(served, build)

    async def _exchange(self, target: Servable) -> None:
        """Another device process, built and warmed up beside the running one, takes its place between two launches."""
        worker = self._worker_factory(self._plan(target))
        taken = False
        try:
            await worker.start()
            await self._driver.exchange([worker], target.knowledge().plain(), target.planned_by)
            taken = True
        finally:
            if not taken:
                await worker.stop()
