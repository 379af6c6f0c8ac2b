"""Renders a conversation as the text that a model continues, by the model's own Jinja template. Knows no tokens.

The text is that of transformers' `apply_chat_template`, within limits (pliant/packing/chat_program.py). Tools, calls and
results that a template knows nothing of are described in words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.chat_program import ChatProgram, TemplateRefusalError
from pliant.packing.tools import HERMES, Tool, ToolFormat, described, format_of

Message = Mapping[str, Any]
"""`role`, and what is there of `content`, `name` and `reasoning_content`, which are texts.

Of an assistant perhaps `tool_calls`, whose arguments are objects.
"""

SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
TOOL_USE = "tool_use"  # the name of the template for conversations with tools, where there is one
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of a message's reasoning, the first of which counts; templates read it by the first two."""

_ASK, _ANSWER = {"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Yes?"}
PLAIN: Sequence[Sequence[Message]] = ([_ASK], [_ASK, _ANSWER, _ASK])
"""Conversations on which no template may fail, unless it refuses them."""
PLAIN_TOOL = Tool("look_up", "Look up a word.", {"type": "object", "properties": {"word": {"type": "string"}}})


class Chat(Protocol):
    """What a generator knows of conversations."""

    @property
    def config(self) -> str: ...
    @property
    def chat_template(self) -> str: ...
    @property
    def chat_templates(self) -> Mapping[str, str]: ...
    @property
    def special_tokens(self) -> Mapping[str, str] | None: ...


class ChatTemplate:
    """The template `source`; an empty one joins the contents by newlines.

    `special`: bos_token and so on, as texts, without those that the tokenizer lacks. `named`: further templates.
    Raises `ArtifactError` for a template that cannot be parsed.
    """

    def __init__(self, source: str, special: Mapping[str, str], named: Mapping[str, str] | None = None) -> None:
        with_tools = (named or {}).get(TOOL_USE, source)
        self._special = dict(special)
        self._program = ChatProgram(source) if source else None
        self._tool_program = self._program if with_tools == source else ChatProgram(with_tools)
        self.writes_tools = self._tool_program is not None and "tools" in self._tool_program.names
        self._writes_calls = self.writes_tools or "tool_calls" in source
        self._format = format_of(with_tools) if self.writes_tools else None
        self._troubles: dict[bool, str] = {}

    @property
    def given(self) -> bool:
        """Whether there is a template, which then sets special tokens itself."""
        return self._program is not None

    @property
    def tool_format(self) -> ToolFormat:
        """How the model is asked to write calls of tools."""
        return self._format or HERMES

    def render(
        self, messages: Sequence[Message], variables: Mapping[str, Any] | None = None, tools: Sequence[Tool] = ()
    ) -> str:
        """Return the text to continue. `variables`: others that the template may use.

        Raises `InputError` for a conversation that the template does not take, `ArtifactError` for a template that fails on
        plain ones, too.
        """
        try:
            text = self._render(messages, variables or {}, tools)
            text.encode()
        except UnicodeEncodeError:
            raise InputError("messages", "with a lone surrogate", "texts that UTF-8 can hold") from None
        except Exception as error:  # a template is a program, and it runs on the client's messages
            trouble = "" if isinstance(error, TemplateRefusalError) else self._trouble(bool(tools))
            if trouble:
                raise ArtifactError(
                    f"the model's chat template fails on a plain conversation, too ({trouble})"
                ) from None
            reason = _reason(error)
            raise InputError(
                "messages", f"refused by the model's template ({reason})", "a conversation that it takes"
            ) from None
        return text

    def _render(self, messages: Sequence[Message], variables: Mapping[str, Any], tools: Sequence[Tool]) -> str:
        if not tools or self.writes_tools:
            return self._run(messages if self._writes_calls else described(messages, ()), variables, tools)
        try:
            return self._run(described(messages, tools), variables)
        except Exception:  # some take no system messages
            return self._run(described(messages, tools, system=False), variables)

    def _run(self, messages: Sequence[Message], variables: Mapping[str, Any], tools: Sequence[Tool] = ()) -> str:
        program = self._tool_program if tools else self._program
        if program is None:
            return "\n".join(message.get("content") or "" for message in messages)
        given = {"documents": None, **self._special, **variables}
        written = [tool.to_dict() for tool in tools] or None
        return program.run(
            {**given, "messages": [*map(_read, messages)], "tools": written, "add_generation_prompt": True}
        )

    def _trouble(self, tools: bool) -> str:
        """Return why the template fails on a plain conversation; empty where it does not."""
        if tools not in self._troubles:
            self._troubles[tools] = next(filter(None, (self._fails(plain, tools) for plain in PLAIN)), "")
        return self._troubles[tools]

    def _fails(self, messages: Sequence[Message], tools: bool) -> str:
        try:
            self._render(messages, {}, [PLAIN_TOOL] if tools else [])
        except TemplateRefusalError:
            return ""
        except Exception as error:
            return _reason(error)
        return ""


def template_of(generator: Chat, tokenizer: Tokenizer) -> ChatTemplate:
    """Return the template of a generator. Raises `ArtifactError`."""
    special = generator.special_tokens
    if special is None:
        special = special_tokens(json.loads(generator.config), tokenizer)
    return ChatTemplate(generator.chat_template, special, generator.chat_templates)


def special_tokens(config: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, str]:
    """Return the special tokens of a generator that does not tell its tokenizer's, by the ids in its configuration."""
    tokens = {}
    for name in SPECIAL:
        ids = config.get(f"{name}_id")
        token_id = ids[0] if isinstance(ids, list) and ids else ids
        tokens[name] = (tokenizer.id_to_token(token_id) or "") if isinstance(token_id, int) else ""
    return tokens


def _read(message: Message) -> Message:
    """Return a message as a template reads it: without what is null, with its reasoning under both names."""
    given = {key: value for key, value in message.items() if value is not None}
    reasoning = next((given[name] for name in REASONING if name in given), None)
    return given if reasoning is None else {"thinking": reasoning, **given, "reasoning_content": reasoning}


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
