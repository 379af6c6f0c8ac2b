"""From a request's body to a checked question about texts. Knows fields and their limits; no models.

What is a text says serving/http/texts.py; the answer says how many of its characters were cleaned. Texts with more tokens
than a model reads are no matter of this file: they are cut, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from pliant.errors import InputError
from serving.http import questions
from serving.http.json_body import check_names, deadline, number, shorten, utility
from serving.http.questions import read_fields, which
from serving.http.texts import Given, Texts, check_count, clean

FIELDS = ("task", "text", "text_pair", "texts", "accuracy", "latency", "candidate", "deadline", "utility")


@dataclass(frozen=True, slots=True)
class Question:
    """About one or more texts, or pairs of texts; what is asked for holds for each of them."""

    task: str
    texts: Texts  # the second of each is None where the task takes single texts
    accuracy: float | None = None  # at least, as planned: a share from 0 to 1
    latency: float | None = None  # at most, of one request alone on the device: seconds
    deadline: float = 60.0  # seconds
    utility: float = 1.0
    candidate: str | None = None  # by name, in place of what accuracy and latency would choose
    cleaned: tuple[int, ...] = ()  # control characters of each of the texts that became spaces


class Described(Protocol):
    """A task as far as its questions depend on it."""

    @property
    def classes(self) -> tuple[str, ...]: ...  # none: a regression
    @property
    def pair(self) -> bool: ...
    @property
    def max_length(self) -> int: ...  # tokens


class Endpoint(questions.Endpoint, Protocol):
    """What the routes ask of the service."""

    def tasks(self) -> Sequence[Mapping[str, Any]]: ...
    def describe(self, task: str) -> Described: ...
    def status(self) -> dict[str, Any]: ...
    async def predict(self, question: Question, arrived: float) -> dict[str, Any]: ...
    def outcome(self, id: str, label: str | float) -> dict[str, Any]: ...


async def read_question(request: Request, endpoint: Endpoint) -> Question:
    """Raises `ApiError` or `InputError` for anything but a whole, valid question."""
    fields = await read_fields(request, endpoint.settings)
    check_names(fields, FIELDS, ())
    task = which_task(fields.get("task"), endpoint)
    given = _given(fields, endpoint.settings.max_texts)
    texts, cleaned = read_texts(given, task, endpoint.describe(task).pair)
    return Question(task, texts, cleaned=cleaned, **_wishes(fields, endpoint.settings.max_deadline))


def which_task(name: object, endpoint: Endpoint) -> str:
    """The one that is named, or the only one. Raises `ApiError` (404) for one that is not served."""
    return which(name, "task", [str(task["name"]) for task in endpoint.tasks()])


def read_texts(given: Sequence[Given], task: str, pair: bool) -> tuple[Texts, tuple[int, ...]]:
    """Texts, and how many characters of each were cleaned. Raises `InputError`, or `ApiError` (413) for a long text."""
    texts, cleaned = [], []
    for one in given:
        if (len(one.parts) == 2) != pair:
            raise _wrong_number(one.name, task, pair)
        parts, counts = zip(*map(clean, one.names, one.parts), strict=True)
        texts.append((parts[0], parts[1] if pair else None))
        cleaned.append(sum(counts))
    return tuple(texts), tuple(cleaned)


def as_given(name: str, value: object) -> Given:
    """A text, a pair in a list, or an object with text and text_pair."""
    match value:
        case str():
            return Given(name, (name,), (value,))
        case [first, second]:
            return Given(name, (f"{name}[0]", f"{name}[1]"), (first, second))
        case dict():
            check_names(value, ("text", "text_pair"), ("text",))
            parts = (value["text"],) if value.get("text_pair") is None else (value["text"], value["text_pair"])
            return Given(name, (f"{name}.text", f"{name}.text_pair")[: len(parts)], parts)
    raise InputError(name, shorten(value), 'a text, a pair ["...", "..."], or an object with text and text_pair')


def _given(fields: Mapping[str, Any], most: int) -> list[Given]:
    if "texts" not in fields:
        return [_one(fields)]
    for other in ("text", "text_pair"):
        if other in fields:
            raise InputError("texts", f"given together with {other}", "given without it")
    texts = fields["texts"]
    if not isinstance(texts, list):
        raise InputError("texts", shorten(texts), "a list of texts or pairs")
    check_count("texts", texts, most)
    return [as_given(f"texts[{index}]", value) for index, value in enumerate(texts)]


def _one(fields: Mapping[str, Any]) -> Given:
    if "text" not in fields:
        raise InputError("text", "missing", "given, or texts as a list")
    if fields.get("text_pair") is None:
        return as_given("text", fields["text"])
    return Given("text", ("text", "text_pair"), (fields["text"], fields["text_pair"]))


def _wrong_number(name: str, task: str, pair: bool) -> InputError:
    if pair:
        return InputError(name, "one text", f'a pair ["...", "..."], as the task {shorten(task)} takes two texts')
    return InputError(name, "a pair of texts", f"a single text, as the task {shorten(task)} takes one")


def _wishes(fields: Mapping[str, Any], most_deadline: float) -> dict[str, Any]:
    accuracy, latency = _accuracy(fields.get("accuracy")), _latency(fields.get("latency"))
    return {
        "accuracy": accuracy,
        "latency": latency,
        "candidate": _candidate(fields.get("candidate"), accuracy is None and latency is None),
        "deadline": deadline(fields.get("deadline", most_deadline), most_deadline),
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
