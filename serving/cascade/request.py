"""Reads and checks the body of /predict, and declares the endpoint that the routes of cascade call.

serving/http/texts.py checks the texts; the answer says how many characters were cleaned. A text with more tokens than a
model reads is truncated later, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from pliant.errors import InputError
from serving.client import ANYBODY, Client
from serving.http import routing
from serving.http.access.roles import client_of
from serving.http.json_body import check_names, deadline, number, shorten, utility
from serving.http.large_body import checked
from serving.http.routing import read_fields, select
from serving.http.texts import RawText, Texts, check_count, clean

FIELDS = ("task", "text", "text_pair", "texts", "accuracy", "latency", "candidate", "deadline", "utility")


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
    fields = await read_fields(request, endpoint.settings)
    check_names(fields, FIELDS, ())
    task = select_task(fields.get("task"), endpoint)
    raw_texts = _raw_texts(fields, endpoint.settings.max_texts)
    texts, cleaned = await checked(request, read_texts, raw_texts, task, endpoint.describe(task).pair)
    options = read_options(fields, endpoint.settings.max_deadline)
    return TextRequest(task, texts, client=client_of(request), cleaned=cleaned, **options)


def select_task(name: object, endpoint: Endpoint) -> str:
    """Return the task of this name, or the only one if it is None. Raises `InputError` and `ApiError` (404)."""
    return select(name, "task", [str(task["name"]) for task in endpoint.tasks()])


def read_texts(raw_texts: Sequence[RawText], task: str, pair: bool) -> tuple[Texts, tuple[int, ...]]:
    """Return the texts, and how many characters of each were cleaned.

    Raises `InputError`, and `ApiError` (413) for a text that is too long.
    """
    texts, cleaned = [], []
    for raw in raw_texts:
        if (len(raw.parts) == 2) != pair:
            raise _wrong_number(raw.name, task, pair)
        parts, counts = zip(*map(clean, raw.part_names, raw.parts), strict=True)
        texts.append((parts[0], parts[1] if pair else None))
        cleaned.append(sum(counts))
    return tuple(texts), tuple(cleaned)


def to_raw_text(name: str, value: object) -> RawText:
    """Return a text, a pair in a list, or an object with text and text_pair. Raises `InputError`."""
    match value:
        case str():
            return RawText(name, (name,), (value,))
        case [first, second]:
            return RawText(name, (f"{name}[0]", f"{name}[1]"), (first, second))
        case dict():
            check_names(value, ("text", "text_pair"), ("text",))
            parts = (value["text"],) if value.get("text_pair") is None else (value["text"], value["text_pair"])
            return RawText(name, (f"{name}.text", f"{name}.text_pair")[: len(parts)], parts)
    raise InputError(name, shorten(value), 'a text, a pair ["...", "..."], or an object with text and text_pair')


def _raw_texts(fields: Mapping[str, Any], max_texts: int) -> list[RawText]:
    if "texts" not in fields:
        return [_single(fields)]
    for other in ("text", "text_pair"):
        if other in fields:
            raise InputError("texts", f"given together with {other}", "given without it")
    texts = fields["texts"]
    if not isinstance(texts, list):
        raise InputError("texts", shorten(texts), "a list of texts or pairs")
    check_count("texts", texts, max_texts)
    return [to_raw_text(f"texts[{index}]", value) for index, value in enumerate(texts)]


def _single(fields: Mapping[str, Any]) -> RawText:
    if "text" not in fields:
        raise InputError("text", "missing", "given, or texts as a list")
    if fields.get("text_pair") is None:
        return to_raw_text("text", fields["text"])
    return RawText("text", ("text", "text_pair"), (fields["text"], fields["text_pair"]))


def _wrong_number(name: str, task: str, pair: bool) -> InputError:
    if pair:
        return InputError(name, "one text", f'a pair ["...", "..."], as the task {shorten(task)} takes two texts')
    return InputError(name, "a pair of texts", f"a single text, as the task {shorten(task)} takes one")


def read_options(fields: Mapping[str, Any], max_deadline: float) -> dict[str, Any]:
    """Return the fields of a `TextRequest` that apply to each of its texts. Raises `InputError` for one that is invalid."""
    accuracy, latency = _accuracy(fields.get("accuracy")), _latency(fields.get("latency"))
    return {
        "accuracy": accuracy,
        "latency": latency,
        "candidate": _candidate(fields.get("candidate"), accuracy is None and latency is None),
        "deadline": deadline(fields.get("deadline", max_deadline), max_deadline),
        "utility": utility(fields.get("utility", 1.0)),
    }


def _accuracy(value: object) -> float | None:
    if value is None:
        return None
    share = number("accuracy", value)
    if not 0 <= share <= 1:
        raise InputError("accuracy", f"{share:g}", "a share from 0 to 1")
    return share


def _candidate(value: object, alone: bool) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError("candidate", shorten(value), "a candidate's name, as /v1/tasks lists them")
    if not alone:
        raise InputError("candidate", "given together with accuracy or latency", "given without them")
    return value


def _latency(value: object) -> float | None:
    if value is None:
        return None
    seconds = number("latency", value)
    if not 0 < seconds < float("inf"):
        raise InputError("latency", f"{seconds:g}", "more than 0 seconds, and finite")
    return seconds
