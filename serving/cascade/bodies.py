"""The bodies of requests and answers of the cascade service, as models that parse and document them.

Its texts are checked by serving/http/bodies.py; the answer says how many of their characters were cleaned. A text with more
tokens than a model reads is truncated later, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, Field, Tag
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.access.access import client_of
from pliant.serving.http.app import AnyEndpoint, select
from pliant.serving.http.bodies import (
    BY_TYPE,
    Body,
    Closed,
    Texts,
    Utility,
    VisibleText,
    check_count,
    checked,
    cleaned,
    deadline,
    shorten,
)
from pliant.serving.http.oip.models import Parameters
from pliant.serving.http.schemas import CommonStatus, Error, ServingDevice
from pliant.serving.loop.outcome_routes import AlarmDetails, TakenLabel

EXAMPLES: Any = {
    "one": {"summary": "One text", "value": {"task": "reviews", "text": "A film to remember.", "deadline": 0.5}},
    "several": {"summary": "Several, with targets", "value": {"texts": ["Good.", "Bad."], "accuracy": 0.9}},
    "pair": {"summary": "A pair", "value": {"task": "paraphrase", "text": ["It rains.", "Rain is falling."]}},
}


class TextObject(Closed):
    text: VisibleText
    text_pair: VisibleText | None = None


Pair = Annotated[list[VisibleText], Field(min_length=2, max_length=2)]
AnyText = Annotated[
    Annotated[VisibleText, Tag("<str>")] | Annotated[Pair, Tag("<list>")] | Annotated[TextObject, Tag("<dict>")],
    BY_TYPE,
]
"""A text, a pair in a list, or an object with text and text_pair."""


class Targets(Body):
    """What a text's answer must reach, which a candidate is chosen by unless it is named."""

    accuracy: float | None = Field(None, ge=0, le=1, description="the least promised accuracy")
    latency: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="at most, in seconds, alone on the device"
    )
    candidate: str | None = Field(None, description="name of a candidate, instead of accuracy and latency")
    utility: Utility = 1.0

    def check_candidate(self) -> None:
        """Raise `InputError` for a candidate beside targets."""
        if self.candidate is not None and (self.accuracy is not None or self.latency is not None):
            raise InputError("candidate", "given together with accuracy or latency", "given without them")


class PredictBody(Closed, Targets):
    task: str | None = Field(None, description="a task that GET /tasks lists; optional if only one is served")
    text: AnyText | None = None
    text_pair: VisibleText | None = None
    texts: list[AnyText] | None = Field(
        None, min_length=1, description="instead of text; at most 256 by default", fail_fast=True
    )
    deadline: float = Field(  # type: ignore[assignment]  # null is no deadline
        None, gt=0, description="seconds from arrival; default: the longest"
    )

    def parts(self, maximum: int) -> list[tuple[str, str | None]]:
        """Return the texts and pairs. Raises `InputError`, and as `check_count`."""
        if self.texts is not None:
            for other in ("text", "text_pair"):
                if other in self.model_fields_set:
                    raise InputError("texts", f"given together with {other}", "given without it")
            check_count("texts", self.texts, maximum)
            return [_parts(text) for text in self.texts]
        if self.text is None:
            raise InputError("text", "missing", "given, or texts as a list")
        if self.text_pair is None:
            return [_parts(self.text)]
        if not isinstance(self.text, str):
            raise InputError("text", "no single text", "a text, as text_pair is given")
        return [(self.text, self.text_pair)]


def _parts(text: str | list[str] | TextObject) -> tuple[str, str | None]:
    if isinstance(text, str):
        return text, None
    return (text.text, text.text_pair) if isinstance(text, TextObject) else (text[0], text[1])


class OipParameters(Parameters, Targets):
    truncate: bool = True
    raw_scores: bool = False


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


class Endpoint(AnyEndpoint, Protocol):
    """What the routes of cascade call."""

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


class Word(BaseModel):
    text: int = Field(description="0: the word is in the first text, 1: in the second")
    start: int = Field(description="index of its first character")
    end: int = Field(description="index after its last character")
    word: str


class Versions(BaseModel):
    task: int
    models: dict[str, int] = Field(description="version of each level that ran")


class Answer(BaseModel):
    """The answer for one text, and how it came about."""

    id: str = Field(description="to report its label with later, see POST /outcomes")
    task: str
    label: str | float = Field(description="the most probable class, or a regression's value")
    confidence: float = Field(description="calibrated probability that the label is correct")
    probabilities: dict[str, float] | None = Field(description="class -> calibrated probability; null in a regression")
    interval: list[float] | None = Field(description="in a regression: where the value lies with that confidence")
    level: str = Field(description="the model that answered")
    levels: list[str] = Field(description="the models that ran, in order")
    candidate: str = Field(description="the planned sequence of levels that was used, chosen by accuracy and latency")
    pruned: list[Word] = Field(description="words that the later models did not read")
    truncated: bool = Field(description="whether the text was truncated, being longer than a model reads")
    cleaned: int = Field(description="control characters of the text that were replaced by spaces")
    cut_short: bool = Field(description="whether another model should have run, but could not")
    reason: str = Field(description="why it was cut short: late, full or failed; else empty")
    on_time: bool = Field(description="whether the deadline was met")
    queue_seconds: float = Field(description="seconds in queues, before and between models")
    run_seconds: float = Field(description="seconds on devices, of all models together")
    versions: Versions


class FailedAnswer(BaseModel):
    """The error of one text, while others have answers."""

    error: Error
    cleaned: int


class Prediction(BaseModel):
    task: str
    answers: list[Answer | FailedAnswer] = Field(description="one per text, in the order of the request")


class Level(BaseModel):
    name: str
    version: int
    digest: str
    max_length: int = Field(description="tokens")
    temperature: float
    accuracy: float = Field(description="of this level alone")
    calibration_error: float


class Candidate(BaseModel):
    name: str
    levels: list[str]
    accuracy: float
    promised: float = Field(description="the accuracy that is promised at least")
    test_accuracy: float | None
    seconds: float = Field(description="mean seconds of one request alone on the device")
    shares: list[float] = Field(description="share of requests that run each of the levels")
    kept: float = Field(description="mean share of words that the levels after the first read")


class TaskDescription(BaseModel):
    name: str
    version: int
    digest: str
    classes: list[str] = Field(description="empty in a regression")
    pair: bool = Field(description="whether the task takes pairs of texts")
    max_length: int = Field(
        description="tokens that its models read; a longer text is truncated, and its answer says so"
    )
    tolerance: float | None = Field(description="in a regression: a value within this distance is correct")
    device: str
    precision: str = Field(description="of its levels: float32, bfloat16 or float16")
    target: float = Field(description="the accuracy that the first candidate is planned for")
    confidence: float = Field(description="probability with which the promises hold")
    levels: list[Level]
    candidates: list[Candidate]


class TaskList(BaseModel):
    tasks: list[TaskDescription]


class LevelFigures(BaseModel):
    level: str
    labels: int
    accuracy: float
    confidence: float = Field(description="mean confidence")
    error: float = Field(description="expected calibration error, 15 bins")


class Figures(BaseModel):
    """The accuracy of one candidate by reported labels, since the service started."""

    task: str
    version: str | int
    candidate: str
    promised: float | None
    labels: int = Field(description="labels of answers that the promise covers, which excludes those cut short")
    accuracy: float | None
    evidence: float = Field(
        description="evidence against the promise; from 20 on it is broken (by chance in at most 5% of services)"
    )
    broken: bool
    levels: list[LevelFigures]


class AgreementFigures(BaseModel):
    """How often the large model says what an early level of a candidate said, of the answers that it read again."""

    task: str
    candidate: str
    compared: int = Field(description="early answers, since the version that is served was taken up")
    agreed: int


class Status(CommonStatus):
    workers: int
    devices: list[ServingDevice] = Field(description="one for each worker")
    placement: str
    tasks: list[TaskDescription]
    outcomes: list[Figures]
    agreement: list[AgreementFigures]


class TakenOutcome(TakenLabel):
    candidate: str
    level: str


class Alarm(Figures, AlarmDetails):
    pass
