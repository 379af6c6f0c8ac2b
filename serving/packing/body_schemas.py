"""Schemas of the bodies that the packing service takes, for its OpenAPI page only: nothing is parsed with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pliant.packing.chat import REASONING
from pliant.packing.scheduling.request import MAX_PRIORITY
from serving.packing.fields import MAX_CHOICES, STREAM_OPTIONS
from serving.packing.prompt_fields import ROLES
from serving.packing.sampling_fields import MAX_BIAS, MAX_LOGPROBS, MAX_PENALTY, MAX_STOPS, STOP_CHARACTERS
from serving.packing.tool_fields import CHOICES, MAX_TOOLS, NAME

_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_PROMPT = {
    "oneOf": [
        {"type": "string"},
        _IDS,
        {"type": "array", "items": {"oneOf": [{"type": "string"}, _IDS]}, "minItems": 1},
    ],
    "description": "a text, token ids of the model's own tokenizer, or a list of these",
}
_PART = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"type": "string", "enum": ["text"]}, "text": {"type": "string"}},
}
_CONTENT = {"oneOf": [{"type": "string"}, {"type": "array", "items": _PART}]}
_FUNCTION_NAME = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_CALL = {
    "type": "object",
    "required": ["function"],
    "properties": {
        "id": {"type": "string"},
        "type": {"type": "string", "enum": ["function"]},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": _FUNCTION_NAME,
                "arguments": {"oneOf": [{"type": "string"}, {"type": "object"}], "description": "JSON of an object"},
            },
        },
    },
}


def _message(required: Sequence[str], fields: Mapping[str, Any], *roles: str) -> Mapping[str, Any]:
    properties = {"role": {"type": "string", "enum": list(roles)}, "name": {"type": "string"}, **fields}
    return {
        "type": "object",
        "required": ["role", *required],
        "additionalProperties": False,
        "properties": properties,
    }


_CALLS = {"type": "array", "items": _CALL, "description": "as they were answered"}
_REASONING = {name: {"type": "string"} for name in REASONING}
_MESSAGE = {
    "oneOf": [
        _message(("content",), {"content": _CONTENT}, *(role for role in ROLES if role not in ("assistant", "tool"))),
        _message(("content",), {"content": _CONTENT, **_REASONING}, "assistant"),
        _message(
            ("tool_calls",),
            {
                "content": {"oneOf": [*_CONTENT["oneOf"], {"type": "null"}]},
                "tool_calls": {**_CALLS, "minItems": 1},
                **_REASONING,
            },
            "assistant",
        ),
        _message(
            ("content",),
            {
                "content": _CONTENT,
                "tool_call_id": {"type": "string", "description": "the call whose result it is"},
            },
            "tool",
        ),
    ]
}
_TOOLS: Mapping[str, Any] = {
    "tools": {
        "type": "array",
        "maxItems": MAX_TOOLS,
        "items": {
            "type": "object",
            "required": ["function"],
            "properties": {
                "type": {"type": "string", "enum": ["function"]},
                "function": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": _FUNCTION_NAME,
                        "description": {"type": "string"},
                        "parameters": {"type": "object", "description": "JSON schema of the arguments"},
                    },
                },
            },
        },
    },
    "tool_choice": {
        "oneOf": [{"type": "string", "enum": list(CHOICES)}, {"type": "object"}],
        "default": "auto",
        "description": "an object names a function: {type: function, function: {name: ...}}",
    },
    "parallel_tool_calls": {"type": "boolean", "default": True},
}
_SCHEMA = {"type": "object", "description": "a JSON schema"}


def _form(kind: str, **fields: Any) -> Mapping[str, Any]:
    properties = {"type": {"type": "string", "enum": [kind]}, **fields}
    return {"type": "object", "required": ["type"], "properties": properties}


def _single(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "required": [name], "additionalProperties": False, "properties": {name: schema}}


_STOP = {"type": "string", "minLength": 1, "maxLength": STOP_CHARACTERS}
_COMMON: Mapping[str, Any] = {
    "model": {"type": "string", "description": "optional if only one is served"},
    "max_tokens": {"type": "integer", "minimum": 1, "description": "default: as many as the context leaves"},
    "temperature": {
        "type": "number",
        "minimum": 0,
        "maximum": 2,
        "default": 1.0,
        "description": "0: always the likeliest token",
    },
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 1.0},
    "top_k": {"type": "integer", "minimum": -1, "default": 0, "description": "vLLM's; 0 or -1: all tokens"},
    "min_p": {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "default": 0.0,
        "description": "vLLM's: excludes tokens with less than this share of the likeliest one's probability",
    },
    "repetition_penalty": {
        "type": "number",
        "exclusiveMinimum": 0,
        "default": 1.0,
        "description": "vLLM's: divides positive scores of tokens in the prompt or output, and multiplies negative ones",
    },
    "frequency_penalty": {"type": "number", "minimum": -MAX_PENALTY, "maximum": MAX_PENALTY, "default": 0.0},
    "presence_penalty": {"type": "number", "minimum": -MAX_PENALTY, "maximum": MAX_PENALTY, "default": 0.0},
    "logit_bias": {
        "type": "object",
        "additionalProperties": {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS},
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "description": "by token id",
    },
    "min_tokens": {"type": "integer", "minimum": 0, "default": 0, "description": "vLLM's: nothing ends it before"},
    "stop_token_ids": {"type": "array", "items": {"type": "integer", "minimum": 0}, "description": "vLLM's"},
    "ignore_eos": {"type": "boolean", "default": False, "description": "vLLM's: the model's end tokens end nothing"},
    "add_special_tokens": {"type": "boolean", "description": "vLLM's: of the tokenizer"},
    "response_format": {
        "oneOf": [
            _form("text"),
            _form("json_object", value=_SCHEMA),
            {
                **_form(
                    "json_schema",
                    json_schema={
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "schema": _SCHEMA,
                            "strict": {"type": ["boolean", "null"]},
                        },
                    },
                ),
                "required": ["type", "json_schema"],
            },
        ],
        "description": "outputs that are JSON, or JSON of a schema; value is text-generation-inference's",
    },
    "structured_outputs": {
        "oneOf": [
            _single("json", _SCHEMA),
            _single("json_object", {"type": "boolean", "enum": [True]}),
            _single("regex", {"type": "string", "minLength": 1}),
            _single("choice", {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}),
            _single("grammar", {"type": "string", "minLength": 1, "description": "llguidance's dialect of Lark"}),
        ],
        "description": "vLLM's: what outputs keep to",
    },
    "n": {"type": "integer", "minimum": 1, "maximum": MAX_CHOICES, "default": 1},
    "stream": {"type": "boolean", "default": False},
    "stream_options": {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {"type": "boolean"} for name in STREAM_OPTIONS},
        "description": "for streams only",
    },
    "stop": {"oneOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}]},
    "seed": {"type": "integer", "description": "the same seed gives the same text, whatever else runs"},
    "deadline": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "an extension: seconds from arrival; default: the header x-pliant-deadline, else none",
    },
    "slo_ttft_ms": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "an extension: target of the milliseconds to the first token; default: x-slo-ttft-ms, a header",
    },
    "slo_tpot_ms": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "an extension: target of the milliseconds a token behind it; default: x-slo-tpot-ms, a header",
    },
    "utility": {
        "type": "number",
        "minimum": 0,
        "default": 1.0,
        "description": "an extension: worth of an output in time; default: the header x-pliant-utility",
    },
    "priority": {
        "type": "integer",
        "minimum": -MAX_PRIORITY,
        "maximum": MAX_PRIORITY,
        "default": 0,
        "description": "vLLM's: lower goes first",
    },
    "offline": {
        "type": "boolean",
        "default": False,
        "description": "an extension: one of a batch of requests that is needed as a whole",
    },
}
BODIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "/completions": (
        "prompt",
        {
            "prompt": _PROMPT,
            "echo": {"type": "boolean", "default": False},
            "logprobs": {"type": "integer", "minimum": 0, "maximum": MAX_LOGPROBS},
            "best_of": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_CHOICES,
                "description": "at least n, which is its default",
            },
            **_COMMON,
        },
    ),
    "/chat/completions": (
        "messages",
        {
            "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
            "max_completion_tokens": _COMMON["max_tokens"],
            "logprobs": {"type": "boolean", "default": False},
            "top_logprobs": {"type": "integer", "minimum": 0, "maximum": MAX_LOGPROBS, "default": 0},
            "chat_template_kwargs": {"type": "object", "description": "vLLM's: variables of the chat template"},
            **_TOOLS,
            **_COMMON,
        },
    ),
    "/tokenize": (
        "",
        {
            "model": _COMMON["model"],
            "prompt": {"type": "string"},
            "messages": {"type": "array", "items": _MESSAGE, "minItems": 1, "description": "instead of prompt"},
            "add_special_tokens": _COMMON["add_special_tokens"],
            "return_token_strs": {"type": "boolean", "default": False},
            "chat_template_kwargs": {"type": "object"},
            "tools": _TOOLS["tools"],
        },
    ),
    "/detokenize": (
        "tokens",
        {"model": _COMMON["model"], "tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
    ),
}
"""The fields of a route, and the one that it must have; empty: none."""
