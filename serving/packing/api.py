"""The HTTP routes of the packing service: OpenAI's API, with its errors and streams, and vLLM's beside it.

They call the endpoint in `app.state.endpoint`. Besides /completions, /chat/completions and /models there are vLLM's
/tokenize and /detokenize: the tokens of a prompt or conversation as the model reads it, and back.

A stream ends early if the client disconnects or does not read. In ASGI, `receive` reports that a client has disconnected;
`send` waits while the connection's buffer is full because the client does not read.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from pliant.serving.http import openai, tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import add_refresh, add_status, arrival, complete, endpoint_of, json_response, new_app
from pliant.serving.http.app import guarded as answering
from pliant.serving.http.bodies import checked, given, ignored_header, read_fields
from pliant.serving.packing.bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeConversation, TokenizePrompt
from pliant.serving.packing.endpoint import PackingEndpoint
from pliant.serving.packing.reply import Reply
from pliant.serving.packing.request import (
    PromptInput,
    conversation,
    read_request,
    read_tools,
    unknown_fields,
    unknown_model,
)
from pliant.serving.packing.schemas import Status, options_of

logger = logging.getLogger("pliant.serving")

CODES = {**openai.CODES, "invalid": "invalid_value"}
CLIENT_CLOSED = 499  # of an answer whose client has disconnected
SUCCEEDED = ("stop", "length")
DONE = b"data: [DONE]\n\n"

Handle = Callable[[Request, PackingEndpoint], Awaitable[Response]]
T = TypeVar("T")


class DisconnectedError(Exception):
    """The client has closed the connection."""


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Return the result of `work`. If the client disconnects, cancel it and raise `DisconnectedError`."""
    task = asyncio.ensure_future(work)

    async def until_disconnect() -> None:  # after the body was read
        while (await receive())["type"] != "http.disconnect":
            pass

    disconnect = asyncio.create_task(until_disconnect())
    try:
        await asyncio.wait((task, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise DisconnectedError
        return task.result()
    finally:
        for waiting in (task, disconnect):
            waiting.cancel()
        await asyncio.gather(task, disconnect, return_exceptions=True)


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


async def models(_: Request, endpoint: PackingEndpoint) -> Response:
    return openai.models(endpoint.models())


async def model(request: Request, endpoint: PackingEndpoint) -> Response:
    name = request.path_params["model"]
    served = endpoint.models()
    if name not in served:
        raise unknown_model(name, served)
    return json_response(openai.model(name, served[name]))


def guarded(
    handle: Handle, endpoint_of: Callable[[Request], PackingEndpoint]
) -> Callable[[Request], Awaitable[Response]]:
    """Return a route that calls `handle` and answers errors in OpenAI's shape."""

    async def answer(request: Request, endpoint: PackingEndpoint) -> Response:
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


def generation(kind: type[CompletionBody] | type[ChatBody]) -> Handle:
    """Return what answers requests of this kind. A stream, too, starts after the first token, so that an earlier error has
    its own status.
    """

    async def answer(request: Request, endpoint: PackingEndpoint) -> Response:
        arrived = arrival(request, endpoint)
        fields = await read_fields(request, endpoint.settings)
        defaults = endpoint.defaults(fields.get("model"))
        fields = {**fields, **{name: value for name, value in defaults.items() if fields.get(name) is None}}
        body = await checked(request, read_request, fields, request.headers, kind, endpoint.settings)
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
            return EventStream(_events(reply), reply.cancel, endpoint.settings.stream_limit, reply.headers)
        headers = dict(reply.final_headers)
        if any(choice.logprobs is not None for choice in reply.choices):
            content = await while_connected(request.receive, reply.written())
            return Response(content, 200, headers, media_type="application/json")
        return json_response(reply.whole(), 200, headers)

    return answer


async def _events(reply: Reply) -> AsyncIterator[bytes]:
    """Yield the events of a stream. Text that arrives while an event is sent goes into one event."""
    for choice in reply.choices:
        first = reply.first(choice)
        if first is not None:
            yield _event(first)
        while (more := reply.more(choice)) is not None:
            yield _event(more)
            await asyncio.sleep(0)  # others are served in between
    open_choices = list(reply.choices)
    while open_choices:
        reply.changed.clear()
        for choice in list(open_choices):
            ended = bool(choice.output.finish)  # read before the text, which is then complete
            for part in choice.take():
                yield _event(reply.part(choice, part))
            if ended and choice.output.finish in SUCCEEDED:
                open_choices.remove(choice)
                yield _event(reply.last(choice))
        api_error = reply.api_error()
        if api_error is not None:
            yield _event({"error": openai.error_content(api_error, CODES)}) + DONE
            return
        if open_choices:
            await reply.changed.wait()
    if reply.request.usage:
        yield _event(reply.usage())
    yield DONE


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


async def tokenize(request: Request, endpoint: PackingEndpoint) -> Response:
    fields = given(await read_fields(request, endpoint.settings))
    kind: type[TokenizeConversation | TokenizePrompt]
    kind = TokenizeConversation if "messages" in fields else TokenizePrompt
    ignored = unknown_fields(fields, kind, endpoint.settings.strict_fields)
    body = await checked(request, kind.read, fields)
    if isinstance(body, TokenizeConversation):
        choice = fields.get("tool_choice", "auto")
        tools = read_tools(body.tools, fields.get("tools", ()), choice, parallel=True).tools
        prompt = conversation(body, fields, tools)
    else:
        assert isinstance(body, TokenizePrompt)
        prompt = PromptInput("prompt", text=body.prompt, special=body.add_special_tokens is not False)
    tokens = await endpoint.tokenize(body.model, prompt)
    content = {
        "count": len(tokens),
        "max_model_len": endpoint.context(body.model),
        "tokens": [id for id, _ in tokens],
        "token_strs": [text for _, text in tokens] if body.return_token_strs else None,
    }
    return json_response(content, 200, ignored_header(ignored))


async def detokenize(request: Request, endpoint: PackingEndpoint) -> Response:
    fields = given(await read_fields(request, endpoint.settings))
    ignored = unknown_fields(fields, DetokenizeBody, endpoint.settings.strict_fields)
    body = await checked(request, DetokenizeBody.read, fields)
    text = await endpoint.detokenize(body.model, body.tokens)
    return json_response({"prompt": text}, 200, ignored_header(ignored))


async def health(_: Request, endpoint: PackingEndpoint) -> Response:
    return tei.health(endpoint.ready)


POST_ROUTES = {"/completions": generation(CompletionBody), "/chat/completions": generation(ChatBody)}
GET_ROUTES = {"/models": models, "/models/{model:path}": model}
ROOT_ROUTES = {"/tokenize": tokenize, "/detokenize": detokenize, "/health": health}
"""Routes outside /v1, where clients of vLLM look for them."""


class NotFoundRoute(BaseRoute):
    """Answers 404 on all other paths. It matches partially, so that routes of BentoML come first."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.PARTIAL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await _answer_http_error(Request(scope, receive), HTTPException(404))
        await response(scope, receive, send)


def create_app(swagger: Path) -> FastAPI:
    """Return the app, to be mounted at /v1. `swagger` is a folder with the files of Swagger UI."""
    app = new_app("Pliant packing")
    add_status(app, Status)
    add_refresh(app)
    handlers = {path: guarded(handle, endpoint_of) for path, handle in {**POST_ROUTES, **GET_ROUTES}.items()}
    for path, handler in handlers.items():
        app.add_api_route(path, handler, name=path, **options_of(path))
    complete(app, {path: handlers[path] for path in POST_ROUTES}, swagger, lambda _path: error_response)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.router.routes.append(NotFoundRoute())
    return app


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`."""
    root = FastAPI(title=app.title, version=app.version, docs_url=None, redoc_url=None, openapi_url=None)
    root.state = app.state
    for path, handle in ROOT_ROUTES.items():
        root.add_api_route(path, guarded(handle, endpoint_of), name=path, **options_of(path))
    root.add_exception_handler(HTTPException, _answer_http_error)
    root.router.routes.append(NotFoundRoute())
    return root


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method in OpenAI's shape."""
    assert isinstance(error, HTTPException)
    endpoint_of(request).metrics.errored("http")
    message = f"{request.method} {request.url.path}: {error.detail}"
    return error_response(ApiError(error.status_code, "http", message, headers=error.headers))
