"""The requests of the cascade service, the same for all of its routes, and the endpoint that these call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.cascade.bodies import PredictBody, Targets
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http import routing
from pliant.serving.http.access.access import client_of
from pliant.serving.http.bodies import deadline
from pliant.serving.http.json_body import checked, shorten
from pliant.serving.http.routing import select
from pliant.serving.http.texts import Texts, cleaned


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One or more texts, or pairs of texts, of one task; the other fields apply to each of them."""

    task: str
    texts: Texts  # the second of each is None if the task takes single texts
    accuracy: float | None = None  # the least that the plan must promise, from 0 to 1
    latency: float | None = None  # at most, in seconds, of one request alone on the device
    deadline: float = 60.0  # seconds from arrival
    utility: float = 1.0
    candidate: str | None = None  # by name, instead of choosing it by accuracy and latency
    client: Client = ANYBODY
    cleaned: tuple[int, ...] = ()  # control characters of each text that became spaces


class Described(Protocol):
    """A task, as far as its requests depend on it."""

    @property
    def classes(self) -> tuple[str, ...]: ...  # none: a regression
    @property
    def pair(self) -> bool: ...
    @property
    def max_length(self) -> int: ...  # tokens
    @property
    def version(self) -> int: ...


class Endpoint(routing.Endpoint, Protocol):
    """What the routes of cascade call."""

    @property
    def ready(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    def tasks(self) -> Sequence[Mapping[str, Any]]: ...
    def describe(self, task: str) -> Described: ...
    def status(self) -> dict[str, Any]: ...
    async def predict(self, request: TextRequest, arrived: float) -> dict[str, Any]: ...
    def outcome(self, id: str, label: str | float, client: Client = ANYBODY) -> dict[str, Any]: ...
    def alarms(self) -> list[dict[str, Any]]: ...
    def take_back(self, id: str, client: Client) -> dict[str, Any]: ...


async def read_request(request: Request, endpoint: Endpoint) -> TextRequest:
    """Return the checked request. Raises `ApiError` or `InputError` if it is not valid."""
    body = await PredictBody.of(request, endpoint.settings)
    task, maximum = select_task(body.task, endpoint), endpoint.settings.max_deadline
    parts = body.parts(endpoint.settings.max_texts)
    check_pairs(
        "text" if body.texts is None else "texts", parts, task, endpoint.describe(task).pair, body.texts is None
    )
    texts, counts = await checked(request, _cleaned, parts)
    limit = maximum if body.deadline is None else deadline(body.deadline, maximum)
    return to_request(task, texts, body, limit, client_of(request), counts)


def to_request(
    task: str, texts: Texts, targets: Targets, deadline: float, client: Client, cleaned: tuple[int, ...] = ()
) -> TextRequest:
    """Return the request for texts. Raises `InputError` for a candidate beside targets."""
    targets.check_candidate()
    return TextRequest(
        task=task,
        texts=texts,
        accuracy=targets.accuracy,
        latency=targets.latency,
        deadline=deadline,
        utility=targets.utility,
        candidate=targets.candidate,
        client=client,
        cleaned=cleaned,
    )


def select_task(name: object, endpoint: Endpoint) -> str:
    """Return the task of this name, or the only one if it is None. Raises `InputError` and `ApiError` (404)."""
    return select(name, "task", [str(task["name"]) for task in endpoint.tasks()])


def check_pairs(
    name: str, texts: Sequence[tuple[str, str | None]], task: str, pair: bool, single: bool = False
) -> None:
    """Raise `InputError` unless all are single texts, or all are pairs. `single`: their field holds one of them."""
    for index, (_, second) in enumerate(texts):
        if (second is not None) != pair:
            place, takes = name if single else f"{name}[{index}]", f"as the task {shorten(task)} takes"
            if pair:
                raise InputError(place, "one text", f'a pair ["...", "..."], {takes} two texts')
            raise InputError(place, "a pair of texts", f"a single text, {takes} one")


def _cleaned(parts: Sequence[tuple[str, str | None]]) -> tuple[Texts, tuple[int, ...]]:
    """Return the texts with spaces for control characters, and how many these are in each."""
    texts, counts = [], []
    for first, second in parts:
        text, count = cleaned(first)
        other, more = (None, 0) if second is None else cleaned(second)
        texts.append((text, other))
        counts.append(count + more)
    return tuple(texts), tuple(counts)
