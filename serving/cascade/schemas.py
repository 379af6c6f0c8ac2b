"""The shapes of the cascade endpoint's questions and answers, for its OpenAPI page alone; nothing is parsed with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from serving.cascade.outcomes import MOST
from serving.http.schemas import BATCH, CUT, PAIR, PARAMETERS, TEXT, Error, ErrorAnswer, Refresh, Score, TeiError


class Word(BaseModel):
    text: int = Field(description="0: of the first text, 1: of the second")
    start: int = Field(description="character")
    end: int
    word: str


class Versions(BaseModel):
    task: int
    models: dict[str, int] = Field(description="of the levels that ran")


class Answer(BaseModel):
    """What was found out about one text, and how it came about."""

    id: str = Field(description="to post its label with later, see outcomes")
    task: str
    label: str | float = Field(description="the most probable class; of a regression the value")
    confidence: float = Field(description="calibrated probability that the label is right")
    probabilities: dict[str, float] | None = Field(description="class -> calibrated probability; none in a regression")
    interval: list[float] | None = Field(description="of a regression: where the value lies with that confidence")
    level: str = Field(description="the model that answered")
    levels: list[str] = Field(description="the models that ran, in order")
    candidate: str = Field(description="the planned way that was taken, chosen by accuracy and latency")
    pruned: list[Word] = Field(description="words that the further models did not get to see")
    truncated: bool = Field(description="whether the text was cut at its end, being longer than a model reads")
    cleaned: int = Field(description="control characters of the text that were read as spaces")
    cut_short: bool = Field(description="whether a further model was wanted, but could not run")
    reason: str = Field(description="why: late, full, failed; or empty")
    on_time: bool = Field(description="whether the deadline held")
    queue_seconds: float
    run_seconds: float = Field(description="on devices, of all models together")
    versions: Versions


class FailedAnswer(BaseModel):
    """One text that has none, where others have."""

    error: Error
    cleaned: int


class Prediction(BaseModel):
    task: str
    answers: list[Answer | FailedAnswer] = Field(description="one a text, in the order of the question")


class Level(BaseModel):
    name: str
    version: int
    digest: str
    max_length: int = Field(description="tokens")
    temperature: float
    accuracy: float = Field(description="alone")
    calibration_error: float


class Candidate(BaseModel):
    name: str
    levels: list[str]
    accuracy: float
    promised: float = Field(description="what the accuracy does not fall below")
    test_accuracy: float | None
    seconds: float = Field(description="mean of one request alone on the device")
    shares: list[float] = Field(description="of requests that run each of the levels")
    kept: float = Field(description="mean share of words that the levels beyond the first read")


class TaskDescription(BaseModel):
    name: str
    version: int
    digest: str
    classes: list[str] = Field(description="none: a regression")
    pair: bool = Field(description="whether it takes pairs of texts")
    max_length: int = Field(description="tokens that its models read; what is longer is cut and marked so")
    tolerance: float | None = Field(description="of a regression: a value this near is correct")
    device: str
    target: float = Field(description="accuracy that the first candidate is planned for")
    confidence: float = Field(description="with which the promises hold")
    levels: list[Level]
    candidates: list[Candidate]


class TaskList(BaseModel):
    tasks: list[TaskDescription]


class LevelFigures(BaseModel):
    level: str
    labels: int
    accuracy: float
    confidence: float = Field(description="mean")
    error: float = Field(description="expected calibration error, 15 bins")


class Figures(BaseModel):
    """What later labels say of one candidate, since the service started."""

    task: str
    version: str | int
    candidate: str
    promised: float | None
    labels: int = Field(description="of answers under the promise, so not of those that were cut short")
    accuracy: float | None
    evidence: float = Field(description="against the promise; it is broken from 20 on (5% false alarms over all time)")
    broken: bool
    levels: list[LevelFigures]


class Status(BaseModel):
    ready: bool
    alias: str
    generation: int = Field(description="counts what was taken up since the start")
    leaving: int = Field(description="earlier generations with requests in hand")
    workers: int
    placement: str
    tasks: list[TaskDescription]
    refresh: Refresh
    refresh_seconds: float = Field(description="between two looks; 0 for none")
    waiting: int = Field(description="requests that no worker has in hand")
    pending: int = Field(description="requests without an answer")
    outcomes: list[Figures]


class Promise(BaseModel):
    promised: float | None
    accuracy: float | None
    labels: int
    evidence: float
    broken: bool


class TakenOutcome(BaseModel):
    """Of one label. A list of them gives {taken, refused, outcomes}, an outcome that was refused {id, error}."""

    id: str
    task: str
    version: str | int
    candidate: str
    level: str
    correct: bool
    repeated: bool = Field(description="the same label came before: not counted again")
    promise: Promise = Field(description="as it stands with this label")


_ERRORS = {
    400: "The body is no JSON in UTF-8.",
    404: "Unknown task, or an id that no answer remembered has.",
    409: "Another label was taken for this id before.",
    413: "The body, a text or the number of texts is over its limit.",
    415: "The body is not application/json.",
    422: "A field is missing, unknown, given twice or outside its limit.",
    429: "As many requests wait as may. See Retry-After.",
    500: "A fault of the service.",
    503: "No way to answer before the deadline, or worker or registry are unavailable. See Retry-After.",
}
_TEI_ERRORS = {
    413: "A batch, a text or the body is over its limit, or a text is too long and truncate is false.",
    422: "A field is outside its limit.",
    424: "The model failed.",
    429: "Overload. See Retry-After.",
}

_OBJECT = {
    "type": "object",
    "required": ["text"],
    "additionalProperties": False,
    "properties": {"text": TEXT, "text_pair": TEXT},
}
_ANY = {"oneOf": [TEXT, PAIR, _OBJECT]}
_QUESTION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "task": {"type": "string", "description": "as listed by GET tasks; may be left out where just one is served"},
        "text": _ANY,
        "text_pair": TEXT,
        "texts": {"type": "array", "items": _ANY, "minItems": 1, "description": "instead of text; 256 by default"},
        "accuracy": {"type": "number", "minimum": 0, "maximum": 1, "description": "at least, as planned"},
        "candidate": {"type": "string", "description": "by name, in place of what accuracy and latency would choose"},
        "latency": {"type": "number", "exclusiveMinimum": 0, "description": "at most, alone on the device: seconds"},
        "deadline": {"type": "number", "exclusiveMinimum": 0, "description": "seconds from arrival; else the longest"},
        "utility": {"type": "number", "minimum": 0, "default": 1.0, "description": "worth of a right answer in time"},
    },
}
_EXAMPLES: Mapping[str, Any] = {
    "one": {"summary": "One text", "value": {"task": "reviews", "text": "A film to remember.", "deadline": 0.5}},
    "several": {"summary": "Several, with targets", "value": {"texts": ["Good.", "Bad."], "accuracy": 0.9}},
    "pair": {"summary": "A pair", "value": {"task": "paraphrase", "text": ["It rains.", "Rain is falling."]}},
}
_OUTCOME = {
    "type": "object",
    "required": ["id", "label"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string", "description": "of the answer"},
        "label": {"oneOf": [{"type": "string"}, {"type": "number"}], "description": "what would have been right"},
    },
}
_TEI: Mapping[str, Any] = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "inputs": {
            "oneOf": [TEXT, PAIR, BATCH],
            "description": "a text, a pair, or a batch [[text], [text, text], ...]",
            "example": "What is Deep Learning?",
        },
        **CUT,
        "raw_scores": {
            "type": "boolean",
            "default": False,
            "description": "logarithms of the probabilities, instead of these",
        },
        "parameters": PARAMETERS,
    },
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route."""
    return {status: {"model": ErrorAnswer, "description": _ERRORS[status]} for status in statuses}


def question_body() -> dict[str, Any]:
    """The `openapi_extra` of predict."""
    return _body({"schema": _QUESTION, "examples": _EXAMPLES})


def outcome_body() -> dict[str, Any]:
    """The `openapi_extra` of outcomes."""
    many = {"type": "array", "items": _OUTCOME, "minItems": 1, "maxItems": MOST}
    return _body({"schema": {"oneOf": [_OUTCOME, many]}, "example": {"id": "5f3a-17", "label": "positive"}})


def tei_body() -> dict[str, Any]:
    """The `openapi_extra` of TEI's predict."""
    return _body({"schema": _TEI})


def task_parameter() -> list[dict[str, Any]]:
    """The `parameters` of a route with a task in its path."""
    return [{"name": "task", "in": "path", "required": True, "schema": {"type": "string"}}]


def tei_responses(path: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of TEI's routes."""
    if path != "/predict":
        return {}
    refused: dict[int | str, dict[str, Any]] = {
        status: {"model": TeiError, "description": sentence} for status, sentence in _TEI_ERRORS.items()
    }
    return {200: {"model": list[Score] | list[list[Score]]}, **refused}


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": content}}}
