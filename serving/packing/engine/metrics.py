"""Prometheus metrics of the packing service. Metrics that other systems have too have the same names."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from pliant.packing.engine.submission import Status
from pliant.packing.scheduling.forecast import QUANTILES, Calibration
from pliant.serving.metrics import SECONDS, TenantUse
from pliant.serving.observe import Observation
from pliant.serving.packing.engine.suspects import SequenceLimit
from pliant.serving.packing.reply import Choice

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
COUNTED = ("iterations", "tokens", "preemptions", "recomputed", "shared")
MEASURED = {
    "queue_seconds": ("Seconds from submission to the first iteration, per answer", SECONDS),
    "ttft_seconds": ("Seconds from arrival to the first token, per answer", SECONDS),
    "tpot_seconds": ("Seconds a token behind the first, per answer", SECONDS),
    "predicted_tokens": ("Median forecast length in tokens, per answer", TOKENS),
    "observed_tokens": ("Length in tokens, per answer", TOKENS),
}
TENANT_OUTCOMES = {
    "stop": "answered",
    "length": "answered",
    "late": "dropped_late",
    "full": "dropped_full",
    "failed": "dropped_failed",
}
PAGES = ("waiting", "running", "pages", "pages_used", "host_pages_used")


class PackingMetrics:
    """Counts for one packing service."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pliant_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"pliant_{name}", text, ("task",), buckets=buckets, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"pliant_{name}", text, labels, registry=registry, multiprocess_mode="livesum")

        self._arrivals = counter("arrivals", "Outputs that were requested", "task")
        self._outcomes = counter("outcomes", "Outputs by outcome", "task", "outcome")
        self._answers = counter("answers", "Answered outputs, by generator version", "task", "generator_version")
        self._refreshes = counter("refreshes", "Polls of the registry for a new version, by outcome", "outcome")
        self._errors = counter("refusals", "Requests answered with an error, by error code", "code")
        self._failures = counter("worker_failures", "Engine processes that died or hung")
        self._exhausted = counter("out_of_memory", "Engine processes that ran out of the device's memory", "task")
        self._sequences = gauge(
            "lowered_sequences", "Most sequences of an iteration, after a process ran out of memory", "task"
        )
        self._predictions = counter("predictions", "Forecasts of lengths: predicted, late or failed", "task", "origin")
        self._waited = histogram(
            "forecast_seconds", "Seconds that a prompt waited for its forecast, if not failed", SECONDS
        )
        self._predictor_failures = counter("predictor_failures", "Predictor processes that died or hung", "task")
        self._targets = counter(
            "targets", "Answers with a deadline or targets, by whether they were kept", "task", "kept"
        )
        self._measured = {name: histogram(name, text, buckets) for name, (text, buckets) in MEASURED.items()}
        self._coverage = gauge("coverage", "Share of answers no longer than the forecast's quantile", "task", "level")
        self._engine = {name: gauge(name, f"{name} of the engine", "task") for name in PAGES}
        self._counted = {name: gauge(f"engine_{name}", f"{name} since its start", "task") for name in COUNTED}
        self._tenants = TenantUse(registry)
        self._calibrations: dict[str, Calibration] = {}

    def arrived(self, task: str, origin: str) -> None:
        """Count a requested output, by the origin of its forecast."""
        self._arrivals.labels(task).inc()
        self._predictions.labels(task, origin).inc()

    def forecast(self, task: str, origin: str, seconds: float) -> None:
        """Count the seconds that a prompt waited for its forecast; a failed one is nobody's speed."""
        if origin != "failed":
            self._waited.labels(task).observe(seconds)

    def predictor_died(self, task: str) -> None:
        self._predictor_failures.labels(task).inc()

    def dropped(self, task: str, tenant: str, reason: str) -> None:
        self._outcomes.labels(task, f"dropped_{reason}").inc()
        self._tenants.ended(tenant, f"dropped_{reason}")

    def answered(self, observation: Observation) -> None:
        """Count an output that has ended."""
        task = observation.task
        self._outcomes.labels(task, observation.outcome).inc()
        for name, value in observation.measured.items():
            self._measured[name].labels(task).observe(value)
        if observation.origin:
            self._answers.labels(task, *map(str, observation.origin.values())).inc()
            if observation.late is not None:
                self._targets.labels(task, str(not observation.late).lower()).inc()

    def ended(self, task: str, choice: Choice) -> None:
        """Count what a choice that has ended cost its tenant, and how far its forecast covered it."""
        output, tenant = choice.output, choice.output.first.prompt.tenant
        self._tenants.ran(tenant, output.seconds)
        if output.finish in TENANT_OUTCOMES:
            self._tenants.ended(tenant, TENANT_OUTCOMES[output.finish])
        full_length = output.finish == "stop" and choice.typical and not output.at_stop_string
        if choice.forecast.origin == "predicted" and full_length:
            self._count_coverage(task, choice)

    def engine(self, task: str, status: Status) -> None:
        """Set the gauges of an engine."""
        for name, metric in {**self._engine, **self._counted}.items():
            metric.labels(task).set(getattr(status, name))

    def limited(self, task: str, sequences: SequenceLimit) -> None:
        """Set the most sequences of an iteration, and count a process that ran out of memory."""
        self._sequences.labels(task).set(sequences.value)
        self._exhausted.labels(task).inc()

    def died(self) -> None:
        self._failures.inc()

    def refreshed(self, outcome: str) -> None:
        self._refreshes.labels(outcome).inc()

    def errored(self, code: str, number: int = 1) -> None:
        self._errors.labels(code).inc(number)

    def coverage(self, task: str) -> dict[str, float]:
        """Return the share of recent answers within each quantile of their forecast; empty before the first."""
        if task not in self._calibrations:
            return {}
        shares = self._calibrations[task].coverage
        return {str(level): round(share, 4) for level, share in zip(QUANTILES, shares, strict=True)}

    def _count_coverage(self, task: str, choice: Choice) -> None:
        """Count an answer for the coverage of the predictor's own forecasts, which the scheduler recalibrates."""
        before = self._calibrations.get(task, Calibration())
        self._calibrations[task] = before.after(choice.forecast.tokens, len(choice.output.tokens))
        for level, share in self.coverage(task).items():
            self._coverage.labels(task, level).set(share)
