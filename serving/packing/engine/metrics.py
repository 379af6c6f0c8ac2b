"""Prometheus metrics of the packing service. Metrics that other systems have too have the same names."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.packing.engine.submission import Status
from pliant.packing.scheduling.forecast import QUANTILES, Calibration
from pliant.serving.loop.observe import Observation
from pliant.serving.metrics import TenantUse
from pliant.serving.monitoring.metric_list import register, short
from pliant.serving.packing.engine.engine import SequenceLimit
from pliant.serving.packing.metric_list import ENGINE, OWN
from pliant.serving.packing.reply import Choice

TENANT_OUTCOMES = {
    "stop": "answered",
    "length": "answered",
    "late": "dropped_late",
    "full": "dropped_full",
    "failed": "dropped_failed",
}


class PackingMetrics:
    """Counts for one packing service."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._of, self._tenants = register(OWN, registry), TenantUse(registry)
        self._calibrations: dict[str, Calibration] = {}

    def arrived(self, task: str, origin: str) -> None:
        """Count a requested output, by the origin of its forecast."""
        self._of["arrivals"].labels(task).inc()
        self._of["predictions"].labels(task, origin).inc()

    def forecast(self, task: str, origin: str, seconds: float) -> None:
        """Count the seconds that a prompt waited for its forecast; a failed one is nobody's speed."""
        if origin != "failed":
            self._of["forecast_seconds"].labels(task).observe(seconds)

    def predictor_died(self, task: str) -> None:
        self._of["predictor_failures"].labels(task).inc()

    def dropped(self, task: str, tenant: str, reason: str) -> None:
        self._of["outcomes"].labels(task, f"dropped_{reason}").inc()
        self._tenants.ended(tenant, f"dropped_{reason}")

    def answered(self, observation: Observation) -> None:
        """Count an output that has ended."""
        task = observation.task
        self._of["outcomes"].labels(task, observation.outcome).inc()
        for name, value in observation.measured.items():
            self._of[name].labels(task).observe(value)
        if observation.origin:
            self._of["answers"].labels(task, *map(str, observation.origin.values())).inc()
            if observation.late is not None:
                self._of["targets"].labels(task, str(not observation.late).lower()).inc()

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
        for metric in ENGINE:
            name = short(metric.name)
            self._of[name].labels(task).set(getattr(status, name.removeprefix("engine_")))

    def limited(self, task: str, sequences: SequenceLimit) -> None:
        """Set the most sequences of an iteration, and count a process that ran out of memory."""
        self._of["lowered_sequences"].labels(task).set(sequences.value)
        self._of["out_of_memory"].labels(task).inc()

    def died(self) -> None:
        self._of["worker_failures"].inc()

    def refreshed(self, outcome: str) -> None:
        self._of["refreshes"].labels(outcome).inc()

    def errored(self, code: str, number: int = 1) -> None:
        self._of["refusals"].labels(code).inc(number)

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
            self._of["coverage"].labels(task, level).set(share)
