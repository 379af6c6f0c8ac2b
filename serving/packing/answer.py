"""OpenAI's answers as plain values: whole ones and the pieces of a stream, of texts and of chats. Decides nothing.

`pliant` in each choice that has ended is our own: predicted and actual length, time in line, preemptions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from serving.packing.reply import Output, Reply


@dataclass(frozen=True, slots=True)
class Form:
    """Of one request: a text (/v1/completions) or a chat."""

    chat: bool
    id: str = field(default_factory=lambda: uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, reply: Reply) -> dict[str, Any]:
        choices = [self._whole_choice(reply, output) for output in reply.outputs]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(reply, kind), "choices": choices, "usage": reply.usage}

    def first(self, reply: Reply, output: Output) -> dict[str, Any] | None:
        """Before anything of the output is there; None: nothing."""
        if self.chat:
            return self._piece(reply, output, {"delta": {"role": "assistant", "content": ""}})
        return self.text(reply, output, output.echo) if reply.about.echo and output.echo else None

    def text(self, reply: Reply, output: Output, text: str) -> dict[str, Any]:
        return self._piece(reply, output, {"delta": {"content": text}} if self.chat else {"text": text})

    def last(self, reply: Reply, output: Output) -> dict[str, Any]:
        """With the reason for its end."""
        said: Mapping[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._piece(reply, output, {**said, "pliant": output.facts}, output.flight.finish)

    def usage(self, reply: Reply) -> dict[str, Any]:
        return {**self._head(reply, self._kind), "choices": [], "usage": reply.usage}

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, reply: Reply, kind: str) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": reply.about.model,
            "system_fingerprint": reply.about.fingerprint,
        }

    def _piece(
        self, reply: Reply, output: Output, said: Mapping[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        choice = {"index": output.index, **said, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if reply.about.usage else {}
        return {**self._head(reply, self._kind), "choices": [choice], **usage}

    def _whole_choice(self, reply: Reply, output: Output) -> dict[str, Any]:
        text = output.flight.writer.take()
        said = {"message": {"role": "assistant", "content": text, "refusal": None}}
        told: Mapping[str, Any] = said if self.chat else {"text": output.echo + text if reply.about.echo else text}
        end = {"logprobs": None, "finish_reason": output.flight.finish, "pliant": output.facts}
        return {"index": output.index, **told, **end}
