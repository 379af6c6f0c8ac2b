"""What one load at one contender gave, in figures; and the rows of a contest: ratios within a repeat, median and worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.packing.vllm.load import Arrivals, Reply
from pliant.benchmarks.packing.vllm.server import FCFS, Contender
from pliant.benchmarks.results import Target

WITHIN = (2.0, 4.0)
"""Times the unloaded time within which an answer is good."""
OURS = "Pliant default"
AT_ONCE = "all at once"
OVERLOADS = (1.2, 1.5)
HALF = 0.5
HEADINGS = (
    *("memory", "load", "contender", "mean s", "p99 s", "first s", "tokens/s", "answers/s"),
    *(f"good {times:g}x/s" for times in WITHIN),
    *("mean over vLLM's", "differing"),
)


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The seconds of a text that has the engine for itself: base + prompt * its prompt's tokens + token * its own."""

    base: float
    prompt: float
    token: float

    def seconds(self, replies: Sequence[Reply]) -> NDArray[np.float64]:
        """Return the seconds [N] that each would have taken alone."""
        prompts = np.array([reply.prompt for reply in replies], float)
        tokens = np.array([len(reply.tokens) for reply in replies], float)
        return self.base + self.prompt * prompts + self.token * tokens


def fit(replies: Sequence[Reply]) -> Unloaded:
    """Return the non-negative least squares fit to texts that were measured alone; errors are relative."""
    from scipy.optimize import nnls

    rows = np.array([[1.0, reply.prompt, len(reply.tokens)] for reply in replies])
    seconds = np.array([reply.seconds for reply in replies])
    base, prompt, token = nnls(rows / seconds[:, None], np.ones(len(replies)))[0]
    return Unloaded(float(base), float(prompt), float(token))


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a load. Seconds count from the planned arrival; rates from the first arrival to the last end."""

    mean: float  # seconds to the last token
    p99: float
    first: float  # mean seconds to the first token
    tokens: float  # of outputs, a second
    rate: float  # answers a second
    good: tuple[float, ...]  # answers a second within each of WITHIN
    sustained: float = (
        0.0  # answers a second from the first tenth of the ends to the last: without the emptying at the end
    )


def figures(replies: Sequence[Reply], unloaded: Unloaded) -> Figures:
    """Return the figures of replies that all ended."""
    seconds = np.array([reply.seconds for reply in replies])
    lasted = max(reply.ended for reply in replies) - min(reply.arrival for reply in replies)
    limits = unloaded.seconds(replies)
    return Figures(
        mean=float(seconds.mean()),
        p99=float(np.quantile(seconds, 0.99)),
        first=float(np.mean([reply.first for reply in replies])),
        tokens=sum(len(reply.tokens) for reply in replies) / lasted,
        rate=len(replies) / lasted,
        good=tuple(float((seconds <= times * limits).sum()) / lasted for times in WITHIN),
        sustained=sustained([reply.ended for reply in replies]) or len(replies) / lasted,
    )


def sustained(ends: Sequence[float]) -> float:
    """Return the answers a second between the first tenth of the ends and the last; 0 where those coincide."""
    low, high = np.quantile(ends, (0.1, 0.9))
    between = sum(low < end <= high for end in ends)
    return float(between / (high - low)) if high > low else 0.0


def differing(replies: Sequence[Reply], reference: Sequence[Sequence[int]]) -> int:
    """Count the texts that are not those of the reference, which may be longer or shorter than these."""
    return sum(tuple(text) != reply.tokens for reply, text in zip(replies, reference, strict=False))


Figure = Callable[[Figures], float]


@dataclass(frozen=True, slots=True)
class Load:
    """`factor`: arrivals over what vLLM, first come, first served, answers while many wait.

    Overload lasts for so many `requests`: the longer it does, the more wait, and the more their order counts.
    """

    factor: float
    requests: int
    kind: Arrivals = "Poisson"

    @property
    def at_once(self) -> bool:
        return self.kind == "at once"

    @property
    def name(self) -> str:
        return AT_ONCE if self.at_once else f"{self.factor:g}x, {self.kind}"


def at_once(requests: int) -> Load:
    """Return the load of so many requests that all come at the same moment."""
    return Load(math.inf, requests, "at once")


@dataclass(frozen=True, slots=True)
class Memory:
    """Pages of the cache. `binds`: they are fewer than the requests of a step need."""

    name: str
    pages: int
    loads: tuple[Load, ...]
    binds: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One load at one contender in one repeat. `differing`: texts that are not those of the first run of vLLM's own."""

    memory: str
    load: str
    contender: Contender
    repeat: int
    figures: Figures
    differing: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """Over the repeats. `worst`: the largest, or the smallest where more is better."""

    median: float
    worst: float


def ratio(
    rows: Sequence[Row], memory: str, load: str, figure: Figure, more: bool = False, rival: str = FCFS, ours: str = OURS
) -> Ratio:
    """Return our figure over the rival's at the setting that is best for it, repeat by repeat; NaN without runs.

    `more`: whether more is better.
    """
    here = [row for row in rows if (row.memory, row.load) == (memory, load)]
    ratios = []
    for repeat in sorted({row.repeat for row in here}):
        mine, theirs = (
            [figure(row.figures) for row in here if (row.repeat, row.contender.name) == (repeat, name)]
            for name in (ours, rival)
        )
        if mine and theirs:
            best = max if more else min
            ratios.append(over(best(mine), best(theirs)))
    if not ratios:
        return Ratio(math.nan, math.nan)
    return Ratio(median(ratios), (min if more else max)(ratios))


def over(ours: float, theirs: float) -> float:
    """Return the ratio; infinity over nothing, NaN of nothing over nothing."""
    if theirs:
        return ours / theirs
    return math.inf if ours else math.nan


def _mean(figures: Figures) -> float:
    return figures.mean


def _tokens(figures: Figures) -> float:
    return figures.tokens


def _good(number: int) -> Figure:
    return lambda figures: figures.good[number]


def targets(rows: Sequence[Row], memory: Memory) -> list[Target]:
    """Return the targets of a comparison with vLLM, first come, first served, at its best settings."""
    result = []
    for load in memory.loads:

        def of(what: str, figure: Figure, limit: float, more: bool = False, load: Load = load) -> Target:
            measured = ratio(rows, memory.name, load.name, figure, more).median
            return Target(
                f"{memory.name}, {load.name}: {what} over vLLM's", measured, ">=" if more else "<=", limit, "x"
            )

        if load.at_once and memory.binds:
            result.append(of("tokens/s", _tokens, 1.05, True))
        if load.factor == HALF:
            result += [of("tokens/s", _tokens, 0.99, True), of("mean completion", _mean, 1.01)]
        if load.factor == OVERLOADS[0]:
            result.append(of("mean completion", _mean, 0.7))
            result.append(of("mean time to first token", lambda figures: figures.first, 0.7))
            result.append(of("p99 completion", lambda figures: figures.p99, 1.1))
        if load.factor in OVERLOADS:
            for number, times in enumerate(WITHIN):
                result.append(of(f"answers/s within {times:g}x of the unloaded time", _good(number), 1.3, True))
    return [*result, Target("greedy texts that differ, beyond those of vLLM's own runs", beyond(rows), "<=", 0)]


def beyond(rows: Sequence[Row]) -> float:
    """Return how many more texts of a run of ours differ than of one of vLLM's own at the most; NaN without runs."""
    ours, theirs = ([row.differing for row in rows if row.contender.name == name] for name in (OURS, FCFS))
    return float(max(max(ours) - max(theirs), 0)) if ours and theirs else math.nan


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the cells under HEADINGS: medians over the repeats, by contender."""
    cells = []
    for memory, load, contender in dict.fromkeys((row.memory, row.load, row.contender) for row in rows):
        mine = [row for row in rows if (row.memory, row.load, row.contender) == (memory, load, contender)]
        row = medians(mine)
        sooner = ratio(rows, memory, load, _mean, ours=contender.name).median
        figures = (f"{row[name]:,.2f}" for name in ("mean", "p99", "first", "tokens", "rate"))
        good = (f"{row[f'good {times:g}x']:.3f}" for times in WITHIN)
        most = str(max(each.differing for each in mine))
        cells.append((memory, load, contender.title, *figures, *good, f"{sooner:.2f}x", most))
    return cells


def medians(rows: Sequence[Row]) -> dict[str, float]:
    """Return the medians of all figures over these rows."""
    values = [_flat(row.figures) for row in rows]
    return {name: median(each[name] for each in values) for name in values[0]}


def plain(row: Row) -> dict[str, object]:
    """Return a row as JSON has it."""
    where = {"memory": row.memory, "load": row.load, "contender": row.contender.title, "repeat": row.repeat}
    return {**where, **_flat(row.figures), "differing": row.differing}


def ratios(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the ratios of every contender over vLLM, first come, first served: median and worst, by memory and load."""
    result: list[dict[str, object]] = []
    figures: Mapping[str, tuple[Figure, bool]] = {
        "mean": (_mean, False),
        "p99": (lambda figures: figures.p99, False),
        "first": (lambda figures: figures.first, False),
        "tokens": (_tokens, True),
        **{f"good {times:g}x": (_good(number), True) for number, times in enumerate(WITHIN)},
    }
    for memory, load, name in dict.fromkeys((row.memory, row.load, row.contender.name) for row in rows):
        if name == FCFS:
            continue
        for title, (figure, more) in figures.items():
            value = ratio(rows, memory, load, figure, more, ours=name)
            result.append({"memory": memory, "load": load, "contender": name, "figure": title, **asdict(value)})
    return result


def _flat(figures: Figures) -> dict[str, float]:
    values = asdict(figures)
    good = values.pop("good")
    return {**values, **{f"good {times:g}x": rate for times, rate in zip(WITHIN, good, strict=True)}}
