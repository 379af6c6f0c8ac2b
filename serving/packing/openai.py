"""The packing service in the shape of OpenAI's API: /completions, /chat/completions and /models.

After OpenAI's documentation of the API, of its errors {error: {message, type, param, code}} and of its streams. Knows HTTP;
what is done it leaves to the endpoint.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pliant.errors import PliantError
from serving.http.api_errors import RETRY_AFTER, ApiError, json_response, refusal_of
from serving.http.json_body import shorten
from serving.http.questions import read_fields
from serving.packing.answer import Form
from serving.packing.fields import read_question
from serving.packing.question import Endpoint
from serving.packing.reply import Reply
from serving.packing.stream import EventStream, GoneError, while_there

CODES: Mapping[str, str] = {"full": "rate_limit_exceeded", "invalid": "invalid_value"}
"""Our code -> OpenAI's."""
STATUS: Mapping[str, int] = {"invalid": 400, "too_many_texts": 400}
"""Of our code, where it is not our own status."""
GONE = 499  # of an answer that nobody gets
ANSWERS = ("stop", "length")
DONE = b"data: [DONE]\n\n"

Handle = Callable[[Request, Endpoint], Awaitable[Response]]


async def completions(request: Request, endpoint: Endpoint) -> Response:
    return await _answer(request, endpoint, "prompt")


async def chat_completions(request: Request, endpoint: Endpoint) -> Response:
    return await _answer(request, endpoint, "messages")


async def models(_: Request, endpoint: Endpoint) -> Response:
    told = [_model(name, created) for name, created in endpoint.models().items()]
    return json_response({"object": "list", "data": told})


async def model(request: Request, endpoint: Endpoint) -> Response:
    name = request.path_params["model"]
    served = endpoint.models()
    if name not in served:
        raise unknown_model(name, served)
    return json_response(_model(name, served[name]))


def unknown_model(name: str, served: Mapping[str, Any]) -> ApiError:
    told = f"model is {shorten(name)}, but must be one of {', '.join(served)}"
    return ApiError(404, "model_not_found", told, "model")


def guarded(handle: Handle, endpoint_of: Callable[[Request], Endpoint]) -> Callable[[Request], Awaitable[Response]]:
    """With errors in OpenAI's shape."""

    async def answer(request: Request) -> Response:
        endpoint = endpoint_of(request)
        try:
            return await handle(request, endpoint)
        except (GoneError, ClientDisconnect):
            return Response(status_code=GONE)
        except (ApiError, PliantError) as error:
            refusal = refusal_of(error)
            endpoint.metrics.refused(refusal.code)
            return error_response(refusal)

    return answer


def error_response(refusal: ApiError) -> Response:
    status = STATUS.get(refusal.code, refusal.status)
    headers = {"retry-after": RETRY_AFTER} if status in (429, 503) else {}
    if refusal.code == "engine_failed":  # OpenAI's client would try it again, and it may be what kills the engine
        headers["x-should-retry"] = "false"
    return json_response({"error": error_content(refusal)}, status, headers)


def error_content(refusal: ApiError) -> dict[str, Any]:
    status = STATUS.get(refusal.code, refusal.status)
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    code = CODES.get(refusal.code, refusal.code)
    return {"message": str(refusal), "type": kind, "param": refusal.field, "code": code}


async def _answer(request: Request, endpoint: Endpoint, prompt: str) -> Response:
    """The first token is waited for also where the answer is a stream: until then an error has a status of its own."""
    arrived = endpoint.now
    fields = await read_fields(request, endpoint.settings)
    question = read_question(fields, request.headers, prompt, endpoint.settings)
    form = Form(chat=prompt == "messages")
    reply = await endpoint.open(question, arrived)
    try:
        await while_there(request.receive, reply.until(_begun if question.stream else _ended))
        refusal = reply.refusal()
        if refusal is not None:
            raise refusal
    except BaseException:
        reply.cancel()
        raise
    if question.stream:
        return EventStream(_pieces(form, reply), reply.cancel, endpoint.settings.stream_limit, reply.headers)
    return json_response(form.whole(reply), 200, dict(reply.final_headers))


def _begun(reply: Reply) -> bool:
    return reply.begun


def _ended(reply: Reply) -> bool:
    """One that is no answer ends the waiting for the others."""
    return reply.ended or reply.refusal() is not None


async def _pieces(form: Form, reply: Reply) -> AsyncIterator[bytes]:
    """What gathers while a piece is being sent goes as one."""
    for output in reply.outputs:
        first = form.first(reply, output)
        if first is not None:
            yield _event(first)
    open_outputs = list(reply.outputs)
    while open_outputs:
        reply.changed.clear()
        for output in list(open_outputs):
            ended = bool(output.flight.finish)  # asked before its text is taken, which is whole then
            text = output.flight.writer.take()
            if text:
                yield _event(form.text(reply, output, text))
            if ended and output.flight.finish in ANSWERS:
                open_outputs.remove(output)
                yield _event(form.last(reply, output))
        refusal = reply.refusal()
        if refusal is not None:
            yield _event({"error": error_content(refusal)}) + DONE
            return
        if open_outputs:
            await reply.changed.wait()
    if reply.about.usage:
        yield _event(form.usage(reply))
    yield DONE


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _model(name: str, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "pliant"}
