"""Bad input against a real endpoint of packing: an error in OpenAI's shape, or a clean end; and no page is ever lost.

Works with whatever the champion is. Behind the single cases comes a soak of many mixed requests (soak.py).
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.bad_input import HEADINGS, Asked, Case, Judge, put
from benchmarks.endpoint import serving
from benchmarks.packing.soak import GONE, Books, Soaked, exchange, settled, soak, status_of
from benchmarks.results import Target
from flows import settings
from flows.packing import live as packing_live
from pliant.errors import RegistryError
from pliant.progress import Progress, share, silent

__all__ = ["HEADINGS", "Found", "cases", "live", "measure"]

SOAK = 2000  # requests
STREAM_LIMIT = 2.0  # seconds that the service gives a client that does not read
BUFFER_BYTES = 4096  # of such a client's socket
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
SHAPE = {"message", "type", "param", "code"}


@dataclass(frozen=True, slots=True)
class Found:
    cases: Sequence[Case]
    books: Mapping[str, Books] = field(default_factory=dict)  # after what
    soaked: Soaked | None = None

    def targets(self) -> list[Target]:
        well = sum(case.well for case in self.cases)
        targets = [Target("bad inputs with an error in OpenAI's shape, or a clean end", well, ">=", len(self.cases))]
        if self.soaked is not None:
            targets.append(Target("requests of the soak that ended as they should", self.soaked.well, ">=", SOAK))
            targets.append(Target("pages in use after the soak", self.soaked.books.pages_used, "<=", 0))
            targets.append(Target("books that balance after the soak", float(self.soaked.books.well), ">=", 1))
        return targets

    def plain(self) -> dict[str, Any]:
        soaked = self.soaked.plain() if self.soaked else None
        return {
            "cases": [asdict(case) for case in self.cases],
            "books": {after: asdict(books) for after, books in self.books.items()},
            "soak": soaked,
        }


def live(told: settings.Settings) -> Sequence[str]:
    """The models that are served. Raises `RegistryError` without one."""
    found = sorted(packing_live.champion(told))
    if not found:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    return found


def measure(progress: Progress = silent, told: settings.Settings | None = None, count: int = SOAK) -> Found:
    """Against the champion's service; at the end of the single cases a good question, which must be answered."""
    told = told or settings.read()
    live(told)
    with serving("packing", told=told, stream_limit=STREAM_LIMIT, refresh_seconds=0.0) as service:
        model, *_ = status_of(service.url)["models"]
        name, context = model["name"], model["context"]
        asked = cases(name, context)
        found = [put(service.url, one) for one in asked]
        books = {}
        for after, misbehave in (("gone in its stream", _leave), ("never reads", _never_read)):
            what = asyncio.run(misbehave(service.url, name, context))
            books[after] = asyncio.run(settled(service.url))
            found.append(Case(f"a client that {after}", 0, f"{what}; {books[after]}", books[after].well))
        found.append(put(service.url, asked[-1]))
        progress(1, 10)
        soaked = soak(service.url, name, count, progress=share(progress, 10, 100))
    return Found(found, books, soaked)


def cases(model: str, context: int) -> list[Asked]:
    def text(name: str, judge: Judge, raw: bytes | None = None, **told: Any) -> Asked:
        fields = {"model": model, "prompt": "Return the", "max_tokens": 4, **told}
        return Asked(name, TEXT, json.dumps(fields).encode() if raw is None else raw, judge)

    def chat(name: str, judge: Judge, messages: Any, **told: Any) -> Asked:
        fields = {"model": model, "messages": messages, "max_tokens": 4, **told}
        return Asked(name, CHAT, json.dumps(fields).encode(), judge)

    too_long = refused("prompt", "context_length_exceeded")
    malformed = refused(None, "malformed")
    return [
        text("a prompt longer than the context", too_long, prompt="word " * context),
        text("a prompt of 100 kB", too_long, prompt="word " * 20_000),
        text("token ids that fill the context", too_long, prompt=[5] * context),
        text("max_tokens of 0", refused("max_tokens"), max_tokens=0),
        text("max_tokens above the limit", refused("max_tokens", "context_length_exceeded"), max_tokens=context + 1),
        text("max_tokens that is no number", refused("max_tokens"), max_tokens="many"),
        text("unknown model", refused("model", "model_not_found"), model="none"),
        text("malformed JSON", malformed, raw=b'{"prompt": "a"'),
        text("a list for a body", malformed, raw=b"[]"),
        text("invalid UTF-8", malformed, raw=b'{"prompt": "\xff\xfe"}'),
        text("nested without end", malformed, raw=b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        text("a lone surrogate", refused("prompt"), raw=b'{"prompt": "a \\ud800 b"}'),
        text("10,000 stop strings", refused("stop"), stop=[f"stop {number}" for number in range(10_000)]),
        text("an empty stop string", refused("stop"), stop=""),
        text("10,000 prompts", refused("prompt"), prompt=["a"] * 10_000),
        text("10,000 choices", refused("n"), n=10_000),
        text("no prompt", refused("prompt"), prompt=None),
        text("an empty prompt", refused("prompt"), prompt=[]),
        text("a token that there is not", refused("prompt"), prompt=[10**9]),
        text("a temperature of 100", refused("temperature"), temperature=100),
        text("a top_p of 0", refused("top_p"), top_p=0),
        text("a seed that is no whole number", refused("seed"), seed=0.5),
        text("what is not supported", refused("logprobs", "unsupported_parameter"), logprobs=5),
        text("what there is not", refused("temprature", "unknown_parameter"), temprature=1),
        text("a deadline of a day", refused("deadline"), deadline=86_400),
        text("a deadline that nobody can meet", overloaded, deadline=1e-6),
        chat("no messages", refused("messages"), []),
        chat("a message without content", refused("messages[0].content"), [{"role": "user"}]),
        chat("a role that there is not", refused("messages[0].role"), [{"role": "king", "content": "a"}]),
        chat("an image", refused("messages[0].content[0]"), [{"role": "user", "content": [{"type": "image_url"}]}]),
        chat("tools", refused("tools", "unsupported_parameter"), [{"role": "user", "content": "a"}], tools=[{}]),
        Asked("GET", TEXT, b"", refused(None), method="GET"),
        Asked("no JSON's type", TEXT, b"a=b", refused("content-type"), "application/x-www-form-urlencoded"),
        Asked("another address", "/v1/nothing", b"{}", refused(None)),
        text("and then a good one", answered),
    ]


def refused(field: str | None, code: str | None = None) -> Judge:
    """A 4xx with an error as OpenAI has them, that names the field and the code where told."""

    def judge(status: int, said: Any) -> bool:
        error = _error(said)
        named = error.get("param") == field or field is None
        return 400 <= status < 500 and status != 429 and bool(error.get("message")) and named and _is(error, code)

    return judge


def overloaded(status: int, said: Any) -> bool:
    """Too late before it began: refused for now, and not as somebody's mistake."""
    return status == 503 and _is(_error(said), "late")


def answered(status: int, said: Any) -> bool:
    return status == 200 and isinstance(said, dict) and bool(said.get("choices"))


def _error(said: Any) -> Mapping[str, Any]:
    """Empty where it has not OpenAI's shape."""
    error = said.get("error") if isinstance(said, dict) else None
    return error if isinstance(error, dict) and set(error) == SHAPE else {}


def _is(error: Mapping[str, Any], code: str | None) -> bool:
    return bool(error) and code in (None, error["code"])


async def _leave(url: str, model: str, context: int) -> str:
    """In the middle of a stream."""
    fields = {"model": model, "prompt": "Return the", "max_tokens": context // 2, "stream": True, "n": 4}
    status, came = await exchange(url, TEXT, json.dumps(fields).encode(), reads=300)
    assert status == GONE
    return f"went after {len(came)} bytes"


async def _never_read(url: str, model: str, context: int) -> str:
    """Asks for much, with the smallest buffer that there is, and keeps the connection open while the service settles."""
    where = urlsplit(url)
    fields = {"model": model, "prompt": "Return the", "max_tokens": context // 2, "stream": True, "n": 32}
    body = json.dumps(fields).encode()
    with socket.socket() as silent_one:
        silent_one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        silent_one.connect((where.hostname or "", where.port or 0))
        head = (
            f"POST {TEXT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        silent_one.sendall(head.encode() + body)
        books = await settled(url)
    return f"settled with {books.pages_used} pages while it was still there"
