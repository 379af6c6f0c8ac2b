"""The bodies of requests and answers of the cascade service, as models that parse and document them.

Its texts are checked by serving/http/bodies.py; the answer says how many of their characters were cleaned. A text with more
tokens than a model reads is truncated later, and the answer says so.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, Tag

from pliant.serving.http.app import CommonStatus, Error, ServingDevice
from pliant.serving.http.bodies import BY_TYPE, Body, Closed, Utility, VisibleText
from pliant.serving.http.oip.models import Parameters
from pliant.serving.loop import outcome_routes
from pliant.serving.loop.outcome_routes import AlarmDetails, TakenLabel, WantedAnswer

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


class OipParameters(Parameters, Targets):
    truncate: bool = True
    raw_scores: bool = False


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
    kind: str = Field(description="classifier; exit: a head on its first layers; or bag, a linear model of n-grams")
    version: int
    digest: str
    max_length: int = Field(description="tokens")
    temperature: float
    accuracy: float = Field(description="of this level alone")
    calibration_error: float


class Promise(BaseModel):
    """What holds for the first candidate, with the task's confidence."""

    kind: str = Field(
        description="agree: at most that share of the answers is not the large model's; drop: at most so much accuracy is "
        "lost against it; right: the accuracy"
    )
    amount: float
    labels: int = Field(description="texts whose labels had to be known for it")


class Candidate(BaseModel):
    name: str
    levels: list[str]
    accuracy: float
    promised: float = Field(description="the accuracy that is promised at least")
    agreement: float = Field(description="the share of answers that are the large model's, at least; 0: not promised")
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
    promise: Promise
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


class Figures(outcome_routes.Figures):
    candidate: str
    levels: list[LevelFigures]


class AgreementFigures(BaseModel):
    """How often the large model says what an early level of a candidate said, by the audit of early answers."""

    task: str
    candidate: str
    compared: int = Field(description="early answers, since the version that is served was taken up")
    agreed: int
    missed: int = Field(description="audits that found no room or no device in time")
    proven: float | None = Field(description="the share that agrees at least, as the plan has proven; null: nothing")
    evidence: float = Field(description="evidence against it; from 20 on a safer candidate is served by default")
    broken: bool


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


class Wanted(WantedAnswer):
    candidate: str
    level: str


class Alarm(Figures, AlarmDetails):
    pass
