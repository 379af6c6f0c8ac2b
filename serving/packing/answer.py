"""Writes answers in OpenAI's shape as JSON values: whole answers and chunks of a stream, of completions and chats.

The field `pliant` in each finished choice is our own: predicted and actual length, queueing time, preemptions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from serving.packing.reply import Choice, Reply


@dataclass(frozen=True, slots=True)
class Form:
    """The shape of one request's answers: of /v1/completions, or of /v1/chat/completions (`chat`)."""

    chat: bool
    id: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, reply: Reply) -> dict[str, Any]:
        """Return the whole answer."""
        choices = [self._whole_choice(reply, choice) for choice in reply.choices]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(reply, kind), "choices": choices, "usage": reply.usage}

    def first(self, reply: Reply, choice: Choice) -> dict[str, Any] | None:
        """Return the chunk that begins a choice, before its first token; None if there is none."""
        if self.chat:
            return self._chunk(reply, choice, {"delta": {"role": "assistant", "content": ""}})
        return self.text(reply, choice, choice.echo) if reply.info.echo and choice.echo else None

    def text(self, reply: Reply, choice: Choice, text: str) -> dict[str, Any]:
        """Return a chunk with the next part of a choice's text."""
        return self._chunk(reply, choice, {"delta": {"content": text}} if self.chat else {"text": text})

    def last(self, reply: Reply, choice: Choice) -> dict[str, Any]:
        """Return the chunk that ends a choice, with its finish reason."""
        empty: Mapping[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk(reply, choice, {**empty, "pliant": choice.details}, choice.output.finish)

    def usage(self, reply: Reply) -> dict[str, Any]:
        """Return the last chunk of a stream, with the numbers of tokens."""
        return {**self._head(reply, self._kind), "choices": [], "usage": reply.usage}

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, reply: Reply, kind: str) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": reply.info.model,
            "system_fingerprint": reply.info.fingerprint,
        }

    def _chunk(
        self, reply: Reply, choice: Choice, fields: Mapping[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        content = {"index": choice.index, **fields, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if reply.info.usage else {}
        return {**self._head(reply, self._kind), "choices": [content], **usage}

    def _whole_choice(self, reply: Reply, choice: Choice) -> dict[str, Any]:
        text = choice.output.writer.take()
        message = {"message": {"role": "assistant", "content": text, "refusal": None}}
        fields: Mapping[str, Any] = message if self.chat else {"text": choice.echo + text if reply.info.echo else text}
        end = {"logprobs": None, "finish_reason": choice.output.finish, "pliant": choice.details}
        return {"index": choice.index, **fields, **end}
