"""The spans of a generated output, by the gen_ai conventions."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.engine.engine import InFlightOutput
from pliant.serving.packing.engine.metrics import add_generation
from pliant.serving.tracing.export import provider_of
from pliant.serving.tracing.traced import Traced


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
