"""What is asked of the bins service, whichever API it came by, and what its routes ask of the endpoint.

Knows fields and headers that the APIs share; knows no models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from pliant.errors import InputError
from serving.bins.messages import Output
from serving.http import questions
from serving.http.json_body import deadline, shorten
from serving.http.texts import Texts

DEADLINE = "x-pliant-deadline"


@dataclass(frozen=True, slots=True)
class Question:
    """Texts for one stream; each is a request of its own, and they are answered as a whole."""

    task: str
    texts: Texts
    deadline: float | None = None  # seconds from arrival; None: the stream's SLO
    truncate: bool = True  # or a text with more tokens than are read is refused
    left: bool = False  # cut at the beginning


@dataclass(frozen=True, slots=True)
class Answer:
    """One output a text, in the question's order, and how they came about."""

    encoder: Encoder
    outputs: Sequence[Output]
    lengths: Sequence[int]  # tokens
    bins: Sequence[str]  # length x batch of the runtime that ran it, or "dynamic"
    queue_seconds: float  # longest of them
    run_seconds: float

    @property
    def headers(self) -> dict[str, str]:
        return {
            "x-pliant-length": ",".join(map(str, self.lengths)),
            "x-pliant-bin": ",".join(self.bins),
            "x-pliant-queue-seconds": f"{self.queue_seconds:.6f}",
            "x-pliant-run-seconds": f"{self.run_seconds:.6f}",
        }


class Encoder(Protocol):
    """As far as questions and answers depend on it."""

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


class Endpoint(questions.Endpoint, Protocol):
    """What the routes ask of the service."""

    @property
    def ready(self) -> bool: ...
    def tasks(self) -> Sequence[str]: ...
    def which(self, name: object, field: str, head: str | None) -> str: ...
    def describe(self, task: str) -> Encoder: ...
    def status(self) -> dict[str, Any]: ...
    async def run(self, question: Question, arrived: float) -> Answer: ...


def read_deadline(request: Request, fields: Mapping[str, Any], most: float) -> float | None:
    """Of the body's field, or else of the header. Raises `InputError`."""
    told = fields.get("deadline")
    if told is not None:
        return deadline(told, most)
    header = request.headers.get(DEADLINE)
    if header is None:
        return None
    try:
        return deadline(float(header), most, DEADLINE)
    except ValueError:
        raise InputError(DEADLINE, shorten(header), "a number of seconds") from None
