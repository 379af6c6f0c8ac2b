"""The requests of the packing service, the same for all of its routes, and the endpoint that these call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.packing.chat import Message
from pliant.packing.engine.submission import Sampling
from serving.client import ANYBODY, Client
from serving.http import routing
from serving.packing.reply import Reply


@dataclass(frozen=True, slots=True)
class PromptInput:
    """A prompt: a text, token ids or a conversation. `name` is its field in errors."""

    name: str
    text: str = ""
    ids: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A checked request: prompts for one model, each of which is continued `choices` times."""

    model: str | None  # None: the only one
    prompts: tuple[PromptInput, ...]
    choices: int
    max_tokens: int | None  # of each output; None: as many as the context leaves
    max_tokens_name: str  # its field in errors
    sampling: Sampling  # the seed is that of the first choice
    stops: tuple[str, ...]
    stream: bool
    usage: bool  # a stream ends with the numbers of tokens
    echo: bool  # the answer repeats the prompt
    deadline: float | None  # seconds from arrival; None: none
    utility: float  # of an output in time
    offline: bool  # one of a batch of requests that is needed as a whole
    client: Client = ANYBODY


class Endpoint(routing.Endpoint, Protocol):
    """What the routes of packing call."""

    def models(self) -> Mapping[str, int]: ...
    async def open(self, request: GenerationRequest, arrived: float) -> Reply: ...
    async def status(self) -> dict[str, Any]: ...
