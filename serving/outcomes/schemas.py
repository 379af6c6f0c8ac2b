"""Answers about labels and alarms that several systems share, and how OpenAPI pages document their routes."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, Field

from pliant.serving.http.bodies import schema_of
from pliant.serving.http.schemas import ErrorAnswer, Responses, errors
from pliant.serving.outcomes.labels import MAX_LABELS, Outcome


class Promise(BaseModel):
    promised: float | None
    accuracy: float | None
    labels: int
    evidence: float
    broken: bool


class RefusedOutcome(ErrorAnswer):
    id: str | None = Field(description="as it was given, if it is a text")


class Tally(BaseModel):
    correct: int
    wrong: int


class Report(BaseModel):
    tenant: str
    key: str = Field(description="id of the key; empty where the service has no keys")
    at: float = Field(description="seconds since 1970")


class ReportedLabel(Report):
    id: str = Field(description="of the answer")
    label: str | float
    correct: bool


class AlarmDetails(BaseModel):
    """A promise that broke, as it was then: what an alarm has beside its figures."""

    id: str
    at: float = Field(description="seconds since 1970")
    labels_by_tenant: dict[str, Tally] = Field(description="of latest_labels, by who reported them")
    latest_labels: list[ReportedLabel] = Field(description="at most 200, the newest last")
    taken_back: Report | None = Field(description="who took the alarm back")


class TakenLabel(BaseModel):
    """What the answer to one label has in each system."""

    id: str
    task: str
    version: str | int
    correct: bool
    repeated: bool = Field(description="whether the same label came before, and is not counted again")
    promise: Promise = Field(description="the promise with this label counted")


T = TypeVar("T")


class TakenOutcomes(BaseModel, Generic[T]):
    """The answer to a list of labels: each is taken or refused by itself."""

    taken: int
    refused: int
    outcomes: list[T | RefusedOutcome] = Field(description="in the order of the list")


class AlarmList(BaseModel, Generic[T]):
    alarms: list[T] = Field(description="at most 64, the newest last")


def outcome_body(label: str) -> dict[str, Any]:
    """Return the `openapi_extra` of outcomes; `label` is that of its example."""
    label_report = schema_of(Outcome)
    many = {"type": "array", "items": label_report, "minItems": 1, "maxItems": MAX_LABELS}
    content = {"schema": {"oneOf": [label_report, many]}, "example": {"id": "5f3a-17", "label": label}}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def outcome_responses(taken: type[BaseModel]) -> Responses:
    """Return the `responses` of outcomes, with the answer to one label. A list that fails has the status of its first."""
    many = TakenOutcomes[taken]  # type: ignore[valid-type]
    several: Responses = {
        status: {**errors(status)[status], "model": ErrorAnswer | many} for status in (404, 409, 422, 429)
    }
    return {200: {"model": taken | many}, **errors(400, 404, 409, 413, 415, 422, 429, 503), **several}
