"""The HTTP routes of labels and alarms, and their documentation, for every system that takes labels."""

from __future__ import annotations

from typing import Any, Protocol

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from pliant.outcomes.answered import Label
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http import routing
from pliant.serving.http.access.access import check_admin, client_of
from pliant.serving.http.api_errors import json_response
from pliant.serving.http.app import endpoint_of
from pliant.serving.http.json_body import check_type, parse, read_body
from pliant.serving.http.schemas import errors, path_parameters
from pliant.serving.outcomes.labels import read_outcome, take_all
from pliant.serving.outcomes.outcomes import Outcomes
from pliant.serving.outcomes.schemas import AlarmList, outcome_body, outcome_responses


class Endpoint(routing.Endpoint, Protocol):
    """What the routes call."""

    @property
    def outcomes(self) -> Outcomes: ...
    def outcome(self, id: str, label: Label, client: Client = ANYBODY) -> dict[str, Any]: ...


def add_outcomes(app: FastAPI, taken: type[BaseModel], alarm: type[BaseModel], label: str) -> None:
    """Add the routes below /outcomes, documented with the answer to one label, with an alarm, and with a label."""
    app.add_api_route(
        "/outcomes",
        _outcomes,
        methods=["POST"],
        summary="Report the right label of an earlier answer",
        responses=outcome_responses(taken),
        openapi_extra=outcome_body(label),
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
    endpoint: Endpoint = endpoint_of(request)
    client = client_of(request)
    check_type(request, ("application/json",), "application/json")
    value = await parse(request, await read_body(request, endpoint.settings.max_body_bytes))
    if isinstance(value, list):
        status, content = await take_all(value, lambda id, label: endpoint.outcome(id, label, client))
    else:
        status, content = 200, endpoint.outcome(*read_outcome(value), client)
    await endpoint.outcomes.written()
    return json_response(content, status)


async def _alarms(request: Request) -> Response:
    check_admin(request, "see alarms")
    return json_response({"alarms": endpoint_of(request).outcomes.alarms()})


async def _take_back(request: Request) -> Response:
    client = check_admin(request, "take an alarm back")
    endpoint: Endpoint = endpoint_of(request)
    content = endpoint.outcomes.take_back(request.path_params["id"], client)
    await endpoint.outcomes.written()
    return json_response(content)
