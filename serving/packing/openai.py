"""OpenAI's API for packing: /completions, /chat/completions and /models, with its errors and streams.

Besides vLLM's /tokenize and /detokenize: the tokens of a prompt or conversation as the model reads it, and back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pliant.serving.http import openai, routing, tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError, json_response
from pliant.serving.http.bodies import given, ignored_header
from pliant.serving.http.json_body import checked, shorten
from pliant.serving.http.routing import arrival, read_fields
from pliant.serving.packing.answer import Form
from pliant.serving.packing.bodies import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    TokenizeBody,
    TokenizeConversation,
    TokenizePrompt,
)
from pliant.serving.packing.fields import conversation, read_request, read_tools, unknown_fields
from pliant.serving.packing.reply import Reply
from pliant.serving.packing.request import Endpoint, PromptInput
from pliant.serving.packing.stream import DisconnectedError, EventStream, while_connected

CODES = {**openai.CODES, "invalid": "invalid_value"}
CLIENT_CLOSED = 499  # of an answer whose client has disconnected
SUCCEEDED = ("stop", "length")
DONE = b"data: [DONE]\n\n"

Handle = Callable[[Request, Endpoint], Awaitable[Response]]


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

    return routing.guarded(answer, endpoint_of, error_response)


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
        await while_connected(request.receive, reply.until(_begun if body.stream else _ended))
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


def _begun(reply: Reply) -> bool:
    return reply.begun


def _ended(reply: Reply) -> bool:
    """Whether all choices have ended, or one has failed."""
    return reply.ended or reply.api_error() is not None


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
