"""What the routes of several systems share: the endpoint that they call, error handling, and the choice of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pliant.errors import InputError, PliantError
from pliant.serving.http.api_errors import ApiError, api_error_of
from pliant.serving.http.json_body import as_object, check_type, parse, read_body, shorten

ARRIVED = "pliant.arrived"
"""Key of an ASGI scope: when the request came, on the clock of the event loop."""


class Limits(Protocol):
    """The settings that limit requests."""

    @property
    def max_body_bytes(self) -> int: ...
    @property
    def max_texts(self) -> int: ...
    @property
    def max_deadline(self) -> float: ...
    @property
    def max_waiting(self) -> int: ...
    @property
    def stream_limit(self) -> float: ...


class ErrorCounter(Protocol):
    """Counts the errors that clients get, by code."""

    def errored(self, code: str) -> None: ...


class HasClock(Protocol):
    @property
    def now(self) -> float: ...


class Endpoint(HasClock, Protocol):
    """What any system's endpoint offers its routes."""

    @property
    def settings(self) -> Limits: ...
    @property
    def metrics(self) -> ErrorCounter: ...
    async def refresh(self) -> dict[str, Any]: ...


E = TypeVar("E", bound=Endpoint)


def guarded(
    handle: Callable[[Request, E], Awaitable[Response]],
    endpoint_of: Callable[[Request], E],
    error_response: Callable[[ApiError], Response],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a route that calls `handle`, counts its errors and answers them with `error_response`."""

    async def answer(request: Request) -> Response:
        endpoint = endpoint_of(request)
        try:
            return await handle(request, endpoint)
        except (ApiError, PliantError, ClientDisconnect) as error:
            api_error = api_error_of(error)
            endpoint.metrics.errored(api_error.code)
            return error_response(api_error)

    return answer


def arrival(request: Request, endpoint: HasClock) -> float:
    """Return when the request came to the socket, on the endpoint's clock; now, if nobody has noted it."""
    arrived = request.scope.get(ARRIVED)
    return endpoint.now if arrived is None else endpoint.now - (asyncio.get_running_loop().time() - arrived)


async def read_fields(request: Request, limits: Limits) -> Mapping[str, Any]:
    """Return the fields of a JSON body. Raises `ApiError` for a body that is no JSON object, or too large."""
    check_type(request, ("application/json",), "application/json")
    return as_object(await parse(request, await read_body(request, limits.max_body_bytes)))


def select(name: object, field: str, served: Sequence[str]) -> str:
    """Return the task that a request names in `field`, or the only one that is served if it names none.

    Raises `InputError` if a name is needed or is no text, `ApiError` (404) for a task that is not served.
    """
    if name is None:
        if len(served) > 1:
            raise InputError(field, "missing", f"given, as several are served: {', '.join(served)}")
        (name,) = served
    if not isinstance(name, str):
        raise InputError(field, shorten(name), "a text")
    if name not in served:
        raise unknown_task(name, field, served)
    return name


def unknown_task(name: str, field: str, served: Iterable[str]) -> ApiError:
    """Return the error for a task that is not served."""
    known = ", ".join(sorted(served))
    return ApiError(404, "unknown_task", f"{field} is {shorten(name)}, but must be one of {known}", field)
