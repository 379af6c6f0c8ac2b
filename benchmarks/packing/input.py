"""Bad input against a real endpoint of packing: an error in OpenAI's shape, or a clean end; and no page is ever lost.

Works with whatever the champion is. Behind the single cases comes a soak of many mixed requests (soak.py).
"""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPException
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarks.endpoint import serving
from benchmarks.packing.soak import GONE, Books, Soaked, exchange, settled, soak, status_of
from benchmarks.results import Target
from flows.settings import Settings
from pliant.progress import Progress, share, silent

HEADINGS = ("input", "status", "answer", "")
TIMEOUT = 30.0  # seconds
JSON = "application/json"
Judge = Callable[[int, Any], bool]
SOAK = 2000  # requests
STREAM_LIMIT = 2.0  # seconds that the service gives a client that does not read
BUFFER_BYTES = 4096  # of such a client's socket
TOOLS_CONTEXT = 1024  # tokens of a model that can be told of tools
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"
SHAPE = {"message", "type", "param", "code"}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    status: int
    said: str
    well: bool

    def row(self) -> tuple[str, ...]:
        return self.name, str(self.status), self.said[:110], "well" if self.well else "not as it should be"


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request that should end as `judge` says. `path`: below the service's address."""

    name: str
    path: str
    body: bytes
    judge: Judge
    content: str = JSON
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class InputResult:
    cases: Sequence[Case]
    books: Mapping[str, Books]  # after what
    soaked: Soaked

    def targets(self) -> list[Target]:
        well = sum(case.well for case in self.cases)
        return [
            Target("bad inputs with an error in OpenAI's shape, or a clean end", well, ">=", len(self.cases)),
            Target("requests of the soak that ended as they should", self.soaked.well, ">=", SOAK),
            Target("pages in use after the soak", self.soaked.books.pages_used, "<=", 0),
            Target("books that balance after the soak", float(self.soaked.books.well), ">=", 1),
        ]

    def plain(self) -> dict[str, Any]:
        books = {after: asdict(books) for after, books in self.books.items()}
        return {"cases": [asdict(case) for case in self.cases], "books": books, "soak": self.soaked.plain()}


def measure(progress: Progress = silent, project: Settings | None = None, count: int = SOAK) -> InputResult:
    """Misuse the champion's service; at the end of the single cases comes a good request, which must be answered."""
    with serving("packing", project=project, stream_limit=STREAM_LIMIT, refresh_seconds=0.0) as url:
        model, *_ = status_of(url)["models"]
        name, context = model["name"], model["context"]
        requests = cases(name, context)
        ended = [judge(url, request) for request in requests]
        books = {}
        for after, misbehave in (("gone in its stream", _leave), ("never reads", _never_read)):
            what = asyncio.run(misbehave(url, name, context))
            books[after] = asyncio.run(settled(url))
            ended.append(Case(f"a client that {after}", 0, f"{what}; {books[after]}", books[after].well))
        ended.append(judge(url, requests[-1]))
        progress(1, 10)
        soaked = soak(url, name, count, progress=share(progress, 10, 100))
    return InputResult(ended, books, soaked)


def cases(model: str, context: int) -> list[BadRequest]:
    """Return the requests; the last one is good."""

    def text(name: str, judge: Judge, raw: bytes | None = None, **changed: Any) -> BadRequest:
        fields = {"model": model, "prompt": "Return the", "max_tokens": 4, **changed}
        return BadRequest(name, TEXT, json.dumps(fields).encode() if raw is None else raw, judge)

    def chat(name: str, judge: Judge, messages: Any, **more: Any) -> BadRequest:
        fields = {"model": model, "messages": messages, "max_tokens": 4, **more}
        return BadRequest(name, CHAT, json.dumps(fields).encode(), judge)

    said = [{"role": "user", "content": "a"}]
    tool, bad_tool = (
        {"type": "function", "function": {"name": "add", "parameters": {"type": kind}}} for kind in ("object", "objekt")
    )
    with_tools = [
        chat("a schema of a tool that is none", refused("tools"), said, tools=[bad_tool], tool_choice="required"),
        chat("a call that is cut by max_tokens", answered, said, tools=[tool], tool_choice="required"),
    ]
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
        text("what is not supported", refused("suffix", "unsupported_parameter"), suffix="end"),
        text("log-probabilities of 21 tokens", refused("logprobs"), logprobs=21),
        text("a penalty of minus three", refused("presence_penalty"), presence_penalty=-3),
        text("a penalty that is no number", refused("frequency_penalty"), frequency_penalty=float("nan")),
        text("a bias for a token that there is not", refused("logit_bias"), logit_bias={str(10**8): 1}),
        text("a bias beyond its limit", refused("logit_bias[5]"), logit_bias={"5": 101}),
        text("a stop token that there is not", refused("stop_token_ids"), stop_token_ids=[10**8]),
        text("more tokens than the most", refused("min_tokens"), min_tokens=5),
        text("a target of 0", refused("slo_ttft_ms"), slo_ttft_ms=0),
        text("a schema that is none", refused("response_format"), response_format=schema({"type": "objekt"})),
        text("a schema without an end", refused("response_format"), response_format=schema({"$ref": "#/missing"})),
        text("a broken regular expression", refused("structured_outputs"), structured_outputs={"regex": "("}),
        text("a deadline of a day", refused("deadline"), deadline=86_400),
        text("a deadline that nobody can meet", overloaded, deadline=1e-6),
        chat("no messages", refused("messages"), []),
        chat("a message without content", refused("messages[0].content"), [{"role": "user"}]),
        chat("a role that there is not", refused("messages[0].role"), [{"role": "king", "content": "a"}]),
        chat("an image", refused("messages[0].content[0]"), [{"role": "user", "content": [{"type": "image_url"}]}]),
        chat("a tool without a name", refused("tools[0].function"), said, tools=[{}]),
        chat(
            "a tool that is none of the tools", refused("tool_choice"), said, tools=[tool], tool_choice=named("other")
        ),
        *(with_tools if context >= TOOLS_CONTEXT else ()),
        chat("arguments that are no JSON", refused("messages[0].tool_calls[0].function.arguments"), [called("{")]),
        BadRequest("GET", TEXT, b"", refused(None), method="GET"),
        BadRequest("no JSON's type", TEXT, b"a=b", refused("content-type"), "application/x-www-form-urlencoded"),
        BadRequest("another address", "/v1/nothing", b"{}", refused(None)),
        text("and then a good one", answered),
    ]


def schema(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response format with this JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": content}}


def named(name: str) -> dict[str, Any]:
    """Return the choice of one tool."""
    return {"type": "function", "function": {"name": name}}


def called(arguments: str) -> dict[str, Any]:
    """Return an assistant's message with a call."""
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def send(url: str, bad: BadRequest) -> tuple[int, Any]:
    """Return the status (0: none) and the answer's JSON, or what went wrong."""
    body = None if bad.method == "GET" else bad.body
    request = urllib.request.Request(url + bad.path, body, {"content-type": bad.content}, method=bad.method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            return response.status, _read(response)
    except urllib.error.HTTPError as error:
        return error.code, _read(error)
    except (OSError, HTTPException) as error:  # hung up, or said nothing in time: no answer at all
        return 0, f"{type(error).__name__}: {error}"


def _read(response: IO[bytes]) -> Any:
    """Return the answer's JSON; None where it is none."""
    try:
        return json.load(response)
    except ValueError:
        return None


def judge(url: str, bad: BadRequest) -> Case:
    """Send one request and judge its answer."""
    status, answer = send(url, bad)
    return Case(bad.name, status, shortly(answer), bad.judge(status, answer))


def shortly(answer: Any) -> str:
    """Return the message and the field of an error in OpenAI's shape, or the answer itself."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if isinstance(error, Mapping):
        return f"{error.get('message') or ''} {error.get('param') or ''}".strip()
    return str(answer)


def refused(field: str | None, code: str | None = None) -> Judge:
    """Accept a 4xx with an error as OpenAI has them, that names the field and the code where they are given."""

    def accept(status: int, answer: Any) -> bool:
        error = _error(answer)
        named = error.get("param") == field or field is None
        return 400 <= status < 500 and status != 429 and bool(error.get("message")) and named and _is(error, code)

    return accept


def overloaded(status: int, answer: Any) -> bool:
    """Accept a request that is too late before it began: refused for now, and not as somebody's mistake."""
    return status == 503 and _is(_error(answer), "late")


def answered(status: int, answer: Any) -> bool:
    """Accept an answer with choices."""
    return status == 200 and isinstance(answer, dict) and bool(answer.get("choices"))


def _error(answer: Any) -> Mapping[str, Any]:
    """Return the error of an answer; empty where it has not OpenAI's shape."""
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) and set(error) == SHAPE else {}


def _is(error: Mapping[str, Any], code: str | None) -> bool:
    return bool(error) and code in (None, error["code"])


async def _leave(url: str, model: str, context: int) -> str:
    """Go in the middle of a stream."""
    fields = {"model": model, "prompt": "Return the", "max_tokens": context // 2, "stream": True, "n": 4}
    status, came = await exchange(url, TEXT, json.dumps(fields).encode(), reads=300)
    assert status == GONE
    return f"went after {len(came)} bytes"


async def _never_read(url: str, model: str, context: int) -> str:
    """Ask for much, with the smallest buffer that there is, and keep the connection open while the service settles."""
    where = urlsplit(url)
    fields = {"model": model, "prompt": "Return the", "max_tokens": context // 2, "stream": True, "n": 32}
    body = json.dumps(fields).encode()
    with socket.socket() as silent_one:
        silent_one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        silent_one.connect((where.hostname or "", where.port or 0))
        kind = f"content-type: application/json\r\ncontent-length: {len(body)}"
        head = f"POST {TEXT} HTTP/1.1\r\nhost: localhost\r\n{kind}\r\n\r\n"
        silent_one.sendall(head.encode() + body)
        books = await settled(url)
    return f"settled with {books.pages_used} pages while it was still there"
