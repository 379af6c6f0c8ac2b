"""Bad input against a real endpoint of the bins: each must get a 4xx that says what and the limit, in its API's own shape.

Works with whatever the champion's only stream is; where it is an embedding the questions go to /embed, else to /predict.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any

from benchmarks.endpoint import serving
from benchmarks.results import Bar
from flows import bins_live, settings
from pliant.bins.artifact import Encoder
from pliant.errors import RegistryError
from pliant.progress import Progress, silent

HEADINGS = ("input", "status", "answer", "")
TIMEOUT = 30.0
JSON = "application/json"

Judge = Callable[[int, Any], bool]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    status: int
    said: str
    well: bool

    def row(self) -> tuple[str, ...]:
        return self.name, str(self.status), self.said[:110], "well" if self.well else "not as it should be"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that should end as `judge` says. `path`: below the service's address."""

    name: str
    path: str
    body: bytes
    judge: Judge
    content: str = JSON
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()


def bar(found: list[Case]) -> Bar:
    name = "bad inputs that are refused with field and limit, or declared"
    return Bar(name, sum(case.well for case in found), ">=", len(found))


def live_stream(told: settings.Settings) -> tuple[str, Encoder]:
    """The name and the encoder of the first stream that is served. Raises `RegistryError` without one."""
    registry = bins_live.open_registry(told)
    found = bins_live.live(registry)
    if not found:
        raise RegistryError("the registry holds no champion of the bins system: run `pliant train bins` first")
    name = min(found)
    return name, bins_live.encoder(registry, found[name])[0]


def measure(progress: Progress = silent, told: settings.Settings | None = None) -> list[Case]:
    """Against the champion's service, and at the end a good question, which must be answered."""
    told = told or settings.read()
    name, encoder = live_stream(told)
    every, found = cases(name, encoder.head), []
    with serving("bins", told=told) as service:
        for number, one in enumerate(every):
            status, said = ask(service.url, one)
            found.append(Case(one.name, status, shortly(said), one.judge(status, said)))
            progress(number + 1, len(every))
    return found


def cases(stream: str, head: str) -> list[Asked]:
    path, other = ("/embed", "/predict") if head == "embedding" else ("/predict", "/embed")
    path, other = f"/{stream}{path}", f"/{stream}{other}"
    ask_for = {"inputs": "a mean"}

    def one(name: str, body: Any, judge: Judge, **more: Any) -> Asked:
        return Asked(name, path, body if isinstance(body, bytes) else json.dumps(body).encode(), judge, **more)

    return [
        one("empty text", {"inputs": ""}, refused("inputs")),
        one("blank text", {"inputs": " \n\t "}, refused("inputs")),
        one("1 MB of text", {"inputs": "word " * 200_000}, refused("inputs")),
        one("long text that may not be cut", {"inputs": "word " * 3000, "truncate": False}, refused(None)),
        one("long text that may be cut", {"inputs": "word " * 3000, "truncate": True}, answered),
        one("nothing but control characters", {"inputs": "\x00\x01\x02"}, refused("inputs")),
        one("a lone surrogate", b'{"inputs": "a \\ud800 b"}', refused("inputs")),
        one("invalid UTF-8", b'{"inputs": "\xff\xfe\xfa"}', refused(None)),
        one("10,000 texts at once", {"inputs": [["a mean"]] * 10_000}, refused("inputs")),
        one("10,000 plain texts at once", {"inputs": ["a mean"] * 10_000}, refused("inputs")),
        one("no text in a list", {"inputs": []}, refused("inputs")),
        one("no inputs", {}, refused("inputs")),
        one("a number for a text", {"inputs": 7}, refused("inputs")),
        one("token numbers for a text", {"inputs": [[1, 2, 3]]}, refused("inputs")),
        one("null for a text", {"inputs": None}, refused("inputs")),
        one("a word for a flag", {**ask_for, "truncate": "perhaps"}, refused("truncate")),
        one("a direction that is none", {**ask_for, "truncation_direction": "up"}, refused("truncation_direction")),
        one("a deadline of 0", {**ask_for, "deadline": 0}, refused("deadline")),
        one("a deadline of a day", {**ask_for, "deadline": 86_400}, refused("deadline")),
        one("a deadline that is no number", {**ask_for, "deadline": "soon"}, refused("deadline")),
        one("a header's deadline that is none", ask_for, refused("deadline"), headers=(("x-pliant-deadline", "soon"),)),
        one("a deadline that nobody can meet", {**ask_for, "deadline": 1e-6}, overloaded),
        one("no JSON", b"{", refused(None)),
        one("a list for a body", b"[]", refused(None)),
        one("nested without end", b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", refused(None)),
        one("a text that is called a form", ask_for, refused(None), content="application/x-www-form-urlencoded"),
        one("GET", b"", refused_by_method, method="GET"),
        Asked("what this head does not do", other, json.dumps(ask_for).encode(), refused(None)),
        Asked("unknown stream", "/chess" + path[len(stream) + 1 :], json.dumps(ask_for).encode(), refused(None)),
        Asked("a model that OpenAI's clients name wrongly", "/v1/embeddings", _openai("gpt"), refused(None)),
        one("and then a good one", ask_for, answered),
    ]


def _openai(model: str) -> bytes:
    return json.dumps({"input": "a mean", "model": model}).encode()


def refused(field: str | None) -> Judge:
    """A 4xx with a message, in the shape of text-embeddings-inference or of OpenAI, that names the field where told."""

    def judge(status: int, said: Any) -> bool:
        told = message(said)
        return 400 <= status < 500 and status != 429 and bool(told) and (field is None or field in told)

    return judge


def refused_by_method(status: int, _said: Any) -> bool:
    return status in (404, 405)


def overloaded(status: int, said: Any) -> bool:
    """Too late before it began: refused for now, with a message, and not as somebody's mistake."""
    return status in (429, 503, 504) and bool(message(said))


def answered(status: int, said: Any) -> bool:
    return status == 200 and isinstance(said, list) and bool(said)


def message(said: Any) -> str:
    """Of an error in TEI's shape ({error, error_type}) or OpenAI's ({error: {message}}); empty if it is none."""
    error = said.get("error") if isinstance(said, Mapping) else None
    if isinstance(error, Mapping):
        return f"{error.get('message') or ''} {error.get('param') or ''}".strip()
    return error if isinstance(error, str) else ""


def ask(url: str, one: Asked) -> tuple[int, Any]:
    """Status (0: none) and what was said."""
    headers = {"content-type": one.content, **dict(one.headers)}
    body = None if one.method == "GET" else one.body
    request = urllib.request.Request(url + one.path, body, headers, method=one.method)
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


def shortly(said: Any) -> str:
    return message(said) or (f"a list of {len(said)}" if isinstance(said, list) else str(said))
