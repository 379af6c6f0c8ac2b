"""What flows tell: Pliant's events in Prefect, and the flow `pliant-notify`, which tells people what failed or never came.

Every event's resource is `pliant.SYSTEM`; services and commands send the same by HTTP (serving/events.py). Payloads are
plain values; `reason` is a sentence for people, and the others are there where they are known: `stream` (what was watched),
`evidence` (of the test), `release` (its number), `versions`.

The flow needs nothing from outside.

It writes the sentence to the run's log and to `PLIANT_HOME/notifications.jsonl`, and where PLIANT_ALERT_WEBHOOK is set it
posts `{"text", "flow", "at"}` there as JSON. What failed becomes the event `pliant.flow-failed` of its system, too.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from prefect import flow, get_run_logger
from prefect.events import emit_event

from pliant import systems
from pliant.flows import settings
from pliant.flows.release import Release, open_registry
from pliant.jsonl import append_whole
from pliant.redaction import redact
from pliant.settings import FlowSettings

logger = logging.getLogger("pliant.flows")

SECONDS = 10.0
MOST_BYTES = 2**20  # of notifications.jsonl; then another file is begun, and this one kept as `.1`
ALARM, PROMISE_BROKEN = "pliant.alarm", "pliant.promise-broken"
CHAMPION, ROLLBACK, FLOW_FAILED = "pliant.champion", "pliant.rollback", "pliant.flow-failed"
TRIAL, REFUSED = "pliant.trial", "pliant.refused"


def emit(name: str, system: str, payload: Mapping[str, Any]) -> None:
    """Emit an event of a system. Prefect sends it from a thread of its own: nothing is awaited, and nothing raised."""
    resource = {"prefect.resource.id": f"pliant.{system}", "prefect.resource.name": system}
    emit_event(name, resource=resource, payload=dict(payload))


def emit_release(system: str, released: Release) -> None:
    """Emit `pliant.champion` if what was released is what the registry serves by this very run; a challenger is none yet.

    Emit `pliant.refused` where something was refused.
    """
    if not released.run:
        return
    if not released.promoted:
        emit(REFUSED, system, {"reason": released.reason, "versions": dict(released.versions), "run": released.run})
        return
    present = open_registry(settings.read(), system).release(system)
    if present is not None and present.run == released.run:
        payload = {"reason": released.reason, "release": present.number, "versions": dict(present.versions)}
        emit(CHAMPION, system, {**payload, "run": released.run})


@flow(name="pliant-notify", validate_parameters=True, timeout_seconds=120)
def pliant_notify(sentence: str, failed_flow: str = "") -> bool:
    """Write and send one sentence; `failed_flow`: the flow that failed or is missing. Return whether the webhook took it."""
    get_run_logger().warning(sentence)
    notice = {"text": redact(sentence), "flow": failed_flow, "at": datetime.now(UTC).isoformat()}
    try:
        write(settings.read().home / "notifications.jsonl", notice)
    except OSError as error:
        logger.warning("the notification could not be written: %s", error)
    system = failed_flow.partition("-")[0]
    if system in systems.names():
        emit(FLOW_FAILED, system, {"reason": sentence, "flow": failed_flow})
    address = FlowSettings.read().alert_webhook
    return send(address, notice) if address else False


def write(path: Path, notice: Mapping[str, str]) -> None:
    """Append a notification, whole or not at all, to a file of bounded size. Raises `OSError`."""
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    append_whole(path, json.dumps(notice).encode() + b"\n")


def send(address: str, notice: Mapping[str, str]) -> bool:
    """Post a notification, and return whether it was taken. A failure is logged, without what the address may hold."""
    if not address.startswith(("http://", "https://")):
        logger.warning("PLIANT_ALERT_WEBHOOK is no address that begins with http:// or https://: nothing was sent")
        return False
    body, headers = json.dumps(notice).encode(), {"content-type": "application/json"}
    try:
        request = urllib.request.Request(address, body, headers, method="POST")
        with urllib.request.urlopen(request, timeout=SECONDS):
            return True
    except HTTPError as error:
        logger.warning("the webhook of PLIANT_ALERT_WEBHOOK answered with status %d", error.code)
    except (OSError, ValueError) as error:
        logger.warning(
            "the webhook of PLIANT_ALERT_WEBHOOK cannot be reached: %s", getattr(error, "reason", type(error).__name__)
        )
    return False
