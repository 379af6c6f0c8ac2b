"""False alarms in quiet months: every stream of every system, a month of blocks of a minute, nothing but a daily course.

Blocks of 60 recorded values (a request a second) are drawn again and again, in the order inside a block in which they came,
so that what belongs together stays together. The daily course prefers blocks of larger values by day and of smaller ones by
night. A load is drawn as whole days.
Each stream has the part of the system's budget that `SystemWatch` would give it, and is learnt in its first observations,
whatever time of day they happen to have.

Expected: none. The bound is 80 x 0.01 = 0.8 alarms on average where every share stays within its band; blocks that depend
on each other, as recorded ones do, may break it, a tolerance that is not used up leaves room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.benchmarks.watch import streams
from pliant.benchmarks.watch.streams import Recording, recordings
from pliant.progress import Progress, silent
from pliant.watch.betting import reserve
from pliant.watch.binning import coarse_bins, merge
from pliant.watch.detector import Stream, bets_of, learn, threshold
from pliant.watch.reference import reference_of
from pliant.watch.system import ALPHA, part

_CHUNK = 4096  # blocks


def evidence(stream: Stream, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the evidence after each block [blocks] from the counts of the stream's bins [blocks, bins].

    It is 1 while the stream is learnt. An alarm ends refinements in the detector, and not here: only what comes before a
    first alarm is the same.
    """
    seen = np.cumsum(counts.sum(1))
    learnt = int(np.searchsorted(seen, stream.burn_in)) + 1
    result = np.ones(len(counts))
    if learnt >= len(counts):
        return result
    reference, used, wealth = learn(stream, counts[:learnt].sum(0)), 0, 0.0
    begin = int(seen[learnt - 1])
    merged = merge(counts, coarse_bins(stream.binning, reference.binning), reference.binning.bins)
    ends = [int(np.searchsorted(seen, begin * 2**level)) + 1 for level in range(1, stream.refinements + 1)]
    for level, end in enumerate([*ends, len(counts)], 1):
        start, end = learnt, min(end, len(counts))
        if start < end:
            bets, own = bets_of(stream, reference, used), merged[start:end]
            observations = float(seen[start - 1] - begin) + np.concatenate([[0.0], np.cumsum(own.sum(1))])
            left = np.array([reserve(after, stream.pace) for after in observations])
            pieces = (own[at : at + _CHUNK] @ bets.log_factors for at in range(0, len(own), _CHUNK))
            factors = np.concatenate([np.exp(np.minimum(piece, 700.0)) for piece in pieces])
            totals = _totals(factors, -np.diff(left), bets.weights, wealth)
            result[start:end], wealth = totals + left[1:], float(totals[-1])
        learnt = max(start, end)
        if level <= len(ends) and ends[level - 1] <= len(counts) and result[learnt - 1] <= 1:
            reference, used = reference_of(reference.binning, merged[:learnt].sum(0)), level
    return result


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _totals(
    factors: NDArray[np.float64], fresh: NDArray[np.float64], weights: NDArray[np.float64], initial: float
) -> NDArray[np.float64]:
    """Return the summed wealth [T] from factors [T, bets] and what flows in for each block [T]; first it is `initial`."""
    wealth, result = initial * weights, np.empty(len(fresh))
    for step in range(len(fresh)):
        total = 0.0
        for bet in range(len(weights)):
            wealth[bet] = min((wealth[bet] + fresh[step] * weights[bet]) * factors[step, bet], 1e100)
            total += wealth[bet]
        result[step] = total
    return result


RUNS, DAYS, SIZE = 20, 30, 60
COURSE = 0.2  # by which a block's mean swings, in standard deviations of the mean of independent values


@dataclass(frozen=True, slots=True)
class QuietMonths:
    """What one stream did in all runs. `runs`: those with a false alarm."""

    system: str
    stream: str
    observations: int  # of a run
    runs: tuple[int, ...]
    evidence: float  # the most of all runs, over the threshold
    tolerance: float


def quiet(context: Context) -> Measured:
    """Count the false alarms of 20 months (`full`: 100)."""
    need(streams.missing())
    runs = 5 * RUNS if context.full else RUNS
    with context.stage("quiet months") as progress:
        results = measure(recordings(), runs, DAYS, progress, 2)
    pairs = {(result.system, run) for result in results for run in result.runs}
    first = sum(run < RUNS for _, run in pairs)
    targets = [Target(f"false alarms in {RUNS} quiet months, all systems", first, "<=", 1)]
    rows = [asdict(result) | {"runs": len(result.runs)} for result in results]
    return targets, {"streams": rows, "months of a system": runs, "months with a false alarm": len(pairs)}


def measure(
    items: Sequence[Recording], runs: int, days: int, progress: Progress = silent, processes: int = 1
) -> list[QuietMonths]:
    """Return what each stream did in quiet runs of so many days."""
    number, jobs = Counter[str](), []
    for item in items:
        jobs.append((item, part(number[item.system], ALPHA), runs, days))
        number[item.system] += 1
    return run_all(_months, jobs, processes, progress)


def _months(job: tuple[Recording, float, int, int]) -> QuietMonths:
    item, alpha, runs, days = job
    stream, alarms, most, size = item.stream(alpha), [], 0.0, 0
    each = SIZE if item.course else 1  # observations of a block; of a load one block a value
    values = item.values if item.sequence else np.random.default_rng(0).permutation(item.values)
    places = values.astype(int) if item.binning.labels else np.searchsorted(item.binning.edges, values, side="right")
    places = places[: len(places) // each * each].reshape(-1, each)
    blocks = np.zeros((len(places), item.binning.bins), np.int64)  # counts of recorded blocks
    np.add.at(blocks, (np.arange(len(places))[:, None], places), 1)
    for run in range(runs):
        rng = np.random.default_rng([run, *item.name.encode()])
        if item.course:
            counts = blocks[course_blocks(blocks, days, rng)]
        else:
            recorded = blocks.reshape(-1, streams.DAY // 60 // streams.LOAD_MINUTES, blocks.shape[1])
            counts = recorded[rng.integers(len(recorded), size=days)].reshape(-1, blocks.shape[1])
        course = evidence(stream, counts)
        size = int(counts.sum())
        most = max(most, float(course.max()) / threshold(stream))
        if (course >= threshold(stream)).any():
            alarms.append(run)
    return QuietMonths(item.system, item.name, size, tuple(alarms), most, item.tolerance)


def course_blocks(blocks: NDArray[np.int64], days: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return which block each minute of the days has: by day rather those whose values are larger. Begins at any hour."""
    steps = np.linspace(-1, 1, blocks.shape[1])
    means, shares = blocks @ steps, blocks.sum(0) / blocks.sum()
    # Where a block's values go together, a tilt of the same size would move their mean further: by its variance. `spread` is
    # the standard deviation that blocks' means would have if their values were independent.
    spread = np.sqrt(blocks[0].sum() * (shares @ steps**2 - (shares @ steps) ** 2))
    deviation = max(float(means.std()), 1e-9)
    scores = spread / deviation * (means - means.mean()) / deviation
    start, choices = rng.integers(24), np.empty((24, days, 60), np.intp)
    for hour in range(24):
        weights = np.exp(COURSE * np.sin(2 * np.pi * (hour + start) / 24) * np.clip(scores, -3, 3))
        choices[hour] = rng.choice(len(blocks), (days, 60), p=weights / weights.sum())
    return choices.transpose(1, 0, 2).ravel()
