"""How soon a planted change is noticed: ours beside river's detectors, at an equal rate of false alarms.

Requests come once a second under a mild daily course, which moves the odds of every "at least x" (for classes: of every
class) by a factor of 1.1 up and down. In quiet months nothing else happens. A rival's threshold is the most that its
statistic reaches in m such months, so in one more month it raises a false alarm with a probability of exactly 1/(m +
1). Ours has that as its alpha, which bounds it over all time; it is shown beside with the alpha of a whole system, as
shipped. Where ours raises alarms in the quiet months, rivals may raise as many. In other runs, each of a day, a change
is planted at a random time. The rivals' other parameters are the best of a grid, chosen for each change by the delays
themselves, in their favour. Rivals take numbers: values by their standard score, of labels one detector each.

Settings were tuned on the changes of streams.py. With `--full` the further ones of confirmation.py are measured as well, in
as many months and runs as the quick setting has, and are a target of their own.

Expected, written before the first run (with ours as shipped and rivals tuned on days): ours is much sooner where the
course makes rivals careful (ADWIN, which has no tolerance, and small changes); about as soon where the change is large;
later, perhaps, than Page-Hinkley where a change is barely above the tolerance, which ours pays for twice, in the band
and in the reference's uncertainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import console, jobs
from benchmarks.harness import Measured, need
from benchmarks.results import Target
from benchmarks.watch import confirmation, ours, rivals, streams
from benchmarks.watch.rivals import Floats, Rival
from benchmarks.watch.streams import Recording, recordings
from pliant.progress import Progress, silent
from pliant.watch.detector import threshold
from pliant.watch.system import ALPHA

BLOCK = 20  # values
DAY = 86_400  # values; also of a run with a change
COURSE = 0.1  # of the log of the odds, up and down
PLANTED = (0.15, 0.6)  # shares of a run between which the change comes
QUICK, FULL = (3, 20), (20, 100)  # quiet months, and runs with a change
MONTH = 30  # days
HEADINGS = (
    "system",
    "change",
    "ours",
    "worst",
    "as shipped",
    "best rival",
    "its delay",
    "its worst",
    "ratio",
    "false alarms",
    "early",
)


@dataclass(frozen=True, slots=True)
class Delay:
    """Delays of one detector in values from the change to the alarm; what was never noticed counts to the run's end."""

    detector: str
    threshold: float
    median: float
    worst: float
    unnoticed: int  # runs
    early: int  # runs with an alarm before the change, which do not count
    quiet: int  # quiet runs with an alarm


@dataclass(frozen=True, slots=True)
class Comparison:
    """One planted change: ours, and every rival."""

    system: str
    change: str
    runs: int
    ours: Delay
    shipped: Delay  # ours, with the alpha of a system
    rivals: tuple[Delay, ...]

    @property
    def best(self) -> Delay:
        return min(self.rivals, key=lambda delay: (delay.median, delay.worst))

    @property
    def ratio(self) -> float:
        return self.ours.median / self.best.median


@dataclass(frozen=True, slots=True)
class _Job:
    recording: Recording
    months: int
    days: int  # of a month
    runs: int
    seed: int  # of the first run, and of the first quiet month

    @property
    def alpha(self) -> float:
        """Return the probability that a rival, tuned on these months, raises a false alarm in one more."""
        return 1 / (self.months + 1)


def alarms(full: bool, progress: Progress = silent, processes: int = 2) -> Measured:
    """Measure the delays of all planted changes, print a table; raises `Skipped` where data or river are missing.

    `full`: more months and runs, and after them the changes of confirmation.py.
    """
    need((confirmation.missing() if full else streams.missing()) or rivals.missing())
    planted = [item for item in recordings() if item.changed is not None]
    months, runs = FULL if full else QUICK
    target, details = _measured("alarms'", planted, months, runs, 0, progress, processes)
    if not full:
        return [target], details
    further = confirmation.recordings()
    second, details["confirmation"] = _measured(
        "confirmation: alarms'", further, *QUICK, confirmation.SEED, progress, processes
    )
    return [target, second], details


def _measured(
    name: str, planted: Sequence[Recording], months: int, runs: int, seed: int, progress: Progress, processes: int
) -> tuple[Target, dict[str, Any]]:
    """Measure the delays of some changes and print a table; return their target, and the details."""
    results = measure(planted, months, runs, seed=seed, progress=progress, processes=processes)
    console.table(
        f"{name} delay: values from a change to its alarm, medians", HEADINGS, [row(result) for result in results]
    )
    worst = max(results, key=lambda result: result.ratio)
    target = Target(f"{name} delay over river's best, worst change ({worst.change})", worst.ratio, "<=", 1.0, "x")
    return target, {
        "changes": [_plain(result) for result in results],
        "rivals": {result.change: [asdict(delay) for delay in result.rivals] for result in results},
        "median ratio": float(np.median([result.ratio for result in results])),
    }


def measure(
    planted: Sequence[Recording],
    months: int,
    runs: int,
    days: int = MONTH,
    seed: int = 0,
    progress: Progress = silent,
    processes: int = 1,
) -> list[Comparison]:
    """Return a comparison for each changed recording, over quiet months of so many days and runs with the change."""
    work = [_Job(item, months, days, runs, seed) for item in planted]
    return jobs.run_all(_compare, work, processes, progress)


def row(result: Comparison) -> tuple[str, ...]:
    """Return the cells under HEADINGS."""
    ours_, best = result.ours, result.best
    delays = (
        f"{ours_.median:,.0f}",
        f"{ours_.worst:,.0f}",
        f"{result.shipped.median:,.0f}",
        best.detector,
        f"{best.median:,.0f}",
        f"{best.worst:,.0f}",
    )
    counts = (f"{ours_.quiet} | {best.quiet}", f"{ours_.early} | {best.early}")
    return (result.system, result.change, *delays, f"{result.ratio:.2f}", *counts)


def _plain(result: Comparison) -> dict[str, object]:
    plain = {"system": result.system, "change": result.change, "runs": result.runs, "ratio": result.ratio}
    return (
        plain
        | asdict(result.ours)
        | {"shipped median": result.shipped.median}
        | {f"rival {key}": value for key, value in asdict(result.best).items()}
    )


def _compare(job: _Job) -> Comparison:
    item = job.recording
    false, most = _quiet(job)
    numbers = range(job.seed, job.seed + job.runs)
    places = [_change_at(item, run) for run in numbers]
    changed = [values(item, [run, 1], 1, place) for run, place in zip(numbers, places, strict=True)]
    own, shipped = (
        _delay(
            name, threshold(item.stream(alpha)), [first(item, run, alpha) for run in changed], places, changed, alarms
        )
        for name, alpha, alarms in (("pliant", job.alpha, false), ("pliant as shipped", ALPHA, 0))
    )
    delays = []
    for rival, reached in most.items():
        limit = rivals.threshold(reached, false)
        firsts = [rival.first(signals(item, run), limit) for run in changed]
        early = sum(each > limit for each in reached)
        delays.append(_delay(rival.name, limit, firsts, places, changed, early))
    return Comparison(item.system, item.change, job.runs, own, shipped, tuple(delays))


def _quiet(job: _Job) -> tuple[int, dict[Rival, list[float]]]:
    """Return in how many quiet months ours raises an alarm, and the threshold that each rival needs to raise none."""
    item, false, most = job.recording, 0, dict[Rival, list[float]]()
    scale = float(signals(item, item.values)[0].std())
    grid = rivals.grid(scale, DAY if item.course else len(item.values), bool(item.binning.labels))
    for month in range(job.seed, job.seed + job.months):
        run = values(item, [month, 0], job.days)
        false += first(item, run, job.alpha) >= 0
        fed = signals(item, run)
        for rival in grid:
            most.setdefault(rival, []).append(rival.most(fed))
    return false, most


def first(item: Recording, run: Floats, alpha: float) -> int:
    """Return the value at which ours raises an alarm in a run [T]; -1 if it does not."""
    stream, size = item.stream(alpha), BLOCK if item.course else 1
    block = ours.first(ours.evidence(stream, counts(item, run, size)), threshold(stream))
    return -1 if block < 0 else (block + 1) * size - 1


def _delay(
    name: str, threshold: float, firsts: Sequence[int], places: Sequence[int], runs: Sequence[Floats], quiet: int
) -> Delay:
    """Return the delays. `firsts`: of each run the value that raised the alarm, `places` those with which changes came."""
    early = sum(0 <= first < place for first, place in zip(firsts, places, strict=True))
    delays = [
        (first if first >= 0 else len(run) - 1) - place + 1
        for first, place, run in zip(firsts, places, runs, strict=True)
        if not 0 <= first < place
    ]
    median, worst = (float(np.median(delays)), float(max(delays))) if delays else (np.inf, np.inf)
    return Delay(name, threshold, median, worst, sum(first < 0 for first in firsts), early, quiet)


def _change_at(item: Recording, run: int) -> int:
    rng = np.random.default_rng([run, 2])
    if not item.course:
        return item.burn_in + int(rng.integers(1, item.burn_in))
    low, high = (int(share * DAY) for share in PLANTED)
    return int(rng.integers(low, high))


def values(item: Recording, seed: Sequence[int], days: int, place: int | None = None) -> Floats:
    """Return the values of a run of so many days [T], which change at `place`; without one nothing changes.

    A load has recorded days in random order, 13 of them where a change comes.
    """
    rng = np.random.default_rng([*seed, *item.name.encode()])
    if not item.course:
        recorded = item.values.reshape(-1, streams.DAY // 60 // streams.LOAD_MINUTES)
        run = recorded[rng.integers(len(recorded), size=days if place is None else len(recorded))].ravel()
        if place is None or item.changed is None:
            return run
        more = float(item.changed[0] - item.values[0])  # of the logarithm: a load becomes so many times what it was
        return np.where(np.arange(len(run)) < place, run, run + more)
    phase = 2 * np.pi * (np.arange(days * DAY) / DAY + rng.random())
    before = _draw(item, item.values, phase, rng)
    if place is None or item.changed is None:
        return before
    return np.concatenate([before[:place], _draw(item, item.changed, phase[place:], rng)])


def _draw(item: Recording, pool: Floats, phase: Floats, rng: np.random.Generator) -> Floats:
    """Return a value of the pool at each phase [T] of the course, which moves the log of every tail's odds alike."""
    uniform = rng.random(len(phase))
    if not item.binning.labels:
        odds = uniform / (1 - uniform) * np.exp(COURSE * np.sin(phase))
        places = (odds / (1 + odds) * len(pool)).astype(int)
        drawn: Floats = np.sort(pool)[np.minimum(places, len(pool) - 1)]
        return drawn
    number = item.binning.bins
    shares = np.bincount(pool.astype(int), minlength=number)[None] * np.exp(
        COURSE * np.sin(phase[:, None] + 2 * np.pi * np.arange(number) / number)
    )
    below = np.cumsum(shares, axis=1)
    labels: Floats = (uniform[:, None] * below[:, -1:] >= below).sum(1).astype(float)
    return labels


def counts(item: Recording, run: Floats, size: int) -> NDArray[np.int64]:
    """Return the counts by block and bin [T / size, bins] of a run's values [T]."""
    places = run.astype(int) if item.binning.labels else np.searchsorted(item.binning.edges, run, side="right")
    places = places[: len(places) // size * size].reshape(-1, size)
    hits = np.zeros((len(places), item.binning.bins), np.int64)
    np.add.at(hits, (np.arange(len(places))[:, None], places), 1)
    return hits


def signals(item: Recording, run: Floats) -> Floats:
    """Return what rivals are fed [signals, T], between 0 and 1: the standard score, or an indicator of each label."""
    if item.binning.labels:
        indicators: Floats = (run == np.arange(item.binning.bins)[:, None]).astype(float)
        return indicators
    pool = np.log(np.maximum(item.values, 1)) if _logarithmic(item) else item.values
    fed = np.log(np.maximum(run, 1)) if _logarithmic(item) else run
    scores: Floats = np.clip((fed - pool.mean()) / max(float(pool.std()), 1e-9), -4, 4)
    return scores[None] / 8 + 0.5


def _logarithmic(item: Recording) -> bool:
    """Return whether the bins' edges grow by a factor."""
    edges = item.binning.edges
    return len(edges) > 2 and edges[0] > 0 and abs(edges[1] / edges[0] - edges[2] / edges[1]) < 1e-6
