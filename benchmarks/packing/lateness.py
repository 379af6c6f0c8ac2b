"""Whether the predictor keeps up: the share of late forecasts at growing rates, up to beyond what the engine serves.

The champion on the embedded corpus is served as always, predictor and engine in processes of their own, and asked its
held-out questions over HTTP. What the service answers to many clients that each have one chat open gives the scale; then
chats come at Poisson times, at shares of that rate. The engine's highest rate is that of the load with most answers a
second. Forecasts are counted by the service itself (`/metrics`).
"""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.endpoint import serving
from benchmarks.load_generator import Reply, capacity, replay, warm
from benchmarks.packing.chats import Question, form
from benchmarks.results import Target
from flows.settings import Settings
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.workload import poisson

HEADINGS = ("of the scale", "chats/s", "answers/s", "forecasts", "late", "failed", "mean ms", "99% within ms")
MAX_LATE_SHARE = 0.01  # share of late forecasts
TIMEOUT = 30.0  # seconds
ORIGINS = ("predicted", "late", "failed")


@dataclass(frozen=True, slots=True)
class LatenessConfig:
    """`shares`: rates of arrival over the scale, ascending. `seconds` of arrivals at each. `deadline`: of a chat."""

    shares: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0, 1.5)
    seconds: float = 5.0
    clients: int = 32
    probe: float = 3.0  # seconds
    deadline: float = 30.0  # seconds
    temperature: float = 0.7
    warm: int = 4
    seed: int = 0


QUICK = LatenessConfig()
FULL = LatenessConfig(seconds=20.0)


@dataclass(frozen=True, slots=True)
class ForecastCounts:
    """What the service has counted of its forecasts since its start, by origin; `within`: by upper bounds in seconds."""

    predicted: float
    late: float
    failed: float
    seconds: float  # that prompts waited, in all
    within: tuple[tuple[float, float], ...]  # (bound, number), ascending

    @property
    def number(self) -> float:
        return self.predicted + self.late + self.failed

    def since(self, before: ForecastCounts) -> ForecastCounts:
        """Return what was counted after `before`."""
        earlier = dict(before.within)
        return ForecastCounts(
            self.predicted - before.predicted,
            self.late - before.late,
            self.failed - before.failed,
            self.seconds - before.seconds,
            tuple((bound, number - earlier.get(bound, 0.0)) for bound, number in self.within),
        )

    def bound_of(self, level: float) -> float:
        """Return the least bound in seconds that holds this share of the waits; NaN of none."""
        total = self.within[-1][1] if self.within else 0.0
        return next((bound for bound, number in self.within if total and number >= level * total), float("nan"))


@dataclass(frozen=True, slots=True)
class LoadResult:
    """How the forecasts of one load fared."""

    share: float  # of the scale
    rate: float  # chats a second that came
    answered: float  # answers a second, from the first arrival to the last answer
    forecasts: ForecastCounts

    @property
    def late(self) -> float:
        """Return the share of late forecasts."""
        return self.forecasts.late / max(self.forecasts.number, 1.0)

    def row(self) -> tuple[str, ...]:
        counts = self.forecasts
        waits = counts.within[-1][1] if counts.within else 0.0
        speed = f"{self.share:.2f}", f"{self.rate:.1f}", f"{self.answered:.1f}", f"{counts.number:.0f}"
        mean = 1e3 * counts.seconds / waits if waits else float("nan")
        shares = f"{self.late:.2%}", f"{counts.failed / max(counts.number, 1.0):.2%}"
        return *speed, *shares, f"{mean:.1f}", f"{1e3 * counts.bound_of(0.99):.0f}"


@dataclass(frozen=True, slots=True)
class LatenessResult:
    """`scale`: answers a second to clients that each have one chat open."""

    scale: float
    loads: tuple[LoadResult, ...]

    @property
    def highest(self) -> LoadResult:
        """Return the load with most answers a second."""
        return max(self.loads, key=lambda load: load.answered)

    def targets(self) -> list[Target]:
        return [Target("share of late forecasts at the engine's highest rate", self.highest.late, "<=", MAX_LATE_SHARE)]

    def table(self) -> list[tuple[str, ...]]:
        return [load.row() for load in self.loads]

    def plain(self) -> dict[str, Any]:
        return {"scale": self.scale, "loads": [{**asdict(load), "late": load.late} for load in self.loads]}


def measure(
    name: str,
    pool: Sequence[Question],
    config: LatenessConfig,
    progress: Progress = silent,
    project: Settings | None = None,
) -> LatenessResult:
    """Ask the champion `name` questions of the pool at all rates. Raises `PliantError` where its service fails."""
    chat, by_name = form(name, config.temperature), {name: pool}
    with serving("packing", project=project, refresh_seconds=0.0) as url:
        warm(url, by_name, config.warm, chat, config.deadline)
        scale = asyncio.run(capacity(url, by_name, config.probe, config.clients, chat))
        progress(1, 10)
        loads = []
        for number, of_scale in enumerate(config.shares):
            requests = chats(name, of_scale * scale, number, config)
            before, part = counts_of(url, name), share(progress, *_span(number, len(config.shares)))
            replies = asyncio.run(replay(url, requests, by_name, config.seed, part, chat))
            forecasts = counts_of(url, name).since(before)
            loads.append(LoadResult(of_scale, of_scale * scale, _answers_per_second(replies, config), forecasts))
    progress(10, 10)
    return LatenessResult(scale, tuple(loads))


def chats(name: str, rate: float, number: int, config: LatenessConfig) -> list[Request]:
    """Return the chats of load `number`, at Poisson times."""
    times = poisson(rate, config.seconds, np.random.default_rng([config.seed, number]))
    return [Request(at, float(came), float(came) + config.deadline, name) for at, came in enumerate(times)]


def counts_of(url: str, name: str) -> ForecastCounts:
    """Return what a service has counted of the forecasts of the model `name`."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT) as response:
        return parse(response.read().decode(), name)


def parse(exposition: str, name: str) -> ForecastCounts:
    """Return the counts of the model `name` from Prometheus's text format."""
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    mine = [sample for sample in samples if sample.labels.get("task") == name]
    by_origin = {s.labels["origin"]: s.value for s in mine if s.name == "pliant_predictions_total"}
    waits = [(float(s.labels["le"]), s.value) for s in mine if s.name == "pliant_forecast_seconds_bucket"]
    seconds = sum(s.value for s in mine if s.name == "pliant_forecast_seconds_sum")
    predicted, late, failed = (by_origin.get(origin, 0.0) for origin in ORIGINS)
    return ForecastCounts(predicted, late, failed, seconds, tuple(sorted(waits)))


def _span(number: int, count: int) -> tuple[int, int]:
    """Return the percents of the progress between which load `number` runs."""
    return 10 + 90 * number // count, 10 + 90 * (number + 1) // count


def _answers_per_second(replies: Sequence[Reply], config: LatenessConfig) -> float:
    ends = [reply.observation.answered for reply in replies if reply.observation.answered is not None]
    return len(ends) / max(config.seconds, *ends) if ends else 0.0
