"""OpenAI's API for packing: /completions, /chat/completions and /models, with its errors and streams.

Besides vLLM's /tokenize and /detokenize: the tokens of a prompt or conversation as the model reads it, and back. The field
`pliant` in each finished choice is our own: predicted and actual length, queueing time, preemptions.

A stream ends early if the client disconnects or does not read. In ASGI, `receive` reports that a client has disconnected;
`send` waits while the connection's buffer is full because the client does not read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar
from uuid import uuid4

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pliant.packing.tools import ToolCall
from pliant.serving.http import openai, tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError, json_response
from pliant.serving.http.app import arrival
from pliant.serving.http.app import guarded as answering
from pliant.serving.http.bodies import checked, given, ignored_header, read_fields, shorten
from pliant.serving.packing.bodies import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
    TokenizeConversation,
    TokenizePrompt,
)
from pliant.serving.packing.reply import Choice, Reply
from pliant.serving.packing.request import Endpoint, PromptInput, conversation, read_request, read_tools, unknown_fields

logger = logging.getLogger("pliant.serving")

CODES = {**openai.CODES, "invalid": "invalid_value"}
CLIENT_CLOSED = 499  # of an answer whose client has disconnected
SUCCEEDED = ("stop", "length")
DONE = b"data: [DONE]\n\n"

Handle = Callable[[Request, Endpoint], Awaitable[Response]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form:
    """The shape of one request's answers: of /v1/completions, or of /v1/chat/completions (`chat`)."""

    chat: bool
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, reply: Reply) -> dict[str, Any]:
        """Return the whole answer, without log-probabilities. A message without a text beside its calls has none."""
        choices: list[dict[str, Any]] = []
        for index, choice in enumerate(reply.answered):
            parts = choice.take()
            text = "".join([part for part in parts if isinstance(part, str)])
            calls = [_call(part) for part in parts if isinstance(part, ToolCall)]
            message = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
            shown = {"message": {**message, "tool_calls": calls} if calls else message}
            fields = shown if self.chat else {"text": choice.echo + text if reply.info.echo else text}
            end = {"logprobs": None, "finish_reason": choice.finish_reason, "pliant": choice.details}
            choices.append({"index": index, **fields, **end})
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(reply, kind), "choices": choices, "usage": reply.usage}

    async def written(self, reply: Reply) -> bytes:
        """Return the whole answer as JSON, with log-probabilities, while the event loop serves others."""
        content, mark = self.whole(reply), uuid4().hex
        texts = []
        for choice, shown in zip(reply.answered, content["choices"], strict=True):
            if choice.logprobs is not None:
                shown["logprobs"] = mark
                async with choice.logprobs.turn:
                    texts.append(await choice.logprobs.written())
        head, *rest = json.dumps(content).split(f'"{mark}"')
        return "".join([head, *chain(*zip(texts, rest, strict=True))]).encode()

    def more(self, reply: Reply, choice: Choice) -> dict[str, Any] | None:
        """Return a chunk with more log-probabilities of the prompt, after the first chunk; None if there are no more."""
        logprobs = choice.logprobs and choice.logprobs.take_prompt()
        return self._chunk(reply, choice, {"text": "", "logprobs": logprobs}) if logprobs else None

    def first(self, reply: Reply, choice: Choice) -> dict[str, Any] | None:
        """Return the chunk that begins a choice, before its first token; None if there is none."""
        if self.chat:
            return self._chunk(reply, choice, {"delta": {"role": "assistant", "content": ""}, "logprobs": None})
        if not (reply.info.echo and choice.echo):
            return None
        logprobs = choice.logprobs and choice.logprobs.take_prompt()
        return self._chunk(reply, choice, {"text": choice.echo, "logprobs": logprobs})

    def part(self, reply: Reply, choice: Choice, part: str | ToolCall) -> dict[str, Any]:
        """Return a chunk with the next part of a choice's text or with a call, and with its log-probabilities."""
        if isinstance(part, ToolCall):
            index = next(choice.numbers)
            return self._chunk(reply, choice, {"delta": {"tool_calls": [{"index": index, **_call(part)}]}})
        return self._chunk(reply, choice, {"delta": {"content": part}} if self.chat else {"text": part})

    def last(self, reply: Reply, choice: Choice) -> dict[str, Any]:
        """Return the chunk that ends a choice, with its finish reason."""
        empty: Mapping[str, Any] = {"delta": {}} if self.chat else {"text": ""}
        return self._chunk(reply, choice, {**empty, "pliant": choice.details}, choice.finish_reason)

    def usage(self, reply: Reply) -> dict[str, Any]:
        """Return the last chunk of a stream, with the numbers of tokens."""
        return {**self._head(reply, self._kind), "choices": [], "usage": reply.usage}

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self.chat else "text_completion"

    def _head(self, reply: Reply, kind: str) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{reply.info.id}",
            "object": kind,
            "created": self.created,
            "model": reply.info.model,
            "system_fingerprint": reply.info.fingerprint,
        }

    def _chunk(
        self, reply: Reply, choice: Choice, fields: Mapping[str, Any], finish: str | None = None
    ) -> dict[str, Any]:
        logprobs = {} if "logprobs" in fields else {"logprobs": choice.logprobs and choice.logprobs.take()}
        content = {"index": choice.index, **fields, **logprobs, "finish_reason": finish}
        usage: Mapping[str, Any] = {"usage": None} if reply.info.usage else {}
        if reply.info.continuous_usage:
            usage = {"usage": reply.usage_of(choice)}
        return {**self._head(reply, self._kind), "choices": [content], **usage}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}


class DisconnectedError(Exception):
    """The client has closed the connection."""


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Return the result of `work`. If the client disconnects, cancel it and raise `DisconnectedError`."""
    task = asyncio.ensure_future(work)
    disconnect = asyncio.create_task(until_disconnect(receive))
    try:
        await asyncio.wait((task, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise DisconnectedError
        return task.result()
    finally:
        for waiting in (task, disconnect):
            waiting.cancel()
        await asyncio.gather(task, disconnect, return_exceptions=True)


async def until_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects. Called after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. `done` is called at the end in any case.

    `limit`: seconds in which the client must read each event, or the stream ends.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        done: Callable[[], None],
        limit: float,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-cache", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._events, self._done, self._limit = events, done, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            await while_connected(receive, self._send(send))
        except DisconnectedError:
            pass
        except TimeoutError:
            logger.warning("a client did not read its stream for %g s; its output is cancelled", self._limit)
        finally:
            self._done()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await self._within(send(start))
        async for event in self._events:
            await self._within(send({"type": "http.response.body", "body": event, "more_body": True}))
        await self._within(send({"type": "http.response.body", "body": b"", "more_body": False}))

    async def _within(self, sent: Awaitable[Any]) -> None:
        async with asyncio.timeout(self._limit):
            with suppress(OSError):  # the client has disconnected, which `receive` reports too
                await sent


async def completions(request: Request, endpoint: Endpoint) -> Response:
    return await _answer(request, endpoint, CompletionBody)


async def chat_completions(request: Request, endpoint: Endpoint) -> Response:
    return await _answer(request, endpoint, ChatBody)


async def models(_: Request, endpoint: Endpoint) -> Response:
    return openai.models(endpoint.models())


async def model(request: Request, endpoint: Endpoint) -> Response:
    name = request.path_params["model"]
    served = endpoint.models()
    if name not in served:
        raise unknown_model(name, served)
    return json_response(openai.model(name, served[name]))


def unknown_model(name: str, served: Mapping[str, Any]) -> ApiError:
    """Return the error for a model that is not served."""
    message = f"model is {shorten(name)}, but must be one of {', '.join(served)}"
    return ApiError(404, "model_not_found", message, "model")


def guarded(handle: Handle, endpoint_of: Callable[[Request], Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    """Return a route that calls `handle` and answers errors in OpenAI's shape."""

    async def answer(request: Request, endpoint: Endpoint) -> Response:
        try:
            return await handle(request, endpoint)
        except (DisconnectedError, ClientDisconnect):
            return Response(status_code=CLIENT_CLOSED)

    return answering(answer, endpoint_of, error_response)


def error_response(api_error: ApiError) -> Response:
    """Return an error in OpenAI's shape."""
    response = openai.error_response(api_error, CODES)
    if api_error.code == "engine_failed":  # OpenAI's client must not retry a request that may have killed the engine
        response.headers["x-should-retry"] = "false"
    return response


async def _answer(request: Request, endpoint: Endpoint, kind: type[CompletionBody] | type[ChatBody]) -> Response:
    """Answer a request. A stream, too, starts after the first token, so that an earlier error has its own status."""
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    defaults = endpoint.defaults(fields.get("model"))
    fields = {**fields, **{name: value for name, value in defaults.items() if fields.get(name) is None}}
    body = await checked(request, read_request, fields, request.headers, kind, endpoint.settings)
    form = Form(chat=kind is ChatBody)
    reply = await endpoint.open(replace(body, client=client_of(request)), arrived)
    try:
        await while_connected(request.receive, reply.until_begun() if body.stream else reply.until_over())
        api_error = reply.api_error()
        if api_error is not None:
            raise api_error
    except BaseException:
        reply.cancel()
        raise
    if body.stream:
        return EventStream(_events(form, reply), reply.cancel, endpoint.settings.stream_limit, reply.headers)
    headers = dict(reply.final_headers)
    if any(choice.logprobs is not None for choice in reply.choices):
        content = await while_connected(request.receive, form.written(reply))
        return Response(content, 200, headers, media_type="application/json")
    return json_response(form.whole(reply), 200, headers)


async def _events(form: Form, reply: Reply) -> AsyncIterator[bytes]:
    """Yield the events of a stream. Text that arrives while an event is sent goes into one event."""
    for choice in reply.choices:
        first = form.first(reply, choice)
        if first is not None:
            yield _event(first)
        while (more := form.more(reply, choice)) is not None:
            yield _event(more)
            await asyncio.sleep(0)  # others are served in between
    open_choices = list(reply.choices)
    while open_choices:
        reply.changed.clear()
        for choice in list(open_choices):
            ended = bool(choice.output.finish)  # read before the text, which is then complete
            for part in choice.take():
                yield _event(form.part(reply, choice, part))
            if ended and choice.output.finish in SUCCEEDED:
                open_choices.remove(choice)
                yield _event(form.last(reply, choice))
        api_error = reply.api_error()
        if api_error is not None:
            yield _event({"error": openai.error_content(api_error, CODES)}) + DONE
            return
        if open_choices:
            await reply.changed.wait()
    if reply.info.usage:
        yield _event(form.usage(reply))
    yield DONE


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def tokenize(request: Request, endpoint: Endpoint) -> Response:
    fields = given(await read_fields(request, endpoint.settings))
    kind: type[TokenizeConversation] | type[TokenizePrompt] = (
        TokenizeConversation if "messages" in fields else TokenizePrompt
    )
    ignored = unknown_fields(fields, kind, endpoint.settings.strict_fields)
    body = await checked(request, kind.read, fields)
    tokens = await endpoint.tokenize(body.model, _prompt(body, fields))
    content = {
        "count": len(tokens),
        "max_model_len": endpoint.context(body.model),
        "tokens": [id for id, _ in tokens],
        "token_strs": [text for _, text in tokens] if body.return_token_strs else None,
    }
    return json_response(content, 200, ignored_header(ignored))


def _prompt(body: TokenizeBody, fields: Mapping[str, Any]) -> PromptInput:
    if isinstance(body, TokenizeConversation):
        choice = fields.get("tool_choice", "auto")
        return conversation(body, fields, read_tools(body.tools, fields.get("tools", ()), choice, parallel=True).tools)
    assert isinstance(body, TokenizePrompt)
    return PromptInput("prompt", text=body.prompt, special=body.add_special_tokens is not False)


async def detokenize(request: Request, endpoint: Endpoint) -> Response:
    fields = given(await read_fields(request, endpoint.settings))
    ignored = unknown_fields(fields, DetokenizeBody, endpoint.settings.strict_fields)
    body = await checked(request, DetokenizeBody.read, fields)
    text = await endpoint.detokenize(body.model, body.tokens)
    return json_response({"prompt": text}, 200, ignored_header(ignored))


async def health(_: Request, endpoint: Endpoint) -> Response:
    return tei.health(endpoint.ready)
