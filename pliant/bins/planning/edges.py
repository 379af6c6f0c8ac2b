"""Which lengths get a static runtime, and which batch sizes, from measured seconds and observed lengths.

How many devices each runtime gets depends on the load and is decided in allocate.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pliant.errors import InputError

Floats = NDArray[np.float64]


def choose_edges(
    requests_by_length: ArrayLike, seconds_by_length: ArrayLike, count: int, candidates: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return at most `count` lengths, ascending and with the longest last, that minimise `padding_cost`. Exact.

    Both arrays are [max + 1] with the index in tokens. Seconds need not rise with length (a measured staircase). It can
    then pay to choose fewer than `count`, as each request goes to the shortest runtime that it fits; of equally good
    choices one with the fewest runtimes is taken. `candidates` (all lengths if None) are the only lengths allowed
    besides the longest; seconds of others are not read. A dynamic programme: O(count x candidates^2). Raises
    `InputError` for a count below 1 and for arrays that do not fit.
    """
    if count < 1:
        raise InputError("count", count, "at least 1 runtime")
    requests_N, seconds_N = _checked(requests_by_length, seconds_by_length)
    allowed = _allowed(candidates, len(requests_N) - 1)
    seconds_E = _positive("seconds_by_length", seconds_N[allowed])
    up_to_E = np.cumsum(requests_N)[allowed]
    # added_EF[e, f]: the cost of edge e where the edge before it is f.
    added_EF = (up_to_E[:, None] - up_to_E) * seconds_E[:, None]
    added_EF[np.triu_indices(len(allowed))] = np.inf
    return tuple(int(allowed[e]) for e in _cheapest(up_to_E * seconds_E, added_EF, min(count, len(allowed))))


def _cheapest(first_E: Floats, added_EF: Floats, count: int) -> list[int]:
    """Return the indices of the chosen edges. `first_E`: the cost of each as the first one; the last is always chosen."""
    cost_E, totals, before = first_E, [first_E[-1]], []
    for _ in range(count - 1):
        reached_EF = cost_E + added_EF
        before.append(reached_EF.argmin(axis=1))
        cost_E = reached_EF.min(axis=1)
        totals.append(cost_E[-1])
    chosen = [len(first_E) - 1]
    for step in reversed(before[: int(np.argmin(totals))]):
        chosen.append(int(step[chosen[-1]]))
    return chosen[::-1]


def padding_cost(edges: Sequence[int], requests_by_length: ArrayLike, seconds_by_length: ArrayLike) -> float:
    """Return the seconds of all requests if each is padded to the smallest edge that it fits."""
    requests_N, seconds_N = _checked(requests_by_length, seconds_by_length)
    lengths = np.unique(np.asarray(edges, dtype=np.int64))
    if len(lengths) == 0 or lengths[0] < 1 or lengths[-1] != len(requests_N) - 1:
        raise InputError("edges", tuple(edges), f"lengths from 1 on, the last {len(requests_N) - 1}")
    padded_N = np.searchsorted(lengths, np.arange(len(requests_N)))
    return float(requests_N @ _positive("seconds_by_length", seconds_N[lengths])[padded_N])


def worthwhile_batches(seconds_by_batch: Mapping[int, float], gain: float = 0.05) -> tuple[int, ...]:
    """Return the batch sizes worth having, ascending: 1, and each that takes less per text than the one before.

    It must take at least the share `gain` less. Raises `InputError` where batch size 1 was not measured.
    """
    if 1 not in seconds_by_batch:
        raise InputError("seconds_by_batch", sorted(seconds_by_batch), "measured at batch size 1 too")
    _positive("seconds_by_batch", np.array(list(seconds_by_batch.values())))
    kept = [1]
    for batch in sorted(size for size in seconds_by_batch if size > 1):
        if seconds_by_batch[batch] / batch <= (1.0 - gain) * seconds_by_batch[kept[-1]] / kept[-1]:
            kept.append(batch)
    return tuple(kept)


def _checked(requests_by_length: ArrayLike, seconds_by_length: ArrayLike) -> tuple[Floats, Floats]:
    requests_N = np.asarray(requests_by_length, dtype=np.float64)
    seconds_N = np.asarray(seconds_by_length, dtype=np.float64)
    if requests_N.ndim != 1 or requests_N.shape != seconds_N.shape or len(requests_N) < 2:
        raise InputError(
            "histogram and seconds", f"{requests_N.shape} and {seconds_N.shape}", "both [max + 1], max > 0"
        )
    if not (np.isfinite(requests_N).all() and (requests_N >= 0).all()):
        raise InputError("requests_by_length", float(requests_N.min()), "finite and not negative")
    return requests_N, seconds_N


def _allowed(candidates: Sequence[int] | None, longest: int) -> NDArray[np.int64]:
    lengths = range(1, longest + 1) if candidates is None else candidates
    allowed = np.unique(np.array([*lengths, longest], dtype=np.int64))
    if allowed[0] < 1 or allowed[-1] > longest:
        raise InputError("candidates", f"{allowed[0]} to {allowed[-1]}", f"within 1 to {longest}")
    return allowed


def _positive(name: str, seconds: Floats) -> Floats:
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise InputError(name, float(seconds.min()), "positive and finite")
    return seconds
