"""Bad input against a real endpoint, whichever system's: requests, what each must be answered, and what it was answered."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import IO, Any

from benchmarks.results import Target

HEADINGS = ("input", "status", "answer", "")
TIMEOUT = 30.0  # seconds
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


def bar(found: Sequence[Case]) -> Target:
    name = "bad inputs that are refused with field and limit, or declared"
    return Target(name, sum(case.well for case in found), ">=", len(found))


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


def put(url: str, one: Asked, describe: Callable[[Any], str] | None = None) -> Case:
    """Send one request and judge its answer. `describe`: from an answer's JSON to its line in the table."""
    status, said = ask(url, one)
    return Case(one.name, status, (describe or shortly)(said), one.judge(status, said))


def shortly(said: Any) -> str:
    return message(said) or (f"a list of {len(said)}" if isinstance(said, list) else str(said))
