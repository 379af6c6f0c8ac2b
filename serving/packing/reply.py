"""One request's choices while they are generated, and how they are answered in OpenAI's shapes, whole or as a stream.

The field `pliant` in each finished choice is our own: predicted and actual length, queueing time, preemptions.
Log-probabilities are written in the two shapes of OpenAI's API. There may be a hundred thousand numbers in an answer: they
are written in pieces of a few milliseconds, of one answer at a time, between which the event loop serves everybody else.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice
from math import isnan, nan
from typing import Any
from uuid import uuid4

from pliant.packing.chat import CallParser, ToolCall
from pliant.packing.engine.submission import TokenLogprobs, piece_tokens
from pliant.packing.scheduling.forecast import MEDIAN, Forecast
from pliant.packing.scheduling.request import FOREVER
from pliant.serving.driver import Rejected
from pliant.serving.http.api_errors import ApiError, api_error_of_drop
from pliant.serving.http.bodies import ignored_header
from pliant.serving.loop.observe import Observation
from pliant.serving.packing.engine.engine import InFlightOutput
from pliant.serving.packing.request import GenerationRequest
from pliant.serving.packing.text import TokenTexts

LOWEST = -9999.0  # instead of minus infinity, which JSON cannot hold; vLLM writes the same

Entry = tuple[int, TokenLogprobs | None]
"""A token with its log-probabilities; None for the first of a prompt, which nothing comes before."""


class LogprobsWriter:
    """The log-probabilities of one choice, in parts as they become known. `prompt`: tokens that are repeated first."""

    def __init__(self, texts: TokenTexts, output: InFlightOutput, prompt: Sequence[int], chat: bool) -> None:
        self._texts, self._output, self._chat, self.turn = texts, output, chat, texts.turn
        self._prompt = self._of_prompt(prompt)
        self._size = piece_tokens(output.first.sampling.logprobs)
        self._written = 0  # of the output's tokens
        self._offset = 0  # characters before the next token
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

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
        texts = self._texts
        if self._chat:

            def shown(token: int, logprob: float) -> dict[str, Any]:
                own = list(texts.bytes_of(token))
                return {"token": texts.text_of(token), "logprob": finite(logprob), "bytes": own}

            known = [(token, logprobs) for token, logprobs in entries if logprobs is not None]
            content = [
                {**shown(token, each.logprob), "top_logprobs": [shown(*top) for top in each.top]}
                for token, each in known
            ]
            return {"content": content, "refusal": None}
        offsets = []
        for token, _ in entries:
            offsets.append(self._offset)
            if not texts.is_special(token):
                self._offset += len(self._decoder.decode(texts.bytes_of(token)))
        return {
            "tokens": [texts.text_of(token) for token, _ in entries],
            "token_logprobs": [known and finite(known.logprob) for _, known in entries],
            "top_logprobs": [
                known and {texts.text_of(id): finite(logprob) for id, logprob in (*known.top, (token, known.logprob))}
                for token, known in entries
            ],
            "text_offset": offsets,
        }


def finite(logprob: float) -> float:
    return max(logprob, LOWEST)


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
    """The choices of one request to `model`. `changed` is set whenever one of them has new text or has ended.

    `prompt_tokens`: of all prompts, each counted once.
    """

    def __init__(
        self,
        request: GenerationRequest,
        model: str,
        fingerprint: str,
        prompt_tokens: int,
        cancel: Callable[[InFlightOutput], None],
    ) -> None:
        self.request, self.id, self._cancel = request, uuid4().hex, cancel
        self.choices: Sequence[Choice] = ()
        self.observations: list[Observation | None] = []  # of each choice that has ended
        self.changed = asyncio.Event()
        self._prompt_tokens = prompt_tokens
        self._head = {
            "id": f"{'chatcmpl' if request.chat else 'cmpl'}-{self.id}",
            "object": "chat.completion.chunk" if request.chat else "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": fingerprint,
        }

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
        for output in (choice.output for choice in self.choices):
            match output.finish:
                case "late" | "full":
                    return api_error_of_drop(Rejected(output.finish), self.request.deadline or FOREVER)
                case "failed":
                    return ApiError(500, "engine_failed", output.fault or "the engine failed")
                case "cancelled":
                    return ApiError(503, "worker_unavailable", output.fault or "the output was cancelled")
                case "grammar":
                    message = "the form of the output became too complex to go on"
                    return ApiError(400, "grammar_too_complex", message, "response_format")
                case "slow":
                    message = "the client did not read the stream, so its output was cancelled"
                    return ApiError(408, "slow_reader", message)
        return None

    @property
    def answered(self) -> Sequence[Choice]:
        """Return the choices that a whole answer has: of each prompt those whose tokens have the highest mean
        log-probability, the highest first, or all that were generated.
        """
        most, best_of = self.request.choices, self.request.best_of
        if best_of == most:
            return self.choices

        def rank(choice: Choice) -> float:
            each = [finite(known.logprob) for known in choice.output.logprobs]
            return -sum(each) / len(each) if each else 0.0

        starts = range(0, len(self.choices), best_of)
        return [each for start in starts for each in sorted(self.choices[start : start + best_of], key=rank)[:most]]

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers that are known before the first token."""
        return self._headers(self.choices)

    @property
    def final_headers(self) -> Mapping[str, str]:
        """Return the headers of a whole answer; of seconds the most of any choice, where they are known of one."""
        answered = self.answered
        outputs = [choice.output for choice in answered]
        seconds = {
            "x-pliant-ttft-seconds": [choice.ttft for choice in answered if not isnan(choice.ttft)],
            "x-pliant-tpot-seconds": [choice.tpot for choice in answered if not isnan(choice.tpot)],
        }
        return {
            **self._headers(answered),
            "x-pliant-actual-tokens": _joined(len(output.tokens) for output in outputs),
            "x-pliant-queue-seconds": f"{max(output.queued for output in outputs):.6f}",
            **{name: f"{max(known):.6f}" for name, known in seconds.items() if known},
            "x-pliant-preemptions": _joined(output.preemptions for output in outputs),
            "x-pliant-recomputed-tokens": _joined(output.recomputed for output in outputs),
        }

    def _headers(self, choices: Iterable[Choice]) -> Mapping[str, str]:
        predicted = _joined(choice.predicted for choice in choices)
        return {"x-pliant-predicted-tokens": predicted, **ignored_header(self.request.ignored)}

    def whole(self) -> dict[str, Any]:
        """Return the whole answer, without log-probabilities. A message without a text beside its calls has none."""
        choices: list[dict[str, Any]] = []
        for index, choice in enumerate(self.answered):
            parts = choice.take()
            text = "".join([part for part in parts if isinstance(part, str)])
            calls = [_call(part) for part in parts if isinstance(part, ToolCall)]
            message = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
            shown = {"message": {**message, "tool_calls": calls} if calls else message}
            fields = shown if self.request.chat else {"text": choice.echo + text if self.request.echo else text}
            end = {"logprobs": None, "finish_reason": choice.finish_reason, "pliant": choice.details}
            choices.append({"index": index, **fields, **end})
        kind = "chat.completion" if self.request.chat else "text_completion"
        usage = _usage(self._prompt_tokens, self.choices)  # those that are not answered included
        return {**self._head, "object": kind, "choices": choices, "usage": usage}

    async def written(self) -> bytes:
        """Return the whole answer as JSON, with log-probabilities, while the event loop serves others."""
        content, mark = self.whole(), uuid4().hex
        texts = []
        for choice, shown in zip(self.answered, content["choices"], strict=True):
            if choice.logprobs is not None:
                shown["logprobs"] = mark
                async with choice.logprobs.turn:
                    texts.append(await choice.logprobs.written())
        head, *rest = json.dumps(content).split(f'"{mark}"')
        return "".join([head, *chain(*zip(texts, rest, strict=True))]).encode()

    def first(self, choice: Choice) -> dict[str, Any] | None:
        """Return the chunk that begins a choice, before its first token; None if there is none."""
        if self.request.chat:
            return self._chunk(choice, {"delta": {"role": "assistant", "content": ""}, "logprobs": None})
        if not (self.request.echo and choice.echo):
            return None
        return self._chunk(choice, {"text": choice.echo, "logprobs": choice.logprobs and choice.logprobs.take_prompt()})

    def more(self, choice: Choice) -> dict[str, Any] | None:
        """Return a chunk with more log-probabilities of the prompt, after the first chunk; None if there are no more."""
        logprobs = choice.logprobs and choice.logprobs.take_prompt()
        return self._chunk(choice, {"text": "", "logprobs": logprobs}) if logprobs else None

    def part(self, choice: Choice, part: str | ToolCall) -> dict[str, Any]:
        """Return a chunk with the next part of a choice's text or with a call, and with its log-probabilities."""
        if isinstance(part, ToolCall):
            return self._chunk(choice, {"delta": {"tool_calls": [{"index": next(choice.numbers), **_call(part)}]}})
        return self._chunk(choice, {"delta": {"content": part}} if self.request.chat else {"text": part})

    def last(self, choice: Choice) -> dict[str, Any]:
        """Return the chunk that ends a choice, with its finish reason."""
        empty: Mapping[str, Any] = {"delta": {}} if self.request.chat else {"text": ""}
        return self._chunk(choice, {**empty, "pliant": choice.details}, choice.finish_reason)

    def usage(self) -> dict[str, Any]:
        """Return the last chunk of a stream, with the numbers of tokens."""
        return {**self._head, "choices": [], "usage": _usage(self._prompt_tokens, self.choices)}

    def _chunk(self, choice: Choice, fields: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        logprobs = {} if "logprobs" in fields else {"logprobs": choice.logprobs and choice.logprobs.take()}
        content = {"index": choice.index, **fields, **logprobs, "finish_reason": finish}
        usage: Mapping[str, Any] = {"usage": None} if self.request.usage else {}
        if self.request.continuous_usage:
            usage = {"usage": _usage(choice.output.first.prompt.tokens, [choice])}
        return {**self._head, "choices": [content], **usage}


def _rounded(seconds: float) -> float | None:
    return None if isnan(seconds) else round(seconds, 6)


def _usage(prompt: int, choices: Iterable[Choice]) -> dict[str, int]:
    generated = sum(len(choice.output.tokens) for choice in choices)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}


def _joined(values: Any) -> str:
    return ",".join(map(str, values))
