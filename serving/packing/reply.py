"""One request's choices while they are generated: when the client has something to read, and how each choice ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.packing.scheduling.forecast import MEDIAN
from serving.answers import Rejected
from serving.http.api_errors import ApiError, api_error_of_drop
from serving.packing.engine.forecaster import Forecast
from serving.packing.engine.in_flight import InFlightOutput


@dataclass(frozen=True, slots=True)
class ReplyInfo:
    """What all answers to a request share."""

    model: str
    fingerprint: str
    prompt_tokens: int  # of all prompts, each counted once
    deadline: float  # seconds from arrival
    usage: bool  # a stream ends with the numbers of tokens
    echo: bool  # the answer repeats the prompt


@dataclass(slots=True, eq=False)
class Choice:
    """One choice, in OpenAI's sense: an output for one of the prompts. Choices are ordered by prompt."""

    index: int
    output: InFlightOutput
    forecast: Forecast
    echo: str
    prompt: str  # what the predictor read

    @property
    def details(self) -> dict[str, Any]:
        """Return the field `pliant` of a choice that has ended."""
        output = self.output
        return {
            "predicted_tokens": self.predicted,
            "predicted_quantiles": [round(tokens, 1) for tokens in self.forecast.tokens],
            "prediction": self.forecast.origin,
            "actual_tokens": len(output.tokens),
            "queue_seconds": round(output.queued, 6),
            "preemptions": output.preemptions,
            "recomputed_tokens": output.recomputed,
        }

    @property
    def predicted(self) -> int:
        """Return the median of the forecast length, in tokens."""
        return round(self.forecast.tokens[MEDIAN])


class Reply:
    """The choices of one request. `changed` is set whenever one of them has new text or has ended."""

    def __init__(self, info: ReplyInfo, cancel: Callable[[InFlightOutput], None]) -> None:
        self.info, self._cancel = info, cancel
        self.choices: Sequence[Choice] = ()
        self.changed = asyncio.Event()

    def notify(self, _output: InFlightOutput) -> None:
        """Set `changed`. Every output calls this on progress."""
        self.changed.set()

    @property
    def ended(self) -> bool:
        """Whether all choices have ended."""
        return all(choice.output.finish for choice in self.choices)

    @property
    def begun(self) -> bool:
        """Whether a choice has text or has ended."""
        return any(choice.output.finish or choice.output.writer.waiting for choice in self.choices)

    async def until(self, condition: Callable[[Reply], bool]) -> None:
        """Wait until the condition holds."""
        while not condition(self):
            self.changed.clear()
            await self.changed.wait()

    def cancel(self) -> None:
        """Cancel all outputs, since nobody reads them."""
        for choice in self.choices:
            self._cancel(choice.output)

    def api_error(self) -> ApiError | None:
        """Return the error of the first choice that failed; None if none has."""
        for choice in self.choices:
            api_error = _api_error_of(choice.output, self.info.deadline)
            if api_error is not None:
                return api_error
        return None

    @property
    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens of prompts and outputs."""
        generated, prompt = sum(len(choice.output.tokens) for choice in self.choices), self.info.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers that are known before the first token."""
        return {"x-pliant-predicted-tokens": _joined(choice.predicted for choice in self.choices)}

    @property
    def final_headers(self) -> Mapping[str, str]:
        """Return the headers of a whole answer."""
        outputs = [choice.output for choice in self.choices]
        return {
            **self.headers,
            "x-pliant-actual-tokens": _joined(len(output.tokens) for output in outputs),
            "x-pliant-queue-seconds": f"{max(output.queued for output in outputs):.6f}",
            "x-pliant-preemptions": _joined(output.preemptions for output in outputs),
            "x-pliant-recomputed-tokens": _joined(output.recomputed for output in outputs),
        }


def _api_error_of(output: InFlightOutput, deadline: float) -> ApiError | None:
    match output.finish:
        case "late" | "full":
            return api_error_of_drop(Rejected(output.finish), deadline)
        case "failed":
            return ApiError(500, "engine_failed", output.fault or "the engine failed")
        case "cancelled":
            return ApiError(503, "worker_unavailable", output.fault or "the output was cancelled")
        case "slow":
            return ApiError(408, "slow_reader", "the client did not read the stream, so its output was cancelled")
    return None


def _joined(values: Any) -> str:
    return ",".join(map(str, values))
