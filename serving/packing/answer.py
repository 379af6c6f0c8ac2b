"""Writes answers in OpenAI's shape as JSON values: whole answers and chunks of a stream, of completions and chats.

The field `pliant` in each finished choice is our own: predicted and actual length, queueing time, preemptions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from uuid import uuid4

from pliant.packing.tools import ToolCall
from pliant.serving.packing.reply import Choice, Reply


@dataclass(frozen=True, slots=True)
class Form:
    """The shape of one request's answers: of /v1/completions, or of /v1/chat/completions (`chat`)."""

    chat: bool
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, reply: Reply) -> dict[str, Any]:
        """Return the whole answer, without log-probabilities."""
        choices = [self._whole_choice(reply, choice, index) for index, choice in enumerate(reply.answered)]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(reply, kind), "choices": choices, "usage": reply.usage}

    async def written(self, reply: Reply) -> bytes:
        """Return the whole answer as JSON, with log-probabilities, while the event loop serves others."""
        content, mark = self.whole(reply), uuid4().hex
        texts = []
        for choice, shown in zip(reply.answered, content["choices"], strict=True):
            if choice.logprobs is not None:
                shown["logprobs"] = mark
                async with choice.logprobs.turn:
                    texts.append(await choice.logprobs.written())
        head, *rest = json.dumps(content).split(f'"{mark}"')
        return "".join([head, *chain(*zip(texts, rest, strict=True))]).encode()

    def more(self, reply: Reply, choice: Choice) -> dict[str, Any] | None:
        """Return a chunk with more log-probabilities of the prompt, after the first chunk; None if there are no more."""
        logprobs = choice.logprobs and choice.logprobs.take_prompt()
        return self._chunk(reply, choice, {"text": "", "logprobs": logprobs}) if logprobs else None

    def first(self, reply: Reply, choice: Choice) -> dict[str, Any] | None:
        """Return the chunk that begins a choice, before its first token; None if there is none."""
        if self.chat:
            return self._chunk(reply, choice, {"delta": {"role": "assistant", "content": ""}, "logprobs": None})
        if not (reply.info.echo and choice.echo):
            return None
        logprobs = choice.logprobs and choice.logprobs.take_prompt()
        return self._chunk(reply, choice, {"text": choice.echo, "logprobs": logprobs})

    def part(self, reply: Reply, choice: Choice, part: str | ToolCall) -> dict[str, Any]:
        """Return a chunk with the next part of a choice's text or with a call, and with its log-probabilities."""
        if isinstance(part, ToolCall):
            index = next(choice.numbers)
            return self._chunk(reply, choice, {"delta": {"tool_calls": [{"index": index, **_call(part)}]}})
        return self._chunk(reply, choice, {"delta": {"content": part}} if self.chat else {"text": part})

    def last(self, reply: Reply, choice: Choice) -> dict[str, Any]:
        """Return the chunk that ends a choice, with its finish reason."""
        empty: Mapping[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk(reply, choice, {**empty, "pliant": choice.details}, choice.finish_reason)

    def usage(self, reply: Reply) -> dict[str, Any]:
        """Return the last chunk of a stream, with the numbers of tokens."""
        return {**self._head(reply, self._kind), "choices": [], "usage": reply.usage}

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, reply: Reply, kind: str) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{reply.info.id}",
            "object": kind,
            "created": self.created,
            "model": reply.info.model,
            "system_fingerprint": reply.info.fingerprint,
        }

    def _chunk(
        self, reply: Reply, choice: Choice, fields: Mapping[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        logprobs = {} if "logprobs" in fields else {"logprobs": choice.logprobs and choice.logprobs.take()}
        content = {"index": choice.index, **fields, **logprobs, "finish_reason": finish}
        usage: Mapping[str, Any] = {"usage": None} if reply.info.usage else {}
        if reply.info.continuous_usage:
            usage = {"usage": reply.usage_of(choice)}
        return {**self._head(reply, self._kind), "choices": [content], **usage}

    def _whole_choice(self, reply: Reply, choice: Choice, index: int) -> dict[str, Any]:
        parts = choice.take()
        text = "".join([part for part in parts if isinstance(part, str)])
        message = {"message": _message(text, [part for part in parts if isinstance(part, ToolCall)])}
        fields: Mapping[str, Any] = message if self.chat else {"text": choice.echo + text if reply.info.echo else text}
        end = {"logprobs": None, "finish_reason": choice.finish_reason, "pliant": choice.details}
        return {"index": index, **fields, **end}


def _message(text: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    """Return the assistant's message. Without a text beside its calls it has none."""
    message = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    return {**message, "tool_calls": list(map(_call, calls))} if calls else message


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}
