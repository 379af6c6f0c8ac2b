"""Which bins a stream gets: how many, where their edges are, in which batches, and which of them are worth a static runtime.

Edges are exact for the measured seconds (pliant/bins/planning/edges.py). A static runtime is kept only where it is measured
faster than the dynamic one at the lengths that it would serve: on a CPU it mostly is not, and the dynamic one serves
everything. Pure: measures nothing.

Shape suffix: N lengths in tokens, from 0 to the encoder's longest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Shape
from pliant.bins.planning.edges import choose_edges, padding_cost, worthwhile_batches
from pliant.flows.bins.config import AUTO, EdgesConfig
from pliant.latency import LatencyTable

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Choice:
    """`costs`: mean seconds of a request with 1, 2, ... static runtimes at batch 1, each number's best edges."""

    edges: tuple[int, ...]
    costs: tuple[float, ...]
    dynamic: float  # mean seconds of a request alone in the dynamic runtime


@dataclass(frozen=True, slots=True)
class ShapeTrial:
    """What was measured of one static shape, and the dynamic runtime's seconds for what it would serve."""

    length: int
    batch: int
    static: float
    dynamic: float
    kept: bool


Weighed = tuple[ShapeTrial, ...]


def candidates(step: int, longest: int) -> tuple[int, ...]:
    """Return the multiples of `step` below the longest, and the longest."""
    return (*range(step, longest, step), longest)


def choose(requests_N: NDArray[np.int64], static_N: Seconds, dynamic: LatencyTable, config: EdgesConfig) -> Choice:
    """Choose the edges of the bins; `static_N`: seconds of a static runtime of each length at batch 1."""
    longest, total = len(requests_N) - 1, float(requests_N.sum())
    allowed = candidates(config.step, longest)
    most = min(config.most if config.count == AUTO else int(config.count), len(allowed))
    best = [choose_edges(requests_N, static_N, count, allowed) for count in range(1, max(most, 1) + 1)]
    costs = [padding_cost(edges, requests_N, static_N) / total for edges in best]
    alone = sum(int(requests_N[n]) * dynamic.between(n, 1) for n in map(int, np.flatnonzero(requests_N))) / total
    if config.count == AUTO:
        enough = (1 + config.within) * costs[-1]
        chosen = next(edges for edges, cost in zip(best, costs, strict=True) if cost <= enough)
    else:
        chosen = best[-1] if config.count else ()
    return Choice(chosen, tuple(costs), float(alone))


def weigh(
    measured: Mapping[Shape, float],
    dynamic: LatencyTable,
    requests_N: NDArray[np.int64],
    margin: float,
    staircase: tuple[Seconds, LatencyTable],
) -> tuple[ShapeTrial, ...]:
    """Weigh every measured static shape, ascending, against the dynamic runtime at the lengths of its bin.

    A batch is as long as its longest text, so of `b` requests the expectation is over the longest of `b` draws. A batch
    that takes no less per text than a smaller one is not kept. Nor is anything of an edge where the `staircase` that the
    edges were chosen by (static seconds by length, and the dynamic runtime's) denies it at batch 1: what two measurements
    at different times do not both say is noise.
    """
    edges = sorted({shape.length for shape in measured})
    trials: list[ShapeTrial] = []
    for below, edge in zip((0, *edges), edges, strict=False):
        served_N = requests_N[below + 1 : edge + 1]
        agreed = staircase[0][edge] < (1 - margin) * _expected(staircase[1], served_N, below + 1, 1)
        by_batch = {shape.batch: seconds for shape, seconds in sorted(measured.items()) if shape.length == edge}
        worthwhile = worthwhile_batches(by_batch) if 1 in by_batch else tuple(by_batch)
        for batch, seconds in by_batch.items():
            other = _expected(dynamic, served_N, below + 1, batch)
            kept = bool(agreed) and batch in worthwhile and seconds < (1 - margin) * other
            trials.append(ShapeTrial(edge, batch, seconds, other, kept))
    return tuple(trials)


def _expected(dynamic: LatencyTable, requests_N: NDArray[np.int64], first: int, batch: int) -> float:
    """Return the dynamic runtime's mean seconds for `batch` requests of the bin from length `first` on; 0 for none."""
    total = requests_N.sum()
    if not total:
        return 0.0
    longest_N = np.diff(np.append(0.0, np.cumsum(requests_N) / total) ** batch)
    return float(sum(longest_N[i] * dynamic.between(first + int(i), batch) for i in np.flatnonzero(longest_N)))


def interpolated(alone: Mapping[int, float], longest: int) -> Seconds:
    """Return [longest + 1] seconds by length, linear between those measured."""
    lengths, seconds = zip(*sorted(alone.items()), strict=True)
    seconds_N: Seconds = np.interp(np.arange(longest + 1), lengths, seconds)
    return seconds_N


def rows(weighed: Sequence[ShapeTrial]) -> list[dict[str, Any]]:
    """Return a row of a table for every static shape, beside the dynamic runtime."""
    return [
        {
            "tokens": trial.length,
            "batch": trial.batch,
            "static ms": round(1000 * trial.static, 3),
            "dynamic ms, same requests": round(1000 * trial.dynamic, 3),
            "kept": trial.kept,
        }
        for trial in weighed
    ]


def describe(weighed: Sequence[ShapeTrial]) -> str:
    """Return a sentence for people: which static runtimes are worth it."""
    if not weighed:
        return "no static runtime was asked for: the dynamic one serves every request"
    kept = sum(trial.kept for trial in weighed)
    if not kept:
        return (
            f"none of {len(weighed)} static runtimes was measured faster than the dynamic one at the lengths it would "
            "serve: the dynamic one serves every request"
        )
    lengths = sorted({trial.length for trial in weighed if trial.kept})
    return f"{kept} of {len(weighed)} static runtimes kept, for up to {', '.join(map(str, lengths))} tokens"
