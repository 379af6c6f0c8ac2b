"""What routes ask of any system's endpoint, how a request names what it asks of, and how its errors are told.

Knows what the APIs' fields have in common; knows no system, no models.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pliant.errors import InputError, PliantError
from serving.http.api_errors import ApiError, refusal_of
from serving.http.json_body import check_type, parse_json, read_body, shorten


class Limits(Protocol):
    """The settings that routes and questions go by."""

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


class Counter(Protocol):
    def refused(self, code: str) -> None: ...


class Endpoint(Protocol):
    @property
    def settings(self) -> Limits: ...
    @property
    def metrics(self) -> Counter: ...
    @property
    def now(self) -> float: ...
    async def refresh(self) -> dict[str, Any]: ...


E = TypeVar("E", bound=Endpoint)


def guarded(
    handle: Callable[[Request, E], Awaitable[Response]],
    endpoint_of: Callable[[Request], E],
    told: Callable[[ApiError], Response],
) -> Callable[[Request], Awaitable[Response]]:
    """With errors as `told` shapes them."""

    async def answer(request: Request) -> Response:
        endpoint = endpoint_of(request)
        try:
            return await handle(request, endpoint)
        except (ApiError, PliantError, ClientDisconnect) as error:
            refusal = refusal_of(error)
            endpoint.metrics.refused(refusal.code)
            return told(refusal)

    return answer


async def read_fields(request: Request, limits: Limits) -> Mapping[str, Any]:
    """Raises `ApiError` for a body that is no JSON object, or too large."""
    check_type(request, ("application/json",), "application/json")
    return parse_json(await read_body(request, limits.max_body_bytes))


def which(name: object, field: str, served: Sequence[str]) -> str:
    """The one that `field` names, or the only one. Raises `InputError`, and `ApiError` (404) for one that is not served."""
    if name is None:
        if len(served) > 1:
            raise InputError(field, "missing", f"given, as there is not just one: {', '.join(served)}")
        (name,) = served
    if not isinstance(name, str):
        raise InputError(field, shorten(name), "a text")
    if name not in served:
        raise unknown(name, field, served)
    return name


def unknown(name: str, field: str, served: Iterable[str]) -> ApiError:
    known = ", ".join(sorted(served))
    return ApiError(404, "unknown_task", f"{field} is {shorten(name)}, but must be one of {known}", field)
