"""One request's outputs while they are made: what its client reads, and what is said of each when it has ended.

Knows flights; no engine but by the way to cancel one, and no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.packing.scheduling.forecast import MEDIAN
from serving.answers import Rejected
from serving.http.api_errors import ApiError, refusal_of_drop
from serving.packing.engine.forecaster import Forecast
from serving.packing.engine.in_flight import InFlightOutput


@dataclass(frozen=True, slots=True)
class About:
    """What all of a request's answers say."""

    model: str
    fingerprint: str
    prompt_tokens: int  # of all its prompts, each once
    deadline: float  # seconds
    usage: bool
    echo: bool


@dataclass(slots=True, eq=False)
class Output:
    """One of them, in the order of the question: prompt by prompt, and of each its choices."""

    index: int
    flight: InFlightOutput
    forecast: Forecast
    echo: str
    prompt: str  # what the predictor read

    @property
    def facts(self) -> dict[str, Any]:
        """Of one that has ended."""
        flight = self.flight
        return {
            "predicted_tokens": self.predicted,
            "predicted_quantiles": [round(tokens, 1) for tokens in self.forecast.tokens],
            "prediction": self.forecast.origin,
            "actual_tokens": len(flight.tokens),
            "queue_seconds": round(flight.queued, 6),
            "preemptions": flight.preemptions,
            "recomputed_tokens": flight.recomputed,
        }

    @property
    def predicted(self) -> int:
        """Tokens, the median."""
        return round(self.forecast.tokens[MEDIAN])


class Reply:
    """`changed` is set by every news of one of its flights (see `hear`)."""

    def __init__(self, about: About, cancel: Callable[[InFlightOutput], None]) -> None:
        self.about, self._cancel = about, cancel
        self.outputs: Sequence[Output] = ()
        self.changed = asyncio.Event()

    def hear(self, _flight: InFlightOutput) -> None:
        self.changed.set()

    @property
    def ended(self) -> bool:
        return all(output.flight.finish for output in self.outputs)

    @property
    def begun(self) -> bool:
        """Whether there is something to say: a text, or an end."""
        return any(output.flight.finish or output.flight.writer.waiting for output in self.outputs)

    async def until(self, condition: Callable[[Reply], bool]) -> None:
        while not condition(self):
            self.changed.clear()
            await self.changed.wait()

    def cancel(self) -> None:
        """Nobody reads any more: all pages are given back."""
        for output in self.outputs:
            self._cancel(output.flight)

    def refusal(self) -> ApiError | None:
        """Why one of the outputs that have ended is no answer, if so: the first of them speaks for all."""
        for output in self.outputs:
            refusal = _refusal(output.flight, self.about.deadline)
            if refusal is not None:
                return refusal
        return None

    @property
    def usage(self) -> dict[str, int]:
        made = sum(len(output.flight.tokens) for output in self.outputs)
        told = self.about.prompt_tokens
        return {"prompt_tokens": told, "completion_tokens": made, "total_tokens": told + made}

    @property
    def headers(self) -> Mapping[str, str]:
        """Those that are known before the first token."""
        return {"x-pliant-predicted-tokens": _joined(output.predicted for output in self.outputs)}

    @property
    def final_headers(self) -> Mapping[str, str]:
        flights = [output.flight for output in self.outputs]
        return {
            **self.headers,
            "x-pliant-actual-tokens": _joined(len(flight.tokens) for flight in flights),
            "x-pliant-queue-seconds": f"{max(flight.queued for flight in flights):.6f}",
            "x-pliant-preemptions": _joined(flight.preemptions for flight in flights),
            "x-pliant-recomputed-tokens": _joined(flight.recomputed for flight in flights),
        }


def _refusal(flight: InFlightOutput, deadline: float) -> ApiError | None:
    match flight.finish:
        case "late":
            return refusal_of_drop(Rejected("late"), deadline)
        case "failed":
            return ApiError(500, "engine_failed", flight.fault or "the engine failed")
        case "cancelled":
            return ApiError(503, "worker_unavailable", flight.fault or "the output was cancelled")
        case "slow":
            return ApiError(408, "slow_reader", "the stream was not read, and its output has been cancelled")
    return None


def _joined(values: Any) -> str:
    return ",".join(map(str, values))
