"""The answers of the tokens service, and what its OpenAPI page says of bodies and errors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from pliant.serving.http.bodies import schema_of
from pliant.serving.http.schemas import Artifact, CommonStatus, Refresh, ServingDevice
from pliant.serving.loop.outcome_routes import AlarmDetails, TakenLabel
from pliant.serving.tokens.request import PredictBody


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


class TakenOutcome(TakenLabel):
    operating_point: str = _POINT


class Alarm(Figures, AlarmDetails):
    pass


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


def request_body() -> dict[str, Any]:
    """Return the `openapi_extra` of /predict: a form with a file, or the same fields in JSON."""
    schema = schema_of(PredictBody)
    image = {"type": "string", "format": "binary", "description": "the image file"}
    form = {**schema, "properties": {**schema["properties"], "image": image}}
    content = {"multipart/form-data": {"schema": form}, "application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}
