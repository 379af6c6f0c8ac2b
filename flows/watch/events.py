"""Pliant's events in Prefect, as flows emit them. Services and commands send the same by HTTP (serving/events.py).

Every event's resource is `pliant.SYSTEM`. Payloads are plain values; `reason` is a sentence for people, and the others are
there where they are known: `stream` (what was watched), `evidence` (of the test), `release` (its number), `versions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect.events import emit_event

from pliant.flows import settings
from pliant.flows.release import Release, open_registry

ALARM, PROMISE_BROKEN = "pliant.alarm", "pliant.promise-broken"
CHAMPION, ROLLBACK, FLOW_FAILED = "pliant.champion", "pliant.rollback", "pliant.flow-failed"


def resource(system: str) -> dict[str, str]:
    """Return the labels of a system as Prefect's events name it."""
    return {"prefect.resource.id": f"pliant.{system}", "prefect.resource.name": system}


def emit(name: str, system: str, payload: Mapping[str, Any]) -> None:
    """Emit an event of a system. Prefect sends it from a thread of its own: nothing is awaited, and nothing raised."""
    emit_event(name, resource=resource(system), payload=dict(payload))


def emit_champion(system: str, released: Release) -> None:
    """Emit `pliant.champion` if what was released is what the registry serves by this very run; a challenger is none yet."""
    if not released.promoted or not released.run:
        return
    present = open_registry(settings.read(), system).release(system)
    if present is not None and present.run == released.run:
        payload = {"reason": released.reason, "release": present.number, "versions": dict(present.versions)}
        emit(CHAMPION, system, {**payload, "run": released.run})
