"""False alarms in quiet months: every stream of every system, a month of blocks of a minute, nothing but a daily course.

Blocks of 60 recorded values (a request a second) are drawn again and again, in the order inside a block in which they came,
so that what belongs together stays together. The daily course prefers blocks of larger values by day and of smaller ones by
night. Each stream has the part of the system's budget that `SystemWatch` would give it, and is learnt in its first
observations, whatever time of day they happen to have. Expected: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.benchmarks.watch import streams
from pliant.benchmarks.watch.streams import Recording, recordings
from pliant.progress import Progress, silent
from pliant.watch.detector import Detector, Stream
from pliant.watch.system import ALPHA, part

RUNS, DAYS, SIZE = 20, 30, 60
COURSE = 0.2  # by which a block's mean swings, in standard deviations of the mean of independent values


@dataclass(frozen=True, slots=True)
class QuietMonths:
    """What one stream did in all runs. `runs`: those with a false alarm."""

    system: str
    stream: str
    observations: int  # of a run
    runs: tuple[int, ...]


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
    alarms = []
    values = item.values if item.sequence else np.random.default_rng(0).permutation(item.values)
    places = values.astype(int) if item.binning.labels else np.searchsorted(item.binning.edges, values, side="right")
    places = places[: len(places) // SIZE * SIZE].reshape(-1, SIZE)
    blocks = np.zeros((len(places), item.binning.bins), np.int64)  # counts of recorded blocks
    np.add.at(blocks, (np.arange(len(places))[:, None], places), 1)
    for run in range(runs):
        rng, detector = (
            np.random.default_rng([run, *item.name.encode()]),
            Detector(Stream(item.name, item.binning, alpha)),
        )
        for minute, place in enumerate(course_blocks(blocks, days, rng)):
            detector.update(blocks[place], 60.0 * minute)
        alarms += [run] if detector.alarm else []
    return QuietMonths(item.system, item.name, days * 1440 * SIZE, tuple(alarms))


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
