"""Writes the answer for one text as JSON values.

Shape suffixes: K classes.
"""

from __future__ import annotations

from typing import Any

from pliant.outcomes.answered import Answered
from pliant.serving.answers import Completed
from pliant.serving.cascade.reading import TextInProgress


def answer(id: str, progress: TextInProgress, completed: Completed) -> dict[str, Any]:
    """Return the answer for a text that at least one level ran for. `label` is a class, or a regression's value."""
    cascade, names = progress.handler.cascade, levels_run(progress)
    return {
        "id": id,
        "task": cascade.task,
        **_label(progress),
        "confidence": confidence_of(progress),
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


def to_answered(progress: TextInProgress, completed: Completed, tenant: str) -> Answered:
    """Return what must be remembered until the tenant reports the label. An answer that was cut short has no promise."""
    cascade, candidate = progress.handler.cascade, progress.candidate
    return Answered(
        task=cascade.task,
        version=progress.handler.served.version,
        candidate=candidate.name,
        level=levels_run(progress)[-1],
        label=_label(progress)["label"],
        confidence=confidence_of(progress),
        promised=None if completed.reason else candidate.promised,
        tolerance=cascade.tolerance,
        classes=cascade.classes,
        tenant=tenant,
        former_levels=tuple(levels_run(progress)[:-1]),
        former=tuple(progress.former),
    )


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


def confidence_of(progress: TextInProgress) -> float:
    """Return the calibrated probability that the answer is correct (a regression: within the tolerance)."""
    return progress.confidence


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
