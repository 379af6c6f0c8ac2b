"""The answers of the tokens service, and what its OpenAPI page says of bodies and errors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from serving.http.bodies import schema_of
from serving.http.schemas import Artifact, CommonStatus, ErrorAnswer, Refresh, ServingDevice
from serving.outcomes import schemas as outcomes
from serving.outcomes.schemas import Promise, RefusedOutcome, Report, ReportedLabel, Tally
from serving.tokens.request import PredictBody


class Prediction(BaseModel):
    """An output, and how it came about."""

    id: str = Field(description="to report its label with later, see POST /outcomes")
    task: str
    label: str = Field(description="the most probable class")
    probabilities: dict[str, float] = Field(description="class -> probability")
    gamma: int = Field(
        description="tokens merged in each layer (negative) or prompt tokens added (positive); 0: the plain model"
    )
    batch_size: int = Field(description="requests that ran in the same batch")
    queue_seconds: float = Field(description="seconds from arrival to launch")
    run_seconds: float = Field(description="seconds on the device, for the whole batch")
    on_time: bool = Field(description="whether the deadline was met")
    versions: dict[str, int] = Field(
        description="versions of the backbone and task that gave the answer, and of the profile that the scheduler used"
    )


class TaskDescription(BaseModel):
    name: str
    classes: list[str]
    version: int
    digest: str
    accuracy: dict[str, float] = Field(description="gamma -> share of correct answers on the profiling split")


class TaskList(BaseModel):
    tasks: list[TaskDescription]


class Backbone(Artifact):
    source: str = Field(description="the weights that it was made from")


class Profile(Artifact):
    device: str = Field(description="the class of device that was measured")
    precision: str | None = Field(description="that it computes in; null in older profiles: what the device prefers")


PINS = Field(description="task -> the version that it is pinned to, until POST /tasks with version null takes it off")


class TokensRefresh(Refresh):
    pins: dict[str, int] = PINS


_POINT = Field(description="gamma, as the accuracy of GET /tasks names it")


class Figures(BaseModel):
    """The accuracy of one task at one operating point, by reported labels."""

    task: str
    version: str | int = Field(description="of the task")
    operating_point: str = _POINT
    promised: float | None = Field(description="2 points below what was measured on the profiling and test splits")
    labels: int
    accuracy: float | None
    evidence: float = Field(
        description="evidence against the promise; from 20 on it is broken (by chance in at most 5% of services)"
    )
    broken: bool
    confidence: float | None = Field(description="mean confidence")
    calibration_error: float | None = Field(description="expected calibration error, 15 bins")


class TakenOutcome(BaseModel):
    """The answer to one label."""

    id: str
    task: str
    version: str | int
    operating_point: str = _POINT
    correct: bool
    repeated: bool = Field(description="whether the same label came before, and is not counted again")
    promise: Promise = Field(description="the promise with this label counted")


class TakenOutcomes(BaseModel):
    """The answer to a list of labels: each is taken or refused by itself."""

    taken: int
    refused: int
    outcomes: list[TakenOutcome | RefusedOutcome] = Field(description="in the order of the list")


class Alarm(Figures):
    """A promise that broke, as it was then."""

    id: str
    at: float = Field(description="seconds since 1970")
    labels_by_tenant: dict[str, Tally] = Field(description="of latest_labels, by who reported them")
    latest_labels: list[ReportedLabel] = Field(description="at most 200, the newest last")
    taken_back: Report | None = Field(description="who took the alarm back")


class AlarmList(BaseModel):
    alarms: list[Alarm] = Field(description="at most 64, the newest last")


class Status(CommonStatus):
    devices: list[ServingDevice]
    policy: str
    gammas: list[int] = Field(description="gammas that the policy may use")
    generation: int = Field(description="number of the present generation, from 1; a change of tasks alone starts none")
    backbone: Backbone
    profile: Profile = Field(description="the latencies that the scheduler uses")
    tasks: list[TaskDescription]
    pins: dict[str, int] = PINS
    outcomes: list[Figures]


_ERRORS = {
    400: "The body cannot be parsed.",
    403: "The key lacks the role admin.",
    404: "Unknown task, or no such task in the registry.",
    409: "The task was made for another backbone.",
    413: "The body exceeds the size limit.",
    415: "The body is neither multipart/form-data nor application/json.",
    422: "A field is missing, unknown or outside its limit; an image cannot be read or has too many pixels.",
    429: "The queue is full. See Retry-After.",
    500: "A fault of the service.",
    503: "The deadline cannot be met, or a worker or the registry is unavailable. See Retry-After.",
}

_OUTCOME_ERRORS = {
    400: "The body is not JSON in UTF-8.",
    403: "The key lacks the role admin.",
    404: "Unknown id of an answer or alarm.",
    409: "Another label was reported for this id before.",
    413: "The body exceeds the size limit.",
    415: "The body is not application/json.",
    422: "A field is missing, unknown or given twice, or the label is no class of the task.",
    429: "Too many labels come in a second. See Retry-After.",
    503: "Labels cannot be written at present. See Retry-After.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route."""
    return {status: {"model": ErrorAnswer, "description": _ERRORS[status]} for status in statuses}


def outcome_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors of a route below /outcomes."""
    return {status: {"model": ErrorAnswer, "description": _OUTCOME_ERRORS[status]} for status in statuses}


def outcome_responses() -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of outcomes. A list of labels that all fail has the status of the first."""
    single = outcome_errors(400, 404, 409, 413, 415, 422, 429, 503)
    return outcomes.outcome_responses(single, TakenOutcome, TakenOutcomes)


def request_body() -> dict[str, Any]:
    """Return the `openapi_extra` of /predict: a form with a file, or the same fields in JSON."""
    schema = schema_of(PredictBody)
    image = {"type": "string", "format": "binary", "description": "the image file"}
    form = {**schema, "properties": {**schema["properties"], "image": image}}
    content = {"multipart/form-data": {"schema": form}, "application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}
