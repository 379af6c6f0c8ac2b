"""Reads reports of labels: one, or a list of which each succeeds or fails by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from pliant.errors import InputError, PliantError
from pliant.outcomes.answered import Label
from pliant.serving.http.api_errors import ApiError, api_error_of, error_content
from pliant.serving.http.bodies import Closed
from pliant.serving.http.json_body import SHOWN

MAX_LABELS = 1_000  # labels in one request
AT_ONCE = 8  # labels of a request that are taken before others have their turn
RATE = 100.0  # labels a second of one tenant; MAX_LABELS of them at once


class Outcome(Closed):
    id: str = Field(min_length=1, description="id of the answer")
    label: Annotated[
        Annotated[str, Tag("<str>")] | Annotated[float, Tag("<number>")],
        Discriminator(lambda label: "<str>" if isinstance(label, str) else "<number>"),
    ] = Field(description="the right label")


def read_outcome(value: object) -> tuple[str, Label]:
    """Return the id and the label in a report. Raises `InputError`."""
    outcome = Outcome.read(value, "outcome") if not isinstance(value, dict) else Outcome.read(value)
    return outcome.id, outcome.label


async def take_all(outcomes: list[Any], take: Callable[[str, Label], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
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
