"""Prometheus metrics of the packing service. Those that other systems have, too, bear the same names.

Knows outputs that have ended and the engine's status; decides nothing.
"""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from pliant.packing.engine.submission import Status
from pliant.packing.scheduling.forecast import LEVELS
from pliant.packing.scheduling.recalibrate import Calibration
from serving.metrics import SECONDS
from serving.packing.reply import Output

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
COUNTED = ("iterations", "tokens", "preemptions", "recomputed")
PAGES = ("waiting", "running", "pages", "pages_used", "host_pages_used")


class PackingMetrics:
    """`generator_version` says which one made an answer."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pliant_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"pliant_{name}", text, ("task",), buckets=buckets, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"pliant_{name}", text, labels, registry=registry, multiprocess_mode="livesum")

        self._arrivals = counter("arrivals", "Outputs that were asked for", "task")
        self._outcomes = counter("outcomes", "What became of them", "task", "outcome")
        self._answers = counter("answers", "Answers, by what gave them", "task", "generator_version")
        self._refreshes = counter("refreshes", "Looks at what the registry's alias points to", "outcome")
        self._refusals = counter("refusals", "Requests answered with an error, by its code", "code")
        self._failures = counter("worker_failures", "Engine processes that died or hung")
        self._predictions = counter("predictions", "Forecasts of lengths: predicted, late or failed", "task", "origin")
        self._queue = histogram("queue_seconds", "From submission to the first iteration, per answer", SECONDS)
        self._predicted = histogram("predicted_tokens", "Median forecast, per answer", TOKENS)
        self._observed = histogram("observed_tokens", "Length, per answer", TOKENS)
        self._coverage = gauge("coverage", "Share of answers no longer than the forecast's quantile", "task", "level")
        self._engine = {name: gauge(name, f"{name} of the engine", "task") for name in PAGES}
        self._counted = {name: gauge(f"engine_{name}", f"{name} since its start", "task") for name in COUNTED}
        self._covered: dict[str, Calibration] = {}

    def arrived(self, task: str, origin: str) -> None:
        """One output, with how its length was forecast."""
        self._arrivals.labels(task).inc()
        self._predictions.labels(task, origin).inc()

    def dropped(self, task: str, reason: str) -> None:
        self._outcomes.labels(task, f"dropped_{reason}").inc()

    def ended(self, task: str, version: int, output: Output) -> None:
        flight = output.flight
        if flight.finish == "late":
            self.dropped(task, "late")
            return
        self._outcomes.labels(task, flight.finish).inc()
        if flight.finish not in ("stop", "length"):
            return
        self._answers.labels(task, str(version)).inc()
        self._queue.labels(task).observe(flight.queued)
        self._observed.labels(task).observe(len(flight.tokens))
        if output.forecast.origin == "predicted":
            self._predicted.labels(task).observe(output.predicted)
            if flight.finish == "stop" and not flight.by_string:  # else its own length is not known
                self._cover(task, output)

    def engine(self, task: str, status: Status) -> None:
        for name, told in {**self._engine, **self._counted}.items():
            told.labels(task).set(getattr(status, name))

    def died(self) -> None:
        self._failures.inc()

    def refreshed(self, outcome: str) -> None:
        self._refreshes.labels(outcome).inc()

    def refused(self, code: str) -> None:
        self._refusals.labels(code).inc()

    def coverage(self, task: str) -> dict[str, float]:
        """By level, of recent answers; empty before the first."""
        if task not in self._covered:
            return {}
        found = self._covered[task].coverage
        return {str(level): round(share, 4) for level, share in zip(LEVELS, found, strict=True)}

    def _cover(self, task: str, output: Output) -> None:
        """Of the forecasts as the predictor made them; the engine's scheduler shifts its own."""
        before = self._covered.get(task, Calibration())
        self._covered[task] = before.after(output.forecast.tokens, len(output.flight.tokens))
        for level, share in self.coverage(task).items():
            self._coverage.labels(task, level).set(share)
