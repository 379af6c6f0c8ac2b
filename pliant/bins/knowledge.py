"""What the bins scheduler knows before the first request: per stream its runtimes, and what each takes for which batch.

Made from artifacts (`knowledge_of`); nothing here knows time or requests. A *runtime* is everything compiled for one length:
its static shapes, one a batch size, or the dynamic one, which takes any length up to its own. A launch's `setting` is the
index of a shape in the concatenation of all streams' shapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from pliant.bins.artifact import Bins, Shape
from pliant.bins.dispatch import DISPATCHES
from pliant.errors import InputError
from pliant.latency import LatencyTable

RUNTIMES = ("all", "static", "longest", "dynamic")
"""Which runtimes are used: all; the static ones alone; the longest static one (ST, padding); the dynamic one (DT)."""

PLANS = ("published", "queueing", "better")

CLASSES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096)
"""Lengths (tokens) by which waiting requests are grouped where no static runtimes group them."""


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
        """The setting for `batch` texts of at most `length` tokens, and its seconds. Raises `InputError` beyond either."""
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


@dataclass(frozen=True)
class Stream:
    """One encoder's requests. `runtimes` ascend in length; where there is a dynamic one it stands last."""

    name: str
    slo: float  # seconds
    first: int  # index of its first runtime among all
    runtimes: tuple[Runtime, ...]
    mean_seconds: float  # of one text alone, over the observed lengths
    shares: tuple[float, ...]  # of the observed requests, by the shortest runtime with sufficient length
    _costs: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def max_length(self) -> int:
        return max(runtime.length for runtime in self.runtimes)

    @property
    def most(self) -> int:
        """Texts in the largest batch."""
        return max(runtime.batches[-1] for runtime in self.runtimes)

    def most_of(self, length: int) -> int:
        """Texts in the largest batch that takes this length."""
        return max(runtime.batches[-1] for runtime in self.runtimes if runtime.length >= length)

    def cost(self, length: int, batch: int = 1) -> tuple[int, float]:
        """The fastest of all its runtimes that take these texts: its setting and seconds. Computed once for each."""
        known = self._costs.get((length, batch))
        if known is None:
            fit = [one for one in self.runtimes if one.length >= length and one.batches[-1] >= batch]
            if not fit:
                raise InputError("texts", f"{batch} of {length} tokens", f"at most {self.most} of {self.max_length}")
            known = min((one.cost(length, batch) for one in fit), key=lambda cost: cost[1])
            self._costs[length, batch] = known
        return known

    @property
    def batches(self) -> tuple[int, ...]:
        """Every size of batch that some runtime is made or measured for."""
        return tuple(sorted({batch for runtime in self.runtimes for batch in runtime.batches}))

    @property
    def classes(self) -> tuple[int, ...]:
        """Ascending lengths that group waiting requests: those of static runtimes, or a fixed ladder."""
        static = [runtime.length for runtime in self.runtimes if runtime.table is None]
        ladder = static if len(static) > 1 else [length for length in CLASSES if length < self.max_length]
        return tuple(sorted({*ladder, self.max_length}))


@dataclass(frozen=True)
class Knowledge:
    streams: tuple[Stream, ...]
    load_seconds: float  # to swap a device's runtime
    placement: str  # see pliant/bins/artifact.py

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Of all streams, one after the other; a device under placement "single" holds one of them."""
        return tuple(runtime for stream in self.streams for runtime in stream.runtimes)

    def stream(self, name: str) -> Stream:
        found = next((stream for stream in self.streams if stream.name == name), None)
        if found is None:
            raise InputError("task", name, f"one of {tuple(stream.name for stream in self.streams)}")
        return found


@dataclass(frozen=True, slots=True)
class Scaling:
    """Arlo's autoscaling: one device more at `high` of the SLO, one less below `low` of it over `window` seconds."""

    least: int = 1  # devices
    high: float = 0.95
    low: float = 0.5
    quantile: float = 0.98
    window: float = 60.0
    pause: float = 5.0  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Config:
    """How the scheduler decides.

    `dispatch`: see pliant/bins/dispatch.py (placement "single" alone). `plan`: "published", "queueing" or "better", the one
    of both that does better on the last window. The paper's settings: dispatch "published", plan "published", period 120,
    drop_late False.
    """

    workers: int = 1
    dispatch: str = "completion"
    plan: str = "better"
    period: float = 20.0  # seconds between plans
    swaps: float = 0.1  # share of the devices that may swap at once
    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the caller
    max_waiting: int = 2048  # requests per worker; more are dropped as "full"
    drop_late: bool = True  # or served after all others
    attempts: int = 2  # launches a request may be part of before a worker's failure ends its way
    restart_pause: float = 1.0
    patience: float | None = None  # seconds a request may be overtaken, per second of its own work; None: by the SLO
    scaling: Scaling | None = None
    deployed: tuple[int, ...] = ()  # runtime of each worker at the start (placement "single"); none: planned

    def __post_init__(self) -> None:
        for name, value, choices in (("dispatch", self.dispatch, DISPATCHES), ("plan", self.plan, PLANS)):
            if value not in choices:
                raise InputError(name, value, f"one of {', '.join(choices)}")
        if self.deployed and len(self.deployed) != self.workers:
            raise InputError("deployed", self.deployed, f"one runtime a worker, {self.workers}")


def knowledge_of(bins: Sequence[Bins], runtimes: str = "all", placement: str | None = None) -> Knowledge:
    """What stored artifacts say, in their order; of each the runtimes that are to be used (see `RUNTIMES`).

    Under placement "single" the dynamic runtime is used only where there is no static one. Raises `InputError` where there
    is no artifact, or two have one name.
    """
    if not bins or len({one.name for one in bins}) < len(bins):
        raise InputError("streams", tuple(one.name for one in bins), "at least one, and each of another name")
    if runtimes not in RUNTIMES:
        raise InputError("runtimes", runtimes, f"one of {RUNTIMES}")
    placement = placement or bins[0].placement
    runtimes = "static" if (runtimes, placement) == ("all", "single") else runtimes
    streams: list[Stream] = []
    first = setting = 0
    for number, one in enumerate(bins):
        streams.append(_stream(one, number, first, setting, runtimes))
        first, setting = first + len(streams[-1].runtimes), setting + len(one.shapes)
    load = max(one.load_seconds for one in bins)
    return Knowledge(tuple(streams), load, placement)


def _stream(bins: Bins, number: int, first: int, setting: int, which: str) -> Stream:
    made = [_static(list(group), bins, number, setting) for _, group in groupby(_statics(bins), lambda p: p[1].length)]
    if which == "longest":
        made = made[-1:]
    if which in ("all", "dynamic") or not made:
        dynamic = _dynamic(bins, number, setting + len(bins.shapes) - 1)
        made = [dynamic] if which == "dynamic" else [*made, dynamic]
    stream = Stream(bins.name, bins.slo, first, tuple(made), 0.0, ())
    lengths = np.flatnonzero(bins.lengths[: stream.max_length + 1])
    weights = bins.lengths[lengths]
    seconds = [stream.cost(max(int(length), 1))[1] for length in lengths] or [stream.cost(stream.max_length)[1]]
    mean = float(np.average(seconds, weights=weights if len(weights) else None))
    at = np.searchsorted([runtime.length for runtime in made], lengths)
    came = np.bincount(at, weights=weights, minlength=len(made)) if len(lengths) else np.ones(len(made))
    return Stream(bins.name, bins.slo, first, tuple(made), mean, tuple((came / came.sum()).tolist()))


def _statics(bins: Bins) -> list[tuple[int, Shape]]:
    return [(index, shape) for index, shape in enumerate(bins.shapes) if not shape.dynamic]


def _static(shapes: list[tuple[int, Shape]], bins: Bins, number: int, setting: int) -> Runtime:
    batches = tuple(shape.batch for _, shape in shapes)
    settings = tuple(setting + index for index, _ in shapes)
    return Runtime(number, shapes[0][1].length, batches, settings, tuple(bins.seconds[index] for index, _ in shapes))


def _dynamic(bins: Bins, number: int, setting: int) -> Runtime:
    shape, table = bins.shapes[-1], bins.dynamic
    batches = tuple(batch for batch in table.batches if batch <= shape.batch)
    return Runtime(number, shape.length, batches, (setting,), (), table)
