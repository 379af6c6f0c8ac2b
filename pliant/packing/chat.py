"""Renders a conversation as the text that a model continues, by the model's own Jinja template. Knows no tokens.

Templates run as in transformers: in Jinja's sandbox, with the same settings, names and filters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.tools import HERMES, Tool, ToolFormat, described, format_of

Message = Mapping[str, Any]
"""`role` and `content`, both texts; perhaps `name`; of an assistant perhaps `tool_calls`, whose arguments are objects."""

SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """The template `source`; an empty one joins the contents by newlines. `special`: bos_token and so on, as texts."""

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        """Raises `ArtifactError` for a template that cannot be parsed."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._special = dict(special)
        try:
            self._template = environment.from_string(source) if source else None
            takes_tools = "tools" in find_undeclared_variables(environment.parse(source))
        except TemplateError as error:
            raise ArtifactError(f"the chat template cannot be read: {error}") from error
        self._own_format = format_of(source, takes_tools)

    @property
    def given(self) -> bool:
        """Whether there is a template, which then sets special tokens itself."""
        return self._template is not None

    @property
    def tool_format(self) -> ToolFormat:
        """How the model is asked to write calls of tools."""
        return self._own_format or HERMES

    def render(
        self, messages: Sequence[Message], variables: Mapping[str, Any] | None = None, tools: Sequence[Tool] = ()
    ) -> str:
        """Return the text to continue. `variables`: others that the template may use; they replace none of its own.

        Raises `InputError` for a conversation that the template rejects.
        """
        variables = {**(variables or {}), "add_generation_prompt": True, **self._special}
        if self._own_format is None:
            return self._render_described(messages, variables, tools)
        return self._render(messages, {**variables, **({"tools": [tool.to_dict() for tool in tools]} if tools else {})})

    def _render_described(
        self, messages: Sequence[Message], variables: Mapping[str, Any], tools: Sequence[Tool]
    ) -> str:
        try:
            return self._render(described(messages, tools), variables)
        except InputError:
            if not tools:
                raise
            return self._render(described(messages, tools, system=False), variables)  # some take no system messages

    def _render(self, messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        if self._template is None:
            return "\n".join(message["content"] for message in messages)
        try:
            return self._template.render({**variables, "messages": messages})
        except Exception as error:  # a template is a program, and it runs on the client's messages
            reason = str(error) or type(error).__name__
            raise InputError(
                "messages", f"refused by the model's template ({reason})", "a conversation that it takes"
            ) from None


def special_tokens(config: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, str]:
    """Return a template's names of special tokens with their texts, by the ids in a model's configuration."""
    tokens = {}
    for name in SPECIAL:
        ids = config.get(f"{name}_id")
        token_id = ids[0] if isinstance(ids, list) and ids else ids
        tokens[name] = (tokenizer.id_to_token(token_id) or "") if isinstance(token_id, int) else ""
    return tokens


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
