"""The requests and answers of the bins service, the same for all of its APIs, and the endpoint that its routes call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from pliant.serving.bins.messages import Output
from pliant.serving.bins.reading import Token
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http import routing
from pliant.serving.http.bodies import deadline, header_number

DEADLINE = "x-pliant-deadline"


@dataclass(frozen=True, slots=True)
class TokenIds:
    """A text as token ids of the encoder's own tokenizer. Special tokens are there only if the client put them there."""

    name: str  # in errors
    ids: tuple[int, ...]  # at least one, from 0 on


Input = tuple[str, str | None] | TokenIds
"""A text (its second is None), a pair of texts, or token ids."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Texts for one stream. Each is scheduled by itself; all get outputs, or the request fails."""

    task: str
    texts: Sequence[Input]
    deadline: float | None = None  # seconds from arrival; None: the stream's SLO
    truncate: bool = True  # or a text that is too long is an error
    left: bool = False  # truncate at the beginning
    client: Client = ANYBODY
    prompt_name: str | None = None  # of the encoder's prompt that is put before each single text
    unpooled: bool = False  # an embedding [N, H] for each token instead of one


@dataclass(frozen=True, slots=True)
class TokensRequest:
    """Texts whose tokens are wanted, for one stream."""

    task: str
    texts: Sequence[str]
    special: bool = True  # with the special tokens that the tokenizer adds
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One output per text, in order, and how they came about."""

    encoder: Encoder
    version: int  # of the stream
    outputs: Sequence[Output]
    lengths: Sequence[int]  # tokens of each text
    bins: Sequence[str]  # length x batch of the runtime that ran it, or "dynamic"
    queue_seconds: float  # the longest
    run_seconds: float  # the longest

    @property
    def headers(self) -> dict[str, str]:
        """Return the response headers that tell how the answer came about."""
        return {
            "x-pliant-length": ",".join(map(str, self.lengths)),
            "x-pliant-bin": ",".join(self.bins),
            "x-pliant-queue-seconds": f"{self.queue_seconds:.6f}",
            "x-pliant-run-seconds": f"{self.run_seconds:.6f}",
        }


class Encoder(Protocol):
    """An encoder, as far as requests and answers depend on it."""

    @property
    def head(self) -> str: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def pooling(self) -> str: ...
    @property
    def normalize(self) -> bool: ...
    @property
    def max_length(self) -> int: ...
    @property
    def prompts(self) -> Mapping[str, str]: ...


def is_reranker(encoder: Encoder) -> bool:
    """Whether the encoder gives one score for a pair of texts: it classifies, and has a single class."""
    return encoder.head == "classification" and len(encoder.classes) < 2


class Endpoint(routing.Endpoint, Protocol):
    """What the routes of bins call."""

    @property
    def ready(self) -> bool: ...
    def tasks(self) -> Sequence[str]: ...
    def select(self, name: object, field: str, head: str | None) -> str: ...
    @property
    def alive(self) -> bool: ...
    def describe(self, task: str) -> Encoder: ...
    def version(self, task: str) -> int: ...
    def status(self) -> dict[str, Any]: ...
    async def run(self, request: TextRequest, arrived: float) -> Answer: ...
    async def tokenize(self, request: TokensRequest) -> list[list[Token]]: ...
    async def decode(self, task: str, texts: Sequence[Sequence[int]], skip_special: bool) -> list[str]: ...


def read_deadline(request: Request, value: float | None, maximum: float) -> float | None:
    """Return the deadline in seconds from the body, or else from the header. Raises `InputError`."""
    if value is not None:
        return deadline(value, maximum)
    seconds = header_number(request.headers, DEADLINE)
    return None if seconds is None else deadline(seconds, maximum, DEADLINE)
