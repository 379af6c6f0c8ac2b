"""A Ray cluster of several nodes on this machine, to lose some of them: each is its own processes and loopback address.

It lives in a process of its own, so that starting a node (seconds) does not hold up the event loop that is measured. The
head has no room for devices: the service's own machine is not what is lost.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from pliant.errors import WorkerError
from pliant.serving.workers.ray_workers import import_ray

STORE_BYTES = 80 * 1024 * 1024  # the least that Ray takes is 75 MiB
SILENCE = 1.5  # seconds without a sign of a node after which no device is placed there again, instead of Ray's 15
CHECKS = 3
START_LIMIT = 120.0


class Nodes:
    """The other end of the cluster's process; calls block until the cluster has done what they say."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.address: str = self._receive()

    def add(self) -> str:
        """Start one more node; return its id."""
        return str(self.order("add"))

    def order(self, *words: str) -> Any:
        """Have the cluster "add" a node, or "kill" NODE without a warning."""
        self._pipe.send(words)
        return self._receive()

    def _receive(self) -> Any:
        if not self._pipe.poll(START_LIMIT):
            raise WorkerError(f"the cluster said nothing within {START_LIMIT:.0f} s")
        try:
            return self._pipe.recv()
        except EOFError:
            raise WorkerError("the cluster's process ended") from None


@contextmanager
def cluster(silence: float = SILENCE) -> Iterator[Nodes]:
    """Start a head without devices; nothing of it is left afterwards. Raises `WorkerError` where Ray is not installed.

    A node counts as lost after `silence` seconds: too few, and a busy machine loses those that are well.
    """
    import_ray()
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_keep, args=(theirs, silence))
    process.start()
    theirs.close()
    try:
        yield Nodes(ours)
    finally:
        ours.close()
        process.join(START_LIMIT)
        process.kill()


def _keep(pipe: Connection, silence: float) -> None:
    """Run a cluster until the other end is closed, or its process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("RAY_raylet_start_wait_time_s", f"{START_LIMIT:.0f}")  # 30 are too few on a busy machine
    import_ray()
    from ray.cluster_utils import Cluster

    hosts = (f"127.0.0.{number}" for number in range(2, 255))  # Ray takes 127.0.0.1 for "whatever others call me"
    own = {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    each = round(1e3 * silence / CHECKS)
    health = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": each,
        "health_check_timeout_ms": 2 * each,
        "health_check_failure_threshold": CHECKS,
    }
    head = {"num_cpus": 0, "node_ip_address": next(hosts), "_system_config": health, **own}
    running = Cluster(initialize_head=True, head_node_args=head)
    nodes = {}
    try:
        pipe.send(running.address)
        while True:
            match pipe.recv():
                case ("add",):
                    node = running.add_node(num_cpus=1, node_ip_address=next(hosts), **own)
                    nodes[node.node_id] = node
                    pipe.send(node.node_id)
                case ("kill", name):
                    running.remove_node(nodes.pop(name), allow_graceful=False)
                    pipe.send(name)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    finally:
        running.shutdown()
