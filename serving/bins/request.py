"""The requests and answers of the bins service, the same for all of its APIs, and the endpoint that its routes call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from pliant.errors import InputError
from serving.bins.messages import Output
from serving.client import ANYBODY, Client
from serving.http import routing
from serving.http.json_body import deadline, shorten
from serving.http.texts import Texts

DEADLINE = "x-pliant-deadline"


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Texts for one stream. Each is scheduled by itself; all get outputs, or the request fails."""

    task: str
    texts: Texts
    deadline: float | None = None  # seconds from arrival; None: the stream's SLO
    truncate: bool = True  # or a text that is too long is an error
    left: bool = False  # truncate at the beginning
    client: Client = ANYBODY


@dataclass(frozen=True, slots=True)
class Answer:
    """One output per text, in order, and how they came about."""

    encoder: Encoder
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


class Endpoint(routing.Endpoint, Protocol):
    """What the routes of bins call."""

    @property
    def ready(self) -> bool: ...
    def tasks(self) -> Sequence[str]: ...
    def select(self, name: object, field: str, head: str | None) -> str: ...
    def describe(self, task: str) -> Encoder: ...
    def status(self) -> dict[str, Any]: ...
    async def run(self, request: TextRequest, arrived: float) -> Answer: ...


def read_deadline(request: Request, fields: Mapping[str, Any], maximum: float) -> float | None:
    """Return the deadline in seconds from the body's field, or else from the header. Raises `InputError`."""
    value = fields.get("deadline")
    if value is not None:
        return deadline(value, maximum)
    header = request.headers.get(DEADLINE)
    if header is None:
        return None
    try:
        return deadline(float(header), maximum, DEADLINE)
    except ValueError:
        raise InputError(DEADLINE, shorten(header), "a number of seconds") from None
