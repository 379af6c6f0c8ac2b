"""One request's choices while they are generated: when the client has something to read, and how each choice ended.

Log-probabilities are written in the two shapes of OpenAI's API. There may be a hundred thousand numbers in an answer: they
are written in pieces of a few milliseconds, of one answer at a time, between which the event loop serves everybody else.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from math import isnan, nan
from typing import Any
from uuid import uuid4

from pliant.packing.engine.submission import TokenLogprobs, piece_tokens
from pliant.packing.scheduling.forecast import MEDIAN
from pliant.packing.scheduling.request import FOREVER
from pliant.packing.tools import CallParser, ToolCall
from pliant.serving.driver import Rejected
from pliant.serving.http.api_errors import ApiError, api_error_of_drop
from pliant.serving.http.bodies import ignored_header
from pliant.serving.loop.observe import Observation
from pliant.serving.packing.engine.engine import InFlightOutput
from pliant.serving.packing.engine.forecaster import Forecast
from pliant.serving.packing.text import TokenTexts

LOWEST = -9999.0  # instead of minus infinity, which JSON cannot hold; vLLM writes the same

Entry = tuple[int, TokenLogprobs | None]
"""A token with its log-probabilities; None for the first of a prompt, which nothing comes before."""


class LogprobsWriter:
    """The log-probabilities of one choice, in parts as they become known. `prompt`: tokens that are repeated first."""

    def __init__(self, texts: TokenTexts, output: InFlightOutput, prompt: Sequence[int], chat: bool) -> None:
        self._texts, self._output, self._chat = texts, output, chat
        self._prompt = self._of_prompt(prompt)
        self._size = piece_tokens(output.first.sampling.logprobs)
        self._written = 0  # of the output's tokens
        self._offset = 0  # characters before the next token
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    @property
    def turn(self) -> asyncio.Lock:
        """What an answer holds while it is written, one at a time."""
        return self._texts.turn

    def _of_prompt(self, prompt: Sequence[int]) -> Iterator[Entry]:
        known: Iterable[TokenLogprobs | None] = chain([None], self._output.prompt_logprobs) if prompt else ()
        yield from zip(prompt, known, strict=True)

    def take_prompt(self) -> dict[str, Any] | None:
        """Return the next piece of those of the prompt, if it is repeated; None if there is no more."""
        entries = list(islice(self._prompt, self._size))
        return self._shaped(entries) if entries else None

    def take(self) -> dict[str, Any] | None:
        """Return those of the output's tokens since the last call; None if there are none."""
        entries = self._entries(self._written, None)
        self._written += len(entries)
        return self._shaped(entries) if entries else None

    async def written(self) -> str:
        """Return those of the prompt and of the whole output, as JSON."""
        columns: dict[str, list[str]] = {name: [] for name in self._shaped([]) if name != "refusal"}
        for part in self._pieces():
            for name, items in columns.items():
                items += [json.dumps(part[name])[1:-1]] if part[name] else []
            await asyncio.sleep(0)
        lists = [f'"{name}": [{", ".join(items)}]' for name, items in columns.items()]
        return "{" + ", ".join([*lists, *(['"refusal": null'] if self._chat else [])]) + "}"

    def _pieces(self) -> Iterator[dict[str, Any]]:
        while (part := self.take_prompt()) is not None:
            yield part
        for begin in range(0, len(self._output.tokens), self._size):
            yield self._shaped(self._entries(begin, begin + self._size))

    def _entries(self, begin: int, end: int | None) -> list[Entry]:
        return list(zip(self._output.tokens[begin:end], self._output.logprobs[begin:end], strict=True))

    def _shaped(self, entries: Sequence[Entry]) -> dict[str, Any]:
        return self._of_chat(entries) if self._chat else self._of_completion(entries)

    def _of_completion(self, entries: Sequence[Entry]) -> dict[str, Any]:
        text_of = self._texts.text_of
        return {
            "tokens": [text_of(token) for token, _ in entries],
            "token_logprobs": [known and finite(known.logprob) for _, known in entries],
            "top_logprobs": [
                known and {text_of(id): finite(logprob) for id, logprob in (*known.top, (token, known.logprob))}
                for token, known in entries
            ],
            "text_offset": [self._pass(token) for token, _ in entries],
        }

    def _of_chat(self, entries: Sequence[Entry]) -> dict[str, Any]:
        content = [
            {**self._token(token, known.logprob), "top_logprobs": [self._token(*each) for each in known.top]}
            for token, known in entries
            if known is not None
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self._texts.text_of(token),
            "logprob": finite(logprob),
            "bytes": list(self._texts.bytes_of(token)),
        }

    def _pass(self, token: int) -> int:
        """Return the characters of the text before a token, which ends up behind them."""
        offset = self._offset
        if not self._texts.is_special(token):
            self._offset += len(self._decoder.decode(self._texts.bytes_of(token)))
        return offset


def finite(logprob: float) -> float:
    return max(logprob, LOWEST)


def mean_logprob(logprobs: Iterable[TokenLogprobs]) -> float:
    """Return the mean log-probability of an output's tokens, by which `best_of` outputs are compared; 0 for none."""
    each = [finite(known.logprob) for known in logprobs]
    return sum(each) / len(each) if each else 0.0


@dataclass(frozen=True, slots=True)
class ReplyInfo:
    """What all answers to a request share."""

    model: str
    fingerprint: str
    prompt_tokens: int  # of all prompts, each counted once
    deadline: float  # seconds from arrival
    usage: bool = False  # a stream ends with the numbers of tokens
    continuous_usage: bool = False  # so does each of its chunks
    echo: bool = False  # the answer repeats the prompt
    choices: int = 1  # of each prompt that are answered
    best_of: int = 1  # of each prompt that are generated
    ignored: tuple[str, ...] = ()  # names of unknown fields
    id: str = field(default_factory=lambda: uuid4().hex)  # of the answer


@dataclass(slots=True, eq=False)
class Choice:
    """One choice, in OpenAI's sense: an output for one of the prompts. Choices are ordered by prompt."""

    index: int
    output: InFlightOutput
    forecast: Forecast
    echo: str
    prompt: str  # what the predictor read
    logprobs: LogprobsWriter | None = None  # where the answer has log-probabilities
    parser: CallParser | None = None  # where the answer may call tools
    calls: int = 0  # read so far
    numbers: Iterator[int] = field(default_factory=count)  # of the calls in a stream

    def take(self) -> list[str | ToolCall]:
        """Return the text since the last call, and the calls of tools in it."""
        finished, text = bool(self.output.finish), self.output.writer.take()  # in this order: then the text is complete
        if self.parser is None:
            return [text] if text else []
        parts = list(self.parser.put(text))
        if finished:
            parts += self.parser.end()
        self.calls += sum(isinstance(part, ToolCall) for part in parts)
        return parts

    @property
    def finish_reason(self) -> str:
        """Return how it ended, in OpenAI's words."""
        return "tool_calls" if self.calls and self.output.finish == "stop" else self.output.finish

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
            "ttft_seconds": _rounded(self.ttft),
            "tpot_seconds": _rounded(self.tpot),
            "on_time": self.on_time,
            "preemptions": output.preemptions,
            "recomputed_tokens": output.recomputed,
        }

    @property
    def typical(self) -> bool:
        """Whether its length is one that a predictor can learn from."""
        return self.output.first.sampling.usual_length and not self.output.silent

    @property
    def ttft(self) -> float:
        """Return the seconds from arrival to the first token; NaN before it."""
        return self.output.first_token_at - self.output.first.prompt.arrival

    @property
    def tpot(self) -> float:
        """Return the seconds a token behind the first one; NaN for fewer than two tokens."""
        more = len(self.output.tokens) - 1
        return (self.output.last_token_at - self.output.first_token_at) / more if more > 0 else nan

    @property
    def has_targets(self) -> bool:
        """Whether it has a deadline or a target."""
        prompt = self.output.first.prompt
        return min(prompt.deadline, prompt.ttft, prompt.tpot) < FOREVER

    @property
    def on_time(self) -> bool:
        """Whether it kept its deadline and its targets, those that it has."""
        prompt = self.output.first.prompt
        late = self.output.last_token_at > prompt.deadline or self.ttft > prompt.ttft or self.tpot > prompt.tpot
        return not late

    @property
    def predicted(self) -> int:
        """Return the median of the forecast length, in tokens."""
        return round(self.forecast.tokens[MEDIAN])


class Reply:
    """The choices of one request. `changed` is set whenever one of them has new text or has ended."""

    def __init__(self, info: ReplyInfo, cancel: Callable[[InFlightOutput], None]) -> None:
        self.info, self._cancel = info, cancel
        self.choices: Sequence[Choice] = ()
        self.observations: list[Observation | None] = []  # of each choice that has ended
        self.changed = asyncio.Event()

    def notify(self, _output: InFlightOutput) -> None:
        """Set `changed`. Every output calls this on progress."""
        self.changed.set()

    async def until_begun(self) -> None:
        """Return when a choice has text or has ended."""
        while not any(choice.output.finish or choice.output.writer.waiting for choice in self.choices):
            self.changed.clear()
            await self.changed.wait()

    async def until_over(self) -> None:
        """Return when all choices have ended, or one has failed."""
        while self.api_error() is None and not all(choice.output.finish for choice in self.choices):
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
    def answered(self) -> Sequence[Choice]:
        """Return the choices that a whole answer has: of each prompt those whose tokens have the highest mean
        log-probability, the highest first, or all that were generated.
        """
        if self.info.best_of == self.info.choices:
            return self.choices
        starts = range(0, len(self.choices), self.info.best_of)

        def rank(choice: Choice) -> float:
            return -mean_logprob(choice.output.logprobs)

        ranked = [sorted(self.choices[start : start + self.info.best_of], key=rank) for start in starts]
        return [choice for each in ranked for choice in each[: self.info.choices]]

    @property
    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens of prompts and outputs, those that are not answered included."""
        return _usage(self.info.prompt_tokens, self.choices)

    def usage_of(self, choice: Choice) -> dict[str, int]:
        """Return the numbers of tokens of one choice so far."""
        return _usage(choice.output.first.prompt.tokens, [choice])

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers that are known before the first token."""
        return self._headers(self.choices)

    @property
    def final_headers(self) -> Mapping[str, str]:
        """Return the headers of a whole answer."""
        outputs = [choice.output for choice in self.answered]
        return {
            **self._headers(self.answered),
            "x-pliant-actual-tokens": _joined(len(output.tokens) for output in outputs),
            "x-pliant-queue-seconds": f"{max(output.queued for output in outputs):.6f}",
            **_slowest("x-pliant-ttft-seconds", [choice.ttft for choice in self.answered]),
            **_slowest("x-pliant-tpot-seconds", [choice.tpot for choice in self.answered]),
            "x-pliant-preemptions": _joined(output.preemptions for output in outputs),
            "x-pliant-recomputed-tokens": _joined(output.recomputed for output in outputs),
        }

    def _headers(self, choices: Iterable[Choice]) -> Mapping[str, str]:
        predicted = _joined(choice.predicted for choice in choices)
        return {"x-pliant-predicted-tokens": predicted, **ignored_header(self.info.ignored)}


def _slowest(name: str, seconds: Sequence[float]) -> dict[str, str]:
    """Return a header with the most seconds of any choice, if it is known of one."""
    known = [each for each in seconds if not isnan(each)]
    return {name: f"{max(known):.6f}"} if known else {}


def _rounded(seconds: float) -> float | None:
    return None if isnan(seconds) else round(seconds, 6)


def _usage(prompt: int, choices: Iterable[Choice]) -> dict[str, int]:
    generated = sum(len(choice.output.tokens) for choice in choices)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _api_error_of(output: InFlightOutput, deadline: float) -> ApiError | None:
    match output.finish:
        case "late" | "full":
            return api_error_of_drop(Rejected(output.finish), deadline)
        case "failed":
            return ApiError(500, "engine_failed", output.fault or "the engine failed")
        case "cancelled":
            return ApiError(503, "worker_unavailable", output.fault or "the output was cancelled")
        case "grammar":
            return ApiError(
                400, "grammar_too_complex", "the form of the output became too complex to go on", "response_format"
            )
        case "slow":
            return ApiError(408, "slow_reader", "the client did not read the stream, so its output was cancelled")
    return None


def _joined(values: Any) -> str:
    return ",".join(map(str, values))
