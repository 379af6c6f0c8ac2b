"""Answers about labels and alarms that several systems share, and how OpenAPI pages document their routes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from serving.http.bodies import schema_of
from serving.http.schemas import ErrorAnswer
from serving.outcomes.labels import MAX_LABELS, Outcome


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


def outcome_body(label: str) -> dict[str, Any]:
    """Return the `openapi_extra` of outcomes; `label` is that of its example."""
    one = schema_of(Outcome)
    many = {"type": "array", "items": one, "minItems": 1, "maxItems": MAX_LABELS}
    content = {"schema": {"oneOf": [one, many]}, "example": {"id": "5f3a-17", "label": label}}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def outcome_responses(
    single: dict[int | str, dict[str, Any]], taken: type[BaseModel], many: type[BaseModel]
) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of outcomes: a list of labels that all fail has the status of the first.

    `single`: the errors of one label; `taken`, `many`: the answers to one label, and to a list.
    """
    several: dict[int | str, dict[str, Any]] = {
        status: {**single[status], "model": ErrorAnswer | many} for status in (404, 409, 422, 429)
    }
    return {200: {"model": taken | many}, **single, **several}


def alarm_id() -> dict[str, Any]:
    """Return the `openapi_extra` of a route with the id of an alarm in its path."""
    return {"parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]}
