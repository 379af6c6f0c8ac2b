"""Renders a conversation as the text that a model continues, by the model's own Jinja template. Knows no tokens.

The text is that of transformers' `apply_chat_template`, but for limits: a template is a program, compiled
by Jinja in its sandbox, which transformers lets run as long as it likes. Here it ends when it has taken `SECONDS` of a
processor, which is looked at in every pass of a loop and at every call and filter, or when an operation makes a text of more
than `CHARACTERS`. Tools, calls and results that a template knows nothing of are described in a
system message, in the format of Hermes, which many models have been trained on. Calls are read from a model's text in the
known formats.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer
from tokenizers import Tokenizer

from pliant.errors import ArtifactError, InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.grammar import json_rule

Message = Mapping[str, Any]
"""`role`, and what is there of `content`, `name` and `reasoning_content`, which are texts.

Of an assistant perhaps `tool_calls`, whose arguments are objects.
"""


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
            return
        start = self._held.lstrip()  # calls without an end mark must come first
        if self._begun or not (start.startswith(self._form.begin) or self._form.begin.startswith(start)):
            yield from self._text(self._held)
            self._held = ""

    def end(self) -> Iterator[str | ToolCall]:
        """End the text. Yield what is left of it."""
        held, self._held = self._held, ""
        mark = "" if self._form is LLAMA else self._form.begin
        calls = [] if self._form.end else self._read(held.strip().removeprefix(mark))
        if calls:
            yield from self._counted(calls)
        else:
            yield from self._text(held)

    def _tagged(self) -> Iterator[str | ToolCall]:
        form = self._form
        while True:
            before, mark, rest = self._held.partition(form.begin)
            if not mark:
                kept = beginning(self._held, form.begin)
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
        if not isinstance(arguments, dict):
            return None
        return ToolCall(value["name"], json.dumps(arguments, ensure_ascii=False))


def _plain(message: Message) -> Message:
    """Return a message without calls and results, which become texts."""
    if message.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_text(message)}\n</tool_response>"}
    if not message.get("tool_calls"):
        return message
    calls = [
        f"<tool_call>\n{json.dumps({key: call['function'][key] for key in ('name', 'arguments')}, ensure_ascii=False)}\n"
        "</tool_call>"
        for call in message["tool_calls"]
    ]
    return {"role": message["role"], "content": "\n".join([text for text in (_text(message), *calls) if text])}


def _text(message: Message) -> str:
    return message.get("content") or ""


def beginning(text: str, mark: str) -> int:
    """Return the largest number of characters at the end of `text` with which the mark begins."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-size:])), 0)


SECONDS = 2.0  # of a processor, for one conversation
CHARACTERS = 1 << 24  # of one conversation's text, and of any other; items of a list
BITS = 4096  # of a product or power

_UNTIL: ContextVar[float] = ContextVar("until")


class TemplateRefusalError(TemplateError):
    """A template refuses a conversation by `raise_exception`."""


class TemplateLimitError(TemplateError):
    """A template takes more time or room than it may."""


class ChatProgram:
    """The compiled template. Raises `ArtifactError` for one that cannot be parsed."""

    def __init__(self, source: str) -> None:
        environment = _Environment()
        try:
            tree = environment.parse(source)
            self.names = frozenset(node.name for node in tree.find_all(nodes.Name))
            self._template = environment.from_string(_Limiter().visit(tree))
        except TemplateError as error:
            raise ArtifactError(f"the chat template cannot be read: {error}") from error

    def run(self, variables: Mapping[str, Any]) -> str:
        """Return the text. Raises `TemplateRefusalError`, `TemplateLimitError`, and whatever else a program can."""
        pieces, size = [], 0
        token = _UNTIL.set(time.thread_time() + SECONDS)
        try:
            for piece in self._template.generate(variables):
                pieces.append(piece)
                size += len(piece)
                if size > CHARACTERS:
                    raise TemplateLimitError(f"it makes a text of more than {CHARACTERS} characters")
        finally:
            _UNTIL.reset(token)
        return "".join(pieces)


class _Limiter(NodeTransformer):
    """Has loops look at the time, and bounds what ~ and blocks make; `_Environment` does so for all else."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  # as in Jinja
        look = nodes.Call(nodes.EnvironmentAttribute("look"), [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(look, lineno=node.lineno))
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return nodes.Filter(self.generic_visit(node), "bounded", [], [], None, None, lineno=node.lineno)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        node.filter = nodes.Filter(node.filter, "bounded", [], [], None, None, lineno=node.lineno)
        return self.generic_visit(node)


def _look() -> None:
    if time.thread_time() > _UNTIL.get():
        raise TemplateLimitError(f"it takes more than {SECONDS:g} s of a processor")


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and len(value) > CHARACTERS:
        raise TemplateLimitError(f"it makes a text of more than {CHARACTERS} characters")
    return value


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters.update(tojson=_tojson, bounded=_bounded)
        self.filters = {name: _looking(filter) for name, filter in self.filters.items()}
        self.globals["raise_exception"] = _raise
        self.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self.globals["dict"] = _Dict()
        self.globals["namespace"] = _PublicNamespace

    def look(self) -> None:
        """Do nothing: `call` has looked at the time."""

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # as in Jinja
        _look()
        return _bounded(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator != "+":
            if isinstance(left, int) and isinstance(right, int):
                bits = left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
                large = bits > BITS
            else:
                count, repeated = (left, right) if isinstance(left, int) else (right, left)
                large = isinstance(count, int) and hasattr(repeated, "__len__") and len(repeated) * count > CHARACTERS
            if large:
                raise TemplateLimitError(f"it makes too large a value with {operator}")
        return _bounded(super().call_binop(context, operator, left, right))


class _Generation(Extension):
    """The tag {% generation %}, which marks what an assistant says for training and leaves it as it is."""

    tags = {"generation"}  # noqa: RUF012  # as in Jinja

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: Callable[[], str]) -> str:
        return caller()


class _Dict:
    """`dict` without what the class can do to values of others."""

    fromkeys = staticmethod(dict.fromkeys)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)


class _PublicNamespace(Namespace):
    """A namespace without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be one of the names
        values = dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"{name} begins with an underscore")


def _looking(filter: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that looks at the time first, and whose result is bounded."""

    @wraps(filter)
    def looking(*args: Any, **kwargs: Any) -> Any:
        _look()
        return _bounded(filter(*args, **kwargs))

    return looking


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise TemplateRefusalError(message or "it says no reason")


SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
TOOL_USE = "tool_use"  # the name of the template for conversations with tools, where there is one
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of a message's reasoning, the first of which counts; templates read it by the first two."""

_ASK, _ANSWER = {"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Yes?"}
PLAIN: Sequence[Sequence[Message]] = ([_ASK], [_ASK, _ANSWER, _ASK])
"""Conversations on which no template may fail, unless it refuses them."""
PLAIN_TOOL = Tool("look_up", "Look up a word.", {"type": "object", "properties": {"word": {"type": "string"}}})


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
        signs = [form for form, sign in _SIGNS if sign in with_tools] if self.writes_tools else []
        self.tool_format = signs[0] if signs else HERMES  # in which the model is asked to write calls
        self._troubles: dict[bool, str] = {}

    @property
    def given(self) -> bool:
        """Whether there is a template, which then sets special tokens itself."""
        return self._program is not None

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
            self._troubles[tools] = ""
            for plain in PLAIN:
                try:
                    self._render(plain, {}, [PLAIN_TOOL] if tools else [])
                except TemplateRefusalError:
                    continue
                except Exception as error:
                    self._troubles[tools] = _reason(error)
                    break
        return self._troubles[tools]


def template_of(generator: Generator, tokenizer: Tokenizer) -> ChatTemplate:
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
