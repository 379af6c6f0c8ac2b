"""What a launch costs besides the device's own time: of a model that does nothing, in a local process and in a Ray actor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.errors import WorkerError
from serving.workers.ray_pool import RayPool
from serving.workers.worker import ProcessWorker, Worker

SIZES = (1024, 65536)  # bytes of the payload, there and back
ROUNDS, WARM = 1000, 100


class Nothing:
    """Runs on a device, and gives payloads back."""

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        del setting
        return payloads, 0.0

    def update(self, value: object) -> None:
        raise WorkerError(f"nothing can be updated here, {value} neither")

    def load(self, number: int) -> None:
        raise WorkerError(f"nothing can be loaded here, {number} neither")


@dataclass(frozen=True, slots=True)
class Turnaround:
    """Seconds of a launch."""

    worker: str
    size: int
    median: float
    p99: float


async def measure_turnarounds(pool: RayPool) -> tuple[Turnaround, ...]:
    """Both workers in turns, launch by launch, so that what else the machine does meets them alike."""
    workers: dict[str, Worker] = {"process": ProcessWorker(Nothing), "ray": pool.worker_factory(Nothing)}
    try:
        for worker in workers.values():
            await worker.start()
        return tuple([one for size in SIZES for one in await _in_turns(workers, size)])
    finally:
        for worker in workers.values():
            await worker.stop()


async def _in_turns(workers: dict[str, Worker], size: int) -> list[Turnaround]:
    payloads = [np.zeros(size, np.uint8)]
    taken: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(ROUNDS + WARM):
        for name, worker in workers.items():
            started = time.perf_counter()
            await worker.run(0, payloads)
            taken[name].append(time.perf_counter() - started)
    quantiles = {name: np.quantile(seconds[WARM:], [0.5, 0.99]) for name, seconds in taken.items()}
    return [Turnaround(name, size, float(median), float(p99)) for name, (median, p99) in quantiles.items()]
