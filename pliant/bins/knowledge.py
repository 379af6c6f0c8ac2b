"""What the bins scheduler knows before the first request: each stream's runtimes, and their seconds for every batch.

It is made from artifacts (`knowledge_of`). A *runtime* is all that was compiled for one length: its static shapes, one
per batch size, or the dynamic shape, which takes any length up to its own. A launch's `setting` is the index of a shape
among the shapes of all streams, one stream after the other.

Also how many texts go into one launch (`batch_size`), and what a device runs next, as the scheduler's pools return it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pliant.bins.artifact import Bins, Shape
from pliant.bins.dispatch import DISPATCHES
from pliant.errors import InputError
from pliant.fairness import FAIRNESS, FairnessConfig
from pliant.latency import LatencyTable
from pliant.protocol import Request

RUNTIMES = ("all", "static", "longest", "dynamic")
"""Which runtimes are used: all; the static ones only; the longest static one (ST, padding); the dynamic one (DT)."""

PLANS = ("published", "queueing", "better")

CLASSES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
"""Lengths (tokens) by which waiting requests are grouped where fewer than two static runtimes do."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """All shapes of one length. `settings[j]` runs `batches[j]` texts in `seconds[j]`; a dynamic one by its table."""

    stream: int
    length: int
    batches: tuple[int, ...]
    settings: tuple[int, ...]
    seconds: tuple[float, ...]
    table: LatencyTable | None = None

    def cost(self, length: int, batch: int) -> tuple[int, float]:
        """Return setting and seconds of `batch` texts of at most `length` tokens. Raises `InputError` beyond either."""
        if length > self.length or batch > self.batches[-1]:
            raise InputError("texts", f"{batch} of {length} tokens", f"at most {self.batches[-1]} of {self.length}")
        if self.table is not None:
            return self.settings[0], self.table.between(length, batch)
        at = bisect_left(self.batches, batch)
        return self.settings[at], self.seconds[at]

    @property
    def alone(self) -> float:
        """Seconds of one text of full length."""
        return self.cost(self.length, 1)[1]


@dataclass(frozen=True, slots=True)
class Stream:
    """The requests for one encoder. `runtimes` ascend in length; a dynamic one stands last."""

    name: str
    slo: float  # seconds
    first: int  # index of its first runtime among all
    runtimes: tuple[Runtime, ...]
    mean_seconds: float  # of one text alone, over the observed lengths
    shares: tuple[float, ...]  # of the observed requests, by the shortest runtime that is long enough
    _costs: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def max_length(self) -> int:
        """Tokens of the longest text."""
        return max(runtime.length for runtime in self.runtimes)

    @property
    def max_batch(self) -> int:
        """Texts in the largest batch."""
        return max(runtime.batches[-1] for runtime in self.runtimes)

    def max_batch_of(self, length: int) -> int:
        """Return the texts in the largest batch that takes this length."""
        return max(runtime.batches[-1] for runtime in self.runtimes if runtime.length >= length)

    def cost(self, length: int, batch: int = 1) -> tuple[int, float]:
        """Return setting and seconds of the fastest of all its runtimes that take these texts; results are cached.

        Raises `InputError` where none takes them.
        """
        cheapest = self._costs.get((length, batch))
        if cheapest is None:
            fit = [runtime for runtime in self.runtimes if runtime.length >= length and runtime.batches[-1] >= batch]
            if not fit:
                raise InputError(
                    "texts", f"{batch} of {length} tokens", f"at most {self.max_batch} of {self.max_length}"
                )
            cheapest = min((runtime.cost(length, batch) for runtime in fit), key=lambda cost: cost[1])
            self._costs[length, batch] = cheapest
        return cheapest

    @property
    def batches(self) -> tuple[int, ...]:
        """Every batch size that some runtime was compiled or measured for."""
        return tuple(sorted({batch for runtime in self.runtimes for batch in runtime.batches}))

    @property
    def classes(self) -> tuple[int, ...]:
        """Ascending lengths that group waiting requests: those of static runtimes, or a fixed ladder."""
        static = [runtime.length for runtime in self.runtimes if runtime.table is None]
        ladder = static if len(static) > 1 else [length for length in CLASSES if length < self.max_length]
        return tuple(sorted({*ladder, self.max_length}))


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All streams of a service, and how their runtimes are placed on devices."""

    streams: tuple[Stream, ...]
    load_seconds: float  # to swap a device's runtime
    placement: str  # see pliant/bins/artifact.py

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Runtimes of all streams, one stream after the other; with placement "single" a device holds one of them."""
        return tuple(runtime for stream in self.streams for runtime in stream.runtimes)

    def stream(self, name: str) -> Stream:
        """Return the stream of this name. Raises `InputError` for an unknown one."""
        named = next((stream for stream in self.streams if stream.name == name), None)
        if named is None:
            raise InputError("task", name, f"one of {tuple(stream.name for stream in self.streams)}")
        return named


@dataclass(frozen=True, slots=True)
class Scaling:
    """Arlo's autoscaling: one device more at `high` of the SLO, one less below `low` of it over `window` seconds."""

    min_devices: int = 1
    high: float = 0.95
    low: float = 0.5
    quantile: float = 0.98
    window: float = 60.0
    pause: float = 5.0  # seconds between two decisions


@dataclass(frozen=True, slots=True)
class Config:
    """How the scheduler decides.

    `dispatch`: see pliant/bins/dispatch.py (placement "single" only). `plan`: "published", "queueing" or "better",
    which takes the one that does better on the last window. The paper's settings: dispatch "published", plan
    "published", period 120, drop_late False.
    """

    workers: int = 1
    dispatch: str = "completion"
    plan: str = "better"
    period: float = 20.0  # seconds between plans
    swaps: float = 0.1  # share of the devices that may swap at once
    margin: float = 0.15  # share of the time to a deadline that is reserved for the way back to the client
    max_waiting: int = 2048  # waiting requests per worker; more are dropped as "full"
    drop_late: bool = True  # False: late requests are served after all others
    attempts: int = 2  # failed launches of a request, the last one alone, after which it is dropped
    restart_pause: float = 1.0  # seconds before a failed restart is tried again
    patience: float | None = (
        None  # seconds that a request may be overtaken, per second of its own work; None: from the SLO
    )
    scaling: Scaling | None = None
    fairness: FairnessConfig = FAIRNESS  # how tenants share the devices
    deployed: tuple[int, ...] = ()  # runtime of each worker at the start (placement "single"); empty: planned

    def __post_init__(self) -> None:
        for name, value, choices in (("dispatch", self.dispatch, DISPATCHES), ("plan", self.plan, PLANS)):
            if value not in choices:
                raise InputError(name, value, f"one of {', '.join(choices)}")
        for name, share in (("swaps", self.swaps), ("margin", self.margin)):
            if not 0 <= share <= 1:
                raise InputError(name, share, "a share from 0 to 1")
        if self.deployed and len(self.deployed) != self.workers:
            raise InputError("deployed", self.deployed, f"one runtime a worker, {self.workers}")


def knowledge_of(bins: Sequence[Bins], runtimes: str = "all", placement: str | None = None) -> Knowledge:
    """Return what stored artifacts say, in their order, with the chosen runtimes of each (see `RUNTIMES`).

    With placement "single" the dynamic runtime is used only where there is no static one. Raises `InputError` without
    artifacts, and where two have one name.
    """
    if not bins or len({artifact.name for artifact in bins}) < len(bins):
        raise InputError("streams", tuple(artifact.name for artifact in bins), "at least one, and each of another name")
    if runtimes not in RUNTIMES:
        raise InputError("runtimes", runtimes, f"one of {RUNTIMES}")
    placement = placement or bins[0].placement
    runtimes = "static" if (runtimes, placement) == ("all", "single") else runtimes
    streams: list[Stream] = []
    first = setting = 0
    for number, artifact in enumerate(bins):
        streams.append(_stream(artifact, number, first, setting, runtimes))
        first, setting = first + len(streams[-1].runtimes), setting + len(artifact.shapes)
    return Knowledge(tuple(streams), max(artifact.load_seconds for artifact in bins), placement)


def _stream(bins: Bins, number: int, first: int, setting: int, which: str) -> Stream:
    statics = [(index, shape) for index, shape in enumerate(bins.shapes) if not shape.dynamic]
    used = [_static(list(group), bins, number, setting) for _, group in groupby(statics, lambda p: p[1].length)]
    if which == "longest":
        used = used[-1:]
    if which in ("all", "dynamic") or not used:
        dynamic = _dynamic(bins, number, setting + len(bins.shapes) - 1)
        used = [dynamic] if which == "dynamic" else [*used, dynamic]
    stream = Stream(bins.name, bins.slo, first, tuple(used), 0.0, ())
    lengths = np.flatnonzero(bins.lengths[: stream.max_length + 1])
    weights = bins.lengths[lengths]
    seconds = [stream.cost(max(int(length), 1))[1] for length in lengths] or [stream.cost(stream.max_length)[1]]
    mean = float(np.average(seconds, weights=weights if len(weights) else None))
    at = np.searchsorted([runtime.length for runtime in used], lengths)
    counts = np.bincount(at, weights=weights, minlength=len(used)) if len(lengths) else np.ones(len(used))
    return Stream(bins.name, bins.slo, first, tuple(used), mean, tuple((counts / counts.sum()).tolist()))


def _static(shapes: list[tuple[int, Shape]], bins: Bins, number: int, setting: int) -> Runtime:
    batches = tuple(shape.batch for _, shape in shapes)
    settings = tuple(setting + index for index, _ in shapes)
    return Runtime(number, shapes[0][1].length, batches, settings, tuple(bins.seconds[index] for index, _ in shapes))


def _dynamic(bins: Bins, number: int, setting: int) -> Runtime:
    shape, table = bins.shapes[-1], bins.dynamic
    batches = tuple(batch for batch in table.batches if batch <= shape.batch)
    return Runtime(number, shape.length, batches, (setting,), (), table)


Requests = tuple[Request, ...]

MIN_GAIN = 1.05  # factor by which a larger batch must raise the texts per second


class Work(NamedTuple):
    """One launch: `kind` is "run", or "load" of a runtime (then without requests)."""

    requests: Requests
    setting: int
    seconds: float  # expected, by the profile
    kind: str = "run"


def latest_end(request: Request, margin: float) -> float:
    """Return when its launch must have ended: the deadline less `margin`, the share of time reserved for the way back."""
    return request.deadline - margin * (request.deadline - request.arrival)


Cost = Callable[[int, int], tuple[int, float]]
"""From (tokens of the longest text, texts) to the setting and seconds of their launch."""


def batch_size(
    requests: Sequence[Request],
    ladder: Sequence[int],
    cost: Cost,
    ends: Callable[[Request], float],
    now: float,
    waiting: float = 0.0,
    slowdown: float = 1.0,
) -> int:
    """Return how many of the first `requests` run in one launch: the number in `ladder` with the most texts per second.

    Larger numbers are excluded in two cases. One: these requests and those behind them would on average end later than
    if these ran one after the other (`waiting`: requests for this device, these included). Two: a request would miss
    the time by which it must end (`ends`) but would meet it if it ran alone now. `slowdown` corrects the profile's seconds.
    """
    if len(requests) == 1:
        return 1
    longest, best = requests[0].length, 1
    alone = cost(longest, 1)[1]
    rate = 1.0 / alone
    first_end = float("inf")
    for index, request in enumerate(requests, start=1):
        longest = max(longest, request.length)
        end = ends(request)
        if now + cost(request.length, 1)[1] * slowdown <= end:
            first_end = min(first_end, end)
        if index == 1 or index not in ladder:
            continue
        seconds = cost(longest, index)[1]
        if now + seconds * slowdown > first_end:
            break
        behind = max(waiting - index, 0.0)
        one_by_one = index * alone * ((index + 1) / 2 + behind)
        if (index + behind) * seconds > one_by_one:  # No break: 4 texts run as 8 where there is no shape for 4.
            continue
        if index / seconds >= MIN_GAIN * rate:
            best, rate = index, index / seconds
    return best
