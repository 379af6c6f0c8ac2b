"""What is measured of a generated output that has ended: its observation, the service's metrics and its spans.

Metrics that other systems have too have the same names. Spans follow OpenTelemetry's gen_ai conventions.
"""

from __future__ import annotations

from bisect import bisect_left
from math import isnan, log2, nan

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.packing.engine.submission import Status
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES, Calibration
from pliant.serving.loop.observe import LENGTHS, Observation, Reading, labels
from pliant.serving.metrics import TenantUse
from pliant.serving.monitoring.metric_list import register, short
from pliant.serving.packing.engine.engine import InFlightOutput, SequenceLimit
from pliant.serving.packing.metric_list import ENGINE, OWN
from pliant.serving.packing.reply import Choice
from pliant.serving.tracing.traced import Traced, Value, zero_of

PLACES = labels((*(f"below its {quantile:g} quantile" for quantile in QUANTILES), "above all quantiles"))
"""Where an output's length lies among the quantiles that were forecast: the shares of these show the coverage."""
OCTAVES = 4.0  # by which a forecast is worth nothing: 16 times too long or too short


def observation(model: str, version: int, choice: Choice) -> Observation:
    """Return what is known of a choice that has ended; `version` is that of its generator."""
    output, forecast, length = choice.output, choice.forecast, len(choice.output.tokens)
    answered = output.finish in ("stop", "length")
    predicted = forecast.origin == "predicted"
    measured = {
        "request_seconds": output.last_token_at - output.first.prompt.arrival,
        "queue_seconds": output.queued,
        "ttft_seconds": choice.ttft,
        "tpot_seconds": choice.tpot,
        "observed_tokens": length,
        "predicted_tokens": choice.predicted if predicted else nan,
    }
    readings = [Reading(f"tokens of prompts of {model}", output.first.prompt.tokens, LENGTHS)]
    if answered and choice.typical:  # it ended by itself or at its limit, and not as its request alone made it
        readings.append(Reading(f"tokens of outputs of {model}", length, LENGTHS))
    nearness = None
    if choice.typical and predicted and output.finish == "stop":
        readings.append(Reading(f"forecast of {model}", bisect_left(forecast.tokens, length), PLACES))
        # A forecast loses by the logarithm of median over length: it is what the scheduler's order goes by.
        nearness = 1 - min(1.0, abs(log2((1 + forecast.tokens[MEDIAN]) / (1 + length))) / OCTAVES)
    return Observation(
        task=model,
        version=version,
        outcome=f"dropped_{output.finish}" if output.finish in ("late", "full") else output.finish,
        origin={"generator_version": version} if answered else {},
        measured={name: value for name, value in measured.items() if not isnan(value)} if answered else {},
        label=None if output.first.sampling.temperature > 0 else tuple(output.tokens),
        confidence=nearness,
        utility=output.first.prompt.utility,
        late=not choice.on_time if choice.has_targets else None,
        readings=readings,
    )


TENANT_OUTCOMES = {
    "stop": "answered",
    "length": "answered",
    "late": "dropped_late",
    "full": "dropped_full",
    "failed": "dropped_failed",
}

FIGURES = {
    name: name.removeprefix("engine_").removesuffix("_seconds") for name in (short(each.name) for each in ENGINE)
}
"""The gauges of an engine, and the fields of its `Status` that they show."""


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

    def dropped(self, task: str, tenant: str, reason: str, utility: float) -> None:
        self._of["outcomes"].labels(task, f"dropped_{reason}").inc()
        self._of["utility_offered"].inc(utility)
        if tenant:
            self._tenants.ended(tenant, f"dropped_{reason}")

    def answered(self, observation: Observation) -> None:
        """Count an output that has ended."""
        task = observation.task
        self._of["outcomes"].labels(task, observation.outcome).inc()
        if observation.outcome != "cancelled":
            self._of["utility_offered"].inc(observation.utility)
        if observation.origin and not observation.late:
            self._of["utility_earned"].inc(observation.utility)
        for name, value in observation.measured.items():
            self._of[name].labels(task).observe(value)
        if observation.origin:
            self._of["answers"].labels(task, *map(str, observation.origin.values())).inc()
            if observation.late is not None:
                self._of["targets"].labels(task, str(not observation.late).lower()).inc()

    def ended(self, task: str, choice: Choice) -> None:
        """Count what a choice that has ended cost its tenant, and how far its forecast covered it."""
        output, tenant = choice.output, choice.output.first.prompt.tenant
        if tenant:
            self._tenants.ran(tenant, output.seconds)
            if output.finish in TENANT_OUTCOMES:
                self._tenants.ended(tenant, TENANT_OUTCOMES[output.finish])
        full_length = output.finish == "stop" and choice.typical and not output.at_stop_string
        if choice.forecast.origin == "predicted" and full_length:
            before = self._calibrations.get(task, Calibration())  # of forecasts that no scheduler has recalibrated yet
            self._calibrations[task] = before.after(choice.forecast.tokens, len(output.tokens))
            for level, share in self.coverage(task).items():
                self._of["coverage"].labels(task, level).set(share)

    def engine(self, task: str, status: Status) -> None:
        """Set the gauges of an engine."""
        for name, figure in FIGURES.items():
            self._of[name].labels(task).set(getattr(status, figure))

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


def add_generation(traced: Traced, model: str, operation: str, output: InFlightOutput, now: float) -> None:
    """Add the spans of an output that has ended; times are of the service's clock, which says `now`.

    `operation`: "chat" or "text_completion".
    """
    zero, prompt, sampling = zero_of(now), output.first.prompt, output.first.sampling
    begin, first = prompt.arrival, now if isnan(output.first_token_at) else output.first_token_at
    values: dict[str, Value] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "pliant",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.request.max_tokens": prompt.limit,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.usage.input_tokens": prompt.tokens,
        "gen_ai.usage.output_tokens": len(output.tokens),
        "gen_ai.response.finish_reasons": (output.finish,),
        "gen_ai.response.time_to_first_chunk": first - begin,
        "pliant.preemptions": output.preemptions,
        "pliant.recomputed_tokens": output.recomputed,
    }
    if sampling.top_k:
        values["gen_ai.request.top_k"] = sampling.top_k
    whole = traced.add(f"{operation} {model}", begin, now, zero, values)
    launched = min(begin + output.queued, now)
    whole.add("queue", begin, launched, zero, {})
    if output.tokens:
        running = whole.add("launch", launched, now, zero, {"pliant.device_seconds": output.seconds})
        running.add("prefill", launched, first, zero, {"gen_ai.usage.input_tokens": prompt.tokens})
        running.add("decode", first, now, zero, {"gen_ai.usage.output_tokens": len(output.tokens)})
