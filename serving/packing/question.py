"""What is asked of the packing service, whichever of OpenAI's addresses it came by, and what its routes ask of the endpoint.

Plain values and protocols; knows no HTTP and no models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.packing.chat import Message
from pliant.packing.engine.submission import Sampling
from serving.http import questions
from serving.packing.reply import Reply


@dataclass(frozen=True, slots=True)
class Given:
    """One prompt: a text, token ids or a conversation. `name` is what errors call it."""

    name: str
    text: str = ""
    ids: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """Prompts for one model; each is continued `choices` times."""

    model: str | None  # None: the only one
    prompts: tuple[Given, ...]
    choices: int
    most: int | None  # new tokens; None: as many as the context leaves
    most_name: str  # what errors call it
    sampling: Sampling  # of the first choice
    stops: tuple[str, ...]
    stream: bool
    usage: bool  # at the end of a stream, too
    echo: bool
    deadline: float | None  # seconds from arrival; None: none
    utility: float
    offline: bool


class Endpoint(questions.Endpoint, Protocol):
    """What the routes ask of the service."""

    def models(self) -> Mapping[str, int]: ...
    async def open(self, question: Question, arrived: float) -> Reply: ...
    async def status(self) -> dict[str, Any]: ...
