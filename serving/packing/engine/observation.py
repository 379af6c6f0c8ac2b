"""What is observed of a generated output: its tokens, how long it took, and how good the forecast of its length was."""

from __future__ import annotations

import math
from bisect import bisect_left

from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES
from pliant.serving.loop.observe import LENGTHS, Observation, Reading, labels
from pliant.serving.packing.reply import Choice

PLACES = labels((*(f"below its {quantile:g} quantile" for quantile in QUANTILES), "above all quantiles"))
"""Where an output's length lies among the quantiles that were forecast: the shares of these show the coverage."""
OCTAVES = 4.0  # by which a forecast is worth nothing: 16 times too long or too short


def observation(model: str, version: int, choice: Choice) -> Observation:
    """Return what is known of a choice that has ended; `version` is that of its generator."""
    output = choice.output
    answered = output.finish in ("stop", "length")
    return Observation(
        task=model,
        version=version,
        outcome=f"dropped_{output.finish}" if output.finish in ("late", "full") else output.finish,
        origin={"generator_version": version} if answered else {},
        measured=_measured(choice) if answered else {},
        label=None if output.first.sampling.temperature > 0 else tuple(output.tokens),
        confidence=_nearness(choice),
        late=not choice.on_time if choice.has_targets else None,
        readings=_readings(model, choice),
    )


def _measured(choice: Choice) -> dict[str, float]:
    values = {
        "queue_seconds": choice.output.queued,
        "ttft_seconds": choice.ttft,
        "tpot_seconds": choice.tpot,
        "observed_tokens": len(choice.output.tokens),
        "predicted_tokens": choice.predicted if choice.forecast.origin == "predicted" else math.nan,
    }
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _nearness(choice: Choice) -> float | None:
    """Return how near the forecast was to the length, from 0 to 1; None where none was made or the length is not typical.

    A forecast loses by the logarithm of median over length: it is what the scheduler's order goes by.
    """
    if not (choice.typical and choice.forecast.origin == "predicted" and choice.output.finish == "stop"):
        return None
    ratio = (1 + choice.forecast.tokens[MEDIAN]) / (1 + len(choice.output.tokens))
    return 1 - min(1.0, abs(math.log2(ratio)) / OCTAVES)


def _readings(model: str, choice: Choice) -> list[Reading]:
    """Return the lengths of the prompt, and of an output that ended by itself or at its limit, and not as its request alone
    made it; and the place of the latter among the quantiles of its forecast."""
    output, length = choice.output, len(choice.output.tokens)
    readings = [Reading(f"tokens of prompts of {model}", output.first.prompt.tokens, LENGTHS)]
    if output.finish in ("stop", "length") and choice.typical:
        readings.append(Reading(f"tokens of outputs of {model}", length, LENGTHS))
        if choice.forecast.origin == "predicted" and output.finish == "stop":
            readings.append(Reading(f"forecast of {model}", bisect_left(choice.forecast.tokens, length), PLACES))
    return readings
