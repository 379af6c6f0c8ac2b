"""A worker whose device is a Ray actor on a node of the pool (ray_pool.py).

Ray only places actors, carries messages and notices deaths. It neither restarts an actor nor repeats a call: the scheduler
decides on that, and no request may be served twice. The actor does what a device process does.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from typing import Any

import ray
from ray.exceptions import RayError

from pliant.errors import WorkerError
from pliant.serving.workers.device_process import Build, Device
from pliant.serving.workers.ray_cluster import Resources, check_reachable
from pliant.serving.workers.worker import CallingWorker

WATCH = "watch"  # the actor's second thread, in which one call waits as long as the actor lives


class RayWorker(CallingWorker):
    """Runs a model in a Ray actor. A connected `RayPool` makes it. See `Worker` for the methods."""

    def __init__(self, build: Build, resources: Resources, place_limit: float, start_limit: float) -> None:
        super().__init__(build, start_limit)
        self._resources, self._place_limit = resources, place_limit
        self._actor: Any = None
        self._watching: asyncio.Task[None] | None = None
        self._home: tuple[str, int] | None = None

    @property
    def node(self) -> str | None:
        """Return Ray's id of the actor's node; None if it is not placed."""
        return None if self._home is None else self._home[0]

    @property
    def pid(self) -> int | None:
        """Return the actor's process id on that node."""
        return None if self._home is None else self._home[1]

    async def start(self) -> None:
        """Return when the model has run. Raises `WorkerError` if no node has room in time, or the model is not ready."""
        await self._place()
        try:
            async with asyncio.timeout(self._start_limit):
                await self._call("build", self._build)
        except TimeoutError:
            raise WorkerError(f"the device's actor was not ready within {self._start_limit:.0f} s") from None

    def kill(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)

    async def stop(self) -> None:
        """Kill the actor. Its node has the resources back a moment later."""
        actor, watching = self._actor, self._watching
        self._actor = self._watching = self._home = None
        if watching is not None:
            watching.cancel()
        if actor is not None:
            ray.kill(actor)

    async def _place(self) -> None:
        """Start an actor on a node that has room; actors are spread over the nodes."""
        needs = self._resources
        actor = self._actor = _ACTOR.options(
            num_cpus=needs.num_cpus, num_gpus=needs.num_gpus, resources=dict(needs.custom)
        ).remote()
        try:
            async with asyncio.timeout(self._place_limit):
                self._home = await actor.home.remote()
        except TimeoutError:
            await self.stop()  # or Ray would place it at any later time
            await asyncio.to_thread(check_reachable, ray.get_runtime_context().gcs_address)
            room = f"no node had room for {needs} within {self._place_limit:g} s"
            raise WorkerError(
                f"{room}, or the cluster's head was started anew: then nodes and service must be, too"
            ) from None
        except RayError as error:
            await self.stop()
            raise WorkerError(f"no node could start the device's actor: {_sentence(error)}") from None
        self._watching = asyncio.create_task(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        """Wait on a call that never returns, and fails when its actor dies; then call `on_end`."""
        try:
            await actor.outlast.options(concurrency_group=WATCH).remote()
        except RayError:
            if actor is self._actor and self.on_end is not None:
                self.on_end()

    async def _call(self, verb: str, *arguments: Any) -> Any:
        """Make a call. It is pickled here: Ray's pickling takes longer and makes arrays read-only in the actor."""
        if self._actor is None:
            raise WorkerError("the device's actor is not running")
        message = pickle.dumps((verb, arguments), protocol=5)
        try:
            reply = pickle.loads(await self._actor.ask.remote(message))
        except RayError as error:
            raise WorkerError(f"the device's actor ended during {verb}: {_sentence(error)}") from None
        return self._result(reply)


class DeviceActor:
    """The actor: a device, and a call that lasts until it ends."""

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


def _sentence(error: RayError) -> str:
    """Return the first line of Ray's message, which says what happened."""
    return str(error).splitlines()[0].strip()
