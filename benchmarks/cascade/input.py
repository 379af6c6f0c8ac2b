"""Bad input against a real endpoint: each must get a 4xx that says what and the limit, or an answer that declares it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.bad_input import Asked, Case, Judge, put, shortly
from benchmarks.cascade.live import live_cascade
from benchmarks.endpoint import serving
from pliant.progress import Progress, silent

PATH, GOOD = "/v1/predict", "Return the mean of an array."


def measure(progress: Progress = silent) -> list[Case]:
    """Against the champion's service."""
    cascade, _ = live_cascade()
    task, found = cascade.task, []
    with serving("cascade") as service:
        every = [*_cases(task), Asked("and then a good one", PATH, _json({"task": task, "text": GOOD}), _answered)]
        for number, one in enumerate(every):
            found.append(put(service.url, one, _describe))
            progress(number + 1, len(every))
    return found


def _cases(task: str) -> list[Asked]:
    good = {"task": task}
    return [
        Asked("empty text", PATH, _json({**good, "text": ""}), _refused("text")),
        Asked("blank text", PATH, _json({**good, "text": " \n\t "}), _refused("text")),
        Asked("1 MB of text", PATH, _json({**good, "text": "word " * 200_000}), _refused("text")),
        Asked("60 kB of text", PATH, _json({**good, "text": "word " * 12_000}), _declared("truncated")),
        Asked("control characters", PATH, _json({**good, "text": "a\x00b\x07c\x1b[31m mean"}), _declared("cleaned")),
        Asked("nothing but control characters", PATH, _json({**good, "text": "\x00\x01\x02"}), _refused("text")),
        Asked("a lone surrogate", PATH, b'{"task": "' + task.encode() + b'", "text": "a \\ud800 b"}', _refused("text")),
        Asked("invalid UTF-8", PATH, b'{"task": "' + task.encode() + b'", "text": "\xff\xfe\xfa"}', _refused(None)),
        Asked("10,000 texts at once", PATH, _json({**good, "texts": ["a mean"] * 10_000}), _refused("texts")),
        Asked("no text in a list", PATH, _json({**good, "texts": []}), _refused("texts")),
        Asked("unknown task", PATH, _json({"task": "chess", "text": "a mean"}), _refused("task")),
        Asked("two texts for a task of one", PATH, _json({**good, "text": "a", "text_pair": "b"}), _refused("text")),
        Asked(
            "an accuracy beyond reach", PATH, _json({**good, "text": "a mean", "accuracy": 1.0}), _refused("accuracy")
        ),
        Asked("a latency beyond reach", PATH, _json({**good, "text": "a mean", "latency": 1e-9}), _refused("latency")),
        Asked("a deadline of 0", PATH, _json({**good, "text": "a mean", "deadline": 0}), _refused("deadline")),
        Asked("an unknown field", PATH, _json({**good, "text": "a mean", "colour": "red"}), _refused("colour")),
        Asked("a number for a text", PATH, _json({**good, "text": 7}), _refused("text")),
        Asked("no JSON", PATH, b"{", _refused(None)),
        Asked("a list for a body", PATH, b"[]", _refused(None)),
    ]


def _refused(field: str | None) -> Judge:
    def judge(status: int, said: Any) -> bool:
        error = said.get("error") if isinstance(said, Mapping) else None
        if not 400 <= status < 500 or not isinstance(error, Mapping) or not error.get("message"):
            return False
        return field is None or error.get("field") == field or field in str(error["message"])

    return judge


def _declared(mark: str) -> Judge:
    """Answered, and the answer says what was done to the text."""

    def judge(status: int, said: Any) -> bool:
        answers = said.get("answers") if isinstance(said, Mapping) else None
        return status == 200 and isinstance(answers, list) and bool(answers) and bool(answers[0].get(mark))

    return judge


def _answered(status: int, _said: Any) -> bool:
    return status == 200


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _describe(said: Any) -> str:
    if isinstance(said, Mapping) and "answers" in said:
        one = said["answers"][0]
        return f"{one['label']}, truncated {one['truncated']}, cleaned {one.get('cleaned', 0)}"
    return shortly(said)
