"""What an answer says of one text, as plain values. Knows what was asked and what came of it; decides nothing.

Shape suffixes: K classes.
"""

from __future__ import annotations

from typing import Any

from pliant.cascade.outcomes import Answered
from pliant.cascade.route import confidence
from serving.answers import Completed
from serving.cascade.reading import Asked


def answer(id: str, asked: Asked, served: Completed) -> dict[str, Any]:
    """Of a text that at least one level ran for. `label` is a class, or in a regression the value."""
    cascade, names = asked.way.cascade, levels_run(asked)
    return {
        "id": id,
        "task": cascade.task,
        **_said(asked),
        "confidence": sure(asked),
        "level": names[-1],
        "levels": names,
        "candidate": asked.candidate.name,
        "cut_short": bool(served.reason),
        "reason": served.reason,
        "pruned": [_word(asked, *span) for span in sorted(asked.dropped)],
        "truncated": asked.truncated,
        "on_time": served.on_time,
        **_times(served),
        "versions": versions(asked),
    }


def remembered(asked: Asked, served: Completed) -> Answered:
    """The same for those who later learn of the right label. No promise covers what was cut short."""
    cascade, candidate = asked.way.cascade, asked.candidate
    return Answered(
        task=cascade.task,
        version=asked.way.served.version,
        candidate=candidate.name,
        level=levels_run(asked)[-1],
        label=_said(asked)["label"],
        confidence=sure(asked),
        promised=None if served.reason else candidate.promised,
        tolerance=cascade.tolerance,
        classes=cascade.classes,
    )


def levels_run(asked: Asked) -> list[str]:
    return [asked.way.cascade.levels[level].name for level in asked.candidate.levels[: asked.ran]]


def versions(asked: Asked) -> dict[str, Any]:
    """Of the task, and of the classifiers that ran, by level."""
    served = asked.way.served
    ran = asked.candidate.levels[: asked.ran]
    return {
        "task": served.version,
        "models": {served.cascade.levels[level].name: served.levels[level].version for level in ran},
    }


def sure(asked: Asked) -> float:
    """The calibrated probability that the answer is correct (a regression: within the tolerance)."""
    return round(float(confidence(asked.answer, not asked.way.cascade.classes)[0]), 6)


def _said(asked: Asked) -> dict[str, Any]:
    cascade, answer_K = asked.way.cascade, asked.answer[0]
    if cascade.classes:
        shares = [round(share, 6) for share in answer_K.tolist()]
        told = dict(zip(cascade.classes, shares, strict=True))
        return {"label": cascade.classes[int(answer_K.argmax())], "probabilities": told, "interval": None}
    value = float(answer_K[0])
    return {"label": value, "probabilities": None, "interval": [value - cascade.tolerance, value + cascade.tolerance]}


def _word(asked: Asked, which: int, start: int, end: int) -> dict[str, Any]:
    text = asked.original[which] or ""
    return {"text": which, "start": start, "end": end, "word": text[start:end]}


def _times(served: Completed) -> dict[str, float]:
    """Over all its launches: on the device, and before and between them in queues."""
    *former, last = served.ran
    earlier = sum(ran.seconds for ran in former)
    return {
        "queue_seconds": max(0.0, served.queue_seconds - earlier),
        "run_seconds": earlier + last.seconds,
    }
