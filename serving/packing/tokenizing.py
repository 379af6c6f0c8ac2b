"""vLLM's POST /tokenize and /detokenize: the tokens of a prompt or conversation as the model reads it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from serving.http import tei
from serving.http.api_errors import json_response
from serving.http.ignored import header_of
from serving.http.json_body import shorten
from serving.http.large_body import checked
from serving.http.routing import read_fields
from serving.packing.fields import model_name, read_chat_prompt, unknown_fields
from serving.packing.prompt_fields import prompts, token_ids
from serving.packing.request import Endpoint, PromptInput
from serving.packing.tool_fields import read_tools
from serving.packing.values import flag


async def tokenize(request: Request, endpoint: Endpoint) -> Response:
    fields = await read_fields(request, endpoint.settings)
    fields = {name: value for name, value in fields.items() if value is not None}
    prompt = await checked(request, _read_prompt, fields)
    route = "tokenize conversation" if prompt.messages else "tokenize"
    ignored = unknown_fields(fields, route, endpoint.settings.strict_fields)
    model, strings = model_name(fields.get("model")), flag(fields, "return_token_strs")
    tokens = await endpoint.tokenize(model, prompt)
    content = {
        "count": len(tokens),
        "max_model_len": endpoint.context(model),
        "tokens": [id for id, _ in tokens],
        "token_strs": [text for _, text in tokens] if strings else None,
    }
    return json_response(content, 200, header_of(ignored))


async def detokenize(request: Request, endpoint: Endpoint) -> Response:
    fields = await read_fields(request, endpoint.settings)
    fields = {name: value for name, value in fields.items() if value is not None}
    ignored = unknown_fields(fields, "detokenize", endpoint.settings.strict_fields)
    tokens = fields.get("tokens")
    if not isinstance(tokens, list):
        raise InputError("tokens", "missing" if tokens is None else shorten(tokens), "a list of token ids")
    ids = token_ids("tokens", tokens).ids if tokens else ()
    text = await endpoint.detokenize(model_name(fields.get("model")), ids)
    return json_response({"prompt": text}, 200, header_of(ignored))


async def health(_: Request, endpoint: Endpoint) -> Response:
    return tei.health(endpoint.ready)


def _read_prompt(fields: Mapping[str, Any]) -> PromptInput:
    if "messages" in fields:
        return read_chat_prompt(fields, read_tools(fields))
    if not isinstance(fields.get("prompt"), str):
        shown = shorten(fields["prompt"]) if "prompt" in fields else "missing"
        raise InputError("prompt", shown, "a text, or messages must be given instead")
    return prompts(fields["prompt"], 1, flag(fields, "add_special_tokens", True))[0]
