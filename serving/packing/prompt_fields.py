"""Reads the prompts of a request: texts, token ids, or a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pliant.errors import InputError
from pliant.packing.chat import REASONING
from pliant.packing.tools import Tool
from serving.http.api_errors import ApiError
from serving.http.json_body import shorten
from serving.http.texts import check_count
from serving.packing.request import PromptInput
from serving.packing.tool_fields import read_calls

MAX_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant", "tool")
MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", *REASONING)


def prompts(value: object, most: int, special: bool = True) -> tuple[PromptInput, ...]:
    """Return the prompts of the field `prompt`, at most so many. `special`: texts get the tokenizer's special tokens."""
    if isinstance(value, str):
        return (_text("prompt", value, special),)
    if not isinstance(value, list) or not value:
        raise InputError("prompt", shorten(value), "a text, a list of token ids, or a list of these")
    if isinstance(value[0], int):
        return (token_ids("prompt", value),)
    check_count("prompt", value, most)
    return tuple(
        token_ids(f"prompt[{index}]", item) if isinstance(item, list) else _text(f"prompt[{index}]", item, special)
        for index, item in enumerate(value)
    )


def conversation(
    value: object,
    special: bool | None = None,
    template: Mapping[str, Any] | None = None,
    tools: tuple[Tool, ...] = (),
) -> PromptInput:
    """Return the prompt of the field `messages`. `template`: variables of the chat template."""
    if not isinstance(value, list) or not value:
        raise InputError("messages", shorten(value), "a list of at least one message")
    if len(value) > MAX_MESSAGES:
        raise InputError("messages", f"a list of {len(value)}", f"of at most {MAX_MESSAGES} messages")
    messages = tuple(_message(f"messages[{index}]", item) for index, item in enumerate(value))
    return PromptInput("messages", messages=messages, special=special, template=template or {}, tools=tools)


def token_ids(name: str, value: Sequence[object]) -> PromptInput:
    """Return a prompt of token ids. Raises `InputError` unless there is one and all are whole numbers."""
    if not value or not all(isinstance(id, int) and not isinstance(id, bool) for id in value):
        raise InputError(name, shorten(value), "a list of token ids")
    return PromptInput(name, ids=tuple(value))  # type: ignore[arg-type]


def _text(name: str, value: object, special: bool) -> PromptInput:
    return PromptInput(name, text=_clean(name, value), special=special)


def _clean(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(name, shorten(value), "a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        shown = f"a text with the lone surrogate {shorten(value[error.start])} at character {error.start}"
        raise InputError(name, shown, "a text that UTF-8 can hold") from None
    return value


def _message(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(name, shorten(value), "an object with role and content")
    if value.get("role") not in ROLES:
        raise InputError(f"{name}.role", shorten(value.get("role")), f"one of {', '.join(ROLES)}")
    for field, other in value.items():
        if field not in MESSAGE_FIELDS and other not in (None, []):
            raise ApiError(400, "unsupported_parameter", f"{name} has {shorten(field)}, which is not supported", name)
    texts = {
        field: _clean(f"{name}.{field}", value[field])
        for field in ("name", "tool_call_id", *REASONING)
        if value.get(field) is not None
    }
    calls = read_calls(f"{name}.tool_calls", value["tool_calls"]) if value.get("tool_calls") else []
    if calls and value["role"] != "assistant":
        raise InputError(f"{name}.tool_calls", "given", "left out unless the role is assistant")
    if value.get("content") is not None or not calls:
        texts["content"] = _content(f"{name}.content", value.get("content"))
    known = {"role": value["role"], **texts, **({"tool_calls": calls} if calls else {})}
    return {field: known[field] for field in value if field in known}  # in their order, which a template may write


def _content(name: str, value: object) -> str:
    if not isinstance(value, list):
        return _clean(name, value)
    return "".join(_part(f"{name}[{index}]", part) for index, part in enumerate(value))


def _part(name: str, value: object) -> str:
    if not isinstance(value, dict) or value.get("type") != "text":
        raise InputError(name, shorten(value), 'an object of type "text"')
    return _clean(f"{name}.text", value.get("text"))
