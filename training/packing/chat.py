"""Reads a generator's chat templates, and compares the prompts that Pliant makes by them with those of transformers.

A model is published only if they are the same, token by token, and where one refuses a conversation, the other does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.chat import ChatTemplate, Message, Tool

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a tokenizer knows of conversations; `special`: its special tokens by their names in templates."""

    source: str
    named: Mapping[str, str]
    special: Mapping[str, str]


_WEATHER = Tool("weather", "Tell the weather.", {"type": "object", "properties": {"place": {"type": "string"}}})
_TIME = Tool("time", "", {"type": "object", "properties": {}})
_CALL = {"id": "call12345", "type": "function", "function": {"name": "weather", "arguments": {"place": "Århus"}}}
_SYSTEM = {"role": "system", "content": "Be brief."}
_ASK, _ANSWER = {"role": "user", "content": "What is an oak?"}, {"role": "assistant", "content": " A tree.\n"}
_CALLS: Sequence[Message] = (
    {"role": "user", "content": "Is it raining?"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "content": '{"rain": true}', "name": "weather", "tool_call_id": "call12345"},
)
CONVERSATIONS: Mapping[str, tuple[Sequence[Message], Sequence[Tool]]] = {
    "a question": ([_ASK], ()),
    "a system message": ([_SYSTEM, _ASK], ()),
    "many turns": ([*[_ASK, _ANSWER] * 3, _ASK], ()),
    "many turns with a system message": ([_SYSTEM, *[_ASK, _ANSWER] * 3, _ASK], ()),
    "an empty message": ([{"role": "user", "content": ""}], ()),
    "letters of many languages": ([{"role": "user", "content": " naïve 東京 — \U0001f642\n\n<&\"'> {{ x }}\t"}], ()),
    "reasoning": ([_ASK, {**_ANSWER, "reasoning_content": "An oak ..."}, _ASK], ()),
    "tools": ([_SYSTEM, _ASK], (_WEATHER, _TIME)),
    "calls and results": (_CALLS, (_WEATHER, _TIME)),
    "calls with a system message": ([_SYSTEM, *_CALLS, _ANSWER, _ASK], (_WEATHER,)),
}


def read(tokenizer: Any, name: str) -> ChatSettings:
    """Return what a tokenizer of transformers knows. Raises `InputError` for named templates without a default."""
    templates = getattr(tokenizer, "chat_template", None) or ""
    if isinstance(templates, str):
        templates = {DEFAULT: templates}
    if DEFAULT not in templates:
        raise InputError(
            f"the chat template of {name}", " and ".join(templates), f"{DEFAULT} or several with {DEFAULT}"
        )
    named = {key: source for key, source in templates.items() if key != DEFAULT}
    return ChatSettings(templates[DEFAULT], named, tokenizer.special_tokens_map)


def check(settings: ChatSettings, tokenizer: Any, own: Tokenizer, name: str) -> None:
    """Compare the prompts of CONVERSATIONS. `tokenizer`: of transformers; `own`: the one that is served; `name`: of both.

    Raises `InputError` for the first difference, and for a template that cannot be used.
    """
    if not settings.source:
        return
    try:
        template = ChatTemplate(settings.source, settings.special, settings.named)
        for kind, (messages, tools) in CONVERSATIONS.items():
            if not tools or template.writes_tools:  # else Pliant describes them, and transformers leaves them out
                _compare(kind, _prompt(template, own, messages, tools), _expected(tokenizer, messages, tools), name)
    except ArtifactError as error:
        raise InputError(
            f"the chat template of {name}", f"unusable: {error}", "one that takes a user's message"
        ) from None


def _prompt(
    template: ChatTemplate, own: Tokenizer, messages: Sequence[Message], tools: Sequence[Tool]
) -> list[int] | str:
    """Return the tokens, or why there are none."""
    try:
        return own.encode(template.render(messages, None, tools), add_special_tokens=False).ids
    except InputError as error:
        return str(error.value)


def _expected(tokenizer: Any, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int] | str:
    written = [tool.to_dict() for tool in tools] or None
    try:
        ids: list[int] = tokenizer.apply_chat_template(
            list(messages), tools=written, add_generation_prompt=True, return_dict=False
        )
    except Exception as error:  # a template is a program
        return f"refused by transformers ({error})"
    return ids


def _compare(kind: str, prompt: list[int] | str, expected: list[int] | str, name: str) -> None:
    if prompt == expected or (isinstance(prompt, str) and isinstance(expected, str)):
        return
    if isinstance(prompt, str) or isinstance(expected, str):
        difference = next(str(reason) for reason in (prompt, expected) if isinstance(reason, str)) + " alone"
    else:
        pairs = enumerate(zip_longest(prompt, expected))
        at, (token, wanted) = next((at, pair) for at, pair in pairs if pair[0] != pair[1])
        difference = f"token {at} is {token} in place of {wanted}"
    raise InputError(
        f"the chat template of {name}",
        f"rendered otherwise than by transformers ({kind}: {difference})",
        "one whose prompts are the same in both",
    )
