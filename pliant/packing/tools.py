"""Tools that a model may call: how they are written into a conversation, and how calls are read from its text.

A chat template that takes tools writes them itself, in the format of its model. Else they are described in a system message,
in the format of Hermes, which many models have been trained on. Calls are read in the known formats.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.packing.engine.grammar import json_rule

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters`: JSON schema of its arguments; `given`: as the client wrote it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    given: Mapping[str, Any] | None = field(default=None, compare=False)

    def to_dict(self) -> Mapping[str, Any]:
        """Return it as the client wrote it, or else as OpenAI does: so chat templates expect it."""
        if self.given is not None:
            return self.given
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in a model's text. `arguments`: JSON of an object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How a model writes calls: between `begin` and `end`, as JSON with the arguments under `key`.

    Without an `end` a call reaches to the end of the text, and is one object or a list of them.
    """

    begin: str
    end: str
    key: str


HERMES = ToolFormat("<tool_call>", "</tool_call>", "arguments")
MISTRAL = ToolFormat("[TOOL_CALLS]", "", "arguments")
LLAMA = ToolFormat("{", "", "parameters")
_SIGNS = ((HERMES, "<tool_call>"), (MISTRAL, "[TOOL_CALLS]"), (LLAMA, '"parameters"'))

DESCRIBED = """You may call one or more functions to assist with the user query. The functions are:
<tools>
{tools}
</tools>

For each function call, return a JSON object with the function's name and arguments within <tool_call> tags:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument's name": "its value"}}}}
</tool_call>"""


def format_of(template: str) -> ToolFormat | None:
    """Return the format in which a chat template that takes tools writes calls; None for an unknown one."""
    return next((form for form, sign in _SIGNS if sign in template), None)


def described(messages: Sequence[Message], tools: Sequence[Tool], system: bool = True) -> list[Message]:
    """Return a conversation in which tools, calls and results are texts, for a template that knows none.

    `system`: the tools stand in a system message; else in the first message, whosever it is.
    """
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    text = DESCRIBED.format(tools="\n".join(json.dumps(tool.to_dict(), ensure_ascii=False) for tool in tools))
    if system and plain[0].get("role") not in ("system", "developer"):
        return [{"role": "system", "content": text}, *plain]
    first = {**plain[0], "content": f"{_text(plain[0])}\n\n{text}"}
    return [first, *plain[1:]]


def calls_grammar(form: ToolFormat, tools: Sequence[Tool], parallel: bool) -> str:
    """Return the grammar of texts that are calls of these tools: one, or one and more if they may be `parallel`."""
    choices = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, form.key: dict(tool.parameters) or {"type": "object"}},
            "required": ["name", form.key],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    calls = choices[0] if len(choices) == 1 else {"anyOf": choices}
    if form.end:
        more = ' ("\\n" call)*' if parallel else ""
        return f'start: call{more}\ncall: "{form.begin}\\n" body "\\n{form.end}"\nbody: {json_rule(calls)}'
    if form is LLAMA:
        return f"start: {json_rule(calls)}"
    several = {"type": "array", "items": calls, "minItems": 1, **({} if parallel else {"maxItems": 1})}
    return f'start: "{form.begin}" body\nbody: {json_rule(several)}'


class CallParser:
    """Reads calls out of a text that comes in parts. What looks like a call and is none stays text.

    `names`: of the tools; a call of any other is text, too.
    """

    def __init__(self, form: ToolFormat, names: Sequence[str], parallel: bool = True) -> None:
        self._form, self._names, self._parallel = form, frozenset(names), parallel
        self._held = ""  # may be a call, or the beginning of its mark
        self._begun = False  # whether any text or call has been given out
        self._calls = 0

    def put(self, text: str) -> Iterator[str | ToolCall]:
        """Take the next part. Yield what is known to be text, and calls."""
        self._held += text
        if self._form.end:
            yield from self._tagged()
        elif not self._may_be_untagged():
            yield from self._text(self._held)
            self._held = ""

    def end(self) -> Iterator[str | ToolCall]:
        """End the text. Yield what is left of it."""
        held, self._held = self._held, ""
        calls = [] if self._form.end else self._read(held.strip().removeprefix(_mark(self._form)))
        if calls:
            yield from self._counted(calls)
        else:
            yield from self._text(held)

    def _tagged(self) -> Iterator[str | ToolCall]:
        form = self._form
        while True:
            before, mark, rest = self._held.partition(form.begin)
            if not mark:
                kept = _beginning(self._held, form.begin)
                text, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
                yield from self._text(text)
                return
            yield from self._text(before)
            self._held = mark + rest
            body, end, rest = rest.partition(form.end)
            if not end:
                return
            calls = self._read(body)
            yield from self._counted(calls) if calls else self._text(mark + body + end)
            self._held = rest

    def _may_be_untagged(self) -> bool:
        """Whether the text so far may be calls without an end mark, which must come first."""
        start = self._held.lstrip()
        return not self._begun and (start.startswith(self._form.begin) or self._form.begin.startswith(start))

    def _text(self, text: str) -> Iterator[str]:
        """Yield a text, unless it is the space between calls."""
        if text and not (self._calls and not text.strip()):
            self._begun = True
            yield text

    def _counted(self, calls: Sequence[ToolCall]) -> Iterator[ToolCall]:
        for call in calls:
            if self._parallel or not self._calls:
                self._calls, self._begun = self._calls + 1, True
                yield call

    def _read(self, body: str) -> list[ToolCall]:
        """Return the calls that a text is; none if any part of it is not one."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return []
        calls = [self._call(item) for item in (value if isinstance(value, list) else [value])]
        return [call for call in calls if call is not None] if all(calls) else []

    def _call(self, value: Any) -> ToolCall | None:
        if not isinstance(value, dict) or value.get("name") not in self._names:
            return None
        arguments: Any = next((value[key] for key in (self._form.key, "arguments", "parameters") if key in value), {})
        return (
            ToolCall(value["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None
        )


def _plain(message: Message) -> Message:
    """Return a message without calls and results, which become texts."""
    if message.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_text(message)}\n</tool_response>"}
    if not message.get("tool_calls"):
        return message
    calls = [
        f"<tool_call>\n{json.dumps(_function(call), ensure_ascii=False)}\n</tool_call>"
        for call in message["tool_calls"]
    ]
    return {"role": message["role"], "content": "\n".join([text for text in (_text(message), *calls) if text])}


def _text(message: Message) -> str:
    return message.get("content") or ""


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}


def _mark(form: ToolFormat) -> str:
    return "" if form is LLAMA else form.begin


def _beginning(text: str, mark: str) -> int:
    """Return the largest number of characters at the end of `text` with which the mark begins."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-size:])), 0)
