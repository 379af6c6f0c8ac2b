"""A worker whose device is a Ray actor, on whichever node of the pool has room; see ray_pool.py.

Ray places actors, carries messages and notices deaths, and nothing more: it neither restarts an actor nor tries a call
again, since the scheduler decides on that, and nothing may be served twice. The actor holds what a device process holds.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from pliant.errors import WorkerError
from serving.workers.device_process import Build, Device
from serving.workers.resources import Resources

WATCH = "watch"  # the actor's thread that is occupied for life, beside the one that works


class RayWorker:
    """Runs `build()` and then launches in an actor of its own. Needs a connected `RayPool`, which makes it."""

    def __init__(self, build: Build, resources: Resources, place_limit: float, start_limit: float) -> None:
        self.ended: Callable[[], None] | None = None
        self._build, self._resources = build, resources
        self._place_limit, self._start_limit = place_limit, start_limit
        self._actor: Any = None
        self._watching: asyncio.Task[None] | None = None
        self._home: tuple[str, int] | None = None

    @property
    def node(self) -> str | None:
        """Ray's id of the node that it was placed on."""
        return None if self._home is None else self._home[0]

    @property
    def pid(self) -> int | None:
        """On that node."""
        return None if self._home is None else self._home[1]

    async def start(self) -> None:
        """Raises `WorkerError` where no node has room in time; the same where the model is not ready in time."""
        await self._place()
        try:
            async with asyncio.timeout(self._start_limit):
                await self._ask("build", self._build)
        except TimeoutError:
            raise WorkerError(f"the device's actor was not ready within {self._start_limit:.0f} s") from None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        outputs, seconds = await self._ask("run", setting, payloads)
        return outputs, seconds

    async def update(self, value: Any, build: Build) -> None:
        """As `ProcessWorker.update`: refused, it raises and is forgotten; one that meets a dead actor waits for the next."""
        former, self._build = self._build, build
        try:
            async with asyncio.timeout(self._start_limit):
                await self._ask("update", value)
        except _RefusedError:
            self._build = former
            raise
        except TimeoutError:
            self.kill()  # it hangs; started again it is built as it is to be
        except WorkerError:
            return

    def remember(self, build: Build) -> None:
        self._build = build

    async def load(self, number: int) -> float:
        try:
            async with asyncio.timeout(self._start_limit):
                return float(await self._ask("load", number))
        except TimeoutError:
            raise WorkerError(f"model {number} was not loaded within {self._start_limit:.0f} s") from None

    def kill(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)

    async def stop(self) -> None:
        """Kill; nothing is in progress that anyone waits for. Its node has its room back a moment later."""
        actor, watching = self._actor, self._watching
        self._actor = self._watching = self._home = None
        if watching is not None:
            watching.cancel()
        if actor is not None:
            ray.kill(actor)

    async def _place(self) -> None:
        """An actor on a node that has room, spread over the nodes as well as they allow."""
        needs = self._resources
        actor = self._actor = _ACTOR.options(
            num_cpus=needs.num_cpus, num_gpus=needs.num_gpus, resources=dict(needs.custom)
        ).remote()
        try:
            async with asyncio.timeout(self._place_limit):
                self._home = await actor.home.remote()
        except TimeoutError:
            await self.stop()  # or it would be placed one day, and nobody would know
            raise WorkerError(f"no node had room for {needs} within {self._place_limit:g} s") from None
        except RayError as error:
            await self.stop()
            raise WorkerError(f"no node could start the device's actor: {_sentence(error)}") from None
        self._watching = asyncio.create_task(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        """A call that never returns fails when its actor dies, also where nothing else is asked of it."""
        try:
            await actor.outlast.options(concurrency_group=WATCH).remote()
        except RayError:
            if actor is self._actor and self.ended is not None:
                self.ended()

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        """Pickled here: Ray's own pickling takes longer, and would make arrays read-only on the other side."""
        if self._actor is None:
            raise WorkerError("the device's actor is not running")
        message = pickle.dumps((verb, arguments), protocol=5)
        try:
            done, value = pickle.loads(await self._actor.ask.remote(message))
        except RayError as error:
            raise WorkerError(f"the device's actor ended during {verb}: {_sentence(error)}") from None
        if not done:
            raise _RefusedError(value)
        return value


class DeviceActor:
    """The other end: a device, and a call to wait for its end with."""

    def __init__(self) -> None:
        self._device = Device()

    def home(self) -> tuple[str, int]:
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def ask(self, message: bytes) -> bytes:
        return pickle.dumps(self._device.reply(message), protocol=5)

    def outlast(self) -> None:
        threading.Event().wait()


_ACTOR = ray.remote(max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD", concurrency_groups={WATCH: 1})(
    DeviceActor
)


class _RefusedError(WorkerError):
    """The actor lives, but its model raised; carries that error's sentence."""


def _sentence(error: RayError) -> str:
    """Ray tells a story; its first line says what happened."""
    return str(error).splitlines()[0].strip()
