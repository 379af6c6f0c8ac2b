"""Bad input against a real endpoint: each must get a 4xx that says what and the limit, or an answer that declares it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any

from benchmarks.cascade_live import live_cascade
from benchmarks.endpoint import serving
from benchmarks.results import Bar
from pliant.progress import Progress, silent

HEADINGS = ("input", "status", "answer", "")
TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    status: int
    said: str
    well: bool

    def row(self) -> tuple[str, ...]:
        return self.name, str(self.status), self.said[:110], "well" if self.well else "not as it should be"


def bar(found: list[Case]) -> Bar:
    return Bar(
        "bad inputs that are refused with field and limit, or declared", sum(c.well for c in found), ">=", len(found)
    )


def measure(progress: Progress = silent) -> list[Case]:
    """Against the champion's service."""
    cascade, _ = live_cascade()
    task, found = cascade.task, []
    with serving("cascade") as service:
        cases = _cases(task)
        for number, (name, body, well) in enumerate(cases):
            status, said = _ask(f"{service.url}/v1/predict", body)
            found.append(Case(name, status, _shortly(said), well(status, said)))
            progress(number + 1, len(cases))
        status, said = _ask(f"{service.url}/v1/predict", _json({"task": task, "text": "Return the mean of an array."}))
        found.append(Case("and then a good one", status, _shortly(said), status == 200))
    return found


Judge = Callable[[int, Any], bool]


def _cases(task: str) -> list[tuple[str, bytes, Judge]]:
    good = {"task": task}
    return [
        ("empty text", _json({**good, "text": ""}), _refused("text")),
        ("blank text", _json({**good, "text": " \n\t "}), _refused("text")),
        ("1 MB of text", _json({**good, "text": "word " * 200_000}), _refused("text")),
        ("60 kB of text", _json({**good, "text": "word " * 12_000}), _declared("truncated")),
        ("control characters", _json({**good, "text": "a\x00b\x07c\x1b[31m mean"}), _declared("cleaned")),
        ("nothing but control characters", _json({**good, "text": "\x00\x01\x02"}), _refused("text")),
        ("a lone surrogate", b'{"task": "' + task.encode() + b'", "text": "a \\ud800 b"}', _refused("text")),
        ("invalid UTF-8", b'{"task": "' + task.encode() + b'", "text": "\xff\xfe\xfa"}', _refused(None)),
        ("10,000 texts at once", _json({**good, "texts": ["a mean"] * 10_000}), _refused("texts")),
        ("no text in a list", _json({**good, "texts": []}), _refused("texts")),
        ("unknown task", _json({"task": "chess", "text": "a mean"}), _refused("task")),
        ("two texts for a task of one", _json({**good, "text": "a", "text_pair": "b"}), _refused("text")),
        ("an accuracy beyond reach", _json({**good, "text": "a mean", "accuracy": 1.0}), _refused("accuracy")),
        ("a latency beyond reach", _json({**good, "text": "a mean", "latency": 1e-9}), _refused("latency")),
        ("a deadline of 0", _json({**good, "text": "a mean", "deadline": 0}), _refused("deadline")),
        ("an unknown field", _json({**good, "text": "a mean", "colour": "red"}), _refused("colour")),
        ("a number for a text", _json({**good, "text": 7}), _refused("text")),
        ("no JSON", b"{", _refused(None)),
        ("a list for a body", b"[]", _refused(None)),
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


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _ask(url: str, body: bytes) -> tuple[int, Any]:
    """Status (0: none) and what was said."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return response.status, _read(response)
    except urllib.error.HTTPError as error:
        return error.code, _read(error)
    except (OSError, HTTPException) as error:  # hung up, or said nothing in time: no answer at all
        return 0, f"{type(error).__name__}: {error}"


def _read(response: IO[bytes]) -> Any:
    """None where it is no JSON."""
    try:
        return json.load(response)
    except ValueError:
        return None


def _shortly(said: Any) -> str:
    if isinstance(said, Mapping) and isinstance(said.get("error"), Mapping):
        return str(said["error"].get("message"))
    if isinstance(said, Mapping) and "answers" in said:
        one = said["answers"][0]
        return f"{one['label']}, truncated {one['truncated']}, cleaned {one.get('cleaned', 0)}"
    return str(said)
