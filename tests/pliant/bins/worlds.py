"""Small worlds for tests of bins: artifacts with made-up profiles, and requests at random."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pliant.bins.artifact import Bins, Shape
from pliant.latency import LatencyTable
from pliant.protocol import Request


def bins(
    name: str = "mail",
    lengths: tuple[int, ...] = (64, 128, 256, 512),
    batches: Mapping[int, tuple[int, ...]] | tuple[int, ...] = (1,),
    placement: str = "single",
    slo: float = 0.15,
    scale: float = 1.0,
    load_seconds: float = 1.0,
    most: int = 8,
) -> Bins:
    """Static seconds rise with length and, more slowly, with the batch; dynamic ones are 1.5 times these.

    `batches` are of every length, or those by length; `most`: texts in a dynamic launch.
    """
    made = batches if isinstance(batches, Mapping) else dict.fromkeys(lengths, batches)
    shapes = tuple(Shape(length, batch) for length in lengths for batch in made[length])
    seconds = tuple(scale * cost(shape.length, shape.batch) for shape in shapes)
    table_batches = (1, 2, 4, 8)
    rows = tuple(tuple(1.5 * scale * cost(n, b) for b in table_batches) for n in (16, *lengths))
    observed = np.zeros(lengths[-1] + 1, np.int64)
    observed[8 :: max(lengths[-1] // 32, 1)] = 1
    return Bins(
        name, "0" * 64, "cpu", "eager", slo, (*shapes, Shape(lengths[-1], most, True)), seconds,
        LatencyTable((16, *lengths), table_batches, rows), observed, load_seconds, placement, {}, {},
    )  # fmt: skip


def cost(length: int, batch: int) -> float:
    return 0.0006 + 8.3e-6 * length * (0.4 + 0.6 * batch)


def requests(
    rng: np.random.Generator, count: int, rate: float, longest: int = 512, task: str = "mail", slo: float = 0.15
) -> list[Request]:
    """Poisson arrivals; lengths mostly short, some long."""
    times = np.cumsum(rng.exponential(1 / rate, count))
    lengths = np.clip((longest / 8) * rng.lognormal(0, 0.8, count), 1, longest).astype(int)
    return [
        Request(i, float(t), float(t) + slo, task, 1.0, int(n))
        for i, (t, n) in enumerate(zip(times, lengths, strict=True))
    ]
