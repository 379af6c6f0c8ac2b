"""Devices on several machines: Ray actors on the nodes of a cluster, and the pool that makes workers of them.

Ray only places actors, carries messages and notices deaths. It neither restarts an actor nor repeats a call: the scheduler
decides on that, and no request may be served twice. The actor does what a device process does.

A process has one pool, since Ray allows one connection per process. Every node needs the same version of this package
(installed, or on a shared disk), and the files that build plans name, since models are built on the node.

Ray's nodes trust one another, and some of their ports listen on all addresses whatever the configuration: whoever reaches
them and has the cluster's token can run code there. Keep the nodes on a network of their own.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pliant.errors import InputError, WorkerError
from pliant.serving.workers.device_process import Build, Device
from pliant.serving.workers.worker import Worker

NAMESPACE = "pliant"
REACH_LIMIT = 5.0  # seconds to find out whether a cluster answers; Ray itself would try for minutes
STORE_BYTES = 100 * 1024 * 1024  # of a local cluster's object store: messages larger than 100 kB pass through it
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else None  # Ray replaces 127.0.0.1 by what the network calls it
WATCH = "watch"  # the actor's second thread, in which one call waits as long as the actor lives
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Milliseconds that a call waits, after the connection broke, to learn why its actor died. The call is lost in any
    # case (max_task_retries=0), so waiting only keeps its requests from another worker.
    "RAY_timeout_ms_task_wait_for_death_info": "0",
    # Seconds that a process does without the control process of the cluster's head, after which Ray ends it. Devices work
    # without the head, so that Ray's own 60 s would end a service that answers.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3600",
    # Ray's own 15 lets whatever else runs on a node go before its devices.
    "RAY_worker_niceness": "0",
}
"""Defaults of variables that Ray reads when it is imported. Nodes need the last two, too, when they are started."""


def import_ray() -> Any:
    """Import Ray with `ENVIRONMENT`. Raises `WorkerError` if it is not installed."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise WorkerError("devices on Ray's nodes need Ray, which is missing here: pip install -e '.[ray]'") from None
    return ray


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one device, as Ray counts them. A device sees only the GPUs that Ray gives it."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)  # other resources by name, such as a kind of accelerator

    def __str__(self) -> str:
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.custom}
        return " and ".join(f"{amount:g} {name}" for name, amount in named.items() if amount) or "nothing"


ONE_CORE = Resources()


class RayPool:
    """A connection to a Ray cluster, open until `close`."""

    def __init__(
        self,
        address: str = "",
        resources: Resources = ONE_CORE,
        place_limit: float = 10.0,
        start_limit: float = 300.0,
    ) -> None:
        """`address`: host:port, or auto, of a cluster that this machine is a node of; empty: start a local one.

        `place_limit`: seconds until a node has taken a device; `start_limit`: seconds from then until its model has run.
        Raises `WorkerError` if Ray is not installed or no cluster answers, `InputError` for a ray:// address.
        """
        if address.startswith("ray://"):
            raise InputError("ray_address", address, "host:port or auto, on a machine that is a node of the cluster")
        self._resources, self._limits = resources, (place_limit, start_limit)
        self._ray = import_ray()
        check_reachable(address)
        quiet = {"log_to_driver": False, "configure_logging": False, "namespace": NAMESPACE}
        own = {"include_dashboard": False, "object_store_memory": STORE_BYTES, "_node_ip_address": LOOPBACK}
        with _keeping_sigterm():
            try:
                self._ray.init(address or "local", **quiet, **({} if address else own))
            except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
                where = address or "this machine"
                raise WorkerError(f"no connection to the Ray cluster at {where}: {_sentence(error)}") from error

    def make_worker(self, build: Build) -> RayWorker:
        """Return a worker, not started; Ray chooses its node when it starts."""
        return RayWorker(build, self._resources, *self._limits)

    def close(self) -> None:
        """Close the connection, which ends all devices of this pool and a local cluster."""
        with _keeping_sigterm():
            self._ray.shutdown()


class RayWorker(Worker):
    """Runs a model in a Ray actor. A connected `RayPool` makes it. See `Worker` for the methods."""

    def __init__(self, build: Build, resources: Resources, place_limit: float, start_limit: float) -> None:
        super().__init__(build, start_limit)
        self._ray, self._resources, self._place_limit = import_ray(), resources, place_limit
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
                await self._call("build", self.build)
        except TimeoutError:
            raise WorkerError(f"the device's actor was not ready within {self._start_limit:.0f} s") from None

    def kill(self) -> None:
        if self._actor is not None:
            self._ray.kill(self._actor)

    async def stop(self) -> None:
        """Kill the actor. Its node has the resources back a moment later."""
        actor, watching = self._actor, self._watching
        self._actor = self._watching = self._home = None
        if watching is not None:
            watching.cancel()
        if actor is not None:
            self._ray.kill(actor)

    async def _place(self) -> None:
        """Start an actor on a node that has room; actors are spread over the nodes."""
        needs = self._resources
        options = {"num_cpus": needs.num_cpus, "num_gpus": needs.num_gpus, "resources": dict(needs.custom)}
        actor = self._actor = _remote_actor(self._ray).options(**options).remote()
        try:
            async with asyncio.timeout(self._place_limit):
                self._home = await actor.home.remote()
        except TimeoutError:
            await self.stop()  # or Ray would place it at any later time
            await asyncio.to_thread(check_reachable, self._ray.get_runtime_context().gcs_address)
            room = f"no node had room for {needs} within {self._place_limit:g} s"
            raise WorkerError(
                f"{room}, or the cluster's head was started anew: then nodes and service must be, too"
            ) from None
        except self._ray.exceptions.RayError as error:
            await self.stop()
            raise WorkerError(f"no node could start the device's actor: {_sentence(error)}") from None
        self._watching = asyncio.create_task(self._watch(actor))

    async def _watch(self, actor: Any) -> None:
        """Wait on a call that never returns, and fails when its actor dies; then call `on_end`."""
        try:
            await actor.outlast.options(concurrency_group=WATCH).remote()
        except self._ray.exceptions.RayError:
            if actor is self._actor and self.on_end is not None:
                self.on_end()

    async def _call(self, verb: str, *arguments: Any) -> Any:
        """Make a call. It is pickled here: Ray's pickling takes longer and makes arrays read-only in the actor."""
        if self._actor is None:
            raise WorkerError("the device's actor is not running")
        message = pickle.dumps((verb, arguments), protocol=5)
        try:
            reply = pickle.loads(await self._actor.ask.remote(message))
        except self._ray.exceptions.RayError as error:
            raise WorkerError(f"the device's actor ended during {verb}: {_sentence(error)}") from None
        return self._result(reply)


class DeviceActor:
    """The actor: a device, and a call that lasts until it ends."""

    def __init__(self) -> None:
        self._device = Device()

    def home(self) -> tuple[str, int]:
        return import_ray().get_runtime_context().get_node_id(), os.getpid()

    def ask(self, message: bytes) -> bytes:
        return pickle.dumps(self._device.answer(self._device.read(message)), protocol=5)

    def outlast(self) -> None:
        threading.Event().wait()


@cache
def _remote_actor(ray: Any) -> Any:
    never = {"max_restarts": 0, "max_task_retries": 0}
    return ray.remote(**never, scheduling_strategy="SPREAD", concurrency_groups={WATCH: 1})(DeviceActor)


def check_reachable(address: str) -> None:
    """Raise `WorkerError` if nothing listens at `address`, host:port; an address without a port passes."""
    host, separator, port = address.rpartition(":")
    if not separator:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_LIMIT).close()
    except (OSError, ValueError) as error:
        raise WorkerError(f"no Ray cluster answers at {address}: {error}") from None


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces by one that exits before pending requests are answered."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGTERM, handler)


def _sentence(error: Exception) -> str:
    """Return the first line of Ray's message, which says what happened."""
    return str(error).splitlines()[0].strip()
