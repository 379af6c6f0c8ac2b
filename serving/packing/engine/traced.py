"""The spans of a generated output, by OpenTelemetry's gen_ai conventions: its wait, its first token, and the rest."""

from __future__ import annotations

from math import isnan

from pliant.serving.packing.engine.engine import InFlightOutput
from pliant.serving.tracing.traced import Traced, Value, zero_of

PROVIDER = "pliant"


def add_generation(traced: Traced, model: str, operation: str, output: InFlightOutput, now: float) -> None:
    """Add the spans of an output that has ended; times are of the service's clock, which says `now`.

    `operation`: "chat" or "text_completion".
    """
    zero, prompt, sampling = zero_of(now), output.first.prompt, output.first.sampling
    begin, first = prompt.arrival, now if isnan(output.first_token_at) else output.first_token_at
    values: dict[str, Value] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": PROVIDER,
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
