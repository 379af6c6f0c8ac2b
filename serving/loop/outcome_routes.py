"""The HTTP routes of labels and alarms, and their documentation, for every system that takes labels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

from fastapi import FastAPI
from pydantic import BaseModel, Discriminator, Field, Tag
from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError, PliantError
from pliant.outcomes.labels import Label
from pliant.serving.http.access.access import check_admin, client_of
from pliant.serving.http.api_errors import ApiError, api_error_of, error_content
from pliant.serving.http.app import ErrorAnswer, Responses, endpoint_of, errors, json_response, path_parameters
from pliant.serving.http.bodies import SHOWN, Closed, check_type, parse, read_body, schema_of, shorten
from pliant.serving.loop.outcomes import MAX_LABELS

T = TypeVar("T")

LIMIT = 100  # answers that are listed, where nobody says how many
AT_ONCE = 8  # labels of a request that are taken before others have their turn


class Outcome(Closed):
    id: str = Field(min_length=1, description="id of the answer")
    label: Annotated[
        Annotated[str, Tag("<str>")] | Annotated[float, Tag("<number>")],
        Discriminator(lambda label: "<str>" if isinstance(label, str) else "<number>"),
    ] = Field(description="the right label")
    slice: str = Field("", pattern=r"^[\w.:=/ -]{1,64}$", description="a group of requests that has a floor of its own")


def read_outcome(value: object) -> tuple[str, Label, str]:
    """Return the id, the label and the slice in a report. Raises `InputError`."""
    outcome = Outcome.read(value, "outcome") if not isinstance(value, dict) else Outcome.read(value)
    return outcome.id, outcome.label, outcome.slice


async def take_all(
    outcomes: list[Any], take: Callable[[str, Label, str], dict[str, Any]]
) -> tuple[int, dict[str, Any]]:
    """Return status and answer for a list of labels, each of which succeeds or fails by itself.

    Others have their turn on the event loop after every few labels, each of which takes some tenths of a millisecond.
    Raises `InputError` for an empty list and for one of more than `MAX_LABELS`.
    """
    if not 0 < len(outcomes) <= MAX_LABELS:
        raise InputError("outcomes", f"a list of {len(outcomes)}", f"a list of 1 to {MAX_LABELS}")
    results, api_errors = [], []
    for place, value in enumerate(outcomes):
        if place % AT_ONCE == 0:
            await asyncio.sleep(0)
        try:
            results.append(take(*read_outcome(value)))
        except (ApiError, PliantError) as error:
            api_errors.append(api_error_of(error))
            results.append({"id": _id(value), **error_content(api_errors[-1])})
    status = api_errors[0].status if len(api_errors) == len(outcomes) else 200
    return status, {"taken": len(outcomes) - len(api_errors), "refused": len(api_errors), "outcomes": results}


def _id(value: object) -> str | None:
    """Return the id in an invalid report, if it has one."""
    id = value.get("id") if isinstance(value, dict) else None
    return id[:SHOWN] if isinstance(id, str) else None


class Promise(BaseModel):
    promised: float | None
    accuracy: float | None
    labels: int = Field(description="of answers that the promise covers")
    evidence: float = Field(description="against the promise, which 20 break: by chance in at most 5% of services")
    broken: bool


class SliceFigures(BaseModel):
    name: str = Field(description="such as: the class 3, the tenant acme, the slice mobile")
    labels: int
    accuracy: float
    least: float = Field(description="its floor")


class Figures(Promise):
    """The accuracy of one candidate by reported labels: what its figures have in each system."""

    task: str
    version: str | int = Field(description="of what is served for the task")
    unasked: int = Field(description="labels that came unasked where others were wanted, and count nowhere")
    slices: list[SliceFigures] = Field(description="that are right less often than their floors allow")


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
    repeated: bool = Field(description="whether the same label came before")
    counted: bool = Field(description="whether it counts now: once, and only for wanted answers where some were listed")
    promise: Promise = Field(description="the promise with this label counted")


class TakenOutcomes(BaseModel, Generic[T]):
    """The answer to a list of labels: each is taken or refused by itself."""

    taken: int
    refused: int
    outcomes: list[T | RefusedOutcome] = Field(description="in the order of the list")


class WantedAnswer(BaseModel):
    """What an answer whose label is wanted has in each system."""

    id: str
    task: str
    version: str | int
    label: str | float = Field(description="that was given")
    confidence: float
    at: float = Field(description="when it was given, in seconds since 1970")
    inclusion: float = Field(description="the probability with which it was drawn")


class WantedList(BaseModel, Generic[T]):
    wanted: list[T] = Field(description="the oldest first")


class AlarmList(BaseModel, Generic[T]):
    alarms: list[T] = Field(description="at most 64, the newest last")


def add_outcomes(
    app: FastAPI, taken: type[BaseModel], wanted: type[BaseModel], alarm: type[BaseModel], label: str
) -> None:
    """Add the routes below /outcomes, documented with the answer to one label, a wanted answer, an alarm, and a label.

    A list of labels that fails has the status of its first.
    """
    report, many = schema_of(Outcome), TakenOutcomes[taken]  # type: ignore[valid-type]
    reports = {"type": "array", "items": report, "minItems": 1, "maxItems": MAX_LABELS}
    content = {"schema": {"oneOf": [report, reports]}, "example": {"id": "5f3a-17", "label": label}}
    failed: Responses = {
        status: {**errors(status)[status], "model": ErrorAnswer | many} for status in (404, 409, 422, 429)
    }
    app.add_api_route(
        "/outcomes",
        _outcomes,
        methods=["POST"],
        summary="Report the right label of an earlier answer",
        responses={200: {"model": taken | many}, **errors(400, 413, 415, 503), **failed},
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": content}}},
    )
    limit = {"type": "integer", "minimum": 1, "maximum": MAX_LABELS, "default": LIMIT}
    app.add_api_route(
        "/outcomes/wanted",
        _wanted,
        methods=["GET"],
        summary="Draw answers to be labelled, and list those that wait for their label",
        responses={200: {"model": WantedList[wanted]}, **errors(422)},  # type: ignore[valid-type]
        openapi_extra={"parameters": [{"name": "limit", "in": "query", "required": False, "schema": limit}]},
    )
    app.add_api_route(
        "/outcomes/alarms",
        _alarms,
        methods=["GET"],
        summary="List the promises that were found broken, with the labels that led to it",
        responses={200: {"model": AlarmList[alarm]}, **errors(403)},  # type: ignore[valid-type]
    )
    app.add_api_route(
        "/outcomes/alarms/{id}",
        _take_back,
        methods=["DELETE"],
        summary="Take an alarm back, if its labels were false: the promise is tested anew",
        responses={200: {"model": alarm}, **errors(403, 404, 415)},
        openapi_extra={"parameters": path_parameters("/outcomes/alarms/{id}")},
    )


async def _outcomes(request: Request) -> Response:
    endpoint = endpoint_of(request)
    client = client_of(request)
    check_type(request, ("application/json",), "application/json")
    value = await parse(request, await read_body(request, endpoint.settings.max_body_bytes))
    reports = value if isinstance(value, list) else [value]
    ids = [report.get("id") for report in reports[:MAX_LABELS] if isinstance(report, dict)]
    await endpoint.outcomes.recall([id for id in ids if isinstance(id, str)], client)

    def take(id: str, label: Label, declared: str) -> dict[str, Any]:
        taken: dict[str, Any] = endpoint.outcome(id, label, client, declared)
        return taken

    if isinstance(value, list):
        status, content = await take_all(value, take)
    else:
        status, content = 200, take(*read_outcome(value))
    await endpoint.outcomes.written()
    return json_response(content, status)


async def _wanted(request: Request) -> Response:
    given = request.query_params.get("limit", str(LIMIT))
    if not (given.isascii() and given.isdigit() and len(given) <= 4 and 0 < int(given) <= MAX_LABELS):
        raise InputError("limit", shorten(given), f"a whole number from 1 to {MAX_LABELS}")
    return json_response({"wanted": endpoint_of(request).outcomes.wanted(int(given), client_of(request))})


async def _alarms(request: Request) -> Response:
    check_admin(request, "see alarms")
    return json_response({"alarms": endpoint_of(request).outcomes.alarms()})


async def _take_back(request: Request) -> Response:
    client = check_admin(request, "take an alarm back")
    endpoint = endpoint_of(request)
    content = endpoint.outcomes.take_back(request.path_params["id"], client)
    await endpoint.outcomes.written()
    return json_response(content)
