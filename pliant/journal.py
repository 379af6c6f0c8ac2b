"""A journal as JSON lines, one entry a line, so that what happened live can be replayed and reported on.

Knows the values of protocol.py and nothing of files. Floats keep every bit (`repr`), infinity included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pliant.errors import InputError
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Cancelled,
    Changed,
    Drop,
    Event,
    Failed,
    Finished,
    JournalEntry,
    Launch,
    Limited,
    Request,
    Restarted,
    Result,
    Woke,
)

Fields = dict[str, Any]

EVENTS: Mapping[str, type[Failed | Cancelled | Woke | Changed | Limited | Restarted]] = {
    "failed": Failed,
    "cancelled": Cancelled,
    "woke": Woke,
    "changed": Changed,
    "limited": Limited,
    "restarted": Restarted,
}
"""The events that are read by their fields alone."""
ACTIONS: Mapping[str, type[Action]] = {"launch": Launch, "answer": Answer, "drop": Drop}


def encode(entry: JournalEntry) -> str:
    """Return one line, without its line end."""
    actions: list[Fields] = []
    for action in entry.actions:
        match action:
            case Launch(id, worker, requests, setting, kind, expected):
                fields: Fields = {"id": id, "worker": worker, "requests": requests, "setting": setting}
                actions.append({"type": "launch", **fields, "kind": kind} | _given(expected=expected))
            case Answer(request, launch, reason):
                answer: Fields = {"type": "answer", "request": request, "launch": launch}
                actions.append(answer | _given(reason=reason))
            case Drop(request, reason):
                actions.append({"type": "drop", "request": request, "reason": reason})
    return json.dumps({"now": entry.now, "event": _event_fields(entry.event), "actions": actions})


def decode(line: str) -> JournalEntry:
    """Return the entry of one line. Raises `InputError` for a line that holds none."""
    try:
        fields = json.loads(line)
        actions = tuple(_action(dict(action)) for action in fields["actions"])
        return JournalEntry(fields["now"], _event(dict(fields["event"])), actions)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("journal line", repr(line[:80]), f"one entry as written by encode ({error})") from None


def _event_fields(event: Event) -> Fields:
    match event:
        case Arrived(r):
            fields: Fields = {"id": r.id, "arrival": r.arrival, "deadline": r.deadline, "task": r.task}
            given = _given(length=r.length, setting=r.setting, tenant=r.tenant)
            return {"type": "arrived", **fields, "utility": r.utility} | given | _other_than(1.0, weight=r.weight)
        case Finished(launch, seconds, results):
            rows = [
                [each.request, each.correct, each.gain, each.length][: 4 if each.gain is not None or each.length else 2]
                for each in results
            ]
            return {"type": "finished", "launch": launch, "seconds": seconds, "results": rows}
        case Failed(launch, reason, lost):
            return {"type": "failed", "launch": launch, "reason": reason} | _other_than(True, lost=lost)
        case Cancelled(request):
            return {"type": "cancelled", "request": request}
        case Woke():
            return {"type": "woke"}
        case Changed(facts):
            return {"type": "changed", "facts": facts}
        case Limited(setting, batch):
            return {"type": "limited", "setting": setting, "batch": batch}
        case Restarted(reason):
            return {"type": "restarted", "reason": reason}


def _given(**fields: Any) -> Fields:
    """Return the fields that are not empty; most systems leave most of them so, and lines stay short."""
    return {name: value for name, value in fields.items() if value}


def _other_than(default: Any, **fields: Any) -> Fields:
    """Return the fields that have another value than the `default` of all of them."""
    return {name: value for name, value in fields.items() if value != default}


def _event(fields: Fields) -> Event:
    kind = fields.pop("type")
    if kind == "arrived":
        return Arrived(Request(**fields))
    if kind == "finished":
        return Finished(fields["launch"], fields["seconds"], tuple(Result(*row) for row in fields["results"]))
    if kind not in EVENTS:
        raise ValueError(f"no event is called {kind!r}")
    return EVENTS[kind](**fields)


def _action(fields: Fields) -> Action:
    kind = fields.pop("type")
    if kind not in ACTIONS:
        raise ValueError(f"no action is called {kind!r}")
    if kind == "launch":
        fields["requests"] = tuple(fields["requests"])
    return ACTIONS[kind](**fields)
