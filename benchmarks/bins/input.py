"""Bad input against a real endpoint of the bins: each must get a 4xx that says what and the limit, in its API's own shape.

Works with whatever the champion's only stream is; where it is an embedding the questions go to /embed, else to /predict.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.bad_input import Asked, Case, Judge, message, put
from benchmarks.endpoint import serving
from flows import settings
from flows.bins import live
from pliant.bins.artifact import Encoder
from pliant.errors import RegistryError
from pliant.progress import Progress, silent


def live_stream(told: settings.Settings) -> tuple[str, Encoder]:
    """The name and the encoder of the first stream that is served. Raises `RegistryError` without one."""
    registry = live.open_registry(told)
    found = live.live(registry)
    if not found:
        raise RegistryError("the registry holds no champion of the bins system: run `pliant train bins` first")
    name = min(found)
    return name, live.encoder(registry, found[name])[0]


def measure(progress: Progress = silent, told: settings.Settings | None = None) -> list[Case]:
    """Against the champion's service, and at the end a good question, which must be answered."""
    told = told or settings.read()
    name, encoder = live_stream(told)
    every, found = cases(name, encoder.head), []
    with serving("bins", told=told) as service:
        for number, one in enumerate(every):
            found.append(put(service.url, one))
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
