"""What a packing service counts of outputs and forecasts, and the spans of an output, by the gen_ai conventions."""

from __future__ import annotations

from math import nan
from types import SimpleNamespace

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.forecast import Forecast
from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.engine.engine import InFlightOutput
from pliant.serving.packing.engine.metrics import PackingMetrics, add_generation, observation
from pliant.serving.tracing.export import provider_of
from pliant.serving.tracing.traced import Traced

QUANTILES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


def choice(finish, tokens=10, tenant="ann", origin="predicted", at_stop_string=False, typical=True):
    targets = {"ttft": 0.5, "tpot": nan, "has_targets": finish == "stop", "on_time": tokens < 20}
    output = SimpleNamespace(
        finish=finish,
        tokens=[5] * tokens,
        queued=0.25,
        last_token_at=4.0,
        seconds=2.0,
        at_stop_string=at_stop_string,
        first=SimpleNamespace(
            prompt=SimpleNamespace(tenant=tenant, tokens=5, arrival=1.0, utility=2.0),
            sampling=Sampling(temperature=1.0),
        ),
    )
    return SimpleNamespace(
        output=output, forecast=Forecast(QUANTILES, 16, origin), predicted=8, typical=typical, **targets
    )


def end(metrics, one):
    """Count a choice as the endpoint does."""
    metrics.answered(observation("tales", 7, one))
    metrics.ended("tales", one)


@pytest.fixture
def counted():
    registry = CollectorRegistry()
    return PackingMetrics(registry), lambda name, **labels: registry.get_sample_value(f"pliant_{name}", labels)


def test_outputs_are_counted_by_how_they_ended_and_their_tenants_pay_for_all_of_them(counted):
    metrics, value = counted
    for finish in ("stop", "length", "late", "full", "failed", "cancelled", "slow"):
        end(metrics, choice(finish))
    outcomes = ("stop", "length", "dropped_late", "dropped_full", "failed", "cancelled", "slow")
    assert [value("outcomes_total", task="tales", outcome=outcome) for outcome in outcomes] == [1] * 7
    assert value("answers_total", task="tales", generator_version="7") == 2
    assert value("tenant_seconds_total", tenant="ann") == 14
    # Of the seven the cancelled one was worth nothing any more, and two were answered.
    assert [value(f"utility_{each}_total") for each in ("offered", "earned")] == [12, 4]
    assert [value(f"request_seconds_{each}", task="tales") for each in ("count", "sum")] == [2, 6]
    tenants = {"answered": 2, "dropped_late": 1, "dropped_full": 1, "dropped_failed": 1}
    assert {outcome: value("tenant_outcomes_total", tenant="ann", outcome=outcome) for outcome in tenants} == tenants
    assert (value("queue_seconds_count", task="tales"), value("queue_seconds_sum", task="tales")) == (2, 0.5)
    assert (value("observed_tokens_count", task="tales"), value("observed_tokens_sum", task="tales")) == (2, 20)


def test_forecasts_are_judged_by_outputs_whose_full_length_is_known_and_only_the_predictors_own(counted):
    metrics, value = counted
    assert metrics.coverage("tales") == {}
    end(metrics, choice("stop", origin="late"))
    assert value("predicted_tokens_count", task="tales") is None
    for finish, stopped in (("length", False), ("stop", True)):
        end(metrics, choice(finish, at_stop_string=stopped))
    assert value("predicted_tokens_sum", task="tales") == 16 and metrics.coverage("tales") == {}
    end(metrics, choice("stop", tokens=10))
    coverage = {"0.05": 0, "0.1": 0, "0.25": 0, "0.5": 0, "0.75": 1, "0.9": 1, "0.95": 1, "0.99": 1}
    assert metrics.coverage("tales") == coverage  # of one output of ten tokens
    end(metrics, choice("stop", tokens=3))
    assert metrics.coverage("tales") == {**coverage, "0.25": 0.5, "0.5": 0.5}
    assert value("coverage", task="tales", level="0.25") == 0.5
    assert metrics.coverage("others") == {}


def test_the_seconds_that_prompts_waited_for_their_forecasts_are_counted_but_for_failed_ones(counted):
    metrics, value = counted
    metrics.forecast("tales", "predicted", 0.004)
    metrics.forecast("tales", "late", 0.05)
    metrics.forecast("tales", "failed", 0.0)
    assert value("forecast_seconds_count", task="tales") == 2
    assert value("forecast_seconds_sum", task="tales") == pytest.approx(0.054)
    assert value("forecast_seconds_bucket", task="tales", le="0.005") == 1
    metrics.predictor_died("tales")
    assert value("predictor_failures_total", task="tales") == 1


def test_times_and_kept_targets_of_answers_are_counted(counted):
    metrics, value = counted
    for tokens in (10, 10, 30):
        end(metrics, choice("stop", tokens))
    end(metrics, choice("length"))
    assert value("ttft_seconds_count", task="tales") == 4
    assert value("tpot_seconds_count", task="tales") is None, "none of them had a pace"
    assert [value("targets_total", task="tales", kept=kept) for kept in ("true", "false")] == [2, 1]


class NoText:
    """A writer that nobody reads."""

    waiting = 0

    def end(self) -> None:
        """There is nothing to end."""


def spans_of(tokens: list[int], first_token_at: float) -> dict:
    prompt = Prompt(3, 10.0, 7, 64, (5.0,), 64)
    submission = Submission(prompt, tuple(range(7)), sampling=Sampling(temperature=0.5, top_k=20))
    output = InFlightOutput(submission, NoText(), frozenset(), lambda _output: None)
    output.tokens, output.first_token_at, output.finish, output.queued, output.seconds = (
        tokens,
        first_token_at,
        "stop",
        1.5,
        0.25,
    )
    exporter = InMemorySpanExporter()
    provider = provider_of("packing", 1.0, exporter)
    add_generation(Traced(provider.get_tracer("test"), Context()), "tiny", "chat", output, 14.0)
    provider.force_flush()
    return {span.name: span for span in exporter.get_finished_spans()}


def seconds(span) -> float:
    return (span.end_time - span.start_time) / 1e9


def test_an_output_has_its_wait_its_first_token_and_the_rest_within_its_own_span():
    spans = spans_of([1, 2, 3], 12.0)
    assert {name: seconds(span) for name, span in spans.items()} == {
        "chat tiny": 4.0,
        "queue": 1.5,
        "launch": 2.5,
        "prefill": 0.5,
        "decode": 2.0,
    }
    whole = spans["chat tiny"]
    assert spans["queue"].parent.span_id == spans["launch"].parent.span_id == whole.context.span_id
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_k": 20,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 2.0,
    }
    assert expected.items() <= dict(whole.attributes).items()


def test_an_output_without_a_token_has_waited_only():
    spans = spans_of([], float("nan"))
    assert set(spans) == {"chat tiny", "queue"} and seconds(spans["chat tiny"]) == 4.0
