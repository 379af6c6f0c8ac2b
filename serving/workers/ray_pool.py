"""A pool of devices on several machines: the connection to a Ray cluster, which makes workers on its nodes.

A process has one pool, since Ray allows one connection per process. Every node needs the same version of this package
(installed, or on a shared disk), and the files that build plans name, since models are built on the node.

Ray's nodes trust one another, and some of their ports listen on all addresses whatever the configuration: whoever reaches
them and has the cluster's token can run code there. Keep the nodes on a network of their own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pliant.errors import InputError, WorkerError
from pliant.serving.workers.device_process import Build
from pliant.serving.workers.ray_cluster import Resources, check_reachable

if TYPE_CHECKING:
    from pliant.serving.workers.ray_workers import RayWorker

NAMESPACE = "pliant"
ONE_CORE = Resources()
STORE_BYTES = 100 * 1024 * 1024  # of a local cluster's object store: messages larger than 100 kB pass through it
LOOPBACK = "127.0.0.2" if sys.platform == "linux" else None  # Ray replaces 127.0.0.1 by what the network calls it
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


class RayPool:
    """A connection to a Ray cluster, open until `close`."""

    def __init__(
        self, address: str = "", resources: Resources = ONE_CORE, place_limit: float = 10.0, start_limit: float = 300.0
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
        with _keeping_sigterm():
            _connect(self._ray, address)

    def make_worker(self, build: Build) -> RayWorker:
        """Return a worker, not started; Ray chooses its node when it starts."""
        from pliant.serving.workers.ray_workers import RayWorker

        return RayWorker(build, self._resources, *self._limits)

    def close(self) -> None:
        """Close the connection, which ends all devices of this pool and a local cluster."""
        with _keeping_sigterm():
            self._ray.shutdown()


def import_ray() -> Any:
    """Import Ray with `ENVIRONMENT`. Raises `WorkerError` if it is not installed."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise WorkerError("devices on Ray's nodes need Ray, which is missing here: pip install -e '.[ray]'") from None
    return ray


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "configure_logging": False, "namespace": NAMESPACE}
    try:
        if address:
            ray.init(address, **quiet)
        else:
            own = {"include_dashboard": False, "object_store_memory": STORE_BYTES, "_node_ip_address": LOOPBACK}
            ray.init("local", **quiet, **own)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise WorkerError(f"no connection to the Ray cluster at {address or 'this machine'}: {first}") from error


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces by one that exits before pending requests are answered."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(signal.SIGTERM, handler)
