"""vLLM's POST /tokenize and /detokenize: the tokens of a prompt or conversation as the model reads it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from serving.http import tei
from serving.http.api_errors import json_response
from serving.http.bodies import given, ignored_header
from serving.http.large_body import checked
from serving.http.routing import read_fields
from serving.packing.bodies import DetokenizeBody, TokenizeBody, TokenizeConversation, TokenizePrompt
from serving.packing.fields import conversation, read_tools, unknown_fields
from serving.packing.request import Endpoint, PromptInput


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
