"""What becomes of one text: the answer as JSON values, and what is observed of it.

Shape suffixes: K classes.
"""

from __future__ import annotations

import json
from typing import Any

from pliant.outcomes.answered import Answered, number_of
from pliant.serving.answers import Completed
from pliant.serving.cascade.reading import TextInProgress
from pliant.serving.loop.drift import CONFIDENCE, CONFIDENCES, LENGTHS, Reading, class_readings, labels
from pliant.serving.loop.observe import Observation


def answer(id: str, progress: TextInProgress, completed: Completed) -> dict[str, Any]:
    """Return the answer for a text that at least one level ran for. `label` is a class, or a regression's value."""
    cascade, names = progress.handler.cascade, levels_run(progress)
    return {
        "id": id,
        "task": cascade.task,
        **_label(progress),
        "confidence": progress.confidence,
        "level": names[-1],
        "levels": names,
        "candidate": progress.candidate.name,
        "cut_short": bool(completed.reason),
        "reason": completed.reason,
        "pruned": [_word(progress, *span) for span in sorted(progress.dropped)],
        "truncated": progress.truncated,
        "on_time": completed.on_time,
        **_times(completed),
        "versions": versions(progress),
    }


def observation(progress: TextInProgress, content: dict[str, Any], completed: Completed, kind: Answered) -> Observation:
    """Return what is known of the answer `content` to a text. `kind`: see `kind_of`."""
    version = progress.handler.served.version
    return Observation(
        task=progress.handler.cascade.task,
        version=version,
        outcome=completed.outcome,
        origin={"task_version": version, **{name: content[name] for name in ("candidate", "level", "reason")}},
        measured={"queue_seconds": completed.queue_seconds},
        label=content["label"],
        confidence=content["confidence"],
        late=not completed.on_time,
        models=tuple(content["versions"]["models"].items()),
        readings=_readings(progress, content),
        id=content["id"],
        kind=kind,
        former=tuple(number for label, share in progress.former for number in (number_of(kind, label), share)),
    )


def kind_of(progress: TextInProgress, cut_short: bool, tenant: str) -> Answered:
    """Return what answers to a tenant share that came about like this one. One that was cut short has no promise."""
    cascade, candidate, (*former, last) = progress.handler.cascade, progress.candidate, levels_run(progress)
    return Answered(
        task=cascade.task,
        version=progress.handler.served.version,
        candidate=candidate.name,
        level=last,
        label="",
        confidence=0.0,
        promised=None if cut_short else candidate.promised,
        tolerance=cascade.tolerance,
        classes=cascade.classes,
        tenant=tenant,
        former_levels=tuple(former),
    )


def _readings(progress: TextInProgress, content: dict[str, Any]) -> list[Reading]:
    cascade, task = progress.handler.cascade, progress.handler.cascade.task
    first, second = progress.original
    readings = [Reading(f"characters of {task}", len(first) + len(second or ""), LENGTHS)]
    if cascade.classes:
        label = cascade.classes.index(content["label"])
        readings += class_readings(task, cascade.classes, label, content["confidence"])
    else:
        readings.append(Reading(CONFIDENCE + task, content["confidence"], CONFIDENCES))
    if len(cascade.levels) > 1:
        levels = tuple(level.name for level in cascade.levels)
        name = f"level of {task} by {content['candidate']}"
        readings.append(Reading(name, levels.index(content["level"]), labels(levels)))
    return readings


def kept(progress: TextInProgress) -> tuple[str, bytes]:
    """Return form and bytes of the texts, where they are kept for the label."""
    return "json", json.dumps([text for text in progress.original if text is not None]).encode()


def levels_run(progress: TextInProgress) -> list[str]:
    """Return the names of the levels that ran, in order."""
    return [progress.handler.cascade.levels[level].name for level in progress.candidate.levels[: progress.levels_done]]


def versions(progress: TextInProgress) -> dict[str, Any]:
    """Return the versions of the task, and of the classifiers that ran, by level."""
    served = progress.handler.served
    done = progress.candidate.levels[: progress.levels_done]
    return {
        "task": served.version,
        "models": {served.cascade.levels[level].name: served.levels[level].version for level in done},
    }


def _label(progress: TextInProgress) -> dict[str, Any]:
    cascade, answer_K = progress.handler.cascade, progress.answer[0]
    if cascade.classes:
        shares = [round(share, 6) for share in answer_K.tolist()]
        probabilities = dict(zip(cascade.classes, shares, strict=True))
        return {"label": cascade.classes[int(answer_K.argmax())], "probabilities": probabilities, "interval": None}
    value = float(answer_K[0])
    return {"label": value, "probabilities": None, "interval": [value - cascade.tolerance, value + cascade.tolerance]}


def _word(progress: TextInProgress, which: int, start: int, end: int) -> dict[str, Any]:
    text = progress.original[which] or ""
    return {"text": which, "start": start, "end": end, "word": text[start:end]}


def _times(completed: Completed) -> dict[str, float]:
    """Return the seconds in queues and on devices, over all launches."""
    *former, last = completed.launches
    earlier = sum(launch.seconds for launch in former)
    return {
        "queue_seconds": max(0.0, completed.queue_seconds - earlier),
        "run_seconds": earlier + last.seconds,
    }
